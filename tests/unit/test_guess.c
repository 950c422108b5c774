/*
 * tests/unit/test_guess.c: tests walks through code without rules, and through overwritten stacks.
 */
#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/check.h"
#include "unwinder/unwinder.h"

#define CODE  0x10000
#define STACK 0x70000
#define WORDS 64

static uint64_t words[WORDS];

static struct uw_space *space_of(uint8_t kind)
{
	struct uw_mapping m = {
		.start = CODE, .end = CODE + 0x10000, .prot = PROT_READ | PROT_EXEC, .kind = kind
	};
	struct uw_space *space = NULL;

	CHECK(uw_space_new(EM_X86_64, NULL, NULL, &space) == 0 && uw_space_map(space, &m) == 0,
	      "space");
	m = (struct uw_mapping){ .start = STACK,
				 .end = STACK + 0x10000,
				 .prot = PROT_READ | PROT_WRITE,
				 .kind = UW_MAPPING_ANON };
	CHECK(uw_space_map(space, &m) == 0, "stack");
	return space;
}

/*
 * Walk from (pc, sp = STACK, fp) over words[] at STACK. Return n_frames in the low byte, the stop
 * above it.
 */
#define ENDED(n, stop) ((n) | (stop) << 8)
static struct uw_frame frames[32];
static uint64_t stop_addr;

static int walk(uint8_t kind, uint64_t pc, uint64_t fp)
{
	struct uw_region region = { .addr = STACK, .size = sizeof(words), .bytes = (void *)words };
	struct uw_memory memory = { .regions = &region, .n_regions = 1 };
	struct uw_thread thread = { .read = uw_memory_read, .ctx = &memory };
	struct uw_stack stack = { .frames = frames, .max_frames = 32 };
	struct uw_space *space = space_of(kind);
	struct uw_worker *worker = NULL;

	CHECK(uw_worker_new(&worker) == 0, "worker");
	thread.regs.value[UW_X86_64_RIP] = pc;
	thread.regs.value[UW_X86_64_RSP] = STACK;
	thread.regs.value[UW_X86_64_RBP] = fp;
	thread.regs.known = 1 << UW_X86_64_RIP | 1 << UW_X86_64_RSP | 1 << UW_X86_64_RBP;
	uw_walk(space, worker, &thread, &stack);
	stop_addr = stack.stop_addr;
	uw_worker_free(worker);
	uw_space_free(space);
	return ENDED((int)stack.n_frames, (int)stack.stop);
}

static void frame_at(unsigned int word, uint64_t fp, uint64_t ra)
{
	words[word] = fp;
	words[word + 1] = ra;
}

static void test_frame_pointers(void)
{
	memset(words, 0, sizeof(words));
	frame_at(2, STACK + 8 * 10, CODE + 0x100);
	frame_at(10, STACK + 8 * 20, CODE + 0x200);
	frame_at(20, 0, CODE + 0x300);
	CHECK(walk(UW_MAPPING_ANON, CODE, STACK + 16) == ENDED(4, UW_STOP_GUESS_ENDED), "to fp 0");
	CHECK(frames[1].pc == CODE + 0x100 && frames[1].lookup == CODE + 0xff && !frames[1].exact &&
		      frames[1].stepper == UW_STEPPER_FP && frames[1].sp == STACK + 32,
	      "the caller");
	CHECK(frames[0].exact && frames[0].lookup == CODE && frames[0].cfa == STACK + 32,
	      "the first");
	frame_at(20, 0, 0);
	CHECK(walk(UW_MAPPING_FILE, CODE, STACK + 16) == ENDED(3, UW_STOP_NO_OBJECT), "to ra 0");
	CHECK(walk(UW_MAPPING_ANON, CODE, STACK + 16) == ENDED(3, UW_STOP_GUESS_ENDED),
	      "to ra 0 in code that was generated");
	CHECK(walk(UW_MAPPING_ANON, CODE, STACK + 8 * 20) == ENDED(1, UW_STOP_NO_UNWIND_INFO),
	      "frame 0's register may point to any zeros");
	CHECK(walk(UW_MAPPING_FILE, CODE, 0) == ENDED(1, UW_STOP_NO_OBJECT),
	      "fp 0 where code is missing");
	frame_at(20, STACK + 8 * 10, CODE + 0x300);
	CHECK(walk(UW_MAPPING_ANON, CODE, STACK + 16) == ENDED(3, UW_STOP_NO_UNWIND_INFO),
	      "a chain that turns back");
	frame_at(20, STACK + 8 * 30 + 4, CODE + 0x300);
	CHECK(walk(UW_MAPPING_FILE, CODE, STACK + 16) == ENDED(3, UW_STOP_NO_OBJECT),
	      "a chain that is not aligned");
	frame_at(20, STACK + 8 * 30, STACK);
	CHECK(walk(UW_MAPPING_ANON, CODE, STACK + 16) == ENDED(3, UW_STOP_NO_UNWIND_INFO),
	      "a return address that is no code");
	frame_at(20, STACK + 8 * WORDS, CODE + 0x300);
	CHECK(walk(UW_MAPPING_ANON, CODE, STACK + 16) == ENDED(4, UW_STOP_TRUNCATED) &&
		      stop_addr == STACK + 8 * WORDS,
	      "beyond what was captured");
	frame_at(20, STACK + ((uint64_t)64 << 20), CODE + 0x300);
	CHECK(walk(UW_MAPPING_ANON, CODE, STACK + 16) == ENDED(4, UW_STOP_NO_UNWIND_INFO),
	      "beyond any stack");
	CHECK(walk(UW_MAPPING_ANON, CODE, STACK - 8) == ENDED(1, UW_STOP_NO_UNWIND_INFO),
	      "below sp");
}

