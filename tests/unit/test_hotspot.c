/*
 * tests/unit/test_hotspot.c: tests the reader of a Java virtual machine's code cache, with the
 * layouts of two versions: the code that is found, walks by it, and hostile virtual machines.
 */
#include "agent/process/hotspot.h"

#include "agent/process/calls.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/check.h"
#include "tests/hotspot_vm.h"

#define STACK (BASE + 0x800000)
#define WORDS 64

/* ---- walks ------------------------------------------------------------------------------------- */

static uint64_t words[WORDS];
static struct uw_frame frames[32];

static struct uw_stack walk(struct uw_dynamic *d, uint64_t pc, uint64_t sp, uint64_t fp)
{
	struct uw_mapping m = { .start = HEAP - 0x1000,
				.end = HEAP + SPAN,
				.prot = PROT_READ | PROT_WRITE | PROT_EXEC,
				.kind = UW_MAPPING_ANON };
	struct uw_region region = { .addr = STACK, .size = sizeof(words), .bytes = (void *)words };
	struct uw_memory captured = { .regions = &region, .n_regions = 1 };
	struct uw_thread thread = { .read = uw_memory_read, .ctx = &captured };
	struct uw_stack stack = { .frames = frames, .max_frames = 32 };
	struct uw_worker *worker = NULL;
	struct uw_space *space = NULL;

	thread.regs.value[UW_X86_64_RIP] = pc;
	thread.regs.value[UW_X86_64_RSP] = sp;
	thread.regs.value[UW_X86_64_RBP] = fp;
	thread.regs.known = 1u << UW_X86_64_RIP | 1u << UW_X86_64_RSP | 1u << UW_X86_64_RBP;
	CHECK(uw_space_new(EM_X86_64, NULL, NULL, &space) == 0 && uw_space_map(space, &m) == 0 &&
		      uw_worker_new(&worker) == 0,
	      "space");
	uw_space_set_dynamic(space, d);
	uw_walk(space, worker, &thread, &stack);
	uw_worker_free(worker);
	uw_space_free(space);
	return stack;
}

static const char *name_at(const struct uw_dynamic *d, uint64_t addr)
{
	struct uw_dynamic_proc proc;

	return !uw_dynamic_proc(d, addr, &proc) && proc.name ? proc.name : "";
}

/* ---- tests ---------------------------------------------------------------------------------------- */

/*
 * inner is called by outer, which is called by the interpreter, whose frame is found by rbp.
 * inner's return address is words[at], outer's is six words above. When the interpreter made the
 * call, its rsp was words[at + 14], below the end of its own frame.
 */
static void put_stack(unsigned int at)
{
	memset(words, 0, sizeof(words));
	words[at] = outer + 32;
	words[at - 1] = 0x1111; /* outer's rbp: outer uses it for anything */
	words[at + 6] = interpreter + 64;
	words[at + 5] = STACK + 8 * (at + 20);
	words[at + 20] = 0;			/* rbp's own */
	words[at + 21] = outer + 40;		/* a compiled caller, with the arguments between */
	words[at + 19] = STACK + 8 * (at + 25); /* its rsp */
	words[at + 30] = interpreter + 80;
}

static void check_walk(struct uw_dynamic *d, uint64_t pc, unsigned int sp, uint64_t fp,
		       const char *what)
{
	static const unsigned int n = 5;
	uint64_t want[] = { pc, outer + 32, interpreter + 64, outer + 40, interpreter + 80 };
	struct uw_stack s = walk(d, pc, STACK + 8 * sp, fp);
	bool same = s.n_frames >= n;

	for (unsigned int i = 0; i < n && same; i++)
		same = frames[i].pc == want[i] && (!i || frames[i].stepper == UW_STEPPER_DYNAMIC);
	CHECK(same, what);
}

