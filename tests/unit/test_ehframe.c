/*
 * tests/unit/test_ehframe.c: tests the search in .eh_frame: by the table of .eh_frame_hdr and by an
 * index of our own.
 */
#include "unwinder/cfi/ehframe.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "tests/check.h"

#define FRAMES_VADDR 0x10000
#define TABLE_VADDR  0x20000

/* A section of one CIE and simple FDEs, with a table that is right or wrong. */
struct image {
	uint8_t frames[65536], table[16384];
	size_t frames_size, table_size;
};

static void put(uint8_t *to, size_t *size, uint64_t value, unsigned int width)
{
	for (unsigned int i = 0; i < width; i++)
		to[(*size)++] = (uint8_t)(value >> (8 * i));
}

static void add_cie(struct image *image)
{
	/* version 1, no augmentation, code 1, data -8, ra 16, CFA rsp + 8, ra at CFA - 8 */
	static const uint8_t cie[] = { 14, 0, 0,    0,	0,    0, 0, 0,	  1,
				       0,  1, 0x78, 16, 0x0c, 7, 8, 0x90, 1 };

	memcpy(image->frames, cie, sizeof(cie));
	image->frames_size = sizeof(cie);
}

static uint64_t add_fde(struct image *image, uint64_t start, uint64_t size)
{
	size_t *at = &image->frames_size;
	uint64_t off = *at;

	put(image->frames, at, 20, 4);
	put(image->frames, at, *at, 4);
	put(image->frames, at, start, 8);
	put(image->frames, at, size, 8);
	return off;
}

/* The encodings of GNU ld: pcrel sdata4, udata4, datarel sdata4. */
static void start_table(struct image *image, uint32_t n)
{
	size_t *at = &image->table_size;

	*at = 0;
	put(image->table, at, 0x3b031b01, 4);
	put(image->table, at, (uint64_t)FRAMES_VADDR - (TABLE_VADDR + 4), 4);
	put(image->table, at, n, 4);
}

static void add_entry(struct image *image, uint64_t start, uint64_t off)
{
	put(image->table, &image->table_size, start - TABLE_VADDR, 4);
	put(image->table, &image->table_size, FRAMES_VADDR + off - TABLE_VADDR, 4);
}

static void open_frames(const struct image *image, struct uw_frames *frames)
{
	uw_frames_init(frames);
	frames->cfi = (struct uw_cfi){
		.data = image->frames, .size = image->frames_size, .vaddr = FRAMES_VADDR, .eh = true
	};
	if (image->table_size)
		CHECK(uw_hdr_init(&frames->table, image->table, image->table_size, TABLE_VADDR) ==
			      0,
		      "the table");
}

/* Return the start of the FDE that covers lookup; 0: none, 1: an error. The two ways must agree. */
static uint64_t find(struct uw_frames *frames, uint64_t lookup)
{
	struct uw_gap gap, one;
	struct uw_fde fde, other;
	int look = uw_frames_look(frames, lookup, &other, &one);
	int err = uw_frames_find(frames, lookup, &fde);

	CHECK(look == -EAGAIN || look == err, "found as one by one");
	CHECK(look || (fde.start == other.start && fde.end == other.end), "the same FDE");
	CHECK(look != -ENOENT || !frames->cfi.size ||
		      (!uw_frames_gap(frames, lookup, &gap) && gap.start == one.start &&
		       gap.end == one.end && gap.before == one.before &&
		       gap.has_before == one.has_before),
	      "the same gap");
	return err == -ENOENT ? 0 : err ? 1 : fde.start;
}

