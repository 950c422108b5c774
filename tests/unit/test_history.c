/*
 * tests/unit/test_history.c: tests walks that take callers over from the walk before. They go along
 * a chain of frame pointers, in code without a file, up to this program's own _start, which has no
 * caller: callers that are the same, that changed, and that are forgotten.
 */
#include "unwinder/unwinder.h"

#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/check.h"

#ifdef __x86_64__

enum { DEPTH = 100, WORDS = 4 * DEPTH + 8, CODE = 0x10000, STACK = 0x7f0000001000 };

/*
 * A frame has four words: the caller's frame pointer, the return address, and two that do not
 * matter.
 */
struct sample {
	uint64_t words[WORDS];
	struct uw_region region;
	struct uw_memory memory;
	struct uw_thread thread;
};

static struct uw_space *space;
static struct uw_worker *worker;
static uint64_t outermost; /* return address in _start */

static void make(struct sample *s, unsigned int depth)
{
	memset(s->words, 0, sizeof(s->words));
	/* The outermost frame is at the same place for every depth. */
	for (unsigned int i = 0; i < depth; i++) {
		unsigned int at = 4 * (DEPTH - depth + i);
		bool last = i + 1 == depth;

		s->words[at] = last ? 0 : STACK + 8 * (at + 4);
		s->words[at + 1] = last ? outermost : CODE + 16 * (DEPTH - depth + i) + 5;
	}
	s->region = (struct uw_region){ .addr = STACK + 32 * (DEPTH - depth),
					.size = sizeof(s->words) - 32 * (DEPTH - depth),
					.bytes = (uint8_t *)&s->words[4 * (DEPTH - depth)] };
	s->memory = (struct uw_memory){ .regions = &s->region, .n_regions = 1 };
	s->thread = (struct uw_thread){ .read = uw_memory_read, .ctx = &s->memory };
	s->thread.regs.known = 0x1ffff;
	s->thread.regs.value[UW_X86_64_RIP] = CODE + 2;
	s->thread.regs.value[UW_X86_64_RSP] = s->region.addr;
	s->thread.regs.value[UW_X86_64_RBP] = s->region.addr;
}

/* Return how many frames were taken over; each is compared with a full walk's. */
static size_t walk(struct uw_history *history, uint64_t key, const struct sample *s, size_t max)
{
	static struct uw_frame full_frames[DEPTH + 1], frames[DEPTH + 1];
	struct uw_stack full = { .frames = full_frames, .max_frames = max };
	struct uw_stack stack = { .frames = frames, .max_frames = max };
	struct uw_job job = { .space = space, .thread = &s->thread, .stack = &stack };
	struct uw_incremental again;

	uw_walk(space, worker, &s->thread, &full);
	uw_walk_incremental(history, key, worker, &job, &again);
	CHECK(stack.n_frames + again.n_taken == full.n_frames, "the same number");
	CHECK(stack.stop == full.stop && stack.stop_addr == full.stop_addr, "the same end");
	CHECK(!again.n || again.n == full.n_frames, "all of them, or none was kept");
	for (size_t i = 0; i < full.n_frames; i++) {
		const struct uw_frame *f =
			i < stack.n_frames ? &frames[i] : &again.frames[again.n - 1 - i];

		CHECK(!memcmp(&full_frames[i], f, sizeof(*f)), "the same frame");
		CHECK(!again.n || !memcmp(f, &again.frames[again.n - 1 - i], sizeof(*f)), "kept");
	}
	return again.n_taken;
}

static struct uw_history *pasts_new(size_t max_bytes)
{
	struct uw_history *history = NULL;

	CHECK(!uw_history_new(DEPTH + 1, max_bytes, &history), "new");
	return history;
}

static void test_equal_callers_are_taken_over(void)
{
	struct uw_history *history = pasts_new(1 << 20);
	struct sample s;
	size_t n;

	make(&s, 60);
	CHECK(walk(history, 1, &s, DEPTH + 1) == 0, "nothing before");
	/* Frame 0 was interrupted; its callers were not. */
	CHECK(walk(history, 1, &s, DEPTH + 1) == 60, "all callers");
	CHECK(walk(history, 2, &s, DEPTH + 1) == 0, "of another thread, nothing");
	make(&s, 80);
	n = walk(history, 1, &s, DEPTH + 1);
	CHECK(n == 60, "a deeper stack's outer part");
	make(&s, 20);
	CHECK(walk(history, 1, &s, DEPTH + 1) == 20, "a shallower one");
	uw_history_forget(history);
	CHECK(walk(history, 1, &s, DEPTH + 1) == 0, "forgotten");
	uw_history_free(history);
}

