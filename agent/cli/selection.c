/* agent/cli/selection.c: conditions for samples of a profile, and their application. */
#include "agent/cli/selection.h"

#include "agent/log.h"
#include "agent/textbuf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Add a condition. Return 0, or -EINVAL after reporting that there are too many; so does
 * add_regex.
 */
static int add_label(struct selection *s, const char *option, const char *key, const char *values,
		     bool beginning)
{
	if (s->n_labels == SELECTION_MAX) {
		log_error("%s: more than %d conditions", option, SELECTION_MAX);
		return -EINVAL;
	}
	s->labels[s->n_labels++] = (struct selection_condition){ .key = key,
								 .values = values,
								 .beginning = beginning };
	return 0;
}

/*
 * The pieces that a regular expression may have when its repetitions are written out, and how deep its groups may be.
 * regcomp writes them out: x+ is xx*, x{2,9} has nine times x, and (x{99}){99} 9,801 times.
 */
#define PIECES_MAX 4096
#define GROUPS_MAX 32

/* Return where a bracket expression that begins at p ends: at its last character, or at the end of the text. */
static const char *bracket_end(const char *p)
{
	p += p[1] == '^' ? 2 : 1;
	if (*p == ']')
		p++;
	for (; *p && *p != ']'; p++) {
		const char kind = p[1];

		if (*p != '[' || !kind || !strchr(".:=", kind)) /* [:digit:] and the like */
			continue;
		for (p += 2; *p && (*p != kind || p[1] != ']'); p++)
			;
		if (!*p++)
			return p - 1;
	}
	return p;
}

/* Read a number, up to where it is too large anyway; no digits: 0. Return what is behind it. */
static const char *take_number(const char *p, uint64_t *out)
{
	for (*out = 0; *p >= '0' && *p <= '9'; p++)
		if (*out <= PIECES_MAX)
			*out = *out * 10 + (uint64_t)(*p - '0');
	return p;
}

/* Return how often {m,n}, which begins at *p, repeats, and move *p to its end. 0: it is no repetition. */
static uint64_t repeated(const char **p)
{
	uint64_t low, high;
	const char *at = take_number(*p + 1, &low);

	high = low;
	if (*at == ',')
		at = take_number(at + 1, &high);
	if (*at != '}')
		return 0;
	*p = at;
	return (high > low ? high : low) + 1;
}

/* Return whether a regular expression is small when its repetitions are written out. It need not be valid. */
static bool is_small(const char *p)
{
	/* Of each group that is open: its pieces without the last one, and how many that one has. */
	uint64_t before[GROUPS_MAX + 1] = { 0 }, last[GROUPS_MAX + 1] = { 0 }, n;
	unsigned int depth = 0;

	for (; *p; p++) {
		if (*p == '*' || *p == '?') {
			last[depth]++;
		} else if (*p == '+') {
			last[depth] *= 2;
		} else if (*p == '{' && (n = repeated(&p))) {
			last[depth] *= n;
		} else if (*p == ')' && depth) {
			depth--;
			last[depth] = before[depth + 1] + last[depth + 1] + 1; /* itself */
		} else {
			before[depth] += last[depth];
			last[depth] = 1;
			if (*p == '(' && ++depth > GROUPS_MAX)
				return false;
			if (*p == '(')
				before[depth] = last[depth] = 0;
			if (*p == '[')
				p = bracket_end(p);
			if (*p == '\\' && p[1])
				p++;
		}
		if (before[depth] + last[depth] > PIECES_MAX)
			return false;
		if (!*p)
			break;
	}
	return true;
}

/* Compile a regular expression, to be freed with regfree. Return false after writing into why what is wrong. */
static bool compile(const char *text, regex_t *out, char *why)
{
	int err;

	if (!is_small(text)) {
		(void)snprintf(why, SELECTION_WHY, "it repeats too much");
		return false;
	}
	err = regcomp(out, text, REG_EXTENDED | REG_NOSUB);
	if (err)
		(void)regerror(err, out, why, SELECTION_WHY);
	return !err;
}

