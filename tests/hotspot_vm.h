/*
 * tests/hotspot_vm.h: the memory of a small Java virtual machine, with the layouts of two versions,
 * and the code that it compiled. One file includes this header.
 */
#ifndef TESTS_HOTSPOT_VM_H
#define TESTS_HOTSPOT_VM_H

#include "agent/process/hotspot.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* The memory of the process: addresses are BASE + offset in bytes. */
#define BASE 0x7f0000000000u
#define HEAP (BASE + 0x40000) /* of code: SEGMENTS × 128 bytes exist */
#define SPAN 0x10000

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

#endif
