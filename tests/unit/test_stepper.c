/*
 * tests/unit/test_stepper.c: tests which steppers are tried for a frame's caller, in which order,
 * and what each answer leads to.
 */
#include "unwinder/cursor.h"
#include "unwinder/walk/stepper.h"

#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/check.h"
#include "tests/image.h"

#define CODE  0x10000
#define STACK 0x70000
#define WORDS 64

static uint64_t words[WORDS];
static struct uw_frame frames[32];

/* Generated code that only a stepper of its own can walk; it has no frame pointer. */
static struct uw_space *generated(void)
{
	struct uw_mapping m = { .start = CODE,
				.end = CODE + 0x10000,
				.prot = PROT_READ | PROT_EXEC,
				.kind = UW_MAPPING_ANON };
	struct uw_space *space = NULL;

	CHECK(uw_space_new(EM_X86_64, NULL, NULL, &space) == 0 && uw_space_map(space, &m) == 0,
	      "space");
	return space;
}

static uint64_t rbp = 1;

static struct uw_stack walk(struct uw_space *space, struct uw_worker *worker, uint64_t pc)
{
	struct uw_region region = { .addr = STACK, .size = sizeof(words), .bytes = (void *)words };
	struct uw_memory memory = { .regions = &region, .n_regions = 1 };
	struct uw_thread thread = { .read = uw_memory_read, .ctx = &memory };
	struct uw_stack stack = { .frames = frames, .max_frames = 32 };

	thread.regs.value[UW_X86_64_RIP] = pc;
	thread.regs.value[UW_X86_64_RSP] = STACK;
	thread.regs.value[UW_X86_64_RBP] = rbp;
	thread.regs.known = 1 << UW_X86_64_RIP | 1 << UW_X86_64_RSP | 1 << UW_X86_64_RBP;
	uw_walk(space, worker, &thread, &stack);
	return stack;
}

/* Frames of four words, of which the third is the return address: a convention of this test. */
struct own {
	enum uw_answer answer;
	unsigned int asked;
	int64_t size;
	bool signal;
};

static enum uw_answer step_own(void *ctx, struct uw_query *q)
{
	struct own *own = ctx;
	uint64_t sp = q->regs.value[UW_X86_64_RSP], ra;

	own->asked++;
	q->stop = UW_STOP_REG_UNKNOWN;
	if (own->answer != UW_ANSWER_SUCCESS)
		return own->answer;
	if (q->read(q->read_ctx, sp + 16, &ra, 8)) {
		q->stop = UW_STOP_TRUNCATED;
		q->stop_addr = sp + 16;
		return UW_ANSWER_ERROR;
	}
	if (!ra)
		return UW_ANSWER_STACK_BOTTOM;
	q->regs.value[UW_X86_64_RIP] = ra;
	q->regs.value[UW_X86_64_RSP] = sp + (uint64_t)own->size;
	q->signal = own->signal;
	return UW_ANSWER_SUCCESS;
}

static struct uw_steppers *group_of(const char *name, uint32_t priority, struct own *own,
				    uint64_t start, uint64_t end, uint8_t *id)
{
	struct uw_range range = { start, end };
	struct uw_stepper_info info = { .name = name,
					.priority = priority,
					.ranges = &range,
					.n_ranges = start < end,
					.step = step_own,
					.ctx = own };
	struct uw_steppers *group = NULL;

	CHECK(uw_steppers_new(&group) == 0 && uw_steppers_add(group, &info, id) == 0, name);
	return group;
}

