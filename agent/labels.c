/* agent/labels.c: rules for labels, and sets of labels as one string. */
#include "agent/labels.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"

enum { RULES_MAX = 256 };

/* The labels that rules apply to, but for those of the programs themselves. */
static const char *const own[] = {
	"pid",		"tid",
	"thread",	"comm",
	"exe",		"user",
	"waker",	"host",
	"cgroup",	"unit",
	"user_unit",	"slice",
	"container_id", "container_runtime",
	"pod",		"qos",
	"trace_id",	"span_id",
	"waker_stack",
};

struct rule {
	enum label_rule kind;
	char pattern[LABELS_KEY_MAX + 1], name[LABELS_KEY_MAX + 1];
};

struct label_rules {
	struct rule rules[RULES_MAX];
	size_t n;
	bool keeps; /* there are rules of LABEL_KEEP */
};

int label_rules_new(struct label_rules **out)
{
	*out = calloc(1, sizeof(**out));
	return *out ? 0 : -ENOMEM;
}

void label_rules_free(struct label_rules *rules)
{
	free(rules);
}

/* ---- adding ------------------------------------------------------------------------------ */

static bool is_own(const char *name)
{
	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		if (!strcmp(name, own[i]))
			return true;
	return false;
}

/* Copy the name in the first n bytes of text. Return what is wrong with it, or NULL. */
static const char *take_name(const char *text, size_t n, bool pattern, char out[LABELS_KEY_MAX + 1])
{
	if (!n)
		return "a name is empty";
	if (n > LABELS_KEY_MAX)
		return "a name is too long";
	memcpy(out, text, n);
	out[n] = '\0';
	if (out[strspn(out, pattern ? KEY_CHARS "*" : KEY_CHARS)])
		return pattern ? "a name has letters, digits, '_', '.', '-', and * for any"
			       : "a name has letters, digits, '_', '.' and '-'";
	/* What has a dot may be an attribute of a program; all other labels are known. */
	if (!strpbrk(out, "*.") && pattern && !is_own(out))
		return "there is no such label to keep, drop or rename";
	return NULL;
}

static const char *take_rename(const struct label_rules *rules, const char *word, size_t n,
			       struct rule *out)
{
	const char *colon = memchr(word, ':', n), *why;
	size_t first = colon ? (size_t)(colon - word) : 0;

	if (!colon)
		return "it is OLD:NEW";
	why = take_name(word, first, true, out->pattern);
	if (!why && (!strcmp(out->pattern, "pid") || !strcmp(out->pattern, "tid")))
		why = "pid and tid cannot be renamed";
	if (!why && strchr(out->pattern, '*'))
		why = "only one label can be renamed to NEW";
	if (!why)
		why = take_name(colon + 1, n - first - 1, false, out->name);
	if (!why && is_own(out->name))
		why = "there is a label NEW already";
	for (size_t i = 0; !why && i < rules->n; i++)
		if (rules->rules[i].kind == LABEL_RENAME &&
		    (!strcmp(rules->rules[i].name, out->name) ||
		     !strcmp(rules->rules[i].pattern, out->pattern)))
			why = "OLD or NEW is in another rule, too";
	return why;
}

int label_rules_add(struct label_rules *rules, enum label_rule kind, const char *list,
		    char error[LABELS_ERROR])
{
	for (const char *at = list;;) {
		size_t n, skipped = strspn(at, " \t");
		struct rule *rule = &rules->rules[rules->n];
		const char *why;

		at += skipped;
		n = strcspn(at, ", \t");
		if (rules->n == RULES_MAX) {
			(void)snprintf(error, LABELS_ERROR, "there are more than %d rules",
				       RULES_MAX);
			return -E2BIG;
		}
		*rule = (struct rule){ .kind = kind };
		why = kind == LABEL_RENAME ? take_rename(rules, at, n, rule)
					   : take_name(at, n, true, rule->pattern);
		if (why) {
			(void)snprintf(error, LABELS_ERROR, "'%.*s': %s", n > 100 ? 100 : (int)n,
				       at, why);
			return -EINVAL;
		}
		rules->n++;
		rules->keeps = rules->keeps || kind == LABEL_KEEP;
		at += n;
		at += strspn(at, " \t");
		if (!*at)
			return 0;
		at += *at == ',';
	}
}

/* ---- applying ---------------------------------------------------------------------------- */

static bool matches(const struct label_rules *rules, enum label_rule kind, const char *key)
{
	for (size_t i = 0; i < rules->n; i++)
		if (rules->rules[i].kind == kind && !fnmatch(rules->rules[i].pattern, key, 0))
			return true;
	return false;
}

const char *label_rules_name(const struct label_rules *rules, const char *key)
{
	if (!rules)
		return key;
	if ((rules->keeps && !matches(rules, LABEL_KEEP, key)) || matches(rules, LABEL_DROP, key))
		return NULL;
	for (size_t i = 0; i < rules->n; i++)
		if (rules->rules[i].kind == LABEL_RENAME && !strcmp(rules->rules[i].pattern, key))
			return rules->rules[i].name;
	return key;
}

bool label_rules_are_own(const struct label_rules *rules, const char *name)
{
	static const char *const fixed[] = { "stop", "confidence", "guessed", "end_timestamp_ns" };

	for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
		if (!strcmp(name, fixed[i]))
			return true;
	if (is_own(name))
		return true;
	for (size_t i = 0; rules && i < rules->n; i++)
		if (rules->rules[i].kind == LABEL_RENAME && !strcmp(rules->rules[i].name, name) &&
		    is_own(rules->rules[i].pattern))
			return true;
	return false;
}

/* ---- sets -------------------------------------------------------------------------------- */

/* Behind a key, and behind a value. Neither holds control characters. */
#define AFTER_KEY   '\1'
#define AFTER_VALUE '\2'

bool labels_key_is_sound(const char *key, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!key[i] || !strchr(KEY_CHARS, key[i]))
			return false;
	return n > 0 && n <= LABELS_KEY_MAX;
}

bool labels_add(struct labels *to, const struct label_rules *rules, const char *key,
		const char *value)
{
	const char *name = label_rules_name(rules, key);
	size_t n_name = name ? strlen(name) : 0, n = strnlen(value, LABELS_VALUE_MAX + 1);

	if (!name || !n || n > LABELS_VALUE_MAX || n_name + n + 2 > LABELS_TEXT_MAX - to->n)
		return false;
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)value[i] < ' ')
			return false;
	memcpy(to->text + to->n, name, n_name);
	to->n += n_name;
	to->text[to->n++] = AFTER_KEY;
	memcpy(to->text + to->n, value, n);
	to->n += n;
	to->text[to->n++] = AFTER_VALUE;
	to->text[to->n] = '\0';
	return true;
}

bool labels_have(const char *text, const char *name)
{
	size_t n = strlen(name);

	for (const char *at = text; at && *at; at = strchr(at, AFTER_VALUE) + 1)
		if (!strncmp(at, name, n) && at[n] == AFTER_KEY)
			return true;
	return false;
}

bool labels_next(const char **text, struct label_item *out)
{
	const char *value = *text ? strchr(*text, AFTER_KEY) : NULL;
	const char *end = value ? strchr(value, AFTER_VALUE) : NULL;

	if (!end || value - *text > LABELS_KEY_MAX || end - value - 1 > LABELS_VALUE_MAX)
		return false;
	memcpy(out->key, *text, (size_t)(value - *text));
	out->key[value - *text] = '\0';
	memcpy(out->value, value + 1, (size_t)(end - value - 1));
	out->value[end - value - 1] = '\0';
	*text = end + 1;
	return true;
}
