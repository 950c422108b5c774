/*
 * agent/runtime/context_go.c: copies and decodes the pprof labels of goroutines (runtime/pprof: Do, SetGoroutineLabels).
 *
 * A goroutine's g has a pointer to its labels, which are not changed any more once it has them. A text (string) is
 * its address and its length. Until Go 1.23 the labels are a map (runtime/map.go): buckets of eight first bytes of
 * hashes, eight keys, eight values, and the address of a further bucket. From 1.24 on they are a list (slice) of
 * key and value.
 */
#include "agent/runtime/context_internal.h"

#include "agent/limits.h"
#include "agent/runtime/raw.h"
#include "base/bytes.h"

#include <errno.h>
#include <string.h>

/* struct g, struct m, and a map's header (hmap), from Go 1.17 on. */
enum { G_M = 48, M_CURG = 192 };
enum { MAP_B = 9, MAP_BUCKETS = 16, MAP_OLD = 24, MAP_SIZE = 32 };
enum { USED = 5 }; /* the least first byte of a slot that has a key (minTopHash) */
enum { SLOTS = 8, TEXT = 16, BUCKET_NEXT = SLOTS + 2 * SLOTS * TEXT, BUCKET = BUCKET_NEXT + 8 };

/* Where g has the labels. */
static const struct {
	unsigned int minor; /* the second number of the version */
	uint16_t labels;    /* 0: not known */
	bool list;
} versions[] = {
#include "agent/runtime/versions/go.h"
};

#define TEXT_MAX 264u /* bytes of one text that are copied; a multiple of 8 */

/* ---- plans ------------------------------------------------------------------------------- */

enum { FIRST = PLAN_R0, LAST = PLAN_R1, END = PLAN_R2, AT = PLAN_R3, TO = PLAN_R4, HERE = PLAN_R5 };

static struct plan_op *add(struct plan *plan, enum plan_what what, uint8_t src, int64_t imm,
			   uint8_t dst)
{
	struct plan_op *op = &plan->ops[plan->n++];

	*op = (struct plan_op){
		.what = (uint8_t)what, .src = src, .imm = imm, .dst = dst, .size = 64
	};
	if (what == PLAN_LOAD)
		op->size = 8;
	return op;
}

/* Jump to an operation; 0: to the end of the part. */
static void jump(struct plan_op *op, enum plan_when when, uint8_t reg, uint8_t other, uint32_t to)
{
	op->when = (uint8_t)when;
	op->reg = reg;
	op->other = other;
	op->jump = (uint8_t)to;
}

/* Load a pointer. Without one, the part ends. */
static void follow(struct plan *plan, uint8_t src, int64_t imm, uint8_t dst)
{
	jump(add(plan, PLAN_LOAD, src, imm, dst), PLAN_ZERO, dst, 0, 0);
}

/* dst = src + other. */
static struct plan_op *sum(struct plan *plan, uint8_t src, int64_t imm, uint8_t other, uint8_t dst)
{
	struct plan_op *op = add(plan, PLAN_ADD, src, imm, dst);

	op->other = other;
	op->size = 0;
	return op;
}

/* Copy the text whose address and length are at HERE, and go on with the next one. */
static struct plan_op *copy_text(struct plan *plan)
{
	struct plan_op *op = add(plan, PLAN_COPY, HERE, 0, AT);

	op->size = TEXT;
	op->dst2 = TO;
	op->at2 = 1;
	jump(op, PLAN_ZERO, TO, 0, plan->n + 4);
	(void)sum(plan, AT, 7, TO, TO);
	(void)add(plan, PLAN_AND, TO, -8, TO);
	(void)add(plan, PLAN_AND, AT, -8, AT);
	op = add(plan, PLAN_RANGE, AT, 0, AT);
	op->size = TEXT_MAX;
	op->other = TO;
	return add(plan, PLAN_ADD, HERE, TEXT, HERE);
}

