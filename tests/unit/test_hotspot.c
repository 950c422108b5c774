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

/* The memory of the process: addresses are BASE + offset in bytes. */
#define BASE  0x7f0000000000u
#define HEAP  (BASE + 0x40000) /* of code: SEGMENTS × 128 bytes exist */
#define SPAN  0x10000
#define STACK (BASE + 0x800000)
#define WORDS 64

static struct {
	uint8_t bytes[0x40000 + SPAN];
	size_t used;
	unsigned int reads, reads_max;
} vm;

static int read_vm(void *ctx, uint64_t addr, void *out, size_t size)
{
	(void)ctx;
	if (vm.reads++ >= vm.reads_max)
		return -ETIME;
	if (addr < BASE || size > sizeof(vm.bytes) || addr - BASE > sizeof(vm.bytes) - size)
		return -EFAULT;
	memcpy(out, vm.bytes + (addr - BASE), size);
	return 0;
}

static void put(uint64_t addr, uint64_t value, unsigned int size)
{
	memcpy(vm.bytes + (addr - BASE), &value, size);
}

static uint64_t take(size_t size)
{
	uint64_t at = BASE + vm.used;

	vm.used += (size + 15) & ~(size_t)15;
	return at;
}

static uint64_t text(const char *s)
{
	uint64_t at = take(strlen(s) + 1);

	memcpy(vm.bytes + (at - BASE), s, strlen(s) + 1);
	return at;
}

/* ---- a machine ------------------------------------------------------------------------------- */

/* The structures of OpenJDK 17 and 25 for x86_64 (jhsdb's "vmStructs" of both). */
struct version {
	bool old;
	unsigned int memory, segmap, log2, block, used;
	unsigned int name, size, complete, data, frame, begin, method, id;
	const char *of; /* whose member the method is */
	unsigned int name_index;
};

static const struct version versions[] = {
	{ true, 8, 120, 256, 16, 8, 96, 12, 20, 24, 28, 32, 112, 304, "CompiledMethod", 34 },
	{ false, 0, 112, 248, 8, 4, 8, 24, 54, 40, 44, 36, 80, 212, "nmethod", 36 },
};
static const struct version *v;
static uint64_t exports[HOTSPOT_EXPORTS];
static uint64_t entries, segmap;

static void field(const char *type, const char *name, const char *of, uint64_t off, uint64_t addr)
{
	put(entries, text(type), 8);
	put(entries + 8, text(name), 8);
	put(entries + 16, text(of), 8);
	put(entries + 24, addr != 0, 4);
	put(entries + 32, off, 8);
	put(entries + 40, addr, 8);
	entries += 48;
}

static void type(const char *name, uint64_t size)
{
	put(entries, text(name), 8);
	put(entries + 32, size, 8);
	entries += 40;
}

static uint64_t symbol(const char *s)
{
	uint64_t at = take(6 + strlen(s));

	put(at + 4, strlen(s), 2);
	memcpy(vm.bytes + (at + 6 - BASE), s, strlen(s));
	return at;
}

static uint64_t method(const char *klass, const char *name)
{
	uint64_t m = take(96), cm = take(64), pool = take(72 + 8 * 8), k = take(192);

	put(m + 8, cm, 8);
	put(cm + 8, pool, 8);
	put(cm + v->name_index, 5, 2);
	put(pool + 24, k, 8);
	put(pool + 72 + 8 * 5, symbol(name), 8);
	put(k + 24, symbol(klass), 8);
	return m;
}

/* Make a block of this many segments at segment: its code begins 0x180 after it. */
static uint64_t blob(unsigned int segment, unsigned int segments, const char *name, uint64_t m,
		     unsigned int words, int complete)
{
	uint64_t block = HEAP + segment * 128, at = block + v->block;
	uint64_t size = segments * 128 - v->block, code = 0x180 - v->block;

	for (unsigned int i = 0; i < segments; i++)
		put(segmap + segment + i, i, 1);
	put(block, segments, v->old ? 8 : 4);
	put(block + v->used, 1, 1);
	put(at + v->name, text(name), 8);
	put(at + v->size, size, 4);
	put(at + v->complete, (uint64_t)(int64_t)complete, v->old ? 4 : 2);
	put(at + v->data, size - 16, 4);
	put(at + v->frame, words, 4);
	put(at + v->begin, v->old ? at + code : code, v->old ? 8 : 4);
	put(at + v->method, m, 8);
	put(at + v->id, segment, 4);
	return at + code;
}

