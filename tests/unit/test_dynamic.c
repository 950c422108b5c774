/*
 * tests/unit/test_dynamic.c: tests what a process registers about code that it generated: reading
 * it from memory with the layout of libunwind's own header, and walking by it.
 */
#include "unwinder/dynamic/dynamic.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifdef __x86_64__
#include <libunwind.h>
#else /* cross builds have no libunwind; generated.sh shows that both headers agree */
#include "generator/dynamic.h"
#endif

#include "tests/check.h"
#include "tests/image.h"
#include "unwinder/unwinder.h"

enum { RBX = 3 }; /* psABI x86_64 figure 3.36 */

#define CODE  0x10000
#define STACK 0x7fff0000
#define WORDS 64

/* The memory of the process: bytes of this program can be read at their own addresses. */
static struct {
	unw_dyn_info_list_t list;
	unw_dyn_info_t info[8];
	struct {
		unw_dyn_region_info_t head;
		unw_dyn_op_t more[32];
	} regions[8];
	char name[64];
	uint8_t bytes[4096];
} memory;

static unsigned int reads;
static void (*while_reading)(void);

static int read_memory(void *ctx, uint64_t addr, void *out, size_t size)
{
	uint64_t start = (uintptr_t)&memory;

	(void)ctx;
	reads++;
	if (addr < start || size > sizeof(memory) || addr - start > sizeof(memory) - size)
		return -EFAULT;
	memcpy(out, (const uint8_t *)&memory + (addr - start), size);
	if (while_reading)
		while_reading();
	return 0;
}

static int read_lists(uint16_t machine, struct uw_dynamic **out)
{
	const struct uw_dynamic_list lists[] = { { UW_DYNAMIC_JIT, 0 },
						 { UW_DYNAMIC_LIST, (uintptr_t)&memory.list } };

	return uw_dynamic_read(machine, lists, 2, read_memory, NULL, out);
}

static const struct dynamic_header *header_of(const struct uw_dynamic *d)
{
	size_t size;

	return uw_dynamic_bytes(d, &size);
}

static void forget(void)
{
	memset(&memory, 0, sizeof(memory));
	memory.list.version = 1;
	while_reading = NULL;
}

/* Insert at the front, as _U_dyn_register does. */
static unw_dyn_info_t *enlist(unsigned int i, uint64_t start, uint64_t end, int32_t format)
{
	unw_dyn_info_t *info = &memory.info[i];

	info->start_ip = start;
	info->end_ip = end;
	info->format = format;
	info->next = memory.list.first;
	memory.list.first = info;
	memory.list.generation++;
	return info;
}

static unw_dyn_op_t *begin_region(unsigned int i, int32_t count, uint32_t ops)
{
	memory.regions[i].head.insn_count = count;
	memory.regions[i].head.op_count = ops;
	memory.regions[i].head.next = NULL;
	return memory.regions[i].head.op;
}

static void chain(unsigned int i, unsigned int next)
{
	memory.regions[i].head.next = &memory.regions[next].head;
}

/* ---- walking -------------------------------------------------------------------------- */

static uint64_t words[WORDS];
static struct uw_frame frames[32];
static struct uw_regs regs;

static struct uw_stack walk(uint16_t machine, struct uw_dynamic *d, uint64_t pc, uint64_t sp,
			    uint64_t fp)
{
	struct uw_mapping m = { .start = CODE,
				.end = CODE + 0x10000,
				.prot = PROT_READ | PROT_EXEC,
				.kind = UW_MAPPING_ANON };
	struct uw_region region = { .addr = STACK, .size = sizeof(words), .bytes = (void *)words };
	struct uw_memory captured = { .regions = &region, .n_regions = 1 };
	struct uw_thread thread = { .read = uw_memory_read, .ctx = &captured, .regs = regs };
	struct uw_stack stack = { .frames = frames, .max_frames = 32 };
	bool arm = machine == EM_AARCH64;
	unsigned int at[] = { arm ? UW_AARCH64_PC : UW_X86_64_RIP,
			      arm ? UW_AARCH64_SP : UW_X86_64_RSP,
			      arm ? UW_AARCH64_FP : UW_X86_64_RBP };
	uint64_t value[] = { pc, sp, fp };
	struct uw_worker *worker = NULL;
	struct uw_space *space = NULL;

	for (unsigned int i = 0; i < 3; i++) {
		thread.regs.value[at[i]] = value[i];
		thread.regs.known |= (uint64_t)1 << at[i];
	}
	CHECK(uw_space_new(machine, NULL, NULL, &space) == 0 && uw_space_map(space, &m) == 0 &&
		      uw_worker_new(&worker) == 0,
	      "space");
	uw_space_set_dynamic(space, d);
	uw_walk(space, worker, &thread, &stack);
	uw_worker_free(worker);
	uw_space_free(space);
	return stack;
}

/* Walk from pc. The caller must be at CODE + 0x8000, with this sp and fp. */
static void check_caller(struct uw_dynamic *d, uint64_t pc, uint64_t sp, uint64_t fp,
			 uint64_t caller_sp, const char *what)
{
	struct uw_stack s = walk(EM_X86_64, d, pc, sp, fp);

	CHECK(s.n_frames >= 2 && frames[1].pc == CODE + 0x8000 && frames[1].sp == caller_sp &&
		      frames[0].cfa == caller_sp && frames[1].stepper == UW_STEPPER_DYNAMIC &&
		      frames[1].confidence == UW_CONFIDENCE_RULE,
	      what);
}

