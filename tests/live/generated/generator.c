/*
 * tests/live/generated/generator.c: writes functions into memory and registers them, with libunwind
 * or with OURS: half of them as regions with operations, half as a table of FDEs. They call one
 * another; the last one uses CPU time.
 *
 * They run for about two seconds; with "endless" until killed, and print "ready" when all of them
 * are on the stack. Another argument is the path of a jitdump file, which then describes the
 * functions instead.
 *
 * None of them keeps a frame pointer: rbp is saved and holds a meaningless value in the meantime,
 * so that only the registered information leads through them.
 */
#ifdef OURS
#include "generator/dynamic.h"
#else
#include <libunwind.h>
#endif
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* DWARF numbers: psABI x86_64 figure 3.36. */
enum { RBP = 6, RSP = 7 };

#define DEPTH 12
#define ROOM  64

static volatile unsigned long spun;
static int endless;

static __attribute__((noinline)) void burn(void)
{
	if (endless && !spun)
		(void)!write(STDOUT_FILENO, "ready\n", 6);
	for (unsigned int i = 0; i < 50000000; i++)
		spun += i;
}

/* push %rbp; mov $-1,%ebp; sub $40,%rsp; movabs callee,%rax; call *%rax; add $40,%rsp; pop; ret */
static const uint8_t body[] = { 0x55, 0xbd, 0xff, 0xff, 0xff, 0xff, 0x48, 0x83, 0xec, 0x28,
				0x48, 0xb8, 0,	  0,	0,    0,    0,	  0,	0,    0,
				0xff, 0xd0, 0x48, 0x83, 0xc4, 0x28, 0x5d, 0xc3 };
enum { AT_PUSH = 0, AT_SUB = 6, AT_CALLEE = 12, AT_ADD = 22, AT_POP = 26 };

static uint8_t *code;
static char names[DEPTH][16];

static void describe_regions(unsigned int i)
{
	unw_dyn_region_info_t *region = calloc(1, (size_t)_U_dyn_region_info_size(8));
	unw_dyn_info_t *info = calloc(1, sizeof(*info));
	unw_dyn_op_t *op = region->op;

	region->insn_count = sizeof(body);
	region->op_count = 8;
	_U_dyn_op_add(op++, _U_QP_TRUE, AT_PUSH, RSP, (unw_word_t)-8);
	_U_dyn_op_spill_sp_rel(op++, _U_QP_TRUE, AT_PUSH, RBP, 0);
	_U_dyn_op_add(op++, _U_QP_TRUE, AT_SUB, RSP, (unw_word_t)-40);
	_U_dyn_op_add(op++, _U_QP_TRUE, AT_ADD, RSP, 40);
	_U_dyn_op_pop_frames(op++, _U_QP_TRUE, AT_POP, 1);
	_U_dyn_op_stop(op++);
	info->start_ip = (uintptr_t)code + i * ROOM;
	info->end_ip = info->start_ip + sizeof(body);
	info->format = UNW_INFO_FORMAT_DYNAMIC;
	info->u.pi.name_ptr = (uintptr_t)names[i];
	info->u.pi.regions = region;
	_U_dyn_register(info);
}

/*
 * Write a jitdump file with names and frames (tools/perf/Documentation/jitdump-specification.txt in
 * the kernel).
 */
static FILE *dump;

static void put(const void *bytes, size_t size)
{
	if (fwrite(bytes, size, 1, dump) != 1)
		exit(1);
}

static void begin_dump(const char *path)
{
	const uint32_t head[10] = { 0x4a695444, 1, sizeof(head), 62 /* EM_X86_64 */ };

	dump = fopen(path, "w+");
	if (!dump)
		exit(1);
	put(head, sizeof(head));
	(void)fflush(dump);
	/* The recorder finds the file by this mapping. */
	if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(dump), 0) == MAP_FAILED)
		exit(1);
}

/*
 * As an assembler writes it: after 1 byte CFA=rsp+16, rbp at -16; after 9 more bytes CFA=rsp+56;
 * after 16 more CFA=rsp+16; after 1 more CFA=rsp+8.
 */
static const uint8_t frame[] = {
	20,
	0,
	0,
	0,
	0,
	0,
	0,
	0,
	1,
	'z',
	'R',
	0,
	1,
	0x78,
	16,
	1,
	0x1b,
	12,
	7,
	8,
	0x90,
	1,
	0,
	0,
	28,
	0,
	0,
	0,
	28,
	0,
	0,
	0,
	0,
	0,
	0,
	0,
	sizeof(body),
	0,
	0,
	0,
	0,
	0x41,
	0x0e,
	16,
	0x86,
	2,
	0x49,
	0x0e,
	56,
	0x50,
	0x0e,
	16,
	0x41,
	0x0e,
	8,
	0,
};

/* After the code, because the offsets have 32 bits. */
static void describe_table(unsigned int i, uint8_t *room)
{
	enum { FDE = 24, START = 32 };
	unw_dyn_info_t *info = calloc(1, sizeof(*info));
	uint64_t start = (uintptr_t)code + i * ROOM;
	int32_t distance = (int32_t)(start - (uintptr_t)(room + START));
	int32_t pair[2] = { (int32_t)(start - (uintptr_t)room), FDE };

	memcpy(room, frame, sizeof(frame));
	memcpy(room + START, &distance, sizeof(distance));
	memcpy(room + 64, pair, sizeof(pair));
	info->start_ip = start;
	info->end_ip = start + sizeof(body);
	info->format = UNW_INFO_FORMAT_REMOTE_TABLE;
	info->u.rti.name_ptr = (uintptr_t)names[i];
	info->u.rti.segbase = (uintptr_t)room;
	info->u.rti.table_len = 1;
	info->u.rti.table_data = (uintptr_t)room + 64;
	_U_dyn_register(info);
}

static void describe_in_dump(unsigned int i)
{
	uint64_t start = (uintptr_t)code + i * ROOM;
	const uint64_t unwinding[] = { 4 | (uint64_t)(40 + sizeof(frame)) << 32, 0, sizeof(frame),
				       0, 0 };
	size_t name = strlen(names[i]) + 1;
	const uint64_t load[] = {
		(uint64_t)(56 + name + sizeof(body)) << 32, 0, 0, start, start, sizeof(body), i
	};

	put(unwinding, sizeof(unwinding));
	put(frame, sizeof(frame));
	put(load, sizeof(load));
	put(names[i], name);
	put(code + i * ROOM, sizeof(body));
	(void)fflush(dump);
}

int main(int argc, char **argv)
{
	void (*first)(void);
	uint8_t *data;

	code = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (code == MAP_FAILED)
		return 1;
	data = code + 4096;
	endless = argc > 1 && !strcmp(argv[1], "endless");
	if (argc > 1 && !endless)
		begin_dump(argv[1]);
	for (unsigned int i = 0; i < DEPTH; i++) {
		uint64_t callee =
			i + 1 < DEPTH ? (uintptr_t)code + (i + 1) * ROOM : (uintptr_t)burn;

		memcpy(code + i * ROOM, body, sizeof(body));
		memcpy(code + i * ROOM + AT_CALLEE, &callee, sizeof(callee));
		(void)snprintf(names[i], sizeof(names[i]), "generated_%u", i);
		if (dump)
			describe_in_dump(i);
		else if (i % 2)
			describe_table(i, data + i * 128);
		else
			describe_regions(i);
	}
	if (mprotect(code, 4096, PROT_READ | PROT_EXEC))
		return 1;
	memcpy(&first, &code, sizeof(first));
	for (unsigned int i = 0; i < 20 || endless; i++)
		first();
	return 0;
}
