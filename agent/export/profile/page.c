/*
 * agent/export/profile/page.c: writes the tree as data within the HTML page that agent/export/page/
 * contains.
 */
#include "agent/export/export.h"
#include "agent/export/profile/flame.h"
#include "agent/export/profile/inner.h"
#include "agent/sanitize.h"

#include "agent/export/page/parts.h"
#include "unwinder/unwinder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The page that is being written. */
struct page {
	const struct flame *flame;
	FILE *out;
	const char **strings;
	uint32_t n_strings;
	struct uw_hash_index by_string;
	/* What was not given to out yet. Millions of short numbers would take most of their time in stdio otherwise. */
	char text[16384];
	size_t n_text;
};

/* ---- JSON ---------------------------------------------------------------------------- */

/* Give all that was written to out. */
static void flush(struct page *p)
{
	(void)fwrite(p->text, 1, p->n_text, p->out);
	p->n_text = 0;
}

static void put_bytes(struct page *p, const char *bytes, size_t n)
{
	if (n > sizeof(p->text) - p->n_text)
		flush(p);
	if (n > sizeof(p->text)) {
		(void)fwrite(bytes, 1, n, p->out);
		return;
	}
	memcpy(p->text + p->n_text, bytes, n);
	p->n_text += n;
}

static void put(struct page *p, const char *text)
{
	put_bytes(p, text, strlen(text));
}

/* Write a number, and a character before it unless that is 0. With fprintf(), digits would take half the time of a large page. */
static void put_number_after(struct page *p, char before, int64_t number)
{
	char digits[24], *at = digits + sizeof(digits);
	uint64_t left = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;

	do
		*--at = (char)('0' + left % 10);
	while (left /= 10);
	if (number < 0)
		*--at = '-';
	if (before)
		*--at = before;
	put_bytes(p, at, (size_t)(digits + sizeof(digits) - at));
}

static void put_number(struct page *p, int64_t number)
{
	put_number_after(p, 0, number);
}

/*
 * Write a JSON string. No character in it has a meaning for the HTML around it: a script element
 * ends at "</script", even inside a string. text is sanitized already, so it has no control
 * characters.
 */
static void put_string(struct page *p, const char *text)
{
	put(p, "\"");
	for (;;) {
		const size_t n = strcspn(text, "\"\\<>&");

		put_bytes(p, text, n);
		text += n;
		if (!*text)
			break;
		put(p, *text == '"'    ? "\\\""
		       : *text == '\\' ? "\\\\"
		       : *text == '<'  ? "\\u003c"
		       : *text == '>'  ? "\\u003e"
				       : "\\u0026");
		text++;
	}
	put(p, "\"");
}

/* Write a JSON string of text that may contain anything. */
static void put_sanitized(struct page *p, const char *text)
{
	char sanitized[SANITIZED_MAX];

	(void)sanitize_text(text, "", '?', sanitized, sizeof(sanitized));
	put_string(p, sanitized);
}

/* Write text as HTML, escaped. */
static void put_title(struct page *p, const char *text)
{
	char sanitized[SANITIZED_MAX];

	(void)sanitize_text(text, "", '?', sanitized, sizeof(sanitized));
	for (const char *c = sanitized; *c; c++)
		if (strchr("<>&\"'", *c)) {
			put(p, "&#");
			put_number(p, *c);
			put(p, ";");
		} else {
			put_bytes(p, c, 1);
		}
}

/* ---- the tree --------------------------------------------------------------------------- */

