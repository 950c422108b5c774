/*
 * tests/fuzz/fuzz_uw_object.c: fuzzes objects with an ELF image: opening, every rule of its first
 * FDEs, look-ups all over its segments, its rows, and a walk of a thread in it.
 */
#include <elf.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "unwinder/rule/object.h"
#include "unwinder/walk/step.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FDES_MAX 24
#define FRAMES	 16
#define BASE	 ((uint64_t)0x10000000)
#define STACK	 ((uint64_t)0x70000000)
#define LOOKUPS	 6
#define ROWS_MAX 1000

static int one_row(void *ctx, uint64_t start, uint64_t end, const struct uw_rule *rule)
{
	unsigned int *rows = ctx;

	if (start >= end || rule->n_regs > UW_REGS_MAX)
		abort();
	return ++*rows > ROWS_MAX;
}

static void look_up(struct uw_object *object, uint64_t vaddr, const uint8_t *data, size_t size)
{
	struct uw_region region = { .addr = STACK, .size = size, .bytes = data };
	struct uw_memory memory = { .regions = &region, .n_regions = 1 };
	struct uw_rule rule;
	uint64_t cfa;

	for (int exact = 0; exact < 2; exact++) {
		struct uw_machine m = { .arch = uw_arch_of(uw_object_machine(object)),
					.read = uw_memory_read,
					.ctx = &memory };

		if (uw_object_rule(object, vaddr, exact, &rule))
			continue;
		for (unsigned int i = 0; i < UW_REGS_MAX; i++)
			m.regs.value[i] = STACK + 8 * i;
		m.regs.known = ((uint64_t)1 << UW_REGS_MAX) - 1;
		(void)uw_step(&m, &rule, &cfa);
	}
}

static void rows_of(struct uw_object *object, unsigned int which)
{
	const struct uw_cfi *cfi = &uw_object_frames(object, which)->cfi;
	uint64_t off = 0, next;

	for (unsigned int i = 0; i < FDES_MAX && off < cfi->size; i++, off = next) {
		struct uw_fde fde;
		unsigned int rows = 0;

		next = off;
		if (!uw_cfi_entry(cfi, off, &fde, &next))
			(void)uw_cfi_rows(cfi, &fde, one_row, &rows);
		if (next <= off)
			break;
	}
}

static struct uw_object *give(void *ctx, const struct uw_mapping *mapping)
{
	(void)mapping;
	return uw_object_get(ctx);
}

static void walk(struct uw_object *object, const struct uw_segment *s, const uint8_t *data,
		 size_t size)
{
	static struct uw_worker *worker;
	struct uw_frame frames[FRAMES];
	struct uw_stack stack = { .frames = frames, .max_frames = FRAMES };
	struct uw_region region = { .addr = STACK, .size = size, .bytes = data };
	struct uw_memory memory = { .regions = &region, .n_regions = 1 };
	struct uw_thread thread = { .read = uw_memory_read, .ctx = &memory };
	const struct uw_arch *arch = uw_arch_of(uw_object_machine(object));
	struct uw_mapping mapping = { .start = BASE,
				      .end = BASE + 0x100000,
				      .off = s->off,
				      .prot = PROT_READ | PROT_EXEC,
				      .kind = UW_MAPPING_FILE };
	struct uw_space *space;

	if (!worker && uw_worker_new(&worker))
		return;
	if (uw_space_new(uw_object_machine(object), give, object, &space))
		return;
	for (unsigned int i = 0; i < UW_REGS_MAX; i++)
		thread.regs.value[i] = STACK + 8 * i;
	thread.regs.known = ((uint64_t)1 << UW_REGS_MAX) - 1;
	thread.regs.value[arch->sp] = STACK;
	(void)uw_space_map(space, &mapping);
	for (uint64_t at = size % 3 * 0x25; at < 0x100;
	     at += 3 * 0x25) { /* others for another size */
		thread.regs.value[arch->pc] = BASE + at;
		uw_walk(space, worker, &thread, &stack);
		if (stack.stop >= UW_STOP_N || stack.n_frames > FRAMES || !stack.n_frames)
			abort();
	}
	uw_space_free(space);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct uw_segment *segments;
	struct uw_object *object;
	uint8_t bytes[64];
	size_t n;

	if (uw_object_open_image(data, size, &object))
		return 0;
	segments = uw_object_segments(object, &n);
	for (size_t i = 0; i < n && i < 8; i++) {
		const struct uw_segment *s = &segments[i];
		uint64_t vaddr;

		(void)uw_object_vaddr(object, s->off, &vaddr);
		(void)uw_object_read(object, s->vaddr + s->file_size - 32, bytes, sizeof(bytes));
		for (unsigned int k = 0; k < LOOKUPS; k++)
			look_up(object, s->vaddr + s->file_size / LOOKUPS * k + k + size % 16, data,
				size);
		if (s->flags & PF_X)
			walk(object, s, data, size);
	}
	for (unsigned int i = 0; i < 3; i++)
		rows_of(object, i);
	uw_object_put(object);
	return 0;
}
