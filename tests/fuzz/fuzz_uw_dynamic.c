/*
 * tests/fuzz/fuzz_uw_dynamic.c: fuzzes the reader of unwind information of generated code.
 * If byte 0 is odd, the rest is the memory of a process that begins with its lists, which are read,
 * stored and looked up. If it is even, the rest is a stored blob, whose checksum is corrected so
 * that the contents are read.
 */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "unwinder/arch/arch.h"
#include "unwinder/dynamic/dynamic.h"
#include "unwinder/walk/step.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BASE  ((uint64_t)0x100000)
#define STACK ((uint64_t)0x700000)
#define READS 2000 /* of one input; lists may be circles */

static void step(const struct uw_arch *arch, const struct uw_rule *rule, const uint8_t *data,
		 size_t size)
{
	struct uw_region region = { .addr = STACK, .size = size, .bytes = data };
	struct uw_memory memory = { .regions = &region, .n_regions = 1 };
	struct uw_machine m = { .arch = arch, .read = uw_memory_read, .ctx = &memory };
	uint64_t cfa;

	for (unsigned int i = 0; i < arch->n_regs; i++)
		m.regs.value[i] = STACK + 32 + 8 * i;
	m.regs.known = ((uint64_t)1 << arch->n_regs) - 1;
	(void)uw_step(&m, rule, &cfa);
}

static void ask(const struct uw_dynamic *d, const uint8_t *data, size_t size)
{
	size_t whole;
	const struct dynamic_header *h = uw_dynamic_bytes(d, &whole);
	const struct dynamic_proc *procs = (const void *)(h + 1);

	for (size_t i = 0; i < h->n_procs && i < 16; i++) {
		uint64_t length = procs[i].end - procs[i].start;

		for (uint64_t k = size % 2; k < 16; k += 2) { /* others for another size */
			uint64_t at = procs[i].start + (length > 16 ? length / 16 * k : k), alias;
			struct uw_dynamic_proc proc;
			struct uw_rule rule;

			if (!uw_dynamic_proc(d, at, &proc) && proc.name &&
			    strlen(proc.name) >= whole)
				abort();
			if (!uw_dynamic_rule(d, at, &rule, &alias))
				step(uw_arch_of(h->machine), &rule, data, size);
		}
	}
}

static void foreign(const uint8_t *data, size_t size)
{
	struct dynamic_header head;
	struct uw_dynamic *d;
	uint8_t *bytes;

	if (size < sizeof(head))
		return;
	bytes = malloc(size);
	if (!bytes)
		return;
	memcpy(bytes, data, size);
	memcpy(&head, bytes, sizeof(head));
	head.size = size;
	head.checksum = 0;
	bytes[size - 1] = 0;
	head.checksum = uw_checksum(bytes + sizeof(head), size - sizeof(head),
				    uw_checksum(&head, sizeof(head), 0));
	memcpy(bytes, &head, sizeof(head));
	if (!uw_dynamic_open(bytes, size, &d)) {
		ask(d, data, size);
		uw_dynamic_put(d);
	}
	free(bytes);
}

struct target {
	struct uw_memory memory;
	unsigned int reads;
};

/* uw_read_fn */
static int read_target(void *ctx, uint64_t addr, void *out, size_t size)
{
	struct target *t = ctx;

	return ++t->reads > READS ? -EFAULT : uw_memory_read(&t->memory, addr, out, size);
}

static void process(const uint8_t *data, size_t size)
{
	static const uint16_t machines[] = { EM_X86_64, EM_AARCH64 };
	const struct uw_dynamic_list lists[] = { { UW_DYNAMIC_LIST, BASE },
						 { UW_DYNAMIC_JIT, BASE + 32 } };
	struct uw_region region = { .addr = BASE, .size = size, .bytes = data };
	struct target target = { .memory = { .regions = &region, .n_regions = 1 } };
	struct uw_dynamic *d, *again;
	const void *bytes;

	if (uw_dynamic_read(machines[size & 1], lists, 2, read_target, &target, &d))
		return;
	bytes = uw_dynamic_bytes(d, &size);
	if (size > DYNAMIC_SIZE_MAX || uw_dynamic_open(bytes, size, &again))
		abort();
	uw_dynamic_put(again);
	ask(d, data, region.size);
	uw_dynamic_put(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2)
		return 0;
	if (data[0] & 1)
		process(data + 1, size - 1);
	else
		foreign(data + 1, size - 1);
	return 0;
}
