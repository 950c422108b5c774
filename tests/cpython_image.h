/*
 * tests/cpython_image.h: the memory of a small CPython process of any version that is known, and a plain interpreter for plans (schema/plan.h), for the unit test and the fuzz target.
 */
#ifndef TESTS_CPYTHON_IMAGE_H
#define TESTS_CPYTHON_IMAGE_H

#include "agent/runtime/cpython.h"
#include "agent/runtime/cpython_layout.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define IMAGE_BASE UINT64_C(0x7f0000000000)
#define IMAGE_SIZE 0x10000u

enum { /* where things are in the image */
       IMAGE_RUNTIME = 0x0,
       IMAGE_INTERPRETER = 0x1000,
       IMAGE_OTHER = 0x3000,  /* a thread that is not sampled */
       IMAGE_THREAD = 0x3400, /* the sampled one */
       IMAGE_FRAMES = 0x4000, /* 0x100 bytes each, innermost first */
       IMAGE_CODES = 0x8000,  /* 0x400 bytes each: the code object, name, file and line table */
       IMAGE_STACK = 0xf000,  /* of the thread: structs of calls of the loop */
};
#define IMAGE_POINTER (IMAGE_BASE + 0xfff0) /* the thread pointer */

struct image {
	struct cpython_layout layout;
	uint8_t bytes[IMAGE_SIZE];
	uint64_t n_reads;
};

static inline void image_put(struct image *m, uint64_t at, uint64_t value, size_t size)
{
	if (at <= IMAGE_SIZE - size)
		memcpy(m->bytes + at, &value, size);
}

/* A uw_read_fn. */
static inline int image_read(void *ctx, uint64_t addr, void *out, size_t size)
{
	struct image *m = ctx;

	m->n_reads++;
	if (addr < IMAGE_BASE || size > IMAGE_SIZE || addr - IMAGE_BASE > IMAGE_SIZE - size)
		return -EFAULT;
	memcpy(out, m->bytes + (addr - IMAGE_BASE), size);
	return 0;
}

/* A runtime_live_fn. */
static inline int image_live(void *ctx, struct opener_part *parts, size_t n)
{
	for (size_t i = 0; i < n; i++)
		parts[i].err = image_read(ctx, parts[i].addr, parts[i].out, parts[i].size);
	return 0;
}

/*
 * Make the beginning of _PyRuntime of a version that says its offsets itself, and read them: numbers of struct
 * _Py_DebugOffsets (Include/internal/pycore_runtime.h in 3.13, later pycore_debug_offsets.h), and offsets that
 * fit the image. Versions whose offsets are in the table have none.
 */
static inline int image_layout(uint16_t version, uint8_t bytes[CPYTHON_OFFSETS_MAX],
			       struct cpython_layout *out)
{
	static const struct {
		/* Which number it is. 0, the size of the runtime's state, is never read: another row has it. */
		uint8_t in_13, in_14, in_15;
		uint16_t value;
	} numbers[] = {
		{ 2, 2, 2, 0x800 },  /* runtime_state.interpreters_head */
		{ 6, 6, 6, 72 },     /* interpreter_state.threads_head */
		{ 18, 21, 21, 8 },   /* thread_state.next */
		{ 20, 23, 23, 56 },  /* thread_state.current_frame */
		{ 21, 24, 27, 136 }, /* thread_state.thread_id */
		{ 26, 29, 37, 8 },   /* interpreter_frame.previous */
		{ 27, 30, 38, 0 },   /* interpreter_frame.executable */
		{ 28, 31, 39, 56 },  /* interpreter_frame.instr_ptr */
		{ 30, 0, 0, 70 },    /* interpreter_frame.owner */
		{ 0, 33, 41, 74 },   /* the same, behind the stack pointer */
		{ 32, 37, 45, 112 }, /* code_object.filename */
		{ 34, 39, 47, 128 }, /* code_object.qualname */
		{ 35, 40, 48, 136 }, /* code_object.linetable */
		{ 36, 41, 49, 68 },  /* code_object.firstlineno */
		{ 40, 45, 53, 192 }, /* code_object.co_code_adaptive */
		{ 67, 77, 89, 40 },  /* unicode_object.asciiobject_size */
	};
	const uint64_t head[] = { (uint64_t)version << 16 };

	memset(bytes, 0, CPYTHON_OFFSETS_MAX);
	if (!cpython_has_offsets(version)) {
		*out = *cpython_layout_of(version);
		return 0;
	}
	memcpy(bytes, "xdebugpy", 8);
	memcpy(bytes + 8, head, sizeof(head));
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		uint8_t at = version == 0x30d	? numbers[i].in_13
			     : version == 0x30e ? numbers[i].in_14
						: numbers[i].in_15;

