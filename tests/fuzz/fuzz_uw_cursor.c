/*
 * tests/fuzz/fuzz_uw_cursor.c: fuzzes cursors over a target whose memory is the input.
 * Byte 0 chooses the machine, and whether there is a search table, a list of code generators, both
 * or neither. Then come the low bytes of the registers and the memory from BASE on. Whatever the
 * input is, a cursor comes to an end, the places and procedures that it reports are harmless, a
 * copy of it takes the same steps, and all that was requested is released.
 */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "unwinder/unwinder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BASE   ((uint64_t)0x100000)
#define FRAMES 24
#define READS  1000
#define HEAD   (1 + UW_REGS_MAX)

struct target {
	const uint8_t *bytes;
	size_t size;
	const uint8_t *regs;
	uint16_t machine;
	unsigned int reads;
	int held;
};

static int read_mem(void *ctx, uint64_t addr, void *out, size_t size)
{
	struct target *t = ctx;

	if (++t->reads > READS || addr < BASE || addr - BASE > t->size ||
	    size > t->size - (addr - BASE))
		return -EFAULT;
	memcpy(out, t->bytes + (addr - BASE), size);
	return 0;
}

static int read_reg(void *ctx, unsigned int reg, uint64_t *value)
{
	const struct target *t = ctx;

	*value = BASE + t->regs[reg] * UINT64_C(8);
	return t->regs[reg] == 0xff ? -ENODATA : 0;
}

static int find(void *ctx, uint64_t pc, bool rules, struct uw_proc_info *out)
{
	struct target *t = ctx;
	const struct uw_search_table table = {
		.base = BASE, .start = BASE, .entries = BASE + 8, .n = t->size / 16, .gp = BASE
	};
	const struct uw_proc_query query = {
		.pc = pc, .rules = rules, .machine = t->machine, .read = read_mem, .ctx = t
	};
	int err = uw_proc_info_search(&table, &query, out);

	t->held += !err && out->unwind_info;
	return err;
}

static void put(void *ctx, struct uw_proc_info *info)
{
	((struct target *)ctx)->held--;
	uw_proc_info_free(info);
	if (info->unwind_info)
		abort();
}

static int dyn_list(void *ctx, uint64_t *addr)
{
	(void)ctx;
	*addr = BASE;
	return 0;
}

static void ask(const struct uw_cursor *cursor)
{
	struct uw_proc_info info;
	struct uw_frame frame;
	struct uw_save save;
	uint64_t off;
	char name[16];

	for (unsigned int reg = 0; reg <= UW_REGS_MAX; reg++)
		if (!uw_cursor_save(cursor, reg, &save) && save.place == UW_PLACE_SAME)
			abort(); /* this belongs to a step, not to a frame */
	(void)uw_cursor_frame(cursor, &frame);
	(void)uw_cursor_is_signal(cursor);
	if (!uw_cursor_proc_info(cursor, &info) && info.unwind_info)
		abort();
	(void)uw_cursor_proc_name(cursor, name, sizeof(name), &off);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct uw_accessors accessors = { .read_mem = read_mem,
					  .read_reg = read_reg,
					  .put_proc_info = put };
	struct uw_cursor cursor, copy;
	struct uw_target *target;
	struct target t;
	int got = 1;

	if (size < HEAD)
		return 0;
	t = (struct target){ .bytes = data + HEAD,
			     .size = size - HEAD,
			     .regs = data + 1,
			     .machine = data[0] & 1 ? EM_AARCH64 : EM_X86_64 };
	if (data[0] & 2)
		accessors.find_proc_info = find;
	if (data[0] & 4)
		accessors.dyn_list_addr = dyn_list;
	if (uw_target_new(t.machine, 0, &accessors, NULL, &target))
		return 0;
	if (data[0] & 8)
		(void)uw_target_caching(target, UW_CACHING_NONE);
	if (!uw_cursor_init(&cursor, target, &t)) {
		for (unsigned int i = 0; i < FRAMES && got == 1; i++) {
			uint64_t a = 0, b = 0;

			ask(&cursor);
			copy = cursor;
			t.reads = 0;
			got = uw_cursor_step(&copy);
			t.reads = 0;
			if (uw_cursor_step(&cursor) != got)
				abort();
			if (uw_cursor_reg(&copy, 7, &a) != uw_cursor_reg(&cursor, 7, &b) || a != b)
				abort();
		}
	}
	if (t.held)
		abort();
	uw_target_free(target);
	return 0;
}
