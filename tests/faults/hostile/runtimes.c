/*
 * tests/faults/hostile/runtimes.c: says that it is a Java virtual machine or V8, and lies about its code and objects. It
 * runs from a copy that is named as these are (cases.py), because a profiler looks for their symbols in such files.
 */
#include "attack.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

enum {
	HEAP = 64 << 20,   /* bytes of code that may be looked at */
	SEGMENT = 16,	   /* bytes of code for each byte of the heap's map */
	STACK = 64 << 10,  /* bytes of forged stack */
	CHAIN = 128 << 10, /* bytes before an address in which V8's code is looked for */
	OBJECTS = 4096,
	SOURCE = 8 << 20,
};

static uint8_t *code;

/* Addresses that lead nowhere, or where nobody should read. */
static const uint64_t wild[] = { 0,
				 1,
				 8,
				 0x10001,
				 UINT32_MAX,
				 0x7ffffffff000,
				 0x7fffffffffff,
				 0x800000000001,
				 0x8000000000000000,
				 0xffff888000000000,
				 0xffffffff81000000,
				 0xffffffffff600000,
				 UINT64_MAX - 7,
				 UINT64_MAX };

static uint64_t next_random(void)
{
	static uint64_t state = 88172645463325252;

	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

static uint64_t address(const volatile void *at)
{
	return (uint64_t)(uintptr_t)at;
}

static void *memory(size_t size)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED)
		fail("mmap");
	return at;
}

/* Run the code at pc below a stack whose words a function gave. The stack stays as it is. */
static __attribute__((noinline)) void run_below(uint64_t (*word)(size_t i), void *pc)
{
	volatile uint64_t words[STACK / 8];

	for (size_t i = 0; i < STACK / 8; i++)
		words[i] = word(i);
	run_code(pc);
	(void)words[0];
}

/* Write over n words without pause. */
struct churn {
	volatile uint64_t *words;
	size_t n;
};

static void *write_over(void *arg)
{
	const struct churn *c = arg;
	uint64_t whole[1024];
	const size_t n = c->n < 1024 ? c->n : 1024;

	for (size_t i = 0; i < n; i++)
		whole[i] = c->words[i];
	for (;;) {
		size_t i = next_random() % n;
		uint64_t how = next_random() % 4;

		c->words[i] = how == 0	 ? wild[next_random() % (sizeof(wild) / sizeof(wild[0]))]
			      : how == 1 ? address(&c->words[next_random() % n])
			      : how == 2 ? next_random()
					 : whole[i];
		if (next_random() % 64 == 0)
			pause_ms(1);
	}
	return NULL;
}

static void churn(volatile void *words, size_t size)
{
	static struct churn all[8];
	static size_t n;
	pthread_t thread;

	all[n] = (struct churn){ words, size / 8 };
	if (pthread_create(&thread, NULL, write_over, &all[n++]))
		fail("thread");
}

/* ---- HotSpot: src/hotspot/share/runtime/vmStructs.hpp ---------------------------------------- */

struct vm_struct {
	const char *type, *field, *of;
	int is_static;
	uint64_t offset;
	const volatile void *at;
};

struct vm_type {
	const char *name, *super;
	int flags[4];
	uint64_t size;
};

/* All that leads to code: one word for each field. Each is an offset in the object that a pointer leads to. */
enum {
	AT_LEN = 0,
	AT_DATA = 8,
	AT_LOW = 0,
	AT_HIGH = 8,
	AT_LOW_EDGE = 16,
	AT_HIGH_EDGE = 24,
	AT_MEMORY = 0,
	AT_SEGMAP = 32,
	AT_LOG2 = 64,
	BLOCK = 16,
};

static volatile struct machine {
	uint64_t array; /* CodeCache::_heaps */
	uint64_t growable[2];
	uint64_t heaps[1024];
	struct {
		uint64_t memory[4], map[4], log2;
	} heap;
	uint64_t circle[64]; /* a method, and all that it leads to */
	uint64_t call_return, version;
} jvm;

