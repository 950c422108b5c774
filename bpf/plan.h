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
/*
 * How many of them have a pid with this remainder: most processes without a plan need no look-up in a hash table, while
 * others have one.
 */
__u16 planned[PLAN_PIDS] = {};
/* Bytes that a plan may append; the agent sets this. At most PLAN_BYTES_MAX; 0: no plan runs, and the verifier removes its code. */
const volatile __u32 slice_bytes = PLAN_BYTES_MAX;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct plan_base);
} plan_bases SEC(".maps");

/*
 * Bases of this round can be referred to; 0: of none. The agent sets this: another round begins when another process decodes
 * the records, which has none of the bases.
 */
__u32 slices_round = 0;

/* The most bytes before the slices, behind the record's head: see append. */
#define BEFORE_SLICES                                                     \
	(STACKS_MAX + CAPTURE_KERNEL_MAX + sizeof(struct capture_holes) + \
	 sizeof(struct capture_alloc))

/* Return a register, by its number in an installed plan (plan_install). */
static __always_inline volatile __u64 *plan_reg(volatile struct plan_run *run, __u64 off)
{
	off &= (PLAN_REGS - 1) * 8;
	add_address(off, run->r);
	return (volatile __u64 *)off;
}

/* Return the head of a slice. */
static __always_inline __u64 plan_slice(__u64 addr, __u32 size)
{
	return addr << (64 - PLAN_ADDR_BITS) >> (64 - PLAN_ADDR_BITS) |
	       (__u64)size << (PLAN_ADDR_BITS - 3);
}

/* Return where it is noted whether more than one thing is copied from a page. */
static __always_inline volatile __u8 *plan_dense(volatile struct plan_run *run, __u64 page)
{
	return &run->dense[page / PLAN_PAGE * 0x61c88647 >> 24 & (PLAN_DENSE - 1)];
}

/* The operations of a window go on to another page: note if one thing only was copied from a page that was read. */
static __always_inline void plan_leave(volatile struct plan_run *run, __u64 had)
{
	if (!(had & (PLAN_PAGE - 1)))
		*plan_dense(run, had) = 0;
}

/* Return whether a window has these bytes, after it has read their page if that is due. */
static __always_inline bool plan_has(volatile struct plan_run *run, volatile struct plan_window *w,
				     __u64 addr, __u32 size)
{
	__u64 off = addr & (PLAN_PAGE - 1), page = addr - off, had;
	bool again;

	if (size > PLAN_NEAR_MAX || off + size > PLAN_PAGE)
		return false;
	had = w->page;
	if (had == page + PLAN_AGAIN)
		return true;
	if (had == page) {
		w->page = page + PLAN_AGAIN;
		return true;
	}
	w->page = page + PLAN_PART;
	again = had == page + PLAN_PART;
	if (again)
		*plan_dense(run, page) = 1;
	else
		plan_leave(run, had);
	if (!*plan_dense(run, page) ||
	    bpf_probe_read_user((void *)w->bytes, PLAN_PAGE, (void *)page))
		return false;
	w->page = again ? page + PLAN_AGAIN : page;
	return true;
}

/*
 * Do what PLAN_COPY says by way of its window. Return false if the window does not have these bytes, or if there is no
 * room: the caller copies them then. Most steps of most plans come here. So this does nothing that only other steps
 * need, and it computes what it can after plan_has, so that the compiler need not save it there. It copies words
 * without a loop, because that is faster; what is too much is overwritten later, or not sent.
 */
static __always_inline bool plan_copy_near(volatile struct capture_front *front,
					   const struct plan_op *op, __u64 addr, __u32 size)
{
	volatile struct plan_run *run = &front->run;
	volatile struct plan_window *w = &run->windows[op->near & (PLAN_WINDOWS - 1)];
	const __u64 *from;
	__u64 *to, off;
	__u32 at;

	barrier_var(w); /* as for op in plan_step */
	if (!plan_has(run, w, addr, size))
		return false;
	barrier_var(addr); /* its offset in the page is computed again */
	at = run->at;
	off = addr & (PLAN_PAGE - 1);
	barrier_var(off);
	barrier_var(at);
	if (at + size + 8 > run->limit || at > BEFORE_SLICES + PLAN_BYTES_MAX || off > PLAN_PAGE)
		return false;
	from = (const __u64 *)(w->bytes + off);
	to = (__u64 *)((__u8 *)(front + 1) + at);
	to[0] = plan_slice(addr, size);
	to++;
	to[0] = from[0];
	to[1] = from[1];
	to[2] = from[2];
	to[3] = from[3];
	to[4] = from[4];
	if (size > 5 * sizeof(__u64)) {
		to[5] = from[5];
		to[6] = from[6];
		to[7] = from[7];
	}
	run->at = at + 8 + size;
	*plan_reg(run, op->dst) = from[op->at & (PLAN_NEAR_MAX / 8 - 1)];
	*plan_reg(run, op->dst2) = from[op->at2 & (PLAN_NEAR_MAX / 8 - 1)];
	return true;
}

