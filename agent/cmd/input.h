/*
 * agent/cmd/input.h: finds out what a file is and opens it as a source.
 */
#ifndef AGENT_CMD_INPUT_H
#define AGENT_CMD_INPUT_H

#include "agent/source/source.h"

#include <stdbool.h>

/* path "-": standard input, a pipe or a file; or a snapshot's folder.  Reports its own errors. */
int input_open(const char *path, struct source **out);

/*
 * Return true if path, "-" for standard input, is what input_open opens; false also where it cannot
 * be read.  What was looked at of a pipe stays to be read.
 */
bool input_is_recording(const char *path);

/*
 * What path stands for: itself, or of a folder of snapshots each of them, in the order of their
 * names.  Appends to *list, which input_list_free takes away.  Reports its own errors.
 */
struct input_list {
	char **paths;
	size_t n, room;
};
int input_list_add(struct input_list *list, const char *path);
void input_list_free(struct input_list *list);

/* For pipeline_options.beside: the folder itself where source is a snapshot's, else NULL. */
const char *input_beside(const struct source *source, const char *path);

/* Number of a command line: all of text, within [min, max]; reports what is wrong with option. */
int input_number(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *out);

/* The same for a size in bytes: K, M or G may stand behind the number. */
int input_size(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *out);

/* The same for a buffer, as perf's -m has it: a number alone is pages of 4 KiB. */
int input_pages(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *out);

/* The same for a time: ns, us, ms or s must stand behind the number, but for 0 and milliseconds. */
int input_time(const char *option, const char *text, uint64_t max_ns, uint64_t *out);

/*
 * Read how long something is to last, at least 1 ns and at most max_ns: "10" (seconds), "1.5",
 * "500ms", "5m", "1h", "2d".  Return 0, or -EINVAL after reporting what is wrong with option.
 */
int input_duration(const char *option, const char *text, uint64_t max_ns, uint64_t *out);

#endif
