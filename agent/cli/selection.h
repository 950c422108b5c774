/* agent/cli/selection.h: selects the samples of a profile by labels, functions and modules. */
#ifndef AGENT_CLI_SELECTION_H
#define AGENT_CLI_SELECTION_H

#include "agent/cli/option.h"
#include "agent/export/profile/stacks.h"

#include <regex.h>

enum { SELECTION_MAX = 64 };

struct selection { /* all zero: every sample */
	struct selection_condition {
		const char *key;    /* the label's key */
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

/*
 * Take a condition. to is the struct selection; text is borrowed until selection_fini and may be
 * modified. Return 0, or -EINVAL after reporting what is wrong.
 */
int selection_label(void *to, const char *option, char *text); /* of the option's name */
int selection_container(void *to, const char *option, char *text);
int selection_any_label(void *to, const char *option, char *text); /* KEY=VALUE */
int selection_focus(void *to, const char *option, char *text);
int selection_ignore(void *to, const char *option, char *text);
int selection_module(void *to, const char *option, char *text);

/* Rows for the table of a command whose options have a struct selection of that name. */
/* clang-format off */
#define SELECTION_ROW(type, name, argument, help, take)                                           \
	{ name, 0, argument, help, .set = take, .at = offsetof(type, selection), .column = 28 }
#define SELECTION_ROWS(type)                                                                      \
	SELECTION_ROW(type, "--pid", "PID[,…]", OPTION_BESIDE, selection_label),                      \
	SELECTION_ROW(type, "--tid", "TID[,…]", "", selection_label),                                 \
	SELECTION_ROW(type, "--comm", "NAME[,…]", OPTION_BESIDE, selection_label),                    \
	SELECTION_ROW(type, "--thread", "NAME[,…]", "", selection_label),                             \
	SELECTION_ROW(type, "--container", "ID[,…]",                                                  \
		      "samples of these processes, threads, containers (ids may be\ncut short)",         \
		      selection_container),                                                               \
	SELECTION_ROW(type, "--stop", "REASON[,…]", "whose stack ended so: root, truncated, …",       \
		      selection_label),                                                                   \
	SELECTION_ROW(type, "--label", "KEY=VALUE[,…]", "any label of theirs", selection_any_label),  \
	SELECTION_ROW(type, "--focus", "REGEX", "stacks with such a function", selection_focus),      \
	SELECTION_ROW(type, "--ignore", "REGEX", "stacks without", selection_ignore),                 \
	SELECTION_ROW(type, "--module", "REGEX", "stacks with such a file", selection_module)
/* clang-format on */

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
