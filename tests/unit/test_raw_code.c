/* tests/unit/test_raw_code.c: tests which code of large files is noted for a capture. */
#include "agent/cmd/record/raw_code.h"

#include "agent/process/module.h"
#include "tests/check.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LARGE UINT64_C(0x7f0000000000) /* 4 MiB of code, from 0x2000 of its file on */
#define SMALL UINT64_C(0x7f0010000000) /* 1 MiB, which is stored anyway */
#define STACK UINT64_C(0x7ffd00000000)

static struct module large = { .id = 3, .kind = MODULE_FILE };
static struct module small = { .id = 4, .kind = MODULE_FILE };

static struct thread thread_of(bool generates, uint64_t large_off)
{
	struct thread thread = { .tid = 1, .pid = 1, .generates = generates, .files = 1 };
	struct uw_mapping maps[] = {
		{ .start = LARGE,
		  .end = LARGE + (4 << 20),
		  .off = large_off,
		  .prot = PROT_READ | PROT_EXEC,
		  .user = &large },
		{ .start = SMALL,
		  .end = SMALL + SYM_CODE_MAX,
		  .prot = PROT_READ | PROT_EXEC,
		  .user = &small },
	};

	CHECK(!uw_space_new(EM_X86_64, NULL, NULL, &thread.space), "a space");
	CHECK(!uw_space_map(thread.space, &maps[0]) && !uw_space_map(thread.space, &maps[1]),
	      "mappings");
	return thread;
}

/* Note a sample with this pc and these words on its stack, which begins at an odd address. */
static void note(struct raw_code *code, const struct thread *thread, uint64_t pc,
		 const uint64_t *words, size_t n)
{
	uint8_t bytes[3 + 64];
	struct uw_region region = { .addr = STACK - 3, .size = 3 + 8 * n, .bytes = bytes };
	struct event_sample sample = { .has_user_regs = true, .regions = &region, .n_regions = 1 };

	memset(bytes, 0xff, 3);
	if (n)
		memcpy(bytes + 3, words, 8 * n);
	sample.regs.known = 1 << 16; /* rip, as DWARF numbers it */
	sample.regs.value[16] = pc;
	raw_code_sample(code, thread, &sample);
}

static void test_return_addresses_are_noted_where_code_is_generated(void)
{
	const uint64_t words[] = { LARGE + 0x1000, LARGE + 0x1108, SMALL + 64, 1,
				   LARGE + (4 << 20) };
	struct thread thread = thread_of(true, 0x2000);
	struct raw_code *code = NULL;
	struct sym_part *parts;
	size_t n;

	CHECK(!raw_code_new(&code), "new");
	note(code, &thread, LARGE + 0x20080, words, 5);
	parts = raw_code_parts(code, large.id, NULL, &n);
	CHECK(n == 3, "three parts");
	/* 16 bytes before the first word are in the piece of 256 bytes below it; the second word is next to it. */
	CHECK(n == 3 && parts[0].start == 0x2f00 && parts[0].end == 0x3200, "words");
	CHECK(n == 3 && parts[1].start == 0x22000 && parts[1].end == 0x22100, "the pc");
	CHECK(n == 3 && parts[2].start == 0x401f00 && parts[2].end == 0x402100,
	      "where the mapping ends");
	free(parts);
	CHECK(!raw_code_parts(code, small.id, NULL, &n) && !n, "small files are stored whole");
	raw_code_join(code, 70, large.id);
	parts = raw_code_parts(code, 70, NULL, &n);
	CHECK(n == 3 && parts[1].start == 0x22000, "joined");
	free(parts);
	raw_code_free(code);
	uw_space_free(thread.space);
}

static void test_only_the_pc_is_noted_elsewhere(void)
{
	const uint64_t word = LARGE + 0x1000;
	struct thread thread = thread_of(false, 0);
	struct raw_code *code = NULL;
	struct sym_part *parts;
	size_t n;

	CHECK(!raw_code_new(&code), "new");
	note(code, &thread, LARGE + 0x4080, &word, 1);
	note(code, &thread, SMALL, &word, 1);
	note(code, &thread, 0, &word, 1);
	parts = raw_code_parts(code, large.id, NULL, &n);
	CHECK(n == 1 && parts[0].start == 0x4000 && parts[0].end == 0x4100, "the pc");
	free(parts);
	raw_code_free(code);
	uw_space_free(thread.space);
}

static void test_what_is_noted_is_bounded(void)
{
	const uint64_t off = ((uint64_t)4 << 30) - 0x1000; /* the last offsets that are noted */
	struct thread thread = thread_of(true, off);
	struct raw_code *code = NULL;
	struct sym_part *parts;
	size_t n;

	CHECK(!raw_code_new(&code), "new");
	for (uint64_t i = 0; i < 4 << 20; i += 256)
		note(code, &thread, LARGE + i + 128, NULL, 0);
	parts = raw_code_parts(code, large.id, NULL, &n);
	CHECK(n == 1 && parts[0].start == off && parts[0].end == off + 0x1000, "offsets");
	free(parts);
	uw_space_free(thread.space);

	thread = thread_of(true, 0);
	for (uint32_t id = 100; id < 110; id++) {
		thread.pid = large.id = id; /* 16,384 pieces each */
		for (uint64_t i = 0; i < 4 << 20; i += 256)
			note(code, &thread, LARGE + i + 128, NULL, 0);
	}
	parts = raw_code_parts(code, 100, NULL, &n);
	CHECK(n == 1 && parts[0].end == 4 << 20, "the first files");
	free(parts);
	CHECK(!raw_code_parts(code, 109, NULL, &n) && !n, "no more than 32 MiB");
	large.id = 3;
	raw_code_free(code);
	uw_space_free(thread.space);
}

int main(void)
{
	test_return_addresses_are_noted_where_code_is_generated();
	test_only_the_pc_is_noted_elsewhere();
	test_what_is_noted_is_bounded();
	return check_done();
}