static void test_a_stepper_of_ones_own(void)
{
	struct own own = { .answer = UW_ANSWER_SUCCESS, .size = 32 };
	struct uw_space *space = generated(), *copy = NULL;
	struct uw_worker *worker = NULL;
	uint8_t id = 0;
	struct uw_steppers *group =
		group_of("frames of four", 0x1080, &own, CODE, CODE + 0x1000, &id);
	struct uw_stack s;

	memset(words, 0, sizeof(words));
	words[2] = CODE + 0x100;
	words[6] = CODE + 0x200;
	CHECK(uw_worker_new(&worker) == 0, "worker");
	s = walk(space, worker, CODE);
	CHECK(s.stop == UW_STOP_NO_UNWIND_INFO && s.n_frames == 1, "nobody knows this code");
	uw_space_use(space, group);
	s = walk(space, worker, CODE);
	CHECK(s.stop == UW_STOP_ROOT && s.n_frames == 3, "its own stepper does");
	CHECK(frames[1].pc == CODE + 0x100 && frames[1].stepper == id &&
		      frames[1].sp == STACK + 32 && frames[1].confidence == UW_CONFIDENCE_RULE &&
		      !frames[1].exact && frames[0].cfa == STACK + 32,
	      "the caller");
	CHECK(!strcmp(uw_steppers_name(group, id), "frames of four"), "and has a name");
	CHECK(uw_space_copy(space, &copy) == 0, "copy");
	CHECK(walk(copy, worker, CODE).n_frames == 3, "a fork's too");
	uw_space_free(copy);

	s = walk(space, worker, CODE + 0x1001);
	CHECK(s.n_frames == 1, "not outside its range");
	words[6] = CODE + 0x1001;
	CHECK(walk(space, worker, CODE).stop == UW_STOP_NO_UNWIND_INFO,
	      "ranges end before their end");
	words[6] = CODE + 0x1000;
	CHECK(walk(space, worker, CODE).stop == UW_STOP_ROOT,
	      "a return address belongs to the call below");
	own.answer = UW_ANSWER_ERROR;
	CHECK(walk(space, worker, CODE).stop == UW_STOP_REG_UNKNOWN, "an error names its stop");
	own.answer = UW_ANSWER_SUCCESS;
	own.size = -32;
	CHECK(walk(space, worker, CODE).stop == UW_STOP_CFA_NOT_RISING, "a caller below");
	own.signal = true;
	own.size = 0;
	CHECK(walk(space, worker, CODE).stop != UW_STOP_CFA_NOT_RISING, "but for signals");
	own.signal = false;
	own.size = 8 * (WORDS - 2);
	CHECK(walk(space, worker, CODE).stop == UW_STOP_TRUNCATED, "memory that is not there");

	uw_space_use(space, NULL);
	CHECK(walk(space, worker, CODE).n_frames == 1, "and without it again");
	uw_worker_free(worker);
	uw_space_free(space);
	uw_steppers_free(group);
	uw_steppers_free(NULL);
}

/* A stepper in code without a mapping: no other one could find the caller. */
static void test_outside_all_mappings(void)
{
	struct own own = { .answer = UW_ANSWER_SUCCESS, .size = 32 };
	struct uw_space *space = generated();
	struct uw_worker *worker = NULL;
	struct uw_steppers *group = group_of("far", 1, &own, 0x5000000, 0x5001000, NULL);
	struct uw_stack s;

	memset(words, 0, sizeof(words));
	words[2] = 0x5000100;
	CHECK(uw_worker_new(&worker) == 0, "worker");
	uw_space_use(space, group);
	s = walk(space, worker, 0x5000000);
	CHECK(s.stop == UW_STOP_ROOT && s.n_frames == 2 && !frames[1].mapping, "far");
	uw_worker_free(worker);
	uw_space_free(space);
	uw_steppers_free(group);
}

/*
 * Lower priorities come first, equal ones in the order in which they were added; the first success
 * ends the search.
 */
