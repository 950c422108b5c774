/*
 * agent/role/files.h: files that the user of offwind named, for a process that cannot open any.
 *
 * Without a supervisor (files_ask was not called) each function does the work itself. A worker in the
 * sandbox asks its supervisor, which opens what the command line names and nothing else. All functions
 * may be called from any thread.
 */
#ifndef AGENT_ROLE_FILES_H
#define AGENT_ROLE_FILES_H

#include <stdbool.h>
#include <stdint.h>

/* The requests to the supervisor; see agent/cli/supervisor_serve.c for what each takes and gives. */
enum files_request {
	FILES_OPEN,
	FILES_OPEN_IN,
	FILES_STAT,
	FILES_SCRATCH,
	FILES_OUTPUT,
	FILES_COMMIT,
	FILES_ABORT,
	FILES_ADVISE,
	FILES_KEEP,
	FILES_COMMAND,
	FILES_DONE,
};

/* From now on, ask the supervisor at the other end of this socket. */
void files_ask(int socket);
bool files_are_asked_for(void); /* whether there is a supervisor */

/*
 * Open a file or a directory for reading; "-": standard input. Return 0 or a negative code; -EPERM:
 * nobody named it.
 */
int files_open(const char *path, int *fd);
/* Open a file or directory in an open directory. name has no slash. Never waits. */
int files_open_in(int directory, const char *name, bool follow_link, int *fd);
/* What stat(2) shows of a path. */
struct files_facts {
	uint32_t mode; /* st_mode */
	uint64_t inode;
	int64_t mtime_s;
};
int files_stat(const char *path, struct files_facts *out);
/* Make a file without a name, on disk if possible. */
int files_scratch(int *fd);

/*
 * For agent/export/output.c, when there is a supervisor: begin a result, and complete or remove it.
 * *number identifies it.
 */
int files_output(const char *path, bool in_place, int *fd, uint64_t *number);
int files_commit(uint64_t number);
void files_abort(uint64_t number);

/* Send the supervisor a request that has fields of its own, which put writes, and no result. */
struct message;
typedef void (*files_put_fn)(void *ctx, struct message *m);
void files_tell(enum files_request what, files_put_fn put, void *ctx);

/* With a supervisor: delete the oldest results of a recording in windows of time. */
void files_keep(void);

/*
 * With a supervisor: send a request that the command itself serves there (struct supervision). Return
 * the command's code, and set *number to what it says.
 */
int files_command(uint64_t what, uint64_t *number);

/*
 * Say that the result is complete, and that the rest of the work is not worth doing again: what reads
 * standard output sees its end.
 */
void files_done(void);

#endif
