/* tests/faults/hostile/storms.c: begins and ends processes and threads, and renames them, as fast as it can. */
#include "attack.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *self;

static void forks(char **args)
{
	(void)args;
	(void)signal(SIGCHLD, SIG_IGN);
	ready();
	for (;;)
		if (!fork())
			_exit(0);
}

static void execs(char **args)
{
	(void)args;
	(void)signal(SIGCHLD, SIG_IGN);
	ready();
	for (;;)
		if (!vfork()) {
			(void)execl(self, self, "end", NULL);
			_exit(1);
		}
}

static void end(char **args)
{
	(void)args;
	_exit(0);
}

/* One process that executes itself again and again. */
static void execs_itself(char **args)
{
	if (!strcmp(args[0], "first"))
		ready();
	work();
	(void)execl(self, self, "execs-itself", "again", NULL);
	fail(self);
}

static void *nothing(void *arg)
{
	return arg;
}

static void threads(char **args)
{
	(void)args;
	ready();
	for (;;) {
		pthread_t t;

		if (!pthread_create(&t, NULL, nothing, NULL))
			(void)pthread_join(t, NULL);
	}
}

static void *busy(void *arg)
{
	(void)arg;
	for (;;) {
		work();
		pause_ms(200);
	}
	return NULL;
}

/* COUNT threads that compute now and then. */
static void threads_many(char **args)
{
	pthread_attr_t attr;

	(void)pthread_attr_init(&attr);
	(void)pthread_attr_setstacksize(&attr, 65536);
	for (int i = 0; i < atoi(args[0]); i++) {
		pthread_t t;

		if (pthread_create(&t, &attr, busy, NULL))
			break;
	}
	ready();
	(void)busy(NULL);
}

static void names(char **args)
{
	(void)args;
	ready();
	for (unsigned long i = 0;; i++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "c%lx", i * 0x9e3779b97f4a7c15ul);
		(void)prctl(PR_SET_NAME, name);
	}
}

/* Names with markup, control bytes, and another reading direction. */
static void names_evil(char **args)
{
	static const char *const evil[] = { "<img src=x>", "\033[2J\033[31mX",
					    "\033]0;t\a",  "a\nb\tc",
					    "=cmd|'/c'!A", "\xff\xfe\xe2\x80\xae",
					    "</script>" };

	(void)args;
	ready();
	for (unsigned int i = 0;; i++) {
		(void)prctl(PR_SET_NAME, evil[i / 50 % 7]);
		work();
	}
}

/* Children that are killed while they are sampled. */
static void kills(char **args)
{
	(void)args;
	ready();
	for (;;) {
		pid_t child = fork();

		if (!child)
			for (;;)
				work();
		pause_ms(1);
		if (child < 0)
			continue; /* too many processes */
		(void)kill(child, SIGKILL);
		(void)waitpid(child, NULL, 0);
	}
}

/* Run through all process ids, so that those of dead children come back with other programs. */
static void reuse(char **args)
{
	(void)args;
	ready();
	for (unsigned int n = 0;; n++) {
		pid_t child = vfork();

		if (!child) {
			if (n % 50 == 0)
				(void)execl("/bin/true", "true", NULL);
			_exit(0);
		}
		(void)waitpid(child, NULL, 0);
	}
}

/* Children that have this process's memory while it waits for them. */
static void vforks(char **args)
{
	(void)args;
	ready();
	for (;;) {
		pid_t child = vfork();

		if (!child) {
			work();
			_exit(0);
		}
		(void)waitpid(child, NULL, 0);
	}
}

/* A thread executes another program while others compute. */
static void exec_in_thread(char **args)
{
	if (!strcmp(args[0], "first"))
		ready();
	for (int i = 0; i < 20; i++) {
		pthread_t t;

		(void)pthread_create(&t, NULL, busy, NULL);
	}
	work();
	if (!vfork()) {
		(void)execl("/bin/true", "true", NULL);
		_exit(1);
	}
	(void)execl(self, self, "exec-in-thread", "again", NULL);
	fail(self);
}

int main(int argc, char **argv)
{
	static const struct attack attacks[] = {
		{ "forks", 0, forks },	   { "execs", 0, execs },
		{ "end", 0, end },	   { "execs-itself", 1, execs_itself },
		{ "threads", 0, threads }, { "threads-many", 1, threads_many },
		{ "names", 0, names },	   { "names-evil", 0, names_evil },
		{ "kills", 0, kills },	   { "reuse", 0, reuse },
		{ "vforks", 0, vforks },   { "exec-in-thread", 1, exec_in_thread },
	};

	self = argv[0];
	return attack_main(argc, argv, attacks, sizeof(attacks) / sizeof(attacks[0]));
}