static void test_order(void)
{
	struct own first = { .answer = UW_ANSWER_NOT_ME }, second = first, third = first,
		   last = first;
	struct uw_stepper_info info = { .name = "first", .step = step_own, .ctx = &first };
	struct uw_space *space = generated();
	struct uw_worker *worker = NULL;
	struct uw_steppers *group = NULL;
	struct uw_range nothing = { 5, 5 };
	uint8_t id;
	bool on;

	CHECK(uw_steppers_new(&group) == 0 && uw_worker_new(&worker) == 0, "group");
	info.priority = 0x1900;
	info.name = "third";
	info.ctx = &third;
	CHECK(uw_steppers_add(group, &info, NULL) == 0, "third");
	info.priority = 0x10;
	info.name = "first";
	info.ctx = &first;
	CHECK(uw_steppers_add(group, &info, NULL) == 0, "first");
	info.name = "second";
	info.ctx = &second;
	CHECK(uw_steppers_add(group, &info, NULL) == 0, "second");
	info.priority = UINT32_MAX;
	info.name = "last";
	info.ctx = &last;
	CHECK(uw_steppers_add(group, &info, NULL) == 0, "last");
	for (size_t i = 0; !uw_steppers_at(group, i, &info, &id, &on); i++) {
		static const char *const want[] = { "first",	"second", "table", "cfi", "dynamic",
						    "signal",	"plt",	  "leaf",  "fp",  "third",
						    "prologue", "scan",	  "last" };

		CHECK(i < 13 && !strcmp(info.name, want[i]), info.name);
		CHECK(on == (strcmp(info.name, "scan") != 0), "all but the scan are on");
		CHECK(i < 2 || i > 8 || (info.priority >= 0x1000 && info.priority < 0x2000),
		      "built-in ones have their place");
	}
	uw_space_use(space, group);
	(void)walk(space, worker, CODE);
	CHECK(first.asked == 1 && second.asked == 1 && third.asked == 1 && last.asked == 1,
	      "all in turn");
	second.answer = UW_ANSWER_STACK_BOTTOM;
	CHECK(walk(space, worker, CODE).stop == UW_STOP_ROOT, "the second ends it");
	CHECK(first.asked == 2 && second.asked == 2 && third.asked == 1 && last.asked == 1,
	      "nobody after it is asked");
	CHECK(uw_stepper_before(group, CODE, UW_PRIORITY_TABLE) &&
		      !uw_stepper_before(NULL, CODE, UINT32_MAX),
	      "somebody stands before the tables");
	uw_space_use(space, NULL);
	CHECK(uw_steppers_enable(group, "second", false) == 0 &&
		      uw_steppers_enable(group, "nobody", true) == -ENOENT,
	      "switched off");
	uw_space_use(space, group);
	CHECK(walk(space, worker, CODE).stop == UW_STOP_NO_UNWIND_INFO && third.asked == 2, "off");

	info = (struct uw_stepper_info){ .name = "x", .step = step_own, .n_ranges = 1 };
	CHECK(uw_steppers_add(group, &info, NULL) == -EINVAL, "ranges that are not there");
	info.ranges = &nothing;
	CHECK(uw_steppers_add(group, &info, NULL) == -EINVAL, "an empty range");
	info = (struct uw_stepper_info){ .name = "x" };
	CHECK(uw_steppers_add(group, &info, NULL) == -EINVAL, "nothing to ask");
	info.step = step_own;
	while (!uw_steppers_add(group, &info, &id))
		;
	CHECK(id == 255 && uw_steppers_add(group, &info, NULL) == -ENOSPC, "as many as have names");
	uw_worker_free(worker);
	uw_space_free(space);
	uw_steppers_free(group);
}

/*
 * Code in a file (objdump -d): a function at 0, the calls of it and of another one, which end at 0x105, 0x125 and 0x142.
 * It has no unwind information but for size bytes of .eh_frame.
 */
static struct uw_space *code_with(const uint8_t *eh_frame, size_t size, struct uw_object **object)
{
	static uint8_t code[0x1000];
	struct image image = { .machine = EM_X86_64,
			       .code = code,
			       .code_size = sizeof(code),
			       .sections = { { ".eh_frame", eh_frame, IMAGE_CODE + 0x1000, size } },
			       .n_sections = size != 0 };
	struct uw_mapping m = { .start = CODE,
				.end = CODE + 0x1000,
				.off = IMAGE_CODE,
				.prot = PROT_READ | PROT_EXEC,
				.kind = UW_MAPPING_FILE };
	struct uw_space *space = NULL;

	memcpy(code + 0x100, "\xe8\xfb\xfe\xff\xff", 5);		/* call 0 */
	memcpy(code + 0x120, "\xe8\xdb\x0e\x00\x00", 5);		/* call 0x1000, beyond */
	memcpy(code + 0x180, "\x90\x48\xc7\xc0\x0f\0\0\0\x0f\x05", 10); /* nop; rt_sigreturn */
	memcpy(code + 0x140, "\xff\xd0", 2);				/* call *%rax */
	*object = image_object(&image);
	CHECK(*object != NULL, "image");
	m.object = *object;
	CHECK(uw_space_new(EM_X86_64, NULL, NULL, &space) == 0 && uw_space_map(space, &m) == 0,
	      "space");
	return space;
}

