/* tests/unit/test_fleet_batch.c: tests the rows that windows become in the fleet's tables. */
#include "agent/fleet/batch.h"

#include "base/bytes.h"
#include "tests/check.h"

#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>

#define SECOND UINT64_C(1000000000)
#define START  (UINT64_C(1700000100) * SECOND) /* a multiple of 300 s */

/* A profile with samples and cpu. */
static struct stacks *begin(void)
{
	struct stacks *s = NULL;

	CHECK(!stacks_new(&s), "a profile");
	CHECK(!stacks_add_type(s, "samples", "count") && !stacks_add_type(s, "cpu", "nanoseconds"),
	      "its types");
	return s;
}

static uint32_t location(struct stacks *s, const char *path, const char *build_id, uint64_t address,
			 const char *function)
{
	const struct stacks_module m = { .path = stacks_text(s, path),
					 .build_id = stacks_text(s, build_id) };
	const struct stacks_function f = { .name = stacks_text(s, function),
					   .system_name = stacks_text(s, function),
					   .file = stacks_text(s, "a.c") };
	const struct stacks_line line = { .function = stacks_function(s, &f), .line = 7 };
	const struct stacks_location l = { .module = stacks_module(s, &m),
					   .address = address,
					   .n_lines = 1 };

	return stacks_location(s, &l, &line);
}

static void sample(struct stacks *s, const uint32_t *locations, uint32_t n, const char *comm,
		   int64_t pid, int64_t count)
{
	const struct stacks_label all[] = {
		{ .key = stacks_text(s, "comm"), .text = stacks_text(s, comm) },
		{ .key = stacks_text(s, "pid"), .number = pid },
	};
	const uint32_t labels[] = { stacks_keep_label(s, &all[0]), stacks_keep_label(s, &all[1]) };
	const int64_t values[] = { count, count * 1000 };
	const struct stacks_sample to = { .n_locations = n, .n_labels = 2 };

	CHECK(!stacks_add(s, &to, locations, labels, values), "a sample");
}

static struct batch_window window_of(const struct stacks *s, uint64_t id, uint64_t after_s)
{
	return (struct batch_window){ .id = id,
				      .start_ns = START + after_s * SECOND,
				      .end_ns = START + (after_s + 10) * SECOND,
				      .host = "host-1",
				      .stacks = s };
}

static size_t n_rows(struct batch *b, enum batch_table table)
{
	const struct block *block = NULL;

	CHECK(!batch_block(b, table, &block), "a block");
	return block->n_rows;
}

/* Return a number of a row, of a column of 64 bits. */
static uint64_t number(struct batch *b, enum batch_table table, size_t column, size_t row)
{
	const struct block *block = NULL;

	CHECK(!batch_block(b, table, &block), "a block");
	return uw_bytes_little8(block->columns[column].values.bytes + 8 * row);
}

enum { WINDOW = 3, STACK, LABELS, N, VALUE }; /* columns of samples */

static void test_names_are_left_out_where_they_are_found_elsewhere(void)
{
	struct stacks *s = begin();
	const uint32_t at[] = { location(s, "/bin/a", "aa", 0x10, "inner"),
				location(s, "/tmp/jit", "", 0x20, "main") };
	struct batch *b = NULL;
	const struct block *block = NULL;
	struct batch_window w;

	sample(s, at, 2, "prog", 4, 2);
	w = window_of(s, 8, 0);
	CHECK(!batch_new(300, true, &b) && !batch_add(b, &w), "a batch");
	CHECK(n_rows(b, BATCH_NAMES) == 2 && !batch_block(b, BATCH_NAMES, &block), "two frames");
	CHECK(block->columns[4].n_elements == 1, "only code without a build-id has its name");
	CHECK(number(b, BATCH_NAMES, 7, 0) == 0 &&
		      number(b, BATCH_NAMES, 7, 1) >> 32 == BATCH_LINES,
	      "any name replaces none");
	batch_free(b);
	stacks_free(s);
}

