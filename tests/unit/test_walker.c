/*
 * tests/unit/test_walker.c: tests targets, cursors and walkers over a process that exists only in
 * call-backs: code that only a stepper from outside can walk, ranges, choices, and what is cached
 * and what is not.
 */
#include "unwinder/walker.h"

#include <elf.h>
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "tests/check.h"

#define CODE  0x10000
#define STACK 0x70000
#define WORDS 64

static uint64_t words[WORDS];
static struct uw_stack_frame frames[16];

/* ---- the process ------------------------------------------------------------------------ */

struct process {
	unsigned int reads;
	uint64_t pc;
};

static int reg_of(void *ctx, uint64_t thread, unsigned int reg, uint64_t *value)
{
	struct process *p = ctx;

	if (thread != 11 && thread != 12)
		return -ESRCH;
	switch (reg) {
	case UW_X86_64_RIP:
		*value = p->pc;
		return 0;
	case UW_X86_64_RSP:
		*value = thread == 11 ? STACK : STACK + 64;
		return 0;
	case UW_X86_64_RBP:
		*value = 0x1234;
		return 0;
	default:
		return -ENODATA;
	}
}

static int read_mem(void *ctx, uint64_t addr, void *out, size_t size)
{
	struct process *p = ctx;

	p->reads++;
	if (addr < STACK || addr - STACK > sizeof(words) || size > sizeof(words) - (addr - STACK))
		return -EFAULT;
	memcpy(out, (uint8_t *)words + (addr - STACK), size);
	return 0;
}

static int threads_of(void *ctx, uint64_t *ids, size_t max, size_t *n)
{
	static const uint64_t all[] = { 11, 12 };

	(void)ctx;
	for (size_t i = 0; i < 2 && i < max; i++)
		ids[i] = all[i];
	*n = 2;
	return 0;
}

static uint64_t id_of(void *ctx)
{
	(void)ctx;
	return 4711;
}

static int name_of(void *ctx, uint64_t addr, char *name, size_t size, void **object)
{
	if (addr < CODE || addr >= CODE + 0x1000)
		return -ENOENT;
	if (size < 9)
		return -ENOMEM;
	memcpy(name, "emulated", 9);
	if (object)
		*object = ctx;
	return 0;
}

static struct process process = { .pc = CODE + 0x10 };
static const struct uw_process calls = { .machine = EM_X86_64,
					 .reg = reg_of,
					 .read = read_mem,
					 .threads = threads_of,
					 .id = id_of,
					 .ctx = &process };
static const struct uw_lookup lookup = { .name = name_of, .ctx = &process };

/* ---- the stepper from outside -------------------------------------------------------------- */

/*
 * Frames of the code at CODE have four words: the third is the return address, the fourth the frame
 * pointer's old value. Frames of an instrumenter, which no compiler knows, could look like this.
 */
struct own {
	unsigned int asked;
	uint8_t id;
	const struct uw_steppers *told; /* by `added` */
	enum uw_answer answer;
};

static enum uw_answer step_own(void *ctx, struct uw_query *q)
{
	struct own *own = ctx;
	uint64_t sp = q->regs.value[UW_X86_64_RSP], frame[2];

	own->asked++;
	if (own->answer != UW_ANSWER_SUCCESS)
		return own->answer;
	if (q->read(q->read_ctx, sp + 16, frame, sizeof(frame)))
		return UW_ANSWER_ERROR;
	if (!frame[0])
		return UW_ANSWER_STACK_BOTTOM;
	q->regs.value[UW_X86_64_RIP] = frame[0];
	q->regs.value[UW_X86_64_RSP] = sp + 32;
	q->regs.value[UW_X86_64_RBP] = frame[1];
	q->saves[0] = (struct uw_save){ .place = UW_PLACE_MEMORY, .addr = sp + 16 };
	q->saves[2] = (struct uw_save){ .place = UW_PLACE_MEMORY, .addr = sp + 24 };
	return UW_ANSWER_SUCCESS;
}