static void check_stop(struct uw_dynamic *d, uint64_t pc, enum uw_stop stop, const char *what)
{
	struct uw_stack s = walk(EM_X86_64, d, pc, STACK, 0);

	CHECK(s.n_frames == 1 && s.stop == stop, what);
}

/* ---- regions ---------------------------------------------------------------------------- */

/*
 * 0 push %rbp; 1 mov %rsp,%rbp; 4 sub $32,%rsp; 8 mov %rbx,-8(%rbp); 12 …
 * the body; leave; ret
 */
static void put_prologue(unsigned int region)
{
	unw_dyn_op_t *op = begin_region(region, 12, 7);

	/* Not sorted by the time of effect, which is not required. */
	_U_dyn_op_spill_fp_rel(op++, _U_QP_TRUE, 8, RBX, (unw_word_t)-8);
	_U_dyn_op_add(op++, _U_QP_TRUE, 0, UW_X86_64_RSP, (unw_word_t)-8);
	_U_dyn_op_spill_sp_rel(op++, _U_QP_TRUE, 0, UW_X86_64_RBP, 0);
	_U_dyn_op_save_reg(op++, _U_QP_TRUE, 1, UW_X86_64_RSP, UW_X86_64_RBP);
	_U_dyn_op_add(op++, _U_QP_TRUE, 4, UW_X86_64_RSP, (unw_word_t)-32);
	_U_dyn_op_stop(op++);
	_U_dyn_op_add(op++, _U_QP_TRUE, 0, 99, 99); /* after the end, which is not read */
}

static void put_epilogue(unsigned int region)
{
	unw_dyn_op_t *op = begin_region(region, -2, 1);

	_U_dyn_op_pop_frames(op, _U_QP_TRUE, 0, 1);
}

/* The stack that this code leaves: its frame is at words[8], where rbp points. */
static void put_frame(void)
{
	memset(words, 0, sizeof(words));
	words[9] = CODE + 0x8000;
	words[8] = 0x1234;
	words[7] = 0x5678;
}

static void test_canned_prologue(void)
{
	struct uw_dynamic *d = NULL;
	struct uw_dynamic_proc proc;

	forget();
	put_prologue(0);
	put_epilogue(1);
	chain(0, 1);
	/* Two procedures that differ in their bodies share the regions. */
	enlist(0, CODE + 0x100, CODE + 0x120, UNW_INFO_FORMAT_DYNAMIC)->u.pi.regions =
		&memory.regions[0].head;
	enlist(1, CODE + 0x200, CODE + 0x300, UNW_INFO_FORMAT_DYNAMIC)->u.pi.regions =
		&memory.regions[0].head;
	strcpy(memory.name, "twice<int>");
	memory.info[1].u.pi.name_ptr = (uintptr_t)memory.name;
	CHECK(read_lists(EM_X86_64, &d) == 0, "read");
	CHECK(header_of(d)->flags == 0 && header_of(d)->n_procs == 2, "all of it");
	CHECK(uw_dynamic_proc(d, CODE + 0x2ff, &proc) == 0 && proc.start == CODE + 0x200 &&
		      proc.end == CODE + 0x300 && proc.walkable && !strcmp(proc.name, memory.name),
	      "its name");
	CHECK(uw_dynamic_proc(d, CODE + 0x11f, &proc) == 0 && !proc.name, "or none");
	CHECK(uw_dynamic_proc(d, CODE + 0x120, &proc) == -ENOENT, "an end is past the last");
	for (uint64_t at = CODE + 0x100; at <= CODE + 0x200; at += 0x100) {
		uint64_t end = at == CODE + 0x100 ? CODE + 0x120 : CODE + 0x300;

		put_frame();
		check_caller(d, at, STACK + 72, 0x1234, STACK + 80, "at the entry");
		check_caller(d, at + 1, STACK + 64, 0x1234, STACK + 80, "behind the push");
		check_caller(d, at + 4, STACK + 64, STACK + 64, STACK + 80, "with a frame pointer");
		check_caller(d, at + 8, STACK + 32, STACK + 64, STACK + 80, "with room for more");
		/*
		 * The frame may grow without an operation, as by alloca: the frame pointer stays.
		 */
		check_caller(d, at + 16, STACK, STACK + 64, STACK + 80, "in the body");
		check_caller(d, end - 2, STACK, STACK + 64, STACK + 80, "at leave");
		check_caller(d, end - 1, STACK + 72, 0x1234, STACK + 80, "at ret");
	}
	uw_dynamic_put(d);
}

/* The registers of its caller that a frame has. */
static void test_saved_registers(void)
{
	struct uw_dynamic *d = NULL;
	struct uw_rule rule;
	uint64_t alias;
	const struct uw_reg_rule *rbx;

	forget();
	put_prologue(0);
	enlist(0, CODE, CODE + 0x100, UNW_INFO_FORMAT_DYNAMIC)->u.pi.regions =
		&memory.regions[0].head;
	CHECK(read_lists(EM_X86_64, &d) == 0, "read");
	CHECK(uw_dynamic_rule(d, CODE + 8, &rule, &alias) == 0 && !uw_rule_reg(&rule, 3),
	      "rbx is the caller's until it is stored");
	CHECK(uw_dynamic_rule(d, CODE + 9, &rule, &alias) == 0, "rule");
	rbx = uw_rule_reg(&rule, RBX);
	CHECK(rbx && rbx->kind == UW_RULE_AT_CFA && rbx->off == -24, "then it lies in the frame");
	CHECK(rule.cfa_reg == UW_X86_64_RBP && rule.cfa_off == 16 && rule.ra == UW_X86_64_RIP &&
		      rule.start == CODE && rule.end == CODE + 0x100,
	      "the frame");
	uw_dynamic_put(d);
}

