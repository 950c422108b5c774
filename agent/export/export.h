/*
 * agent/export/export.h: writes single samples as text, TSV or JSON. Profiles: result.h, formats.h.
 *
 * Whatever characters a name contains, a line stays one line and a column one column: control
 * characters, invalid UTF-8 and the format's own separators are replaced.
 *
 * Functions return 0 or a negative errno value of the file they write to.
 */
#ifndef AGENT_EXPORT_EXPORT_H
#define AGENT_EXPORT_EXPORT_H

#include "agent/pipeline/names.h"
#include "agent/pipeline/pipeline.h"

#include <stdio.h>

/* ---- single samples ------------------------------------------------------- */

/*
 * Write a sample as perf script prints it, with inlined calls marked "(inlined)". If lines is set,
 * a frame's source line, if known, follows in a line of its own, "  /src/a.c:12". If the walk of
 * the user part did not end at a root, a line "# stop: truncated" follows the stack, and for
 * guessed frames a line "# guessed: 1 by scan". Tools that read perf script's output skip such
 * lines.
 */
int export_text(FILE *out, const struct walked *walked, struct names *names, bool lines);

/* Write the names of export_tsv()'s columns. */
int export_tsv_header(FILE *out);
/*
 * Write one row for each frame and each inlined call. rel_pc is the pc in the module's own
 * addresses, hexadecimal; "-" means not known. A sample without frames has one row with the frame
 * "-".
 */
int export_tsv(FILE *out, const struct walked *walked, struct names *names);

/*
 * Write one JSON object in one line. The keys are those of format_jsonl(), and those that only a
 * walk knows.
 */
int export_jsonl(FILE *out, const struct walked *walked, struct names *names);

/*
 * Write a sample whose steps are known (pipeline_options.explain), frame by frame: mapping, object,
 * rule, where the caller's registers were, and why the walk ended. The JSON form is one object;
 * numbers that are addresses are texts, "0x…".
 */
int export_explain_text(FILE *out, const struct walked *walked, struct names *names);
int export_explain_json(FILE *out, const struct walked *walked, struct names *names);

/* ---- shared by the exporters ---------------------------------------------- */

/*
 * Write the text that stands for a function without a name: the module and where the function
 * begins by its unwind information, "libfoo.so+0x1234", or the module alone, "[libfoo.so]",
 * "[kernel]".
 */
void export_place(const struct name *name, char *out, size_t size);
/* Flush the stream. Return 0 or the error of this write or an earlier one. */
int export_flush(FILE *out);

#endif
