/*
 * agent/export/formats.h: a profile in memory as a file of one format or another.
 *
 *   folded      "comm;outer;…;inner COUNT" a line, sorted, as flamegraph.pl reads it; kernel frames
 *               end in _[k], inlined calls in _[i].  With something to compare with: two counts,
 *               of the base and of the profile
 *   text        a stack after another as perf script prints them
 *   tsv, jsonl  a row a frame; an object a sample
 *   speedscope  https://www.speedscope.app/file-format-schema.json
 *   firefox     the processed profile format of profiler.firefox.com
 *   pprof       with something to compare with: its samples negative, with the label pprof::base,
 *               as go tool pprof writes and reads them
 *
 * All but pprof show one of the sample types; what has no value of it is left out.  The bytes
 * depend on the profile alone.
 */
#ifndef AGENT_EXPORT_FORMATS_H
#define AGENT_EXPORT_FORMATS_H

#include "agent/export/stacks.h"

#include <stdio.h>

enum format {
	FORMAT_PPROF,
	FORMAT_FOLDED,
	FORMAT_TEXT,
	FORMAT_TSV,
	FORMAT_JSONL,
	FORMAT_SPEEDSCOPE,
	FORMAT_FIREFOX,
	FORMAT_N
};

#define FORMAT_NAMES "pprof, folded, text, tsv, jsonl, speedscope or firefox"

/* FORMAT_N where there is no such format, which is reported. */
enum format format_find(const char *name);
/*
 * Set *out to the format that the ending of a result's name asks for: ".folded", ".jsonl",
 * ".speedscope.json".  A name without such an ending leaves it as it is.  Return 0, or -ENOTSUP
 * after reporting it where the ending is of something that is not written here, such as ".svg".
 */
int format_of_path(const char *path, enum format *out);

/* What a file of it is called by default, "offwind.pb.gz", and ends in, ".pb.gz". */
const char *format_file(enum format format);
const char *format_suffix(enum format format);
/* Whether it can hold two profiles, one to compare with. */
bool format_compares(enum format format);

/*
 * Writes it; 0 or a negative errno value.  type: which value of the samples, SIZE_MAX: of folded
 * the number of samples, as far as there is one, else the profile's default.
 */
int format_write(enum format format, const struct stacks *stacks, size_t type, FILE *out);

/* ---- from what was just walked --------------------------------------------------------- */

struct export_pprof;
struct names;
struct source_info;
struct walked;

/*
 * The same of a profile that is being made; type NULL: by default.  As pprof it is written
 * directly.  -ENOENT, reported: no such sample type.
 */
int format_made(enum format format, struct export_pprof *made, const char *type, FILE *out);

/* Samples one by one, with their times.  -EINVAL: another input's events are not the first's. */
struct format_walked;
int format_walked_new(struct format_walked **out);
int format_walked_add(struct format_walked *w, const struct walked *walked, struct names *names,
		      const struct source_info *info);
/* Another input follows: what is known of its files is not what was. */
void format_walked_next(struct format_walked *w);
int format_walked_write(struct format_walked *w, enum format format, const char *type, FILE *out);
void format_walked_free(struct format_walked *w); /* NULL is fine */

/* ---- one by one -------------------------------------------------------------------- */

int format_folded(const struct stacks *stacks, size_t type, FILE *out);
int format_text(const struct stacks *stacks, size_t type, FILE *out);
int format_tsv(const struct stacks *stacks, size_t type, FILE *out);
int format_jsonl(const struct stacks *stacks, size_t type, FILE *out);
int format_speedscope(const struct stacks *stacks, size_t type, FILE *out);
int format_firefox(const struct stacks *stacks, size_t type, FILE *out);
/* gzip_level 0: plain.  default_type: the profile's own, or what to show first. */
int format_pprof(const struct stacks *stacks, size_t default_type, int gzip_level, int fd);

/* ---- shared ------------------------------------------------------------------------- */

/* A thread of the profile: samples with one pid, tid and name. */
struct format_thread {
	const char *name;      /* "" where not told */
	const char *process;   /* its process's name */
	const char *pid, *tid; /* as text; "" where not told */
	int64_t weight;
	size_t n_samples;
	size_t *samples; /* indices, in order */
};

struct format_threads { /* all zero: empty */
	struct format_thread *all;
	size_t n;
	struct strings texts;
	size_t *samples; /* what all[].samples point into */
};

/* Threads in which type has a value, the heaviest first.  -ENOMEM. */
int format_threads(const struct stacks *stacks, size_t type, struct format_threads *out);
void format_threads_fini(struct format_threads *threads);

#endif