/* An early return in the middle: the code after it has the state from before it. */
static void test_labels(void)
{
	struct uw_dynamic *d = NULL;
	unw_dyn_op_t *op;

	forget();
	put_prologue(0);
	op = begin_region(1, 20, 2);
	_U_dyn_op_label_state(op++, 7);
	_U_dyn_op_pop_frames(op++, _U_QP_TRUE, 10, 1);
	op = begin_region(2, 20, 1);
	_U_dyn_op_copy_state(op, 7);
	put_epilogue(3);
	chain(0, 1);
	chain(1, 2);
	chain(2, 3);
	enlist(0, CODE, CODE + 0x100, UNW_INFO_FORMAT_DYNAMIC)->u.pi.regions =
		&memory.regions[0].head;
	CHECK(read_lists(EM_X86_64, &d) == 0, "read");
	put_frame();
	check_caller(d, CODE + 12 + 10, STACK, STACK + 64, STACK + 80, "before the early leave");
	check_caller(d, CODE + 12 + 11, STACK + 72, 0x1234, STACK + 80, "behind it");
	check_caller(d, CODE + 32, STACK, STACK + 64, STACK + 80, "the frame is there again");
	check_caller(d, CODE + 0xfe, STACK, STACK + 64, STACK + 80, "up to the end");
	check_caller(d, CODE + 0xff, STACK + 72, 0x1234, STACK + 80, "where it is undone");
	uw_dynamic_put(d);
}

/* Two prologues, undone by one epilogue; an empty region gives the state before the first. */
static void test_nested(void)
{
	struct uw_dynamic *d = NULL;
	unw_dyn_op_t *op;

	forget();
	op = begin_region(0, 0, 1); /* entered with two words pushed on top: a thunk jumped here */
	_U_dyn_op_add(op, _U_QP_TRUE, 0, UW_X86_64_RSP, (unw_word_t)-16);
	op = begin_region(1, 4, 1);
	_U_dyn_op_add(op, _U_QP_TRUE, 0, UW_X86_64_RSP, (unw_word_t)-32);
	op = begin_region(2, 4, 1);
	_U_dyn_op_add(op, _U_QP_TRUE, 0, UW_X86_64_RSP, (unw_word_t)-64);
	op = begin_region(3, 8, 1);
	_U_dyn_op_pop_frames(op, _U_QP_TRUE, 2, 2);
	chain(0, 1);
	chain(1, 2);
	chain(2, 3);
	enlist(0, CODE, CODE + 16, UNW_INFO_FORMAT_DYNAMIC)->u.pi.regions = &memory.regions[0].head;
	CHECK(read_lists(EM_X86_64, &d) == 0, "read");
	memset(words, 0, sizeof(words));
	words[20] = CODE + 0x8000;
	check_caller(d, CODE, STACK + 144, 0, STACK + 168, "what the empty region says");
	check_caller(d, CODE + 1, STACK + 112, 0, STACK + 168, "the first prologue");
	check_caller(d, CODE + 6, STACK + 48, 0, STACK + 168, "the second");
	check_caller(d, CODE + 10, STACK + 48, 0, STACK + 168, "before the epilogue");
	check_caller(d, CODE + 11, STACK + 144, 0, STACK + 168, "both are undone");
	uw_dynamic_put(d);
}

/* A register that is saved in another one is still there after the epilogue. */
static void test_kept_in_a_register(void)
{
	enum { R12 = 12 };
	const struct uw_reg_rule *rbx;
	struct uw_dynamic *d = NULL;
	struct uw_rule rule;
	unw_dyn_op_t *op;
	uint64_t alias;

	forget();
	/* 0 mov %rbx,%r12; 3 sub $8,%rsp; 7 … add $8,%rsp; ret */
	op = begin_region(0, 20, 3);
	_U_dyn_op_save_reg(op++, _U_QP_TRUE, 0, RBX, R12);
	_U_dyn_op_add(op++, _U_QP_TRUE, 3, UW_X86_64_RSP, (unw_word_t)-8);
	_U_dyn_op_pop_frames(op, _U_QP_TRUE, 15, 1);
	enlist(0, CODE, CODE + 20, UNW_INFO_FORMAT_DYNAMIC)->u.pi.regions = &memory.regions[0].head;
	CHECK(read_lists(EM_X86_64, &d) == 0, "read");
	for (uint64_t at = 8; at <= 16; at += 8) {
		CHECK(uw_dynamic_rule(d, CODE + at, &rule, &alias) == 0 &&
			      rule.cfa_off == (at == 8 ? 16 : 8),
		      "rule");
		rbx = uw_rule_reg(&rule, RBX);
		CHECK(rbx && rbx->kind == UW_RULE_REGISTER && rbx->from == R12, "rbx is in r12");
	}
	uw_dynamic_put(d);
}

