/*
 * tests/unit/test_hotspot.c: tests the reader of a Java virtual machine's code cache, with the
 * layouts of two versions: the code that is found, walks by it, and hostile virtual machines.
 */
#include "agent/process/hotspot.h"

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
	uw_dynamic_put(d);
	hotspot_free(h);
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
			harm_anywhere();
		}
		hotspot_free(h);
	}
	CHECK(good > 100, "much of it could be read");
}

int main(void)
{
	for (unsigned int i = 0; i < sizeof(versions) / sizeof(*versions); i++)
		test_walks(&versions[i]);
	test_news();
	test_time();
	test_harm();
	return check_done();
}
