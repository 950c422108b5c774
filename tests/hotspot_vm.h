/*
 * tests/hotspot_vm.h: the memory of a small Java virtual machine, with the layouts of two versions,
 * the code that it compiled, and what its methods and their lines are. One file includes this header.
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
/* Where methods return to the stub that calls them, in the blob of stubs. */
#define CALL_RETURN (HEAP + 30 * 128 + 0x180 + 32)

static struct {
	uint8_t bytes[0x40000 + SPAN];
	size_t used;
	unsigned int reads, reads_max;
	unsigned int asked; /* whether there is time */
} vm;

static int read_vm(void *ctx, uint64_t addr, void *out, size_t size)
{
	(void)ctx;
	vm.asked += !size;
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
	unsigned int code_size, name_index, const_size;
	unsigned int least; /* the least byte of a compressed number */
	/* Of scopes: PcDescs, their end, the scopes' bytes, and metadata or what leads to them. */
	unsigned int pcs, pcs_end, scopes, metadata;
	/* What takes the place of return addresses, and where these are kept. */
	unsigned int deopt, deopt_mh, kept;
};

static const struct version versions[] = {
	{ true, 8,  120, 256, 16,  8,	96,  12,  20,  24,  28, 32, 112, 304, "CompiledMethod",
	  32,	34, 48,	 0,   268, 272, 120, 260, 128, 136, 300 },
	{ false, 0,	    112, 248, 8,  4, 8,	  24,  54, 40, 44,  36,	 80,
	  212,	 "nmethod", 34,	 36,  56, 1, 196, 200, 96, 16, 176, 180, 208 },
};
static const struct version *v;
static uint64_t exports[HOTSPOT_EXPORTS];
static uint64_t entries, segmap, code_heap;

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

/* Put a number as UNSIGNED5 has it: digits of 6 bits, of which the last is below 192 - least. */
static void put_packed(uint64_t *at, unsigned int value)
{
	unsigned int last = 192 - v->least;

	while (value >= last) {
		put((*at)++, v->least + last + (value - last) % 64, 1);
		value = (value - last) / 64;
	}
	put((*at)++, v->least + value, 1);
}

enum { CODE = 400 }; /* bytes of bytecode of each method */

/*
 * Line numbers: 10 from bytecode 0, 13 from 6, 15 from 300, 300 from 310, and 11 from 20, because javac puts
 * what a loop begins with at its end.
 */
static void put_lines(uint64_t at)
{
	put(at++, 0xff, 1); /* in full, because the line is beyond 7 */
	put_packed(&at, 0);
	put_packed(&at, 10 * 2);
	put(at++, 6 << 3 | 3, 1);
	put(at++, 0xff, 1);
	put_packed(&at, 294 * 2);
	put_packed(&at, 2 * 2);
	put(at++, 0xff, 1);
	put_packed(&at, 10 * 2);
	put_packed(&at, 285 * 2);
	put(at++, 0xff, 1);
	put_packed(&at, 290 * 2 - 1); /* negative numbers are odd */
	put_packed(&at, 289 * 2 - 1);
	put(at, 0, 1);
}

static uint64_t bytecode(uint64_t m)
{
	uint64_t cm;

	memcpy(&cm, vm.bytes + (m + 8 - BASE), 8);
	return cm + v->const_size;
}

static uint64_t method(const char *klass, const char *name)
{
	uint64_t m = take(96), cm = take(64 + CODE + 64), pool = take(72 + 8 * 8), k = take(192);

	put(m + 8, cm, 8);
	put(cm + 8, pool, 8);
	put(cm + v->name_index, 5, 2);
	put(pool + 24, k, 8);
	put(pool + 72 + 8 * 5, symbol(name), 8);
	put(k + 24, symbol(klass), 8);
	put(cm + 28, 1, 2);
	put(cm + v->code_size, CODE, 2);
	put(pool + 54, 6, 2);
	put(pool + 72 + 8 * 6, symbol("File.java"), 8);
	put_lines(bytecode(m) + CODE);
	return m;
}

/* Put a scope into the bytes of scopes: its caller's offset, the number of the method, the bytecode. */
static void put_scope(uint64_t *at, unsigned int caller, unsigned int number, unsigned int bci)
{
	put_packed(at, caller);
	put_packed(at, number);
	put_packed(at, bci + 1);
}

static void put_pc(uint64_t *at, uint64_t pc, uint64_t scope)
{
	put(*at, pc, 4);
	put(*at + 4, scope, 4);
	*at += 16;
}

/* Offsets in code with scopes, and of what describes it in the heap. */
enum { IN_HELPER = 40, IN_BODY = 90, OWN = 0x3000 };

/* Offsets in the code of what takes the place of return addresses, and of where a frame keeps its own. */
enum { DEOPT = 0x160, DEOPT_MH = 0x168, KEPT = 24 };

/*
 * Describe code of a method whose blob begins at `at`: at IN_HELPER it is in helper, inlined at bytecode 7; at
 * IN_BODY at bytecode 310.
 */
