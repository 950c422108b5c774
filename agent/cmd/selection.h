/*
 * agent/cmd/selection.h: which samples of a profile a command is to look at.
 */
#ifndef AGENT_CMD_SELECTION_H
#define AGENT_CMD_SELECTION_H

#include "agent/export/stacks.h"

#include <getopt.h>
#include <regex.h>

enum { SELECTION_MAX = 64 };

struct selection { /* all zero: everything */
	struct selection_label {
		const char *key; /* of a label */
		const char *option;
		const char *values; /* comma-separated, any of them */
		bool beginning;	    /* a value may be the beginning of the label's */
	} labels[SELECTION_MAX];
	size_t n_labels;
	struct selection_regex {
		regex_t regex;
		bool module, without;
	} regexes[SELECTION_MAX];
	size_t n_regexes;
};

enum { /* for getopt_long */
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

/* 1: option is one of them and taken; 0: it is not; -EINVAL: it was reported. */
int selection_option(struct selection *selection, int option, char *text);
/* 0, or -EINVAL, reported: the option's text is no regular expression. */
int selection_try_regex(const char *option, const char *text);
void selection_fini(struct selection *selection);

/*
 * Set *type to the sample type called name; NULL: the one to show by default.  Return 0, or -ENOENT
 * after reporting, with the types there are, that the profile of path has no such type.
 */
int selection_type(const struct stacks *stacks, const char *name, const char *path, size_t *type);

/* Takes all else out of the profile; -ENOMEM. */
int selection_apply(const struct selection *selection, struct stacks *stacks);

#endif
