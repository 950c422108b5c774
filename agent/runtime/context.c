/* agent/runtime/context.c: copies and decodes what threads say they work for. */
#include "agent/runtime/context_internal.h"

#include "agent/limits.h"
#include "agent/runtime/raw.h"
#include "base/bytes.h"
#include "symbolizer/symbolizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Of the record: its fields, and the bytes before the attributes. */
enum { TRACE = 0, TRACE_SIZE = 16, SPAN = 16, SPAN_SIZE = 8, VALID = 24, SIZE = 26, HEAD = 28 };

/* Thread-local storage of glibc for x86_64 (dl-tls.h): dtv, its entries of 16 bytes, and how many there are. */
#define MODULES_MAX 65536u
enum { THREAD_DTV = 8, DTV_LOG2 = 4, DTV_SLOTS = -16 };

/* ---- where a variable is ------------------------------------------------------------------ */

/*
 * A word that the dynamic linker has written. For a descriptor (tlsdesc) it is the distance from the thread pointer,
 * which is negative on x86_64, or the address of module and offset.
 */
int context_otel_place(const struct uw_object *object, uint64_t bias, bool glibc,
		       runtime_live_fn live, void *ctx, struct context_place *out)
{
	uint64_t word, pair[2];
	struct uw_tls tls;
	int err = uw_object_tls(object, "otel_thread_ctx_v1", &tls);

	if (err)
		return err;
	if (tls.is_executable) {
		*out = (struct context_place){ .off = tls.off - tls.block };
		return 0;
	}
	if (tls.word == UW_TLS_NONE)
		return -ENOTSUP;
	err = runtime_read_live(live, ctx, bias + tls.vaddr, &word, sizeof(word));
	if (err)
		return err;
	if (!word)
		return -EAGAIN;
	if ((int64_t)word < 0 && tls.word != UW_TLS_MODULE) {
		*out = (struct context_place){ .off = word };
		return 0;
	}
	pair[0] = word;
	pair[1] = tls.off;
	if (tls.word == UW_TLS_DESC)
		err = runtime_read_live(live, ctx, word, pair, sizeof(pair));
	if (err)
		return err;
	if (!glibc || tls.word == UW_TLS_STATIC || !pair[0] || pair[0] > MODULES_MAX ||
	    pair[1] > UINT32_MAX)
		return -ENOTSUP;
	*out = (struct context_place){ .module = pair[0], .off = pair[1] };
	return 0;
}

/* ---- plans ------------------------------------------------------------------------------- */

void context_end_part(struct plan *plan, const uint8_t *used, size_t n_used)
{
	uint32_t end = plan->n;

	for (uint32_t i = 0; i < plan->n; i++) {
		struct plan_op *op = &plan->ops[i];

		if (op->what == PLAN_LOAD || op->what == PLAN_COPY || op->what == PLAN_RANGE)
			op->otherwise = (uint8_t)end;
		if (op->when != PLAN_NEVER && !op->jump)
			op->jump = (uint8_t)end;
	}
	for (size_t i = 0; i < n_used; i++)
		plan->ops[plan->n++] = (struct plan_op){
			.what = PLAN_AND, .src = used[i], .dst = used[i], .imm = 0
		};
	plan->ops[plan->n++] =
		(struct plan_op){ .what = PLAN_PUT, .src = used[0], .imm = CONTEXT_END };
}

/* Return bytes of attributes that are copied: those of the limit, and what aligning adds. */
static uint16_t copied_bytes(void)
{
	uint64_t size = (limits.thread_label_bytes + 16) / 8 * 8;

	return (uint16_t)(size < PLAN_PIECE_MAX ? size : PLAN_PIECE_MAX);
}

