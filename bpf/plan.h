/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * bpf/plan.h: runs the plan of a process (schema/plan.h) and appends slices of its memory to the record.
 *
 * The state of the plan is in the scratch buffer and is read from there in each step, so that to the
 * verifier every step begins in the same state, whatever the steps before did.
 */
#ifndef BPF_PLAN_H
#define BPF_PLAN_H

#include "bpf/scratch.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PLAN_PLANS_MAX);
	__type(key, __u32);
	__type(value, struct plan);
} plans SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PLAN_TASKS_MAX);
	__type(key, __u32);
	__type(value, struct plan_task);
} plan_tasks SEC(".maps");

/* How many processes have a plan. While there is none, a sample costs what it cost before. */
__u32 plans_in_use = 0;
/* Bytes that a plan may append; the agent sets this. At most PLAN_BYTES_MAX. */
const volatile __u32 slice_bytes = PLAN_BYTES_MAX;

/* The most bytes before the slices, behind the record's head: see append. */
#define BEFORE_SLICES                                                     \
	(STACKS_MAX + CAPTURE_KERNEL_MAX + sizeof(struct capture_holes) + \
	 sizeof(struct capture_alloc))

/*
 * Append size bytes from addr on. Return false if that is not possible. What is needed after the read is in
 * the scratch buffer and not on this program's stack: before 6.8 or so, the stacks of a program and of the
 * functions that it calls may have 512 bytes together, of which a capturing program has most.
 */
static __always_inline bool plan_copy(volatile struct capture_front *front, __u64 addr, __u32 size)
{
	volatile struct plan_run *run = &front->run;
	__u8 *bytes = (__u8 *)(front + 1);
	__u32 at = run->at;

	if (at - run->begin + size + 8 > slice_bytes) {
		run->end = PLAN_ROOM;
		return false;
	}
	barrier_var(at);
	barrier_var(size);
	if (at > BEFORE_SLICES + PLAN_BYTES_MAX || size > PLAN_PIECE_MAX)
		return false;
	*(__u64 *)(bytes + at) =
		(addr & ((1ull << PLAN_ADDR_BITS) - 1)) | (__u64)(size / 8) << PLAN_ADDR_BITS;
	run->size = size;
	if (bpf_probe_read_user(bytes + at + 8, size, (void *)addr)) {
		run->end = PLAN_FAULT;
		return false;
	}
	run->at = run->at + 8 + run->size;
	return true;
}

/* Return word number i of the bytes that were appended last. */
static __always_inline __u64 plan_word(volatile struct capture_front *front, __u32 i)
{
	__u32 off = front->run.at - front->run.size + i * 8;

	barrier_var(off);
	if (off > BEFORE_SLICES + PLAN_BYTES_MAX + PLAN_PIECE_MAX)
		return 0;
	return *(__u64 *)((__u8 *)(front + 1) + off);
}

/* An operation has failed: go on where it says. Return 1 if the plan has ended, else 0. */
static __always_inline long plan_failed(volatile struct plan_run *run, const struct plan_op *op)
{
	if (!op->otherwise)
		return 1;
	run->next = op->otherwise;
	run->end = PLAN_STEPS;
	return 0;
}

