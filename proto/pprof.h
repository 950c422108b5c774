/*
 * proto/pprof.h: builds a pprof profile and writes it.
 *
 * Texts, mappings, functions, locations and labels are stored without duplicates. Ids count from 1 in the
 * order of first use. Nothing depends on time, addresses or the environment: the same calls always
 * produce the same bytes.
 *
 * The builder stores its first error (out of memory, or wrong arguments). Later calls then do
 * nothing, and pprof_write() returns the error.
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
 * All texts are copied. The format requires valid UTF-8, although Go's own reader does not check
 * it. Invalid bytes are replaced by U+FFFD.
 */

/*
 * Add a sample type: each sample has one value for it. Call this before the first pprof_sample().
 */
void pprof_sample_type(struct pprof *p, const char *type, const char *unit);
void pprof_default_sample_type(struct pprof *p, const char *type);
void pprof_period(struct pprof *p, const char *type, const char *unit, int64_t period);
void pprof_time(struct pprof *p, int64_t wall_ns, int64_t duration_ns);
void pprof_comment(struct pprof *p, const char *text);

struct pprof_mapping {
	uint64_t start, limit, off;
	const char *file;
	const char *build_id; /* hexadecimal; NULL or "": none */
	/*
	 * Readers should look for the file's symbols themselves. If it is not set, the mapping is
	 * marked as symbolized, so that they do not.
	 */
	bool nameless;
};

/* Return the id of a mapping, which is added if needed. */
uint64_t pprof_mapping(struct pprof *p, const struct pprof_mapping *mapping);

struct pprof_function {
	const char *name, *system_name, *file; /* system_name may be NULL: like name */
	int64_t start_line;		       /* 0: unknown */
};
/* Return the id of a function, which is added if needed. */
uint64_t pprof_function(struct pprof *p, const struct pprof_function *function);

struct pprof_line {
	uint64_t function;
	int64_t line;
};

/* Return the id of the location with this mapping, address and lines, which is added if needed. */
uint64_t pprof_location(struct pprof *p, uint64_t mapping, uint64_t address,
			const struct pprof_line *lines, size_t n_lines);
/*
 * Add a location, even if an equal one exists, and return its id. folded: other functions have the
 * same code, so the names may be those of another function.
 */
uint64_t pprof_location_new(struct pprof *p, uint64_t mapping, uint64_t address,
			    const struct pprof_line *lines, size_t n_lines, bool folded);

/* Return a handle for a label. The same key and content give the same handle. */
uint64_t pprof_label_text(struct pprof *p, const char *key, const char *text);
/* unit may be NULL: none. */
uint64_t pprof_label_number(struct pprof *p, const char *key, int64_t number, const char *unit);

struct pprof_sample {
	const uint64_t *locations; /* innermost first */
	size_t n_locations;
	const int64_t *values; /* one for each sample type */
	const uint64_t *labels;
	size_t n_labels;
};

/* Add a sample. Its locations and labels must be results of the functions above. */
void pprof_sample(struct pprof *p, const struct pprof_sample *sample);

/*
 * Write the profile to fd, which may be a pipe and stays open. gzip_level is 1 to 9; with 0 the
 * output is not compressed. Return 0, the stored error of the builder, or a write error.
 */
int pprof_write(struct pprof *p, int gzip_level, int fd);

#endif