static void test_alias(void)
{
	struct uw_dynamic *d = NULL;
	unw_dyn_op_t *op;

	forget();
	put_prologue(0);
	enlist(0, CODE, CODE + 0x40, UNW_INFO_FORMAT_DYNAMIC)->u.pi.regions =
		&memory.regions[0].head;
	/* From its fourth byte on, it is a copy of the code at CODE + 4. */
	op = begin_region(1, 0x20, 2);
	_U_dyn_op_alias(op++, _U_QP_TRUE, 3, CODE + 7);
	enlist(1, CODE + 0x100, CODE + 0x120, UNW_INFO_FORMAT_DYNAMIC)->u.pi.regions =
		&memory.regions[1].head;
	op = begin_region(2, 0x20, 1);
	_U_dyn_op_alias(op, _U_QP_TRUE, -1, CODE + 0x200);
	enlist(2, CODE + 0x200, CODE + 0x220, UNW_INFO_FORMAT_DYNAMIC)->u.pi.regions =
		&memory.regions[2].head;
	CHECK(read_lists(EM_X86_64, &d) == 0, "read");
	put_frame();
	words[0] = CODE + 0x8000;
	check_caller(d, CODE + 0x103, STACK, 0, STACK + 8, "not yet");
	check_caller(d, CODE + 0x104, STACK, STACK + 64, STACK + 80, "as in the other's frame");
	check_stop(d, CODE + 0x200, UW_STOP_BAD_CFI, "code that is a copy of itself");
	uw_dynamic_put(d);
}

static void test_aarch64(void)
{
	struct uw_dynamic *d = NULL;
	struct uw_stack s;
	unw_dyn_op_t *op;

	forget();
	/* 0 stp x29, x30, [sp, #-32]!; 1 mov x29, sp; … ldp x29, x30, [sp], #32; ret */
	op = begin_region(0, 2, 5);
	_U_dyn_op_add(op++, _U_QP_TRUE, 0, UW_AARCH64_SP, (unw_word_t)-32);
	_U_dyn_op_spill_sp_rel(op++, _U_QP_TRUE, 0, UW_AARCH64_FP, 0);
	_U_dyn_op_spill_sp_rel(op++, _U_QP_TRUE, 0, UW_AARCH64_LR, 8);
	_U_dyn_op_save_reg(op++, _U_QP_TRUE, 1, UW_AARCH64_SP, UW_AARCH64_FP);
	_U_dyn_op_stop(op);
	op = begin_region(1, -2, 1);
	_U_dyn_op_pop_frames(op, _U_QP_TRUE, 0, 1);
	chain(0, 1);
	enlist(0, CODE, CODE + 0x40, UNW_INFO_FORMAT_DYNAMIC)->u.pi.regions =
		&memory.regions[0].head;
	CHECK(read_lists(EM_AARCH64, &d) == 0, "read");
	memset(words, 0, sizeof(words));
	memset(&regs, 0, sizeof(regs));
	regs.value[UW_AARCH64_LR] = CODE + 0x8000;
	regs.known = (uint64_t)1 << UW_AARCH64_LR;
	s = walk(EM_AARCH64, d, CODE, STACK + 64, 0);
	CHECK(s.n_frames >= 2 && frames[1].pc == CODE + 0x8000 && frames[1].sp == STACK + 64,
	      "at the entry lr is the caller");
	words[4] = 0x999;
	words[5] = CODE + 0x8000;
	regs.value[UW_AARCH64_LR] = CODE + 0x30;
	s = walk(EM_AARCH64, d, CODE + 4, STACK + 32, 0);
	CHECK(s.n_frames >= 2 && frames[1].pc == CODE + 0x8000 && frames[1].sp == STACK + 64,
	      "then the stored one");
	s = walk(EM_AARCH64, d, CODE + 0x20, STACK, STACK + 32);
	CHECK(s.n_frames >= 2 && frames[1].pc == CODE + 0x8000 && frames[1].sp == STACK + 64,
	      "in the body by x29");
	regs.value[UW_AARCH64_LR] = CODE + 0x8000;
	s = walk(EM_AARCH64, d, CODE + 0x3c, STACK + 64, 0x999);
	CHECK(s.n_frames >= 2 && frames[1].pc == CODE + 0x8000 && frames[1].sp == STACK + 64,
	      "at ret");
	memset(&regs, 0, sizeof(regs));
	uw_dynamic_put(d);
}

/* ---- tables -------------------------------------------------------------------------------- */

/* As an assembler writes it: CFA = rsp + 8, ra at -8; after 4 bytes CFA = rsp + 24. */
static const uint8_t frame_bytes[] = {
	20,   0,    0, 0, 0,	0, 0, 0, 1,  'z',  'R',	 0,  1,	 0x78, 16, 1,
	0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0, 20, 0,	   0,	 0,  28, 0,    0,  0,
	0,    0,    0, 0, 0x40, 0, 0, 0, 0,  0x44, 0x0e, 24, 0,	 0,    0,  0,
};
#define FDE_AT	24
#define FDE_LOC 32

/* Put a copy of this section at offset at, its FDE for code at start. */
static void put_frame_section(size_t at, uint64_t start)
{
	int32_t distance;

	memcpy(memory.bytes + at, frame_bytes, sizeof(frame_bytes));
	distance = (int32_t)(start - (uintptr_t)(memory.bytes + at + FDE_LOC));
	memcpy(memory.bytes + at + FDE_LOC, &distance, 4);
}

