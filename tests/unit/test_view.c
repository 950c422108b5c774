/*
 * tests/unit/test_view.c: tests that a file that is read through a mapping gives the same results
 * as one that is read, and that it reports when it was cut short: no rule and no name is made from
 * missing bytes.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/source/mapped.h"
#include "symbolizer/symbolizer.h"
#include "tests/check.h"
#include "unwinder/rule/object.h"

#define LOOKUPS 3000

/* The file has a large .dynstr, so that names are left in the file. */
static const char library[] = "/usr/lib/x86_64-linux-gnu/libstdc++.so.6";

static int copy_of(const char *path, off_t *size)
{
	int from = open(path, O_RDONLY | O_CLOEXEC), to = memfd_create("view", MFD_CLOEXEC);
	struct stat st;

	if (from < 0 || to < 0 || fstat(from, &st))
		return -1;
	for (*size = 0; *size < st.st_size;)
		if (sendfile(to, from, size, (size_t)(st.st_size - *size)) <= 0)
			return -1;
	(void)close(from);
	return to;
}

static unsigned int n_released;

static bool is_cut(void *ctx)
{
	return ((const struct mapped *)ctx)->cut;
}

static void release(void *ctx)
{
	mapped_close(ctx);
	n_released++;
}

static struct uw_view view_of(struct mapped *mapped)
{
	return (struct uw_view){ .bytes = mapped->bytes,
				 .size = mapped->size,
				 .cut = is_cut,
				 .release = release,
				 .ctx = mapped };
}

static bool says_yes(void *ctx)
{
	return *(const bool *)ctx;
}

static void test_copies_what_is_there(void)
{
	static const uint8_t bytes[4] = { 1, 2, 3, 4 };
	bool cut = false;
	struct uw_view view = {
		.bytes = bytes, .size = sizeof(bytes), .cut = says_yes, .ctx = &cut
	};
	uint8_t out[4] = { 0 };

	CHECK(uw_view_copy(&view, 1, out, 3) && out[0] == 2 && out[2] == 4, "some");
	CHECK(uw_view_copy(&view, 4, out, 0), "none");
	CHECK(!uw_view_copy(&view, 5, out, 0) && !uw_view_copy(&view, 1, out, 4) &&
		      !uw_view_copy(&view, UINT64_MAX, out, 2),
	      "not what is outside");
	view.size = UINT64_MAX;
	CHECK(!uw_view_copy(&view, 0, out, (64 << 10) + 1), "no more than is worth it");
	cut = true;
	CHECK(!uw_view_copy(&view, 0, out, 1), "nothing once some was cut off");
	CHECK(!uw_view_copy(&(struct uw_view){ .bytes = NULL }, 0, out, 0), "no view");
}

static void test_failures_release_it(void)
{
	struct mapped mapped;
	struct uw_object *object = NULL;
	struct uw_view view;
	int pipes[2], fd = memfd_create("no program", MFD_CLOEXEC);

	CHECK(write(fd, "no program", 10) == 10 && !pipe2(pipes, O_CLOEXEC), "made");
	mapped_open(&mapped, fd, 10);
	view = view_of(&mapped);
	CHECK(uw_object_open_viewed(fd, 0, &view, &object) && n_released == 1, "no ELF file");
	mapped_open(&mapped, fd, 10);
	view = view_of(&mapped);
	CHECK(uw_object_open_viewed(pipes[0], 0, &view, &object) == -ENOTSUP && n_released == 2 &&
		      !object,
	      "no file");
	(void)close(pipes[0]);
	(void)close(pipes[1]);
	(void)close(fd);
	n_released = 0;
}

struct code {
	uint64_t start, step;
};

static struct code code_of(const struct uw_object *object)
{
	struct code code = { 0 };
	size_t n;
	const struct uw_segment *s = uw_object_segments(object, &n);

	for (size_t i = 0; i < n; i++)
		if (s[i].flags & 1)
			code = (struct code){ s[i].vaddr, s[i].file_size / LOOKUPS };
	return code;
}