static void test_walks(const struct version *version)
{
	struct hotspot *h = NULL;
	struct uw_dynamic *d = NULL;
	struct uw_stack s;
	enum { AT = 20 };

	put_machine(version);
	CHECK(hotspot_new(exports, &h) == 0 && hotspot_is_of(h, exports), "new");
	CHECK(hotspot_read(h, read_vm, NULL, false, false, &d) == 0, "read");
	if (!d)
		return;
	CHECK(!strcmp(name_at(d, inner), "java.util.TreeMap.put") &&
		      !strcmp(name_at(d, outer + 100), "Work.texts") &&
		      !strcmp(name_at(d, interpreter), "Interpreter") &&
		      !strcmp(name_at(d, HEAP + 30 * 128 + 0x180), "StubRoutines (1)"),
	      "names");
	CHECK(!*name_at(d, HEAP + 7 * 128), "no code is there");
	put_stack(AT);
	check_walk(d, inner, AT, 0x1111, "at the entry");
	check_walk(d, inner + PUSH, AT, 0x1111, "at the push");
	check_walk(d, inner + SUB, AT - 1, 0x1111, "behind it");
	check_walk(d, inner + BODY, AT - 5, 0x2222, "with its frame");
	check_walk(d, inner + 40, AT - 5, 0x2222, "in the body");
	check_walk(d, inner + 40, AT - 6, 0x2222, "while a word more is pushed");
	check_walk(d, inner + 40, AT - 8, 0x2222, "while three are");
	check_walk(d, inner + ADD, AT - 5, 0x2222, "before it is left");
	check_walk(d, inner + POP, AT - 1, 0x2222, "half left");
	check_walk(d, inner + LOOK, AT, 0x1111, "left");
	check_walk(d, inner + RET, AT, 0x1111, "at ret");
	check_walk(d, inner + RET + 1, AT - 5, 0x2222, "code behind that has the frame");
	/* Native code called the interpreter by the stub; other stubs have no frames that are known. */
	words[AT + 21] = CALL_RETURN;
	words[AT + 20] = STACK + 8 * 50;
	words[50] = STACK + 8 * 58;
	words[51] = outer + 40;
	s = walk(d, interpreter + 64, STACK + 8 * AT, STACK + 8 * (AT + 20));
	CHECK(s.n_frames >= 3 && frames[1].pc == CALL_RETURN && frames[2].pc == outer + 40 &&
		      frames[2].stepper == UW_STEPPER_DYNAMIC,
	      "the stub for calls");
	CHECK(!strcmp(name_at(d, CALL_RETURN), "StubRoutines (1)") &&
		      !strcmp(name_at(d, CALL_RETURN + 8), "StubRoutines (1)"),
	      "all of it has its name");
	s = walk(d, CALL_RETURN + 8, STACK + 8 * AT, STACK + 8 * 50);
	CHECK(s.n_frames < 2 || frames[1].stepper != UW_STEPPER_DYNAMIC, "the rest is guessed");
	uw_dynamic_put(d);
	hotspot_free(h);
}

/* ---- what frames execute ------------------------------------------------------------------ */

static struct calls *calls;

/* Look at the stack, and add what is new to calls. Return what hotspot_calls does. */
static int look(struct hotspot *h, uint64_t pc, uint64_t fp, uint64_t r13, uint64_t now)
{
	struct uw_regs regs = { .known = 0 };
	struct calls_sample sample = { .regs = &regs,
				       .addr = STACK,
				       .stack = (void *)words,
				       .size = sizeof(words),
				       .now = now };
	const void *bytes;
	size_t size;
	int err;

	regs.value[UW_X86_64_RIP] = pc;
	regs.value[UW_X86_64_RBP] = fp;
	regs.value[UW_X86_64_R13] = r13;
	err = hotspot_calls(h, read_vm, NULL, &sample, &bytes, &size);
	if (!err)
		CHECK(calls_are(bytes, size) && calls_take(&calls, bytes, size) == 0, "sound");
	return err;
}

/* Return whether the frame has the call number i of n: this method and line. */
static bool is_call(uint64_t key0, uint64_t key1, size_t n, size_t i, const char *function,
		    uint32_t line)
{
	struct call found[4];

	return calls && calls_find(calls, key0, key1, found, 4) == n && i < n &&
	       !strcmp(found[i].function, function) && found[i].line == line &&
	       (found[i].start_line == 10 || !line) && found[i].file;
}

/* Put an interpreted frame: rbp points to words[at]. */
static void put_interpreted(unsigned int at, uint64_t m, uint64_t bcp)
{
	words[at + 1] = interpreter + 80;
	words[at - 1] = STACK + 8 * (at + 4);
	words[at - 3] = m;
	words[at - 8] = bcp;
}

