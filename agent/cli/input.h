/*
 * agent/cli/input.h: recognizes input files and opens them as sources; parses numbers, sizes and
 * times of options.
 */
#ifndef AGENT_CLI_INPUT_H
#define AGENT_CLI_INPUT_H

#include "agent/source/source.h"

#include <stdbool.h>

/*
 * Open a recording: a file, a snapshot's directory, or standard input ("-"), which may be a pipe
 * or a file. Return 0 and a source that the caller closes, or a negative code after reporting it.
 */
int input_open(const char *path, struct source **out);

/*
 * Return true if path ("-": standard input) is something that input_open opens; false also if it
 * cannot be read. Bytes of a pipe that were examined can still be read.
 */
bool input_is_recording(const char *path);

/*
 * Append what path stands for to *list: path itself or, if it is a directory of snapshots, the
 * path of each snapshot, sorted by name. Return 0, or a negative code after reporting it.
 * input_list_free frees the list.
 */
struct input_list {
	char **paths;
	size_t n, room;
};
int input_list_add(struct input_list *list, const char *path);
void input_list_free(struct input_list *list);

/*
 * Return the value for pipeline_options.beside: path if source is a snapshot, whose directory
 * holds the files, else NULL.
 */
const char *input_beside(const struct source *source, const char *path);

/*
 * Parse an option's number: all of text must be a decimal number within [min, max]. Return 0, or
 * -EINVAL after reporting what is wrong with option; *out is then unchanged. So do the functions
 * below.
 */
int input_number(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *out);

/* Parse a size in bytes; the number may have the suffix K, M or G (powers of 1024). */
int input_size(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *out);

/*
 * Parse the size of a buffer, as perf's -m: a number without a suffix is a number of pages of 4
 * KiB. Such a size is raised to min.
 */
int input_pages(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *out);

/*
 * Parse a time into nanoseconds. The number has the suffix ns, us, ms or s; without a suffix it is
 * in milliseconds.
 */
int input_time(const char *option, const char *text, uint64_t max_ns, uint64_t *out);

/*
 * Parse a duration, at least 1 ns and at most max_ns, into nanoseconds: "10" (seconds), "1.5",
 * "500ms", "5m", "1h", "2d".
 */
int input_duration(const char *option, const char *text, uint64_t max_ns, uint64_t *out);

#endif
