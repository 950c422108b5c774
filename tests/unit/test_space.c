/*
 * tests/unit/test_space.c: tests a process's address space: mappings in any order, forks, objects.
 */
#include "unwinder/walk/space.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/check.h"
#include "unwinder/rule/object.h"

static struct uw_object *own; /* this program's file */
static int asked;

static struct uw_object *give_own(void *ctx, const struct uw_mapping *mapping)
{
	(void)ctx;
	(void)mapping;
	asked++;
	return uw_object_get(own);
}

static int map(struct uw_space *space, uint64_t start, uint64_t end, uint64_t off)
{
	return uw_space_map(space, &(struct uw_mapping){ .start = start,
							 .end = end,
							 .off = off,
							 .prot = PROT_READ | PROT_EXEC,
							 .kind = UW_MAPPING_FILE });
}

static bool is(const struct uw_space *space, size_t i, uint64_t start, uint64_t end, uint64_t off)
{
	const struct uw_mapping *m = uw_space_above(space, 0);

	for (; m && i; i--)
		m = uw_space_above(space, m->end);
	return m && m->start == start && m->end == end && m->off == off;
}

static size_t count(const struct uw_space *space)
{
	return uw_space_n_mappings(space);
}

static void test_mappings_replace_what_they_overlap(void)
{
	struct uw_space *s = NULL;
	uint64_t id;

	CHECK(uw_space_new(EM_386, NULL, NULL, &s) == -EINVAL && !s, "a machine not known");
	CHECK(uw_space_new(EM_X86_64, NULL, NULL, &s) == 0, "new");
	CHECK(map(s, 0x5000, 0x5000, 0) == -EINVAL && map(s, 0x5000, 0x4000, 0) == -EINVAL,
	      "empty");
	CHECK(map(s, 0x5000, 0x9000, 0x100) == 0 && map(s, 0x1000, 0x2000, 0) == 0, "two");
	CHECK(is(s, 0, 0x1000, 0x2000, 0) && is(s, 1, 0x5000, 0x9000, 0x100), "sorted");
	id = uw_space_id(s);
	CHECK(map(s, 0x6000, 0x7000, 0x900) == 0 && uw_space_id(s) != id, "into the middle");
	CHECK(count(s) == 4 && is(s, 1, 0x5000, 0x6000, 0x100) && is(s, 2, 0x6000, 0x7000, 0x900) &&
		      is(s, 3, 0x7000, 0x9000, 0x2100),
	      "both sides stay");
	CHECK(map(s, 0x5800, 0x7800, 0) == 0 && count(s) == 4 && is(s, 1, 0x5000, 0x5800, 0x100) &&
		      is(s, 2, 0x5800, 0x7800, 0) && is(s, 3, 0x7800, 0x9000, 0x2900),
	      "across three");
	CHECK(uw_space_unmap(s, 0x5400, 0x5500) == 0 && count(s) == 5 &&
		      is(s, 1, 0x5000, 0x5400, 0x100) && is(s, 2, 0x5500, 0x5800, 0x600),
	      "a hole");
	CHECK(uw_space_unmap(s, 0, 0x5600) == 0 && count(s) == 3 && is(s, 0, 0x5600, 0x5800, 0x700),
	      "the front");
	CHECK(!uw_space_find(s, 0x55ff) && uw_space_find(s, 0x5600) && uw_space_find(s, 0x8fff) &&
		      !uw_space_find(s, 0x9000),
	      "find");
	id = uw_space_id(s);
	CHECK(uw_space_unmap(s, 0, 0x5600) == 0 && uw_space_unmap(s, 0x9000, UINT64_MAX) == 0 &&
		      uw_space_id(s) == id,
	      "nothing was there");
	CHECK(uw_space_unmap(s, 0x57ff, 0x5900) == 0 && uw_space_id(s) != id &&
		      is(s, 0, 0x5600, 0x57ff, 0x700),
	      "a byte was");
	CHECK(map(s, 0, UINT64_MAX, 0) == 0 && count(s) == 1, "over all of it");
	CHECK(map(s, 0x5600, 0x5800, 0x700) == 0 && count(s) == 3, "exactly one");
	CHECK(map(s, 0x5600, 0x5800, 0x800) == 0 && count(s) == 3 &&
		      is(s, 1, 0x5600, 0x5800, 0x800),
	      "in its place");
	uw_space_clear(s);
	CHECK(count(s) == 0 && !uw_space_find(s, 0x5600), "clear");
	uw_space_free(s);
	uw_space_free(NULL);
}