static void test_calls(const struct version *version)
{
	struct hotspot *h = NULL;
	struct uw_dynamic *d = NULL;
	uint64_t code;
	struct call found[1];

	put_machine(version);
	memset(words, 0, sizeof(words));
	code = bytecode(interpreted);
	CHECK(hotspot_new(exports, &h) == 0, "new");
	CHECK(look(h, inner, 0, 0, 1) == -ENOENT, "nothing is known before the code is");
	CHECK(hotspot_read(h, read_vm, NULL, false, false, &d) == 0, "read");
	uw_dynamic_put(d);
	words[3] = inner + IN_HELPER;
	words[4] = inner + IN_BODY;
	words[5] = inner + IN_BODY + 1; /* no return address */
	words[6] = outer + 8;
	put_interpreted(20, interpreted, code + 6);
	put_interpreted(30, interpreted, code + 25);
	put_interpreted(40, interpreted, 0);
	put_interpreted(50, interpreted, code + CODE); /* behind it */
	CHECK(look(h, inner + IN_HELPER + 1, 0, 0, 1) == 0, "there is news");
	CHECK(is_call(inner + IN_HELPER, 0, 2, 0, "java.util.Help.compare", 13) &&
		      is_call(inner + IN_HELPER, 0, 2, 1, "java.util.TreeMap.put", 13),
	      "an inlined call and its caller");
	CHECK(is_call(inner + IN_BODY, 0, 1, 0, "java.util.TreeMap.put", 300), "its own code");
	CHECK(is_call(inner + IN_HELPER + 1, 1, 1, 0, "java.util.TreeMap.put", 300),
	      "an interrupted pc is in what the next call is in");
	CHECK(is_call(outer + 8, 0, 1, 0, "Work.texts", 0), "a native method");
	CHECK(is_call(interpreted, code + 6, 1, 0, "Work.run", 13) &&
		      is_call(interpreted, code + 25, 1, 0, "Work.run", 11) &&
		      is_call(interpreted, 0, 1, 0, "Work.run", 10),
	      "interpreted");
	CHECK(calls_find(calls, inner + IN_BODY, 0, found, 1) == 1 &&
		      !strcmp(found[0].file, "java/util/File.java") &&
		      calls_find(calls, interpreted, 0, found, 1) == 1 &&
		      !strcmp(found[0].file, "File.java"),
	      "files are in the directory of their package");
	CHECK(!calls_find(calls, inner + IN_BODY + 1, 0, found, 1) &&
		      !calls_find(calls, interpreted, code + CODE, found, 1),
	      "what is no frame is not there");
	CHECK(calls_interpreter_of(calls)->start == interpreter, "the interpreter");
	vm.reads = 0;
	CHECK(look(h, inner + IN_HELPER + 1, 0, 0, 2) == -EAGAIN && !vm.reads,
	      "what is known is not read again");

	/* Behind the last call there is only the method itself. */
	CHECK(look(h, inner + IN_BODY + 1, 0, 0, 3) == 0 &&
		      is_call(inner + IN_BODY + 1, 1, 1, 0, "java.util.TreeMap.put", 0),
	      "at an end");
	/* Innermost frames: by r13, by the slot, and where there is neither yet. */
	CHECK(look(h, interpreter + 8, STACK + 8 * 30, code + 310, 4) == 0 &&
		      is_call(interpreted, code + 310, 1, 0, "Work.run", 300),
	      "r13");
	CHECK(look(h, interpreter + 8, STACK + 8 * 30, 0x1234, 5) == -EAGAIN, "the slot is known");
	words[30 - 3] = method("Native", "one");
	put(bytecode(words[30 - 3]) - v->const_size + v->code_size, 0, 2);
	CHECK(look(h, interpreter + 8, STACK + 8 * 30, bytecode(words[30 - 3]), 5) == 0 &&
		      is_call(words[30 - 3], bytecode(words[30 - 3]), 1, 0, "Native.one", 0),
	      "a native method has no bytecode");
	words[30 - 3] = method("Fresh", "one");
	CHECK(look(h, interpreter + 8, STACK + 8 * 30, 0x1234, 6) == 0 &&
		      is_call(words[30 - 3], 0, 1, 0, "Fresh.one", 10),
	      "an entry");

	/* A class is unloaded, and another has its place. */
	{
		uint64_t other = method("Other", "two");

		memcpy(vm.bytes + (interpreted - BASE), vm.bytes + (other - BASE), 96);
		put_interpreted(20, interpreted, bytecode(interpreted) + 6);
		CHECK(look(h, inner, 0, 0, 7) == 0, "what has another key is new at once");
		CHECK(is_call(interpreted, bytecode(interpreted) + 6, 1, 0, "Other.two", 13) ||
			      !is_call(interpreted, 0, 1, 0, "Other.two", 10),
		      "and the rest is looked at later");
		(void)look(h, inner, 0, 0, 3000000000);
		CHECK(is_call(interpreted, 0, 1, 0, "Other.two", 10), "after a second");
	}
	calls_free(calls);
	calls = NULL;
	hotspot_free(h);
}