static bool same_rule(const struct uw_rule *a, const struct uw_rule *b)
{
	return a->start == b->start && a->end == b->end && a->cfa_reg == b->cfa_reg &&
	       a->cfa_size == b->cfa_size && (a->cfa_size || a->cfa_off == b->cfa_off) &&
	       a->n_regs == b->n_regs;
}

/* Return how many rules differ from those of the file as it was; *n is their total. */
static unsigned int other_rules(struct uw_object *seen, struct uw_object *read, unsigned int *n)
{
	struct code code = code_of(read);
	unsigned int others = 0;

	*n = 0;
	for (uint64_t i = 0; i < LOOKUPS; i++) {
		uint64_t at = code.start + i * code.step;
		struct uw_rule a, b;
		int err = uw_object_rule(seen, at, true, &a),
		    want = uw_object_rule(read, at, true, &b);

		*n += !err;
		others += !err && (want || !same_rule(&a, &b));
	}
	return others;
}

static void test_rules_are_the_files(void)
{
	struct uw_object *seen = NULL, *read = NULL;
	struct mapped mapped;
	struct uw_view view;
	unsigned int n;
	off_t size;
	int fd = copy_of(library, &size), whole = copy_of(library, &size);

	mapped_open(&mapped, fd, (uint64_t)size);
	view = view_of(&mapped);
	CHECK(mapped.bytes && !uw_object_open_viewed(fd, 0, &view, &seen) &&
		      !uw_object_open(whole, 0, &read),
	      "opened");
	if (!seen || !read)
		return;
	CHECK(uw_object_view(seen)->bytes == mapped.bytes && !uw_object_view(read)->bytes, "views");
	CHECK(other_rules(seen, read, &n) == 0 && n > LOOKUPS / 2, "the same rules");
	(void)uw_object_get(seen);
	uw_object_put(seen);
	CHECK(n_released == 0, "still seen");
	/* .eh_frame and its table come after the code. */
	CHECK(!ftruncate(fd, size / 4), "cut");
	(void)other_rules(seen, read, &n);
	CHECK(mapped.cut, "which is told");
	CHECK(other_rules(seen, read, &n) == 0, "no rule of what is gone");
	uw_object_put(seen);
	CHECK(n_released == 1, "let go once");
	uw_object_put(read);
	(void)close(fd);
	(void)close(whole);
}

static void test_names_are_the_files(void)
{
	struct sym_table *seen = NULL, *read = NULL;
	struct uw_object *object = NULL;
	unsigned int others = 0, n = 0, lost = 0;
	struct mapped mapped;
	struct uw_view view;
	struct code code;
	off_t size;
	int fd = copy_of(library, &size);

	mapped_open(&mapped, fd, (uint64_t)size);
	view = view_of(&mapped);
	CHECK(!sym_table_open_partial(fd, &view, 0, -1, NULL, 0, &seen) &&
		      !sym_table_open(fd, 0, &read) && !uw_object_open(fd, 0, &object),
	      "opened");
	if (!seen || !read || !object)
		return;
	code = code_of(object);
	for (uint64_t i = 0; i < LOOKUPS; i++) {
		uint64_t at = code.start + i * code.step;
		struct sym_symbol a, b;
		int err, want = sym_table_find(read, at, &b);

		if (i == LOOKUPS / 2)
			CHECK(!ftruncate(fd, 4096), "cut");
		err = sym_table_find(seen, at, &a);
		n += !err && i < LOOKUPS / 2;
		lost += err == -EBADMSG;
		others += !err && (want || a.addr != b.addr || strcmp(a.name, b.name) != 0);
		others += i < LOOKUPS / 2 && err != want;
	}
	CHECK(others == 0 && n > 100, "the same names");
	CHECK(lost > 0 && mapped.cut, "none of what is gone");
	sym_table_free(seen);
	sym_table_free(read);
	uw_object_put(object);
	mapped_close(&mapped);
	(void)close(fd);
}

int main(void)
{
	test_copies_what_is_there();
	test_failures_release_it();
	test_rules_are_the_files();
	test_names_are_the_files();
	return check_done();
}
