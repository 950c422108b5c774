/*
 * tests/unit/test_plan.c: tests that the BPF programs run plans as schema/plan.h says, by comparing bpf/plan.h, compiled
 * for this machine over stubs of what the kernel gives it, with agent/runtime/plan_execute.h.
 */
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <linux/bpf.h>

#include "agent/live/bases.h"
#include "agent/runtime/plan_execute.h"
#include "tests/check.h"

/* ---- the kernel -------------------------------------------------------------------------------- */

#define BPF_KERNEL_H /* in place of bpf/kernel.h */

/* NOLINTBEGIN: the names are libbpf's */
#define SEC(name)
#define __uint(name, value)	  int(*name)[value]
#define __type(name, value)	  __typeof__(value) *name
#define barrier_var(var)	  __asm__ volatile("" : "+r"(var))
#define add_address(off, base)	  ((off) += (uintptr_t)(base))
#define BPF_CORE_READ(from, name) ((from)->name)
#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif
/* NOLINTEND */

static void *bpf_map_lookup_elem(void *map, const void *key);
static long bpf_probe_read_user(void *to, uint64_t size, const void *from);
static long bpf_probe_read_kernel(void *to, uint64_t size, const void *from);
static long bpf_loop(uint32_t n, void *each, void *ctx, uint64_t flags);

static inline uint64_t bpf_ringbuf_query(void *map, uint64_t what)
{
	return (uintptr_t)map & what & 0;
}

