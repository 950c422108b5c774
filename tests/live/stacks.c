/*
 * tests/live/stacks.c: makes stacks of every kind, of known depth. Each mode gives its thread the
 * mode's name, prints one line when the stack is built, and spins until killed.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

static const char *mode;
static int depth, frame_bytes;

static volatile bool killed; /* never */

__attribute__((noinline)) static int spin_here(void)
{
	(void)prctl(PR_SET_NAME, mode);
	(void)!write(STDOUT_FILENO, "ready\n", 6);
	for (volatile unsigned int i = 0; !killed; i++)
		;
	return 1;
}

/* Recurse to the requested number of frames, each of about the requested size. */
__attribute__((noinline)) static int deeper(int n)
{
	volatile char *frame = __builtin_alloca((size_t)frame_bytes);

	frame[0] = (char)n;
	if (n > 1)
		return deeper(n - 1) + frame[0];
	return spin_here() + frame[0];
}

__attribute__((noinline)) static int go_down(void)
{
	return deeper(depth) + 1;
}

static void *on_thread(void *arg)
{
	(void)go_down();
	return arg;
}

static int on_clone(void *arg)
{
	(void)arg;
	return go_down();
}

static void *some_stack(size_t size)
{
	return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1,
		    0);
}

static void on_fibre(void)
{
	(void)go_down();
}

static void run_fibre(void)
{
	static ucontext_t here, there;

	if (getcontext(&there))
		return;
	there.uc_stack.ss_size = 1 << 20;
	there.uc_stack.ss_sp = some_stack(there.uc_stack.ss_size);
	there.uc_link = &here;
	makecontext(&there, on_fibre, 0);
	(void)swapcontext(&here, &there);
}

static void on_signal(int number)
{
	(void)number;
	(void)spin_here();
}

/* Interrupted at the requested depth, handled on a stack of its own. */
__attribute__((noinline)) static int interrupted(int n)
{
	volatile char *frame = __builtin_alloca((size_t)frame_bytes);

	frame[0] = (char)n;
	if (n > 1)
		return interrupted(n - 1) + frame[0];
	return raise(SIGUSR1) + frame[0];
}

__attribute__((noinline)) static int run_signal(bool alternate)
{
	const struct sigaction action = { .sa_handler = on_signal,
					  .sa_flags = alternate ? SA_ONSTACK : 0 };
	const stack_t stack = { .ss_sp = some_stack(1 << 16), .ss_size = 1 << 16 };

	if (sigaltstack(&stack, NULL) || sigaction(SIGUSR1, &action, NULL))
		return 1;
	return interrupted(depth);
}

/* Pages in the middle of the stack that were never touched. */
__attribute__((noinline)) static int over_a_hole(size_t bytes)
{
	volatile char *untouched = __builtin_alloca(bytes);

	return go_down() + (untouched == NULL);
}

__attribute__((noinline)) static int in_child(void)
{
	pid_t pid = vfork();

	if (!pid) {
		/* Until exec it runs on its parent's stack. */
		(void)execl("/proc/self/exe", "stacks", "depth", "12", "64", "vforked", NULL);
		_exit(1);
	}
	return waitpid(pid, NULL, 0) != pid;
}

/* A library that is loaded and unloaded while it is sampled. */
__attribute__((noinline)) static int churn(const char *library)
{
	(void)prctl(PR_SET_NAME, mode);
	(void)!write(STDOUT_FILENO, "ready\n", 6);
	for (;;) {
		void *handle = dlopen(library, RTLD_NOW);
		int (*work)(int);

		if (!handle)
			return 1;
		*(void **)&work = dlsym(handle, "library_work");
		(void)work(100000);
		(void)dlclose(handle);
	}
}

int main(int argc, char **argv)
{
	pthread_attr_t attr;
	pthread_t thread;

	if (argc < 4)
		return 2;
	mode = argc > 4 ? argv[4] : argv[1];
	depth = atoi(argv[2]);
	frame_bytes = atoi(argv[3]);
	if (!strcmp(argv[1], "depth"))
		return go_down();
	if (!strcmp(argv[1], "thread")) {
		(void)pthread_attr_init(&attr);
		(void)pthread_attr_setstacksize(&attr, 2 << 20);
		if (pthread_create(&thread, &attr, on_thread, NULL))
			return 1;
		return pthread_join(thread, NULL);
	}
	if (!strcmp(argv[1], "clone")) {
		char *stack = some_stack(1 << 20);

		(void)clone(on_clone, stack + (1 << 20), SIGCHLD, NULL);
		return wait(NULL) < 0;
	}
	if (!strcmp(argv[1], "fibre"))
		run_fibre();
	if (!strcmp(argv[1], "signal") || !strcmp(argv[1], "altstack"))
		return run_signal(argv[1][0] == 'a');
	if (!strcmp(argv[1], "hole"))
		return over_a_hole(64 << 10);
	if (!strcmp(argv[1], "vfork"))
		return in_child();
	if (!strcmp(argv[1], "fork"))
		return fork() ? wait(NULL) < 0 : go_down();
	if (!strcmp(argv[1], "churn"))
		return churn(argv[5]);
	return 2;
}