static void test_tables(void)
{
	static const int32_t formats[] = { UNW_INFO_FORMAT_TABLE, UNW_INFO_FORMAT_REMOTE_TABLE };
	/* Code within reach of signed 32 bits. */
	uint64_t code = (uintptr_t)memory.bytes + 0x100000;

	for (unsigned int i = 0; i < 2; i++) {
		int32_t pair[2] = { 0x100000, FDE_AT };
		struct uw_dynamic *d = NULL;
		unw_dyn_info_t *info;
		struct uw_rule rule;
		uint64_t alias;

		forget();
		put_frame_section(0, code);
		memcpy(memory.bytes + 1024, pair, sizeof(pair));
		info = enlist(0, code, code + 0x40, formats[i]);
		info->u.rti.segbase = (uintptr_t)memory.bytes;
		info->u.rti.table_len = 1;
		info->u.rti.table_data = (uintptr_t)memory.bytes + 1024;
		strcpy(memory.name, "copied");
		info->u.rti.name_ptr = (uintptr_t)memory.name;
		CHECK(read_lists(EM_X86_64, &d) == 0 && header_of(d)->flags == 0, "read");
		CHECK(uw_dynamic_rule(d, code + 3, &rule, &alias) == 0 && rule.cfa_reg == 7 &&
			      rule.cfa_off == 8 && rule.start == code && rule.end == code + 0x40 &&
			      rule.stepper == UW_STEPPER_DYNAMIC,
		      "the first row");
		CHECK(uw_dynamic_rule(d, code + 4, &rule, &alias) == 0 && rule.cfa_off == 24,
		      "the second");
		CHECK(uw_dynamic_rule(d, code + 0x40, &rule, &alias) == -ENOENT, "and no third");
		uw_dynamic_put(d);

		/* Loaded at other addresses than it states. */
		info->load_offset = 0x5000;
		info->start_ip += 0x5000;
		info->end_ip += 0x5000;
		CHECK(read_lists(EM_X86_64, &d) == 0, "read");
		CHECK(uw_dynamic_rule(d, code + 0x5004, &rule, &alias) == 0 && rule.cfa_off == 24 &&
			      rule.start == code + 0x5000,
		      "with an offset");
		uw_dynamic_put(d);

		info->u.rti.table_len = (uint64_t)1 << 61;
		CHECK(read_lists(EM_X86_64, &d) == 0 &&
			      header_of(d)->flags & (DYNAMIC_DAMAGED | DYNAMIC_CUT) &&
			      header_of(d)->n_procs == 0,
		      "a table of any length");
		uw_dynamic_put(d);
	}
}

/* Code that is a copy of a file's code is unwound like the file's code. */
static void test_alias_of_a_file(void)
{
	enum { FRAME = 0x3000, BIAS = 0x400000 };
	static const uint8_t nops[64] = { 0x90 };
	uint8_t bytes[sizeof(frame_bytes)];
	int32_t distance = IMAGE_CODE - (FRAME + FDE_LOC);
	const struct image image = {
		.machine = EM_X86_64,
		.code = nops,
		.code_size = sizeof(nops),
		.sections = { { ".eh_frame", bytes, FRAME, sizeof(bytes) } },
		.n_sections = 1,
	};
	struct uw_mapping m = { .start = BIAS + IMAGE_CODE,
				.end = BIAS + 2 * IMAGE_CODE,
				.off = IMAGE_CODE,
				.prot = PROT_READ | PROT_EXEC,
				.kind = UW_MAPPING_FILE };
	struct uw_region region = { .addr = STACK, .size = sizeof(words), .bytes = (void *)words };
	struct uw_memory captured = { .regions = &region, .n_regions = 1 };
	struct uw_thread thread = { .read = uw_memory_read, .ctx = &captured };
	struct uw_stack stack = { .frames = frames, .max_frames = 32 };
	struct uw_worker *worker = NULL;
	struct uw_space *space = NULL;
	struct uw_dynamic *d = NULL;
	unw_dyn_op_t *op;

	memcpy(bytes, frame_bytes, sizeof(bytes));
	memcpy(bytes + FDE_LOC, &distance, sizeof(distance));
	m.object = image_object(&image);
	forget();
	op = begin_region(0, 0x40, 1);
	_U_dyn_op_alias(op, _U_QP_TRUE, -1, BIAS + IMAGE_CODE);
	enlist(0, CODE, CODE + 0x40, UNW_INFO_FORMAT_DYNAMIC)->u.pi.regions =
		&memory.regions[0].head;
	CHECK(m.object && read_lists(EM_X86_64, &d) == 0 && uw_worker_new(&worker) == 0 &&
		      uw_space_new(EM_X86_64, NULL, NULL, &space) == 0 &&
		      uw_space_map(space, &m) == 0,
	      "set up");
	uw_space_set_dynamic(space, d);
	memset(words, 0, sizeof(words));
	words[2] = CODE + 0x8000;
	thread.regs.value[UW_X86_64_RIP] = CODE + 8;
	thread.regs.value[UW_X86_64_RSP] = STACK;
	thread.regs.known = 1 << UW_X86_64_RIP | 1 << UW_X86_64_RSP;
	uw_walk(space, worker, &thread, &stack);
	CHECK(stack.n_frames == 2 && frames[1].pc == CODE + 0x8000 && frames[0].cfa == STACK + 24 &&
		      frames[1].stepper == UW_STEPPER_DYNAMIC,
	      "by the file's own rules");
	uw_worker_free(worker);
	uw_space_free(space);
	uw_object_put(m.object);
	uw_dynamic_put(d);
}