static void test_windows_of_a_slot_become_one_batch(void)
{
	struct stacks *s = begin();
	const uint32_t at[] = { location(s, "/bin/a", "aa", 0x10, "inner"),
				location(s, "/bin/a", "aa", 0x20, "main") };
	struct batch_window w[3];
	struct batch *b = NULL;

	sample(s, at, 2, "prog", 4, 2);
	sample(s, at, 2, "prog", 5, 3);
	sample(s, at, 1, "prog", 5, 1);
	w[0] = window_of(s, 8, 280);
	w[1] = window_of(s, 9, 290);
	w[2] = window_of(s, 10, 300);
	CHECK(!batch_new(300, false, &b), "a batch");
	CHECK(batch_takes(b, &w[0]) && !batch_add(b, &w[0]), "the first window");
	CHECK(batch_takes(b, &w[1]) && !batch_add(b, &w[1]), "another of this slot");
	CHECK(!batch_takes(b, &w[2]), "the next slot's");
	CHECK(batch_until(b) == w[1].end_ns, "when it ends");
	/* Processes are not told apart: two stacks, and the row of the batch. */
	CHECK(n_rows(b, BATCH_SAMPLES) == 3, "sums by stack");
	CHECK(n_rows(b, BATCH_STACKS) == 2 && n_rows(b, BATCH_NAMES) == 2, "stacks and names");
	CHECK(n_rows(b, BATCH_LABEL_SETS) == 1 && n_rows(b, BATCH_TYPES) == 1, "labels and types");
	CHECK(number(b, BATCH_SAMPLES, N, 0) == 300 &&
		      number(b, BATCH_SAMPLES, VALUE, 0) == w[1].end_ns &&
		      number(b, BATCH_SAMPLES, LABELS, 0) == 9 &&
		      number(b, BATCH_SAMPLES, STACK, 0) == 0 &&
		      number(b, BATCH_SAMPLES, WINDOW, 2) == 0,
	      "the row of the batch");
	CHECK(number(b, BATCH_SAMPLES, N, 1) + number(b, BATCH_SAMPLES, N, 2) == 12 &&
		      number(b, BATCH_SAMPLES, VALUE, 1) + number(b, BATCH_SAMPLES, VALUE, 2) ==
			      12000,
	      "the sums of both windows");
	batch_sent(b);
	CHECK(batch_takes(b, &w[2]) && !batch_add(b, &w[2]), "the next slot");
	CHECK(n_rows(b, BATCH_SAMPLES) == 3, "its samples");
	CHECK(!n_rows(b, BATCH_STACKS) && !n_rows(b, BATCH_NAMES) && !n_rows(b, BATCH_LABEL_SETS) &&
		      !n_rows(b, BATCH_TYPES),
	      "what the server has is not sent again");
	batch_sent(b);
	CHECK(!batch_add(b, &w[2]) && number(b, BATCH_SAMPLES, WINDOW, 1) == 10,
	      "a second batch of a slot has a number");
	batch_drop(b);
	batch_forget(b);
	CHECK(!batch_add(b, &w[2]) && n_rows(b, BATCH_STACKS) == 2, "unless it is forgotten");
	batch_free(b);
	stacks_free(s);
}

static void test_what_was_dropped_is_sent(void)
{
	struct stacks *s = begin();
	const uint32_t at[] = { location(s, "/bin/a", "aa", 0x10, "inner") };
	const struct batch_window w = window_of(s, 1, 0);
	struct batch *b = NULL;

	sample(s, at, 1, "prog", 4, 1);
	CHECK(!batch_new(300, false, &b) && !batch_add(b, &w), "a batch");
	batch_drop(b);
	CHECK(!batch_until(b) && !batch_add(b, &w), "it is empty, and takes the window again");
	CHECK(n_rows(b, BATCH_STACKS) == 1 && n_rows(b, BATCH_SAMPLES) == 2, "with all of it");
	batch_free(b);
	stacks_free(s);
}

