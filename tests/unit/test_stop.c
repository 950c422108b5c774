/*
 * tests/unit/test_stop.c: tests why walks end: one stack for each stop, and gaps between rules;
 * each by the interpreter and by the table, cold and from the caches.
 */
#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/check.h"
#include "tests/image.h"
#include "unwinder/rule/object.h"

#define CODE  ((uint64_t)0x10000) /* where IMAGE_CODE is mapped */
#define STACK ((uint64_t)0x70000)
#define WORDS 64

/* ---- a file -------------------------------------------------------------------------- */

static struct {
	uint8_t bytes[1024];
	size_t size;
} section;

static void add(const void *bytes, size_t size)
{
	memcpy(section.bytes + section.size, bytes, size);
	section.size += size;
}

static void add_u32(uint32_t value)
{
	add(&value, 4);
}

/* LSB 5.0 §10.6.1: "zR" with absolute pointers of 4 bytes, psABI: code 1, data -8, ra 16. */
static void add_cie(void)
{
	static const uint8_t body[] = { 1,    'z',  'R', 0, 1,	  0x78, 16,   1,
					0x03, 0x0c, 7,	 8, 0x90, 1,	0x00, 0x00 };

	section.size = 0;
	add_u32(sizeof(body) + 4);
	add_u32(0);
	add(body, sizeof(body));
}

static void add_fde(uint32_t start, uint32_t size, const char *program, uint32_t length)
{
	static const uint8_t none;
	uint32_t at = (uint32_t)section.size;

	add_u32(13 + length);
	add_u32(at + 4);
	add_u32(IMAGE_CODE + start);
	add_u32(size);
	add(&none, 1);
	add(program, length);
}

#define FDE(start, size, program) add_fde(start, size, program, sizeof(program) - 1)

/* Functions, by what their CFI is (DWARF 5 §6.4.2; registers of the psABI). */
enum {
	PLAIN = 0x000,	 /* CFA = rsp+8, from 4 on rsp+24; padding follows up to 0x1f */
	NEXT = 0x01f,	 /* CFA = rsp+8 up to 0x30; 16 bytes without CFI follow */
	FLAT = 0x040,	 /* CFA = rsp, ra at c+8 */
	ROUND = 0x060,	 /* the same by expression */
	BY_FP = 0x080,	 /* CFA = rbp+16 */
	BY_RBX = 0x0a0,	 /* CFA = rbx+8 */
	DAMAGED = 0x0c0, /* an opcode that there is not */
	LAST = 0x0e0,	 /* ra undefined */
	RED = 0x100,	 /* CFA = *(rsp-8) */
	POPPED = 0x120,	 /* CFA = rsp+8, rbx at c-32 */
	KEEPS = 0x140,	 /* CFA = rsp+24, rbx at c-16 */
	ROUND_2 = 0x160, /* as ROUND, ra at c+16 */
	ROUND_3 = 0x180, /* … at c+24 */
	LOOP = 0x1a0,	 /* CFA by an expression that jumps to its start */
	END = 0x1c0
};

static struct uw_object *make_object(void)
{
	static uint8_t code[0x400];
	static uint8_t bytes[sizeof(section.bytes)];
	struct image image = {
		.machine = EM_X86_64, .code = code, .code_size = sizeof(code), .n_sections = 1
	};

	add_cie();
	FDE(PLAIN, 0x10, "\x44\x0e\x18");
	FDE(NEXT, 0x11, "\x00");
	FDE(FLAT, 0x20, "\x0e\x00\x11\x10\x7f");
	FDE(ROUND, 0x20, "\x0f\x02\x77\x00\x11\x10\x7f");
	FDE(BY_FP, 0x20, "\x0c\x06\x10");
	FDE(BY_RBX, 0x20, "\x0c\x03\x08");
	FDE(DAMAGED, 0x20, "\x3f");
	FDE(LAST, 0x20, "\x07\x10");
	FDE(RED, 0x20, "\x0f\x03\x77\x78\x06");
	FDE(POPPED, 0x20, "\x83\x04");
	FDE(KEEPS, 0x20, "\x0e\x18\x83\x02");
	FDE(ROUND_2, 0x20, "\x0f\x02\x77\x00\x11\x10\x7e");
	FDE(ROUND_3, 0x20, "\x0f\x02\x77\x00\x11\x10\x7d");
	FDE(LOOP, 0x20, "\x0f\x03\x2f\xfd\xff");
	add_u32(0);
	memcpy(bytes, section.bytes, section.size);
	image.sections[0] =
		(struct image_section){ ".eh_frame", bytes, IMAGE_CODE + 0x800, section.size };
	return image_object(&image);
}

