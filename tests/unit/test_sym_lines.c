/*
 * tests/unit/test_sym_lines.c: tests source lines and inlined calls with this program's own, and
 * their packed form.
 */
#include "schema/lines_blob.h"
#include "symbolizer/debug/debug.h"
#include "symbolizer/symbolizer.h"
#include "unwinder/unwinder.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/check.h"

static volatile int sink;

/* clang-format off */
static inline __attribute__((always_inline)) void inner(void) { sink++; }
static __attribute__((noinline)) void outer(void) { inner(); }
enum { OUTER_LINE = __LINE__ - 1, OUTER_SIZE_MAX = 256 };
/* clang-format on */

static int first_base(struct dl_phdr_info *info, size_t size, void *ctx)
{
	(void)size;
	*(uint64_t *)ctx = info->dlpi_addr;
	return 1; /* the program itself comes first */
}

static uint64_t outer_vaddr(void)
{
	uint64_t base = 0;

	(void)dl_iterate_phdr(first_base, &base);
	return (uint64_t)(uintptr_t)outer - base;
}

static struct sym_debug *open_self(struct sym_lines *lines)
{
	struct sym_debug *debug = NULL;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	CHECK(fd >= 0 && sym_has_debug(fd, 0), "this program has debug information");
	CHECK(sym_debug_open(fd, 0, NULL, lines, &debug) == 0, "which is opened");
	close(fd); /* it has its own */
	return debug;
}

/* One of the addresses in outer is in inner. */
static bool finds_inner(const struct sym_lines *lines, uint64_t at)
{
	struct sym_place p[4];
	size_t n;

	return !sym_lines_find(lines, at, p, 4, &n) && n == 2 && !strcmp(p[0].function, "inner") &&
	       p[0].line == OUTER_LINE - 1 && p[0].start_line == OUTER_LINE - 1 &&
	       !strcmp(p[1].function, "outer") && p[1].line == OUTER_LINE &&
	       strstr(p[1].file, "test_sym_lines.c");
}

static void test_inlined_calls_come_innermost_first(void)
{
	struct sym_lines *lines = NULL, *kept = NULL;
	uint64_t start = outer_vaddr();
	struct sym_debug *debug;
	struct sym_place p[4];
	unsigned int found = 0;
	size_t n, size;
	void *blob;

	outer();
	CHECK(sym_lines_new(&lines) == 0, "no memory");
	debug = open_self(lines);
	CHECK(sym_lines_find(lines, start, p, 4, &n) == -ENOENT, "not asked for so far");
	CHECK(!sym_lines_grown(lines), "nothing to keep yet");
	CHECK(sym_debug_add(debug, start) == 0 && sym_lines_grown(lines), "now it is");
	CHECK(!sym_lines_find(lines, start, p, 4, &n) && n >= 1 &&
		      p[n - 1].start_line == OUTER_LINE,
	      "the function at its start");
	for (uint64_t at = start; at < start + OUTER_SIZE_MAX && !found; at++)
		found += !sym_debug_add(debug, at) && finds_inner(lines, at);
	CHECK(found, "the call that was inlined");
	CHECK(!sym_debug_add(debug, 1) && !sym_lines_find(lines, 1, p, 4, &n) && n == 0,
	      "of what is no code nothing is known");
	CHECK(!sym_lines_find(lines, start, p, 1, &n) && n == 1, "no more than there is room for");

	CHECK(!sym_lines_pack(lines, 5, &blob, &size), "packed");
	CHECK(sym_lines_unpack(blob, size, 6, &kept) == -ENOENT, "another file's");
	CHECK(!sym_lines_pack(lines, 5, &blob, &size) && !sym_lines_unpack(blob, size, 5, &kept),
	      "and back");
	CHECK(!sym_lines_grown(kept) && sym_lines_size(kept) == sym_lines_size(lines), "as it was");
	found = 0;
	for (uint64_t at = start; at < start + OUTER_SIZE_MAX && !found; at++)
		found += finds_inner(kept, at);
	CHECK(found, "as before");
	sym_debug_free(debug);

	/* What is read later is added to the packed lines. */
	debug = open_self(kept);
	CHECK(!sym_debug_add(debug, start) && !sym_lines_grown(kept), "known already");
	sym_debug_free(debug);
	sym_lines_free(kept);
	sym_lines_free(lines);
}

