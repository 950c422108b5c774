/*
 * tests/fuzz/fuzz_hotspot.c: fuzzes the reader of a Java virtual machine's code cache. The input
 * changes the memory of a sound machine (tests/hotspot_vm.h): byte 0 chooses its version and what is
 * asked for, and every three bytes and more are a place in two bytes, a length, and the bytes that
 * are written there. A length of 0 ends what a reading sees, and the next reading follows. Whatever is
 * read: walks by it end, names are texts, and what is written of frames is sound.
 */
#include "agent/process/calls.h"
#include "tests/hotspot_vm.h"

#include <elf.h>
#include <stdlib.h>
#include <sys/mman.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { VERSION = 1, NAMES = 2, SLOWLY = 4 };

#define STACK	  (BASE + 0x800000)
#define READINGS  3
#define READS_MAX 4000
#define FEW	  40 /* reads, after which the time is over */
#define N_FRAMES  16

static volatile uint64_t sink;

#define HEAP_USED (SPAN / 4)

/* Both machines as they were made: to copy what is used of one is faster than to make it. */
static struct made {
	uint64_t exports[HOTSPOT_EXPORTS], inner, outer, interpreter, interpreted, bytecode;
	size_t used;
	uint8_t low[sizeof(vm.bytes) - SPAN], heap[HEAP_USED];
} made[2];

static const struct made *make(unsigned int version)
{
	struct made *m = &made[version];

	if (!m->used) {
		put_machine(&versions[version]);
		memcpy(m->exports, exports, sizeof(exports));
		m->inner = inner;
		m->outer = outer;
		m->interpreter = interpreter;
		m->interpreted = interpreted;
		m->bytecode = bytecode(interpreted);
		m->used = vm.used;
		memcpy(m->low, vm.bytes, m->used);
		memcpy(m->heap, vm.bytes + (HEAP - BASE), HEAP_USED);
	}
	vm.used = m->used;
	memcpy(vm.bytes, m->low, m->used);
	memcpy(vm.bytes + (HEAP - BASE), m->heap, HEAP_USED);
	return m;
}

/* Places are counted in what is used of the machine, and then in the heap of code. */
static uint8_t *place(unsigned int at)
{
	at %= (unsigned int)vm.used + HEAP_USED;
	return vm.bytes + (at < vm.used ? at : HEAP - BASE + (at - vm.used));
}

/* Make changes until one of no bytes. Return how many bytes of the input they took. */
static size_t change(const uint8_t *data, size_t size)
{
	size_t at = 0;

	while (at + 3 <= size) {
		unsigned int where = (unsigned int)data[at] | (unsigned int)data[at + 1] << 8;
		size_t n = data[at + 2];

		at += 3;
		if (!n)
			break;
		n = n < size - at ? n : size - at;
		for (size_t i = 0; i < n; i++)
			*place(where + (unsigned int)i) = data[at + i];
		at += n;
	}
	return at;
}

static void walk(const struct made *of, struct uw_dynamic *d, uint64_t pc)
{
	static struct uw_worker *worker;
	static uint64_t words[32];
	struct uw_mapping m = { .start = HEAP - 0x1000,
				.end = HEAP + SPAN,
				.prot = PROT_READ | PROT_WRITE | PROT_EXEC,
				.kind = UW_MAPPING_ANON };
	struct uw_region region = { .addr = STACK, .size = sizeof(words), .bytes = (void *)words };
	struct uw_memory captured = { .regions = &region, .n_regions = 1 };
	struct uw_thread thread = { .read = uw_memory_read, .ctx = &captured };
	struct uw_frame frames[N_FRAMES];
	struct uw_stack stack = { .frames = frames, .max_frames = N_FRAMES };
	struct uw_space *space = NULL;

	for (size_t i = 0; i < 32; i++)
		words[i] = i % 3 ? of->outer + 8 * i : STACK + 8 * i + 16;
	thread.regs.value[UW_X86_64_RIP] = pc;
	thread.regs.value[UW_X86_64_RSP] = STACK;
	thread.regs.value[UW_X86_64_RBP] = STACK + 24;
	thread.regs.known = 1u << UW_X86_64_RIP | 1u << UW_X86_64_RSP | 1u << UW_X86_64_RBP;
	if ((!worker && uw_worker_new(&worker)) || uw_space_new(EM_X86_64, NULL, NULL, &space) ||
	    uw_space_map(space, &m))
		abort();
	uw_space_set_dynamic(space, d);
	uw_walk(space, worker, &thread, &stack);
	if (!stack.n_frames || stack.n_frames > N_FRAMES || stack.stop >= UW_STOP_N)
		abort();
	uw_space_free(space);
}

/* Look at a stack with a frame of each kind, so that all of them are read. */
static void look(const struct made *of, struct hotspot *h, struct calls **calls)
{
	uint64_t words[32] = { 0 };
	struct uw_regs regs = { .known = 0 };
	struct calls_sample sample = { .regs = &regs,
				       .addr = STACK,
				       .stack = (void *)words,
				       .size = sizeof(words),
				       .now = vm.reads };
	struct call found[4];
	const void *bytes;
	size_t size, n;

	words[1] = of->inner + IN_HELPER;
	words[2] = of->outer + 40;
	words[20 - 8] = of->bytecode + 7;
	words[20 - 3] = of->interpreted;
	words[20 - 1] = STACK + 8 * 24;
	words[20 + 1] = of->interpreter + 64;
	regs.value[UW_X86_64_RIP] = of->interpreter + 8;
	regs.value[UW_X86_64_RBP] = STACK + 8 * 20;
	regs.value[UW_X86_64_R13] = of->bytecode + 9;
	if (hotspot_calls(h, read_vm, NULL, &sample, &bytes, &size))
		return;
	if (!calls_are(bytes, size) || calls_take(calls, bytes, size) == -EBADMSG)
		abort();
	n = *calls ? calls_find(*calls, of->inner + IN_HELPER, 0, found, 4) : 0;
	for (size_t i = 0; i < n && i < 4; i++)
		sink += strlen(found[i].function) + (found[i].file ? strlen(found[i].file) : 0);
}

static void use(const struct made *of, struct uw_dynamic *d)
{
	struct uw_dynamic_proc proc;

	for (uint64_t at = HEAP; at < HEAP + HEAP_USED; at += 128)
		if (!uw_dynamic_proc(d, at, &proc) && proc.name)
			sink += strlen(proc.name);
	walk(of, d, of->inner + BODY);
	walk(of, d, of->outer + 40);
	walk(of, d, of->interpreter + 64);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct made *machine;
	struct calls *calls = NULL;
	struct hotspot *h;
	uint8_t how;

	if (!size)
		return 0;
	how = *data++;
	size--;
	machine = make(how & VERSION);
	if (hotspot_new(machine->exports, &h))
		return 0;
	for (unsigned int i = 0; i < READINGS && (!i || size); i++) {
		size_t n = change(data, size);
		struct uw_dynamic *d = NULL;

		data += n;
		size -= n;
		vm.reads = 0;
		vm.reads_max = how & SLOWLY ? FEW : READS_MAX;
		if (!hotspot_read(h, read_vm, NULL, true, how & NAMES, &d))
			use(machine, d);
		uw_dynamic_put(d);
		look(machine, h, &calls);
	}
	calls_free(calls);
	hotspot_free(h);
	return 0;
}