/* Functions at 0x1000 (0x20), 0x1030 (0x10), 0x1800 (0x100); an empty one before the second. */
static void check_finds(const char *how, struct uw_frames *frames)
{
	struct uw_gap gap;

	CHECK(find(frames, 0xfff) == 0, how);
	CHECK(find(frames, 0x1000) == 0x1000 && find(frames, 0x101f) == 0x1000, how);
	CHECK(find(frames, 0x1020) == 0 && find(frames, 0x102f) == 0, how);
	CHECK(find(frames, 0x1030) == 0x1030 && find(frames, 0x103f) == 0x1030, how);
	CHECK(find(frames, 0x1040) == 0, how);
	CHECK(find(frames, 0x18ff) == 0x1800 && find(frames, 0x1900) == 0, how);
	CHECK(uw_frames_gap(frames, 0x1010, &gap) == -ENOENT, how);
	CHECK(uw_frames_gap(frames, 0x1025, &gap) == 0 && gap.start == 0x1020 &&
		      gap.end == 0x1030 && gap.has_before,
	      how);
	CHECK(uw_frames_gap(frames, 0x500, &gap) == 0 && gap.start == 0 && gap.end == 0x1000 &&
		      !gap.has_before,
	      how);
	CHECK(uw_frames_gap(frames, 0x5000, &gap) == 0 && gap.start == 0x1900 &&
		      gap.end == UINT64_MAX,
	      how);
}

static void test_table_and_index_agree(void)
{
	struct image image = { .table_size = 0 };
	struct uw_frames frames;
	uint64_t off[4];

	add_cie(&image);
	off[2] = add_fde(&image, 0x1800, 0x100);
	off[0] = add_fde(&image, 0x1000, 0x20);
	off[3] = add_fde(&image, 0x1030, 0);
	off[1] = add_fde(&image, 0x1030, 0x10);

	open_frames(&image, &frames);
	check_finds("without a table", &frames);
	CHECK(frames.n_keys == 3, "empty FDEs are left out");
	uw_frames_fini(&frames);

	start_table(&image, 4);
	add_entry(&image, 0x1000, off[0]);
	add_entry(&image, 0x1030, off[1]);
	add_entry(&image, 0x1030, off[3]);
	add_entry(&image, 0x1800, off[2]);
	open_frames(&image, &frames);
	check_finds("with a table, the empty FDE last", &frames);
	CHECK(frames.n_keys == 0, "the table is enough");
	uw_frames_fini(&frames);

	start_table(&image, 3);
	add_entry(&image, 0x1000, off[0]);
	add_entry(&image, 0x1030, off[1]);
	add_entry(&image, 0x1800, off[2]);
	open_frames(&image, &frames);
	check_finds("the table lacks an empty one", &frames);
	uw_frames_fini(&frames);
}

/* Add a CIE and three FDEs, which begin at off. */
static void add_three(struct image *image, uint64_t off[3])
{
	add_cie(image);
	off[0] = add_fde(image, 0x1000, 0x20);
	off[1] = add_fde(image, 0x1030, 0x10);
	off[2] = add_fde(image, 0x1800, 0x100);
}

static void test_a_table_that_lies_does_not_matter(void)
{
	struct image image = { .table_size = 0 };
	struct uw_frames frames;
	uint64_t off[3];

	add_three(&image, off);

	start_table(&image, 2);
	add_entry(&image, 0x1000, off[0]);
	add_entry(&image, 0x1800, off[2]);
	open_frames(&image, &frames);
	check_finds("an FDE is left out", &frames);
	uw_frames_fini(&frames);

	start_table(&image, 3);
	add_entry(&image, 0x1000, off[2]);
	add_entry(&image, 0x1030, off[0]);
	add_entry(&image, 0x1800, off[1]);
	open_frames(&image, &frames);
	check_finds("FDEs are mixed up", &frames);
	uw_frames_fini(&frames);

	start_table(&image, 3);
	add_entry(&image, 0x1800, off[2]);
	add_entry(&image, 0x1030, off[1]);
	add_entry(&image, 0x1000, off[0]);
	open_frames(&image, &frames);
	check_finds("it is not sorted", &frames);
	uw_frames_fini(&frames);

	start_table(&image, 3);
	add_entry(&image, 0x1000, 0xffff0);
	add_entry(&image, 0x1030, 3);
	add_entry(&image, 0x1800, (uint64_t)-0x8000);
	open_frames(&image, &frames);
	check_finds("it points anywhere", &frames);
	uw_frames_fini(&frames);

	start_table(&image, 0xffffffff);
	add_entry(&image, 0x1000, off[0]);
	open_frames(&image, &frames);
	CHECK(frames.table.n == 1, "the count is cut to what is there");
	check_finds("it claims entries beyond its end", &frames);
	uw_frames_fini(&frames);

	start_table(&image, 0);
	open_frames(&image, &frames);
	check_finds("it is empty", &frames);
	uw_frames_fini(&frames);
}