/* The same on aarch64: CFA = sp; x29 and x30 are in 32 bytes after 4 bytes of code. */
static void test_table_aarch64(void)
{
	static const uint8_t frame[] = {
		16, 0,	  0,	0,  0, 0,  0, 0,    1,	  'z', 'R',  0, 4,    0x78, 30,
		1,  0x1b, 0x0c, 31, 0, 20, 0, 0,    0,	  24,  0,    0, 0,    0,    0,
		0,  0,	  0x40, 0,  0, 0,  0, 0x41, 0x0e, 32,  0x9d, 4, 0x9e, 3,
	};
	enum { FDE = 20, LOC = 28 };
	uint64_t code = (uintptr_t)memory.bytes + 0x100000, alias;
	int32_t pair[2] = { 0x100000, FDE }, distance;
	const struct uw_reg_rule *lr;
	struct uw_dynamic *d = NULL;
	unw_dyn_info_t *info;
	struct uw_rule rule;

	forget();
	memcpy(memory.bytes, frame, sizeof(frame));
	distance = (int32_t)(code - (uintptr_t)(memory.bytes + LOC));
	memcpy(memory.bytes + LOC, &distance, 4);
	memcpy(memory.bytes + 1024, pair, sizeof(pair));
	info = enlist(0, code, code + 0x40, UNW_INFO_FORMAT_REMOTE_TABLE);
	info->u.rti.segbase = (uintptr_t)memory.bytes;
	info->u.rti.table_len = 1;
	info->u.rti.table_data = (uintptr_t)memory.bytes + 1024;
	CHECK(read_lists(EM_AARCH64, &d) == 0 && header_of(d)->flags == 0, "read");
	CHECK(uw_dynamic_rule(d, code, &rule, &alias) == 0 && rule.cfa_reg == UW_AARCH64_SP &&
		      rule.cfa_off == 0 && rule.ra == UW_AARCH64_LR && !rule.n_regs,
	      "at the entry");
	CHECK(uw_dynamic_rule(d, code + 4, &rule, &alias) == 0 && rule.cfa_off == 32, "behind stp");
	lr = uw_rule_reg(&rule, UW_AARCH64_LR);
	CHECK(lr && lr->kind == UW_RULE_AT_CFA && lr->off == -24, "lr is stored");
	uw_dynamic_put(d);
}

/* ---- GDB's interface ------------------------------------------------------------------------- */

struct jit_entry { /* "JIT Compilation Interface", GDB's manual */
	struct jit_entry *next, *prev;
	const char *file;
	uint64_t size;
};

struct jit_descriptor {
	uint32_t version, action;
	struct jit_entry *relevant, *first;
};

/* A relocatable object whose sections have addresses, as LLVM registers it. */
static size_t put_object(uint8_t *to, uint64_t code, uint64_t frame_addr)
{
	static const char names[] = "\0.text\0.eh_frame\0.rela\0.sym\0.str\0hot_loop";
	enum { TEXT = 1, FRAME, RELA, SYM, STR, N };
	Elf64_Ehdr head = { .e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64,
					 ELFDATA2LSB, EV_CURRENT },
			    .e_type = ET_REL,
			    .e_machine = EM_X86_64,
			    .e_version = EV_CURRENT,
			    .e_shoff = 512,
			    .e_ehsize = sizeof(head),
			    .e_shentsize = sizeof(Elf64_Shdr),
			    .e_shnum = N,
			    .e_shstrndx = STR };
	Elf64_Rela rela = { .r_offset = FDE_LOC,
			    .r_info = ELF64_R_INFO(1, R_X86_64_PC32),
			    .r_addend = 0x10 };
	Elf64_Sym symbols[] = { { 0 },
				{ .st_info = ELF64_ST_INFO(STB_LOCAL, STT_SECTION),
				  .st_shndx = TEXT },
				{ .st_name = 33,
				  .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
				  .st_shndx = TEXT,
				  .st_value = 0x10,
				  .st_size = 0x40 } };
	Elf64_Shdr sections[N] = {
		[TEXT] = { .sh_name = 1, .sh_type = SHT_PROGBITS, .sh_addr = code },
		[FRAME] = { .sh_name = 7,
			    .sh_type = SHT_PROGBITS,
			    .sh_addr = frame_addr,
			    .sh_offset = 64,
			    .sh_size = sizeof(frame_bytes) },
		[RELA] = { .sh_name = 17,
			   .sh_type = SHT_RELA,
			   .sh_offset = 128,
			   .sh_size = sizeof(rela),
			   .sh_link = SYM,
			   .sh_info = FRAME },
		[SYM] = { .sh_name = 23,
			  .sh_type = SHT_SYMTAB,
			  .sh_offset = 192,
			  .sh_size = sizeof(symbols),
			  .sh_link = STR },
		[STR] = { .sh_name = 28,
			  .sh_type = SHT_STRTAB,
			  .sh_offset = 320,
			  .sh_size = sizeof(names) },
	};

	memcpy(to, &head, sizeof(head));
	memcpy(to + 64, frame_bytes, sizeof(frame_bytes));
	memcpy(to + 128, &rela, sizeof(rela));
	memcpy(to + 192, symbols, sizeof(symbols));
	memcpy(to + 320, names, sizeof(names));
	memcpy(to + 512, sections, sizeof(sections));
	return 512 + sizeof(sections);
}