/* The list's first text is HERE; it ends at END, and is copied up to LAST. */
static void list_part(struct plan *plan)
{
	uint32_t loop;
	struct plan_op *op;

	(void)add(plan, PLAN_PUT, HERE, CONTEXT_GO_LIST, 0);
	op = add(plan, PLAN_COPY, HERE, 0, HERE);
	op->size = 16;
	op->dst2 = END;
	op->at2 = 1;
	jump(op, PLAN_ZERO, END, 0, 0);
	op = sum(plan, HERE, 0, END, END);
	op->size = 5; /* key and value have 32 bytes */
	(void)add(plan, PLAN_ADD, HERE, (int64_t)(2 * TEXT * limits.thread_labels), LAST);
	loop = plan->n;
	jump(copy_text(plan), PLAN_EQUAL, HERE, END, 0);
	jump(add(plan, PLAN_ADD, HERE, 0, HERE), PLAN_DIFFER, HERE, LAST, loop);
}

/* The buckets are from FIRST to LAST. Each has a chain of others. */
static void map_part(struct plan *plan)
{
	struct plan_op *op, *none;
	uint32_t twice, bucket, chain, loop;

	follow(plan, HERE, 0, HERE);
	(void)add(plan, PLAN_PUT, HERE, CONTEXT_GO_MAP, 0);
	op = add(plan, PLAN_COPY, HERE, 0, FIRST);
	op->size = MAP_SIZE;
	op->at = op->at2 = MAP_BUCKETS / 8;
	jump(op, PLAN_ZERO, FIRST, 0, 0);
	(void)add(plan, PLAN_ADD, END, BUCKET, END); /* END is 0 */
	none = add(plan, PLAN_LOAD, HERE, MAP_B, AT);
	none->size = 1;
	twice = plan->n;
	(void)sum(plan, END, 0, END, END);
	jump(add(plan, PLAN_ADD, AT, -1, AT), PLAN_NONZERO, AT, 0, twice);
	jump(none, PLAN_ZERO, AT, 0, plan->n);
	(void)sum(plan, FIRST, 0, END, LAST);
	bucket = plan->n;
	(void)add(plan, PLAN_ADD, FIRST, 0, HERE);
	chain = plan->n;
	op = add(plan, PLAN_COPY, HERE, 0, AT);
	op->size = SLOTS;
	op->dst2 = AT;
	(void)add(plan, PLAN_ADD, HERE, BUCKET_NEXT, END);
	(void)add(plan, PLAN_ADD, HERE, SLOTS, HERE);
	loop = plan->n;
	jump(copy_text(plan), PLAN_DIFFER, HERE, END, loop);
	jump(add(plan, PLAN_LOAD, END, 0, HERE), PLAN_NONZERO, HERE, 0, chain);
	jump(add(plan, PLAN_ADD, FIRST, BUCKET, FIRST), PLAN_DIFFER, FIRST, LAST, bucket);
}

int context_go_part(unsigned int major, unsigned int minor, uint64_t g, struct plan *out)
{
	static const uint8_t used[] = { FIRST, LAST, END, AT, TO, HERE };
	size_t row = 0;

	if (major != 1 || minor < versions[0].minor)
		return -ENOTSUP;
	while (row + 1 < sizeof(versions) / sizeof(versions[0]) && versions[row + 1].minor <= minor)
		row++;
	if (!versions[row].labels)
		return -ENOTSUP;
	*out = (struct plan){ .n = 0 };
	follow(out, PLAN_THREAD, (int64_t)g, HERE);
	follow(out, HERE, G_M, HERE);
	follow(out, HERE, M_CURG, HERE);
	follow(out, HERE, versions[row].labels, HERE);
	if (versions[row].list)
		list_part(out);
	else
		map_part(out);
	context_end_part(out, used, sizeof(used));
	return 0;
}

/* ---- labels ------------------------------------------------------------------------------ */

struct text {
	const uint8_t *bytes;
	size_t n;
	bool cut; /* not all of it is there */
};

struct slices {
	const struct uw_region *at;
	uint32_t n;
};

/* Take the next slice; it must have this many bytes. NULL: it has not, or there is none. */
static const struct uw_region *next(struct slices *s, uint64_t size)
{
	if (!s->n || s->at->size != size)
		return NULL;
	s->n--;
	return s->at++;
}

