/*
 * agent/export/export.h: what leaves the program: a folded profile as pprof, from which all
 * other formats of profiles are made (formats.h), and single samples as text, TSV or JSON.
 *
 * Whatever a name holds, a line stays one line and a column one column: control
 * bytes, bytes that are not UTF-8 and the format's own separators are replaced.
 *
 * Functions return 0 or a negative errno value of the file they write to.
 */
#ifndef AGENT_EXPORT_EXPORT_H
#define AGENT_EXPORT_EXPORT_H

#include "agent/pipeline/names.h"
#include "agent/pipeline/pipeline.h"
#include "agent/pipeline/profile.h"
#include "agent/source/source.h"

#include <stdio.h>

/*
 * pprof, as proto/pprof.h writes it, with the sample types of types.h.
 * A location without symbol has the function "libfoo.so+0x1234" (see export_place)
 * and keeps its address.  Where names have lines, a location has one for each inlined call, innermost
 * first, and functions have their file and first line.  The comments are this program's version, host, kernel, recorder,
 * the accounting, then the caller's.
 */
int export_pprof(const struct profile *profile, struct names *names, const struct source_info *info,
		 const char *const *comments, size_t n_comments, int gzip_level, int fd);

/*
 * The same piece by piece, for several profiles in one: equal files, functions
 * and addresses are one.  All must have the events of the first; -EINVAL if not.
 */
struct export_pprof;
int export_pprof_new(struct export_pprof **out);
int export_pprof_add(struct export_pprof *e, const struct profile *profile, struct names *names,
		     const struct source_info *info, const char *const *comments,
		     size_t n_comments);
/* Which of the sample types is to be shown first; -ENOENT, reported: there is none of that name. */
int export_pprof_default_type(struct export_pprof *e, const char *type);
int export_pprof_write(struct export_pprof *e, int gzip_level, int fd);
void export_pprof_free(struct export_pprof *e); /* NULL is fine */

/* ---- single samples ------------------------------------------------------- */

/*
 * As perf script prints it, inlined calls marked "(inlined)"; with lines, a frame's source line
 * stands behind it in a line of its own, "  /src/a.c:12", where it is known.  Where the user part
 * did not end at a root, a line "# stop: truncated" ends the stack; tools that read perf script
 * skip such lines.
 */
int export_text(FILE *out, const struct walked *walked, struct names *names, bool lines);

/*
 * One row a frame, inlined calls on their own; rel_pc is hexadecimal, the pc in terms of the module; "-"
 * where something is not known.  A sample without frames has one row, frame "-".
 */
int export_tsv_header(FILE *out);
int export_tsv(FILE *out, const struct walked *walked, struct names *names);

/* One JSON object, in one line; keys as in format_jsonl, with what only a walk knows beside. */
int export_jsonl(FILE *out, const struct walked *walked, struct names *names);

/*
 * A sample whose steps are known, frame by frame: mapping, object, rule, where the caller's
 * registers were, why the walk ended.  JSON: one object, numbers that are addresses as "0x…".
 */
int export_explain_text(FILE *out, const struct walked *walked, struct names *names);
int export_explain_json(FILE *out, const struct walked *walked, struct names *names);

/* ---- shared by the exporters ---------------------------------------------- */

/*
 * What stands for a function without name: where it begins by unwind information,
 * "libfoo.so+0x1234", or its module alone, "[libfoo.so]", "[kernel]".
 */
void export_place(const struct name *name, char *out, size_t size);
int export_flush(FILE *out);

#endif