static inline long bpf_ringbuf_output(void *map, void *data, uint64_t size, uint64_t flags)
{
	return map || data || size || flags;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunknown-pragmas"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#ifdef __clang__ /* BPF loads and stores words at any address */
#pragma clang attribute push(__attribute__((no_sanitize("alignment"))), apply_to = function)
#endif
#include "bpf/plan.h"
#ifdef __clang__
#pragma clang attribute pop
#endif
#pragma GCC diagnostic pop

#define BASE  UINT64_C(0x7f0000000000)
#define PAGES 8u

static struct {
	uint8_t bytes[PAGES * PLAN_PAGE];
	bool absent[PAGES];
	unsigned int reads, pages,
		looks; /* pages: reads of one; looks: for the plan of a process */
} user;

static struct capture_front *buffer; /* the scratch buffer, CAPTURE_SCRATCH_SIZE bytes */
static struct plan plan_now, plan_installed;
static struct plan_base base_now;

static bool can_read(uint64_t addr, uint64_t size)
{
	if (addr < BASE || size > sizeof(user.bytes) || addr - BASE > sizeof(user.bytes) - size)
		return false;
	for (uint64_t i = (addr - BASE) / PLAN_PAGE; i * PLAN_PAGE < addr - BASE + size; i++)
		if (user.absent[i])
			return false;
	return true;
}

static long bpf_probe_read_user(void *to, uint64_t size, const void *from)
{
	uint64_t addr = (uintptr_t)from;

	user.reads++;
	user.pages += size == PLAN_PAGE;
	if (!can_read(addr, size)) {
		memset(to, 0, size);
		return -EFAULT;
	}
	memcpy(to, user.bytes + (addr - BASE), size);
	return 0;
}

static long bpf_probe_read_kernel(void *to, uint64_t size, const void *from)
{
	memcpy(to, from, size);
	return 0;
}

static int read_user(void *ctx, uint64_t addr, void *out, size_t size)
{
	(void)ctx;
	if (!can_read(addr, size))
		return -EFAULT;
	memcpy(out, user.bytes + (addr - BASE), size);
	return 0;
}

static void *bpf_map_lookup_elem(void *map, const void *key)
{
	static struct plan_task task = { .base = BASE };

	(void)key;
	user.looks += map == &plan_tasks;
	return map == &scratch	    ? (void *)buffer
	       : map == &plans	    ? (void *)&plan_installed
	       : map == &plan_bases ? (void *)&base_now
				    : (void *)&task;
}

static long bpf_loop(uint32_t n, void *each, void *ctx, uint64_t flags)
{
	long (*step)(uint32_t, void *) = (long (*)(uint32_t, void *))each;
	uint32_t i = 0;

	while (i < n && !step(i, ctx))
		i++;
	return i + (long)flags;
}

/* ---- both ways --------------------------------------------------------------------------------- */

#define BEFORE 2048u /* bytes of the record before the slices */

static struct plan_execution model;
static enum plan_end model_end;
static struct live_bases bases;
static struct plan_reference reference; /* of the last run; all 0: it had none */

/* Put the slices of the record together. Return whether all are there. */
static bool follow(const uint8_t **bytes, uint32_t *size)
{
	reference = (struct plan_reference){ 0 };
	if (!buffer->head.slices_refer)
		return true;
	*size -= (uint32_t)sizeof(reference);
	memcpy(&reference, *bytes + *size, sizeof(reference));
	return live_bases_follow(&bases, 0, &reference, bytes, size);
}

/* Append the slices to a record of BEFORE bytes. Return how many it has then. */
static uint32_t append_to(enum capture_scratch kind, bool fallback)
{
	buffer->run.at = BEFORE;
	(void)(fallback ? append_slices_fallback(0, kind) : append_slices(0, kind));
	return buffer->run.at;
}

/* Run the plan in both ways, in the fallback's too; return whether they copy the same. */
static bool same(bool fallback)
{
	const uint8_t *bytes = (const uint8_t *)(buffer + 1) + BEFORE;
	uint64_t at = 0;
	uint32_t size;

	buffer->head.flags = CAPTURE_HAS_USER;
	buffer->head.slices_refer = 0;
	buffer->run.r[PLAN_THREAD] = BASE + 64;
	user.reads = user.pages = 0;
	plan_installed = plan_now;
	plan_install(&plan_installed);
	size = append_to(CAPTURE_SCRATCH_EVENT, fallback) - BEFORE;
	model = (struct plan_execution){ .r[PLAN_BASE] = BASE, .r[PLAN_THREAD] = BASE + 64 };
	model_end = plan_execute(&model, &plan_now, read_user, NULL);
	if (buffer->head.slices_len != size || buffer->head.slices_end != model_end ||
	    !follow(&bytes, &size))
		return false;
	for (uint32_t i = 0; i < model.n; i++) {
		const struct uw_region *slice = &model.slices[i];
		uint64_t head = slice->addr | (uint64_t)slice->size / 8 << PLAN_ADDR_BITS;

		if (size - at < 8 + slice->size || memcmp(bytes + at, &head, 8) != 0 ||
		    memcmp(bytes + at + 8, slice->bytes, slice->size) != 0)
			return false;
		at += 8 + slice->size;
	}
	return at == size;
}

static void clear(void)
{
	memset(&user, 0, sizeof(user));
	memset(&plan_now, 0, sizeof(plan_now));
	plans_in_use = 1;
	planned[0] = 1;
}

static void put_word(uint64_t addr, uint64_t word)
{
	memcpy(user.bytes + (addr - BASE), &word, 8);
}

/* A chain of n frames of 16 bytes each, all so many bytes from the one before: caller and code. */
static void put_chain(uint64_t addr, int64_t step, unsigned int n, unsigned int n_codes)
{
	clear();
	for (unsigned int i = 0; i < n; i++, addr += (uint64_t)step) {
		put_word(addr, i + 1 < n ? addr + (uint64_t)step : 0);
		put_word(addr + 8, BASE + 7 * PLAN_PAGE + 16 * (i % n_codes));
	}
}

/* Follow the chain; near and near_code are the windows of frames and of codes. */
static void plan_chain(uint64_t addr, uint8_t near, uint8_t near_code)
{
	const struct plan_op ops[] = {
		{ .what = PLAN_ADD,
		  .src = PLAN_BASE,
		  .imm = (int64_t)(addr - BASE),
		  .size = 64,
		  .dst = PLAN_R0 },
		{ .what = PLAN_COPY,
		  .near = near,
		  .src = PLAN_R0,
		  .size = 16,
		  .dst = PLAN_R0,
		  .dst2 = PLAN_R1,
		  .at2 = 1,
		  .when = PLAN_SEEN,
		  .reg = PLAN_R1,
		  .jump = 3 },
		{ .what = PLAN_COPY,
		  .near = near_code,
		  .src = PLAN_R1,
		  .size = 8,
		  .dst = PLAN_R2,
		  .dst2 = PLAN_R2 },
		{ .what = PLAN_ADD,
		  .size = 64,
		  .dst = PLAN_R2,
		  .when = PLAN_NONZERO,
		  .reg = PLAN_R0,
		  .jump = 1 },
		{ .what = PLAN_STOP },
	};

	plan_now.n = sizeof(ops) / sizeof(ops[0]);
	memcpy(plan_now.ops, ops, sizeof(ops));
}

static void test_pages_are_read_when_they_are_met_twice(void)
{
	const uint64_t last = BASE + 3 * PLAN_PAGE - 24;

	put_chain(last, -120, 60, 1);
	plan_chain(last, 1, 0);
	CHECK(same(false) && model_end == PLAN_DONE && model.n == 61, "60 frames and a code");
	CHECK(user.reads == 6, "two pages twice, a frame in both of them, and the code");
	plan_chain(last, 0, 0);
	CHECK(same(true) && user.reads == 61, "without a window");
	put_chain(BASE + 8, 120, 60, 60);
	plan_chain(BASE + 8, 1, PLAN_WINDOWS);
	CHECK(same(true) && model_end == PLAN_DONE && model.n == 120 && user.reads <= 8,
	      "towards higher addresses, and codes in a window of their own");
	plan_chain(BASE + 8, 1, 1);
	CHECK(same(false) && user.reads == 120, "pages that take turns are not read");
}

static void test_pages_that_were_met_twice_are_read_at_once(void)
{
	const uint64_t last = BASE + 3 * PLAN_PAGE - 24;

	memset(buffer->run.dense, 0, sizeof(buffer->run.dense));
	put_chain(last, -120, 60, 1);
	plan_chain(last, 1, 0);
	CHECK(same(false) && user.reads == 6 && user.pages == 2, "the first run");
	CHECK(same(true) && user.reads == 4 && user.pages == 2,
	      "two pages, a frame in both of them, and the code");
	put_chain(last, -(int64_t)PLAN_PAGE, 3, 1);
	plan_chain(last, 1, 0);
	CHECK(same(false) && user.reads == 4 && user.pages == 2, "they have one frame each now");
	CHECK(same(true) && user.reads == 4 && !user.pages, "which is noted, of the last one too");
	put_chain(last, -120, 60, 1);
	plan_chain(last, 1, 0);
	CHECK(same(false) && same(false) && user.reads == 4, "two pages again");
	user.absent[1] = true;
	CHECK(same(false) && model_end == PLAN_FAULT, "a page that is not there any more");
	CHECK(same(true) && model_end == PLAN_FAULT, "once more");
}

static void test_window_touches_no_other_page(void)
{
	for (uint64_t off = PLAN_PAGE - 24; off <= PLAN_PAGE; off++) {
		put_chain(BASE + PLAN_PAGE + off, -16, 4, 1);
		user.absent[0] = user.absent[3] = true;
		plan_chain(BASE + PLAN_PAGE + off, 1, 2);
		CHECK(same(false) && model_end == PLAN_DONE, "to lower addresses");
		put_chain(BASE + 2 * PLAN_PAGE - off, 16, 4, 1);
		user.absent[0] = user.absent[3] = true;
		plan_chain(BASE + 2 * PLAN_PAGE - off, 1, 2);
		CHECK(same(false) && model_end == PLAN_DONE, "to higher addresses");
	}
	put_chain(BASE + PLAN_PAGE + 64, -16, 9, 1);
	user.absent[0] = true;
	plan_chain(BASE + PLAN_PAGE + 64, 1, 2);
	CHECK(same(false) && model_end == PLAN_FAULT && model.n == 6, "a page that is not there");
}

/* What one run has noted or read is of no use for the next. */
static void test_runs_do_not_see_each_other(void)
{
	put_chain(BASE + 256, -16, 8, 8);
	plan_chain(BASE + 256, 1, 2);
	CHECK(same(false) && model.n == 16, "eight codes");
	CHECK(same(false) && model.n == 16, "once more");
	put_word(BASE + 256 + 8, BASE + 7 * PLAN_PAGE + 8);
	put_word(BASE + 240 + 8, BASE + 7 * PLAN_PAGE + 8);
	CHECK(same(false) && model.n == 15, "memory that has changed");
}

static void test_cycles_end(void)
{
	put_chain(BASE + 256, -16, 8, 1);
	put_word(BASE + 256 - 7 * 16, BASE + 256);
	plan_chain(BASE + 256, 1, 2);
	CHECK(same(false) && model_end == PLAN_STEPS && same(true), "a cycle");
}

/* ---- references -------------------------------------------------------------------------------- */

#define FRAMES 60u

static bool is_base(void)
{
	return buffer->head.slices_refer && !reference.size;
}

/* Whether at most n bytes of the slices were not those of the base. */
static bool refers(uint32_t n)
{
	return reference.size && buffer->head.slices_len <= n + PLAN_CHUNK + sizeof(reference);
}

static void begin_round(void)
{
	put_chain(BASE + 8, 120, FRAMES, FRAMES);
	plan_chain(BASE + 8, 1, 2);
	slices_round++;
}

/* A call from the innermost frame. */
static void call(void)
{
	const uint64_t inner = BASE + 7 * PLAN_PAGE - 16;

	put_word(inner, BASE + 8);
	put_word(inner + 8, BASE + 7 * PLAN_PAGE + 1024);
	plan_chain(inner, 1, 2);
}

static void test_what_has_not_changed_is_sent_once(void)
{
	for (int fallback = 0; fallback < 2; fallback++) {
		begin_round();
		CHECK(same(fallback) && is_base(), "the first is a base");
		CHECK(same(fallback) && refers(0), "all is as it was");
		call();
		CHECK(same(fallback) && refers(24 + 16), "there is one more frame");
		put_word(BASE + 8 + 120 * 9 + 8, BASE + 7 * PLAN_PAGE + 2048);
		CHECK(same(fallback) && refers(11 * 40), "the tenth frame is another");
		put_word(BASE + 8 + 120 * 50 + 8, BASE + 7 * PLAN_PAGE + 2048);
		CHECK(same(fallback) && is_base(), "less than half is as it was");
		CHECK(same(fallback) && refers(0), "that is the base now");
	}
}

static void test_bases_are_sent_again(void)
{
	unsigned int n = 0;

	begin_round();
	CHECK(same(false) && is_base(), "the first");
	while (same(n & 1) && !is_base() && n < 1000)
		n++;
	CHECK(n == PLAN_BASE_USES, "after some uses");
	forget_base(0);
	CHECK(same(false) && is_base(), "after one that was not sent");
	slices_round++;
	CHECK(same(false) && is_base(), "in another round");
	slices_round = 0;
	CHECK(same(false) && !buffer->head.slices_refer, "there is no decoder that has them");
}

/* What is never as it was before is not compared each time. */
static void test_bases_that_are_of_no_use_are_rare(void)
{
	unsigned int n_bases = 0;

	begin_round();
	for (unsigned int i = 0; i < 2 * (PLAN_BASE_REST + 2); i++) {
		put_word(BASE + 8 + 120 * (FRAMES - 1) + 8, BASE + 6 * PLAN_PAGE + 8 * i);
		CHECK(same(i & 1) && !reference.size, "the last frame has changed");
		n_bases += is_base();
	}
	CHECK(n_bases == 2, "the first, and one after the rest");
	CHECK(same(false) && is_base(), "after the second rest");
	CHECK(same(false) && refers(0), "now all is as it was");
	slices_round = 0;
}

static void test_what_refers_to_nothing_known_is_told_apart(void)
{
	const uint8_t own[16] = { 0 }, *bytes = own;
	uint32_t size = sizeof(own);
	const struct plan_reference other = { base_now.number + 2, PLAN_CHUNK },
				    too_long = { base_now.number + 1, PLAN_BYTES_MAX };

	begin_round();
	CHECK(same(false) && is_base(), "a base");
	CHECK(!live_bases_follow(&bases, 0, &other, &bytes, &size), "another base");
	CHECK(!live_bases_follow(&bases, 1, &other, &bytes, &size), "another CPU");
	CHECK(!live_bases_follow(&bases, 0, &too_long, &bytes, &size), "more than it has");
	CHECK(!live_bases_follow(NULL, 0, &other, &bytes, &size), "no bases");
	CHECK(bytes == own && size == sizeof(own), "nothing is changed");
	slices_round = 0;
}

static void test_few_slices_and_other_events_do_not_refer(void)
{
	begin_round();
	put_chain(BASE + 8, 120, 12, 12);
	plan_chain(BASE + 8, 1, 2);
	CHECK(same(false) && !buffer->head.slices_refer && model.n == 24, "480 bytes");
	begin_round();
	buffer->head.slices_refer = 0;
	(void)append_to(CAPTURE_SCRATCH_SWITCH, false);
	CHECK(buffer->head.slices_len > PLAN_LEAST && !buffer->head.slices_refer, "a wait");
	slices_round = 0;
}

/* ---- any plan ---------------------------------------------------------------------------------- */

static uint64_t state = 1;

static unsigned int chance(unsigned int n)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (unsigned int)(state >> 33) % n;
}