/* Take a text: where it is, and its bytes. Return false if it was not copied. */
static bool next_text(struct slices *s, struct text *out)
{
	const uint64_t addr_mask = (UINT64_C(1) << PLAN_ADDR_BITS) - 1;
	const struct uw_region *head = next(s, TEXT);
	uint64_t addr, length, skip;

	*out = (struct text){ .n = 0 };
	if (!head)
		return false;
	addr = uw_bytes_little_n(head->bytes, 8);
	length = uw_bytes_little_n(head->bytes + 8, 8);
	if (!length)
		return true;
	skip = addr % 8;
	if (!s->n || s->at->addr != ((addr - skip) & addr_mask) || s->at->size <= skip)
		return false;
	out->bytes = s->at->bytes + skip;
	out->n = (size_t)(s->at->size - skip);
	out->cut = length > out->n;
	if (length < out->n)
		out->n = (size_t)length;
	s->at++;
	s->n--;
	return true;
}

/* Return whether a value is an id: so many hexadecimal digits. */
static bool is_id(const struct text *value, size_t digits)
{
	if (value->n != digits)
		return false;
	for (size_t i = 0; i < digits; i++)
		if (!value->bytes[i] || !strchr("0123456789abcdef", value->bytes[i]))
			return false;
	return true;
}

/* A program can set the ids itself: if they look like ids, they are the sample's. */
static bool add_id(struct context_decoding *d, const struct text *key, const struct text *value)
{
	static const struct {
		const char *key;
		size_t digits;
	} ids[] = { { "trace_id", 32 }, { "span_id", 16 } };
	char text[32 + 1];

	for (size_t i = 0; i < 2; i++) {
		const char *name = label_rules_name(d->in->rules, ids[i].key);

		if (key->n != strlen(ids[i].key) || memcmp(key->bytes, ids[i].key, key->n) != 0 ||
		    !is_id(value, ids[i].digits))
			continue;
		memcpy(text, value->bytes, value->n);
		text[value->n] = '\0';
		if (name && !labels_have(d->to->text, name))
			(void)labels_add(d->to, d->in->rules, ids[i].key, text);
		return true;
	}
	return false;
}

static void add_pair(struct context_decoding *d, const struct text *key, const struct text *value)
{
	if (!key->n || !value->n)
		return;
	if (key->cut || value->cut || value->n > limits.thread_label_bytes) {
		limits_reach(thread_label_bytes, 1);
		return;
	}
	if (!add_id(d, key, value))
		context_add(d, key->bytes, key->n, value->bytes, value->n);
}

/* Behind the last text is the last mark, or nothing if the plan could not go on. */
static enum context_state state_of(const struct slices *s)
{
	uint64_t word;

	return s->n == 1 && context_is_mark(s->at, CONTEXT_END, &word) ? CONTEXT_LABELS
								       : CONTEXT_MISSING;
}

enum context_state context_go_list(struct context_decoding *d, const struct uw_region *slices,
				   uint32_t n)
{
	struct slices s = { slices, n };
	const struct uw_region *head = next(&s, 16);
	struct text key, value;
	uint64_t wanted = head ? uw_bytes_little_n(head->bytes + 8, 8) : 0, i = 0;

	for (; i < wanted && s.n > 1; i++) {
		if (!next_text(&s, &key) || !next_text(&s, &value))
			return CONTEXT_MISSING;
		add_pair(d, &key, &value);
	}
	if (i < wanted && i == limits.thread_labels)
		limits_reach(thread_labels, 1);
	return head ? state_of(&s) : CONTEXT_MISSING;
}

enum context_state context_go_map(struct context_decoding *d, const struct uw_region *slices,
				  uint32_t n)
{
	struct slices s = { slices, n };
	const struct uw_region *head = next(&s, MAP_SIZE), *bucket;
	struct text texts[2 * SLOTS];
	uint64_t found = 0;

	if (!head)
		return CONTEXT_MISSING;
	/* What is left at last is the mark, which has the size of a bucket's beginning. */
	while (s.n > 1 && (bucket = next(&s, SLOTS))) {
		size_t i = 0;

		while (i < 2 * (size_t)SLOTS && next_text(&s, &texts[i]))
			i++;
		/* Keys come before their values. */
		for (size_t j = SLOTS; j < i; j++) {
			found += bucket->bytes[j - SLOTS] >= USED;
			add_pair(d, &texts[j - SLOTS], &texts[j]);
		}
		if (i < 2 * (size_t)SLOTS)
			return CONTEXT_MISSING;
	}
	/* While a map grows, a part of its labels is elsewhere. */
	return uw_bytes_little_n(head->bytes, 8) != found ||
			       uw_bytes_little_n(head->bytes + MAP_OLD, 8)
		       ? CONTEXT_MISSING
		       : state_of(&s);
}