static void told(void *ctx, struct uw_steppers *steppers, uint8_t id)
{
	struct own *own = ctx;
	const struct uw_range code = { CODE, CODE + 0x1000 };

	own->told = steppers;
	own->id = id;
	CHECK(uw_steppers_add_ranges(steppers, id, &code, 1) == 0, "it brings its ranges along");
}

static struct uw_steppers *group_of(struct own *first, struct own *second)
{
	struct uw_stepper_info info = {
		.name = "emulated", .priority = 0x800, .step = step_own, .ctx = first, .added = told
	};
	struct uw_steppers *group = NULL;

	CHECK(uw_steppers_new(&group) == 0, "group");
	CHECK(uw_steppers_add(group, &info, NULL) == 0 && first->told == group, "added");
	if (second) {
		info.ctx = second;
		info.priority = 0x900;
		CHECK(uw_steppers_add(group, &info, NULL) == 0, "second");
	}
	return group;
}

static void fill_stack(void)
{
	memset(words, 0, sizeof(words));
	words[2] = CODE + 0x100; /* from thread 11's frame 0 */
	words[3] = 0xf1;
	words[6] = CODE + 0x200;
	words[7] = 0xf2;
	words[10] = CODE + 0x300; /* thread 12 begins here */
	words[11] = 0xf3;
}

static void test_walker_walks_what_only_a_stepper_from_outside_can(void)
{
	struct own own = { .answer = UW_ANSWER_SUCCESS };
	struct uw_steppers *group = group_of(&own, NULL);
	struct uw_stack_walk walk = { .frames = frames, .max_frames = 16 };
	struct uw_stack_frame first, made;
	struct uw_walker *plain = NULL, *walker = NULL;
	uint64_t ids[4], by_hand[3] = { CODE + 0x100, STACK + 32, 7 };
	void *object = NULL;
	char name[16];
	size_t n = 0;

	fill_stack();
	CHECK(uw_walker_new(&calls, NULL, NULL, NULL, &plain) == 0, "walker without steppers");
	CHECK(uw_walker_walk(plain, UW_THREAD_DEFAULT, &walk) == 0 && walk.n_frames == 1 &&
		      walk.stop == UW_STOP_NO_MAPPING,
	      "nothing else can walk it");
	CHECK(uw_walker_steppers(plain) == NULL &&
		      uw_walker_name(&frames[0], name, 16, NULL) == -ENOENT,
	      "defaults");
	CHECK(uw_walker_new(&calls, NULL, group, &lookup, &walker) == 0, "walker");
	CHECK(uw_walker_steppers(walker) == group && uw_walker_process(walker)->id(NULL) == 4711 &&
		      uw_walker_lookup(walker)->name == name_of,
	      "what it was made of");
	CHECK(uw_walker_threads(walker, ids, 4, &n) == 0 && n == 2 && ids[0] == 11 && ids[1] == 12,
	      "threads");
	CHECK(uw_walker_walk(walker, UW_THREAD_DEFAULT, &walk) == 0 && walk.n_frames == 4 &&
		      walk.stop == UW_STOP_ROOT,
	      "with it they are four");
	CHECK(frames[0].ra == CODE + 0x10 && frames[0].sp == STACK && frames[0].fp == 0x1234 &&
		      frames[0].exact && frames[0].ra_at.place == UW_PLACE_REGISTER &&
		      frames[0].ra_at.from == UW_X86_64_RIP &&
		      frames[0].sp_at.from == UW_X86_64_RSP,
	      "the innermost is in registers");
	CHECK(frames[2].ra == CODE + 0x200 && frames[2].sp == STACK + 64 && frames[2].fp == 0xf2 &&
		      frames[2].ra_at.place == UW_PLACE_MEMORY &&
		      frames[2].ra_at.addr == STACK + 48 && frames[2].fp_at.addr == STACK + 56 &&
		      frames[2].sp_at.place == UW_PLACE_VALUE && frames[2].stepper == own.id,
	      "the others in memory");
	CHECK(uw_walker_name(&frames[1], name, sizeof(name), &object) == 0 &&
		      !strcmp(name, "emulated") && object == &process,
	      "a name and what goes with it");
	CHECK(uw_walker_library(&frames[1], name, sizeof(name)) == -ENOENT, "no library");

	CHECK(uw_walker_initial(walker, 12, &first) == 0 && first.sp == STACK + 64,
	      "initial frame");
	CHECK(uw_walker_walk(walker, 12, &walk) == 0 && walk.n_frames == 2, "another thread");
	CHECK(uw_walker_walk(walker, 13, &walk) == -ESRCH && walk.n_frames == 0, "no such thread");
	CHECK(uw_walker_frame(walker, by_hand, false, &made) == 0 &&
		      made.ra_at.place == UW_PLACE_UNDEFINED && made.fp == 7,
	      "a frame by hand");
	CHECK(uw_walker_walk_from(walker, &made, &walk) == 0 && walk.n_frames == 3 &&
		      frames[0].ra == CODE + 0x100 && frames[1].ra == CODE + 0x200 &&
		      frames[2].ra == CODE + 0x300 && walk.stop == UW_STOP_ROOT,
	      "and on from it");
	walk.max_frames = 2;
	CHECK(uw_walker_walk(walker, 11, &walk) == 0 && walk.n_frames == 2 &&
		      walk.stop == UW_STOP_MAX_FRAMES,
	      "as many as there is room for");
	walk.max_frames = 16;
	words[6] = CODE + 0x2000;
	CHECK(uw_walker_walk(walker, 11, &walk) == 0 && walk.n_frames == 3 &&
		      walk.stop == UW_STOP_NO_MAPPING,
	      "not outside its range");
	uw_walker_free(walker);
	uw_walker_free(plain);
	uw_steppers_free(group);
}