/*
 * Code that is no longer valid has another return address in all its frames, which keep their own. It is found for a
 * compiled frame inside of it, and for an interpreted one, which says where its caller's stack ended.
 */
static void test_kept(const struct version *version)
{
	struct uw_region region = { .addr = STACK, .size = sizeof(words), .bytes = (void *)words };
	struct uw_memory captured = { .regions = &region, .n_regions = 1 };
	struct uw_thread thread = { .read = uw_memory_read, .ctx = &captured };
	struct uw_frame frame = { .sp = STACK + 8 * 11 };
	struct hotspot *h = NULL;
	struct uw_dynamic *d = NULL;
	struct call found[2];
	enum { SP = 44 }; /* of the caller of the interpreted frame, in words */

	put_machine(version);
	memset(words, 0, sizeof(words));
	CHECK(hotspot_new(exports, &h) == 0 &&
		      hotspot_read(h, read_vm, NULL, false, false, &d) == 0,
	      "read");
	uw_dynamic_put(d);
	words[10] = inner + DEOPT;
	words[11 + KEPT / 8] = inner + IN_HELPER;
	put_interpreted(30, interpreted, 0);
	words[31] = inner + DEOPT_MH;
	words[30 - 1] = STACK + 8 * SP;
	words[SP + KEPT / 8] = inner + IN_BODY;
	CHECK(look(h, inner, 0, 0, 1) == 0, "there is news");
	CHECK(is_call(inner + IN_HELPER, 0, 2, 0, "java.util.Help.compare", 13) &&
		      is_call(inner + IN_BODY, 0, 1, 0, "java.util.TreeMap.put", 300),
	      "the kept addresses are looked at");
	frame.pc = inner + DEOPT;
	CHECK(calls_of_frame(calls, &frame, &thread, false, found, 2) == 2 &&
		      !strcmp(found[0].function, "java.util.Help.compare"),
	      "a compiled frame");
	frame = (struct uw_frame){ .pc = inner + DEOPT_MH, .sp = STACK + 8 * SP };
	CHECK(calls_of_frame(calls, &frame, &thread, false, found, 2) == 1 &&
		      !strcmp(found[0].function, "java.util.TreeMap.put"),
	      "behind an interpreted one");
	/* The same frame is in another place later. */
	words[14] = inner + DEOPT;
	words[15 + KEPT / 8] = inner + IN_BODY;
	frame = (struct uw_frame){ .pc = inner + DEOPT, .sp = STACK + 8 * 15 };
	CHECK(look(h, inner, 0, 0, 2) == -EAGAIN &&
		      calls_of_frame(calls, &frame, &thread, false, found, 2) == 1 &&
		      found[0].line == 300,
	      "elsewhere");
	frame.sp = STACK + sizeof(words) - 8;
	CHECK(!calls_of_frame(calls, &frame, &thread, false, found, 2), "beyond what is there");
	calls_free(calls);
	calls = NULL;
	hotspot_free(h);
}

