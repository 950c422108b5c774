/* agent/runtime/cpython_layout.c: the offsets of CPython's versions, and the plan that follows from them. */
#include "agent/runtime/cpython_layout.h"

#include "base/bytes.h"

#include <errno.h>
#include <string.h>

#define NONE CPYTHON_NONE

static const struct cpython_layout layouts[] = {
#include "agent/runtime/versions/cpython.h"
};

/* Which of the numbers of _Py_DebugOffsets an offset is. */
static const struct numbers {
	uint16_t version;
	uint8_t interpreters, threads, next_thread, frame, thread_id;
	uint8_t f_previous, f_code, f_instr, f_owner;
	uint8_t c_file, c_name, c_lines, c_first_line, c_code;
	uint8_t str_ascii; /* size of a PyASCIIObject */
} numbers[] = {
#include "agent/runtime/versions/cpython_offsets.h"
};

const struct cpython_layout *cpython_layout_of(uint16_t version)
{
	for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
		if (layouts[i].version == version)
			return &layouts[i];
	return NULL;
}

bool cpython_has_offsets(uint16_t version)
{
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (numbers[i].version == version)
			return true;
	return false;
}

struct offsets {
	const uint8_t *bytes;
	size_t size;
	int err;
};

/* Return an offset; it must be one that a struct of CPython can have. */
static uint16_t offset(struct offsets *o, uint8_t number)
{
	struct uw_bytes b;
	size_t at = 24 + (size_t)number * 8;
	uint64_t value;

	if (o->size < 8 || at > o->size - 8) {
		o->err = -EBADMSG;
		return 0;
	}
	b = uw_bytes_of(o->bytes + at, 8);
	value = uw_bytes_u64(&b);
	if (value >= INT16_MAX)
		o->err = -EBADMSG;
	return (uint16_t)value;
}

static uint16_t least(uint16_t a, uint16_t b)
{
	return a < b ? a : b;
}

static uint16_t most(uint16_t a, uint16_t b)
{
	return a > b ? a : b;
}

/* Words of a frame, by their offsets: from the first to the last. */
struct span {
	uint16_t first, last;
};

/* Return a span with the word in which a field is, if there is such a field. */
static struct span with(struct span span, uint16_t field)
{
	uint16_t word = field & 0xfff8;

	return field == NONE ? span
			     : (struct span){ least(span.first, word), most(span.last, word) };
}

/* Where a frame says how far it has come, and how it was entered. */
static struct span state_of(const struct cpython_layout *l)
{
	uint16_t word = l->f_instr & 0xfff8;

	return with(with((struct span){ word, word }, l->f_owner), l->f_entry);
}

/* The code and the caller of a frame. */
static struct span links_of(const struct cpython_layout *l)
{
	return (struct span){ least(l->f_code, l->f_previous), most(l->f_code, l->f_previous) };
}

static struct span joined(struct span a, struct span b)
{
	return (struct span){ least(a.first, b.first), most(a.last, b.last) };
}

/*
 * Return whether offsets that a process says are possible: a str has its state before its characters, and what
 * the plan copies of a frame is one piece.
 */
static bool is_sound(const struct cpython_layout *l)
{
	struct span all = joined(state_of(l), links_of(l));

	return l->str_ascii >= CPYTHON_STR_HEAD && all.last - all.first <= (int)PLAN_PIECE_MAX - 16;
}

int cpython_layout_read(const uint8_t *bytes, size_t size, struct cpython_layout *out)
{
	struct offsets o = { .bytes = bytes, .size = size };
	struct uw_bytes b = uw_bytes_of(bytes + 8, size >= 24 ? 16 : 0);
	uint64_t version = uw_bytes_u64(&b), free_threaded = uw_bytes_u64(&b);
	const struct cpython_layout *row = cpython_layout_of((uint16_t)(version >> 16));
	const struct numbers *n = numbers;

	if (b.err || memcmp(bytes, "xdebugpy", 8) != 0)
		return -EBADMSG;
	while (n < numbers + sizeof(numbers) / sizeof(numbers[0]) && n->version != version >> 16)
		n++;
	if (!row || n == numbers + sizeof(numbers) / sizeof(numbers[0]) || free_threaded)
		return -ENOTSUP;
	*out = *row;
	out->interpreters = offset(&o, n->interpreters);
	out->threads = offset(&o, n->threads);
	out->next_thread = offset(&o, n->next_thread);
	out->frame = offset(&o, n->frame);
	out->thread_id = offset(&o, n->thread_id);
	out->f_previous = offset(&o, n->f_previous);
	out->f_code = offset(&o, n->f_code);
	out->f_instr = offset(&o, n->f_instr);
	out->f_owner = offset(&o, n->f_owner);
	out->c_file = offset(&o, n->c_file);
	out->c_name = offset(&o, n->c_name);
	out->c_lines = offset(&o, n->c_lines);
	out->c_first_line = offset(&o, n->c_first_line);
	out->c_code = offset(&o, n->c_code);
	out->c_check = out->c_file;
	out->c_check_size = CPYTHON_CHECK_MAX;
	out->str_ascii = offset(&o, n->str_ascii);
	out->str_compact = (uint16_t)(out->str_ascii + 16);
	return o.err || is_sound(out) ? o.err : -EBADMSG;
}

/* ---- the plan ---------------------------------------------------------------------------- */

/* Add an operation; return it. There is room for all plans that are made here. */
static struct plan_op *add(struct plan *plan, enum plan_what what, enum plan_reg src, int64_t imm,
			   enum plan_reg dst)
{
	struct plan_op *op = &plan->ops[plan->n++];

