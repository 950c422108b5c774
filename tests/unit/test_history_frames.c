/*
 * tests/unit/test_history_frames.c: tests pages of frames: packing them, damage, and frames that are found by a hash that
 * others have, too.
 */
#include "agent/history/history.h"

#include "agent/history/history_internal.h"
#include "tests/check.h"
#include "tests/history.h"

#define START (UINT64_C(1700000000) * SECOND)

static const struct history_query everything = { .to_ns = UINT64_MAX };

static uint32_t state = 1;

static uint32_t draw(void)
{
	state = state * 1664525 + 1013904223;
	return state >> 8;
}

static uint64_t draw_address(void)
{
	static const uint64_t bases[] = { 0, 0xffffffff81000000, 0x7f0000000000, UINT64_MAX };

	return bases[draw() % 4] + draw();
}

/* Fill a page with frames of all kinds; a fifth of them was deleted. */
static void fill(struct history_page_frame frames[FRAMES_IN_PAGE])
{
	static const uint8_t bytes[300] = { 1, 2, 0xff, 0 };

	memset(frames, 0, FRAMES_IN_PAGE * sizeof(*frames));
	for (size_t i = 0; i < FRAMES_IN_PAGE; i++)
		if (draw() % 5)
			frames[i] = (struct history_page_frame){
				.there = true,
				.key = { .module = draw() % 7	? (int64_t)(draw() % 3)
						   : draw() % 2 ? INT64_MIN
								: INT64_MAX,
					 .variant = draw() % 2 ? (int64_t)draw() - 5 : 0,
					 .address = draw_address() },
				.lines = uw_bytes_of(bytes, draw() % 9 ? draw() % 9 : draw() % 300),
			};
}

static bool is_same(const struct history_page_frame *a, const struct history_page_frame *b)
{
	const uint64_t size = uw_bytes_left(&a->lines);

	if (a->there != b->there || !a->there)
		return a->there == b->there;
	return a->key.module == b->key.module && a->key.variant == b->key.variant &&
	       a->key.address == b->key.address && size == uw_bytes_left(&b->lines) &&
	       (!size || !memcmp(a->lines.pos, b->lines.pos, size));
}

static void test_pages_are_read_as_they_were_written(void)
{
	struct history_page_frame in[FRAMES_IN_PAGE], out[FRAMES_IN_PAGE];

	for (size_t n = 0; n <= FRAMES_IN_PAGE; n++) {
		struct history_bytes bytes = { .bytes = NULL };
		size_t got = 0;
		bool same;

		fill(in);
		same = !history_pack_frames(in, n, &bytes) &&
		       !history_unpack_frames(bytes.bytes, bytes.size, out, &got) && got == n;
		for (size_t i = 0; i < n; i++)
			same = same && is_same(&in[i], &out[i]);
		for (size_t i = n; i < FRAMES_IN_PAGE; i++)
			same = same && !out[i].there;
		CHECK(same, "the same");
		free(bytes.bytes);
	}
}

/* Wherever a page is cut off, what is there before that is read. */
static void test_damaged_pages_are_read_up_to_there(void)
{
	struct history_page_frame in[FRAMES_IN_PAGE], out[FRAMES_IN_PAGE];
	struct history_bytes bytes = { .bytes = NULL };
	size_t n, last = 0;

	fill(in);
	CHECK(!history_pack_frames(in, FRAMES_IN_PAGE, &bytes), "packed");
	for (size_t size = 0; size <= bytes.size; size++) {
		uint8_t *copy =
			malloc(size + 1); /* as long as it is: a sanitizer sees what lies behind */
		bool same = true;

		memcpy(copy, bytes.bytes, size);
		(void)history_unpack_frames(copy, size, out, &n);
		for (size_t i = 0; i < n; i++)
			same = same && is_same(&in[i], &out[i]);
		for (size_t i = n; i < FRAMES_IN_PAGE; i++)
			same = same && !out[i].there;
		CHECK(same && n >= last, "the beginning");
		last = n;
		free(copy);
	}
	CHECK(last == FRAMES_IN_PAGE, "all");
	CHECK(history_unpack_frames("\0\x41", 2, out, &n) == -EBADMSG && !n, "65 deleted ones");
	CHECK(history_unpack_frames("\0\x40\1\2\2", 5, out, &n) == -EBADMSG && n == FRAMES_IN_PAGE,
	      "one too many");
	CHECK(history_unpack_frames("\1\2\2\xff\xff\xff\xff\xff\xff\xff\xff\xff\1\2\2", 15, out,
				    &n) == -EBADMSG &&
		      n == 1,
	      "lines without an end");
	free(bytes.bytes);
}