static void test_jit_interface(void)
{
	struct jit_descriptor descriptor = { .version = 1 };
	struct jit_entry entry = { 0 };
	struct uw_dynamic_list list = { UW_DYNAMIC_JIT, (uintptr_t)memory.bytes };
	uint64_t code = (uintptr_t)memory.bytes + 0x200000, mark;
	struct uw_dynamic *d = NULL;
	struct uw_dynamic_proc proc;
	struct uw_rule rule;
	uint64_t alias;

	forget();
	memcpy(memory.bytes, &descriptor, sizeof(descriptor));
	CHECK(uw_dynamic_read(EM_X86_64, &list, 1, read_memory, NULL, &d) == -ENOENT,
	      "nothing was generated yet");
	entry.file = (const char *)memory.bytes + 256;
	entry.size = put_object(memory.bytes + 256, code, (uintptr_t)memory.bytes + 3000);
	descriptor.first = (void *)(memory.bytes + 64);
	memcpy(memory.bytes, &descriptor, sizeof(descriptor));
	memcpy(memory.bytes + 64, &entry, sizeof(entry));
	CHECK(uw_dynamic_read(EM_X86_64, &list, 1, read_memory, NULL, &d) == 0 &&
		      header_of(d)->flags == 0,
	      "read");
	CHECK(uw_dynamic_rule(d, code + 0x14, &rule, &alias) == 0 && rule.cfa_off == 24 &&
		      rule.start == code + 0x10,
	      "where it was put");
	CHECK(uw_dynamic_proc(d, code + 0x10, &proc) == 0 && proc.walkable && proc.name &&
		      !strcmp(proc.name, "hot_loop"),
	      "with its name");
	CHECK(uw_dynamic_marks(&list, 1, read_memory, NULL, &mark) == 0 &&
		      mark == uw_dynamic_mark(d),
	      "nothing new");
	descriptor.relevant = descriptor.first;
	memcpy(memory.bytes, &descriptor, sizeof(descriptor));
	CHECK(uw_dynamic_marks(&list, 1, read_memory, NULL, &mark) == 0 &&
		      mark != uw_dynamic_mark(d),
	      "something new");
	uw_dynamic_put(d);

	((Elf64_Shdr *)(void *)(memory.bytes + 256 + 512))[2].sh_size = 0;
	CHECK(uw_dynamic_read(EM_X86_64, &list, 1, read_memory, NULL, &d) == 0 &&
		      header_of(d)->flags == 0 &&
		      uw_dynamic_rule(d, code + 0x14, &rule, &alias) == -ENOENT &&
		      uw_dynamic_proc(d, code + 0x10, &proc) == 0 && !proc.walkable,
	      "its section of frames is empty");
	uw_dynamic_put(d);
	((Elf64_Shdr *)(void *)(memory.bytes + 256 + 512))[2].sh_size = sizeof(frame_bytes);

	/* No field says what relocations count from. */
	((Elf64_Shdr *)(void *)(memory.bytes + 256 + 512))[4].sh_type = SHT_PROGBITS;
	CHECK(uw_dynamic_read(EM_X86_64, &list, 1, read_memory, NULL, &d) == 0 &&
		      uw_dynamic_rule(d, code + 0x14, &rule, &alias) == -ENOENT,
	      "without symbols its frames are nowhere");
	uw_dynamic_put(d);

	memory.bytes[256 + EI_CLASS] = ELFCLASS32;
	CHECK(uw_dynamic_read(EM_X86_64, &list, 1, read_memory, NULL, &d) == 0 &&
		      header_of(d)->flags & DYNAMIC_DAMAGED && !header_of(d)->n_procs,
	      "something else than it should be");
	uw_dynamic_put(d);
}

/* Unwind information from a jitdump file: its addresses count from anywhere. */
static void test_made(void)
{
	struct uw_dynamic_code codes[] = {
		{ .start = CODE, .end = CODE + 0x40, .name = "old" },
		{ .start = CODE + 0x100,
		  .end = CODE + 0x140,
		  .name = "framed",
		  .frames = frame_bytes,
		  .frames_size = sizeof(frame_bytes) },
		{ .start = CODE + 0x20, .end = CODE + 0x60, .name = "new" },
	};
	struct uw_dynamic *d = NULL;
	struct uw_dynamic_proc proc;
	struct uw_rule rule;
	uint64_t alias;

	CHECK(uw_dynamic_make(EM_X86_64, codes, 3, false, &d) == 0 && !uw_dynamic_is_names(d),
	      "made");
	CHECK(uw_dynamic_rule(d, CODE + 0x104, &rule, &alias) == 0 && rule.cfa_off == 24 &&
		      rule.start == CODE + 0x100 && rule.end == CODE + 0x140,
	      "its frames are where it is");
	CHECK(uw_dynamic_proc(d, CODE + 0x30, &proc) == 0 && !strcmp(proc.name, "new") &&
		      !proc.walkable,
	      "the newer one");
	uw_dynamic_put(d);
	CHECK(uw_dynamic_make(EM_X86_64, codes, 3, true, &d) == 0 && uw_dynamic_is_names(d),
	      "names alone");
	CHECK(uw_dynamic_rule(d, CODE + 0x104, &rule, &alias) == -ENOENT, "lead nowhere");
	uw_dynamic_put(d);
	CHECK(uw_dynamic_make(EM_NONE, codes, 3, true, &d) == -EINVAL, "of no machine");
}

/* ---- harm ------------------------------------------------------------------------------------ */

static void expect_damage(const char *what, uint32_t flags, uint32_t procs)
{
	struct uw_dynamic *d = NULL;

	reads = 0;
	CHECK(read_lists(EM_X86_64, &d) == 0, what);
	if (!d)
		return;
	CHECK(header_of(d)->flags & flags, what);
	CHECK(header_of(d)->n_procs == procs && header_of(d)->size <= DYNAMIC_SIZE_MAX, what);
	CHECK(reads < 200000, what);
	uw_dynamic_put(d);
}

static void more_work(void)
{
	memory.list.generation++;
}

