/* tests/unit/test_procs.c: tests the stored ranges of procedures. */
#include "unwinder/table/procs.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/check.h"
#include "unwinder/rule/object.h"

static struct uw_object *open_self(void)
{
	struct uw_object *object = NULL;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	CHECK(fd >= 0 && uw_object_open(fd, 0, &object) == 0, "this program");
	close(fd);
	return object;
}

/* The ranges give the same as the FDEs, at every edge. */
static void test_ranges_are_those_of_the_fdes(void)
{
	struct uw_object *o = open_self();
	struct uw_frames *frames = uw_object_frames(o, 0);
	const struct uw_fde_key *keys;
	struct uw_procs procs;
	uint64_t start, end;
	size_t n, size;
	void *blob;

	CHECK(uw_frames_keys(frames, &keys, &n) == 0 && n > 5, "FDEs");
	CHECK(uw_object_procs(o, &blob, &size) == 0 && uw_procs_open(&procs, blob, size) == 0,
	      "built");
	CHECK(procs.header->n == n, "all of them");
	for (size_t i = 0; i < n; i++) {
		const uint64_t at[] = { keys[i].start, keys[i].start + keys[i].size - 1,
					keys[i].start + keys[i].size, keys[i].start - 1 };

		for (size_t k = 0; k < 4; k++) {
			struct uw_fde fde;
			struct uw_gap gap;
			int err = uw_frames_find(frames, at[k], &fde);

			CHECK(uw_procs_find(&procs, at[k], &start, &end) == err, "covered or not");
			if (!err)
				CHECK(start == fde.start && end == fde.end, "the range");
			else if (!uw_frames_gap(frames, at[k], &gap))
				CHECK(start == gap.start && end == gap.end, "the gap");
		}
	}
	free(blob);
	uw_object_put(o);
}

/* Check that an object has the rules of the file, which from reads; and look its functions up. */
static void check_same_rules(struct uw_object *from, struct uw_object *o)
{
	struct uw_rule a, b;
	uint64_t start, end;

	for (uint64_t at = 0; at < 0x20000; at += 3) {
		int err = uw_object_interpret(from, at, true, &a);

		CHECK(uw_object_rule(o, at, true, &b) == err, "the same answer");
		if (!err)
			CHECK(a.cfa_size ? b.cfa_size == a.cfa_size || b.cfa_kind != UW_CFA_PLAIN
					 : !b.cfa_size && a.cfa_off == b.cfa_off,
			      "the same rule, an expression maybe as a word");
		(void)uw_object_function(o, at, &start, &end);
	}
}

static void test_objects_with_ranges_and_table_parse_nothing(void)
{
	struct uw_object *from = open_self(), *o = open_self();
	struct uw_identity identity = { 0 }, other;
	const void *kept;
	size_t table_size, size;
	void *blob, *table;

	CHECK(uw_object_compile(from) == 0 && uw_object_identify(from, &identity) == 0, "compiled");
	kept = uw_object_compiled(from, &table_size);
	table = malloc(table_size);
	memcpy(table, kept, table_size);
	other = identity;
	other.hash++;
	CHECK(uw_object_take(o, table, table_size, &other) == -ENOENT, "another file's");
	table = malloc(table_size);
	memcpy(table, kept, table_size);
	CHECK(uw_object_take(o, table, table_size, &identity) == 0, "its own");
	CHECK(uw_object_procs(from, &blob, &size) == 0, "ranges");
	CHECK(uw_object_take_procs(o, blob, size, &identity) == 0, "taken");
	check_same_rules(from, o);
	CHECK(uw_object_parsed(from) > 0 && uw_object_parsed(o) == 0, "nothing was parsed");
	uw_object_put(o);
	uw_object_put(from);
}

/* What is read to make the tables goes with the object that made them. */
static void test_tables_made_by_another_object(void)
{
	struct uw_object *o = open_self(), *again = NULL;
	struct uw_identity identity = { 0 };
	const void *table, *kept;
	size_t table_size, size;
	void *blob;

	CHECK(uw_object_open_copy(o, &again) == 0, "opened again");
	CHECK(uw_object_compile(again) == 0 && uw_object_identify(again, &identity) == 0,
	      "compiled");
	CHECK(uw_object_procs(again, &blob, &size) == 0 &&
		      uw_object_take_procs(again, blob, size, &identity) == 0,
	      "ranges");
	table = uw_object_compiled(again, &table_size);
	CHECK(uw_object_memory(again) > table_size && uw_object_memory(o) == 0, "who has read it");
	uw_object_take_from(o, again);
	CHECK(!uw_object_compiled(again, &size), "it has none any more");
	uw_object_put(again);
	kept = uw_object_compiled(o, &size);
	CHECK(kept == table && size == table_size, "it has the table");
	CHECK(uw_object_memory(o) == table_size, "and nothing else");
	again = open_self();
	check_same_rules(again, o);
	/* One that has a table keeps it. */
	CHECK(uw_object_compile(again) == 0, "compiled");
	uw_object_take_from(o, again);
	CHECK(uw_object_compiled(o, &size) == kept, "it keeps its own");
	uw_object_put(again);
	uw_object_put(o);
}