/* A walked frame is what the table says of its words; while it is made, of what is there already. */
static void test_frames(void)
{
	struct uw_region region = { .addr = STACK, .size = sizeof(words), .bytes = (void *)words };
	struct uw_memory captured = { .regions = &region, .n_regions = 1 };
	struct uw_thread thread = { .read = uw_memory_read, .ctx = &captured };
	struct calls_writer w = { .n_frames = 0 };
	struct calls_interpreter in = {
		.slots = { -3, -8 }, .reg = UW_X86_64_R13, .start = 100, .end = 200
	};
	struct uw_frame frame = { .pc = 150, .cfa = STACK + 8 * 20 + 16, .sp = STACK };
	struct call call = { .function = "a" }, found[2];
	const void *bytes;
	size_t size;

	memset(words, 0, sizeof(words));
	words[20 - 3] = 7;
	words[20 - 8] = 8;
	calls_begin(&w);
	CHECK(!calls_finish(&w, &in, false, &size), "there is nothing to say");
	CHECK(!calls_frame(&w, 7, 8) && !calls_add(&w, &call), "by the slots");
	call.function = "b";
	CHECK(!calls_frame(&w, 7, 9) && !calls_add(&w, &call), "by the register");
	call.function = "c";
	CHECK(!calls_frame(&w, 7, 0) && !calls_add(&w, &call), "at the entry");
	call.function = "d";
	CHECK(!calls_frame(&w, 300, 0) && !calls_add(&w, &call), "compiled");
	bytes = calls_finish(&w, &in, true, &size);
	CHECK(bytes && calls_take(&calls, bytes, size) == 0, "take");
	thread.regs.value[UW_X86_64_R13] = 9;
	thread.regs.known = 1u << UW_X86_64_R13;
#define IS(innermost, name)                                                    \
	(calls_of_frame(calls, &frame, &thread, (innermost), found, 2) == 1 && \
	 !strcmp(found[0].function, (name)))
	CHECK(IS(false, "a") && IS(true, "b"), "the register is of the innermost frame only");
	thread.regs.value[UW_X86_64_R13] = 10;
	CHECK(IS(true, "a"), "a register with something else");
	frame.sp = STACK + 8 * (20 - 7);
	CHECK(IS(true, "c") && !calls_of_frame(calls, &frame, &thread, false, found, 2),
	      "half made");
	frame.sp = STACK + 8 * (20 - 2);
	CHECK(!calls_of_frame(calls, &frame, &thread, true, found, 2), "hardly begun");
	frame = (struct uw_frame){ .pc = 300, .cfa = 1, .sp = STACK };
	CHECK(IS(false, "d"), "compiled code is known by its pc");
	frame.exact = true;
	CHECK(!calls_of_frame(calls, &frame, &thread, true, found, 2),
	      "interrupted there is another");
	frame = (struct uw_frame){ .pc = 150 };
	CHECK(!calls_of_frame(calls, &frame, &thread, true, found, 2), "a walk that ended here");

	/* Damage, one byte each: an error or a table, and every text ends. */
	for (size_t i = 0; i < size; i++) {
		uint8_t copy[512];
		struct calls *c = NULL;

		memcpy(copy, bytes, size);
		copy[i] ^= 0xff;
		if (!calls_take(&c, copy, size))
			for (unsigned int k = 8; k < 10; k++)
				if (calls_find(c, 7, k, found, 2) == 1)
					CHECK(strlen(found[0].function) < size, "a text ends");
		calls_free(c);
	}
	CHECK(calls_take(&calls, bytes, size - 1) == -EBADMSG &&
		      calls_take(&calls, bytes, 8) == -EBADMSG,
	      "cut");
	CHECK(!calls_are("ab", 2), "too short to be known");
	/* Later words replace earlier ones, or all of them. */
	calls_begin(&w);
	call.function = "new";
	CHECK(!calls_frame(&w, 7, 8) && !calls_add(&w, &call), "write");
	bytes = calls_finish(&w, &in, false, &size);
	frame = (struct uw_frame){ .pc = 150, .cfa = STACK + 8 * 20 + 16, .sp = STACK };
	CHECK(bytes && calls_take(&calls, bytes, size) == 0 && IS(false, "new") &&
		      calls_find(calls, 300, 0, found, 2) == 1,
	      "replaced");
	bytes = calls_finish(&w, &in, true, &size);
	CHECK(bytes && calls_take(&calls, bytes, size) == 0 && !calls_find(calls, 300, 0, found, 2),
	      "forgotten");
	/* There is no room for everything. */
	calls_begin(&w);
	for (size = 0; size < 100000 && !calls_frame(&w, size, 0); size++)
		if (calls_add(&w, &call))
			break;
	bytes = calls_finish(&w, &in, false, &size);
	CHECK(bytes && size > 1000000 && size <= 1 << 20 && !calls_take(&calls, bytes, size),
	      "full");
	calls_free(calls);
	calls = NULL;
	calls_writer_fini(&w);
}

