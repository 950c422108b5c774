/*
 * tests/unit/test_history_nodes.c: tests pages of nodes: packing them, damage, and nodes that are added
 * by a process that does not have all that are there in its cache.
 */
#include "agent/history/history.h"

#include <errno.h>
#include <unistd.h>

#include "agent/history/history_internal.h"
#include "tests/check.h"
#include "tests/history.h"

#define START (UINT64_C(1700000000) * SECOND)

static const struct history_query everything = { .to_ns = UINT64_MAX };

static void test_pages_are_read_as_they_were_written(void)
{
	struct history_node in[NODES_IN_PAGE] = { { 0, 0 } }, out[NODES_IN_PAGE];
	uint32_t state = 1;

	for (size_t n = 0; n <= NODES_IN_PAGE; n++) {
		struct history_bytes bytes = { .bytes = NULL };
		size_t got = 0;

		CHECK(!history_pack_nodes(in, n, &bytes) &&
			      !history_unpack_nodes(7, bytes.bytes, bytes.size, out, &got) &&
			      got == n && !memcmp(in, out, sizeof(in)),
		      "the same");
		free(bytes.bytes);
		state = state * 1664525 + 1013904223;
		if (n < NODES_IN_PAGE && state >> 30) /* else: it is deleted */
			in[n] = (struct history_node){ .frame = state,
						       .up = state % (7 * NODES_IN_PAGE) };
	}
}

static void test_damaged_pages_are_read_up_to_there(void)
{
	static const struct {
		int64_t page;
		const char *bytes;
		size_t size, n;
	} damages[] = {
		{ 0, "\1", 1, 0 },
		{ 0, "\1\0\1", 3, 1 },
		{ 0, "\1\1", 2, 0 }, /* the parent would be 0 */
		{ 0, "\1\0\1\1\1\3", 6, 2 },
		{ 0, "\0\x81\2", 3, 0 }, /* 257 deleted ones */
		{ 0, "\0\xff\1\1\0\1\0", 7, 256 },
		{ 9, "\xff\xff\xff\xff\x1f\1", 6, 0 }, /* a frame of more than 32 bits */
		{ 9, "\1\xff\xff\xff\xff\x1f", 6, 0 },
		{ 9, "\1\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\1", 12, 0 },
	};
	struct history_node nodes[NODES_IN_PAGE];

	for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
		size_t n = 99;

		CHECK(history_unpack_nodes(damages[i].page, damages[i].bytes, damages[i].size,
					   nodes, &n) == -EBADMSG &&
			      n == damages[i].n,
		      "damaged");
		for (; n < NODES_IN_PAGE; n++)
			CHECK(!nodes[n].frame && !nodes[n].up, "nothing behind it");
	}
}

static struct history *open_history(void)
{
	struct history *h = NULL;

	CHECK(history_open(db_name, true, &h) == 0, "opens");
	return h;
}

/* Add a window with n stacks, each of which has one frame more than the one before. */
static void add(struct history *h, uint32_t first, uint32_t n)
{
	struct history_window w = { .start_ns = START, .end_ns = START + SECOND };
	struct stacks *s = made_profile();
	uint32_t ids[300], module = made_module(s, "/bin/made", "abcd");

	for (uint32_t i = 0; i < n; i++) {
		struct made_sample m = { .time_ns = START + 1, .cpu_ns = 1 };
		char name[32];

		(void)snprintf(name, sizeof(name), "f%u", first + i);
		memmove(ids + 1, ids, i * sizeof(*ids));
		ids[0] = made_location(s, module, 0x1000 + first + i, name, name);
		made_add_at(s, &m, ids, i + 1);
	}
	CHECK(history_add(h, s, &w) == 0, "added");
	stacks_free(s);
}

static char *text_of(void)
{
	struct history_found found;
	struct history *h = NULL;
	char *text;
	int err;

	CHECK(history_open(db_name, false, &h) == 0, "opens");
	text = made_read(h, &everything, &found, &err);
	CHECK(!err && text, "read");
	history_close(h);
	return text ? text : strdup("");
}

/* Whatever a writer finds when it begins, it adds its nodes behind those that are there. */
static void test_nodes_of_others_stay(void)
{
	static const struct {
		const char *sql;
		int64_t nodes; /* of a second process with the same stacks */
	} changes[] = {
		{ "SELECT 1", 600 },
		{ "DELETE FROM settings", 600 },
		{ "UPDATE settings SET value = '3' WHERE name = 'last_node'", 600 },
		{ "UPDATE settings SET value = '5000000000' WHERE name = 'last_node'", 600 },
		{ "UPDATE settings SET value = '301' WHERE name = 'last_node'", 600 },
	};

	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		struct history *h = open_history();
		char *text, *twice;

		add(h, 1, 300);
		add(h, 1, 300);
		CHECK(db_count("SELECT count(*) FROM nodes") == 300, "once");
		CHECK(db_count("SELECT count(*) FROM node_pages") == 2, "in two pages");
		twice = text_of();
		history_close(h);
		CHECK(db_sql(changes[i].sql) == SQLITE_OK, changes[i].sql);
		h = open_history();
		add(h, 1, 300);
		CHECK(db_count("SELECT count(*) FROM nodes") == changes[i].nodes, changes[i].sql);
		CHECK(db_sql("DELETE FROM windows WHERE id = 1") == SQLITE_OK, "one less");
		text = text_of();
		CHECK(!strcmp(text, twice), "each stack is one sample");
		free(text);
		/* And on behind that. */
		add(h, 1000, 20);
		free(text_of());
		CHECK(db_count("SELECT count(*) FROM nodes") == changes[i].nodes + 20, "more");
		free(twice);
		history_close(h);
		db_remove();
	}
}

/* What was rolled back is not taken for being there. */
static void test_a_rolled_back_node_is_added_again(void)
{
	struct history_window w = { .start_ns = 2, .end_ns = 1 };
	struct history *h = open_history();
	struct stacks *s = made_profile();
	struct made_sample m = { .time_ns = START, .cpu_ns = 1, .frames = { 1, 2 }, .n_frames = 2 };
	char *text;

	add(h, 500, 3);
	made_add(s, &m);
	CHECK(history_add(h, s, &w) < 0, "it ends before it begins");
	w = (struct history_window){ .start_ns = START, .end_ns = START + SECOND };
	CHECK(history_add(h, s, &w) == 0, "added");
	text = text_of();
	CHECK(strstr(text, "f2;f1; 1 1\n"), "it is there");
	free(text);
	stacks_free(s);
	history_close(h);
	db_remove();
}

int main(void)
{
	db_make_name();
	test_pages_are_read_as_they_were_written();
	test_damaged_pages_are_read_up_to_there();
	test_nodes_of_others_stay();
	test_a_rolled_back_node_is_added_again();
	(void)rmdir(db_folder);
	return check_done();
}
