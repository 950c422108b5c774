/* agent/runtime/plan_execute.c: runs plans over a function that reads memory. */
#include "agent/runtime/plan_execute.h"

#include <string.h>

static enum plan_end copy(struct plan_execution *e, uint64_t addr, size_t size)
{
	if (e->used + size + 8 > sizeof(e->bytes))
		return PLAN_ROOM;
	if (e->read(e->ctx, addr, e->bytes + e->used + 8, size))
		return PLAN_FAULT;
	e->used += 8;
	e->slices[e->n++] = (struct uw_region){ addr, size, e->bytes + e->used };
	e->used += size;
	return PLAN_DONE;
}

/* Return a word of the last slice; 0 if it is not that long. */
static uint64_t word_of(const struct plan_execution *e, unsigned int i)
{
	const struct uw_region *last = &e->slices[e->n - 1];
	uint64_t word = 0;

	if (last->size / 8 > i)
		memcpy(&word, last->bytes + (size_t)8 * i, 8);
	return word;
}

/* PLAN_SEEN, with room for all values. */
static bool saw(struct plan_execution *e, uint64_t value)
{
	for (size_t i = 0; i < e->n_seen; i++)
		if (e->seen[i] == value)
			return true;
	e->seen[e->n_seen++] = value;
	return false;
}

/* Do what an operation does first. */
static enum plan_end operate(struct plan_execution *e, const struct plan_op *op)
{
	uint64_t addr = e->r[op->src] + (uint64_t)op->imm, other = e->r[op->other], word = 0;
	size_t size = op->size;
	enum plan_end end;

	switch (op->what) {
	case PLAN_STOP:
		return PLAN_DONE;
	case PLAN_ADD:
		e->r[op->dst] = addr + (size < 64 ? other << size : 0);
		return PLAN_DONE;
	case PLAN_AND:
		e->r[op->dst] = e->r[op->src] & (uint64_t)op->imm;
		return PLAN_DONE;
	case PLAN_LOAD:
		if (size > 8)
			return PLAN_BAD;
		end = e->read(e->ctx, addr, &word, size ? size : 8) ? PLAN_FAULT : PLAN_DONE;
		e->r[op->dst] = end == PLAN_DONE ? word : 0;
		return end;
	case PLAN_COPY:
		end = copy(e, addr, size);
		if (end == PLAN_DONE) {
			e->r[op->dst] = word_of(e, op->at);
			e->r[op->dst2] = word_of(e, op->at2);
		}
		return end;
	case PLAN_RANGE:
		if (addr < other && other - addr < size)
			size = (size_t)(other - addr) / 8 * 8;
		if (addr >= other)
			size = 0;
		e->r[op->dst] = size ? addr + size : other;
		return size ? copy(e, addr, size) : PLAN_DONE;
	case PLAN_PUT:
		if (e->used + 16 > sizeof(e->bytes))
			return PLAN_ROOM;
		memcpy(e->bytes + e->used + 8, &e->r[op->src], 8);
		e->slices[e->n++] =
			(struct uw_region){ (uint64_t)op->imm, 8, e->bytes + e->used + 8 };
		e->used += 16;
		return PLAN_DONE;
	default:
		return PLAN_BAD;
	}
}

static bool jumps(struct plan_execution *e, const struct plan_op *op)
{
	switch (op->when) {
	case PLAN_ALWAYS:
		return true;
	case PLAN_ZERO:
		return !e->r[op->reg];
	case PLAN_NONZERO:
		return e->r[op->reg] != 0;
	case PLAN_EQUAL:
		return e->r[op->reg] == e->r[op->other];
	case PLAN_DIFFER:
		return e->r[op->reg] != e->r[op->other];
	case PLAN_SEEN:
		return !e->r[op->reg] || saw(e, e->r[op->reg]);
	default:
		return false;
	}
}

enum plan_end plan_execute(struct plan_execution *e, const struct plan *plan, uw_read_fn read,
			   void *ctx)
{
	uint32_t next = 0;

	e->read = read;
	e->ctx = ctx;
	for (unsigned int steps = 0; steps < PLAN_STEPS_MAX; steps++) {
		const struct plan_op *op = &plan->ops[next];
		enum plan_end end;

		if (next >= plan->n)
			return PLAN_BAD;
		if (op->what == PLAN_STOP)
			return PLAN_DONE;
		end = operate(e, op);
		if (end == PLAN_DONE)
			next = jumps(e, op) ? op->jump : next + 1;
		else if (end != PLAN_BAD && op->otherwise)
			next = op->otherwise;
		else
			return end;
	}
	return PLAN_STEPS;
}