static void test_not_me_asks_the_next(void)
{
	struct own first = { .answer = UW_ANSWER_NOT_ME }, second = { .answer = UW_ANSWER_SUCCESS };
	struct uw_steppers *group = group_of(&first, &second);
	struct uw_stack_walk walk = { .frames = frames, .max_frames = 16 };
	struct uw_walker *walker = NULL;

	fill_stack();
	CHECK(uw_walker_new(&calls, NULL, group, NULL, &walker) == 0, "walker");
	CHECK(uw_walker_walk(walker, 11, &walk) == 0 && walk.n_frames == 4 && first.asked == 4 &&
		      second.asked == 4 && frames[1].stepper == second.id,
	      "the second took each");
	first.answer = UW_ANSWER_ERROR;
	CHECK(uw_walker_walk(walker, 11, &walk) == 0 && walk.n_frames == 1 && second.asked == 4 &&
		      walk.stop == UW_STOP_BAD_CFI,
	      "an error ends the walk");
	first.answer = UW_ANSWER_STACK_BOTTOM;
	CHECK(uw_walker_walk(walker, 11, &walk) == 0 && walk.n_frames == 1 &&
		      walk.stop == UW_STOP_ROOT,
	      "so does the bottom");
	uw_walker_free(walker);
	uw_steppers_free(group);
}

/* ---- ranges and choice ----------------------------------------------------------------------- */

static const char *asked_at(const struct uw_steppers *group, uint64_t addr)
{
	struct uw_stepper_info info = { .name = "nobody" };
	size_t i = uw_steppers_find(group, addr, SIZE_MAX);
	uint8_t id;
	bool on;

	(void)uw_steppers_at(group, i, &info, &id, &on);
	return info.name;
}

