/* agent/cmd/report_options.h: what the command line of offwind report asks for. */
#ifndef AGENT_CMD_REPORT_OPTIONS_H
#define AGENT_CMD_REPORT_OPTIONS_H

#include "agent/cli/pick.h"
#include "agent/cli/selection.h"
#include "agent/export/formats.h"
#include "agent/export/profile/ranking.h"

#include <stdbool.h>
#include <stddef.h>

enum report_bars { REPORT_BARS_AUTO, REPORT_BARS_ALWAYS, REPORT_BARS_NEVER };

struct report_options {
	size_t top; /* rows to print; 0: all */
	enum ranking_by by;
	bool by_total, check;
	bool all_frames, whole_names;
	bool json;
	enum report_bars bars;
	const char *type; /* NULL: the profile's default */
	const char *callers, *callees, *base, *output;
	double least;	    /* percent; smaller branches of a tree are left out */
	enum format format; /* FORMAT_N: a table */
	struct selection selection;
	struct pick pick; /* which samples of recordings */
};

/*
 * Read the command line into *o. Return 0; 1 after --help was printed; or a negative code after
 * reporting what is wrong.
 */
int report_options_parse(int argc, char **argv, struct report_options *o);

#endif