/*
 * Append what an operation says: size bytes from addr on, or the word r[src] for PLAN_PUT. Return false if that
 * is not possible. What is needed after the read is in the scratch buffer and not on this program's stack: before
 * 6.8 or so, the stacks of a program and of the functions that it calls may have 512 bytes together, of which a
 * capturing program has most.
 */
static __always_inline bool plan_append(volatile struct capture_front *front,
					const struct plan_op *op, __u64 addr, __u32 size)
{
	volatile struct plan_run *run = &front->run;
	__u8 *bytes = (__u8 *)(front + 1);
	__u32 at = run->at;

	if (at + size + 8 > run->limit) {
		run->end = PLAN_ROOM;
		return false;
	}
	run->size = size;
	run->end = PLAN_FAULT; /* unless all of it can be read */
	barrier_var(at);
	barrier_var(size);
	if (at > BEFORE_SLICES + PLAN_BYTES_MAX || size > PLAN_PIECE_MAX)
		return false;
	*(__u64 *)(bytes + at) = plan_slice(addr, size);
	if (op->what == PLAN_PUT) {
		*(__u64 *)(bytes + at + 8) = *plan_reg(run, op->src);
	} else if (bpf_probe_read_user(bytes + at + 8, size, (void *)addr)) {
		return false;
	}
	run->at = run->at + 8 + run->size;
	run->end = PLAN_STEPS;
	return true;
}

/* Return whether an operation of this run asked for the value before, and note it. */
static __always_inline bool plan_saw(volatile struct plan_run *run, __u64 value)
{
	__u32 i = value * 0x61c88647 >> 32 & (PLAN_SEEN_MAX - 1);
	bool saw;

	value += run->number * 0x61c88647; /* what earlier runs noted is another sum */
	saw = run->seen[i] == value;
	run->seen[i] = value;
	return saw;
}

/* Run one operation. Return 1 if the plan has ended, else 0. */
static __always_inline long plan_step(volatile struct capture_front *front, struct plan *plan)
{
	volatile struct plan_run *run = &front->run;
	__u64 addr, word, other;
	volatile __u64 *to;
	__u32 at, size;
	const __u64 *words;
	struct plan_op *op;
	bool jump;

	op = &plan->ops[run->next & (PLAN_OPS_MAX - 1)];
	/* Older verifiers would not know the bounds of its offset any more, if that was on the stack meanwhile. */
	barrier_var(op);
	addr = *plan_reg(run, op->src) + op->imm;
	size = op->size & 0xfff8;
	switch (op->what) {
	case PLAN_STOP:
		run->end = PLAN_DONE;
		return 1;
	case PLAN_ADD:
		if (op->size < 64)
			addr += *plan_reg(run, op->other) << op->size;
		*plan_reg(run, op->dst) = addr;
		break;
	case PLAN_AND:
		*plan_reg(run, op->dst) = (addr - op->imm) & op->imm;
		break;
	case PLAN_LOAD:
		size = op->size;
		barrier_var(size);
		if (size - 1 >= sizeof(__u64)) /* 0; more is not installed */
			size = sizeof(__u64);
		to = plan_reg(run, op->dst);
		*to = 0;
		if (bpf_probe_read_user((void *)to, size, (void *)addr)) {
			run->end = PLAN_FAULT;
			goto failed;
		}
		break;
	case PLAN_RANGE:
		other = *plan_reg(run, op->other);
		if (addr >= other)
			size = 0;
		else if (other - addr < size)
			size = (other - addr) & 0xfff8;
		*plan_reg(run, op->dst) = size ? addr + size : other;
		if (!size) /* what is less than a word is left out */
			break;
		goto append;
	case PLAN_COPY:
		if (op->near && plan_copy_near(front, op, addr, size))
			break;
		goto append;
	case PLAN_PUT:
		addr = op->imm;
		size = 8;
	append:
		if (!plan_append(front, op, addr, size))
			goto failed;
		if (op->what == PLAN_COPY) {
			at = run->at - run->size; /* 256 words can be read there */
			barrier_var(at);
			if (at > BEFORE_SLICES + PLAN_BYTES_MAX)
				return 1;
			words = (const __u64 *)((__u8 *)(front + 1) + at);
			*plan_reg(run, op->dst) = words[op->at];
			*plan_reg(run, op->dst2) = words[op->at2];
		}
		break;
	default:
		run->end = PLAN_BAD;
		return 1;
	}
	/* Of each pair in enum plan_when, the second is the opposite of the first. */
	word = *plan_reg(run, op->reg);
	if ((op->when & 6) == PLAN_EQUAL)
		word -= *plan_reg(run, op->other);
	jump = op->when & 1;
	if (op->when > PLAN_ALWAYS)
		jump ^= !word;
	if (op->when == PLAN_SEEN && word)
		jump = plan_saw(run, word);
	run->next = jump ? op->jump : run->next + 1;
	return 0;
failed: /* go on where the operation says */
	if (!op->otherwise)
		return 1;
	run->next = op->otherwise;
	run->end = PLAN_STEPS;
	return 0;
}

