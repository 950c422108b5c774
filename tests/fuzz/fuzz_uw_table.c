/*
 * tests/fuzz/fuzz_uw_table.c: fuzzes compiled tables.
 * If byte 0 is even, the rest is a foreign table, whose checksum is corrected so that the contents
 * are read: it is refused, or every look-up is harmless. If byte 0 is odd, the rest is call frame
 * information that is compiled: every rule of the table must lead to the same step as the
 * interpreter's rule.
 */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "unwinder/cfi/ehframe.h"
#include "unwinder/table/table.h"
#include "unwinder/table/table_build.h"
#include "unwinder/walk/step.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define VADDR ((uint64_t)0x1000000)
#define CODE  ((uint64_t)0x800000)
#define ROOM  ((uint64_t)0x1000000)
#define STACK ((uint64_t)0x700000)

static int step(const struct uw_arch *arch, const struct uw_rule *rule, const uint8_t *data,
		size_t size, struct uw_machine *m, uint64_t *cfa)
{
	struct uw_region region = { .addr = STACK, .size = size, .bytes = data };
	struct uw_memory memory = { .regions = &region, .n_regions = 1 };
	int got;

	*m = (struct uw_machine){ .arch = arch, .read = uw_memory_read, .ctx = &memory };
	for (unsigned int i = 0; i < arch->n_regs; i++)
		m->regs.value[i] = STACK + 32 + 8 * i;
	m->regs.known = ((uint64_t)1 << arch->n_regs) - 1;
	*cfa = 0;
	got = uw_step(m, rule, cfa);
	m->ctx = NULL;
	return got;
}

static void foreign(const uint8_t *data, size_t size)
{
	struct uw_table table;
	struct uw_rule rule;
	uint8_t *blob = malloc(size ? size : 1);

	if (!blob)
		return;
	memcpy(blob, data, size);
	if (size >= TABLE_HEADER_SIZE) {
		struct table_header *h = (struct table_header *)blob;

		h->blob.size = size;
		h->blob.header_size = TABLE_HEADER_SIZE;
		if (h->blob.front > size)
			h->blob.front = (uint32_t)size;
		h->blob.front &= ~7u;
		if (h->blob.front >= TABLE_HEADER_SIZE + uw_blob_sums(size - h->blob.front))
			uw_blob_seal(blob);
	}
	if (!uw_table_open(&table, blob, size)) {
		const struct table_header *h = table.header;

		for (uint64_t i = size % 16; i < 4096; i += 16) { /* others for another size */
			uint64_t at = h->base + i * (h->span / 4096 + 1) + i % 7;
			struct uw_machine m;
			uint64_t cfa;

			if (uw_table_row(&table, at) != uw_table_row_portable(&table, at))
				abort();
			if (!uw_table_rule(&table, at, &rule))
				(void)step(table.arch, &rule, data, size, &m, &cfa);
		}
	}
	free(blob);
}

/* Like uw_object_interpret, for one section and without code to look at. */
static int interpret(struct uw_frames *frames, uint64_t lookup, struct uw_rule *out)
{
	struct uw_fde fde, other;
	struct uw_gap gap, one;
	int look = uw_frames_look(frames, lookup, &other, &one);
	int err = uw_frames_find(frames, lookup, &fde);

	if (look != -EAGAIN && (look != err || (!look && fde.start != other.start)))
		abort();
	if (err == -ENOENT) {
		err = uw_frames_gap(frames, lookup, &gap);
		if (look == -ENOENT && frames->cfi.size &&
		    (err || gap.start != one.start || gap.end != one.end))
			abort();
		if (err || !gap.has_before || gap.end - gap.start >= UW_PADDING_MAX)
			return err ? err : -ENOENT;
		err = uw_cfi_entry(&frames->cfi, gap.before, &fde, NULL);
	}
	return err ? err : uw_cfi_rule(&frames->cfi, &fde, lookup, out);
}

static void compare(const struct uw_table *table, struct uw_frames *frames, uint64_t lookup,
		    const uint8_t *data, size_t size)
{
	struct uw_rule told, rule;
	struct uw_machine a, b;
	uint64_t cfa_a, cfa_b;
	const struct uw_arch *arch = table->arch;

	if (uw_table_rule(table, lookup, &told))
		return;
	if (interpret(frames, lookup, &rule))
		abort();
	if (step(arch, &told, data, size, &a, &cfa_a) !=
		    step(arch, &rule, data, size, &b, &cfa_b) ||
	    cfa_a != cfa_b)
		abort();
	for (unsigned int i = 0; i < arch->n_regs; i++)
		if ((a.regs.known ^ b.regs.known) >> i & 1 ||
		    (a.regs.known >> i & 1 && a.regs.value[i] != b.regs.value[i]))
			abort();
}

/* In and around the first FDEs. */
static void compare_fdes(const struct uw_table *table, struct uw_frames *frames,
			 const uint8_t *data, size_t size)
{
	uint64_t off = 0, next;
	struct uw_fde fde;

	for (unsigned int i = 0; i < 24 && off < frames->cfi.size; i++, off = next) {
		next = off;
		if (!uw_cfi_entry(&frames->cfi, off, &fde, &next)) {
			for (uint64_t at = size % 3; at < 24;
			     at += 3) { /* others for another size */
				compare(table, frames, fde.start + at * at / 2, data, size);
				compare(table, frames, fde.end + at - 4, data, size);
			}
		}
		if (next <= off)
			break;
	}
}

static void compiled(uint8_t how, const uint8_t *data, size_t size)
{
	const struct uw_arch *arch = how & 2 ? &uw_arch_aarch64 : &uw_arch_x86_64;
	struct uw_segment code = {
		.vaddr = CODE, .file_size = ROOM, .mem_size = ROOM, .flags = PF_X
	};
	struct uw_build_id id = { .size = 0 };
	struct uw_frames frames;
	struct uw_table_source source = { .arch = arch,
					  .cfi = { &frames.cfi },
					  .build_id = &id,
					  .segments = &code,
					  .n_segments = 1 };
	struct uw_table table;
	uint8_t *blob;
	size_t blob_size;

	uw_frames_init(&frames);
	frames.cfi = (struct uw_cfi){ .data = data,
				      .size = size,
				      .vaddr = VADDR,
				      .eh = !(how & 4),
				      .to_terminator = how & 8 };
	if (!uw_table_build(&source, &blob, &blob_size)) {
		if (uw_table_open(&table, blob, blob_size))
			abort();
		for (uint64_t i = size % 8; i < 256; i += 8) /* others for another size */
			compare(&table, &frames, CODE + i * 0x10007, data, size);
		compare_fdes(&table, &frames, data, size);
		free(blob);
	}
	uw_frames_fini(&frames);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2)
		return 0;
	if (data[0] & 1)
		compiled(data[0], data + 1, size - 1);
	else
		foreign(data + 1, size - 1);
	return 0;
}