static struct uw_space *plain(struct uw_object **object)
{
	return code_with(NULL, 0, object);
}

/*
 * A signal handler with a frame pointer and without CFI returns to the trampoline, which is
 * followed by the kernel's struct ucontext: rbp is its word 15, rsp 20, rip 21.
 */
static void test_handler_without_rules(void)
{
	struct uw_object *object = NULL;
	struct uw_space *space = plain(&object);
	struct uw_worker *worker = NULL;
	struct uw_stack s;

	CHECK(uw_worker_new(&worker) == 0, "worker");
	memset(words, 0, sizeof(words));
	rbp = STACK + 16;
	words[2] = 1; /* what rbp held */
	words[3] = CODE + 0x181;
	words[4 + 15] = STACK + 40 * 8;
	words[4 + 20] = STACK + 36 * 8;
	words[4 + 21] = CODE + 0x30;
	words[40] = 0;
	words[41] = CODE + 0x142;
	s = walk(space, worker, CODE + 0x10);
	CHECK(s.n_frames == 4 && frames[1].pc == CODE + 0x181 && frames[1].signal &&
		      frames[1].stepper == UW_STEPPER_FP &&
		      frames[1].confidence == UW_CONFIDENCE_CHECKED,
	      "the trampoline");
	CHECK(frames[2].pc == CODE + 0x30 && frames[2].exact && frames[2].sp == STACK + 36 * 8 &&
		      frames[2].stepper == UW_STEPPER_SIGNAL && frames[3].pc == CODE + 0x142,
	      "what it interrupted, and its caller");
	rbp = 1;
	uw_worker_free(worker);
	uw_space_free(space);
	uw_object_put(object);
}

/* Code that is recognised by its bytes has no range. */
static void test_the_range_of_a_trampoline(void)
{
	struct uw_object *object = NULL;
	struct uw_space *space = plain(&object);
	struct uw_proc_query query = { .pc = CODE + 0x181, .machine = EM_X86_64 };
	struct uw_proc_info info = { 0 };

	CHECK(!uw_proc_info_object(object, CODE - IMAGE_CODE, &query, &info) &&
		      info.start == query.pc && info.end == query.pc + 1 && !info.unwind_info,
	      "its pc");
	query.pc = CODE + 0x10;
	CHECK(uw_proc_info_object(object, CODE - IMAGE_CODE, &query, &info) == -ENOENT,
	      "a function without rules");
	uw_space_free(space);
	uw_object_put(object);
}

static void test_scan(void)
{
	struct uw_object *object = NULL;
	struct uw_space *space = plain(&object);
	struct uw_steppers *group = NULL;
	struct uw_worker *worker = NULL;
	struct uw_stack s;

	CHECK(uw_steppers_new(&group) == 0 && uw_worker_new(&worker) == 0, "group");
	memset(words, 0, sizeof(words));
	words[1] = CODE + 0x40;	 /* no call ends there */
	words[2] = CODE + 0x125; /* one of something else */
	words[5] = CODE + 0x105;
	s = walk(space, worker, CODE + 0x10);
	CHECK(s.n_frames == 1 && s.stop == UW_STOP_NO_UNWIND_INFO, "off, unless it is asked for");
	CHECK(uw_steppers_enable(group, "scan", true) == 0, "on");
	uw_space_use(space, group);
	s = walk(space, worker, CODE + 0x10);
	CHECK(s.n_frames >= 2 && frames[1].pc == CODE + 0x105 && frames[1].sp == STACK + 48 &&
		      frames[1].stepper == UW_STEPPER_SCAN &&
		      frames[1].confidence == UW_CONFIDENCE_GUESS,
	      "the call of this function, and it says that it guesses");
	words[5] = 0;
	s = walk(space, worker, CODE + 0x10);
	CHECK(frames[1].pc == CODE + 0x125, "where there is no better one, that of another");
	words[4] = CODE + 0x142;
	s = walk(space, worker, CODE + 0x10);
	CHECK(frames[1].pc == CODE + 0x142, "better is one that may have called anything");
	words[4] = words[2] = 0;
	s = walk(space, worker, CODE + 0x10);
	CHECK(s.n_frames == 1 && s.stop == UW_STOP_TRUNCATED && s.stop_addr == STACK + 8 * WORDS,
	      "nothing as far as was captured");
	uw_worker_free(worker);
	uw_space_free(space);
	uw_object_put(object);
	uw_steppers_free(group);
}

