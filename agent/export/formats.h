/*
 * agent/export/formats.h: writes a profile in memory as a file of one of several formats.
 *
 *   folded      "comm;outer;…;inner COUNT" in each line, sorted, as flamegraph.pl reads it; kernel
 *               frames end in _[k], inlined calls in _[i], interpreted code in its module,
 *               _[cpython].  With a base to compare with, a line has two counts: of the base and of
 *               the profile
 *   text        one stack after another, as perf script prints them
 *   tsv, jsonl  one row for each frame; one object for each sample
 *   speedscope  https://www.speedscope.app/file-format-schema.json
 *   firefox     the processed profile format of profiler.firefox.com
 *   parquet     a table for databases: a row for each sample, with all sample types, labels and frames
 *   pprof       with a base, its samples are negative and have the label pprof::base, as
 *               go tool pprof writes and reads them
 *
 * All formats but pprof and parquet show one of the sample types, and leave out samples that have no value of
 * it. The bytes depend only on the profile.
 */
#ifndef AGENT_EXPORT_FORMATS_H
#define AGENT_EXPORT_FORMATS_H

#include "agent/export/profile/stacks.h"

#include <stdio.h>

enum format {
	FORMAT_PPROF,
	FORMAT_FOLDED,
	FORMAT_TEXT,
	FORMAT_TSV,
	FORMAT_JSONL,
	FORMAT_SPEEDSCOPE,
	FORMAT_FIREFOX,
	FORMAT_PARQUET,
	FORMAT_N
};

/* For messages and help texts: all formats, and all but pprof. */
#define FORMAT_NAMES  "pprof, " FORMAT_OTHERS
#define FORMAT_OTHERS "folded, text, tsv, jsonl, speedscope, firefox or parquet"

/* Set *out to the format called name. -EINVAL: there is none. */
int format_find(const char *name, enum format *out);
/*
 * Set *to, an enum format, to the format called name, as an option does that takes it. Return 0, or
 * -EINVAL after reporting that there is none.
 */
int format_take(void *to, const char *option, char *name);
/*
 * Set *out to the format that the suffix of a result's name asks for: ".folded", ".jsonl",
 * ".speedscope.json". A name without such a suffix leaves *out unchanged. Return 0. If the suffix
 * is of a format that is not written here, such as ".svg", report this and return -ENOTSUP.
 */
int format_of_path(const char *path, enum format *out);

/* Return the default name of a file of this format, "offwind.pb.gz", and its suffix, ".pb.gz". */
const char *format_file(enum format format);
const char *format_suffix(enum format format);
/* Return whether files of this format are no text. */
bool format_is_binary(enum format format);
/* Return whether the format can hold a second profile to compare with. */
bool format_compares(enum format format);

/*
 * Write stacks in a format. type is the index of the sample type to show. SIZE_MAX: for folded the
 * number of samples, if the profile has it; for other formats, and otherwise, the profile's
 * default. Return 0 or a negative errno value.
 */
int format_write(enum format format, const struct stacks *stacks, size_t type, FILE *out);

/* ---- the formats --------------------------------------------------------------------- */

int format_folded(const struct stacks *stacks, size_t type, FILE *out);
int format_text(const struct stacks *stacks, size_t type, FILE *out);
int format_tsv(const struct stacks *stacks, size_t type, FILE *out);
int format_jsonl(const struct stacks *stacks, size_t type, FILE *out);
int format_speedscope(const struct stacks *stacks, size_t type, FILE *out);
int format_firefox(const struct stacks *stacks, size_t type, FILE *out);
int format_parquet(const struct stacks *stacks, size_t type, FILE *out);
/* gzip_level 0: not compressed. default_type: the sample type that viewers show first. */
int format_pprof(const struct stacks *stacks, size_t default_type, int gzip_level, int fd);

/* Some samples of a profile. */
struct pprof_part {
	const size_t *samples; /* their numbers */
	size_t n;
	bool (*has_label)(const void *ctx,
			  const char *key); /* NULL: samples have all their labels */
	const void *ctx;		    /* for has_label */
	uint32_t depth;			    /* only so many of a stack's outermost frames; 0: all */
	int64_t time_ns, duration_ns;	    /* since 1970 */
	int64_t period;			    /* of the default type, on average; 0: not known */
};

/* Write a part of a profile as a pprof file of its own. */
int format_pprof_part(const struct stacks *stacks, const struct pprof_part *part,
		      size_t default_type, int gzip_level, int fd);

/* ---- shared ------------------------------------------------------------------------- */

/*
 * Return the name of a sample's thread, or else of its process; "" if neither is known. number is
 * for stacks_label_text().
 */
const char *format_thread_name(const struct stacks *stacks, size_t sample,
			       char number[STACKS_NUMBER]);

/* A thread of the profile: samples with one pid, tid and name. */
struct format_thread {
	const char *name;      /* name of the thread; "" if not known */
	const char *process;   /* name of its process */
	const char *pid, *tid; /* as text; "" if not known */
	int64_t weight;
	size_t n_samples;
	size_t *samples; /* indices of its samples, ascending */
};

struct format_threads { /* all zero: empty */
	struct format_thread *all;
	size_t n;
	struct strings texts;
	size_t *samples; /* the array that all[].samples point into */
};

/*
 * Group the samples by thread: threads that have a value of this type, the heaviest first. -ENOMEM.
 */
int format_threads(const struct stacks *stacks, size_t type, struct format_threads *out);
void format_threads_fini(struct format_threads *threads);

#endif
