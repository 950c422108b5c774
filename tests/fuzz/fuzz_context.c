/*
 * tests/fuzz/fuzz_context.c: fuzzes the decoder of what threads say they work for. Byte 0: how many slices the
 * sample has; each is a byte for its address (the marks of agent/runtime/context.h, or the place of a record and
 * words near it), a byte for its number of words, and the words. The rest is the process context. Whatever a program
 * says, its labels are bounded, have names that are not offwind's own, and each name once.
 */
#include "agent/limits.h"
#include "agent/runtime/context.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define RECORD 0x7f0000001000u
enum { SLICES_MAX = 24 };

static const struct {
	uint64_t addr;
	bool is_pointer; /* its word is the record's place */
} places[] = {
	{ CONTEXT_SLOTS, false }, { CONTEXT_OTEL, false },   { CONTEXT_OTEL, true },
	{ CONTEXT_END, false },	  { RECORD, false },	     { RECORD + 24, false },
	{ RECORD + 20, false },	  { RECORD + 17, false },    { UINT64_MAX - 7, false },
	{ CONTEXT_GO_MAP, true }, { CONTEXT_GO_LIST, true },
};

/* Take slices from the input; the caller frees their bytes. Return how much of the input they took. */
static size_t take(const uint8_t *data, size_t size, struct uw_region *slices, uint32_t *n)
{
	const uint64_t record = RECORD;
	uint32_t wanted = size ? data[0] % SLICES_MAX : 0;
	size_t at = size ? 1 : 0;

	for (*n = 0; *n < wanted && size - at >= 2; (*n)++) {
		size_t place = data[at] % (sizeof(places) / sizeof(places[0]));
		size_t bytes = 8 * (size_t)data[at + 1];
		uint8_t *copy;

		at += 2;
		bytes = bytes < (size - at) / 8 * 8 ? bytes : (size - at) / 8 * 8;
		/* Its end is where memory ends. */
		copy = malloc(bytes ? bytes : 1);
		if (!copy)
			abort();
		memcpy(copy, data + at, bytes);
		if (places[place].is_pointer && bytes >= 8)
			memcpy(copy, &record, 8);
		slices[*n] = (struct uw_region){ places[place].addr, bytes, copy };
		at += bytes;
	}
	return at;
}

static void check(const struct labels *labels, const struct label_rules *rules)
{
	static struct label_item items[64];
	const char *text = labels->text;
	size_t n = 0;

	for (; n < 64 && labels_next(&text, &items[n]); n++) {
		const char *key = items[n].key;
		bool id = !strcmp(key, "trace_id") || !strcmp(key, "span_id");

		if (!labels_key_is_sound(key, strlen(key)) || !*items[n].value ||
		    (!id && label_rules_are_own(rules, key)))
			abort();
		for (size_t i = 0; i < n; i++)
			if (!strcmp(items[i].key, key))
				abort();
	}
	if (*text || n > limits.thread_labels + 2)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct label_rules *rules;
	static struct otel_context_keys keys;
	struct uw_region slices[SLICES_MAX];
	struct event_sample sample = { .slices = slices };
	struct labels labels = { .n = 0 };
	struct context_input in = { .sample = &sample, .keys = &keys };
	size_t at = take(data, size, slices, &sample.n_slices);
	uint8_t *payload = malloc(size - at ? size - at : 1);
	char error[LABELS_ERROR];
	enum context_state state;

	if (!payload || (!rules && (label_rules_new(&rules) ||
				    label_rules_add(rules, LABEL_DROP, "a*", error))))
		abort();
	memcpy(payload, data + at, size - at);
	in.payload = payload;
	otel_context_threads(payload, size - at, &keys);
	for (size_t i = 0; i < keys.n; i++)
		if (keys.keys[i].size &&
		    ((size_t)keys.keys[i].at + keys.keys[i].size > size - at ||
		     !labels_key_is_sound((const char *)payload + keys.keys[i].at,
					  keys.keys[i].size)))
			abort();
	in.rules = size & 1 ? rules : NULL;
	if (context_slices(&sample) > sample.n_slices)
		abort();
	state = context_decode(&in, &labels);
	if (state != CONTEXT_LABELS && state != CONTEXT_MISSING && labels.n)
		abort();
	check(&labels, in.rules);
	for (uint32_t i = 0; i < sample.n_slices; i++)
		free((void *)(uintptr_t)slices[i].bytes);
	free(payload);
	return 0;
}