static void begin(const struct version *version)
{
	uint64_t structs, heaps, array, data, heap;

	memset(&vm, 0, sizeof(vm));
	vm.used = 64;
	vm.reads_max = 100000;
	v = version;
	for (unsigned int i = 0; i < HOTSPOT_EXPORTS; i++)
		exports[i] = take(8);
	heaps = take(8);
	array = take(16);
	data = take(8);
	heap = take(512);
	segmap = take(SPAN / 128);
	memset(vm.bytes + (segmap - BASE), 0xff, SPAN / 128);
	put(heaps, array, 8);
	put(array, 1, 4);
	put(array + 8, data, 8);
	put(data, heap, 8);
	put(heap + v->memory, HEAP - 0x1000, 8);
	put(heap + v->memory + 8, HEAP + 0x100000, 8);
	put(heap + v->memory + 16, HEAP, 8);
	put(heap + v->memory + 24, HEAP + SPAN, 8);
	put(heap + v->segmap + 16, segmap, 8);
	put(heap + v->log2, 7, 4);
	structs = entries = take(48 * 40);
	put(exports[0], structs, 8);
	field("Universe", "_heaps", "int", 99, 0);
	field("CodeCache", "_heaps", "GrowableArray<CodeHeap*>*", 0, heaps);
	field(v->old ? "GenericGrowableArray" : "GrowableArrayBase", "_len", "int", 0, 0);
	field("GrowableArray<int>", "_data", "int*", 8, 0);
	field("CodeHeap", "_memory", "VirtualSpace", v->memory, 0);
	field("CodeHeap", "_segmap", "VirtualSpace", v->segmap, 0);
	field("CodeHeap", "_log2_segment_size", "int", v->log2, 0);
	field("VirtualSpace", "_low_boundary", "char*", 0, 0);
	field("VirtualSpace", "_high_boundary", "char*", 8, 0);
	field("VirtualSpace", "_low", "char*", 16, 0);
	field("VirtualSpace", "_high", "char*", 24, 0);
	field("HeapBlock::Header", "_length", v->old ? "size_t" : "uint32_t", 0, 0);
	field("HeapBlock::Header", "_used", "bool", v->used, 0);
	field("CodeBlob", "_name", "const char*", v->name, 0);
	field("CodeBlob", "_size", "int", v->size, 0);
	field("CodeBlob", "_frame_complete_offset", v->old ? "int" : "int16_t", v->complete, 0);
	field("CodeBlob", "_data_offset", "int", v->data, 0);
	field("CodeBlob", "_frame_size", "int", v->frame, 0);
	field("CodeBlob", v->old ? "_code_begin" : "_code_offset", v->old ? "address" : "int",
	      v->begin, 0);
	field(v->of, "_method", "Method*", v->method, 0);
	field("nmethod", "_compile_id", "int", v->id, 0);
	field("Method", "_constMethod", "ConstMethod*", 8, 0);
	field("ConstMethod", "_constants", "ConstantPool*", 8, 0);
	field("ConstMethod", "_name_index", "u2", v->name_index, 0);
	field("ConstantPool", "_pool_holder", "InstanceKlass*", 24, 0);
	field("Klass", "_name", "Symbol*", 24, 0);
	field("Symbol", "_length", "u2", 4, 0);
	field("Symbol", "_body", "", 6, 0);
	entries = take(40 * 4);
	put(exports[1], entries, 8);
	type("ConstantPool", 72);
	type("HeapBlock", v->block);
}

/*
 * A method of the second compiler with a frame of six words: 7 push %rbp; 8 sub $32,%rsp; 12 the
 * body; 64 add $32,%rsp; 68 pop %rbp; 69 a check whether to stop; 78 ret.
 */
enum { PUSH = 7, SUB = 8, BODY = 12, ADD = 64, POP = 68, LOOK = 69, RET = 78 };

static void put_code(uint64_t at)
{
	static const uint8_t head[] = { 0x89, 0x84, 0x24, 0,	0xc0, 0xfe,
					0xff, 0x55, 0x48, 0x83, 0xec, 0x20 };
	static const uint8_t tail[] = { 0x48, 0x83, 0xc4, 0x20, 0x5d, 0x49, 0x3b, 0xa7,
					0x48, 3,    0,	  0,	0x77, 0x10, 0xc3 };

	memset(vm.bytes + (at - BASE), 0x90, 0x100);
	memcpy(vm.bytes + (at - BASE), head, sizeof(head));
	memcpy(vm.bytes + (at - BASE) + ADD, tail, sizeof(tail));
}

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

static uint64_t inner, outer, interpreter;

static void put_machine(const struct version *version)
{
	begin(version);
	inner = blob(0, 6, "nmethod", method("java/util/TreeMap", "put"), 6, BODY);
	put_code(inner);
	outer = blob(8, 6, "nmethod", method("Work", "texts"), 6, BODY);
	put_code(outer);
	interpreter = blob(20, 8, "Interpreter", 0, 0, -1);
	(void)blob(30, 4, "StubRoutines (1)", 0, 0, 0);
}

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
