/* tests/unit/test_fleet_addresses.c: tests how addresses of a fleet get names. */
#include "agent/fleet/addresses.h"

#include "agent/fleet/batch.h"
#include "tests/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Rows as a server replies: text, text, two numbers of 64 bits. */
#define ROW(build_id, frame, vaddr) \
	"\x02" build_id "\x02/p" frame "\0\0\0\0\0\0\0" vaddr "\0\0\0\0\0\0\0"
#define LINE(n) n "\0\0\0"

static const struct addresses_choice unnamed = { .time_s = 1700000000 };

/* Give a the rows of a reply. */
static int take(struct addresses *a, const char *rows, size_t size)
{
	char *reply = malloc(size + 1);

	memcpy(reply, rows, size);
	return addresses_take(a, reply, size);
}

static void test_a_query_goes_on_behind_the_last_row(void)
{
	const struct addresses_choice one = { .build_id = "a'b" }, all = { .all = true };
	static const char rows[] = ROW("aa", "\x01", "\x10") ROW("aa", "\x02", "\x20");
	struct addresses a = { .n = 0 };
	char *sql = addresses_query(&a, &unnamed);

	CHECK(strstr(sql, "version < 4294967296") && !strstr(sql, "vaddr >"), sql);
	free(sql);
	CHECK(!take(&a, rows, sizeof(rows) - 1) && a.n == 2 && a.there, "two rows");
	sql = addresses_query(&a, &unnamed);
	CHECK(strstr(sql, "build_id > 'aa' OR (build_id = 'aa' AND vaddr > 32)"), sql);
	free(sql);
	sql = addresses_query(&a, &one);
	CHECK(strstr(sql, "build_id = 'a\\'b'") && !strstr(sql, "version <"), sql);
	free(sql);
	sql = addresses_query(&a, &all);
	CHECK(!strstr(sql, "version <"), sql);
	free(sql);
	CHECK(take(&a, rows, sizeof(rows) - 1) == -EBADMSG, "a server that does not go on");
	CHECK(take(&a, "", 0) == 0 && !a.there && a.n_asked == 2, "the end");
	CHECK(take(&a, rows, sizeof(rows) - 2) == -EBADMSG, "a row that is cut off");
	addresses_fini(&a);
}

static void test_only_rows_that_were_asked_get_names(void)
{
	static const char rows[] =
		ROW("aa", "\x01", "\x10") ROW("aa", "\x02", "\x20") ROW("bb", "\x03", "\x10");
	static const char found[] =
		"\x00\x02\x01i\x01"
		"a" LINE("\x07") "\x01o\x01"
				 "b" LINE("\x08") "\x02\x01\x01m\x00" LINE("\0");
	static const struct {
		const char *name;
		size_t size;
		char bytes[16];
	} bad[] = {
		{ "a row that was not asked", 9, "\x03\x01\x01m\x00" LINE("\0") },
		{ "rows that come back", 18, "\x01\x01\x01m\x00" LINE("\0") "\x00\x01" },
		{ "no function", 2, "\x00\x00" },
		{ "a function that is cut off", 4, "\x00\x01\x05m" },
	};
	struct addresses a = { .n = 0 };
	struct block block = { .n_rows = 0 };

	CHECK(!take(&a, rows, sizeof(rows) - 1), "three rows");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		size_t size =
			bad[i].size < sizeof(bad[i].bytes) ? bad[i].size : sizeof(bad[i].bytes);

		CHECK(addresses_name(&a, &unnamed, bad[i].bytes, size, &block) == -EBADMSG,
		      bad[i].name);
		CHECK(a.there, "the batch is not answered yet");
		block_fini(&block);
	}
	CHECK(!addresses_name(&a, &unnamed, found, sizeof(found) - 1, &block), "two names");
	CHECK(block.n_rows == 2 && a.n_named == 2 && !a.there, "two rows");
	CHECK(uw_bytes_little8(block.columns[0].values.bytes) == 1 &&
		      uw_bytes_little8(block.columns[0].values.bytes + 8) == 3,
	      "of these frames");
	CHECK(block.columns[4].n_elements == 3 && block.columns[5].n_elements == 3 &&
		      block.columns[6].n_elements == 3,
	      "an inlined call");
	/* Lines are better than a symbol alone. */
	CHECK(uw_bytes_little8(block.columns[7].values.bytes) ==
			      batch_version(BATCH_LINES, 1700000000) &&
		      uw_bytes_little8(block.columns[7].values.bytes + 8) ==
			      batch_version(BATCH_SYMBOL, 1700000000),
	      "how good the names are");
	block_fini(&block);
	addresses_fini(&a);
}

int main(void)
{
	test_a_query_goes_on_behind_the_last_row();
	test_only_rows_that_were_asked_get_names();
	return check_done();
}