		memcpy(bytes + 24 + 8 * at, &numbers[i].value, sizeof(numbers[i].value));
	}
	return cpython_layout_read(bytes, CPYTHON_OFFSETS_MAX, out);
}

static inline void image_text(struct image *m, uint64_t at, const char *text)
{
	size_t n = strlen(text);

	image_put(m, at + 16, n, 8);
	image_put(m, at + 32, (uint64_t)(1 | 1 << 3 | 1 << 4) << m->layout.str_kind_bit, 4);
	memcpy(m->bytes + at + m->layout.str_ascii, text, n);
}

/* Code object i: named "fI" in "I.py", its first line is 10 * (i + 1), and so is all of it. */
static inline void image_code(struct image *m, unsigned int i)
{
	const struct cpython_layout *l = &m->layout;
	const uint64_t at = IMAGE_CODES + i * 0x400u;
	const uint64_t name = at + 0x100, file = at + 0x200, lines = at + 0x300;
	char text[16];

	image_put(m, at, 2, 8); /* references */
	image_put(m, at + l->c_name, IMAGE_BASE + name, 8);
	image_put(m, at + l->c_file, IMAGE_BASE + file, 8);
	image_put(m, at + l->c_lines, IMAGE_BASE + lines, 8);
	image_put(m, at + l->c_first_line, 10 * (i + 1), 4);
	(void)snprintf(text, sizeof(text), "f%u", i);
	image_text(m, name, text);
	(void)snprintf(text, sizeof(text), "%u.py", i);
	image_text(m, file, text);
	image_put(m, lines + 16, 2, 8);
	/* One entry, without a change of the line, of 8 code units or of 100 bytes. */
	if (l->entry == CPYTHON_EACH)
		image_put(m, lines + 32, 100, 2);
	else
		image_put(m, lines + 32, 0x80 | 7, 2);
}

/* Frame i runs code object i; previous is the next frame's place, or 0. */
static inline void image_frame(struct image *m, unsigned int i, uint64_t previous, bool entry)
{
	const struct cpython_layout *l = &m->layout;
	const uint64_t at = IMAGE_FRAMES + i * 0x100u, code = IMAGE_BASE + IMAGE_CODES + i * 0x400u;

	image_put(m, at + l->f_code, code | (l->code_tags & 1), 8);
	image_put(m, at + l->f_previous, previous ? IMAGE_BASE + previous : 0, 8);
	if (l->entry == CPYTHON_EACH)
		image_put(m, at + l->f_instr, 2, 4);
	else
		image_put(m, at + l->f_instr, code + l->c_code + 4, 8);
	if (l->f_entry != CPYTHON_NONE)
		image_put(m, at + l->f_entry, entry, 1);
}

/*
 * Make a process with two threads. The sampled one has three frames, f0 innermost: f0 and f1 are of one call
 * of the loop, f2 of another. The calls have their structs in the stack at 0x100 and at 0x200.
 */
static inline void image_make(struct image *m, const struct cpython_layout *layout, bool has_gil)
{
	const struct cpython_layout *l = layout;
	const uint64_t base = IMAGE_BASE, inner = IMAGE_STACK + 0x100, outer = IMAGE_STACK + 0x200;

	memset(m, 0, sizeof(*m));
	m->layout = *layout;
	if (l->current != CPYTHON_NONE)
		image_put(m, IMAGE_RUNTIME + l->current,
			  base + (has_gil ? IMAGE_THREAD : IMAGE_OTHER), 8);
	image_put(m, IMAGE_RUNTIME + l->interpreters, base + IMAGE_INTERPRETER, 8);
	image_put(m, IMAGE_INTERPRETER + l->threads, base + IMAGE_OTHER, 8);
	image_put(m, IMAGE_OTHER + l->next_thread, base + IMAGE_THREAD, 8);
	image_put(m, IMAGE_OTHER + l->thread_id, base + 1, 8);
	image_put(m, IMAGE_THREAD + l->thread_id, IMAGE_POINTER, 8);
	for (unsigned int i = 0; i < 3; i++)
		image_code(m, i);
	if (l->entry == CPYTHON_SHIM) {
		image_frame(m, 0, IMAGE_FRAMES + 0x100, false);
		image_frame(m, 1, inner, false);
		image_frame(m, 2, outer, false);
		image_put(m, inner + l->f_owner, 3, 1);
		image_put(m, inner + l->f_previous, base + IMAGE_FRAMES + 0x200, 8);
		image_put(m, inner + l->f_code, base + IMAGE_CODES, 8);
		image_put(m, outer + l->f_owner, 3, 1);
	} else {
		image_frame(m, 0, IMAGE_FRAMES + 0x100, false);
		image_frame(m, 1, IMAGE_FRAMES + 0x200, true);
		image_frame(m, 2, 0, true);
	}
	if (l->cframe_frame == CPYTHON_NONE) {
		image_put(m, IMAGE_THREAD + l->frame, base + IMAGE_FRAMES, 8);
		return;
	}
	image_put(m, IMAGE_THREAD + l->frame, base + inner, 8);
	if (l->entry == CPYTHON_CFRAME) {
		image_put(m, inner + l->cframe_frame, base + IMAGE_FRAMES, 8);
		image_put(m, inner + l->cframe_frame + 8, base + outer, 8);
	} else { /* the cframe lies beside the shim */
		image_put(m, IMAGE_THREAD + l->frame, base + IMAGE_STACK, 8);
		image_put(m, IMAGE_STACK + l->cframe_frame, base + IMAGE_FRAMES, 8);
	}
}