/* What the callbacks of bpf_loop work on: pointers that are known to the verifier. */
struct plan_at {
	volatile struct capture_front *front;
	struct plan *plan;
	struct plan_base *base;
};

/* Callback of bpf_loop: run an operation. Return 1 if the plan has ended, else 0. */
static long plan_next(__u32 i, struct plan_at *at)
{
	return plan_step(at->front, at->plan);
}

/* Run an operation of the plan in this scratch buffer. Return 1 if the plan has ended, else 0. */
static __always_inline long step_once(__u32 *place)
{
	volatile struct capture_front *front = bpf_map_lookup_elem(&scratch, place);
	struct plan *plan;

	if (!front)
		return 1;
	plan = bpf_map_lookup_elem(&plans, (void *)&front->run.plan);
	return plan ? plan_step(front, plan) : 1;
}

/*
 * As copy_pages_fallback does, run the plan without bpf_loop. A loop in the loop would be too much for older verifiers.
 * They follow a count on the stack only if it has eight bytes.
 */
__attribute__((noinline)) int plan_steps_fallback(__u32 place)
{
#pragma clang loop unroll(disable)
	for (__u64 i = 0; i < PLAN_STEPS_MAX; i++)
		if (step_once(&place))
			break;
	return 0;
}

/* Compare the next chunk, from the end on, with that of the base. Return 1 if it differs or if there is none, else 0. */
static __always_inline long compare_chunk(volatile struct capture_front *front,
					  struct plan_base *base)
{
	volatile struct plan_run *run = &front->run;
	__u32 same = run->same + PLAN_CHUNK, at, from;
	const __u64 *a, *b;
	__u64 differ = 0;

	if (same > run->most)
		return 1;
	at = run->at - same;
	from = base->size - same;
	barrier_var(at);
	barrier_var(from);
	if (at > BEFORE_SLICES + PLAN_BYTES_MAX || from > PLAN_BYTES_MAX - PLAN_CHUNK)
		return 1;
	a = (const __u64 *)((__u8 *)(front + 1) + at);
	b = (const __u64 *)(base->bytes + from);
#pragma clang loop unroll(full)
	for (__u32 i = 0; i < PLAN_CHUNK / sizeof(__u64); i++)
		differ |= a[i] ^ b[i];
	if (differ)
		return 1;
	run->same = same;
	return 0;
}

/* Callback of bpf_loop: compare a chunk. Return 1 if it differs or if there is none, else 0. */
static long compare_next(__u32 i, struct plan_at *at)
{
	return compare_chunk(at->front, at->base);
}

/* Compare a chunk of the record in this scratch buffer. Return 1 if it differs or if there is none, else 0. */
static __always_inline long compare_once(__u32 *place)
{
	volatile struct capture_front *front = bpf_map_lookup_elem(&scratch, place);
	struct plan_base *base = bpf_map_lookup_elem(&plan_bases, place);

	return front && base ? compare_chunk(front, base) : 1;
}

/* As plan_steps_fallback does, compare without bpf_loop. */
__attribute__((noinline)) int compare_fallback(__u32 place)
{
#pragma clang loop unroll(disable)
	for (__u64 i = 0; i < PLAN_BYTES_MAX / PLAN_CHUNK; i++)
		if (compare_once(&place))
			break;
	return 0;
}

/* Let the slices of a record, which has all of them, be the base of those that follow. */
static __always_inline void make_base(struct capture_front *front, struct plan_base *base,
				      __u32 size)
{
	volatile struct plan_run *run = &front->run;
	__u32 at = run->at - size;

	run->same = 0;
	base->number++;
	base->round = slices_round;
	base->size = size;
	base->uses = PLAN_BASE_USES;
	barrier_var(at);
	barrier_var(size);
	if (at > BEFORE_SLICES || size > PLAN_BYTES_MAX ||
	    bpf_probe_read_kernel(base->bytes, size, (__u8 *)(front + 1) + at))
		base->round = 0;
}

