/*
 * tests/fuzz/fuzz_uw_cfi.c: fuzzes the reader of call frame information with a section that has no
 * file around it. Byte 0 chooses .eh_frame or .debug_frame and a table. Rules that are found are
 * applied.
 */
#include <stdlib.h>
#include <string.h>

#include "unwinder/cfi/ehframe.h"
#include "unwinder/walk/expr.h"
#include "unwinder/walk/step.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define VADDR ((uint64_t)0x10000)

static void step(const struct uw_rule *rule, const uint8_t *data, size_t size)
{
	struct uw_region region = { .addr = 0x7000, .size = size, .bytes = data };
	struct uw_memory memory = { .regions = &region, .n_regions = 1 };
	struct uw_machine m = { .arch = &uw_arch_x86_64, .read = uw_memory_read, .ctx = &memory };
	uint64_t cfa;

	for (unsigned int i = 0; i < UW_REGS_MAX; i++)
		m.regs.value[i] = 0x7000 + 8 * i;
	m.regs.known = ((uint64_t)1 << UW_REGS_MAX) - 1;
	(void)uw_step(&m, rule, &cfa);
	m.arch = &uw_arch_aarch64;
	(void)uw_step(&m, rule, &cfa);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct uw_frames frames;
	struct uw_fde fde;
	struct uw_fde general;
	struct uw_rule rule;
	struct uw_gap gap;
	uint64_t off = 0, next, value;
	struct uw_machine m = { .arch = &uw_arch_x86_64, .read = uw_memory_read };
	struct uw_memory none = { .n_regions = 0 };

	if (size < 2)
		return 0;
	uw_frames_init(&frames);
	frames.cfi = (struct uw_cfi){ .data = data + 2,
				      .size = size - 2,
				      .vaddr = VADDR,
				      .has_text = data[0] & 4,
				      .has_got = data[0] & 8,
				      .to_terminator = data[0] & 16,
				      .eh = data[0] & 1 };
	/* The same bytes, from some offset on, as the table. */
	if (data[0] & 2 && data[1] < size - 2)
		(void)uw_hdr_init(&frames.table, data + 2 + data[1], size - 2 - data[1],
				  VADDR + data[1]);
	uw_frames_top(&frames);
	for (; off < frames.cfi.size; off = next) {
		next = off;
		if (uw_cfi_entry(&frames.cfi, off, &fde, &next) !=
		    uw_cfi_entry_general(&frames.cfi, off, &general, &next))
			abort();
		if (!uw_cfi_entry(&frames.cfi, off, &fde, &next) &&
		    !uw_cfi_rule(&frames.cfi, &fde, fde.start + (fde.end - fde.start) / 2, &rule))
			step(&rule, data, size);
		if (next <= off)
			break;
	}
	/* Others for another size. */
	for (uint64_t lookup = size % 4; lookup < 64; lookup += 4) {
		if (!uw_frames_find(&frames, VADDR + lookup * 64, &fde) &&
		    (VADDR + lookup * 64 < fde.start || VADDR + lookup * 64 >= fde.end))
			abort();
		(void)uw_frames_gap(&frames, lookup * 64, &gap);
	}
	m.ctx = &none;
	(void)uw_expr_run(&m, data, size, &off, &value);
	uw_frames_fini(&frames);
	return 0;
}
