/*
 * tests/unit/test_lazy_fde.c: tests the lazy FDE lookup: it compares single FDEs that are looked up
 * in a file with those of the whole section, all over the code of files that exist, for each way to
 * read their bytes. Then it does the same with random changes in the bytes, where only the bounds
 * matter.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/check.h"
#include "unwinder/rule/lazy_fde.h"
#include "unwinder/rule/object.h"

#define LOOKUPS 20000
#define FLIPS	2000

static bool same_rule(const struct uw_rule *a, const struct uw_rule *b)
{
	bool same = a->start == b->start && a->end == b->end && a->cfa_reg == b->cfa_reg &&
		    a->cfa_off == b->cfa_off && a->ra == b->ra && a->signal == b->signal &&
		    a->ra_signed == b->ra_signed && a->n_regs == b->n_regs;

	for (unsigned int i = 0; same && i < a->n_regs; i++)
		same = a->regs[i].reg == b->regs[i].reg && a->regs[i].kind == b->regs[i].kind &&
		       a->regs[i].from == b->regs[i].from && a->regs[i].off == b->regs[i].off;
	return same;
}

static bool has_expression(const struct uw_rule *rule)
{
	bool has = rule->cfa_size;

	for (unsigned int i = 0; i < rule->n_regs; i++)
		has |= rule->regs[i].kind == UW_RULE_AT_EXPR || rule->regs[i].kind == UW_RULE_EXPR;
	return has;
}

static uint8_t *contents(const char *path, size_t *size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint8_t *bytes = NULL;
	struct stat st;

	if (fd >= 0 && !fstat(fd, &st)) {
		bytes = malloc((size_t)st.st_size + 1);
		*size = (size_t)st.st_size;
		if (bytes && read(fd, bytes, *size) != (ssize_t)*size) {
			free(bytes);
			bytes = NULL;
		}
	}
	if (fd >= 0)
		close(fd);
	return bytes;
}

static int file_of(const uint8_t *bytes, size_t size)
{
	int fd = memfd_create("peek", MFD_CLOEXEC);

	CHECK(fd >= 0 && write(fd, bytes, size) == (ssize_t)size, "a copy");
	return fd;
}

enum way { IMAGE, DESCRIPTOR, VIEW, WAYS };

static const char *const way_names[WAYS] = { "in memory", "read", "mapped" };

/* fd: of the same bytes; with a view it need not be one. */
static bool make(enum way way, const uint8_t *bytes, int fd, size_t size, struct uw_elf *elf,
		 struct uw_lazy_fde *peek)
{
	struct uw_source source = { .fd = way == DESCRIPTOR ? fd : -1, .size = size };
	struct uw_cfi bases = { .size = 0 };

	if (way == IMAGE)
		source.image = bytes;
	else if (way == VIEW)
		source.view = (struct uw_view){ .bytes = bytes, .size = size };
	if (uw_elf_init_64(elf, &source))
		return false;
	elf->source = source;
	uw_lazy_fde_init(peek, elf, &bases);
	return true;
}

/* The section's own index is right: the tests of ehframe.c and cfi.c check that. */
static void test_finds_what_the_section_has(const char *path, enum way way, const uint8_t *bytes,
					    int fd, size_t size)
{
	const Elf64_Shdr *text;
	struct uw_object *object;
	struct uw_frames *frames;
	struct uw_elf elf;
	struct uw_lazy_fde peek;
	unsigned long found = 0, bare = 0, wrong = 0, left = 0;

	if (uw_object_open_image(bytes, size, &object) ||
	    !make(way, bytes, fd, size, &elf, &peek)) {
		CHECK(false, path);
		return;
	}
	CHECK(peek.usable, path);
	frames = uw_object_frames(object, 0);
	text = uw_elf_section(&elf, ".text");
	for (uint64_t i = 0; text && i < LOOKUPS; i++) {
		/* Odd steps, from below .text to after it. */
		uint64_t lookup = text->sh_addr - 64 + (text->sh_size + 128) * i / LOOKUPS;
		uint64_t start = 0, end = 0, from = 0, to = 0;
		struct uw_rule peeked, rule;
		struct uw_fde fde;
		int err = uw_lazy_fde_rule(&peek, lookup, &peeked, &start, &end);
		int want = uw_frames_find(frames, lookup, &fde);

		if (err == -EAGAIN) {
			left++;
			continue;
		}
		if (!want)
			want = uw_cfi_rule(&frames->cfi, &fde, lookup, &rule);
		wrong += err != want;
		if (!err && !want && !has_expression(&rule)) {
			wrong += !same_rule(&peeked, &rule) || start != fde.start || end != fde.end;
			found++;
		}
		if (err == -ENOENT) {
			wrong += lookup < start || lookup >= end || start >= end;
			bare++;
		}
		wrong += uw_lazy_fde_range(&peek, lookup, &from, &to) != err || from != start ||
			 to != end;
	}
	CHECK(wrong == 0, path);
	CHECK(found > LOOKUPS / 2 && left < LOOKUPS / 20, path);
	CHECK(peek.in_memory == (way != DESCRIPTOR), "what is in memory is known to be");
	/* If reading costs nothing, gaps are looked up in the whole section. */
	CHECK(way == DESCRIPTOR || (peek.whole > 0 && left < 3), path);
	CHECK(!peek.marks == (way != DESCRIPTOR) && !peek.cies[0] == (way != DESCRIPTOR), path);
	(void)printf("%s, %s: %lu rules, %lu without, %lu left to others\n", path, way_names[way],
		     found, bare, left);
	uw_lazy_fde_fini(&peek);
	uw_elf_fini(&elf);
	uw_object_put(object);
}