static void test_ranges_are_taken_out_of_ranges(void)
{
	struct own own = { .answer = UW_ANSWER_SUCCESS };
	struct uw_steppers *group = group_of(&own, NULL);
	const struct uw_range all = { CODE, CODE + 0x1000 }, hole = { CODE + 0x500, CODE + 0x600 };
	const struct uw_range empty = { 5, 5 }, rest = { 0, UINT64_MAX };

	/* The guide's example: 0x1000 to 0x2000 without 0x1500 to 0x1600 is two ranges. */
	CHECK(uw_steppers_remove_ranges(group, own.id, &hole, 1) == 0, "remove");
	CHECK(!strcmp(asked_at(group, CODE + 0x4ff), "emulated"), "before the hole");
	CHECK(!strcmp(asked_at(group, CODE + 0x500), "table"), "in it");
	CHECK(!strcmp(asked_at(group, CODE + 0x5ff), "table"), "to its end");
	CHECK(!strcmp(asked_at(group, CODE + 0x600), "emulated"), "behind it");
	CHECK(uw_steppers_add_ranges(group, own.id, &hole, 1) == 0 &&
		      !strcmp(asked_at(group, CODE + 0x500), "emulated"),
	      "back again");
	CHECK(uw_steppers_remove_ranges(group, own.id, &all, 1) == 0 &&
		      !strcmp(asked_at(group, CODE + 0x500), "table"),
	      "none is nowhere, not everywhere");
	CHECK(uw_steppers_add_ranges(group, own.id, &rest, 1) == 0 &&
		      uw_steppers_remove_ranges(group, own.id, &rest, 1) == 0 &&
		      !strcmp(asked_at(group, 1), "table"),
	      "all of it");
	CHECK(uw_steppers_add_ranges(group, own.id, &empty, 1) == -EINVAL, "an empty range");
	CHECK(uw_steppers_add_ranges(group, 200, &all, 1) == -ENOENT, "no such stepper");
	CHECK(uw_steppers_remove_ranges(group, UW_STEPPER_CFI, &all, 1) == -ENOENT, "nor built in");
	CHECK(uw_steppers_find(NULL, 1, 7) == SIZE_MAX, "nobody is left");
	uw_steppers_free(group);
}

static size_t last_of_all(void *ctx, const struct uw_steppers *group, uint64_t addr, size_t last)
{
	size_t i, found = SIZE_MAX;

	(*(unsigned int *)ctx)++;
	/* The reverse: among those that are called, the last one comes first. */
	for (i = uw_steppers_find(group, addr, SIZE_MAX); i < last && i != SIZE_MAX;
	     i = uw_steppers_find(group, addr, i))
		found = i;
	return found;
}

static size_t the_first_again(void *ctx, const struct uw_steppers *group, uint64_t addr,
			      size_t last)
{
	(void)last;
	(*(unsigned int *)ctx)++;
	return uw_steppers_find(group, addr, SIZE_MAX);
}

static void test_a_group_that_chooses_itself(void)
{
	struct own first = { .answer = UW_ANSWER_SUCCESS },
		   second = { .answer = UW_ANSWER_SUCCESS };
	struct uw_steppers *group = group_of(&first, &second);
	struct uw_stack_walk walk = { .frames = frames, .max_frames = 16 };
	struct uw_walker *walker = NULL;
	unsigned int chosen = 0;

	fill_stack();
	uw_steppers_choose(group, last_of_all, &chosen);
	CHECK(uw_walker_new(&calls, NULL, group, NULL, &walker) == 0, "walker");
	CHECK(uw_walker_walk(walker, 11, &walk) == 0 && walk.n_frames == 4 && second.asked == 4 &&
		      first.asked == 0 && chosen > 4,
	      "by its own order");
	uw_walker_free(walker);
	first.answer = UW_ANSWER_NOT_ME;
	uw_steppers_choose(group, the_first_again, &chosen);
	chosen = 0;
	CHECK(uw_walker_new(&calls, NULL, group, NULL, &walker) == 0, "walker");
	CHECK(uw_walker_walk(walker, 11, &walk) == 0 && walk.n_frames == 1 && chosen < 20,
	      "a choice that never ends is ended");
	uw_walker_free(walker);
	uw_steppers_free(group);
}

/* ---- targets ----------------------------------------------------------------------------------- */

/*
 * Call-frame information in the target's memory: a CIE for x86_64 (CFA rsp + 8, return address at
 * CFA - 8), an FDE for [CODE, CODE + 0x1000) in which everything is pushed once more, and a search
 * table of two.
 */
