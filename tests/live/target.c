/*
 * tests/live/target.c: is a program to record. Each mode prints one line when it is ready, then
 * runs until it is killed or its time is over.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define MARK_ABOVE 0x1122334455667788u /* in a caller's frame */
#define MARK_BELOW 0x8877665544332211u /* in the red zone */
#define HOLE_BYTES (64u * 1024)

/*
 * Spin at the label spin_here while every register but rsp has the value 0x5a00…0 + its DWARF
 * number (psABI figure 3.36).
 */
__attribute__((noinline, noreturn)) static void spin_registers(void)
{
	__asm__ volatile("movabsq $0x8877665544332211, %%rax\n\t"
			 "movq %%rax, -64(%%rsp)\n\t"
			 "movabsq $0x5a00000000000000, %%rax\n\t"
			 "leaq 1(%%rax), %%rdx\n\t"
			 "leaq 2(%%rax), %%rcx\n\t"
			 "leaq 3(%%rax), %%rbx\n\t"
			 "leaq 4(%%rax), %%rsi\n\t"
			 "leaq 5(%%rax), %%rdi\n\t"
			 "leaq 6(%%rax), %%rbp\n\t"
			 "leaq 8(%%rax), %%r8\n\t"
			 "leaq 9(%%rax), %%r9\n\t"
			 "leaq 10(%%rax), %%r10\n\t"
			 "leaq 11(%%rax), %%r11\n\t"
			 "leaq 12(%%rax), %%r12\n\t"
			 "leaq 13(%%rax), %%r13\n\t"
			 "leaq 14(%%rax), %%r14\n\t"
			 "leaq 15(%%rax), %%r15\n\t"
			 ".globl spin_here\n"
			 "spin_here:\n\t"
			 "jmp spin_here" ::
				 : "memory");
	__builtin_unreachable();
}

extern const char spin_here[];

/* A frame with a marker, then a stretch of untouched stack, then the spin. */
__attribute__((noinline)) static void spin(size_t hole)
{
	volatile uint64_t mark = MARK_ABOVE;
	volatile char *untouched = __builtin_alloca(hole + 16);

	(void)printf("ready %" PRIxPTR " %" PRIxPTR " %" PRIxPTR " %" PRIxPTR "\n",
		     (uintptr_t)spin_here, (uintptr_t)&mark, (uintptr_t)untouched,
		     (uintptr_t)untouched + hole);
	(void)fflush(stdout);
	spin_registers();
}

static void *spin_thread(void *arg)
{
	(void)arg;
	spin(0);
	return NULL;
}

/* A coroutine, as libraries make it: its stack is outside the thread's bounds. */
static void spin_coroutine(void)
{
	static ucontext_t here, there;

	if (getcontext(&there))
		return;
	there.uc_stack.ss_size = 65536;
	there.uc_stack.ss_sp = malloc(there.uc_stack.ss_size);
	there.uc_link = &here;
	makecontext(&there, (void (*)(void))spin_thread, 1, NULL);
	(void)swapcontext(&here, &there);
}

static volatile uintptr_t interrupted_mark;

static void on_signal(int number)
{
	(void)number;
	(void)printf("ready %" PRIxPTR " %" PRIxPTR " 0 0\n", (uintptr_t)spin_here,
		     interrupted_mark);
	(void)fflush(stdout);
	spin_registers();
}

/* A handler spins on a stack of its own; the marker is in the interrupted frame. */
static void spin_signal(void)
{
	const struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_ONSTACK };
	const stack_t stack = { .ss_sp = malloc(65536 + 16), .ss_size = 65536 + 16 };
	volatile uint64_t mark = MARK_ABOVE;

	interrupted_mark = (uintptr_t)&mark;
	if (!sigaltstack(&stack, NULL) && !sigaction(SIGUSR1, &action, NULL))
		(void)raise(SIGUSR1);
}

static uint64_t now_us(clockid_t clock)
{
	struct timespec now;

	(void)clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

__attribute__((noinline)) static void burn(uint64_t us)
{
	uint64_t until = now_us(CLOCK_PROCESS_CPUTIME_ID) + us;

	while (now_us(CLOCK_PROCESS_CPUTIME_ID) < until)
		for (volatile int i = 0; i < 2000; i++)
			;
}

/* Add depth frames of 1 KiB, then work in the kernel and outside until killed. */
__attribute__((noinline)) static int deep(int depth)
{
	volatile char frame[1024];
	static char zeros[65536];
	int fd;

	frame[0] = (char)depth;
	if (depth)
		return deep(depth - 1) + frame[0];
	fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	(void)printf("ready\n");
	(void)fflush(stdout);
	while (read(fd, zeros, sizeof(zeros)) > 0)
		for (volatile int i = 0; i < 5000; i++)
			;
	return frame[0];
}

static int churn(const char *self, int count)
{
	char *const burner[] = { (char *)(uintptr_t)self, "burn", "3000", NULL };

	for (int i = 0; i < count; i++) {
		pid_t pid = fork();

		if (!pid) {
			(void)execv(self, burner);
			_exit(1);
		}
		if (pid < 0 || waitpid(pid, NULL, 0) != pid)
			return 1;
	}
	return 0;
}

/* A process, its child and its grandchild; each works for a while once it has read a byte, or the end. */
static int tree(int levels, uint64_t us)
{
	pid_t pid = levels ? fork() : 0;
	char byte;

	if (pid < 0)
		return 1;
	if (levels && !pid)
		return tree(levels - 1, us);
	(void)!read(STDIN_FILENO, &byte, 1);
	burn(us);
	return levels ? waitpid(pid, NULL, 0) != pid : 0;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	int number = argc > 2 ? atoi(argv[2]) : 0;
	pthread_t thread;

	if (!strcmp(mode, "spin"))
		spin(0);
	if (!strcmp(mode, "hole"))
		spin(HOLE_BYTES);
	if (!strcmp(mode, "thread") && !pthread_create(&thread, NULL, spin_thread, NULL))
		(void)pthread_join(thread, NULL);
	if (!strcmp(mode, "coroutine"))
		spin_coroutine();
	if (!strcmp(mode, "signal"))
		spin_signal();
	if (!strcmp(mode, "deep"))
		return deep(number);
	if (!strcmp(mode, "burn")) {
		burn((uint64_t)number);
		return 0;
	}
	if (!strcmp(mode, "churn"))
		return churn(argv[0], number);
	if (!strcmp(mode, "tree"))
		return tree(2, (uint64_t)number);
	(void)fprintf(
		stderr,
		"usage: target spin|hole|thread|coroutine|signal|deep N|burn US|churn N|tree US\n");
	return 2;
}
