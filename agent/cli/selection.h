/* agent/cli/selection.h: selects the samples of a profile by labels, functions and modules. */
#ifndef AGENT_CLI_SELECTION_H
#define AGENT_CLI_SELECTION_H

#include "agent/cli/option.h"
#include "agent/export/profile/stacks.h"

#include <regex.h>

enum { SELECTION_MAX = 64, SELECTION_WHY = 128 };

struct selection { /* all zero: every sample */
	struct selection_condition {
		const char *key; /* the label's key */
		/* As selection_has_value takes them; conditions on one label are alternatives. */
		const char *values;
		bool beginning; /* a value also matches if the label's text begins with it */
	} labels[SELECTION_MAX];
	size_t n_labels;
	struct selection_regex {
		regex_t regex;
		bool module, without;
	} regexes[SELECTION_MAX];
	size_t n_regexes;
	bool hide_interpreters; /* leave out the interpreters' own frames */
	char *why; /* SELECTION_WHY bytes, for what is wrong with a regular expression; NULL: that is reported */
};

/*
 * Take a condition. to is the struct selection; text is borrowed until selection_fini and may be
 * modified. Return 0, or -EINVAL after reporting what is wrong.
 */
int selection_label(void *to, const char *option, char *text); /* of the option's name */
int selection_container(void *to, const char *option, char *text);
int selection_any_label(void *to, const char *option, char *text); /* KEY=VALUE */
/* The same; the key "container" is container_id, as --by has it. */
int selection_named_label(void *to, const char *option, char *text);
int selection_focus(void *to, const char *option, char *text);
int selection_ignore(void *to, const char *option, char *text);
int selection_module(void *to, const char *option, char *text);
int selection_hide_interpreters(void *to, const char *option, char *text);

/* Rows for the table of a command whose options have a struct selection of that name. */
/* clang-format off */
#define SELECTION_ROW(type, name, argument, help, take)                                           \
	{ name, 0, argument, help, .set = take, .at = offsetof(type, selection), .column = 28 }
#define SELECTION_ROWS(type)                                                                      \
	SELECTION_ROW(type, "--pid", "PID[,…]", OPTION_BESIDE, selection_label),                  \
	SELECTION_ROW(type, "--tid", "TID[,…]", "use only samples of these processes or threads", \
		      selection_label),                                                           \
	SELECTION_ROW(type, "--comm", "NAME[,…]", OPTION_BESIDE, selection_label),                \
	SELECTION_ROW(type, "--thread", "NAME[,…]",                                               \
		      "use only samples of processes or threads with these names",                \
		      selection_label),                                                           \
	SELECTION_ROW(type, "--container", "ID[,…]",                                              \
		      "use only samples of containers whose ids begin with ID",                   \
		      selection_container),                                                       \
	SELECTION_ROW(type, "--stop", "REASON[,…]",                                               \
		      "use only samples whose walk stopped for REASON: root, …",                  \
		      selection_label),                                                           \
	SELECTION_ROW(type, "--label", "KEY=VALUE[,…]",                                           \
		      "use only samples whose label KEY has this VALUE", selection_named_label),    \
	SELECTION_ROW(type, "--focus", "REGEX", "use only stacks with a matching function",       \
		      selection_focus),                                                           \
	SELECTION_ROW(type, "--ignore", "REGEX", "use only stacks without a matching function",   \
		      selection_ignore),                                                          \
	SELECTION_ROW(type, "--module", "REGEX", "use only stacks with a matching file",          \
		      selection_module),                                                          \
	SELECTION_ROW(type, "--hide-interpreters", NULL,                                          \
		      "leave out an interpreter's own functions between those that it\nruns",     \
		      selection_hide_interpreters)
/* clang-format on */

/* Return whether the beginning of a label's value is enough: tools show the first digits of a container's id. */
bool selection_takes_beginning(const char *key);
/*
 * Return whether one of the values, which commas separate, is text or, with beginning, the beginning of
 * text. A comma behind a backslash is a part of the value; all other backslashes stand for themselves.
 */
bool selection_has_value(const char *values, bool beginning, const char *text);

/* Return whether text is a regular expression. If not, write what is wrong into why, of SELECTION_WHY bytes. */
bool selection_is_regex(const char *text, char *why);
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
/* Do the same with the samples of the base only, or with the other samples only. */
int selection_apply_to(const struct selection *selection, struct stacks *stacks, bool base);

#endif