/* ---- walks ------------------------------------------------------------------------------- */

static uint64_t words[WORDS];
static struct uw_frame frames[32];

struct start {
	uint64_t pc, rbp, rbx;
	bool no_rbx;	    /* its value is not known */
	unsigned int below; /* words below sp that were captured */
	size_t max_frames;
	uint8_t kind; /* of the mapping; FILE has the object */
	bool absent;  /* … or not */
};

static struct uw_object *object;
static bool object_is_compiled;
static struct uw_stack last;

/* words[below] is at sp. Return the stop, and *last. */
static enum uw_stop walk_with(struct uw_worker *worker, struct uw_space *space,
			      const struct start *start)
{
	struct uw_region region = { .addr = STACK - 8 * start->below,
				    .size = sizeof(words),
				    .bytes = (void *)words };
	struct uw_memory memory = { .regions = &region, .n_regions = 1 };
	struct uw_thread thread = { .read = uw_memory_read, .ctx = &memory };

	last = (struct uw_stack){ .frames = frames,
				  .max_frames = start->max_frames ? start->max_frames : 32 };
	thread.regs.value[UW_X86_64_RIP] = start->pc;
	thread.regs.value[UW_X86_64_RSP] = STACK;
	thread.regs.value[UW_X86_64_RBP] = start->rbp;
	thread.regs.value[3] = start->rbx;
	thread.regs.known = 1 << UW_X86_64_RIP | 1 << UW_X86_64_RSP | 1 << UW_X86_64_RBP |
			    (start->no_rbx ? 0 : 1 << 3);
	uw_walk(space, worker, &thread, &last);
	return last.stop;
}

static enum uw_stop walk(const struct start *start)
{
	struct uw_mapping m = { .start = CODE,
				.end = CODE + 0x400,
				.off = IMAGE_CODE,
				.prot = PROT_READ | PROT_EXEC,
				.kind = start->kind,
				.object = start->absent || start->kind != UW_MAPPING_FILE
						  ? NULL
						  : object };
	struct uw_worker *worker = NULL;
	struct uw_space *space = NULL;
	struct uw_frame cold[32];
	struct uw_stack first;
	enum uw_stop stop;

	CHECK(uw_worker_new(&worker) == 0 && uw_space_new(EM_X86_64, NULL, NULL, &space) == 0 &&
		      uw_space_map(space, &m) == 0,
	      "space");
	stop = walk_with(worker, space, start);
	first = last;
	memcpy(cold, frames, sizeof(cold));
	CHECK(walk_with(worker, space, start) == stop && last.n_frames == first.n_frames &&
		      last.stop_addr == first.stop_addr &&
		      !memcmp(cold, frames, first.n_frames * sizeof(*cold)),
	      "the same from the caches");
	uw_worker_free(worker);
	uw_space_free(space);
	return stop;
}

/* Short gaps are padding; longer ones are code about which nothing is known. */
static void test_gaps(void)
{
	static const struct {
		uint32_t at;
		int cfa; /* 0: no rule */
	} places[] = {
		{ PLAIN, 8 },	      { PLAIN + 4, 24 },    { PLAIN + 0xf, 24 },
		{ PLAIN + 0x10, 24 }, /* 15 bytes are padding: the row before continues */
		{ NEXT - 1, 24 },     { NEXT, 8 },	    { NEXT + 0x10, 8 },
		{ NEXT + 0x11, 0 }, /* 16 bytes are code without CFI */
		{ FLAT - 1, 0 },      { KEEPS + 0x1f, 24 }, { END, 0 },
	};

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		struct uw_rule rule;
		int err = uw_object_rule(object, IMAGE_CODE + places[i].at, true, &rule);

		CHECK(err == (places[i].cfa ? 0 : -ENOENT), "is there a rule?");
		CHECK(err || (rule.cfa_reg == UW_X86_64_RSP && rule.cfa_off == places[i].cfa),
		      "which");
	}
}