/* The values that PLAN_SEEN may meet are few enough to be noted all, at places of their own. */
static uint64_t any_pointer(void)
{
	return BASE + 1024 * chance(8 * 4) + 8 * chance(3);
}

static void make_any(void)
{
	static const uint8_t whats[] = { PLAN_ADD,  PLAN_AND,  PLAN_LOAD, PLAN_COPY,  PLAN_COPY,
					 PLAN_COPY, PLAN_COPY, PLAN_PUT,  PLAN_RANGE, PLAN_RANGE };

	clear();
	for (size_t i = 0; i < sizeof(user.bytes); i += 8)
		put_word(BASE + i, chance(4) ? any_pointer() : chance(2) ? 0 : state);
	for (size_t i = 0; i < PAGES; i++)
		user.absent[i] = !chance(12);
	plan_now.n = 4 + chance(PLAN_OPS_MAX - 4);
	for (uint32_t i = 0; i < plan_now.n; i++) {
		struct plan_op *op = &plan_now.ops[i];

		*op = (struct plan_op){ .what = whats[chance(sizeof(whats))],
					.src = (uint8_t)chance(PLAN_REGS),
					.dst = (uint8_t)chance(PLAN_BASE),
					.dst2 = (uint8_t)chance(PLAN_BASE),
					.size = (uint16_t)(8 + 8 * chance(8)),
					.when = (uint8_t)(i % 3 ? PLAN_NEVER : chance(PLAN_SEEN)),
					.reg = (uint8_t)chance(PLAN_REGS),
					.other = (uint8_t)chance(PLAN_REGS),
					.jump = (uint8_t)chance(plan_now.n),
					.near = (uint8_t)chance(PLAN_WINDOWS + 1),
					.imm = 8 * (int64_t)chance(600) };
		op->at = (uint8_t)chance(op->size / 8);
		op->at2 = (uint8_t)chance(op->size / 8);
		if (op->what == PLAN_ADD && chance(3))
			op->size = 64;
		if (op->what == PLAN_AND)
			op->imm = -8;
		if (op->what == PLAN_PUT)
			op->imm = 1;
		if (op->what == PLAN_LOAD)
			op->size = (uint16_t)chance(9);
		if (!chance(4))
			op->otherwise = (uint8_t)chance(plan_now.n);
		if (op->what == PLAN_RANGE)
			op->size = (uint16_t)(8 + 8 * chance(PLAN_PIECE_MAX / 8));
	}
	plan_now.ops[plan_now.n - 1] = (struct plan_op){ .what = PLAN_STOP };
}