static const struct vm_struct fields[] = {
	{ "CodeCache", "_heaps", "", 1, 0, &jvm.array },
	{ "GrowableArrayBase", "_len", "int", 0, AT_LEN, NULL },
	{ "GrowableArray<int>", "_data", "", 0, AT_DATA, NULL },
	{ "CodeHeap", "_memory", "VirtualSpace", 0, AT_MEMORY, NULL },
	{ "CodeHeap", "_segmap", "VirtualSpace", 0, AT_SEGMAP, NULL },
	{ "CodeHeap", "_log2_segment_size", "int", 0, AT_LOG2, NULL },
	{ "VirtualSpace", "_low", "", 0, AT_LOW, NULL },
	{ "VirtualSpace", "_high", "", 0, AT_HIGH, NULL },
	{ "VirtualSpace", "_low_boundary", "", 0, AT_LOW_EDGE, NULL },
	{ "VirtualSpace", "_high_boundary", "", 0, AT_HIGH_EDGE, NULL },
	{ "HeapBlock::Header", "_used", "bool", 0, 8, NULL },
	{ "CodeBlob", "_name", "", 0, 0, NULL },
	{ "CodeBlob", "_size", "int", 0, 8, NULL },
	{ "CodeBlob", "_frame_complete_offset", "int", 0, 12, NULL },
	{ "CodeBlob", "_frame_size", "int", 0, 16, NULL },
	{ "CodeBlob", "_data_offset", "int", 0, 20, NULL },
	{ "CodeBlob", "_code_offset", "int", 0, 24, NULL },
	{ "nmethod", "_method", "", 0, 32, NULL },
	{ "nmethod", "_compile_id", "int", 0, 28, NULL },
	{ "Method", "_constMethod", "", 0, 0, NULL },
	{ "ConstMethod", "_constants", "", 0, 0, NULL },
	{ "ConstMethod", "_name_index", "u2", 0, 8, NULL },
	{ "ConstantPool", "_pool_holder", "", 0, 0, NULL },
	{ "Klass", "_name", "", 0, 0, NULL },
	{ "Symbol", "_length", "u2", 0, 16, NULL },
	{ "Symbol", "_body", "u1", 0, 24, NULL },
	{ "StubRoutines", "_call_stub_return_address", "", 1, 0, &jvm.call_return },
	{ "ConstMethod", "_code_size", "u2", 0, 16, NULL },
	{ "ConstMethod", "_flags", "u1", 0, 18, NULL },
	{ "ConstantPool", "_source_file_name_index", "u2", 0, 8, NULL },
	{ "PcDesc", "_pc_offset", "int", 0, 0, NULL },
	{ "PcDesc", "_scope_decode_offset", "int", 0, 4, NULL },
	{ "nmethod", "_scopes_pcs_offset", "int", 0, 40, NULL },
	{ "nmethod", "_dependencies_offset", "int", 0, 44, NULL },
	{ "CompiledMethod", "_scopes_data_begin", "", 0, 48, NULL },
	{ "nmethod", "_metadata_offset", "int", 0, 56, NULL },
	{ NULL, NULL, NULL, 0, 0, NULL },
};

static const struct vm_type types[] = {
	{ "ConstantPool", NULL, { 0 }, 16 },
	{ "HeapBlock", NULL, { 0 }, BLOCK },
	{ "ConstMethod", NULL, { 0 }, 24 },
	{ "PcDesc", NULL, { 0 }, 16 },
	{ NULL, NULL, { 0 }, 0 },
};

const void *gHotSpotVMStructs, *gHotSpotVMTypes;

/* What stands at the beginning of a piece of code. */
static void put_block(uint8_t *at, uint32_t size, uint64_t method)
{
	const uint64_t name = address("nmethod");
	const uint32_t head[] = { size, 0, 32, size, 256, 1 };

	at[8] = 1;
	memcpy(at + BLOCK, &name, 8);
	memcpy(at + BLOCK + 8, head, sizeof(head));
	memcpy(at + BLOCK + 32, &method, 8);
}

