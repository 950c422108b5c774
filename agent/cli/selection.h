/* agent/cli/selection.h: selects the samples of a profile by labels, functions and modules. */
#ifndef AGENT_CLI_SELECTION_H
#define AGENT_CLI_SELECTION_H

#include "agent/export/stacks.h"

#include <getopt.h>
#include <regex.h>

enum { SELECTION_MAX = 64 };

struct selection { /* all zero: every sample */
	struct selection_label {
		const char *key; /* the label's key */
		const char *option;
		const char *values; /* comma-separated, one must match */
		bool beginning;	    /* a value also matches if the label's text begins with it */
	} labels[SELECTION_MAX];
	size_t n_labels;
	struct selection_regex {
		regex_t regex;
		bool module, without;
	} regexes[SELECTION_MAX];
	size_t n_regexes;
};

enum { /* Values for getopt_long. */
       SELECTION_PID = 2048,
       SELECTION_TID,
       SELECTION_COMM,
       SELECTION_THREAD,
       SELECTION_CONTAINER,
       SELECTION_STOP,
       SELECTION_LABEL,
       SELECTION_FOCUS,
       SELECTION_IGNORE,
       SELECTION_MODULE,
};

/* clang-format off */
#define SELECTION_OPTIONS                                                 \
	{ "pid", required_argument, NULL, SELECTION_PID },                    \
	{ "tid", required_argument, NULL, SELECTION_TID },                    \
	{ "comm", required_argument, NULL, SELECTION_COMM },                  \
	{ "thread", required_argument, NULL, SELECTION_THREAD },              \
	{ "container", required_argument, NULL, SELECTION_CONTAINER },        \
	{ "stop", required_argument, NULL, SELECTION_STOP },                  \
	{ "label", required_argument, NULL, SELECTION_LABEL },                \
	{ "focus", required_argument, NULL, SELECTION_FOCUS },                \
	{ "ignore", required_argument, NULL, SELECTION_IGNORE },              \
	{ "module", required_argument, NULL, SELECTION_MODULE }
/* clang-format on */

#define SELECTION_HELP                                                                            \
	"      --pid PID[,…], --tid TID[,…]\n"                                                \
	"      --comm NAME[,…], --thread NAME[,…]\n"                                          \
	"      --container ID[,…]    samples of these processes, threads, containers (ids may " \
	"be\n"                                                                                    \
	"                            cut short)\n"                                                \
	"      --stop REASON[,…]     whose stack ended so: root, truncated, …\n"              \
	"      --label KEY=VALUE[,…] any label of theirs\n"                                     \
	"      --focus REGEX         stacks with such a function\n"                               \
	"      --ignore REGEX        stacks without\n"                                            \
	"      --module REGEX        stacks with such a file\n"

/*
 * Handle an option of SELECTION_OPTIONS. text is borrowed until selection_fini and may be
 * modified. Return 1 if the option was handled, 0 if it is another option, or -EINVAL after
 * reporting what is wrong.
 */
int selection_option(struct selection *selection, int option, char *text);
/* Check that text is a regular expression. Return 0, or -EINVAL after reporting what is wrong. */
int selection_try_regex(const char *option, const char *text);
void selection_fini(struct selection *selection);

/*
 * Set *type to the sample type called name; NULL: the profile's default. Return 0, or -ENOENT
 * after reporting which types the profile of path has.
 */
int selection_type(const struct stacks *stacks, const char *name, const char *path, size_t *type);

/* Remove all samples that are not selected from the profile. Return 0 or -ENOMEM. */
int selection_apply(const struct selection *selection, struct stacks *stacks);

#endif