/*
 * Leave out the last slices of the record if they are the same as in the CPU's base, and refer to that; or let the record be
 * the base. place is also the base's. The record has size bytes before its slices.
 */
static __always_inline void refer(struct capture_front *front, __u32 place, __u32 size,
				  bool fallback)
{
	volatile struct plan_run *run = &front->run;
	struct plan_base *base = bpf_map_lookup_elem(&plan_bases, &place);
	struct plan_at here = { .front = front, .base = base };
	__u32 all = run->at - size, at;
	struct plan_reference *reference;

	if (!base || all < PLAN_LEAST)
		return;
	if (base->rest) {
		base->rest--;
		return;
	}
	run->same = 0;
	run->most = all < base->size ? all : base->size;
	if (base->round != slices_round || !base->uses) {
		make_base(front, base, all);
	} else {
		if (fallback)
			compare_fallback(place);
		else
			bpf_loop(PLAN_BYTES_MAX / PLAN_CHUNK, compare_next, &here, 0);
		if (run->same >= all / 2) {
			base->uses--;
		} else if (base->uses < PLAN_BASE_USES) {
			make_base(front, base, all);
		} else {
			base->round = 0;
			base->rest = PLAN_BASE_REST;
			return;
		}
	}
	at = run->at - run->same;
	barrier_var(at);
	if (at > BEFORE_SLICES + PLAN_BYTES_MAX)
		return;
	reference = (void *)((__u8 *)(front + 1) + at);
	reference->base = base->number;
	reference->size = run->same;
	run->at = run->at - run->same + sizeof(*reference);
	front->head.slices_refer = 1;
}

/* A record that refers to a base, or is one, did not get into the ring: nothing refers to its base any more. */
static __always_inline void forget_base(__u32 place)
{
	struct plan_base *base = bpf_map_lookup_elem(&plan_bases, &place);

	if (base)
		base->round = 0;
}

/* Return the process of the record's thread if it has a plan, else NULL. */
static __always_inline struct plan_task *planned_task(const struct capture_head *head)
{
	__u32 pid = head->pid;
	struct plan_task *task;

	if (!slice_bytes || !(head->flags & CAPTURE_HAS_USER) || head->flags & CAPTURE_COMPAT ||
	    !planned[pid & (PLAN_PIDS - 1)])
		return NULL;
	task = bpf_map_lookup_elem(&plan_tasks, &pid);
	return task && (!task->start_ns || task->start_ns == head->process_start_ns) ? task : NULL;
}

/*
 * Run the plan of the thread's process, if there is one. The record in the scratch buffer has run.at bytes behind its head
 * so far, and run.r[PLAN_THREAD] is set.
 */
static __always_inline int run_plan(__u32 place, __u32 kind, bool fallback)
{
	struct capture_front *front = bpf_map_lookup_elem(&scratch, &place);
	struct plan_at here = { .front = front };
	volatile struct plan_run *run;
	struct plan_task *task;

	if (!front)
		return 0;
	run = &front->run;
	task = planned_task(&front->head);
	if (!task || run->at > BEFORE_SLICES)
		return 0;
	for (int i = 0; i < PLAN_BASE; i++)
		run->r[i] = 0;
	run->r[PLAN_BASE] = task->base;
	run->plan = task->plan;
	run->next = 0;
	run->limit = run->at + slice_bytes;
	for (__u32 i = 0; i < PLAN_WINDOWS; i++) {
		plan_leave(run, run->windows[i].page);
		run->windows[i].page = PLAN_NO_PAGE;
	}
	run->number++;
	run->end = PLAN_STEPS; /* unless a step says otherwise */
	if (fallback) {
		plan_steps_fallback(place);
	} else {
		here.plan = bpf_map_lookup_elem(&plans, &task->plan);
		if (here.plan)
			bpf_loop(PLAN_STEPS_MAX, plan_next, &here, 0);
	}
	/* The records of probes and of waits do not come to the decoder in the order in which they were made. */
	if (kind == CAPTURE_SCRATCH_EVENT && slices_round)
		refer(front, place, run->limit - slice_bytes, fallback);
	front->head.slices_len = run->at - (run->limit - slice_bytes);
	front->head.slices_end = run->end;
	return 0;
}

/*
 * As run_plan. Global functions are verified once, and not once for each path that leads to them: that is half of what the
 * verifier would do.
 */
__attribute__((noinline)) int append_slices(__u32 place, __u32 kind)
{
	return run_plan(place, kind, false);
}

__attribute__((noinline)) int append_slices_fallback(__u32 place, __u32 kind)
{
	return run_plan(place, kind, true);
}

#endif
