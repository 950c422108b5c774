/*
 * tests/fuzz/fuzz_uw_lazy_fde.c: fuzzes the look-up of single FDEs by a file's search table. Byte 0
 * says how the file is read: in memory, mapped, or by its descriptor; the rest is the file. What is
 * found covers the address that was looked up.
 */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "unwinder/rule/lazy_fde.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { IMAGE, VIEW, DESCRIPTOR };

#define LOOKUPS 64

static struct uw_source source_of(unsigned int way, const uint8_t *bytes, size_t size)
{
	static int file = -1;
	struct uw_source source = { .fd = -1, .size = size };

	if (way == VIEW) {
		source.view = (struct uw_view){ .bytes = bytes, .size = size };
	} else if (way == DESCRIPTOR) {
		if (file < 0)
			file = memfd_create("file", MFD_CLOEXEC);
		if (file < 0 || ftruncate(file, (off_t)size) ||
		    pwrite(file, bytes, size, 0) != (ssize_t)size)
			abort();
		source.fd = file;
	} else {
		source.image = bytes;
	}
	return source;
}

static void look_up(struct uw_lazy_fde *lazy, uint64_t lookup)
{
	uint64_t start, end, from, to;
	struct uw_rule rule;
	int err = uw_lazy_fde_rule(lazy, lookup, &rule, &start, &end);

	if ((!err || err == -ENOENT) && (lookup < start || lookup >= end))
		abort();
	if (!err && rule.n_regs > UW_REGS_MAX)
		abort();
	if (!uw_lazy_fde_range(lazy, lookup, &from, &to) &&
	    (lookup < from || lookup >= to || (!err && (from != start || to != end))))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct uw_cfi bases = { .size = 0 };
	struct uw_lazy_fde lazy;
	struct uw_source source;
	struct uw_elf elf;

	if (!size)
		return 0;
	source = source_of(data[0] % 3, data + 1, size - 1);
	if (uw_elf_init_64(&elf, &source))
		return 0;
	elf.source = source;
	uw_lazy_fde_init(&lazy, &elf, &bases);
	if (lazy.usable) {
		for (uint64_t i = size % 4; i < LOOKUPS; i += 4) /* others for another size */
			look_up(&lazy, lazy.first + (lazy.last - lazy.first) / LOOKUPS * i + i);
		look_up(&lazy, lazy.last);
		look_up(&lazy, lazy.first - 1);
		look_up(&lazy, UINT64_MAX);
		look_up(&lazy, 0);
	}
	uw_lazy_fde_fini(&lazy);
	uw_elf_fini(&elf);
	return 0;
}