static void test_what_changed_is_walked_anew(void)
{
	struct uw_history *history = pasts_new(1 << 20);
	struct uw_mapping other = {
		.start = 0x500000, .end = 0x501000, .prot = PROT_EXEC, .kind = UW_MAPPING_ANON
	};
	struct sample s;

	make(&s, 60);
	(void)walk(history, 1, &s, DEPTH + 1);
	s.words[4 * 70 + 1] += 1;
	CHECK(walk(history, 1, &s, DEPTH + 1) == 29, "what is outside of the change");
	s.words[4 * 80 + 2] = 1; /* no step reads it */
	CHECK(walk(history, 1, &s, DEPTH + 1) == 60, "words that nothing went by do not count");
	s.words[4 * 99 + 1] = CODE + 5; /* the walk does not end there any more */
	CHECK(walk(history, 1, &s, DEPTH + 1) == 0, "another end");
	make(&s, 60);
	(void)walk(history, 1, &s, DEPTH + 1);
	s.region.size -= 8 * 8 + 32 * 10; /* the copy ends within frame 90 */
	CHECK(walk(history, 1, &s, DEPTH + 1) == 0, "cut now");
	(void)walk(history, 2, &s, DEPTH + 1);
	CHECK(!uw_space_map(space, &other), "map");
	make(&s, 60);
	CHECK(walk(history, 2, &s, DEPTH + 1) == 0, "another space");
	CHECK(walk(history, 2, &s, DEPTH + 1) == 60, "the same again");
	CHECK(walk(history, 2, &s, 40) == 0, "fewer frames are wanted");
	uw_history_free(history);
}

static void test_memory_is_bounded(void)
{
	struct uw_history *history = pasts_new(100 << 10); /* some ten walks */
	struct sample s;

	make(&s, DEPTH);
	for (uint64_t key = 1; key <= 1000; key++)
		(void)walk(history, key, &s, DEPTH + 1);
	CHECK(walk(history, 1000, &s, DEPTH + 1) == DEPTH, "the newest is there");
	CHECK(walk(history, 1, &s, DEPTH + 1) == 0, "the eldest is not");
	uw_history_free(history);
	history = pasts_new(64);
	CHECK(walk(history, 1, &s, DEPTH + 1) == 0, "no room for one");
	CHECK(walk(history, 1, &s, DEPTH + 1) == 0, "nor at the second time");
	uw_history_free(history);
}

/* Stacks that have nothing in common are not compared each time; equal stacks are found again. */
static void test_comparing_rests_where_it_is_fruitless(void)
{
	struct uw_history *history = pasts_new(1 << 20);
	struct sample s;
	size_t n = 0;

	for (unsigned int i = 0; i < 50; i++) {
		make(&s, 60);
		s.words[4 * 98 + 1] = CODE + 16 * i + 5;
		(void)walk(history, 1, &s, DEPTH + 1);
	}
	for (unsigned int i = 0; i < 50; i++)
		n += walk(history, 1, &s, DEPTH + 1) > 0;
	CHECK(n >= 30, "within some samples it pays again");
	uw_history_free(history);
}

/* It makes a call that returns to hlt; only the undefined return address comes before that. */
static uint64_t find_outermost(void)
{
	const uint8_t *start = (const uint8_t *)getauxval(AT_ENTRY);

	for (unsigned int i = 5; i < 64; i++)
		if (start[i] == 0xf4)
			return (uint64_t)(start + i);
	return 0;
}

static struct uw_object *resolve(void *ctx, const struct uw_mapping *mapping)
{
	struct uw_object *object = NULL;
	int fd;

	(void)ctx;
	if (mapping->kind != UW_MAPPING_FILE)
		return NULL;
	fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && !uw_object_open(fd, 0, &object), "this program");
	(void)close(fd);
	return object;
}

/* The executable segment of this program. */
static int map_program(void)
{
	const Elf64_Phdr *p = (const Elf64_Phdr *)getauxval(AT_PHDR);
	const Elf64_Phdr *end = p + getauxval(AT_PHNUM);
	uint64_t bias = (uint64_t)p;
	struct uw_mapping m = { .prot = PROT_READ | PROT_EXEC, .kind = UW_MAPPING_FILE };

	for (const Elf64_Phdr *i = p; i < end; i++)
		if (i->p_type == PT_PHDR)
			bias -= i->p_vaddr;
	for (; p < end; p++) {
		if (p->p_type != PT_LOAD || !(p->p_flags & PF_X))
			continue;
		m.start = (bias + p->p_vaddr) & ~(uint64_t)4095;
		m.end = (bias + p->p_vaddr + p->p_memsz + 4095) & ~(uint64_t)4095;
		m.off = p->p_offset & ~(uint64_t)4095;
	}
	return uw_space_map(space, &m);
}

int main(void)
{
	struct uw_mapping code = {
		.start = CODE, .end = CODE + 0x10000, .prot = PROT_EXEC, .kind = UW_MAPPING_ANON
	};

	outermost = find_outermost();
	if (!outermost || uw_space_new(EM_X86_64, resolve, NULL, &space) ||
	    uw_worker_new(&worker) || uw_space_map(space, &code) || map_program())
		return 1;
	test_equal_callers_are_taken_over();
	test_what_changed_is_walked_anew();
	test_memory_is_bounded();
	test_comparing_rests_where_it_is_fruitless();
	uw_worker_free(worker);
	uw_space_free(space);
	return check_done();
}

#else

int main(void)
{
	CHECK(true, "what is in this file's _start is known of x86_64 alone");
	return check_done();
}

#endif
