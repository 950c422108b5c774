/* agent/cmd/record/command.h: the command that is recorded, as a child process. */
#ifndef AGENT_CMD_RECORD_COMMAND_H
#define AGENT_CMD_RECORD_COMMAND_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Begin with .gate and .fault = -1. */
struct command {
	char **argv; /* NULL: there is no command */
	pid_t pid;   /* 0: no child, or it is reaped */
	int code;    /* the command's exit status as a shell reports it; 0: none yet */
	int gate;    /* writing a byte lets the command start; -1: it has started */
	int fault;   /* the child writes the errno of a failed execvp into it; -1: closed */
};

/*
 * Fork the child that will run the command; it waits at the gate for command_release().
 * Forking first makes its pid known, so that the source can be limited to it before the command
 * runs. Return 0 or a negative code.
 */
int command_start(struct command *c);

/*
 * Let the command start. Return 0, or a negative code after reporting why it could not be run;
 * code is then what a shell returns: 127 if the command was not found, else 126.
 */
int command_release(struct command *c);

/*
 * Return true, once, when the command has ended. Report a signal or a failure and, with keep_code,
 * keep the exit code. Does not wait.
 */
bool command_ended(struct command *c, bool keep_code);
/*
 * Wait for the command to end, for a second at most, and keep its exit code: the recording has ended because all that
 * was selected has.
 */
void command_await(struct command *c);

/*
 * Ask a command that outlived its recording to end (SIGTERM), and wait for it for half a second.
 * If it has not ended by then, leave it running and say so.
 */
void command_end(struct command *c);

/*
 * In the supervisor of a worker (struct supervision): serve what the functions above ask for there,
 * because the command is the supervisor's child; and end the command with the worker. ctx is the
 * struct command.
 */
int command_ask(void *ctx, uint64_t what, uint64_t *number);
void command_worker_ended(void *ctx);

/*
 * Find a program as execvp does, by PATH. Return its path, which the caller frees; NULL if it is
 * not found or memory runs out.
 */
char *command_find(const char *name);

#endif