#define TABLE 0x90000
static const uint8_t table[] = {
	/* 0: entries (distances from TABLE): code's start and its FDE, then one further on */
	0x00, 0x00, 0xf8, 0xff, 0x2c, 0x00, 0x00, 0x00, /* CODE - TABLE, 44 */
	0x00, 0x10, 0xf8, 0xff, 0x2c, 0x00, 0x00, 0x00,
	/* 16: CIE: length 24, id 0, version 1, "zPR", 1, -8, 16, 6 of data: pcrel|sdata4|indirect */
	0x18, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'P', 'R', 0, 1, 0x78, 16, 6, 0x9b, 0x22, 0, 0, 0, 0x1b,
	0x0c, 7, 8, 0x90, 1,
	/* 44: FDE: length 20, back 32, start pcrel, size 0x1000, no data, advance 0, CFA + 16 */
	0x14, 0, 0, 0, 0x20, 0, 0, 0, 0xcc, 0xff, 0xf7, 0xff, 0x00, 0x10, 0, 0, 0, 0x0e, 16, 0x86,
	2, 0, 0, 0,
	/* 68: where the personality's address is (0x22 behind its field at 34) */
	0, 0, 0, 0, 0, 0, 0, 0
};

struct remote {
	unsigned int mem, info, put, dyn;
	int answer;
};

static int read_remote(void *ctx, uint64_t addr, void *out, size_t size)
{
	struct remote *r = ctx;

	r->mem++;
	if (addr == 68 + TABLE && size == 8) {
		const uint64_t handler = 0xabcdef;

		memcpy(out, &handler, 8);
		return 0;
	}
	if (addr >= TABLE && addr - TABLE <= sizeof(table) &&
	    size <= sizeof(table) - (addr - TABLE)) {
		memcpy(out, table + (addr - TABLE), size);
		return 0;
	}
	return read_mem(&process, addr, out, size);
}

static int reg_remote(void *ctx, unsigned int reg, uint64_t *value)
{
	(void)ctx;
	return reg_of(&process, 11, reg, value);
}

static int find_remote(void *ctx, uint64_t pc, bool rules, struct uw_proc_info *out)
{
	const struct uw_search_table t = {
		.base = TABLE, .start = TABLE, .entries = TABLE, .n = 2
	};
	const struct uw_proc_query q = {
		.pc = pc, .rules = rules, .machine = EM_X86_64, .read = read_remote, .ctx = ctx
	};
	struct remote *r = ctx;

	r->info++;
	return r->answer ? r->answer : uw_proc_info_search(&t, &q, out);
}

static void put_remote(void *ctx, struct uw_proc_info *info)
{
	((struct remote *)ctx)->put++;
	uw_proc_info_free(info);
}

static int dyn_remote(void *ctx, uint64_t *addr)
{
	((struct remote *)ctx)->dyn++;
	*addr = 0x5000;
	return 0;
}

static int proc_name(void *ctx, uint64_t addr, char *name, size_t size, uint64_t *off)
{
	(void)ctx;
	*off = addr - CODE;
	return name_of(&process, addr, name, size, NULL);
}

static const struct uw_accessors accessors = { .read_mem = read_remote,
					       .read_reg = reg_remote,
					       .find_proc_info = find_remote,
					       .put_proc_info = put_remote,
					       .dyn_list_addr = dyn_remote,
					       .proc_name = proc_name };

