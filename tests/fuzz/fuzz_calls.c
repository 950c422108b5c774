/*
 * tests/fuzz/fuzz_calls.c: fuzzes the table of what frames execute (schema/calls_blob.h), which a capture file
 * has. The input is one blob after another, each with its size in the four bytes before; a size beyond the end
 * is the rest. Whatever they say, each text ends, and a walked frame gets at most the calls it asks for.
 */
#include "agent/process/calls.h"
#include "schema/calls_blob.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BLOBS_MAX = 8, MAX = 4 };

static volatile size_t sink;

/* Look up the first frames of a blob, and one that a walk found. */
static void use(const struct calls *calls, const uint8_t *blob, size_t size)
{
	static uint64_t words[16];
	struct uw_region region = { .addr = 0x1000, .size = sizeof(words), .bytes = (void *)words };
	struct uw_memory captured = { .regions = &region, .n_regions = 1 };
	struct uw_thread thread = { .read = uw_memory_read, .ctx = &captured };
	const struct calls_interpreter *in = calls_interpreter_of(calls);
	struct uw_frame frame = { .pc = in->start, .cfa = 0x1000 + 64, .sp = 0x1000 };
	struct call found[MAX];
	struct calls_frame first;
	size_t n;

	if (size < sizeof(struct calls_header) + sizeof(first))
		return;
	memcpy(&first, blob + sizeof(struct calls_header), sizeof(first));
	n = calls_find(calls, first.key[0], first.key[1], found, MAX);
	for (size_t i = 0; i < n && i < MAX; i++)
		sink += strlen(found[i].function) + (found[i].file ? strlen(found[i].file) : 0);
	for (size_t i = 0; i < 16; i++)
		words[i] = first.key[i & 1];
	thread.regs.known = UINT64_MAX;
	thread.regs.value[in->reg >= 0 ? in->reg : 0] = first.key[1];
	sink += calls_of_frame(calls, &frame, &thread, true, found, MAX);
	frame.pc = first.key[0];
	sink += calls_of_frame(calls, &frame, &thread, false, found, MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct calls *calls = NULL;

	for (unsigned int i = 0; i < BLOBS_MAX && size >= 4; i++) {
		uint32_t n;
		uint8_t *blob;
		int err;

		memcpy(&n, data, sizeof(n));
		data += sizeof(n);
		size -= sizeof(n);
		n = n < size ? n : (uint32_t)size;
		/* The end of the blob is where the memory ends. */
		blob = malloc(n ? n : 1);
		if (!blob)
			break;
		memcpy(blob, data, n);
		err = calls_are(blob, n) ? calls_take(&calls, blob, n) : -EBADMSG;
		if (err && err != -EBADMSG && err != -ENOTSUP && err != -ENOMEM)
			abort();
		if (calls)
			use(calls, blob, n);
		free(blob);
		data += n;
		size -= n;
	}
	calls_free(calls);
	return 0;
}