/* The count decides when tables are stored, so a single rule read from the file must count. */
static void test_one_rule_is_a_reading(void)
{
	struct uw_object *from = open_self(), *o = open_self();
	const struct uw_fde_key *keys;
	struct uw_rule rule;
	size_t n;

	CHECK(uw_frames_keys(uw_object_frames(from, 0), &keys, &n) == 0 && n > 5, "FDEs");
	CHECK(uw_object_parsed(o) == 0, "nothing was asked yet");
	CHECK(uw_object_interpret(o, keys[n / 2].start, true, &rule) == 0, "a rule");
	CHECK(uw_object_parsed(o) == 1, "one was read");
	uw_object_put(o);
	uw_object_put(from);
}

static void test_damage_is_found_everywhere(void)
{
	struct uw_object *o = open_self();
	struct uw_procs procs;
	uint8_t *copy;
	size_t size;
	void *blob;

	CHECK(uw_object_procs(o, &blob, &size) == 0, "built");
	copy = malloc(size);
	for (size_t bit = 0; bit<size * 8; bit += size> 4096 ? 7 : 1) {
		memcpy(copy, blob, size);
		copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
		CHECK(uw_procs_open(&procs, copy, size) < 0, "a bit flipped");
	}
	free(copy);
	for (size_t cut = 0; cut < size; cut += 13) {
		copy = malloc(cut ? cut : 1);
		memcpy(copy, blob, cut);
		CHECK(uw_procs_open(&procs, copy, cut) == -EBADMSG, "cut short");
		free(copy);
	}
	free(blob);
	uw_object_put(o);
}

/* Overlapping FDEs have no table of ranges; equal FDEs are one. */
static void test_overlaps_are_refused(void)
{
	struct uw_fde_key keys[] = { { .start = 0x1000, .size = 0x20 },
				     { .start = 0x1020, .size = 0x10 } };
	struct uw_cfi some = { .size = 1 };
	struct uw_frames a = { .cfi = some, .keys = keys, .n_keys = 2 };
	struct uw_frames b = { .cfi = some, .keys = keys, .n_keys = 2 };
	struct uw_frames *both[] = { &a, &b };
	struct uw_procs procs;
	uint64_t start, end;
	uint8_t *blob;
	size_t size;

	atomic_init(&a.ready, 1);
	atomic_init(&b.ready, 1);
	CHECK(uw_procs_build(both, 2, EM_X86_64, 1, 2, &blob, &size) == 0 &&
		      uw_procs_open(&procs, blob, size) == 0 && procs.header->n == 2,
	      "twins");
	CHECK(uw_procs_find(&procs, 0xfff, &start, &end) == -ENOENT && start == 0 && end == 0x1000,
	      "before");
	CHECK(uw_procs_find(&procs, 0x1030, &start, &end) == -ENOENT && start == 0x1030 &&
		      end == UINT64_MAX,
	      "behind");
	CHECK(uw_procs_find(&procs, 0x101f, &start, &end) == 0 && start == 0x1000 && end == 0x1020,
	      "inside");
	free(blob);
	keys[0].size++;
	CHECK(uw_procs_build(both, 2, EM_X86_64, 1, 2, &blob, &size) == -ENOTSUP, "overlap");
	keys[0] = (struct uw_fde_key){ .start = 0x1000, .size = 0x20 };
	keys[1].start = UINT64_MAX - 5;
	CHECK(uw_procs_build(both, 2, EM_X86_64, 1, 2, &blob, &size) == -ENOTSUP, "at the end");
	keys[1].start = 0x1000 + ((uint64_t)1 << 33);
	CHECK(uw_procs_build(both, 2, EM_X86_64, 1, 2, &blob, &size) == -ENOTSUP, "far apart");
}

int main(void)
{
	test_ranges_are_those_of_the_fdes();
	test_objects_with_ranges_and_table_parse_nothing();
	test_tables_made_by_another_object();
	test_one_rule_is_a_reading();
	test_damage_is_found_everywhere();
	test_overlaps_are_refused();
	return check_done();
}