static void test_root(void)
{
	memset(words, 0, sizeof(words));
	words[0] = CODE + LAST + 5;
	CHECK(walk(&(struct start){ .pc = CODE + PLAIN }) == UW_STOP_ROOT && last.n_frames == 2,
	      "undefined return address");
	words[0] = 0;
	CHECK(walk(&(struct start){ .pc = CODE + PLAIN }) == UW_STOP_GUESS_ENDED &&
		      last.n_frames == 1,
	      "return address 0 proves nothing");
}

static void test_missing_memory(void)
{
	memset(words, 0, sizeof(words));
	CHECK(walk(&(struct start){ .pc = CODE + BY_FP, .rbp = STACK + 8 * WORDS - 8 }) ==
			      UW_STOP_TRUNCATED &&
		      last.stop_addr == STACK + 8 * WORDS && frames[0].cfa == STACK + 8 * WORDS + 8,
	      "beyond what was captured");

	/*
	 * OpenSSL's CFI reads below rsp; perf.data has no bytes there, so the values are not known.
	 */
	words[0] = STACK + 16;
	words[2] = CODE + LAST + 5;
	CHECK(walk(&(struct start){ .pc = CODE + RED }) == UW_STOP_TRUNCATED &&
		      last.n_frames == 1 && last.stop_addr == STACK - 8,
	      "below sp, not captured");
	CHECK(walk(&(struct start){ .pc = CODE + RED, .below = 1 }) == UW_STOP_ROOT &&
		      last.n_frames == 2 && frames[0].cfa == STACK + 16,
	      "below sp, captured");
}

/* Compilers leave epilogues out of the CFI, which then names slots that were already popped. */
static void test_slots_below_sp(void)
{
	for (unsigned int below = 0; below < 4; below += 3) {
		memset(words, 0, sizeof(words));
		words[0] = 0x666; /* at STACK - 24, where rbx's slot was */
		words[below] = CODE + BY_RBX + 5;
		words[below + 4] = CODE + LAST + 5;
		CHECK(walk(&(struct start){ .pc = CODE + POPPED,
					    .rbx = STACK + 32,
					    .below = below }) == UW_STOP_ROOT &&
			      last.n_frames == 3 && frames[1].cfa == STACK + 40,
		      "the register holds it again, whatever lies below");
	}
}

static void test_registers_lost(void)
{
	memset(words, 0, sizeof(words));
	CHECK(walk(&(struct start){ .pc = CODE + BY_RBX, .no_rbx = true }) == UW_STOP_REG_UNKNOWN &&
		      last.n_frames == 1,
	      "a register not known");
	words[1] = STACK + 24;
	words[2] = CODE + BY_RBX + 5;
	words[3] = CODE + LAST + 5;
	CHECK(walk(&(struct start){ .pc = CODE + KEEPS, .no_rbx = true }) == UW_STOP_ROOT &&
		      last.n_frames == 3,
	      "but found on the stack");
}

static void test_damage(void)
{
	memset(words, 0, sizeof(words));
	words[0] = CODE + DAMAGED + 5;
	CHECK(walk(&(struct start){ .pc = CODE + PLAIN }) == UW_STOP_BAD_CFI &&
		      last.n_frames == 2 && last.stop_addr == CODE + DAMAGED + 5,
	      "damaged CFI");
}

static void test_limits(void)
{
	struct uw_limits defaults, fewer, before, after;

	memset(words, 0, sizeof(words));
	words[0] = CODE + LOOP + 5;
	uw_limits_reached(&before);
	CHECK(walk(&(struct start){ .pc = CODE + PLAIN }) == UW_STOP_LIMIT && last.n_frames == 2 &&
		      last.stop_addr == CODE + LOOP + 5,
	      "an expression without end");
	uw_limits_reached(&after);
	CHECK(after.operations > before.operations, "is counted");
	if (object_is_compiled)
		return; /* its instructions are not run any more */
	uw_limits_get(&defaults);
	fewer = defaults;
	fewer.instructions = 3;
	CHECK(!uw_limits_set(&fewer), "set");
	words[0] = 0;
	CHECK(walk(&(struct start){ .pc = CODE + NEXT }) == UW_STOP_LIMIT && last.n_frames == 1,
	      "a function with more instructions");
	uw_limits_reached(&before);
	CHECK(before.instructions > after.instructions, "is counted");
	CHECK(!uw_limits_set(&defaults), "set again");
	CHECK(walk(&(struct start){ .pc = CODE + NEXT }) != UW_STOP_LIMIT, "not by default");
}