/* One heap of code. Its map has the same byte everywhere, but for the first. */
static void put_heap(uint8_t map_byte)
{
	uint8_t *map = memory(HEAP / SEGMENT);

	code = new_code(HEAP, 0);
	if (map_byte)
		memset(map + 1, map_byte, HEAP / SEGMENT - 1);
	memmove(code + HEAP / 2, code, 16);
	jvm.heap.memory[0] = jvm.heap.memory[2] = address(code);
	jvm.heap.memory[1] = jvm.heap.memory[3] = address(code) + HEAP;
	jvm.heap.map[0] = address(map);
	jvm.heap.log2 = 4;
	for (size_t i = 0; i < 1024; i++)
		jvm.heaps[i] = address(&jvm.heap);
	jvm.growable[0] = 1;
	jvm.growable[1] = address(jvm.heaps);
	jvm.array = address(jvm.growable);
	for (size_t i = 0; i < 64; i++)
		jvm.circle[i] = address(jvm.circle);
	jvm.call_return = address(code) + HEAP / 2 + 1;
	gHotSpotVMStructs = fields;
	gHotSpotVMTypes = types;
}

static uint64_t word_of_code(size_t i)
{
	return address(code) + HEAP - 1 - i * 8 % (HEAP / 2);
}

static void run_java(void)
{
	ready();
	run_below(word_of_code, code + HEAP / 2);
}

/* Each piece of the map leads to the one before; a method, its names and its class are one object. */
static void jvm_circle(char **args)
{
	(void)args;
	put_heap(1);
	put_block(code, HEAP - SEGMENT, address(jvm.circle));
	run_java();
}

/* All pointers lead nowhere, each time to another place. */
static void jvm_wild(char **args)
{
	volatile uint64_t *words = (volatile uint64_t *)&jvm;

	(void)args;
	put_heap(0);
	for (size_t i = 0; i + BLOCK + 64 < HEAP / 2; i += 128)
		put_block(code + i, 112, wild[i / 128 % (sizeof(wild) / sizeof(wild[0]))]);
	ready();
	for (size_t i = 0;; i++) {
		const size_t at = i % (offsetof(struct machine, circle) / 8);
		const uint64_t was = words[at];

		words[at] = wild[i / 64 % (sizeof(wild) / sizeof(wild[0]))];
		for (int k = 0; k < 8; k++)
			work();
		words[at] = was;
	}
}

/* 2^32 heaps of 2^62 bytes, in which each piece of 16 bytes is code of 4 GB, and tables without an end. */
static void jvm_huge(char **args)
{
	static struct vm_struct endless[8200];
	static struct vm_type more[8200];

	(void)args;
	put_heap(0);
	for (size_t i = 0; i < 8200; i++) {
		endless[i] = fields[i % (sizeof(fields) / sizeof(fields[0]) - 1)];
		more[i] = types[i % 3];
	}
	for (size_t i = 0; i + SEGMENT < HEAP / 2; i += SEGMENT) {
		code[i + 8] = 1;
		memset(code + i, 0xff, 8);
	}
	jvm.growable[0] = UINT32_MAX;
	jvm.heap.memory[1] = jvm.heap.memory[3] = UINT64_C(1) << 62;
	gHotSpotVMStructs = endless;
	gHotSpotVMTypes = more;
	run_java();
}

/* 16,384 methods with names of 64 KB and lines without an end. */
static void jvm_names(char **args)
{
	(void)args;
	put_heap(0xff);
	for (size_t i = 0; i < 16384; i++) {
		uint64_t *method = memory(128 << 10);

		memset(method, 0x41 + (int)(i % 26), 128 << 10);
		for (size_t k = 0; k < 16; k++)
			method[k] = address(method);
		method[2] = 0x01ffff; /* a length, a size of bytecode, and the flag for lines */
		put_block(code + i * 128, 112, address(method));
		((uint8_t *)(uintptr_t)jvm.heap.map[0])[i * 8] = 0;
	}
	run_java();
}

