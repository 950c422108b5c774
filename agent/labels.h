/*
 * agent/labels.h: which labels samples have: rules that keep, drop and rename labels, and sets of labels
 * as one string.
 *
 * Rules are applied before samples are counted together, so that what differs only in dropped labels is
 * one stack. They do not apply to the labels that say how a stack was found: stop, confidence, guessed.
 */
#ifndef AGENT_LABELS_H
#define AGENT_LABELS_H

#include <stdbool.h>
#include <stddef.h>

enum {
	LABELS_KEY_MAX = 128,	 /* bytes of a key */
	LABELS_VALUE_MAX = 2048, /* of a value; longer ones are left out */
	LABELS_TEXT_MAX = 4096,	 /* of all labels of one set */
	LABELS_ERROR = 256,
};

/* ---- rules ------------------------------------------------------------------------------- */

enum label_rule {
	LABEL_KEEP,   /* PATTERN[,…]: with such rules, samples have only labels that match one */
	LABEL_DROP,   /* PATTERN[,…]: samples have no labels that match, whatever else says */
	LABEL_RENAME, /* OLD:NEW[,…]: the label OLD is called NEW */
};

struct label_rules;

int label_rules_new(struct label_rules **out);	  /* -ENOMEM */
void label_rules_free(struct label_rules *rules); /* NULL is fine */
/*
 * Add the rules of a list. A pattern is a name in which * stands for any characters. -EINVAL: a rule is
 * wrong, and error says why; -E2BIG, -ENOMEM: as it says.
 */
int label_rules_add(struct label_rules *rules, enum label_rule kind, const char *list,
		    char error[LABELS_ERROR]);
/*
 * Return the name that a label gets, borrowed from the rules or key itself; NULL: the label is dropped.
 * rules NULL: there are none. Thread-safe.
 */
const char *label_rules_name(const struct label_rules *rules, const char *key);
/* Return whether a name is that of a label of offwind's own, as the rules call it. */
bool label_rules_are_own(const struct label_rules *rules, const char *name);

/* ---- sets -------------------------------------------------------------------------------- */

/* Labels with texts. text is a string without line feeds that labels_next takes apart. */
struct labels { /* all zero: none */
	char text[LABELS_TEXT_MAX + 1];
	size_t n;
};

/* Return whether key can be the key of a label: letters, digits, '_', '.' and '-'. */
bool labels_key_is_sound(const char *key, size_t n);
/*
 * Add a label under the name that the rules give it. Return false if it is dropped, empty, too long or
 * holds control characters.
 */
bool labels_add(struct labels *to, const struct label_rules *rules, const char *key,
		const char *value);

/* Return whether a text of a set has a label of this name; text NULL: there is none. */
bool labels_have(const char *text, const char *name);

struct label_item {
	char key[LABELS_KEY_MAX + 1], value[LABELS_VALUE_MAX + 1];
};
/* Take the next label from a text of a set, and move *text behind it. Return false at its end. */
bool labels_next(const char **text, struct label_item *out);

#endif