static void test_stacks_are_sent_again_on_another_day(void)
{
	struct stacks *s = begin();
	const uint32_t at[] = { location(s, "/bin/a", "aa", 0x10, "inner") };
	const struct batch_window w[] = { window_of(s, 1, 0), window_of(s, 2, 300),
					  window_of(s, 3, 24 * 3600) };
	const size_t n_stacks[] = { 1, 0, 1 }, n_labels[] = { 1, 0, 0 };
	struct batch *b = NULL;

	sample(s, at, 1, "prog", 4, 1);
	CHECK(!batch_new(300, false, &b), "a batch");
	for (size_t i = 0; i < 3; i++) {
		CHECK(!batch_add(b, &w[i]), "a window");
		CHECK(n_rows(b, BATCH_STACKS) == n_stacks[i], "stacks");
		CHECK(n_rows(b, BATCH_LABEL_SETS) == n_labels[i], "labels");
		batch_sent(b);
	}
	batch_free(b);
	stacks_free(s);
}

/* What the server has of other hosts is not sent, and is known from then on. */
static void test_stacks_that_are_there_are_left_out(void)
{
	struct stacks *s = begin();
	const uint32_t at[] = { location(s, "/bin/a", "aa", 0x10, "inner"),
				location(s, "/bin/a", "aa", 0x20, "main") };
	const struct batch_window w = window_of(s, 1, 0), later = window_of(s, 2, 300);
	const struct block *block = NULL;
	uint8_t there[2][8] = { { 1, 2, 3 } }; /* the first one was not asked for */
	struct batch *b = NULL;
	uint64_t second = 0;
	size_t n = 0;

	sample(s, at, 2, "prog", 4, 1);
	sample(s, at + 1, 1, "prog", 4, 1);
	CHECK(!batch_new(300, false, &b) && !batch_add(b, &w), "a batch");
	CHECK(batch_stacks(b, &n) && n == 2, "two stacks");
	if (n == 2) {
		second = batch_stacks(b, &n)[1];
		for (size_t i = 0; i < 8; i++)
			there[1][i] = (uint8_t)(batch_stacks(b, &n)[0] >> (8 * i));
	}
	CHECK(!batch_leave_out(b, there, 0) && n_rows(b, BATCH_STACKS) == 2, "none is there");
	CHECK(!batch_leave_out(b, there, sizeof(there)) && n_rows(b, BATCH_STACKS) == 1,
	      "one is there");
	CHECK(number(b, BATCH_STACKS, 0, 0) == second && !batch_block(b, BATCH_STACKS, &block) &&
		      block->columns[1].n_elements == 1 && number(b, BATCH_SAMPLES, N, 1) == 1,
	      "the other one has its own frame");
	batch_sent(b);
	CHECK(!batch_add(b, &later) && !n_rows(b, BATCH_STACKS), "both are known");
	batch_free(b);
	stacks_free(s);
}

static void test_insert_names_the_columns(void)
{
	static const char *const columns[] = { "stack", "UInt64", "day", "Date", NULL };
	struct block block;
	char *text;

	block_init(&block, "stacks", columns);
	text = block_insert(&block);
	CHECK(text && !strcmp(text,
			      "&query=INSERT%20INTO%20stacks%20(stack,day)%20FORMAT%20Native"),
	      "a part of a URL");
	free(text);
	block_fini(&block);
}

/* Give the ids of one sample's stack and of its only frame. */
static void ids_of(const char *path, const char *build_id, uint64_t address, const char *function,
		   uint64_t *stack, uint64_t *frame)
{
	struct stacks *s = begin();
	const uint32_t at[] = { location(s, path, build_id, address, function) };
	const struct batch_window w = window_of(s, 1, 0);
	struct batch *b = NULL;

	sample(s, at, 1, "prog", 4, 1);
	CHECK(!batch_new(300, false, &b) && !batch_add(b, &w), "a batch");
	*stack = number(b, BATCH_STACKS, 0, 0);
	*frame = number(b, BATCH_NAMES, 0, 0);
	batch_free(b);
	stacks_free(s);
}