/* Run one operation. Return 1 if the plan has ended, else 0. */
static __always_inline long plan_step(__u32 *place)
{
	volatile struct capture_front *front = bpf_map_lookup_elem(&scratch, place);
	volatile struct plan_run *run;
	__u64 addr, word, other;
	__u32 at, size;
	struct plan_op *op;
	struct plan *plan;
	bool jump;

	if (!front)
		return 1;
	run = &front->run;
	plan = bpf_map_lookup_elem(&plans, (void *)&run->plan);
	if (!plan)
		return 1;
	op = &plan->ops[run->next & (PLAN_OPS_MAX - 1)];
	addr = run->r[op->src & (PLAN_REGS - 1)] + op->imm;
	size = op->size & 0xfff8;
	switch (op->what) {
	case PLAN_STOP:
		run->end = PLAN_DONE;
		return 1;
	case PLAN_ADD:
		if (op->size < 64)
			addr += run->r[op->other & (PLAN_REGS - 1)] << op->size;
		run->r[op->dst & (PLAN_REGS - 1)] = addr;
		break;
	case PLAN_AND:
		run->r[op->dst & (PLAN_REGS - 1)] = (addr - op->imm) & op->imm;
		break;
	case PLAN_LOAD:
		size = op->size ? op->size : sizeof(__u64);
		barrier_var(size);
		if (size > sizeof(__u64)) {
			run->end = PLAN_BAD;
			return 1;
		}
		run->r[op->dst & (PLAN_REGS - 1)] = 0;
		if (bpf_probe_read_user((void *)&run->r[op->dst & (PLAN_REGS - 1)], size,
					(void *)addr)) {
			run->end = PLAN_FAULT;
			return plan_failed(run, op);
		}
		break;
	case PLAN_COPY:
		if (!plan_copy(front, addr, size))
			return plan_failed(run, op);
		run->r[op->dst & (PLAN_REGS - 1)] = plan_word(front, op->at);
		run->r[op->dst2 & (PLAN_REGS - 1)] = plan_word(front, op->at2);
		break;
	case PLAN_RANGE:
		other = run->r[op->other & (PLAN_REGS - 1)];
		run->size = 0;
		if (addr < other && other - addr < size)
			size = (other - addr) & 0xfff8;
		if (addr < other && size && !plan_copy(front, addr, size))
			return plan_failed(run, op);
		/* What is less than a word is left out. */
		addr = run->r[op->src & (PLAN_REGS - 1)] + op->imm + run->size;
		other = run->r[op->other & (PLAN_REGS - 1)];
		run->r[op->dst & (PLAN_REGS - 1)] = addr < other && run->size ? addr : other;
		break;
	case PLAN_PUT:
		/* The word is in no user memory: append it by hand. */
		at = run->at;
		if (at - run->begin + 16 > slice_bytes) {
			run->end = PLAN_ROOM;
			return 1;
		}
		barrier_var(at);
		if (at > BEFORE_SLICES + PLAN_BYTES_MAX)
			return 1;
		*(__u64 *)((__u8 *)(front + 1) + at) =
			((__u64)op->imm & 0xfff) | 1ull << PLAN_ADDR_BITS;
		*(__u64 *)((__u8 *)(front + 1) + at + 8) = addr - op->imm;
		run->at = at + 16;
		break;
	default:
		run->end = PLAN_BAD;
		return 1;
	}
	word = run->r[op->reg & (PLAN_REGS - 1)];
	other = run->r[op->other & (PLAN_REGS - 1)];
	jump = op->when == PLAN_ALWAYS || (op->when == PLAN_ZERO && !word) ||
	       (op->when == PLAN_NONZERO && word) || (op->when == PLAN_EQUAL && word == other) ||
	       (op->when == PLAN_DIFFER && word != other);
	run->next = jump ? op->jump : run->next + 1;
	return 0;
}

/* Callback of bpf_loop. */
static long plan_next(__u32 i, __u32 *place)
{
	return plan_step(place);
}

/* As copy_pages_fallback does, run the plan without bpf_loop. */
__attribute__((noinline)) int plan_steps_fallback(__u32 place)
{
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < PLAN_STEPS_MAX; i++)
		if (plan_step(&place))
			break;
	return 0;
}

/*
 * Run the plan of the thread's process, if there is one. The record has size bytes behind its head so far, and
 * run.r[PLAN_THREAD] is set. Return how many there are now.
 */
static __always_inline __u64 append_slices(struct capture_front *front, __u32 place, __u64 size,
					   bool fallback)
{
	struct capture_head *head = &front->head;
	volatile struct plan_run *run = &front->run;
	__u32 pid = head->pid;
	struct plan_task *task;

	if (!plans_in_use || !(head->flags & CAPTURE_HAS_USER) || head->flags & CAPTURE_COMPAT)
		return size;
	task = bpf_map_lookup_elem(&plan_tasks, &pid);
	if (!task || (task->start_ns && task->start_ns != head->process_start_ns))
		return size;
	barrier_var(size);
	if (size > BEFORE_SLICES)
		return size;
	for (int i = 0; i < PLAN_BASE; i++)
		run->r[i] = 0;
	run->r[PLAN_BASE] = task->base;
	run->plan = task->plan;
	run->next = 0;
	run->begin = run->at = size;
	run->end = PLAN_STEPS; /* unless a step says otherwise */
	if (fallback)
		plan_steps_fallback(place);
	else
		bpf_loop(PLAN_STEPS_MAX, plan_next, &place, 0);
	head->slices_len = run->at - run->begin;
	head->slices_end = run->end;
	return run->at;
}

#endif