static void test_cursor_by_accessors(void)
{
	struct remote r = { .answer = 0 };
	struct uw_target *t = NULL;
	struct uw_cursor c, copy;
	struct uw_proc_info info;
	struct uw_frame frame;
	struct uw_save save;
	uint64_t value = 0, off = 0;
	char name[9];

	memset(words, 0, sizeof(words));
	words[0] = 0xbb; /* rbp, pushed */
	words[1] = CODE + 0x20;
	words[2] = 0xcc;
	words[3] =
		CODE + 0x1000; /* the last instruction was a call: the next procedure's address */
	words[4] = 0xdd;
	words[5] = 0;
	CHECK(uw_target_new(EM_X86_64, BIG_ENDIAN, &accessors, NULL, &t) == -ENOTSUP, "byte order");
	CHECK(uw_target_new(EM_386, 0, &accessors, NULL, &t) == -ENOTSUP, "machine");
	CHECK(uw_target_new(EM_X86_64, LITTLE_ENDIAN, &accessors, NULL, &t) == 0, "target");
	CHECK(uw_target_accessors(t)->read_mem == read_remote && uw_target_machine(t) == EM_X86_64,
	      "what it was made of");
	CHECK(uw_cursor_init(&c, t, &r) == 0, "cursor");
	CHECK(uw_cursor_reg(&c, UW_X86_64_RIP, &value) == 0 && value == CODE + 0x10, "pc");
	CHECK(uw_cursor_reg(&c, 3, &value) == -ENODATA && uw_cursor_reg(&c, 17, &value) == -EINVAL,
	      "not known, and none");
	CHECK(uw_cursor_proc_info(&c, &info) == 0 && info.start == CODE &&
		      info.end == CODE + 0x1000 && info.handler == 0xabcdef && info.lsda == 0 &&
		      !info.unwind_info,
	      "procedure");
	CHECK(uw_cursor_is_signal(&c) == 0, "no signal");
	CHECK(uw_cursor_proc_name(&c, name, 9, &off) == 0 && off == 0x10, "name");
	CHECK(uw_cursor_proc_name(&c, name, 4, &off) == -ENOMEM, "name cut");
	copy = c;
	CHECK(uw_cursor_step(&c) == 1 && uw_cursor_reg(&c, UW_X86_64_RIP, &value) == 0 &&
		      value == CODE + 0x20,
	      "step");
	CHECK(uw_cursor_save(&c, UW_X86_64_RBP, &save) == 0 && save.place == UW_PLACE_MEMORY &&
		      save.addr == STACK && save.value == 0xbb,
	      "rbp is where it was pushed");
	CHECK(uw_cursor_save(&c, UW_X86_64_RIP, &save) == 0 && save.addr == STACK + 8, "so is pc");
	CHECK(uw_cursor_save(&c, 3, &save) == 0 && save.place == UW_PLACE_REGISTER &&
		      save.from == 3 && !save.known,
	      "rbx is in itself");
	CHECK(uw_cursor_frame(&c, &frame) == 0 && frame.sp == STACK + 16 &&
		      frame.cfa == STACK + 32 && frame.lookup == CODE + 0x1f &&
		      frame.stepper == UW_STEPPER_CFI,
	      "frame");
	CHECK(uw_cursor_step(&c) == 1 && uw_cursor_step(&c) == 0 &&
		      uw_cursor_stop(&c, &value) == UW_STOP_GUESS_ENDED,
	      "to a return address of 0");
	CHECK(r.put == r.info - 1, "each that was asked for rules is put");

	/* The copy is where it was; a change in it affects no other cursor, and not the target. */
	c = copy;
	CHECK(uw_cursor_set_reg(&copy, UW_X86_64_RSP, STACK + 16) == 0 &&
		      uw_cursor_step(&copy) == 1 &&
		      uw_cursor_reg(&copy, UW_X86_64_RBP, &value) == 0 && value == 0xcc,
	      "set");
	CHECK(uw_cursor_step(&c) == 1 && uw_cursor_reg(&c, UW_X86_64_RBP, &value) == 0 &&
		      value == 0xbb,
	      "but not here");
	uw_target_free(t);
}