static void test_ids_are_the_same_on_all_hosts(void)
{
	uint64_t a[2], b[2], c[2], d[2], wanted = 0;
	struct sha256_ctx h;
	uint8_t digest[8];

	ids_of("/bin/a", "aa", 0x10, "f", &a[0], &a[1]);
	ids_of("/elsewhere/a", "aa", 0x10, "other_name", &b[0], &b[1]);
	CHECK(a[0] == b[0] && a[1] == b[1], "build-id and address alone");
	ids_of("/bin/a", "aa", 0x11, "f", &b[0], &b[1]);
	CHECK(a[0] != b[0] && a[1] != b[1], "another address");
	ids_of("/bin/a", "ab", 0x10, "f", &b[0], &b[1]);
	CHECK(a[0] != b[0] && a[1] != b[1], "another file");
	/* As schema/fleet_1.sql says, so that other programs can make the same ids. */
	sha256_init(&h);
	sha256_update(&h, 3, (const uint8_t *)"aa");
	sha256_update(&h, 8, (const uint8_t *)"\x10\0\0\0\0\0\0");
	sha256_digest(&h, 8, digest);
	CHECK(a[1] == uw_bytes_little8(digest), "the hash");
	for (size_t i = 0; i < 8; i++)
		digest[i] = (uint8_t)(a[1] >> (8 * i));
	sha256_update(&h, 8, digest);
	sha256_digest(&h, 8, digest);
	wanted = (uw_bytes_little8(digest) & UINT64_MAX >> 8) | (uint64_t)digest[0] << 56;
	CHECK(a[0] == wanted, "the hash over it, which is that over the outermost frames, too");
	ids_of("[kernel]", "", 0xffffffff81000010, "do_idle", &c[0], &c[1]);
	ids_of("[kernel]", "", 0xffffffff92000010, "do_idle", &d[0], &d[1]);
	CHECK(c[0] == d[0], "the kernel lies elsewhere after each start");
	ids_of("[kernel]", "", 0xffffffff81000010, "do_exit", &d[0], &d[1]);
	CHECK(c[0] != d[0], "another function of the kernel");
}

static void test_stacks_of_a_program_lie_together(void)
{
	struct stacks *s = begin();
	const struct batch_window w = window_of(s, 1, 0);
	struct batch *b = NULL;
	uint32_t at[6];
	uint64_t ids[4];

	for (uint32_t i = 0; i < 6; i++)
		at[i] = location(s, "/bin/a", "aa", 0x10 + i, "f");
	sample(s, at, 6, "prog", 4, 1);
	sample(s, at + 1, 5, "prog", 4, 2);
	sample(s, at + 2, 4, "prog", 4, 3);
	sample(s, at + 1, 4, "prog", 4, 4); /* another outermost frame */
	CHECK(!batch_new(300, false, &b) && !batch_add(b, &w), "a batch");
	CHECK(n_rows(b, BATCH_STACKS) == 4, "four stacks");
	for (size_t i = 0; i < 4; i++)
		ids[i] = number(b, BATCH_STACKS, 0, i);
	CHECK(ids[0] >> 56 == ids[1] >> 56 && ids[1] >> 56 == ids[2] >> 56,
	      "the same four outermost frames");
	CHECK(ids[3] >> 56 != ids[0] >> 56, "another frame in them");
	CHECK(ids[0] << 8 != ids[1] << 8 && ids[1] << 8 != ids[2] << 8, "different stacks");
	batch_free(b);
	stacks_free(s);
}

static void test_better_names_are_sent_again(void)
{
	struct stacks *s = begin(), *better = begin();
	const uint32_t at[] = { location(s, "/bin/a", "aa", 0x10, "a+0x10") };
	const uint32_t better_at[] = { location(better, "/bin/a", "aa", 0x10, "inner") };
	struct batch_window w;
	struct batch *b = NULL;
	uint64_t version;

	sample(s, at, 1, "prog", 4, 1);
	sample(better, better_at, 1, "prog", 4, 1);
	w = window_of(s, 1, 0);
	CHECK(!batch_new(300, false, &b) && !batch_add(b, &w), "a batch");
	version = number(b, BATCH_NAMES, 7, 0);
	batch_sent(b);
	w = window_of(better, 2, 300);
	CHECK(!batch_add(b, &w), "the names that were found later");
	CHECK(n_rows(b, BATCH_NAMES) == 1 && !n_rows(b, BATCH_STACKS), "only the name is new");
	CHECK(number(b, BATCH_NAMES, 7, 0) > version, "and replaces the other");
	batch_free(b);
	stacks_free(s);
	stacks_free(better);
}