bool selection_is_regex(const char *text, char *why)
{
	regex_t regex;
	bool is = compile(text, &regex, why);

	if (is)
		regfree(&regex);
	return is;
}

int selection_try_regex(const char *option, const char *text)
{
	char why[SELECTION_WHY];

	if (selection_is_regex(text, why))
		return 0;
	log_error("%s '%s': %s", option, text, why);
	return -EINVAL;
}

/* module: match the files of the frames, else the functions. without: no frame may match. */
static int add_regex(struct selection *s, const char *option, const char *text, bool module,
		     bool without)
{
	struct selection_regex *to = &s->regexes[s->n_regexes];
	char why[SELECTION_WHY];

	if (s->n_regexes == SELECTION_MAX) {
		log_error("%s: more than %d conditions", option, SELECTION_MAX);
		return -EINVAL;
	}
	to->module = module;
	to->without = without;
	if (!compile(text, &to->regex, s->why ? s->why : why)) {
		if (!s->why)
			log_error("%s '%s': %s", option, text, why);
		return -EINVAL;
	}
	s->n_regexes++;
	return 0;
}

int selection_label(void *to, const char *option, char *text)
{
	return add_label(to, option, option + 2, text, false);
}

bool selection_takes_beginning(const char *key)
{
	return !strcmp(key, "container_id");
}

int selection_container(void *to, const char *option, char *text)
{
	return add_label(to, option, "container_id", text, true);
}

int selection_any_label(void *to, const char *option, char *text)
{
	char *equals = strchr(text, '=');

	if (!equals || equals == text) {
		log_error("%s is KEY=VALUE, not '%s'", option, text);
		return -EINVAL;
	}
	*equals = '\0';
	return add_label(to, option, text, equals + 1, selection_takes_beginning(text));
}

int selection_named_label(void *to, const char *option, char *text)
{
	static const char container[] = "container=";
	const size_t size = sizeof(container) - 1;

	return strncmp(text, container, size) != 0 ? selection_any_label(to, option, text)
						   : selection_container(to, option, text + size);
}

int selection_focus(void *to, const char *option, char *text)
{
	return add_regex(to, option, text, false, false);
}

int selection_ignore(void *to, const char *option, char *text)
{
	return add_regex(to, option, text, false, true);
}

int selection_module(void *to, const char *option, char *text)
{
	return add_regex(to, option, text, true, false);
}

int selection_hide_interpreters(void *to, const char *option, char *text)
{
	struct selection *s = to;

	(void)option;
	(void)text;
	s->hide_interpreters = true;
	return 0;
}

void selection_fini(struct selection *s)
{
	for (size_t i = 0; i < s->n_regexes; i++)
		regfree(&s->regexes[i].regex);
	*s = (struct selection){ 0 };
}

/* Return whether the text begins with this value, which ends at a comma, and set *end to its end. */
static bool begins_text(const char *value, const char **text, const char **end)
{
	bool begins = true;

	for (; *value && *value != ','; value++) {
		value += value[0] == '\\' && value[1] == ',';
		begins = begins && **text == *value;
		*text += begins;
	}
	*end = value;
	return begins;
}

bool selection_has_value(const char *values, bool beginning, const char *text)
{
	for (const char *at = values, *end;; at = end + 1) {
		const char *rest = text;

		if (begins_text(at, &rest, &end) && (!*rest || (beginning && end > at)))
			return true;
		if (!*end)
			return false;
	}
}

int selection_type(const struct stacks *stacks, const char *name, const char *path, size_t *type)
{
	size_t found = name ? stacks_find_type(stacks, name) : stacks->default_type;
	char there[512] = "";

	if (found < stacks->n_types) {
		*type = found;
		return 0;
	}
	for (size_t i = 0; i < stacks->n_types; i++)
		textbuf_add(there, sizeof(there), "%s%s", i ? ", " : "", stacks->types[i].type);
	log_error("%s: no sample type '%s'; there are: %s", path, name ? name : "", there);
	return -ENOENT;
}