/* All FDEs are counted only if those around the pc are not neighbours in the section. */
static void test_a_gap_between_neighbours_needs_no_count(void)
{
	struct image image = { .table_size = 0 };
	struct uw_frames frames;
	struct uw_gap gap;
	struct uw_fde fde;
	uint64_t off[3];

	add_cie(&image);
	off[0] = add_fde(&image, 0x1000, 0x20);
	put(image.frames, &image.frames_size, 4, 4); /* a CIE, by its head */
	put(image.frames, &image.frames_size, 0, 4);
	off[1] = add_fde(&image, 0x1030, 0x10);
	(void)add_fde(&image, 0x1600, 0x100);
	off[2] = add_fde(&image, 0x1800, 0x100);
	start_table(&image, 3);
	add_entry(&image, 0x1000, off[0]);
	add_entry(&image, 0x1030, off[1]);
	add_entry(&image, 0x1800, off[2]);
	open_frames(&image, &frames);
	CHECK(find(&frames, 0x1025) == 0 && uw_frames_gap(&frames, 0x1025, &gap) == 0 &&
		      gap.start == 0x1020 && gap.end == 0x1030 && gap.before == off[0],
	      "the gap");
	CHECK(uw_frames_look(&frames, 0x1025, &fde, &gap) == -ENOENT && gap.start == 0x1020,
	      "at once");
	CHECK(uw_frames_look(&frames, 0x1035, &fde, &gap) == 0 && fde.start == 0x1030, "so it is");
	CHECK(frames.whole == 0 && frames.ready == 0, "nothing was counted");
	CHECK(find(&frames, 0x1620) == 0x1600, "one that the table lacks is found");
	CHECK(frames.whole == -1 && frames.ready == 1, "by the index");
	CHECK(find(&frames, 0x1025) == 0 && uw_frames_gap(&frames, 0x1025, &gap) == 0 &&
		      gap.start == 0x1020 && gap.end == 0x1030 && gap.before == off[0],
	      "the same gap");
	uw_frames_fini(&frames);
}

/* The entry right of a gap says where the FDE starts that would be found otherwise. */
static void test_an_entry_that_lies_makes_no_gap(void)
{
	struct image image = { .table_size = 0 };
	struct uw_limits limits, defaults;
	struct uw_frames frames;
	struct uw_fde fde;
	uint64_t off[3];

	add_three(&image, off);
	start_table(&image, 3);
	add_entry(&image, 0x1000, off[0]);
	add_entry(&image, 0x1700, off[1]);
	add_entry(&image, 0x1800, off[2]);
	open_frames(&image, &frames);
	CHECK(find(&frames, 0x1035) == 0x1030, "found by the index");
	CHECK(uw_frames_memory(&frames) == 3 * sizeof(struct uw_fde_key), "its memory");
	uw_frames_fini(&frames);

	uw_limits_get(&defaults);
	limits = defaults;
	limits.functions = 2;
	CHECK(!uw_limits_set(&limits), "set");
	open_frames(&image, &frames);
	CHECK(uw_frames_find(&frames, 0x1035, &fde) == -E2BIG && !uw_frames_memory(&frames),
	      "an index of too many");
	CHECK(uw_frames_find(&frames, 0x1005, &fde) == 0, "others are found by the table");
	uw_frames_fini(&frames);
	CHECK(!uw_limits_set(&defaults), "set again");
}