static void test_counters_are_added_up(void)
{
	const struct history_counter counters[] = { { "fired", "", 7 },
						    { "lost", "ring_full", 2 } };
	struct stacks *s = begin();
	struct batch_window w = window_of(s, 1, 0);
	struct batch *b = NULL;

	w.counters = counters;
	w.n_counters = 2;
	CHECK(!batch_new(300, false, &b) && !batch_add(b, &w), "a batch");
	w.id = 2;
	CHECK(!batch_add(b, &w), "another window");
	CHECK(n_rows(b, BATCH_COUNTERS) == 2, "a row for each reason");
	CHECK(number(b, BATCH_COUNTERS, 5, 0) == 14 && number(b, BATCH_COUNTERS, 5, 1) == 4,
	      "their sums");
	CHECK(n_rows(b, BATCH_SAMPLES) == 1, "the batch itself, even without samples");
	batch_free(b);
	stacks_free(s);
}

/* The same windows give the same bytes; and these are as the format Native wants them. */
static void test_blocks_are_the_same_each_time(void)
{
	uint8_t *bytes[2] = { NULL, NULL };
	size_t sizes[2] = { 0, 0 };

	for (size_t i = 0; i < 2; i++) {
		struct stacks *s = begin();
		const uint32_t at[] = { location(s, "/bin/a", "aa", 0x10, "inner"),
					location(s, "/bin/a", "aa", 0x20, "main") };
		const struct batch_window w = window_of(s, 1, 0);
		const struct block *block;
		struct batch *b = NULL;

		/* In another order. */
		sample(s, at + i, 1, "prog", 4, 1);
		sample(s, at + !i, 1, "prog", 4, 1);
		CHECK(!batch_new(300, false, &b) && !batch_add(b, &w) &&
			      !batch_block(b, BATCH_SAMPLES, &block) &&
			      !block_pack(block, &bytes[i], &sizes[i]),
		      "a block");
		batch_free(b);
		stacks_free(s);
	}
	CHECK(sizes[0] == sizes[1] && !memcmp(bytes[0], bytes[1], sizes[0]), "equal");
	CHECK(!memcmp(bytes[0], "\x08\x03\x04type\x06UInt32", 14), "columns, rows, the first one");
	free(bytes[0]);
	free(bytes[1]);
}

static void test_arrays_are_packed_by_their_ends(void)
{
	static const char *const columns[] = { "a", "Array(String)", "b", "UInt32", NULL };
	static const char wanted[] = "\x02\x02\x01"
				     "a\x0d"
				     "Array(String)"
				     "\2\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0"
				     "\1x\2yz"
				     "\x01"
				     "b\6UInt32"
				     "\7\0\0\0\x08\0\0\0";
	struct block block;
	uint8_t *bytes = NULL;
	size_t size = 0;

	block_init(&block, "t", columns);
	block_text(&block, 0, "x");
	block_text(&block, 0, "yz");
	block_array(&block, 0, 2);
	block_u32(&block, 1, 7);
	block_row(&block);
	block_array(&block, 0, 0);
	block_u32(&block, 1, 8);
	block_row(&block);
	CHECK(!block_pack(&block, &bytes, &size), "packed");
	CHECK(size == sizeof(wanted) - 1 && !memcmp(bytes, wanted, size), "as the server reads it");
	free(bytes);
	block_fini(&block);
}

int main(void)
{
	test_names_are_left_out_where_they_are_found_elsewhere();
	test_windows_of_a_slot_become_one_batch();
	test_what_was_dropped_is_sent();
	test_stacks_are_sent_again_on_another_day();
	test_stacks_that_are_there_are_left_out();
	test_insert_names_the_columns();
	test_ids_are_the_same_on_all_hosts();
	test_stacks_of_a_program_lie_together();
	test_better_names_are_sent_again();
	test_counters_are_added_up();
	test_blocks_are_the_same_each_time();
	test_arrays_are_packed_by_their_ends();
	return check_done();
}