static void test_what_is_kept(void)
{
	struct remote r = { .answer = 0 };
	struct uw_target *t = NULL;
	struct uw_cursor c;
	uint64_t addr = 0;
	unsigned int dyn;

	memset(words, 0, sizeof(words));
	words[1] = CODE + 0x20;
	words[3] = CODE + 0x20;
	words[5] = CODE + 0x20;
	CHECK(uw_target_new(EM_X86_64, 0, &accessors, NULL, &t) == 0, "target");
	CHECK(uw_cursor_init(&c, t, &r) == 0 && uw_cursor_step(&c) == 1 && r.info == 1, "asked");
	CHECK(uw_cursor_step(&c) == 1 && r.info == 2, "of the next pc too");
	CHECK(uw_cursor_step(&c) == 1 && r.info == 2, "known");
	CHECK(uw_cursor_init(&c, t, &r) == 0 && uw_cursor_step(&c) == 1 && r.info == 2, "still");
	uw_target_flush(t, CODE + 0x10, CODE + 0x11);
	CHECK(uw_cursor_step(&c) == 1 && r.info == 2, "that one was not flushed");
	CHECK(uw_cursor_init(&c, t, &r) == 0 && uw_cursor_step(&c) == 1 && r.info == 3, "that was");
	uw_target_flush(t, 0, 0);
	CHECK(uw_cursor_step(&c) == 1 && r.info == 4, "nothing is left");
	CHECK(uw_target_caching(t, UW_CACHING_NONE) == 0, "policy");
	CHECK(uw_cursor_step(&c) == 1 && r.info == 5, "each step asks");
	dyn = r.dyn;
	CHECK(uw_target_dyn_list(t, &r, &addr) == 0 && addr == 0x5000 && r.dyn == dyn + 1 &&
		      uw_target_dyn_list(t, &r, &addr) == 0 && r.dyn == dyn + 2,
	      "of lists too");
	CHECK(uw_target_caching(t, UW_CACHING_PER_THREAD) == 0 &&
		      uw_target_dyn_list(t, &r, &addr) == 0 && r.dyn == dyn + 3 &&
		      uw_target_dyn_list(t, &r, &addr) == 0 && r.dyn == dyn + 3,
	      "or they are kept");
	CHECK(uw_target_caching(t, (enum uw_caching)3) == -EINVAL, "no such policy");
	CHECK(uw_target_cache_size(t, 0) == -EINVAL &&
		      uw_target_cache_size(t, 1 << 20) == -ENOMEM &&
		      uw_target_cache_size(t, 3) == 0,
	      "sizes");
	CHECK(uw_cursor_init(&c, t, &r) == 0 && uw_cursor_step(&c) == 1 && r.info == 6,
	      "a new one");
	uw_target_free(t);
}

static void test_what_accessors_say_ends_walks(void)
{
	struct remote r = { .answer = 1 };
	struct uw_target *t = NULL;
	struct uw_cursor c, zero = { { 0 } };
	uint64_t value;

	CHECK(uw_target_new(EM_X86_64, 0, &accessors, NULL, &t) == 0, "target");
	CHECK(uw_cursor_init(&c, t, &r) == 0 && uw_cursor_step(&c) == 0 &&
		      uw_cursor_stop(&c, NULL) == UW_STOP_ROOT,
	      "outermost");
	r.answer = -EPERM;
	CHECK(uw_cursor_step(&c) == -EPERM, "an error is passed on");
	r.answer = -ENOENT;
	CHECK(uw_cursor_step(&c) == -ENOENT && uw_cursor_stop(&c, NULL) == UW_STOP_NO_MAPPING,
	      "nothing known, and no code to see");
	CHECK(uw_cursor_step(&zero) == -EINVAL && uw_cursor_reg(&zero, 0, &value) == -EINVAL &&
		      uw_cursor_is_signal(&zero) == -EINVAL && !uw_cursor_target(&zero),
	      "no cursor at all");
	CHECK(uw_reg_find(EM_X86_64, "rip") == 16 && uw_reg_find(EM_AARCH64, "x29") == 29 &&
		      uw_reg_find(EM_X86_64, "x29") == -1,
	      "register names");
	uw_target_free(t);
}

int main(void)
{
	test_walker_walks_what_only_a_stepper_from_outside_can();
	test_not_me_asks_the_next();
	test_ranges_are_taken_out_of_ranges();
	test_a_group_that_chooses_itself();
	test_cursor_by_accessors();
	test_what_is_kept();
	test_what_accessors_say_ends_walks();
	return check_done();
}