static void test_processes_without_a_plan_are_not_looked_up(void)
{
	clear();
	plan_now.n = 1;
	buffer->head.flags = CAPTURE_HAS_USER;
	for (uint32_t pid = 1; pid < PLAN_PIDS; pid++) {
		buffer->head.pid = pid;
		CHECK(append_to(CAPTURE_SCRATCH_EVENT, pid & 1) == BEFORE, "no slices");
	}
	CHECK(!user.looks, "their pids have other remainders than that of the process with a plan");
	buffer->head.pid = PLAN_PIDS;
	(void)append_to(CAPTURE_SCRATCH_EVENT, false);
	CHECK(user.looks == 1, "the same remainder");
	buffer->head.pid = 0;
}

static void test_any_plan_copies_the_same(void)
{
	unsigned int ends[PLAN_ENDS] = { 0 }, wrong = 0, referring = 0;

	for (unsigned int i = 0; i < 20000; i++) {
		make_any();
		slices_round = i & 2;
		wrong += !same(i & 1);
		ends[model_end]++;
		/* Once more, with memory that is nearly the same. */
		put_word(BASE + 8 * chance(sizeof(user.bytes) / 8), any_pointer());
		wrong += !same(i & 1);
		referring += reference.size != 0;
	}
	slices_round = 0;
	CHECK(!wrong, "the same slices, and the same end");
	CHECK(ends[PLAN_DONE] && ends[PLAN_FAULT] && ends[PLAN_STEPS] && ends[PLAN_ROOM],
	      "all kinds of ends were met");
	CHECK(referring > 100, "many refer to others");
}

int main(void)
{
	buffer = calloc(1, CAPTURE_SCRATCH_SIZE(CAPTURE_STACK_DEFAULT));
	if (!buffer)
		return 1;
	test_pages_are_read_when_they_are_met_twice();
	test_pages_that_were_met_twice_are_read_at_once();
	test_window_touches_no_other_page();
	test_runs_do_not_see_each_other();
	test_cycles_end();
	test_processes_without_a_plan_are_not_looked_up();
	test_what_has_not_changed_is_sent_once();
	test_bases_are_sent_again();
	test_bases_that_are_of_no_use_are_rare();
	test_what_refers_to_nothing_known_is_told_apart();
	test_few_slices_and_other_events_do_not_refer();
	test_any_plan_copies_the_same();
	live_bases_fini(&bases);
	free(buffer);
	return check_done();
}