static void test_unknown_machine(const uint8_t *bytes, size_t size)
{
	struct uw_lazy_fde lazy;
	struct uw_elf elf;

	if (!make(IMAGE, bytes, -1, size, &elf, &lazy)) {
		CHECK(false, "an ELF file");
		return;
	}
	CHECK(lazy.usable, "this machine's");
	elf.machine = EM_SPARCV9;
	uw_lazy_fde_init(&lazy, &elf, &(struct uw_cfi){ .size = 0 });
	CHECK(!lazy.usable, "another's");
	uw_lazy_fde_fini(&lazy);
	uw_elf_fini(&elf);
}

static uint64_t random_below(uint64_t n)
{
	static uint64_t state = 1;

	state = state * 6364136223846793005 + 1442695040888963407;
	return (state >> 33) % n;
}

static void test_damage_is_survived(enum way way, uint8_t *bytes, int fd, size_t size)
{
	struct uw_elf elf;
	struct uw_lazy_fde peek;

	for (unsigned int i = 0; i < FLIPS; i++) {
		const Elf64_Shdr *frames;
		uint64_t at, start, end;
		struct uw_rule rule;
		uint8_t was;

		if (!make(way, bytes, fd, size, &elf, &peek))
			break;
		frames = uw_elf_section(&elf, i % 2 ? ".eh_frame" : ".eh_frame_hdr");
		at = frames->sh_offset + random_below(i % 4 ? frames->sh_size : 64);
		was = bytes[at];
		bytes[at] = (uint8_t)random_below(256);
		CHECK(pwrite(fd, bytes + at, 1, (off_t)at) == 1, "the file, too");
		uw_lazy_fde_init(&peek, &elf, &(struct uw_cfi){ .size = 0 });
		for (unsigned int k = 0; k < 8 && peek.usable; k++)
			(void)uw_lazy_fde_rule(
				&peek, peek.first + random_below(peek.last - peek.first + 1), &rule,
				&start, &end);
		bytes[at] = was;
		CHECK(pwrite(fd, bytes + at, 1, (off_t)at) == 1, "and back");
		uw_lazy_fde_fini(&peek);
		uw_elf_fini(&elf);
	}
}

/* usage: test_lazy_fde [FILE] */
int main(int argc, char **argv)
{
	const char *const paths[] = {
		argc > 1 ? argv[1] : "/lib/x86_64-linux-gnu/libc.so.6",
#ifdef __aarch64__
		"/lib/aarch64-linux-gnu/libc.so.6",
#else
		"/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
#endif
	};
	unsigned int there = 0;
	size_t size;
	uint8_t *bytes = contents("/proc/self/exe", &size);
	int fd = bytes ? file_of(bytes, size) : -1;

	for (enum way way = 0; bytes && way < WAYS; way++)
		test_damage_is_survived(way, bytes, fd, size);
	if (bytes)
		test_unknown_machine(bytes, size);
	free(bytes);
	close(fd);
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		bytes = contents(paths[i], &size);
		fd = bytes ? file_of(bytes, size) : -1;
		there += bytes != NULL;
		for (enum way way = 0; bytes && way < WAYS; way++)
			test_finds_what_the_section_has(paths[i], way, bytes, fd, size);
		free(bytes);
		close(fd);
	}
	CHECK(there > 0, "a file to look up");
	return check_done();
}
