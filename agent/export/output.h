/*
 * agent/export/output.h: result files that appear whole or not at all.
 *
 * A regular file is written under a temporary name in the same directory and renamed when it is
 * complete, so that a full disk or a kill leaves an older result as it was. "-" and files that are
 * not regular (a pipe, /dev/null) are written directly.
 *
 * Results contain other people's names and stacks: every file is created for its owner alone
 * (0600), whatever the umask is. A symbolic link is followed only if this user or root made it and
 * nobody else can replace it; any other link is replaced by the result.
 */
#ifndef AGENT_EXPORT_OUTPUT_H
#define AGENT_EXPORT_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* A result that is being written. */
struct output {
	char *path;	 /* final name; NULL: standard output; owned */
	char *temporary; /* NULL: written directly; owned */
	int fd;
	FILE *file;	 /* NULL until output_file(); owned */
	bool elsewhere;	 /* the supervisor has the names; see agent/role/files.h */
	uint64_t number; /* by which the supervisor knows it */
};

/*
 * Begin a result. Return 0 or a negative code. All functions here report their errors, except
 * output_create(), output_file(), output_begin() and output_rename().
 */
int output_open(struct output *out, const char *path);
/*
 * Begin a result that overwrites the very file that path names, for readers who hold that file
 * open.
 */
int output_open_in_place(struct output *out, const char *path);
/*
 * Return 0 if a result could be written to path now. This leaves no trace and does not wait; a pipe
 * or a device is not opened.
 */
int output_try(const char *path);
/*
 * Create an empty file that is written over a long time and has its final name from the beginning.
 * An older file is replaced; a pipe or a device is opened. Nothing is reported.
 */
int output_create(const char *path, int *fd);
/*
 * Return -EINVAL if path is standard output and that is a terminal, because the format is binary;
 * this is reported with the name of the command. Otherwise return 0.
 */
int output_not_terminal(const char *command, const char *path);
/*
 * The parts of these without messages and without "-", for the supervisor, which does them for its
 * worker: open the file, in_place or not; and give a complete file its name.
 */
int output_begin(struct output *out, const char *path, bool in_place);
int output_rename(struct output *out);
/* Return a stream over fd, which the output owns; NULL only when out of memory. */
FILE *output_file(struct output *out);
/* Flush, close and rename the result. The output is empty afterwards, also on failure. */
int output_commit(struct output *out);
/*
 * Return why a write by stdio to a descriptor failed, of which stdio does not keep the errno: -EPIPE if it is a pipe without
 * a reader, else -EIO.
 */
int output_why(int fd);

/*
 * Close and remove the unfinished result. This is fine after output_commit() and on an empty
 * output.
 */
void output_abort(struct output *out);

#endif