static bool same_text(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

static bool same_places(const struct sym_lines *a, const struct sym_lines *b, uint64_t vaddr,
			size_t *depth)
{
	struct sym_place p[32], q[32];
	size_t n, m;

	if (sym_lines_find(a, vaddr, p, 32, &n) || sym_lines_find(b, vaddr, q, 32, &m) || n != m)
		return false;
	*depth = n;
	while (n && same_text(p[n - 1].function, q[n - 1].function) &&
	       same_text(p[n - 1].file, q[n - 1].file) && p[n - 1].line == q[n - 1].line &&
	       p[n - 1].start_line == q[n - 1].start_line)
		n--;
	return !n;
}

struct share { /* of one thread */
	struct sym_debug *debug;
	const uint64_t *vaddrs;
	size_t n;
	struct sym_turns *turns;
	int err;
};

static void *prepare_share(void *ctx)
{
	struct share *s = ctx;

	s->err = sym_debug_prepare(s->debug, s->vaddrs, s->n, s->turns);
	return NULL;
}

/* Half of them are read before, then all by two threads, each with a reader of its own. */
static void prepare_together(const uint64_t *vaddrs, size_t n, struct sym_lines *lines)
{
	struct sym_debug *debug = open_self(lines), *twin = NULL;
	struct sym_lines *others = NULL;
	struct sym_turns turns = { 0 };
	struct share share = { .vaddrs = vaddrs, .n = n, .turns = &turns };
	pthread_t thread;

	CHECK(!sym_debug_prepare(debug, vaddrs, n / 2, NULL), "half of them");
	CHECK(!sym_lines_new(&others) && !sym_debug_new_reader(debug, others, &twin),
	      "one more reader");
	share.debug = twin;
	CHECK(!pthread_create(&thread, NULL, prepare_share, &share), "one more thread");
	CHECK(!sym_debug_prepare(debug, vaddrs, n, &turns), "all of them");
	CHECK(!pthread_join(thread, NULL) && !share.err, "its share");
	CHECK(!sym_lines_join(lines, others) && !sym_lines_join(lines, others), "put together");
	sym_debug_free(twin);
	sym_debug_free(debug);
	sym_lines_free(others);
}

/*
 * Only the parts of a unit's line table that are needed are read, but all of its functions at once.
 */
static void test_many_at_once_are_told_as_one_by_one(void)
{
	enum { N = 16384, STEP = 3 };
	static uint64_t vaddrs[N];
	struct sym_lines *many = NULL, *shared = NULL, *single = NULL;
	uint64_t start = outer_vaddr();
	struct sym_debug *debug;
	size_t depth, told = 0, inlined = 0, same = 0;

	for (size_t i = 0; i < N; i++) /* ascending in places only */
		vaddrs[i] = start + STEP * (i % 2 ? i : N - i);
	CHECK(!sym_lines_new(&many) && !sym_lines_new(&single) && !sym_lines_new(&shared),
	      "no memory");
	debug = open_self(many);
	CHECK(!sym_debug_prepare(debug, vaddrs, N / 2, NULL), "half of them");
	CHECK(!sym_debug_prepare(debug, vaddrs, N, NULL), "and those that were left out");
	CHECK(!sym_debug_prepare(debug, vaddrs, 0, NULL), "and none");
	sym_debug_free(debug);
	prepare_together(vaddrs, N, shared);
	debug = open_self(single);
	for (size_t i = 0; i < N; i++) {
		CHECK(!sym_debug_add(debug, vaddrs[i]), "added");
		if (!same_places(single, many, vaddrs[i], &depth) ||
		    !same_places(single, shared, vaddrs[i], &depth))
			continue;
		same++;
		told += depth > 0;
		inlined += depth > 1;
	}
	CHECK(same == N && told > N / 4 && inlined > N / 100, "of each the same");
	sym_debug_free(debug);
	sym_lines_free(many);
	sym_lines_free(shared);
	sym_lines_free(single);
}

static void test_a_changed_byte_is_seen(void)
{
	struct sym_lines *lines = NULL, *bad;
	struct sym_debug *debug;
	size_t size, refused = 0, tried = 0;
	void *blob;

	CHECK(sym_lines_new(&lines) == 0, "no memory");
	debug = open_self(lines);
	CHECK(!sym_debug_add(debug, outer_vaddr()), "something to keep");
	CHECK(!sym_lines_pack(lines, 5, &blob, &size), "packed");
	for (size_t i = 0; i < size; i++) {
		uint8_t *copy = malloc(size);

		memcpy(copy, blob, size);
		copy[i] ^= 1;
		tried++;
		refused += sym_lines_unpack(copy, size, 5, &bad) != 0;
	}
	CHECK(tried == refused, "every one of them");
	for (size_t n = 0; n < size; n += 7) {
		uint8_t *copy = malloc(n + 1);

		memcpy(copy, blob, n);
		CHECK(sym_lines_unpack(copy, n, 5, &bad) == -EBADMSG, "cut short");
	}
	free(blob);
	sym_debug_free(debug);
	sym_lines_free(lines);
}

/* An attacker can compute the checksum, too: whatever the answer is, nothing outside is read. */
static void test_lies_lead_nowhere(void)
{
	struct sym_lines *lines = NULL, *bad;
	uint64_t start = outer_vaddr();
	struct sym_debug *debug;
	struct lines_header *h;
	struct sym_place p[4];
	size_t size, n, looked = 0, silent = 0;
	void *blob;

	CHECK(sym_lines_new(&lines) == 0, "no memory");
	debug = open_self(lines);
	CHECK(!sym_debug_add(debug, start), "something to keep");
	CHECK(!sym_lines_pack(lines, 5, &blob, &size), "packed");
	for (size_t i = sizeof(*h); i < size; i++) {
		uint8_t *copy = malloc(size);

		memcpy(copy, blob, size);
		copy[i] = (uint8_t)~copy[i];
		h = (struct lines_header *)(void *)copy;
		h->checksum = 0;
		h->checksum = uw_checksum(copy + sizeof(*h), size - sizeof(*h),
					  uw_checksum(h, sizeof(*h), 0));
		if (sym_lines_unpack(copy, size, 5, &bad))
			continue;
		looked++;
		for (uint64_t at = start; at < start + 16; at++)
			silent += sym_lines_find(bad, at, p, 4, &n) != 0;
		sym_lines_free(bad);
	}
	CHECK(looked > size / 4 && silent, "some are seen when they are looked at");
	free(blob);
	sym_debug_free(debug);
	sym_lines_free(lines);
}

static void test_files_without_debug_information(void)
{
	struct sym_lines *lines = NULL;
	struct sym_debug *debug;
	int fd = open("/bin/sh", O_RDONLY | O_CLOEXEC), dir = open("/", O_RDONLY | O_CLOEXEC);

	CHECK(sym_lines_new(&lines) == 0, "no memory");
	CHECK(!sym_has_debug(fd, 0) && sym_debug_open(fd, 0, NULL, lines, &debug) == -ENOENT,
	      "a stripped one");
	CHECK(sym_debug_open(dir, 0, NULL, lines, &debug) == -ENOTSUP, "a folder");
	CHECK(sym_debug_open(-1, 0, NULL, lines, &debug) == -EBADF, "none");
	CHECK(sym_debug_open_image("\177ELF", 4, NULL, lines, &debug) == -EBADMSG, "four bytes");
	close(fd);
	close(dir);
	sym_lines_free(lines);
}

/* The check value of CRC-32 ("123456789"), as listed in catalogues of CRCs. */
static void test_crc_is_that_of_debug_links(void)
{
	char name[] = "/tmp/test_sym_lines.XXXXXX";
	uint32_t crc = 0;
	int fd = mkstemp(name);

	CHECK(fd >= 0 && write(fd, "123456789", 9) == 9, name);
	(void)unlink(name);
	CHECK(!sym_crc32(fd, &crc) && crc == 0xcbf43926, "the check value");
	close(fd);
}

/* What was not read because that much was read of the file before is not known: a later run may find it. */
static void test_what_takes_too_long_is_not_known(void)
{
	struct sym_lines *lines = NULL;
	uint64_t start = outer_vaddr();
	struct sym_debug *debug;
	struct sym_place p[4];
	size_t n;

	CHECK(sym_lines_new(&lines) == 0, "no memory");
	debug = open_self(lines);
	debug->budget.spent = debug->budget.limit + 1;
	CHECK(sym_debug_add(debug, start) == -E2BIG, "no more");
	CHECK(sym_lines_find(lines, start, p, 4, &n) == -ENOENT && !sym_lines_grown(lines),
	      "nothing is known of it");
	CHECK(sym_debug_prepare(debug, &start, 1, NULL) == -E2BIG, "nor of many at once");
	debug->budget.spent = 0;
	CHECK(!sym_debug_add(debug, start) && !sym_lines_find(lines, start, p, 4, &n) && n,
	      "it was there all the time");
	sym_debug_free(debug);
	sym_lines_free(lines);
}

int main(void)
{
	test_what_takes_too_long_is_not_known();
	test_inlined_calls_come_innermost_first();
	test_many_at_once_are_told_as_one_by_one();
	test_a_changed_byte_is_seen();
	test_lies_lead_nowhere();
	test_files_without_debug_information();
	test_crc_is_that_of_debug_links();
	return check_done();
}