/* ---- in a history --------------------------------------------------------------------------- */

/* Add a window with one sample of a stack, by a process of its own. */
static void add(uint32_t outer, uint32_t inner)
{
	const struct made_sample sample = { START, 1, 1, NULL, 5, { inner, outer }, 2 };
	struct stacks *s = made_profile();
	struct history *h = NULL;

	made_add(s, &sample);
	CHECK(!history_open(db_name, true, &h) &&
		      !history_add(h, s,
				   &(struct history_window){ .start_ns = START,
							     .end_ns = START + SECOND }),
	      "added");
	history_close(h);
	stacks_free(s);
}

static void check_read(const char *expected)
{
	struct history *h = NULL;
	struct history_found found;
	int err = history_open(db_name, false, &h);
	char *text = err ? NULL : made_read(h, &everything, &found, &err);

	CHECK(text && !strcmp(text, expected), text ? text : "cannot be read");
	free(text);
	history_close(h);
}

/* Check a line of the text. */
static void check_sample(const char *line)
{
	struct history *h = NULL;
	struct history_found found;
	int err = history_open(db_name, false, &h);
	char *text = err ? NULL : made_read(h, &everything, &found, &err);

	CHECK(text && strstr(text, line), line);
	free(text);
	history_close(h);
}

/* Somebody may choose addresses with one hash: few of them are looked at. */
static void test_frames_with_one_hash(void)
{
	for (uint32_t i = 2; i < 80; i += 2)
		add(i, i + 1);
	add(1, 2);
	CHECK(db_count("SELECT count(*) FROM frames") == 79, "each once");
	CHECK(db_sql("UPDATE frame_index SET hash = (SELECT hash FROM frame_index WHERE frame = 1)"
		     " WHERE frame > 70") == SQLITE_OK,
	      "ten with one hash");
	add(2, 4);
	CHECK(db_count("SELECT count(*) FROM frames") == 79, "is found");
	CHECK(db_sql("UPDATE frame_index SET hash = (SELECT hash FROM frame_index WHERE frame = "
		     "1)") == SQLITE_OK,
	      "all with one hash");
	add(2, 4);
	CHECK(db_count("SELECT count(*) FROM frames") == 81, "two are stored again");
	add(2, 4);
	CHECK(db_count("SELECT count(*) FROM frames") == 81, "and found");
	check_sample("f2;f4; 3 15\n");
	db_remove();
}

/* What is left of a damaged page stays, and new frames lie behind it. */
static void test_new_frames_lie_behind_damage(void)
{
	static const char *const damages[] = {
		("UPDATE frame_pages "
		 "SET frames = CAST(substr(frames, 1, length(frames) - 1) AS BLOB)"),
		"DELETE FROM settings WHERE name = 'last_frame'",
		"UPDATE settings SET value = '1' WHERE name = 'last_frame'",
		"INSERT INTO frame_pages VALUES (9223372036854775807, x'01')",
		"UPDATE frame_index SET frame = -1",
		"DELETE FROM frame_index",
	};

	for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
		add(1, 2);
		add(1, 3);
		CHECK(db_sql(damages[i]) == SQLITE_OK, damages[i]);
		add(4, 5);
		add(5, 4);
		CHECK(db_count("SELECT value FROM settings WHERE name = 'last_frame'") ==
			      (i < 3 ? 66 : 5),
		      damages[i]);
		if (i)
			check_read("f1;f2; 1 5\nf1;f3; 1 5\nf4;f5; 1 5\nf5;f4; 1 5\n");
		else /* a window is left out */
			check_read("f1;f2; 1 5\nf4;f5; 1 5\nf5;f4; 1 5\n");
		db_remove();
	}
	add(1, 2);
	CHECK(db_sql("UPDATE settings SET value = '99999999999' WHERE name = 'last_frame'") ==
		      SQLITE_OK,
	      "more than a node can have");
	{
		struct history *h = NULL;
		struct stacks *s = made_profile();

		CHECK(!history_open(db_name, true, &h) &&
			      history_add(h, s,
					  &(struct history_window){ .start_ns = START,
								    .end_ns = START + 1 }) ==
				      -EBADMSG,
		      "is damage");
		history_close(h);
		stacks_free(s);
	}
	db_remove();
}

int main(void)
{
	db_make_name();
	test_pages_are_read_as_they_were_written();
	test_damaged_pages_are_read_up_to_there();
	test_frames_with_one_hash();
	test_new_frames_lie_behind_damage();
	(void)rmdir(db_folder);
	return check_done();
}