static void test_calls_into_nowhere(void)
{
	memset(words, 0, sizeof(words));
	words[0] = CODE + 0x100;
	frame_at(2, 0, CODE + 0x200);
	CHECK(walk(UW_MAPPING_ANON, 0, STACK + 16) == ENDED(3, UW_STOP_GUESS_ENDED),
	      "of address 0");
	CHECK(frames[0].pc == 0 && !frames[0].mapping && frames[1].pc == CODE + 0x100 &&
		      frames[1].stepper == UW_STEPPER_LEAF,
	      "the word at sp is the caller");
	CHECK(walk(UW_MAPPING_ANON, STACK + 64, STACK + 16) == ENDED(3, UW_STOP_GUESS_ENDED),
	      "of data");
	words[0] = 0x1234;
	CHECK(walk(UW_MAPPING_ANON, 0, STACK + 16) == ENDED(1, UW_STOP_NO_MAPPING), "from nowhere");
}

static void test_no_registers(void)
{
	struct uw_thread thread = { .read = uw_memory_read };
	struct uw_stack stack = { .frames = frames, .max_frames = 32, .n_frames = 7 };
	struct uw_space *space = space_of(UW_MAPPING_ANON);
	struct uw_worker *worker = NULL;

	CHECK(uw_worker_new(&worker) == 0, "worker");
	uw_walk(space, worker, &thread, &stack);
	CHECK(stack.stop == UW_STOP_NO_USER_STATE && stack.n_frames == 0, "no pc, no frames");
	uw_worker_free(worker);
	uw_worker_free(NULL);
	uw_space_free(space);
}

static void test_memory(void)
{
	static const uint8_t a[] = { 1, 2, 3, 4 }, b[] = { 5, 6, 7, 8 };
	struct uw_region regions[] = { { .addr = 0x104, .size = 4, .bytes = b },
				       { .addr = 0x100, .size = 4, .bytes = a } };
	struct uw_memory memory = { .regions = regions, .n_regions = 2 };
	uint8_t out[8] = { 0 };

	CHECK(uw_memory_read(&memory, 0x100, out, 8) == 0 && !memcmp(out, "\1\2\3\4\5\6\7\10", 8),
	      "across two regions that meet");
	CHECK(uw_memory_read(&memory, 0x101, out, 8) == -EFAULT, "not all of it is there");
	CHECK(uw_memory_read(&memory, 0xff, out, 2) == -EFAULT, "before them");
	CHECK(uw_memory_read(&memory, UINT64_MAX, out, 2) == -EFAULT, "the end of all");
	CHECK(uw_memory_read(&memory, 0x102, out, 1) == 0 && out[0] == 3, "one byte");
}

static void test_every_stop_has_words(void)
{
	for (unsigned int i = 0; i < UW_STOP_N; i++)
		CHECK(uw_stop_name(i)[0] && uw_stop_sentence(i)[0], "stop");
	for (unsigned int i = 0; i < UW_STEPPER_N; i++)
		CHECK(uw_stepper_name(i)[0], "stepper");
	CHECK(!strcmp(uw_stop_name(UW_STOP_N), "unknown"), "beyond the last");
}

int main(void)
{
	test_frame_pointers();
	test_calls_into_nowhere();
	test_no_registers();
	test_memory();
	test_every_stop_has_words();
	return check_done();
}
