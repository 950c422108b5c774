/*
 * tests/unit/test_blob.c: tests blobs that are read as needed: contents, damage, failures to read,
 * hostile contents.
 */
#include "unwinder/unwinder.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "schema/procs_blob.h"
#include "schema/table_blob.h"
#include "tests/check.h"
#include "unwinder/rule/object.h"
#include "unwinder/table/table.h"

/* A place where a blob is stored; reading from it can fail. */
struct place {
	const uint8_t *bytes;
	uint64_t reads, read;
	long fails_at; /* this call and all after it fail; < 0: none */
	unsigned int damaged, released;
};

static int read_place(void *ctx, uint64_t off, void *out, size_t size)
{
	struct place *p = ctx;

	if (p->fails_at >= 0 && p->reads >= (uint64_t)p->fails_at)
		return -EIO;
	p->reads++;
	p->read += size;
	memcpy(out, p->bytes + off, size);
	return 0;
}

static void is_damaged(void *ctx)
{
	((struct place *)ctx)->damaged++;
}

static void is_released(void *ctx)
{
	((struct place *)ctx)->released++;
}

static struct uw_blob_source kept_at(struct place *p, const void *bytes, size_t size)
{
	*p = (struct place){ .bytes = bytes, .fails_at = -1 };
	return (struct uw_blob_source){ .size = size,
					.read = read_place,
					.damaged = is_damaged,
					.release = is_released,
					.ctx = p };
}

static struct uw_object *open_self(void)
{
	struct uw_object *object = NULL;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	CHECK(fd >= 0 && uw_object_open(fd, 0, &object) == 0, "this program");
	close(fd);
	return object;
}

static struct uw_object *whole; /* with a table that it makes itself */
static struct uw_identity identity;
static const void *table;
static void *procs;
static size_t table_size, procs_size;
static uint64_t code_start, code_size;

static void make(void)
{
	const struct uw_segment *s;
	size_t n;

	whole = open_self();
	CHECK(uw_object_compile(whole) == 0 && uw_object_identify(whole, &identity) == 0 &&
		      uw_object_procs(whole, &procs, &procs_size) == 0,
	      "made");
	table = uw_object_compiled(whole, &table_size);
	s = uw_object_segments(whole, &n);
	for (size_t i = 0; i < n; i++) {
		if (s[i].flags & 1) {
			code_start = s[i].vaddr;
			code_size = s[i].mem_size;
		}
	}
}

/*
 * This number of look-ups covers all of the code: some builds of this program have 16 times as much
 * code as others.
 */
static uint64_t apart(uint64_t n)
{
	return code_size / n | 1;
}

static bool same_word(struct uw_object *o, uint64_t at)
{
	uint64_t a = 0, b = 0;
	uint8_t x, y;
	int err = uw_object_packed(whole, at, true, &a, &x),
	    got = uw_object_packed(o, at, true, &b, &y);

	/* The file has an expression where the table has a record; the results are equal. */
	return err == got && a >> 32 == b >> 32 && (err || (a & 7) == (b & 7) || (a & 7) == 1);
}

static struct uw_object *open_kept(struct place place[2], const void *rules, const void *ranges)
{
	struct uw_blob_source kept = kept_at(&place[0], rules, table_size);
	struct uw_object *o = open_self();

	CHECK(uw_object_take_stored(o, &kept, &identity) == 0, "a table");
	kept = kept_at(&place[1], ranges, procs_size);
	CHECK(uw_object_take_stored_procs(o, &kept, &identity) == 0, "ranges");
	return o;
}

static void test_what_is_asked_for_is_read(void)
{
	const struct blob_header *h = table;
	struct place place[2];
	struct uw_object *o = open_kept(place, table, procs);
	uint64_t start, end, a, b;
	size_t size;

	CHECK(place[0].read == sizeof(*h) + h->front, "no more than the front");
	CHECK(same_word(o, code_start + code_size / 2), "a row");
	CHECK(place[0].read < h->front + 8 * BLOB_BLOCK, "and the blocks it is in");
	for (uint64_t at = code_start; at < code_start + code_size; at += apart(16000)) {
		CHECK(same_word(o, at), "every row");
		CHECK(uw_object_function(whole, at, &start, &end) ==
			      uw_object_function(o, at, &a, &b),
		      "every function");
	}
	CHECK(uw_object_parsed(o) == 0, "nothing was parsed");
	CHECK(place[0].read <= h->size + sizeof(*h), "nothing was read twice");
	CHECK(uw_object_compiled(o, &size) && size == table_size &&
		      !memcmp(uw_object_compiled(o, &size), table, size),
	      "all of it");
	uw_object_put(o);
	CHECK(place[0].released == 1 && place[1].released == 1, "let go once");
}

