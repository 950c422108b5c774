/*
 * agent/export/result.h: names folded profiles and collects them into one result, which is written
 * in any format.
 *
 * There is one model of a profile with names, struct stacks, and every format is a writer of it
 * (formats.h). Only pprof, the usual result, is encoded at once as samples are added, so that a
 * large profile is not in memory twice.
 */
#ifndef AGENT_EXPORT_RESULT_H
#define AGENT_EXPORT_RESULT_H

#include "agent/export/formats.h"
#include "agent/pipeline/names.h"
#include "agent/pipeline/profile.h"
#include "agent/source/source.h"

#include <stdio.h>

struct result;

int result_new(enum format format, struct result **out);
/*
 * Make a result that adds to the caller's stacks, which it borrows, and that is never written.
 * base: as samples of the base to compare with.
 */
int result_into(struct stacks *stacks, bool base, struct result **out);
void result_free(struct result *r); /* NULL is fine */

/*
 * Name the samples of a profile and add them, with the sample types of types.h. Equal files,
 * functions and addresses of several profiles become one.
 *
 * A location without a symbol has the function "libfoo.so+0x1234" (see export_place) and its
 * address. If names has source lines, a location has one line for each inlined call, innermost
 * first, and functions have their file and first line. The comments are this program's version,
 * host, kernel, recorder, command, events and the accounting.
 *
 * -EINVAL: the events are not those of the profiles before. After another error, only result_free()
 * may be called.
 */
int result_add(struct result *r, const struct profile *profile, struct names *names,
	       const struct source_info *info);

/*
 * Write the result. type is the name of the sample type to show, in pprof the one that viewers show
 * first; NULL: the default. -ENOENT, which is reported: there is no such sample type. Other errors
 * are those of the file.
 */
int result_write(struct result *r, const char *type, FILE *out);

#endif