void context_otel_part(const struct context_place *place, struct plan *out)
{
	enum { BLOCK = PLAN_R3, END = PLAN_R4, RECORD = PLAN_R5 };
	static const uint8_t used[] = { BLOCK, END, RECORD };
	const int64_t words = -8;
	const struct plan_op in_module[] = {
		{ .what = PLAN_LOAD, .src = PLAN_THREAD, .imm = THREAD_DTV, .dst = BLOCK },
		{ .what = PLAN_LOAD, .src = BLOCK, .imm = DTV_SLOTS, .dst = END },
		{ .what = PLAN_ADD,
		  .src = END,
		  .imm = -(int64_t)place->module,
		  .size = 64,
		  .dst = END },
		{ .what = PLAN_PUT, .src = END, .imm = CONTEXT_SLOTS },
		{ .what = PLAN_LOAD,
		  .src = BLOCK,
		  .imm = (int64_t)(place->module << DTV_LOG2),
		  .dst = BLOCK },
	};
	const struct plan_op ops[] = {
		{ .what = PLAN_LOAD,
		  .src = place->module ? BLOCK : PLAN_THREAD,
		  .imm = (int64_t)place->off,
		  .dst = RECORD,
		  .when = PLAN_ZERO,
		  .reg = RECORD },
		{ .what = PLAN_PUT, .src = RECORD, .imm = CONTEXT_OTEL },
		{ .what = PLAN_LOAD, .src = RECORD, .imm = SIZE, .size = 2, .dst = END },
		{ .what = PLAN_COPY, .src = RECORD, .size = VALID, .dst = BLOCK, .dst2 = BLOCK },
		/*
		 * The rest in whole words, from the one that has byte 24 or is before it: such words are
		 * where the record is, so they can be read.
		 */
		{ .what = PLAN_ADD, .src = RECORD, .imm = HEAD + 7, .other = END, .dst = END },
		{ .what = PLAN_AND, .src = END, .imm = words, .dst = END },
		{ .what = PLAN_AND, .src = RECORD, .imm = words, .dst = RECORD },
		{ .what = PLAN_RANGE,
		  .src = RECORD,
		  .imm = VALID,
		  .size = copied_bytes(),
		  .other = END,
		  .dst = RECORD },
	};

	*out = (struct plan){ .n = 0 };
	for (size_t i = 0; place->module && i < sizeof(in_module) / sizeof(in_module[0]); i++)
		out->ops[out->n++] = in_module[i];
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		out->ops[out->n++] = ops[i];
	context_end_part(out, used, sizeof(used));
}

int context_join(const struct plan *part, const struct plan *plan, struct plan *out)
{
	uint32_t n = part ? part->n : 0;

	*out = (struct plan){ .n = 0 };
	if (n + (plan ? plan->n : 1) > PLAN_OPS_MAX)
		return -E2BIG;
	if (part)
		memcpy(out->ops, part->ops, n * sizeof(part->ops[0]));
	out->n = n;
	if (!plan) {
		out->ops[out->n++] = (struct plan_op){ .what = PLAN_STOP };
		out->is_whole = 1;
		return 0;
	}
	for (uint32_t i = 0; i < plan->n; i++) {
		struct plan_op op = plan->ops[i];

		op.jump = (uint8_t)(op.when == PLAN_NEVER ? 0 : op.jump + n);
		op.otherwise = (uint8_t)(op.otherwise ? op.otherwise + n : 0);
		out->ops[out->n++] = op;
	}
	return 0;
}

/* ---- slices ------------------------------------------------------------------------------ */

bool context_is_mark(const struct uw_region *slice, uint64_t addr, uint64_t *word)
{
	if (slice->addr != addr || slice->size != sizeof(*word))
		return false;
	*word = uw_bytes_little_n(slice->bytes, sizeof(*word));
	return true;
}

uint32_t context_slices(const struct event_sample *s)
{
	uint64_t word;

	for (uint32_t i = 0; i < s->n_slices; i++)
		if (context_is_mark(&s->slices[i], CONTEXT_END, &word))
			return i + 1;
	/* The part did not come to its end: nothing else follows. */
	return s->n_slices && s->slices[0].addr >= CONTEXT_SLOTS && s->slices[0].addr < CONTEXT_END
		       ? s->n_slices
		       : 0;
}

/* ---- labels ------------------------------------------------------------------------------ */

/* Add what a program calls a label. */
static void add_label(struct context_decoding *d, const char *key, const char *value)
{
	const char *name = label_rules_name(d->in->rules, key);

	if (!name || label_rules_are_own(d->in->rules, name) || labels_have(d->to->text, name) ||
	    labels_have(d->in->others, name))
		return;
	if (d->n == limits.thread_labels) {
		limits_reach(thread_labels, 1);
		return;
	}
	d->n += labels_add(d->to, d->in->rules, key, value);
}

void context_add(struct context_decoding *d, const void *key, size_t n_key, const void *value,
		 size_t n_value)
{
	char name[LABELS_KEY_MAX + 1];
	char *text;

	if (!n_value || !labels_key_is_sound(key, n_key))
		return;
	memcpy(name, key, n_key);
	name[n_key] = '\0';
	/* Bytes that are no text become longer. */
	text = sym_sanitize(value, n_value, LABELS_VALUE_MAX);
	if (text)
		add_label(d, name, text);
	free(text);
}