static void test_headers(void)
{
	/* LSB 5.0 §10.6.2.1: version, three encodings, the pointer, the count. */
	static const uint8_t none[] = { 1, 0x1b, 0xff, 0xff, 0xfc, 0xff, 0, 0 };
	static const uint8_t version[] = { 2, 0x1b, 3, 0x3b, 0, 0, 0, 0, 0, 0, 0, 0 };
	static const uint8_t indirect[] = { 1, 0x9b, 3, 0x3b, 0, 0, 0, 0, 0, 0, 0, 0 };
	struct uw_hdr table;

	CHECK(uw_hdr_init(&table, none, sizeof(none), TABLE_VADDR) == 0 && table.n == 0 &&
		      table.has_frames && table.frames_vaddr == TABLE_VADDR + 4 + 0xfffc,
	      "a header without a table");
	CHECK(uw_hdr_init(&table, version, sizeof(version), TABLE_VADDR) == -ENOTSUP, "version 2");
	CHECK(uw_hdr_init(&table, indirect, sizeof(indirect), TABLE_VADDR) == -ENOTSUP, "indirect");
	for (size_t size = 0; size < 8; size++)
		CHECK(uw_hdr_init(&table, none, size, TABLE_VADDR) < 0, "cut short");
}

static void test_terminators(void)
{
	struct image image = { .table_size = 0 };
	struct uw_frames frames;

	add_cie(&image);
	add_fde(&image, 0x1000, 0x20);
	put(image.frames, &image.frames_size, 0, 4);
	add_fde(&image, 0x1800, 0x100);
	open_frames(&image, &frames);
	CHECK(find(&frames, 0x1810) == 0x1800, "inside a section it ends nothing");
	uw_frames_fini(&frames);
	open_frames(&image, &frames);
	frames.cfi.to_terminator = true;
	CHECK(find(&frames, 0x1010) == 0x1000 && find(&frames, 0x1810) == 0,
	      "where the size is not known it is the end");
	uw_frames_fini(&frames);
}

static void *find_all(void *arg)
{
	uint64_t wrong = 0;

	for (uint64_t i = 0; i < 100; i++)
		wrong += find(arg, 0x1000 + 0x20 * i) != 0x1000 + 0x20 * i;
	return (void *)wrong;
}

static void test_threads_share_one_index(void)
{
	struct image image = { .table_size = 0 };
	struct uw_frames frames;
	pthread_t threads[4];

	add_cie(&image);
	for (uint64_t i = 100; i-- > 0;)
		add_fde(&image, 0x1000 + 0x20 * i, 0x20);
	open_frames(&image, &frames);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&threads[i], NULL, find_all, &frames) == 0, "thread");
	for (int i = 0; i < 4; i++) {
		void *wrong = NULL;

		pthread_join(threads[i], &wrong);
		CHECK(!wrong, "every thread finds every FDE");
	}
	uw_frames_fini(&frames);
}

/* A search through the top of a large table finds the same as a binary search of all of it. */
static void test_a_large_table_and_its_top(void)
{
	static struct image image;
	static const uint32_t sizes[] = { 255, 256, 257, 319, 320, 321, 1500 };

	for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
		struct uw_frames with, without;
		uint32_t n = sizes[k];

		image.frames_size = image.table_size = 0;
		add_cie(&image);
		start_table(&image, n);
		for (uint32_t i = 0; i < n; i++)
			add_entry(&image, 0x1000 + i * 0x20,
				  add_fde(&image, 0x1000 + i * 0x20, 0x18));
		open_frames(&image, &with);
		open_frames(&image, &without);
		uw_frames_top(&with);
		CHECK((with.n_top > 0) == (n >= 256), "large ones have a top");
		for (uint64_t at = 0xfff; at < 0x1010 + n * 0x20; at += at % 0x20 == 0x1f ? 1 : 7) {
			uint64_t in = (at - 0x1000) % 0x20, start = at - in;

			if (at < 0x1000 || in >= 0x18 || at >= 0x1000 + n * 0x20)
				start = 0;
			CHECK(find(&with, at) == start, "by the top");
			CHECK(find(&without, at) == start, "without");
		}
		uw_frames_fini(&with);
		uw_frames_fini(&without);
	}
}

int main(void)
{
	test_table_and_index_agree();
	test_a_table_that_lies_does_not_matter();
	test_a_gap_between_neighbours_needs_no_count();
	test_an_entry_that_lies_makes_no_gap();
	test_a_large_table_and_its_top();
	test_headers();
	test_terminators();
	test_threads_share_one_index();
	return check_done();
}