	*op = (struct plan_op){
		.what = (uint8_t)what, .src = (uint8_t)src, .dst = (uint8_t)dst, .imm = imm
	};
	return op;
}

static void jump(struct plan_op *op, enum plan_when when, enum plan_reg reg, enum plan_reg other,
		 uint32_t to)
{
	op->when = (uint8_t)when;
	op->reg = (uint8_t)reg;
	op->other = (uint8_t)other;
	op->jump = (uint8_t)to;
}

/* Copy the words from the offset first to last of [reg], and load two of them, given by their offsets. */
static struct plan_op *copy(struct plan *plan, enum plan_reg reg, uint16_t first, uint16_t last)
{
	struct plan_op *op = add(plan, PLAN_COPY, reg, first, PLAN_R5);

	op->dst2 = PLAN_R5;
	op->size = (uint16_t)((last - first) / 8 * 8 + 8);
	return op;
}

static void load(struct plan_op *op, uint16_t off, enum plan_reg dst, uint16_t off2,
		 enum plan_reg dst2)
{
	op->at = (uint8_t)((off - op->imm) / 8);
	op->dst = (uint8_t)dst;
	op->at2 = (uint8_t)((off2 - op->imm) / 8);
	op->dst2 = (uint8_t)dst2;
}

/*
 * From 3.11 on, a thread's frames lie one above the other; code objects of a file, which are made one after another,
 * often beside each other.
 */
enum { NEAR_FRAMES = 1, NEAR_CODE };

/*
 * Find the state of the thread (R1): mostly it has the GIL; else look for it in the list of threads. Then
 * follow its frames (R3). Numbers of operations that are not known yet are filled in behind.
 */
void cpython_plan(const struct cpython_layout *l, uint64_t runtime, struct plan *plan)
{
	struct plan_op *op, *found = NULL, *none[2], *listed;
	uint32_t loop, stop;
	struct span state = state_of(l), links = links_of(l);
	size_t n_none = 0;

	*plan = (struct plan){ .n = 0 };
	if (l->current != NONE) {
		op = add(plan, PLAN_LOAD, PLAN_BASE, (int64_t)runtime + l->current, PLAN_R1);
		jump(op, PLAN_ZERO, PLAN_R1, 0, 2);
		/* One read for both, though a thread that waits for the GIL has no use for these words. */
		found = copy(plan, PLAN_R1, least(l->frame, l->thread_id),
			     most(l->frame, l->thread_id));
		load(found, l->frame, PLAN_R3, l->thread_id, PLAN_R2);
	}
	none[n_none++] =
		add(plan, PLAN_LOAD, PLAN_BASE, (int64_t)runtime + l->interpreters, PLAN_R1);
	none[n_none++] = add(plan, PLAN_LOAD, PLAN_R1, l->threads, PLAN_R1);
	loop = plan->n;
	listed = add(plan, PLAN_LOAD, PLAN_R1, l->thread_id, PLAN_R2);
	op = add(plan, PLAN_LOAD, PLAN_R1, l->next_thread, PLAN_R1);
	jump(op, PLAN_NONZERO, PLAN_R1, 0, loop);
	stop = plan->n;
	(void)add(plan, PLAN_STOP, 0, 0, 0);
	jump(listed, PLAN_EQUAL, PLAN_R2, PLAN_THREAD, plan->n);
	/* The thread's frame. */
	op = copy(plan, PLAN_R1, l->frame, l->frame);
	load(op, l->frame, PLAN_R3, l->frame, PLAN_R5);
	if (found)
		jump(found, PLAN_EQUAL, PLAN_R2, PLAN_THREAD, plan->n);
	op = add(plan, PLAN_PUT, PLAN_R1, CPYTHON_MARK, 0);
	jump(op, PLAN_ZERO, PLAN_R3, 0, stop);
	if (l->cframe_frame != NONE) {
		op = copy(plan, PLAN_R3, 0, (uint16_t)(l->cframe_frame + 8));
		load(op, l->cframe_frame, PLAN_R3, l->cframe_frame, PLAN_R5);
		jump(op, PLAN_ZERO, PLAN_R3, 0, stop);
	}
	for (size_t i = 0; i < n_none; i++)
		jump(none[i], PLAN_ZERO, PLAN_R1, 0, stop);
	/* Each frame: in one piece if its fields are near each other, and what tells its code object. */
	loop = plan->n;
	if (state.first > links.last + 24 || links.first > state.last + 24) {
		copy(plan, PLAN_R3, state.first, state.last)->near = NEAR_FRAMES;
		op = copy(plan, PLAN_R3, links.first, links.last);
	} else {
		state = joined(state, links);
		op = copy(plan, PLAN_R3, state.first, state.last);
	}
	op->near = NEAR_FRAMES;
	load(op, l->f_code, PLAN_R2, l->f_previous, PLAN_R3);
	if (l->code_tags)
		op = add(plan, PLAN_AND, PLAN_R2, -1 - (int64_t)l->code_tags, PLAN_R2);
	/* A frame need not have code, and that of a function that calls itself is copied once. */
	jump(op, PLAN_SEEN, PLAN_R2, 0, plan->n + 1);
	op = copy(plan, PLAN_R2, l->c_check, (uint16_t)(l->c_check + l->c_check_size - 8));
	op->near = NEAR_CODE;
	jump(op, PLAN_NONZERO, PLAN_R3, 0, loop);
	op = add(plan, PLAN_ADD, PLAN_R3, 0, PLAN_R3);
	op->size = 64;
	jump(op, PLAN_NONZERO, PLAN_R3, 0, loop);
	(void)add(plan, PLAN_STOP, 0, 0, 0);
}