/* 4,096 pieces of code without frames that all have the place where methods return to native code. */
static void jvm_overlap(char **args)
{
	(void)args;
	put_heap(0xff);
	for (uint32_t i = 0; i < 4096; i++) {
		uint8_t *block = code + 128 * (size_t)i;

		put_block(block, HEAP - 128 * i - BLOCK, address(jvm.circle));
		memset(block + BLOCK + 16, 0, 4);
		((uint8_t *)(uintptr_t)jvm.heap.map[0])[i * 8] = 0;
	}
	run_java();
}

/* Everything changes while it is read. */
static void jvm_changing(char **args)
{
	(void)args;
	put_heap(0xff);
	for (size_t i = 0; i < 1024; i++) {
		put_block(code + i * 128, 112, address(jvm.circle));
		((uint8_t *)(uintptr_t)jvm.heap.map[0])[i * 8] = 0;
	}
	churn(&jvm, sizeof(jvm));
	churn((void *)(uintptr_t)jvm.heap.map[0], 8192);
	churn(code, 8192);
	run_java();
}

/* ---- V8: tools/gen-postmortem-metadata.py ------------------------------------------------------ */

enum type { NO_STRING = 128, SHARED = 300, SCOPE, SCRIPT, BYTECODE, STREAM, CODE, BYTES };

#define V8(name, value) const int32_t v8dbg_##name = value
V8(TaggedSize, 8);
V8(off_fp_context, -8);
V8(off_fp_function, -16);
V8(off_fp_bytecode_array, -32);
V8(class_JSFunction__context__Context, 32);
V8(class_JSFunction__shared__SharedFunctionInfo, 24);
V8(class_SharedFunctionInfo__name_or_scope_info__Object, 16);
V8(class_SharedFunctionInfo__function_data__Object, 8);
V8(class_SharedFunctionInfo__script_or_debug_info__HeapObject, 24);
V8(class_Script__name__Object, 16);
V8(class_Script__source__Object, 8);
V8(class_Map__instance_type__uint16_t, 12);
V8(class_String__length__int32_t, 12);
V8(class_SeqOneByteString__chars__char, 16);
V8(class_ConsString__first__String, 16);
V8(class_ConsString__second__String, 24);
V8(class_ThinString__actual__String, 16);
V8(class_SlicedString__parent__String, 16);
V8(class_SlicedString__offset__SMI, 24);
V8(class_ExternalString__resource__Object, 16);
V8(type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE, SHARED);
V8(type_ScopeInfo__SCOPE_INFO_TYPE, SCOPE);
V8(type_Script__SCRIPT_TYPE, SCRIPT);
V8(type_BytecodeArray__BYTECODE_ARRAY_TYPE, BYTECODE);
V8(FirstNonstringType, NO_STRING);
V8(scopeinfo_idx_ncontextlocals, 2);
V8(scopeinfo_idx_first_vars, 3);
V8(context_idx_prev, 1);
V8(type_InstructionStream__INSTRUCTION_STREAM_TYPE, STREAM);
V8(type_Code__CODE_TYPE, CODE);
V8(class_Code__deoptimization_data__FixedArray, 8);
V8(class_FixedArray__data__uintptr_t, 16);
V8(class_Code__bytecode_or_interpreter_data__HeapObject, 16);
V8(DeoptimizationDataSharedFunctionInfoIndex, 2);
V8(class_InstructionStream__instruction_start__uintptr_t, 16);
V8(class_BytecodeArray__data__uintptr_t, 54);
V8(type_ByteArray__BYTE_ARRAY_TYPE, BYTES);
/* Of this version it is known where functions have their positions. */
const int32_t v8_major __asm__("_ZN2v88internal7Version6major_E") = 11;
const int32_t v8_minor __asm__("_ZN2v88internal7Version6minor_E") = 3;

