/* tests/faults/hostile/stacks.c: has stacks that change, turn in circles or lie where none is, while they are sampled. */
#include "attack.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

static volatile unsigned long sum;

static void *rewrite(void *arg)
{
	volatile unsigned long *words = arg;

	for (unsigned long n = 0;; n++)
		for (size_t i = 0; i < 256; i++)
			words[i] = (unsigned long)(uintptr_t)(words + (i * 7919 + n) % 256);
	return NULL;
}

/* Another thread writes over the frames of this one's callers. */
__attribute__((noinline)) static void below(void)
{
	volatile unsigned long room[512] = { 0 };
	pthread_t t;

	(void)pthread_create(&t, NULL, rewrite, (void *)(uintptr_t)(room + 100));
	for (;;)
		sum += room[0];
}

static void rewritten(char **args)
{
	(void)args;
	ready();
	below();
}

/* Frame pointers in a circle. */
static void circle(char **args)
{
	static unsigned long words[64];
	uint8_t *code = new_code(4096, 0);

	(void)args;
	for (size_t i = 0; i < 64; i += 2) {
		words[i] = (unsigned long)(uintptr_t)&words[(i + 2) % 64];
		words[i + 1] = (unsigned long)(uintptr_t)code + 5;
	}
	ready();
	__asm__ volatile("mov %0, %%rbp\n\tjmp *%1" ::"r"(words), "r"(code) : "memory");
}

/* A stack pointer in code, at both ends of memory, and where there is none. */
static void elsewhere(char **args)
{
	const unsigned long places[] = { (unsigned long)(uintptr_t)elsewhere,
					 0x7ffffffff000 - 8,
					 8,
					 0xffffffffff600000,
					 0x0000800000000000,
					 (unsigned long)(uintptr_t)stdout };

	(void)args;
	ready();
	for (size_t n = 0;; n++)
		__asm__ volatile("mov %%rsp, %%r12\n\tmov %0, %%rsp\n\tmov $3000000, %%ecx\n"
				 "1:\tdec %%ecx\n\tjnz 1b\n\tmov %%r12, %%rsp"
				 :
				 : "r"(places[n % 6])
				 : "r12", "rcx", "memory");
}

__attribute__((noinline)) static unsigned long bottom(void)
{
	while (sum != UINT64_MAX)
		sum++;
	return sum;
}

__attribute__((noinline)) static unsigned long deeper(long n)
{
	volatile char room[4000];

	room[0] = (char)n;
	return (n ? deeper(n - 1) : bottom()) + (unsigned long)room[0];
}

static void *deep_thread(void *arg)
{
	(void)deeper(2000);
	return arg;
}

/* Seven threads with stacks of 8 MB. */
static void deep(char **args)
{
	pthread_attr_t attr;

	(void)args;
	(void)pthread_attr_init(&attr);
	(void)pthread_attr_setstacksize(&attr, 64 << 20);
	for (int i = 0; i < 7; i++) {
		pthread_t t;

		(void)pthread_create(&t, &attr, deep_thread, NULL);
	}
	ready();
	(void)deeper(1500);
}

static void *drop(void *arg)
{
	for (;;) {
		(void)madvise(arg, 1 << 20, MADV_DONTNEED);
		(void)mprotect(arg, 1 << 20, PROT_NONE);
		pause_ms(1);
		(void)mprotect(arg, 1 << 20, PROT_READ | PROT_WRITE);
		pause_ms(1);
	}
	return NULL;
}

/* A stack that is taken away and comes back. */
static void vanishing(char **args)
{
	uint8_t *stack =
		mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_t t;

	(void)args;
	if (stack == MAP_FAILED || pthread_create(&t, NULL, drop, stack))
		fail("vanishing");
	ready();
	/* The loop uses no stack. */
	__asm__ volatile("mov %0, %%rsp\n1:\tinc %%rax\n\tjmp 1b" ::"r"(stack + 65536) : "memory");
}

static void on_signal(int number, siginfo_t *info, void *context)
{
	ucontext_t *u = context;

	(void)number;
	(void)info;
	/* What an unwinder finds in this frame leads back into the frame. */
	u->uc_mcontext.gregs[REG_RBP] = (greg_t)(uintptr_t)u;
	work();
}

/* Signals on other stacks, nested, with contexts that are written over. */
static void signals(char **args)
{
	const struct sigaction action = { .sa_sigaction = on_signal,
					  .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK };
	const stack_t stack = { .ss_sp = malloc(1 << 20), .ss_size = 1 << 20 };
	pid_t pid = getpid();

	(void)args;
	(void)sigaltstack(&stack, NULL);
	(void)sigaction(SIGUSR1, &action, NULL);
	ready();
	if (!fork())
		for (;;) {
			(void)kill(pid, SIGUSR1);
			pause_ms(1);
		}
	for (;;)
		work();
}

/* The thread pointer, which leads to a thread's stack, points anywhere. */
static void thread_pointer(char **args)
{
	unsigned long words[64];

	(void)args;
	for (size_t i = 0; i < 64; i++)
		words[i] = (unsigned long)(uintptr_t)&words[(i + 1) % 64];
	ready();
	(void)syscall(SYS_arch_prctl, 0x1002 /* ARCH_SET_FS */, words);
	for (;;)
		__asm__ volatile("");
}

int main(int argc, char **argv)
{
	static const struct attack attacks[] = {
		{ "rewritten", 0, rewritten },		 { "circle", 0, circle },
		{ "elsewhere", 0, elsewhere },		 { "deep", 0, deep },
		{ "vanishing", 0, vanishing },		 { "signals", 0, signals },
		{ "thread-pointer", 0, thread_pointer },
	};

	return attack_main(argc, argv, attacks, sizeof(attacks) / sizeof(attacks[0]));
}