/* The virtual machine's changes since then. */
static void test_news(void)
{
	struct hotspot *h = NULL;
	struct uw_dynamic *d = NULL;
	unsigned int first;

	put_machine(&versions[0]);
	CHECK(hotspot_new(exports, &h) == 0, "new");
	CHECK(hotspot_read(h, read_vm, NULL, false, false, &d) == 0, "read");
	uw_dynamic_put(d);
	first = vm.reads;
	vm.reads = 0;
	CHECK(hotspot_read(h, read_vm, NULL, false, false, &d) == -EAGAIN, "nothing is new");
	CHECK(vm.reads * 2 < first, "and little is read to see it");
	put_code(blob(40, 6, "native nmethod", method("Later", "on"), 6, BODY));
	CHECK(hotspot_read(h, read_vm, NULL, false, true, &d) == 0 && uw_dynamic_is_names(d) &&
		      !strcmp(name_at(d, HEAP + 40 * 128 + 0x180), "Later.on") &&
		      !strcmp(name_at(d, inner), "java.util.TreeMap.put"),
	      "more code, for its name");
	uw_dynamic_put(d);
	/* A caller runs code that is not known. */
	memset(words, 0, sizeof(words));
	put_code(blob(50, 6, "nmethod", method("Caller", "one"), 6, BODY));
	words[4] = HEAP + 50 * 128 + 0x180 + BODY;
	CHECK(!hotspot_misses(h), "all is known");
	(void)look(h, inner, 0, 0, 1);
	CHECK(hotspot_misses(h), "an address of unknown code");
	CHECK(hotspot_read(h, read_vm, NULL, true, true, &d) == 0 &&
		      !strcmp(name_at(d, words[4]), "Caller.one") && !hotspot_misses(h),
	      "it is read");
	uw_dynamic_put(d);
	words[4] = HEAP + 70 * 128 + 8;
	(void)look(h, inner, 0, 0, 2);
	CHECK(hotspot_misses(h) && hotspot_read(h, read_vm, NULL, true, true, &d) == -EAGAIN,
	      "no code is there");
	(void)look(h, inner, 0, 0, 3);
	CHECK(!hotspot_misses(h), "it is looked for once");
	words[4] = HEAP - 8;
	words[5] = HEAP + 50 * 128 + 8;
	(void)look(h, inner, 0, 0, 4);
	CHECK(!hotspot_misses(h), "beside the heaps there is none, and a method's head is known");
	/* A block is freed and becomes another method of the same size. */
	put(HEAP + 8, 0, 1);
	d = NULL;
	for (unsigned int i = 0; i < 100 && !d; i++)
		(void)hotspot_read(h, read_vm, NULL, false, false, &d);
	CHECK(d && !*name_at(d, inner), "code is gone");
	uw_dynamic_put(d);
	put_code(blob(0, 6, "nmethod", method("Other", "one"), 6, BODY));
	d = NULL;
	CHECK(hotspot_read(h, read_vm, NULL, true, false, &d) == 0 &&
		      !strcmp(name_at(d, inner), "Other.one"),
	      "and its place taken");
	uw_dynamic_put(d);
	calls_free(calls);
	calls = NULL;
	hotspot_free(h);
}

/* However little can be read at once, everything is read in the end. */
static void test_time(void)
{
	struct hotspot *h = NULL;
	struct uw_dynamic *d = NULL;
	bool all = false;

	put_machine(&versions[1]);
	CHECK(hotspot_new(exports, &h) == 0, "new");
	for (unsigned int i = 0; i < 20 && !all; i++) {
		d = NULL;
		vm.reads = 0;
		vm.reads_max = 40;
		if (hotspot_read(h, read_vm, NULL, false, false, &d))
			continue;
		all = *name_at(d, inner) && *name_at(d, outer) && *name_at(d, interpreter);
		uw_dynamic_put(d);
	}
	CHECK(all, "after some calls");
	hotspot_free(h);
	/* There is no virtual machine, or it has no code yet. */
	memset(&vm, 0, sizeof(vm));
	vm.reads_max = 1000;
	CHECK(hotspot_new(exports, &h) == 0 &&
		      hotspot_read(h, read_vm, NULL, true, false, &d) == -ENOENT,
	      "zeros");
	hotspot_free(h);
	put_machine(&versions[1]);
	vm.reads_max = 0;
	CHECK(hotspot_new(exports, &h) == 0 &&
		      hotspot_read(h, read_vm, NULL, true, false, &d) == -EFAULT,
	      "a process that is gone");
	hotspot_free(h);
}

static uint64_t seed = 7;