static void test_not_rising(void)
{
	memset(words, 0, sizeof(words));
	words[0] = CODE + FLAT + 5;
	words[2] = CODE + PLAIN + 5;
	CHECK(walk(&(struct start){ .pc = CODE + PLAIN }) == UW_STOP_CFA_NOT_RISING &&
		      last.n_frames == 2 && frames[1].cfa == STACK + 8,
	      "a caller with the same sp");
	words[1] = CODE + LAST + 5;
	CHECK(walk(&(struct start){ .pc = CODE + FLAT }) == UW_STOP_ROOT && last.n_frames == 2,
	      "but of code that was interrupted (vfork)");
	words[1] = CODE + FLAT;
	CHECK(walk(&(struct start){ .pc = CODE + FLAT }) == UW_STOP_CFA_NOT_RISING,
	      "unless it called itself");
	CHECK(walk(&(struct start){ .pc = CODE + BY_FP, .rbp = STACK - 24, .below = 4 }) ==
		      UW_STOP_CFA_NOT_RISING,
	      "a CFA below");
}

/* Expressions switch stacks on purpose, so their CFA need not rise; but a frame may come again. */
static void test_cycles(void)
{
	memset(words, 0, sizeof(words));
	words[1] = CODE + ROUND + 5;
	CHECK(walk(&(struct start){ .pc = CODE + ROUND + 5 }) == UW_STOP_CYCLE &&
		      last.n_frames <= 3,
	      "of one frame");
	words[1] = CODE + ROUND_2 + 5;
	words[2] = CODE + ROUND + 5;
	CHECK(walk(&(struct start){ .pc = CODE + PLAIN + 4, .below = 3 }) == UW_STOP_GUESS_ENDED,
	      "none");
	CHECK(walk(&(struct start){ .pc = CODE + ROUND + 5 }) == UW_STOP_CYCLE &&
		      last.n_frames <= 6,
	      "of two");
	words[2] = CODE + ROUND_3 + 5;
	words[3] = CODE + ROUND + 5;
	CHECK(walk(&(struct start){ .pc = CODE + ROUND + 5 }) == UW_STOP_CYCLE &&
		      last.n_frames <= 9,
	      "of three");
	words[3] = CODE + LAST + 5;
	CHECK(walk(&(struct start){ .pc = CODE + ROUND + 5 }) == UW_STOP_ROOT && last.n_frames == 4,
	      "three that lead on");
}

static void test_ends_of_other_kinds(void)
{
	memset(words, 0, sizeof(words));
	words[0] = CODE + 0x1000;
	CHECK(walk(&(struct start){ .pc = CODE + PLAIN }) == UW_STOP_NO_MAPPING &&
		      last.n_frames == 2,
	      "a return address outside all mappings");
	words[0] = CODE + END + 0x40;
	CHECK(walk(&(struct start){ .pc = CODE + PLAIN, .rbp = 3 }) == UW_STOP_NO_UNWIND_INFO &&
		      last.n_frames == 2,
	      "code without rules");
	CHECK(walk(&(struct start){ .pc = CODE, .rbp = 3, .absent = true }) == UW_STOP_NO_OBJECT,
	      "a file that is not there");
	CHECK(walk(&(struct start){ .pc = CODE, .rbp = 3, .kind = UW_MAPPING_ANON }) ==
		      UW_STOP_NO_UNWIND_INFO,
	      "generated code");
	for (unsigned int i = 0; i < WORDS; i++)
		words[i] = CODE + PLAIN + 2;
	CHECK(walk(&(struct start){ .pc = CODE + PLAIN, .max_frames = 7 }) == UW_STOP_MAX_FRAMES &&
		      last.n_frames == 7,
	      "as many as asked for");
	CHECK(walk(&(struct start){ .pc = CODE + PLAIN, .max_frames = 32 }) == UW_STOP_MAX_FRAMES,
	      "deeper than that");
}

static void test_all(void)
{
	test_gaps();
	test_root();
	test_missing_memory();
	test_slots_below_sp();
	test_registers_lost();
	test_damage();
	test_limits();
	test_not_rising();
	test_cycles();
	test_ends_of_other_kinds();
}

int main(void)
{
	object = make_object();
	CHECK(object != NULL, "image");
	if (!object)
		return 1;
	test_all();
	CHECK(uw_object_compile(object) == 0, "table");
	object_is_compiled = true;
	test_all();
	uw_object_put(object);
	return check_done();
}