/* Return the greatest common divisor. */
static int64_t common(int64_t a, int64_t b)
{
	while (b) {
		int64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

/*
 * Return the greatest common divisor of all values of a type. The page contains the values divided
 * by it, which makes it smaller.
 */
static int64_t unit_of(const struct flame *f, size_t t)
{
	int64_t one = 0;

	for (size_t at = t; at < f->n_nodes * f->n_types && one != 1; at += f->n_types) {
		const struct flame_value v = flame_value_at(f, at);

		if (v.now | v.base | v.guessed)
			one = common(common(v.now, v.base), common(v.guessed, one));
	}
	return one ? one : 1;
}

/*
 * Return whether two types have the same values, each in its own unit, as samples and cpu often
 * have.
 */
static bool alike(const struct flame *f, size_t a, int64_t a_one, size_t b, int64_t b_one)
{
	for (size_t at = 0; at < f->n_nodes * f->n_types; at += f->n_types) {
		const struct flame_value x = flame_value_at(f, at + a),
					 y = flame_value_at(f, at + b);

		/* Most nodes are no stack's end. */
		if (!(x.now | x.base | x.guessed | y.now | y.base | y.guessed))
			continue;
		if (x.now / a_one != y.now / b_one || x.base / a_one != y.base / b_one ||
		    x.guessed / a_one != y.guessed / b_one)
			return false;
	}
	return true;
}

/* Return the number of a text in the page's table of strings. UW_HASH_NONE: out of memory. */
static uint32_t string_id(struct page *p, const char *text)
{
	uint64_t hash = hash_bytes(0, text, strlen(text));
	uint32_t id = UW_HASH_FIND(i, &p->by_string, hash, !strcmp(p->strings[i], text));

	if (id != UW_HASH_NONE)
		return id;
	if (uw_hash_add(&p->by_string, hash, p->n_strings))
		return UW_HASH_NONE;
	p->strings[p->n_strings] = text;
	return p->n_strings++;
}

/* Write the frames and the table of strings. */
static int put_frames(struct page *p)
{
	const struct flame *f = p->flame;
	const struct flame_frame *frame = f->frames;

	p->strings = calloc(3 * f->n_frames + 1, sizeof(*p->strings));
	if (!p->strings)
		return -ENOMEM;
	put(p, ",\n\"frames\":[");
	for (size_t i = 0; i < f->n_frames; i++, frame++) {
		uint32_t name = string_id(p, frame->name), module = string_id(p, frame->module);
		uint32_t file = string_id(p, frame->file);

		if (name == UW_HASH_NONE || module == UW_HASH_NONE || file == UW_HASH_NONE)
			return -ENOMEM;
		put_number_after(p, i ? ',' : 0, name);
		put_number_after(p, ',', module);
		put_number_after(p, ',', file);
		put_number_after(p, ',', frame->line);
		put_number_after(p, ',', frame->kind);
	}
	put(p, "],\n\"strings\":[");
	for (uint32_t i = 0; i < p->n_strings; i++) {
		put(p, i ? "," : "");
		put_string(p, p->strings[i]);
	}
	put(p, "]");
	return 0;
}

/* Write a sentence for each stop reason that occurs in the tree. */
static void put_stops(struct page *p)
{
	const struct flame *f = p->flame;
	const char *comma = "";

	put(p, ",\n\"stops\":{");
	for (size_t i = 0; i < f->n_frames; i++) {
		const char *name = f->frames[i].name, *sentence = "";

		if (f->frames[i].kind != FLAME_STOP)
			continue;
		for (unsigned int stop = 0; stop < UW_STOP_N; stop++)
			if (!strcmp(name, uw_stop_name((enum uw_stop)stop)))
				sentence = uw_stop_sentence((enum uw_stop)stop);
		if (!strcmp(name, FLAME_DEEP))
			sentence = "The stack is deeper than this page shows.";
		put(p, comma);
		put_string(p, name);
		put(p, ":");
		put_string(p, sentence);
		comma = ",";
	}
	put(p, "}");
}

/*
 * Write the tree: for each node, how many levels to go up from the node before it, and its frame.
 */
static void put_nodes(struct page *p)
{
	const struct flame *f = p->flame;

	put(p, ",\n\"up\":[0");
	for (size_t i = 1; i < f->n_nodes; i++)
		put_number_after(p, ',',
				 (int64_t)f->nodes[i - 1].depth + 1 - (int64_t)f->nodes[i].depth);
	put(p, "],\n\"frame\":[");
	for (size_t i = 0; i < f->n_nodes; i++)
		put_number_after(p, i ? ',' : 0, f->nodes[i].frame);
	put(p, "]");
}

/* Write the values of all nodes, in units of one. */
static void put_list(struct page *p, const char *name, size_t t, int64_t one, const int64_t *values)
{
	enum { AHEAD = 16 };
	const struct flame *f = p->flame;

	put(p, name);
	for (size_t i = 0; i < f->n_nodes; i++) {
		const int64_t value = values[f->nodes[i].values + t];

		/* The values are in another order than the nodes. */
		if (i + AHEAD < f->n_nodes)
			__builtin_prefetch(&values[f->nodes[i + AHEAD].values + t]);
		put_number_after(p, i ? ',' : 0, value ? value / one : 0);
	}
}

/*
 * Write a type's values; those of guessed frames as pairs of node and value, because they are rare.
 */
static void put_values(struct page *p, size_t t, int64_t one)
{
	const struct flame *f = p->flame;

	put_list(p, ",\n\"now\":[", t, one, f->now);
	if (f->diff)
		put_list(p, "],\n\"base\":[", t, one, f->base);
	put(p, "],\n\"guessed\":[");
	for (size_t i = 0, n = 0; f->guessed && i < f->n_nodes; i++) {
		int64_t guessed = f->guessed[f->nodes[i].values + t] / one;

		if (!guessed)
			continue;
		put_number_after(p, n++ ? ',' : 0, (int64_t)i);
		put_number_after(p, ',', guessed);
	}
	put(p, "]");
}

/* Write how many samples the values of a type are of, or null. */
static void put_samples(struct page *p, size_t type)
{
	const struct stacks *s = p->flame->stacks;
	size_t counter = stacks_counter_of(s, type);

	if (counter < s->n_types)
		put_number(p, stacks_total(s, counter));
	else
		put(p, "null");
}

/* Write the sample types. A type with the same values as an earlier one only refers to that one. */
static void put_types(struct page *p)
{
	const struct flame *f = p->flame;
	int64_t one[FLAME_TYPES];

	put(p, ",\n\"types\":[");
	for (size_t t = 0; t < f->n_types; t++) {
		const struct stacks_type *type = &f->stacks->types[f->types[t]];
		size_t like = 0;

		one[t] = unit_of(f, t);
		while (like < t && !alike(f, like, one[like], t, one[t]))
			like++;
		put(p, t ? ",\n{\"type\":" : "\n{\"type\":");
		put_string(p, type->type);
		put(p, ",\"unit\":");
		put_string(p, type->unit);
		put(p, ",\"samples\":");
		put_samples(p, f->types[t]);
		put(p, ",\"one\":");
		put_number(p, one[t]);
		put(p, ",\"inner\":");
		put_number(p, (int64_t)inner_of_type(f->stacks, f->types[t]) * FLAME_INNER);
		if (like < t) {
			put(p, ",\"like\":");
			put_number(p, (int64_t)like);
		} else {
			put_values(p, t, one[t]);
		}
		put(p, "}");
	}
	put(p, "]");
}

/* Write the data of the page as one JSON object. */
static int put_profile(struct page *p, const struct flame_page *page)
{
	const struct flame *f = p->flame;
	const struct stacks *s = f->stacks;
	size_t n_stacks = 0;
	int err;

	for (size_t i = 0; i < f->n_nodes; i++) {
		bool any = false;

		for (size_t t = 0; t < f->n_types; t++) {
			const struct flame_value v = flame_value_at(f, i * f->n_types + t);

			any = any || v.now || v.base;
		}
		n_stacks += any;
	}
	put(p, "{\"title\":");
	put_sanitized(p, page->title);
	put(p, ",\n\"against\":");
	put_sanitized(p, page->against);
	put(p, ",\n\"diff\":");
	put(p, f->diff ? "true" : "false");
	put(p, ",\"stacks\":");
	put_number(p, (int64_t)n_stacks);
	put(p, ",\"time_ns\":");
	put_number(p, s->time_ns);
	put(p, ",\"duration_ns\":");
	put_number(p, s->duration_ns);
	put(p, ",\n\"comments\":[");
	for (size_t i = 0; i < s->n_comments; i++) {
		put(p, i ? ",\n" : "\n");
		put_string(p, s->comments[i]);
	}
	put(p, "]");
	err = put_frames(p);
	if (err)
		return err;
	put_stops(p);
	put_nodes(p);
	put_types(p);
	put(p, "}");
	return 0;
}

int flame_write(const struct flame *flame, const struct flame_page *page, FILE *out)
{
	struct page p = { .flame = flame, .out = out };
	int err;

	errno = 0;
	put(&p, page_start);
	put_title(&p, page->title);
	put(&p, page_middle);
	err = put_profile(&p, page);
	put(&p, page_end);
	flush(&p);
	free(p.strings);
	uw_hash_fini(&p.by_string);
	/*
	 * Take errno now: the stream remembers only that a write failed, and a flush may change
	 * errno.
	 */
	if (!err && ferror(out))
		err = errno ? -errno : -EIO;
	return err ? err : export_flush(out);
}