static void test_harm(void)
{
	unw_dyn_info_t *info;
	unw_dyn_op_t *op;
	struct uw_dynamic *d = NULL;

	forget();
	CHECK(read_lists(EM_X86_64, &d) == -ENOENT, "nothing is registered");
	info = enlist(0, CODE, CODE + 16, UNW_INFO_FORMAT_DYNAMIC);
	info->next = info;
	expect_damage("a list that bites its tail", DYNAMIC_CUT, 1);
	info->next = (void *)0x10;
	expect_damage("a wild pointer", DYNAMIC_DAMAGED, 1);
	info->next = NULL;
	info->u.pi.regions = (void *)1;
	expect_damage("wild regions: the name is left", DYNAMIC_DAMAGED, 1);
	info->u.pi.regions = &memory.regions[0].head;
	begin_region(0, 1, 0);
	chain(0, 0);
	expect_damage("regions in a circle", DYNAMIC_DAMAGED, 1);
	memory.regions[0].head.next = NULL;
	memory.regions[0].head.op_count = UINT32_MAX;
	expect_damage("2^32 operations", DYNAMIC_DAMAGED, 1);
	memory.regions[0].head.op_count = 0;
	info->end_ip = CODE;
	expect_damage("no code at all", DYNAMIC_DAMAGED, 0);
	info->end_ip = CODE + 16;
	info->format = 77;
	expect_damage("a format of its own", DYNAMIC_DAMAGED, 0);
	info->format = UNW_INFO_FORMAT_DYNAMIC;
	while_reading = more_work;
	expect_damage("it changes all the time", DYNAMIC_TORN, 1);
	while_reading = NULL;

	/* A description that no code can have stops the walk by its stop reason. */
	op = begin_region(0, 8, 1);
	*op = (unw_dyn_op_t){ .tag = 100, .when = -1 };
	CHECK(read_lists(EM_X86_64, &d) == 0, "read");
	check_stop(d, CODE, UW_STOP_BAD_CFI, "an unknown operation");
	uw_dynamic_put(d);
	_U_dyn_op_pop_frames(op, _U_QP_TRUE, -1, 1);
	CHECK(read_lists(EM_X86_64, &d) == 0, "read");
	check_stop(d, CODE, UW_STOP_BAD_CFI, "an epilogue of nothing");
	uw_dynamic_put(d);
	_U_dyn_op_pop_frames(op, _U_QP_TRUE, -1, UINT64_MAX);
	CHECK(read_lists(EM_X86_64, &d) == 0, "read");
	check_stop(d, CODE, UW_STOP_BAD_CFI, "many of them");
	uw_dynamic_put(d);
	_U_dyn_op_copy_state(op, 5);
	CHECK(read_lists(EM_X86_64, &d) == 0, "read");
	check_stop(d, CODE, UW_STOP_BAD_CFI, "a label that is not there");
	uw_dynamic_put(d);
	begin_region(0, 17, 0);
	CHECK(read_lists(EM_X86_64, &d) == 0, "read");
	check_stop(d, CODE, UW_STOP_BAD_CFI, "a region longer than its procedure");
	uw_dynamic_put(d);
}

/* If two procedures claim the same code, the newest has it. */
static void test_overlap(void)
{
	struct uw_dynamic_proc proc;
	struct uw_dynamic *d = NULL;

	forget();
	enlist(0, CODE, CODE + 0x100, UNW_INFO_FORMAT_DYNAMIC);
	enlist(1, CODE + 0x200, CODE + 0x300, UNW_INFO_FORMAT_DYNAMIC);
	enlist(2, CODE + 0x80, CODE + 0x180, UNW_INFO_FORMAT_DYNAMIC);
	CHECK(read_lists(EM_X86_64, &d) == 0 && header_of(d)->n_procs == 2, "read");
	CHECK(uw_dynamic_proc(d, CODE + 0x80, &proc) == 0 && proc.end == CODE + 0x180, "the newer");
	CHECK(uw_dynamic_proc(d, CODE, &proc) == -ENOENT, "the older is gone");
	uw_dynamic_put(d);
}

/* ---- kept -------------------------------------------------------------------------------------- */

static void test_kept(void)
{
	struct uw_dynamic *d = NULL, *again = NULL;
	uint8_t *copy;
	size_t size;

	forget();
	put_prologue(0);
	enlist(0, CODE, CODE + 0x100, UNW_INFO_FORMAT_DYNAMIC)->u.pi.regions =
		&memory.regions[0].head;
	CHECK(read_lists(EM_X86_64, &d) == 0, "read");
	(void)uw_dynamic_bytes(d, &size);
	copy = malloc(size + 1); /* off its alignment */
	memcpy(copy + 1, uw_dynamic_bytes(d, &size), size);
	forget();
	CHECK(uw_dynamic_open(copy + 1, size, &again) == 0, "kept");
	put_frame();
	check_caller(again, CODE + 16, STACK, STACK + 64, STACK + 80, "walks the same");
	uw_dynamic_put(again);
	for (size_t i = 0; i < size; i++) {
		copy[1 + i] ^= 1;
		CHECK(uw_dynamic_open(copy + 1, size, &again) < 0, "a changed byte");
		copy[1 + i] ^= 1;
		CHECK(uw_dynamic_open(copy + 1, i, &again) == -EBADMSG, "cut short");
	}
	free(copy);
	uw_dynamic_put(d);
	uw_dynamic_put(NULL);
}

int main(void)
{
	test_canned_prologue();
	test_saved_registers();
	test_labels();
	test_nested();
	test_kept_in_a_register();
	test_alias();
	test_aarch64();
	test_tables();
	test_table_aarch64();
	test_alias_of_a_file();
	test_jit_interface();
	test_made();
	test_harm();
	test_overlap();
	test_kept();
	return check_done();
}