/* What a plan copies. */
struct image_slices {
	struct uw_region regions[PLAN_BYTES_MAX / 16];
	uint8_t bytes[PLAN_BYTES_MAX];
	uint32_t n, used;
	enum plan_end end;
};

static inline bool image_slice(struct image *m, struct image_slices *to, uint64_t addr, size_t size,
			       uint32_t most)
{
	to->end = PLAN_ROOM;
	if (to->used + 8 + size > most)
		return false;
	to->end = PLAN_FAULT;
	if (image_read(m, addr, to->bytes + to->used + 8, size))
		return false;
	to->regions[to->n++] = (struct uw_region){ addr, size, to->bytes + to->used + 8 };
	to->used += 8 + (uint32_t)size;
	return true;
}

/* Run a plan, as bpf/plan.h does. */
static inline void image_plan(struct image *m, const struct plan *plan, uint64_t base,
			      uint32_t most, struct image_slices *to)
{
	uint64_t r[PLAN_REGS] = { [PLAN_BASE] = base, [PLAN_THREAD] = IMAGE_POINTER };
	static uint64_t seen[PLAN_STEPS_MAX];
	uint32_t next = 0;
	size_t n_seen = 0;

	to->n = to->used = 0;
	to->end = PLAN_STEPS;
	for (uint32_t i = 0; i < PLAN_STEPS_MAX; i++) {
		const struct plan_op *op = &plan->ops[next % PLAN_OPS_MAX];
		uint64_t addr = r[op->src] + (uint64_t)op->imm, word;
		bool jump;

		switch (op->what) {
		case PLAN_STOP:
			to->end = PLAN_DONE;
			return;
		case PLAN_ADD:
			r[op->dst] = addr + (op->size < 64 ? r[op->other] << op->size : 0);
			break;
		case PLAN_AND:
			r[op->dst] = r[op->src] & (uint64_t)op->imm;
			break;
		case PLAN_LOAD:
			if (image_read(m, addr, &word, 8)) {
				to->end = PLAN_FAULT;
				return;
			}
			r[op->dst] = word;
			break;
		case PLAN_COPY:
			if (!image_slice(m, to, addr, op->size, most))
				return;
			memcpy(&r[op->dst], to->regions[to->n - 1].bytes + op->at * 8, 8);
			memcpy(&r[op->dst2], to->regions[to->n - 1].bytes + op->at2 * 8, 8);
			break;
		case PLAN_PUT:
			memcpy(to->bytes + to->used + 8, &r[op->src], 8);
			to->regions[to->n++] = (struct uw_region){ (uint64_t)op->imm, 8,
								   to->bytes + to->used + 8 };
			to->used += 16;
			break;
		default:
			to->end = PLAN_BAD;
			return;
		}
		to->end = PLAN_STEPS;
		jump = op->when == PLAN_ALWAYS || (op->when == PLAN_ZERO && !r[op->reg]) ||
		       (op->when == PLAN_NONZERO && r[op->reg]) ||
		       (op->when == PLAN_EQUAL && r[op->reg] == r[op->other]) ||
		       (op->when == PLAN_DIFFER && r[op->reg] != r[op->other]);
		if (op->when == PLAN_SEEN) {
			seen[n_seen] = r[op->reg];
			jump = !r[op->reg];
			for (size_t j = 0; j < n_seen; j++)
				jump |= seen[j] == r[op->reg];
			n_seen++;
		}
		next = jump ? op->jump : next + 1;
	}
}

#endif