/* The kinds of strings: types below NO_STRING. */
enum { STRING_PLAIN = 8, STRING_CONS = 9, STRING_SLICED = 11, STRING_THIN = 13 };

struct object {
	uint64_t words[8];
};

static volatile struct {
	struct object maps[512]; /* by type */
	struct object shared[OBJECTS], scopes[OBJECTS], scripts[OBJECTS], bytecodes[OBJECTS],
		functions[OBJECTS];
	struct object text, source;
} heap;
static uint64_t positions; /* of each function; 0: there are none */
static uint64_t frames;	   /* where the forged frames begin */
static size_t n_functions = 1;
#define POSITIONS (256u << 10) /* bytes, all of them 0: of the same place */

static uint64_t tagged(const volatile void *object)
{
	return address(object) + 1;
}

static void put_object(volatile struct object *o, unsigned int type)
{
	heap.maps[type].words[1] = (uint64_t)type << 32;
	o->words[0] = tagged(&heap.maps[type]);
}

/* Functions, each with a script, whose texts are the two strings. */
static void put_functions(size_t n)
{
	n_functions = n;
	for (size_t i = 0; i < n; i++) {
		put_object(&heap.functions[i], 1000 % 512);
		put_object(&heap.shared[i], SHARED);
		put_object(&heap.scopes[i], SCOPE);
		put_object(&heap.scripts[i], SCRIPT);
		put_object(&heap.bytecodes[i], BYTECODE);
		heap.functions[i].words[3] = tagged(&heap.shared[i]);
		heap.functions[i].words[4] = tagged(&heap.functions[i]);
		heap.shared[i].words[1] = tagged(&heap.bytecodes[i]);
		heap.shared[i].words[2] = tagged(&heap.scopes[i]);
		heap.shared[i].words[3] = tagged(&heap.scripts[i]);
		heap.scripts[i].words[1] = tagged(&heap.source);
		heap.scripts[i].words[2] = tagged(&heap.text);
		heap.scopes[i].words[4] = tagged(&heap.text);
		heap.scopes[i].words[5] = 0;
		heap.bytecodes[i].words[4] = positions;
	}
}

/* Interpreted frames, each of which is called by the next: 8 words for each. */
static uint64_t word_of_frames(size_t i)
{
	const size_t k = i / 8 % n_functions;

	if (!i)
		frames = 0;
	switch (i % 8) {
	case 0: /* where in the bytecode: each frame elsewhere */
		return (uint64_t)(64 + i / 8) << 32;
	case 1:
		return tagged(&heap.bytecodes[k]);
	case 3:
	case 4:
		return tagged(&heap.functions[k]);
	case 5:
		return frames;
	case 6:
		return address(code) + i;
	default:
		return 0;
	}
}

/* The same below a stack whose place is known: each saved rbp leads to the next frame. */
static __attribute__((noinline)) void run_frames(void)
{
	volatile uint64_t words[STACK / 8];

	for (size_t i = 0; i < STACK / 8; i++) {
		frames = address(&words[i + 8]);
		words[i] = word_of_frames(i);
	}
	run_code(code);
	(void)words[0];
}

static void run_javascript(void)
{
	if (!code)
		code = new_code(4096, 0);
	ready();
	run_frames();
}

/* Strings that consist of themselves, in scripts that are called by them. */
static void v8_circle(char **args)
{
	(void)args;
	put_object(&heap.text, STRING_CONS);
	put_object(&heap.source, STRING_SLICED);
	for (size_t i = 2; i < 4; i++) {
		heap.text.words[i] = tagged(&heap.text);
		heap.source.words[i] = tagged(&heap.source);
	}
	heap.text.words[1] = heap.source.words[1] = (uint64_t)1000 << 32;
	put_functions(OBJECTS);
	run_javascript();
}