struct applying {
	const struct selection *selection;
	const struct stacks *s;
	bool now, base; /* whether it applies to the samples of the profile, of the base */
	bool *matches;	/* for each regex a row of n_columns, by function or module */
	size_t n_columns;
};

/* Return true if a frame's function or module matches. Functions of inlined calls count, too. */
static bool frames_match(const struct applying *a, const struct stacks_sample *sample, size_t regex)
{
	const bool *matches = a->matches + regex * a->n_columns;
	bool module = a->selection->regexes[regex].module;

	for (uint32_t i = 0; i < sample->n_locations; i++) {
		const struct stacks_location *l =
			&a->s->locations[a->s->location_ids[sample->first_location + i]];

		if (module && matches[l->module])
			return true;
		for (uint32_t j = 0; !module && j < l->n_lines; j++)
			if (matches[a->s->lines[l->first_line + j].function])
				return true;
	}
	return false;
}

/* Return true if the sample's label meets one of the conditions on it. */
static bool label_matches(const struct applying *a, const struct stacks_sample *sample,
			  const char *key)
{
	char digits[STACKS_NUMBER];
	const char *text = stacks_label_text(stacks_label(a->s, sample, key), digits);

	/* A stack that ended at its root has no stop label. */
	if (!*text && !strcmp(key, "stop"))
		text = "root";
	for (size_t i = 0; i < a->selection->n_labels; i++) {
		const struct selection_condition *want = &a->selection->labels[i];

		if (!strcmp(want->key, key) &&
		    selection_has_value(want->values, want->beginning, text))
			return true;
	}
	return false;
}

/* stacks_filter's callback: return true if the sample meets all conditions. */
static bool keep(void *ctx, size_t number)
{
	const struct applying *a = ctx;
	const struct stacks_sample *sample = &a->s->samples[number];

	if (!(sample->base ? a->base : a->now))
		return true;
	for (size_t i = 0; i < a->selection->n_labels; i++)
		if (!label_matches(a, sample, a->selection->labels[i].key))
			return false;
	for (size_t i = 0; i < a->selection->n_regexes; i++)
		if (frames_match(a, sample, i) == a->selection->regexes[i].without)
			return false;
	return true;
}

/* Match each regex with each function or module once, not with each frame. */
static int apply(const struct selection *selection, struct stacks *s, bool now, bool base)
{
	struct applying a = { .selection = selection, .s = s, .now = now, .base = base };

	if (!selection->n_labels && !selection->n_regexes)
		return 0;
	a.n_columns = s->n_functions > s->n_modules ? s->n_functions : s->n_modules;
	a.matches = calloc(selection->n_regexes * a.n_columns + 1, sizeof(*a.matches));
	if (!a.matches)
		return -ENOMEM;
	for (size_t i = 0; i < selection->n_regexes; i++) {
		const struct selection_regex *r = &selection->regexes[i];
		size_t n = r->module ? s->n_modules : s->n_functions;

		for (size_t j = 0; j < n; j++)
			a.matches[i * a.n_columns + j] = !regexec(
				&r->regex, r->module ? s->modules[j].path : s->functions[j].name, 0,
				NULL, 0);
	}
	stacks_filter(s, keep, &a);
	free(a.matches);
	return 0;
}

/* Select first, by all frames that there are. */
static int apply_all(const struct selection *selection, struct stacks *s, bool now, bool base)
{
	int err = apply(selection, s, now, base);

	return err || !selection->hide_interpreters ? err : stacks_hide_interpreters(s);
}

int selection_apply(const struct selection *selection, struct stacks *s)
{
	return apply_all(selection, s, true, true);
}

int selection_apply_to(const struct selection *selection, struct stacks *s, bool base)
{
	return apply_all(selection, s, !base, base);
}