/* What is a trampoline is said by its code: rules that call something else one may be a hostile file's. */
static void test_scan_beside_signal_frames(void)
{
	/* As in test_ahead_of_tables, but "zRS", and the FDE is of 0x40 to 0x5f. */
	static const uint8_t eh_frame[] = { 20,	  0, 0,	   0,  0,  0, 0,    0, 1,    'z',  'R', 'S',
					    0,	  1, 0x78, 16, 1,  3, 0x0c, 7, 8,    0x90, 1,	0,
					    16,	  0, 0,	   0,  28, 0, 0,    0, 0x40, 0x10, 0,	0,
					    0x20, 0, 0,	   0,  0,  0, 0,    0, 0,    0,	   0,	0 };
	struct uw_object *object = NULL;
	struct uw_space *space = code_with(eh_frame, sizeof(eh_frame), &object);
	struct uw_steppers *group = NULL;
	struct uw_worker *worker = NULL;

	CHECK(uw_steppers_new(&group) == 0 && uw_worker_new(&worker) == 0 &&
		      uw_steppers_enable(group, "scan", true) == 0,
	      "group");
	uw_space_use(space, group);
	memset(words, 0, sizeof(words));
	words[1] = CODE + 0x50;
	words[5] = CODE + 0x105;
	(void)walk(space, worker, CODE + 0x10);
	CHECK(frames[1].pc == CODE + 0x105, "not what its rules call a signal's frame");
	words[3] = CODE + 0x181;
	(void)walk(space, worker, CODE + 0x10);
	CHECK(frames[1].pc == CODE + 0x181, "a trampoline");
	uw_worker_free(worker);
	uw_space_free(space);
	uw_object_put(object);
	uw_steppers_free(group);
}

/* The word at sp if a call precedes it, the frame pointer, the scan; the better call first. */
static void test_order_of_guesses(void)
{
	enum {
		NO_CALL = CODE + 0x40,
		OF_THIS = CODE + 0x105,
		OF_OTHER = CODE + 0x125,
		INDIRECT = CODE + 0x142
	};
	static const struct {
		const char *name;
		uint64_t at_sp, by_fp; /* 0: there is no frame pointer */
		enum uw_stepper stepper;
		enum uw_confidence confidence;
	} cases[] = {
		{ "its own call", OF_THIS, INDIRECT, UW_STEPPER_LEAF, UW_CONFIDENCE_CHECKED },
		{ "any call", INDIRECT, INDIRECT, UW_STEPPER_LEAF, UW_CONFIDENCE_CHECKED },
		{ "any call, but its own", INDIRECT, OF_THIS, UW_STEPPER_FP,
		  UW_CONFIDENCE_CHECKED },
		{ "another's call", OF_OTHER, INDIRECT, UW_STEPPER_FP, UW_CONFIDENCE_GUESS },
		{ "two others' calls", OF_OTHER, OF_OTHER, UW_STEPPER_FP, UW_CONFIDENCE_GUESS },
		{ "another's call alone", OF_OTHER, 0, UW_STEPPER_LEAF, UW_CONFIDENCE_GUESS },
		{ "no call", NO_CALL, INDIRECT, UW_STEPPER_FP, UW_CONFIDENCE_GUESS },
		{ "neither", NO_CALL, NO_CALL, UW_STEPPER_SCAN, UW_CONFIDENCE_GUESS },
		{ "no frame pointer", NO_CALL, 0, UW_STEPPER_SCAN, UW_CONFIDENCE_GUESS },
	};
	struct uw_object *object = NULL;
	struct uw_space *space = plain(&object);
	struct uw_steppers *group = NULL;
	struct uw_worker *worker = NULL;

	CHECK(uw_steppers_new(&group) == 0 && uw_worker_new(&worker) == 0, "group");
	CHECK(uw_steppers_enable(group, "scan", true) == 0, "on");
	uw_space_use(space, group);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct uw_stack s;

		memset(words, 0, sizeof(words));
		words[0] = cases[i].at_sp;
		rbp = cases[i].by_fp ? STACK + 32 : 1;
		words[4] = STACK + 80;
		words[5] = cases[i].by_fp;
		words[7] = INDIRECT; /* for the scan */
		s = walk(space, worker, CODE + 0x10);
		CHECK(s.n_frames >= 2 && frames[1].stepper == cases[i].stepper &&
			      frames[1].confidence == cases[i].confidence,
		      cases[i].name);
	}
	rbp = 1;
	uw_worker_free(worker);
	uw_space_free(space);
	uw_object_put(object);
	uw_steppers_free(group);
}

