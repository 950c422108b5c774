/*
 * proto/pprof.h: builds a pprof profile and writes it.
 *
 * Texts, functions, locations and labels are kept once, ids count from 1 in the
 * order things are first named, and nothing depends on time, addresses or the
 * environment: the same calls give the same bytes.
 *
 * The builder holds its first failure (out of memory, a caller's mistake); the
 * calls after it do nothing, and pprof_write returns it.
 */
#ifndef PROTO_PPROF_H
#define PROTO_PPROF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pprof;

int pprof_new(struct pprof **out);
void pprof_free(struct pprof *p); /* NULL is fine */

/*
 * All texts are copied.  They should be valid UTF-8, which the format asks for
 * and Go's own reader does not check: what is not comes out as U+FFFD.
 */

/* One value of every sample; before the first sample. */
void pprof_sample_type(struct pprof *p, const char *type, const char *unit);
void pprof_default_sample_type(struct pprof *p, const char *type);
void pprof_period(struct pprof *p, const char *type, const char *unit, int64_t period);
void pprof_time(struct pprof *p, int64_t wall_ns, int64_t duration_ns);
void pprof_comment(struct pprof *p, const char *text);

struct pprof_mapping {
	uint64_t start, limit, off;
	const char *file;
	const char *build_id; /* hexadecimal; NULL or "": none */
};

/* A new mapping each time.  It is marked as symbolised, so that no reader looks for the file. */
uint64_t pprof_mapping(struct pprof *p, const struct pprof_mapping *mapping);
/* One that is not: readers are to look for the file's symbols themselves. */
uint64_t pprof_mapping_nameless(struct pprof *p, const struct pprof_mapping *mapping);

/* The function of that name and file; system_name may be NULL: the same as name. */
uint64_t pprof_function(struct pprof *p, const char *name, const char *system_name,
			const char *file);

struct pprof_function {
	const char *name, *system_name, *file; /* system_name NULL: the same as name */
	int64_t start_line;		       /* 0: not known */
};
uint64_t pprof_function_in(struct pprof *p, const struct pprof_function *function);

struct pprof_line {
	uint64_t function;
	int64_t line;
};

/* The location of that mapping, address and lines: the same each time. */
uint64_t pprof_location(struct pprof *p, uint64_t mapping, uint64_t address,
			const struct pprof_line *lines, size_t n_lines);
/* A location of its own each time; folded: other functions have the very same code. */
uint64_t pprof_location_new(struct pprof *p, uint64_t mapping, uint64_t address,
			    const struct pprof_line *lines, size_t n_lines, bool folded);

/* Labels are handles: the same key and content give the same one. */
uint64_t pprof_label_text(struct pprof *p, const char *key, const char *text);
uint64_t pprof_label_number(struct pprof *p, const char *key, int64_t number);
uint64_t pprof_label_quantity(struct pprof *p, const char *key, int64_t number, const char *unit);

struct pprof_sample {
	const uint64_t *locations; /* innermost first */
	size_t n_locations;
	const int64_t *values; /* one for each sample type */
	const uint64_t *labels;
	size_t n_labels;
};

void pprof_sample(struct pprof *p, const struct pprof_sample *sample);

/* gzip_level 1 to 9; 0 leaves the message plain.  fd may be a pipe and stays open. */
int pprof_write(struct pprof *p, int gzip_level, int fd);

#endif