static uint64_t any(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static void harm_anywhere(void)
{
	static const uint64_t bad[] = { 0, 1, 0xff, UINT64_MAX, INT64_MAX, UINT32_MAX, BASE, HEAP };
	uint64_t at = BASE + any() % (vm.used + 0x3000);

	if (at - BASE >= vm.used) /* in the code cache, rather than between */
		at = HEAP + (at - BASE - vm.used);
	switch (any() % 4) {
	case 0:
		put(at, any(), 1);
		break;
	case 1:
		put(at & ~7ull, bad[any() % 8], 8);
		break;
	case 2:
		put(at & ~3ull, bad[any() % 8], 4);
		break;
	default: /* a pointer points to itself or to another place */
		put(at & ~7ull, BASE + any() % sizeof(vm.bytes), 8);
		break;
	}
}

static void test_harm(void)
{
	unsigned int good = 0;

	for (unsigned int i = 0; i < 3000; i++) {
		struct hotspot *h = NULL;
		struct uw_dynamic *d;

		put_machine(&versions[i & 1]);
		for (unsigned int k = (unsigned int)(any() % 20); k-- > 0;)
			harm_anywhere();
		if (hotspot_new(exports, &h)) {
			CHECK(false, "new");
			return;
		}
		for (unsigned int k = 0; k < 3; k++) {
			vm.reads = 0;
			d = NULL;
			if (!hotspot_read(h, read_vm, NULL, true, false, &d)) {
				good++;
				put_stack(20);
				(void)walk(d, inner + any() % 128, STACK + 8 * (any() % WORDS),
					   STACK + 8 * (any() % WORDS));
			}
			uw_dynamic_put(d);
			words[3] = inner + IN_HELPER;
			words[4] = inner + IN_BODY;
			put_interpreted(30, interpreted, bytecode(interpreted) + 6);
			(void)look(h, inner + any() % 128, STACK + 8 * (any() % WORDS), any(),
				   any());
			harm_anywhere();
		}
		calls_free(calls);
		calls = NULL;
		hotspot_free(h);
	}
	CHECK(good > 100, "much of it could be read");
}

/* Code that overlaps, all around the place where methods return: that is divided once. */
static void test_code_may_overlap(const struct version *version)
{
	struct hotspot *h = NULL;
	struct uw_dynamic *d = NULL;

	put_machine(version);
	for (unsigned int i = 9; i < 20; i++) {
		uint64_t at = HEAP + i * 128 + v->block;

		(void)blob(i, 1, "StubRoutines (1)", 0, 0, 0);
		put(at + v->size, (40 - i) * 128 - v->block, 4);
		put(at + v->data, (40 - i) * 128 - v->block, 4);
	}
	CHECK(hotspot_new(exports, &h) == 0, "new");
	CHECK(hotspot_read(h, read_vm, NULL, false, false, &d) == 0 && d, "read");
	uw_dynamic_put(d);
	hotspot_free(h);
}

/* A map whose bytes all lead to the one before, and a stack of addresses whose code is looked for by it. */
static void test_long_ways_ask_for_time(const struct version *version)
{
	struct hotspot *h = NULL;
	struct uw_dynamic *d = NULL;

	put_machine(version);
	put(code_heap + v->log2, 4, 4);
	memset(vm.bytes + (segmap + 1 - BASE), 1, SPAN / 16 - 1);
	CHECK(hotspot_new(exports, &h) == 0, "new");
	(void)hotspot_read(h, read_vm, NULL, false, false, &d);
	for (unsigned int i = 0; i < WORDS; i++)
		words[i] = HEAP + SPAN - 1;
	vm.asked = 0;
	(void)look(h, inner, 0, 0, 1);
	CHECK(vm.asked, "asks whether there is time");
	vm.reads = vm.reads_max;
	vm.asked = 0;
	(void)look(h, inner, 0, 0, 2);
	CHECK(vm.asked == 1, "and ends if not");
	uw_dynamic_put(d);
	hotspot_free(h);
}

int main(void)
{
	for (unsigned int i = 0; i < sizeof(versions) / sizeof(*versions); i++)
		test_walks(&versions[i]);
	for (unsigned int i = 0; i < sizeof(versions) / sizeof(*versions); i++)
		test_calls(&versions[i]);
	for (unsigned int i = 0; i < sizeof(versions) / sizeof(*versions); i++)
		test_kept(&versions[i]);
	for (unsigned int i = 0; i < sizeof(versions) / sizeof(*versions); i++) {
		test_code_may_overlap(&versions[i]);
		test_long_ways_ask_for_time(&versions[i]);
	}
	test_frames();
	test_news();
	test_time();
	test_harm();
	return check_done();
}