/* Add an id in hexadecimal digits. One that is 0 is none. */
static void add_id(struct context_decoding *d, const char *key, const uint8_t *bytes, size_t n)
{
	static const char digits[] = "0123456789abcdef";
	char text[2 * TRACE_SIZE + 1];
	bool any = false;

	for (size_t i = 0; i < n; i++) {
		text[2 * i] = digits[bytes[i] >> 4];
		text[2 * i + 1] = digits[bytes[i] & 15];
		any |= bytes[i] != 0;
	}
	text[2 * n] = '\0';
	if (any)
		(void)labels_add(d->to, d->in->rules, key, text);
}

/*
 * Add the attributes: a key, a length, and so many bytes, each time. Of equal keys the last one counts. What is
 * not whole ends them.
 */
static void add_attributes(struct context_decoding *d, const uint8_t *bytes, size_t size)
{
	const struct otel_context_keys *keys = d->in->keys;
	size_t last[OTEL_CONTEXT_KEYS];

	memset(last, 0xff, sizeof(last));
	for (size_t at = 0; size - at >= 2 && bytes[at + 1] <= size - at - 2;
	     at += 2 + (size_t)bytes[at + 1])
		last[bytes[at]] = at;
	for (size_t at = 0; size - at >= 2 && bytes[at + 1] <= size - at - 2;
	     at += 2 + (size_t)bytes[at + 1]) {
		uint8_t key = bytes[at];

		if (last[key] == at && d->in->payload && key < keys->n)
			context_add(d, (const uint8_t *)d->in->payload + keys->keys[key].at,
				    keys->keys[key].size, bytes + at + 2, bytes[at + 1]);
	}
}

/* The slices behind the mark: the ids, and what is from byte 24 on or less than a word before it. */
static enum context_state decode_otel(struct context_decoding *d, uint64_t record,
				      const struct uw_region *slices, uint32_t n)
{
	const struct uw_region *ids = slices, *rest = slices + 1;
	size_t skip, size, left;
	const uint8_t *head;

	if (n < 2 || ids->addr != (record & ((UINT64_C(1) << PLAN_ADDR_BITS) - 1)) ||
	    ids->size < VALID || rest->addr > ids->addr + VALID ||
	    rest->addr + 8 <= ids->addr + VALID)
		return CONTEXT_MISSING;
	skip = (size_t)(ids->addr + VALID - rest->addr);
	if (rest->size < skip + HEAD - VALID)
		return CONTEXT_MISSING;
	head = rest->bytes + skip;
	if (head[0] != 1)
		return CONTEXT_CHANGING;
	add_id(d, "trace_id", ids->bytes + TRACE, TRACE_SIZE);
	add_id(d, "span_id", ids->bytes + SPAN, SPAN_SIZE);
	size = (size_t)uw_bytes_little_n(head + SIZE - VALID, 2);
	left = (size_t)rest->size - skip - (HEAD - VALID);
	if (size > left || size > limits.thread_label_bytes)
		limits_reach(thread_label_bytes, 1);
	if (size > left)
		size = left;
	if (size > limits.thread_label_bytes)
		size = (size_t)limits.thread_label_bytes;
	add_attributes(d, head + HEAD - VALID, size);
	return CONTEXT_LABELS;
}

enum context_state context_decode(const struct context_input *in, struct labels *to)
{
	struct context_decoding d = { .in = in, .to = to };
	uint32_t n = context_slices(in->sample);
	uint64_t word;

	for (uint32_t i = 0; i < n; i++) {
		const struct uw_region *slice = &in->sample->slices[i];

		/* The thread has not used the module's storage, and what was read is not its. */
		if (context_is_mark(slice, CONTEXT_SLOTS, &word) && (int64_t)word < 0)
			return CONTEXT_NONE;
		if (context_is_mark(slice, CONTEXT_OTEL, &word))
			return decode_otel(&d, word, slice + 1, n - i - 1);
		if (context_is_mark(slice, CONTEXT_GO_MAP, &word))
			return context_go_map(&d, slice + 1, n - i - 1);
		if (context_is_mark(slice, CONTEXT_GO_LIST, &word))
			return context_go_list(&d, slice + 1, n - i - 1);
	}
	return CONTEXT_NONE;
}

const char *context_says(enum context_state state)
{
	switch (state) {
	case CONTEXT_CHANGING:
		return "the thread was just changing what it works for";
	case CONTEXT_MISSING:
		return "what the thread works for could not be read";
	case CONTEXT_NONE:
	case CONTEXT_LABELS:
		break;
	}
	return NULL;
}