/* Whichever byte a bit flips in, the answer is the file's, and the damage is reported. */
static void test_damage_is_never_an_answer(void)
{
	const struct blob_header *h = table;
	uint8_t *copy = malloc(table_size), *ranges = malloc(procs_size);
	unsigned int told = 0, refused = 0;

	memcpy(copy, table, table_size);
	memcpy(ranges, procs, procs_size);
	for (size_t i = 0; i < 300; i++) {
		/* The front is a small part, but is damaged in one of ten cases. */
		uint64_t at = i % 10 ? h->front + i * 7919 % (table_size - h->front)
				     : i * 7919 % h->front;
		struct uw_object *o = open_self();
		struct place place;
		struct uw_blob_source kept;

		copy[at] ^= (uint8_t)(1 << i % 8);
		kept = kept_at(&place, copy, table_size);
		if (uw_object_take_stored(o, &kept, &identity)) {
			CHECK(at < h->front && place.released == 1, "in the front");
			refused++;
		} else {
			CHECK(at >= h->front, "behind it");
			for (uint64_t pc = code_start; pc < code_start + code_size;
			     pc += apart(800))
				CHECK(same_word(o, pc), "the file's own");
			CHECK(place.damaged <= 1, "told once");
			told += place.damaged;
		}
		copy[at] ^= (uint8_t)(1 << i % 8);
		uw_object_put(o);
	}
	CHECK(told > 100 && refused == 30, "both happen");
	for (size_t at = 0; at < procs_size; at += 1 + procs_size / 200) {
		struct uw_object *o = open_self();
		struct uw_blob_source kept;
		struct place place;
		uint64_t start, end;

		ranges[at] ^= 1;
		kept = kept_at(&place, ranges, procs_size);
		if (!uw_object_take_stored_procs(o, &kept, &identity))
			for (uint64_t pc = code_start; pc < code_start + code_size;
			     pc += apart(800))
				CHECK(uw_object_function(o, pc, &start, &end) ==
					      uw_object_function(whole, pc, &start, &end),
				      "the file's own");
		ranges[at] ^= 1;
		uw_object_put(o);
	}
	free(copy);
	free(ranges);
}

static void test_failures_to_read_are_survived(void)
{
	for (long fails = 0; fails < 40; fails++) {
		struct uw_object *o = open_self();
		struct place place;
		struct uw_blob_source kept = kept_at(&place, table, table_size);

		place.fails_at = fails;
		if (!uw_object_take_stored(o, &kept, &identity))
			for (uint64_t pc = code_start; pc < code_start + code_size;
			     pc += apart(160))
				CHECK(same_word(o, pc), "the file's own");
		CHECK(place.damaged == 0, "which is no damage");
		uw_object_put(o);
		CHECK(place.released == 1, "let go");
	}
}

/* Correct checksums do not make hostile rows valid: they lead nowhere. ASan checks this. */
static void test_hostile_rows_lead_nowhere(void)
{
	const struct table_header *h = table;
	uint8_t *copy = malloc(table_size);

	for (size_t i = 0; i < 400; i++) {
		struct uw_blob_source kept;
		struct place place;
		struct uw_blob *blob;
		struct uw_table t;
		struct uw_rule rule;
		size_t at = h->block + i * 104729 % (table_size - h->block);

		if (i % 2)
			at = h->superblock + i * 7 % (h->rule - h->superblock);
		memcpy(copy, table, table_size);
		copy[at] ^= (uint8_t)(1 << i % 8);
		uw_blob_seal(copy);
		kept = kept_at(&place, copy, table_size);
		CHECK(uw_blob_open(&kept, TABLE_MAGIC, &blob) == 0, "sums fit");
		t = (struct uw_table){ .own = NULL };
		if (!uw_table_open_stored(&t, blob)) {
			for (uint64_t pc = code_start; pc < code_start + code_size;
			     pc += apart(260)) {
				(void)uw_table_rule(&t, pc, &rule);
				(void)uw_table_inside(&t, pc, pc & 1);
			}
		}
		uw_table_fini(&t);
		uw_blob_free(blob);
	}
	free(copy);
}

/* A file that is larger than this program. */
static struct uw_object *open_libc(void)
{
	struct uw_object *object = NULL;
	Dl_info info;
	int fd = dladdr((void *)(uintptr_t)&exit, &info)
			 ? open(info.dli_fname, O_RDONLY | O_CLOEXEC)
			 : -1;

	if (fd < 0 || uw_object_open(fd, 0, &object))
		object = open_self();
	if (fd >= 0)
		(void)close(fd);
	return object;
}

/*
 * Each look-up is done first: the bytes that it reads besides its row, as where superblocks meet,
 * are read, too.
 */
static void test_no_look_up_needs_another(void)
{
	struct uw_object *libc = open_libc();
	const struct table_header *h;
	const struct uw_table *all;
	struct uw_blob *blob;
	const void *bytes;
	unsigned int n = 0;
	size_t size;

	CHECK(uw_object_compile(libc) == 0, "compiled");
	bytes = h = uw_object_compiled(libc, &size);
	all = uw_object_table(libc);
	for (uint32_t s = 0; s <= h->n_superblocks; s++) {
		for (uint64_t off = 0; off < 512; off += 7, n++) {
			uint64_t at = h->base + (uint64_t)s * TABLE_SUPERBLOCK_UNITS + off - 256;
			struct uw_blob_source kept;
			struct place place;
			struct uw_table t;
			bool a, b;

			kept = kept_at(&place, bytes, size);
			CHECK(uw_blob_open(&kept, TABLE_MAGIC, &blob) == 0 &&
				      uw_table_open_stored(&t, blob) == 0,
			      "opens");
			CHECK(uw_table_look(&t, at, n & 1, &a) ==
					      uw_table_look(all, at, n & 1, &b) &&
				      a == b,
			      "alone as among others");
			uw_table_fini(&t);
			uw_blob_free(blob);
		}
	}
	CHECK(n > 100, "where sups meet");
	uw_object_put(libc);
}

