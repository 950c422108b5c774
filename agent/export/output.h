/*
 * agent/export/output.h: results that appear whole or not at all.
 *
 * A regular file is written beside its final name and renamed when complete, so
 * that a full disk or a kill leaves an older result as it was.  "-" and what is
 * no regular file (a pipe, /dev/null) are written directly.
 *
 * Results hold other people's names and stacks: every file is made for its owner alone (0600), whatever the umask.
 * A link is written through only where this user or root laid it; another is replaced by the result.
 */
#ifndef AGENT_EXPORT_OUTPUT_H
#define AGENT_EXPORT_OUTPUT_H

#include <stdio.h>

struct output {
	char *path;	 /* final name; NULL: standard output */
	char *temporary; /* NULL: written directly */
	int fd;
	FILE *file; /* NULL until output_file */
};

/* Reports its own errors, here and below. */
int output_open(struct output *out, const char *path);
/* The same into the very file that path names now, for those who hold it open already. */
int output_open_in_place(struct output *out, const char *path);
/* 0 if a result could begin to be written to path now; leaves no trace, and waits for nobody. */
int output_try(const char *path);
/*
 * Make an empty file for what is written over a long time and is to be found under its name meanwhile; an older
 * file is replaced, a pipe or a device opened.  It reports nothing.
 */
int output_create(const char *path, int *fd);
/*
 * Return 0, or -EINVAL after reporting, in the name of command, that path is standard output and
 * that a terminal, which is no place for a format in bytes.
 */
int output_not_terminal(const char *command, const char *path);
FILE *output_file(struct output *out); /* a stream over fd; NULL only when out of memory */
int output_commit(struct output *out); /* flushes, closes, renames; the output is empty after it */
void output_abort(struct output *out); /* leaves no trace; fine after commit, and on an empty one */

#endif