/* Compare with a map of one byte per page, over many operations. */
static void test_many_changes_keep_it_true(void)
{
	uint64_t model[64] = { 0 }; /* off of each page + 1, 0: not mapped */
	uint32_t seed = 1;
	struct uw_space *s = NULL;
	bool right = true;

	CHECK(uw_space_new(EM_X86_64, NULL, NULL, &s) == 0, "new");
	for (unsigned int i = 0; i < 5000; i++) {
		uint32_t from, n;
		bool unmap;

		seed = seed * 1664525 + 1013904223;
		from = seed >> 26;
		n = 1 + (seed >> 16) % (64 - from);
		unmap = seed >> 8 & 1;
		if (unmap)
			(void)uw_space_unmap(s, from * 0x1000, (from + n) * 0x1000);
		else
			(void)map(s, from * 0x1000, (from + n) * 0x1000, (uint64_t)i << 32);
		for (uint32_t k = 0; k < n; k++)
			model[from + k] = unmap ? 0 : ((uint64_t)i << 32) + k * 0x1000 + 1;
		for (uint64_t page = 0; page < 64; page++) {
			const struct uw_mapping *m = uw_space_find(s, page * 0x1000);
			uint64_t off = m ? m->off + (page * 0x1000 - m->start) + 1 : 0;

			right = right && off == model[page];
		}
	}
	CHECK(right, "every page, after every change");
	uw_space_free(s);
}

#define PAGES 4096

/* Return whether the mappings are those of off_of, in which 0 means none. */
static bool is_as(const struct uw_space *s, const uint64_t off_of[PAGES])
{
	uint64_t page = 0;

	for (const struct uw_mapping *m = uw_space_above(s, 0); m; m = uw_space_above(s, m->end)) {
		for (; page < m->start >> 12; page++)
			if (off_of[page])
				return false;
		for (; page < m->end >> 12; page++)
			if (off_of[page] != m->off + (page << 12) - m->start)
				return false;
	}
	for (; page < PAGES; page++)
		if (off_of[page])
			return false;
	return true;
}

/*
 * Map upwards, downwards, around the middle, anywhere; with and without overlaps; and unmap again.
 */
static void test_any_order_of_many_mappings(void)
{
	enum { UP, DOWN, MIDDLE, ANYWHERE, N_ORDERS };
	uint32_t seed = 7;

	for (unsigned int order = 0; order < N_ORDERS * 2; order++) {
		static uint64_t off_of[PAGES];
		struct uw_space *s = NULL;
		bool right = true;

		for (size_t i = 0; i < PAGES; i++)
			off_of[i] = 0;
		CHECK(uw_space_new(EM_X86_64, NULL, NULL, &s) == 0, "new");
		for (uint64_t i = 1; i < PAGES * 3 / 2; i++) {
			uint64_t page, size, step = i % (PAGES - 4);
			bool unmap = i >= PAGES;

			seed = seed * 1664525 + 1013904223;
			page = order % N_ORDERS == UP	  ? step
			       : order % N_ORDERS == DOWN ? PAGES - 4 - step
			       : order % N_ORDERS == MIDDLE
				       ? PAGES / 2 + (i & 1 ? step / 2 : 0 - step / 2)
				       : (seed >> 8) % (PAGES - 4);
			size = order < N_ORDERS ? 1 : 1 + (seed >> 24) % 4;
			if (unmap)
				(void)uw_space_unmap(s, page << 12, (page + size) << 12);
			else
				(void)map(s, page << 12, (page + size) << 12, i << 32);
			for (uint64_t k = 0; k < size; k++)
				off_of[page + k] = unmap ? 0 : (i << 32) + (k << 12);
			if (i % 64 == 0)
				right = right && is_as(s, off_of);
		}
		CHECK(right && is_as(s, off_of), "as the last changes say");
		uw_space_free(s);
	}
}