static void put_scopes(uint64_t at, uint64_t code, uint64_t m, uint64_t helper)
{
	uint64_t own = HEAP + OWN, pc = own, scopes = own + 64, s = scopes + 1, metadata = own + 96;

	put(metadata, m, 8);
	put(metadata + 8, helper, 8);
	put_pc(&pc, UINT32_MAX, 0);
	put_pc(&pc, IN_HELPER, 1 + 3);
	put_pc(&pc, IN_BODY, 1 + 3 + 3);
	put_pc(&pc, 1 << 20, 0);
	put_scope(&s, 0, 1, 7);
	put_scope(&s, 1, 2, 6);
	put_scope(&s, 0, 1, 310);
	put(at + v->kept, KEPT, 4);
	put(at + v->deopt, v->old ? code + DEOPT : code + DEOPT - at, v->old ? 8 : 4);
	put(at + v->deopt_mh, v->old ? code + DEOPT_MH : code + DEOPT_MH - at, v->old ? 8 : 4);
	if (v->old) {
		put(at + v->pcs, own - at, 4);
		put(at + v->pcs_end, pc - at, 4);
		put(at + v->scopes, scopes, 8);
		put(at + v->metadata, metadata - at, 4);
	} else {
		put(at + v->scopes, own - 8, 8);
		put(at + v->pcs, 8, 4);
		put(at + v->pcs_end, 8 + 64, 4);
		put(at + v->metadata, metadata - 16, 8);
		put(at + 28, 12, 4);
	}
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
	uint64_t structs, heaps, array, data, heap, jdk, stub;

	memset(&vm, 0, sizeof(vm));
	vm.used = 64;
	vm.reads_max = 100000;
	v = version;
	for (unsigned int i = 0; i < HOTSPOT_EXPORTS; i++)
		exports[i] = take(8);
	heaps = take(8);
	array = take(16);
	data = take(8);
	heap = code_heap = take(512);
	segmap = take(SPAN / 16); /* enough for the smallest segments */
	memset(vm.bytes + (segmap - BASE), 0xff, SPAN / 16);
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
	structs = entries = take(48 * 60);
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
	stub = take(8);
	put(stub, CALL_RETURN, 8);
	field("StubRoutines", "_call_stub_return_address", "address", 0, stub);
	field("ConstMethod", v->old ? "_flags" : "_flags._flags", v->old ? "u2" : "u4", 28, 0);
	field("ConstMethod", "_code_size", "u2", v->code_size, 0);
	field("ConstantPool", "_source_file_name_index", "u2", 54, 0);
	field("PcDesc", "_pc_offset", "int", 0, 0);
	field("PcDesc", "_scope_decode_offset", "int", 4, 0);
	field("nmethod", "_scopes_pcs_offset", "int", v->pcs, 0);
	field("nmethod", "_orig_pc_offset", "int", v->kept, 0);
	if (v->old) {
		jdk = take(8);
		put(jdk, 17, 1);
		field("nmethod", "_dependencies_offset", "int", v->pcs_end, 0);
		field("CompiledMethod", "_scopes_data_begin", "address", v->scopes, 0);
		field("nmethod", "_metadata_offset", "int", v->metadata, 0);
		field("CompiledMethod", "_deopt_handler_begin", "address", v->deopt, 0);
		field("CompiledMethod", "_deopt_mh_handler_begin", "address", v->deopt_mh, 0);
		field("JDK_Version", "_current", "JDK_Version", 0, jdk);
		field("JDK_Version", "_major", "unsigned char", 0, 0);
	} else {
		field("nmethod", "_scopes_data_offset", "int", v->pcs_end, 0);
		field("nmethod", "_deopt_handler_offset", "int", v->deopt, 0);
		field("nmethod", "_deopt_mh_handler_offset", "int", v->deopt_mh, 0);
		field("nmethod", "_immutable_data", "address", v->scopes, 0);
		field("CodeBlob", "_mutable_data", "address", v->metadata, 0);
		field("CodeBlob", "_relocation_size", "int", 28, 0);
	}
	entries = take(40 * 6);
	put(exports[1], entries, 8);
	type("ConstantPool", 72);
	type("HeapBlock", v->block);
	type("ConstMethod", v->const_size);
	type("PcDesc", 16);
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

static uint64_t inner, outer, interpreter, interpreted;

static void put_machine(const struct version *version)
{
	uint64_t m, helper;

	begin(version);
	m = method("java/util/TreeMap", "put");
	helper = method("java/util/Help", "compare");
	inner = blob(0, 6, "nmethod", m, 6, BODY);
	put_code(inner);
	put_scopes(HEAP + v->block, inner, m, helper);
	m = method("Work", "texts");
	outer = blob(8, 6, "native nmethod", m, 6, BODY);
	put_code(outer);
	interpreted = method("Work", "run");
	interpreter = blob(20, 8, "Interpreter", 0, 0, -1);
	(void)blob(30, 4, "StubRoutines (1)", 0, 0, 0);
}

#endif
