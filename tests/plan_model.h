/*
 * tests/plan_model.h: runs plans (schema/plan.h) over a function that reads memory, as the BPF programs do over a
 * process. One file includes this header.
 */
#ifndef TESTS_PLAN_MODEL_H
#define TESTS_PLAN_MODEL_H

#include "schema/plan.h"
#include "unwinder/unwinder.h"

#include <stdbool.h>
#include <string.h>

struct plan_model {
	uint64_t r[PLAN_REGS];
	struct uw_region slices[PLAN_STEPS_MAX];
	uint32_t n;
	uint8_t bytes[PLAN_BYTES_MAX];
	size_t used; /* with the heads of slices */
	uint64_t seen[PLAN_STEPS_MAX];
	size_t n_seen;
	unsigned int steps;
};

static enum plan_end model_copy(struct plan_model *m, uw_read_fn read, uint64_t addr, size_t size)
{
	if (m->used + size + 8 > sizeof(m->bytes))
		return PLAN_ROOM;
	if (read(NULL, addr, m->bytes + m->used + 8, size))
		return PLAN_FAULT;
	m->used += 8;
	m->slices[m->n++] = (struct uw_region){ addr, size, m->bytes + m->used };
	m->used += size;
	return PLAN_DONE;
}

static uint64_t model_word(const struct plan_model *m, unsigned int i)
{
	uint64_t word;

	memcpy(&word, m->slices[m->n - 1].bytes + 8 * i, 8);
	return word;
}

/* PLAN_SEEN, with room for all values. */
static inline bool model_saw(struct plan_model *m, uint64_t value)
{
	for (size_t i = 0; i < m->n_seen; i++)
		if (m->seen[i] == value)
			return true;
	m->seen[m->n_seen++] = value;
	return false;
}

/* Run a plan. m is zero but for the registers that it begins with. */
static enum plan_end model_run(struct plan_model *m, const struct plan *plan, uw_read_fn read)
{
	uint32_t next = 0;

	for (; m->steps < PLAN_STEPS_MAX; m->steps++) {
		const struct plan_op *op = &plan->ops[next];
		uint64_t addr = m->r[op->src] + (uint64_t)op->imm, other = m->r[op->other],
			 size = op->size;
		enum plan_end end = PLAN_DONE;
		bool jump;

		if (next >= plan->n || op->what >= PLAN_WHATS)
			return PLAN_BAD;
		if (op->what == PLAN_STOP)
			return PLAN_DONE;
		if (op->what == PLAN_ADD) {
			m->r[op->dst] = addr + (size < 64 ? other << size : 0);
		} else if (op->what == PLAN_AND) {
			m->r[op->dst] = m->r[op->src] & (uint64_t)op->imm;
		} else if (op->what == PLAN_LOAD) {
			uint64_t word = 0;

			if (read(NULL, addr, &word, size ? size : 8))
				end = PLAN_FAULT;
			m->r[op->dst] = word;
		} else if (op->what == PLAN_COPY) {
			if (op->near && size > PLAN_NEAR_MAX)
				return PLAN_BAD;
			end = model_copy(m, read, addr, size);
			if (end == PLAN_DONE) {
				m->r[op->dst] = model_word(m, op->at);
				m->r[op->dst2] = model_word(m, op->at2);
			}
		} else if (op->what == PLAN_RANGE) {
			if (addr < other && other - addr < size)
				size = (other - addr) / 8 * 8;
			if (addr < other && size)
				end = model_copy(m, read, addr, size);
			if (end == PLAN_DONE)
				m->r[op->dst] = addr < other && size ? addr + size : other;
		} else if (op->what == PLAN_PUT) {
			uint64_t word = m->r[op->src];

			if (m->used + 16 > sizeof(m->bytes)) {
				end = PLAN_ROOM;
			} else {
				memcpy(m->bytes + m->used + 8, &word, 8);
				m->slices[m->n++] = (struct uw_region){ (uint64_t)op->imm, 8,
									m->bytes + m->used + 8 };
				m->used += 16;
			}
		}
		if (end != PLAN_DONE) {
			if (!op->otherwise)
				return end;
			next = op->otherwise;
			continue;
		}
		other = m->r[op->other];
		jump = op->when == PLAN_ALWAYS || (op->when == PLAN_ZERO && !m->r[op->reg]) ||
		       (op->when == PLAN_NONZERO && m->r[op->reg]) ||
		       (op->when == PLAN_EQUAL && m->r[op->reg] == other) ||
		       (op->when == PLAN_DIFFER && m->r[op->reg] != other) ||
		       (op->when == PLAN_SEEN && (!m->r[op->reg] || model_saw(m, m->r[op->reg])));
		next = jump ? op->jump : next + 1;
	}
	return PLAN_STEPS;
}

#endif