static void test_objects_follow_their_mappings(void)
{
	struct uw_space *s = NULL, *copy = NULL;
	struct uw_mapping *m;
	const struct uw_segment *segments, *code = NULL;
	struct uw_object *object;
	size_t n;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	CHECK(fd >= 0 && uw_object_open(fd, 0, &own) == 0, "this program");
	close(fd);
	segments = uw_object_segments(own, &n);
	for (size_t i = 0; i < n; i++)
		if (segments[i].flags & PF_X)
			code = &segments[i];
	CHECK(uw_space_new(uw_object_machine(own), give_own, NULL, &s) == 0, "new");
	CHECK(map(s, 0x10000, 0x20000, code->off & ~(uint64_t)0xfff) == 0, "map");
	m = uw_space_at(s, 0x12000);
	object = uw_space_resolve(s, m);
	CHECK(object == own && asked == 1 && m->resolved, "asked");
	CHECK(uw_space_resolve(s, m) == own && asked == 1, "once");
	CHECK(0x10000 - m->bias == code->vaddr - (code->off & 0xfff), "the bias");
	CHECK(uw_space_copy(s, &copy) == 0 && uw_space_id(copy) != uw_space_id(s), "fork");
	CHECK(uw_space_unmap(s, 0x14000, 0x15000) == 0, "a hole");
	CHECK(uw_space_resolve(s, uw_space_at(s, 0x18000)) == own && asked == 1 &&
		      uw_space_at(s, 0x18000)->bias == uw_space_at(s, 0x10000)->bias,
	      "both parts have it");
	uw_space_free(s);
	CHECK(uw_space_resolve(copy, uw_space_at(copy, 0x14800)) == own && asked == 1,
	      "the copy is whole and asks no more");
	uw_space_free(copy);

	/* An object of another machine is not used. */
	CHECK(uw_space_new(uw_object_machine(own) == EM_X86_64 ? EM_AARCH64 : EM_X86_64, give_own,
			   NULL, &s) == 0,
	      "another machine");
	(void)map(s, 0x10000, 0x20000, code->off & ~(uint64_t)0xfff);
	m = uw_space_at(s, 0x10000);
	CHECK(!uw_space_resolve(s, m) && m->resolved && asked == 2, "is refused");
	CHECK(!uw_space_resolve(s, m) && asked == 2, "once");
	uw_space_free(s);
	uw_object_put(own);
}

/* A hundred children of a process with 65,000 mappings cost nothing while they only sleep. */
static void test_shared_mappings_are_copied_when_they_change(void)
{
	struct uw_space *parent = NULL, *first = NULL, *second = NULL;
	const struct uw_mapping *of_parent;

	CHECK(uw_space_new(EM_X86_64, give_own, NULL, &parent) == 0, "a space");
	CHECK(!map(parent, 0x1000, 0x2000, 0) && !map(parent, 0x3000, 0x4000, 0), "two mappings");
	CHECK(!uw_space_share(parent, &first) && !uw_space_share(parent, &second), "children");
	of_parent = uw_space_find(parent, 0x1000);
	CHECK(uw_space_find(first, 0x1000) == of_parent && count(first) == 2, "share them");
	CHECK(!uw_space_own(parent) && uw_space_find(parent, 0x1000) == of_parent,
	      "the parent goes on with them");
	CHECK(!uw_space_own(first) && uw_space_find(first, 0x1000) != of_parent &&
		      count(first) == 2,
	      "a child that runs has its own");
	CHECK(!map(parent, 0x5000, 0x6000, 0) && count(parent) == 3 && count(first) == 2 &&
		      count(second) == 2,
	      "what one changes the others do not see");
	CHECK(!uw_space_unmap(second, 0x1000, 0x2000) && count(second) == 1 && count(parent) == 3,
	      "whichever");
	uw_space_free(first);
	CHECK(!uw_space_share(parent, &first), "another child");
	uw_space_free(parent);
	CHECK(count(first) == 3 && is(first, 2, 0x5000, 0x6000, 0), "outlives its parent");
	CHECK(!uw_space_own(first) && count(first) == 3, "and has them alone");
	uw_space_clear(first);
	CHECK(count(first) == 0 && !map(first, 0x1000, 0x2000, 0), "and may exec");
	uw_space_free(first);
	uw_space_free(second);
}

int main(void)
{
	test_shared_mappings_are_copied_when_they_change();
	test_mappings_replace_what_they_overlap();
	test_many_changes_keep_it_true();
	test_any_order_of_many_mappings();
	test_objects_follow_their_mappings();
	return check_done();
}