/*
 * Frames with CFI, which the hot path handles: a stepper of higher priority is called all the same,
 * also with rules from the caches; one of lower priority is not.
 */
static void test_ahead_of_tables(void)
{
	/* "zR", absolute pointers, CFA rsp+8, ra at c-8; one FDE of the first 256 bytes. */
	static const uint8_t eh_frame[] = { 20, 0,    0,  0, 0,	 0,    0, 0, 1,	   'z',	 'R', 0,
					    1,	0x78, 16, 1, 3,	 0x0c, 7, 8, 0x90, 1,	 0,   0,
					    16, 0,    0,  0, 28, 0,    0, 0, 0,	   0x10, 0,   0,
					    0,	1,    0,  0, 0,	 0,    0, 0, 0,	   0,	 0,   0 };
	static const uint8_t code[0x400];
	struct image image = { .machine = EM_X86_64,
			       .code = code,
			       .code_size = sizeof(code),
			       .sections = { { ".eh_frame", eh_frame, IMAGE_CODE + 0x800,
					       sizeof(eh_frame) } },
			       .n_sections = 1 };
	struct uw_mapping m = { .start = CODE,
				.end = CODE + 0x400,
				.off = IMAGE_CODE,
				.prot = PROT_READ | PROT_EXEC,
				.kind = UW_MAPPING_FILE,
				.object = image_object(&image) };
	struct own own = { .answer = UW_ANSWER_SUCCESS, .size = 32 };
	struct uw_space *space = NULL;
	struct uw_worker *worker = NULL;
	uint8_t id;

	CHECK(m.object != NULL && uw_space_new(EM_X86_64, NULL, NULL, &space) == 0 &&
		      uw_space_map(space, &m) == 0 && uw_worker_new(&worker) == 0,
	      "space");
	memset(words, 0, sizeof(words));
	words[0] = CODE + 0x20; /* by CFI */
	words[2] = CODE + 0x40; /* by the stepper's agreement */
	for (unsigned int i = 0; i < 4; i++) {
		uint32_t priority = i < 2 ? UW_PRIORITY_TABLE - 1 : UW_PRIORITY_SIGNAL;
		struct uw_steppers *group =
			group_of("first", priority, &own, CODE, CODE + 0x100, &id);

		CHECK(walk(space, worker, CODE + 8).n_frames >= 2 && frames[1].pc == words[0] &&
			      frames[1].stepper == UW_STEPPER_CFI,
		      "without it");
		uw_space_use(space, group);
		for (unsigned int again = 0; again < 2; again++) {
			(void)walk(space, worker, CODE + 8);
			CHECK(frames[1].pc == (i < 2 ? words[2] : words[0]) &&
				      frames[1].stepper == (i < 2 ? id : UW_STEPPER_CFI),
			      i < 2 ? "ahead" : "behind");
		}
		uw_space_use(space, NULL);
		uw_steppers_free(group);
		if (i % 2 == 0)
			CHECK(uw_object_compile(m.object) == 0, "table");
	}
	uw_worker_free(worker);
	uw_space_free(space);
	uw_object_put(m.object);
}

int main(void)
{
	test_a_stepper_of_ones_own();
	test_outside_all_mappings();
	test_order();
	test_handler_without_rules();
	test_the_range_of_a_trampoline();
	test_scan();
	test_scan_beside_signal_frames();
	test_order_of_guesses();
	test_ahead_of_tables();
	return check_done();
}