static void test_bounds(void)
{
	struct place place;
	struct uw_blob_source kept = kept_at(&place, table, table_size);
	struct uw_blob *blob;

	CHECK(uw_blob_open(&kept, PROCS_MAGIC, &blob) == -EBADMSG && place.released == 1,
	      "another's");
	kept = kept_at(&place, table, table_size - 1);
	CHECK(uw_blob_open(&kept, TABLE_MAGIC, &blob) == -EBADMSG, "cut short");
	kept = kept_at(&place, table, 16);
	CHECK(uw_blob_open(&kept, TABLE_MAGIC, &blob) == -EBADMSG, "no header");
	kept = kept_at(&place, table, table_size);
	CHECK(uw_blob_open(&kept, TABLE_MAGIC, &blob) == 0, "its own");
	CHECK(uw_blob_need(blob, table_size, 0) == 0 && uw_blob_need(blob, 0, 0) == 0, "nothing");
	CHECK(uw_blob_need(blob, table_size, 1) == -EBADMSG &&
		      uw_blob_need(blob, 1, UINT64_MAX) == -EBADMSG &&
		      uw_blob_need(blob, UINT64_MAX, 2) == -EBADMSG,
	      "outside");
	CHECK(uw_blob_whole(blob) == 0 && !memcmp(uw_blob_bytes(blob), table, table_size), "whole");
	uw_blob_free(blob);
}

/* The file is gone: the table answers without it. */
static void test_a_table_alone_is_an_object(void)
{
	struct place place;
	struct uw_blob_source kept = kept_at(&place, table, table_size);
	struct uw_object *o = NULL;
	uint64_t vaddr = 0, own = 1;
	size_t n, differ = 0, asked = 0;
	uint8_t *bad = malloc(table_size);

	CHECK(uw_object_open_stored(&kept, &o) == 0 && o, "an object");
	if (!o || !bad)
		return;
	CHECK(uw_object_machine(o) == uw_object_machine(whole) &&
		      uw_build_id_equal(uw_object_build_id(o), uw_object_build_id(whole)),
	      "of the same file");
	(void)uw_object_segments(o, &n);
	CHECK(n > 0, "with segments");
	CHECK(uw_object_vaddr(o, code_start, &vaddr) == uw_object_vaddr(whole, code_start, &own) &&
		      vaddr == own,
	      "at the same places");
	for (uint64_t at = code_start; at < code_start + code_size; at += 7) {
		struct uw_rule a, b;

		if (uw_object_rule(whole, at, true, &a) || !a.compiled)
			continue;
		asked++;
		differ += uw_object_rule(o, at, true, &b) || b.cfa_kind != a.cfa_kind ||
			  b.cfa_reg != a.cfa_reg || (!a.cfa_size && b.cfa_off != a.cfa_off);
	}
	CHECK(asked > 1000 && !differ, "the same rules");
	uw_object_put(o);
	CHECK(place.released == 1, "released once");
	for (long i = 0; i < 4; i++) {
		kept = kept_at(&place, table, table_size);
		place.fails_at = i;
		o = NULL;
		if (!uw_object_open_stored(&kept, &o))
			uw_object_put(o);
		CHECK(place.released == 1, "released whatever fails");
	}
	memcpy(bad, table, table_size);
	bad[TABLE_HEADER_SIZE + 40] ^= 1;
	kept = kept_at(&place, bad, table_size);
	CHECK(uw_object_open_stored(&kept, &o) == -EBADMSG && place.released == 1, "a damaged one");
	free(bad);
}

static void count_input(void *ctx, const void *bytes, size_t size)
{
	uint64_t *sums = ctx;

	sums[0] += size;
	sums[1] = uw_checksum(bytes, size, sums[1]);
}

static void test_inputs_are_all_that_counts(void)
{
	struct uw_object *o = open_self();
	uint64_t a[2] = { 0 }, b[2] = { 0 };

	CHECK(uw_object_inputs(whole, count_input, a) == 0 &&
		      uw_object_inputs(o, count_input, b) == 0,
	      "given");
	CHECK(a[0] == b[0] && a[1] == b[1], "the same of the same file");
	CHECK(a[0] > identity.size, "the sections, and where they lie");
	uw_object_put(o);
}

int main(void)
{
	make();
	test_a_table_alone_is_an_object();
	test_inputs_are_all_that_counts();
	test_what_is_asked_for_is_read();
	test_damage_is_never_an_answer();
	test_failures_to_read_are_survived();
	test_hostile_rows_lead_nowhere();
	test_no_look_up_needs_another();
	test_bounds();
	uw_object_put(whole);
	free(procs);
	return check_done();
}
