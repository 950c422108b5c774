/*
 * tests/fuzz/fuzz_v8.c: fuzzes the reader of V8's functions. The input changes the heap of a sound V8
 * (tests/v8_heap.h) and the stack behind it: every three bytes and more are a place in two bytes, a length, and the
 * bytes that are written there; the first byte chooses whether reading is cut short, and the registers. Whatever is read: what is
 * written of frames is sound.
 */
#include "schema/calls_blob.h"
#include "tests/v8_heap.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { READS_MAX = 4000, FEW = 12 };

static volatile size_t sink;

/* Return where a place is, and how many bytes follow there. */
static uint8_t *place(size_t at, size_t *left)
{
	at %= heap.used + sizeof(words);
	*left = at < heap.used ? heap.used - at : heap.used + sizeof(words) - at;
	return at < heap.used ? heap.bytes + at : (uint8_t *)words + (at - heap.used);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct uw_regs regs = { .known = 0 };
	struct calls_sample sample = { .regs = &regs,
				       .addr = STACK,
				       .stack = (void *)words,
				       .size = sizeof(words),
				       .now = 1 };
	static const struct entry entries[] = { { 0, 0, 0 }, { 286, 5, 1 }, { 296, 8, 0 } };
	struct calls *calls = NULL;
	struct function f, g;
	struct call found;
	const void *blob;
	struct v8 *v;
	uint64_t at, table;
	size_t n;

	if (!size)
		return 0;
	begin();
	at = script("/app.js", joined(text("a\nb\n"), text("c\n"), 6));
	f = function(at, joined(text("x"), text("y"), 2), object(131, 4), 2, 3);
	g = function(at, text("g"), object(131, 4), 0, 1);
	memset(words, 0, sizeof(words));
	inline_into(&g, &f, translations, sizeof(translations));
	set_exit(&g, 1, 7, 0, 284);
	set_exit(&g, 2, 5, 19, 300);
	set(f.bytecode, 32, bytes(positions, sizeof(positions)));
	put_frame(20, &f, f.bytecode, 40,
		  g.pc + (data[0] & 2 ? 16u : 0u) + (data[0] & 0x20 ? 4u : 0u));
	words[15] = small(53 + 7);
	put_frame(50, &f, f.bytecode, 60, 0x1234);
	words[45] = feedback(&f);
	words[30] = STACK + 8 * 50;
	words[31] = baseline(&f) + 231;
	put_frame(40, &g, 0, 60, 0x1234);
	table = handlers();
	set_positions(&g, entries, 3, 5);
	heap.reads_max = data[0] & 1 ? FEW : READS_MAX;
	for (size_t i = 1; i + 3 <= size; i += n) {
		size_t left;
		uint8_t *to = place(data[i] | (size_t)data[i + 1] << 8, &left);

		n = data[i + 2];
		i += 3;
		n = n < size - i ? n : size - i;
		n = n < left ? n : left;
		memcpy(to, data + i, n);
	}
	regs.value[UW_X86_64_RIP] = data[0] & 4 ? HANDLERS + (data[0] & 0xc0) : f.pc;
	regs.value[UW_X86_64_RBP] = STACK + 8 * 20;
	regs.value[UW_X86_64_R9] = 53 + (data[0] >> 3 & 7);
	regs.value[UW_X86_64_R12] = f.bytecode;
	regs.value[UW_X86_64_R15] = table;
	if (v8_new(exports, &v))
		return 0;
	for (unsigned int i = 0; i < 2; i++, sample.now += UINT64_C(5000000000)) {
		heap.reads = 0;
		if (v8_calls(v, read_heap, NULL, &sample, &blob, &n))
			continue;
		if (!calls_are(blob, n) || calls_take(&calls, blob, n) == -EBADMSG)
			abort();
	}
	if (calls && calls_find(calls, g.pc, V8_KEY_PC, &found, 1))
		sink += strlen(found.function);
	calls_free(calls);
	v8_free(v);
	return 0;
}