/* Each field of each object leads nowhere, each time to another place. */
static void v8_wild(char **args)
{
	(void)args;
	put_object(&heap.text, STRING_THIN);
	put_object(&heap.source, STRING_PLAIN);
	put_functions(OBJECTS);
	for (size_t i = 0; i < OBJECTS; i++) {
		const uint64_t nowhere = wild[i % (sizeof(wild) / sizeof(wild[0]))];

		heap.functions[i].words[3 + i % 2] = nowhere;
		heap.shared[i].words[i / 2 % 4] = nowhere;
		heap.scripts[i].words[i / 8 % 3] = nowhere;
		heap.scopes[i].words[4] = nowhere;
	}
	run_javascript();
}

/* 4,096 scripts of 2^31 characters, each of which ends a line, and positions of each that end far behind what is looked for. */
static void v8_huge(char **args)
{
	uint8_t *source = memory(SOURCE), *table = memory(POSITIONS + 16);

	(void)args;
	memset(source, '\n', SOURCE);
	put_object(&heap.text, STRING_PLAIN);
	heap.text.words[1] = (uint64_t)UINT32_MAX << 32;
	put_object((volatile struct object *)table, BYTES);
	((uint64_t *)(void *)table)[1] = (uint64_t)POSITIONS << 32;
	positions = tagged(table);
	put_functions(OBJECTS);
	for (size_t i = 0; i < OBJECTS; i++) {
		volatile struct object *text = (volatile struct object *)(source + 1024 * i);

		put_object(text, STRING_PLAIN);
		text->words[1] = (uint64_t)INT32_MAX << 32;
		heap.scripts[i].words[1] = tagged(text);
		heap.scopes[i].words[3] = (uint64_t)i << 32;
	}
	run_javascript();
}

/* Every word of a stack may be a frame, and every word before its address may begin the code. */
static uint64_t word_of_search(size_t i)
{
	return i % 2 ? address(code) + CHAIN + i * 4 : frames;
}

static __attribute__((noinline)) void run_search(void)
{
	volatile uint64_t words[STACK / 8];

	frames = address(&words[STACK / 8 - 8]);
	for (size_t i = 0; i < STACK / 8; i++)
		words[i] = word_of_search(i);
	words[STACK / 8 - 9] = words[STACK / 8 - 10] = tagged(&heap.functions[0]);
	run_code(code);
	(void)words[0];
}

static void v8_search(char **args)
{
	uint64_t *words;

	(void)args;
	put_functions(1);
	code = new_code(1 << 20, 0);
	words = (uint64_t *)(void *)code;
	for (size_t i = 2; i < (1 << 20) / 8; i++)
		words[i] = tagged(&heap.maps[0]);
	ready();
	run_search();
}

/* Everything changes while it is read. */
static void v8_changing(char **args)
{
	(void)args;
	put_object(&heap.text, STRING_CONS);
	put_object(&heap.source, STRING_PLAIN);
	put_functions(64);
	churn(&heap.text, 2 * sizeof(heap.text));
	churn(&heap.shared, 64 * sizeof(heap.text));
	churn(&heap.scopes, 64 * sizeof(heap.text));
	churn(&heap.scripts, 64 * sizeof(heap.text));
	churn(&heap.maps[SHARED], 16 * sizeof(heap.text));
	run_javascript();
}

int main(int argc, char **argv)
{
	static const struct attack attacks[] = {
		{ "jvm-circle", 0, jvm_circle },   { "jvm-wild", 0, jvm_wild },
		{ "jvm-huge", 0, jvm_huge },	   { "jvm-names", 0, jvm_names },
		{ "jvm-overlap", 0, jvm_overlap }, { "jvm-changing", 0, jvm_changing },
		{ "v8-circle", 0, v8_circle },	   { "v8-wild", 0, v8_wild },
		{ "v8-huge", 0, v8_huge },	   { "v8-search", 0, v8_search },
		{ "v8-changing", 0, v8_changing },
	};

	return attack_main(argc, argv, attacks, sizeof(attacks) / sizeof(attacks[0]));
}
