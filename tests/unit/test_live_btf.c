/* tests/unit/test_live_btf.c: tests which kernel types are extracted from BTF, and damaged BTF. */
#include "agent/live/bpf/btf.h"

#include "tests/check.h"

#include <bpf/btf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The types of a program: only names count. */
static struct btf *make_wanted(const char *const *names, size_t n)
{
	struct btf *btf = btf__new_empty();

	for (size_t i = 0; btf && i < n; i++)
		CHECK(btf__add_struct(btf, names[i], 4) > 0, names[i]);
	return btf;
}

/*
 * The kernel of the cases:
 *   enum colour { RED = 3 };
 *   struct inner { const colour_t c; struct { int deep; }; };
 *   struct outer { struct outer *next; struct inner in[5]; int bits : 3; };
 *   struct stranger { int x; };
 */
static struct btf *make_kernel(void)
{
	struct btf *btf = btf__new_empty();
	int number, colour, typed, constant, nameless, inner, array, pointer, outer, stranger;

	if (!btf)
		return NULL;
	stranger = btf__add_struct(btf, "stranger", 4);
	(void)btf__add_field(btf, "x", stranger + 1, 0, 0);
	number = btf__add_int(btf, "int", 4, BTF_INT_SIGNED);
	colour = btf__add_enum(btf, "colour", 4);
	(void)btf__add_enum_value(btf, "RED", 3);
	typed = btf__add_typedef(btf, "colour_t", colour);
	constant = btf__add_const(btf, typed);
	nameless = btf__add_struct(btf, NULL, 4);
	(void)btf__add_field(btf, "deep", number, 0, 0);
	inner = btf__add_struct(btf, "inner", 8);
	(void)btf__add_field(btf, "c", constant, 0, 0);
	(void)btf__add_field(btf, NULL, nameless, 32, 0);
	array = btf__add_array(btf, number, inner, 5);
	pointer = btf__add_ptr(btf, array + 2);
	outer = btf__add_struct(btf, "outer", 56);
	(void)btf__add_field(btf, "next", pointer, 0, 0);
	(void)btf__add_field(btf, "in", array, 64, 0);
	(void)btf__add_field(btf, "bits", number, 384, 3);
	CHECK(outer == array + 2 && number == stranger + 1, "numbers as foreseen");
	return btf;
}

static struct btf *reduce(const char *const *names, size_t n, const struct btf *kernel)
{
	struct btf *wanted = make_wanted(names, n), *reduced = NULL;
	uint32_t size = 0;
	const void *all = btf__raw_data(kernel, &size);
	uint8_t *out = NULL;
	size_t out_size = 0;

	CHECK(!live_btf_reduce(wanted, all, size, &out, &out_size), "it is reduced");
	if (out)
		reduced = btf__new(out, (uint32_t)out_size);
	CHECK(reduced != NULL, "libbpf takes it");
	free(out);
	btf__free(wanted);
	return reduced;
}

static const char *name_of(const struct btf *btf, const struct btf_type *type)
{
	return btf__name_by_offset(btf, type->name_off);
}

/* Return whether two types in two places have the same layout, apart from pointers. */
static bool same(const struct btf *a, int i, const struct btf *b, int j, int depth)
{
	const struct btf_type *x = btf__type_by_id(a, (uint32_t)i);
	const struct btf_type *y = btf__type_by_id(b, (uint32_t)j);

	if (!x || !y || depth > 64 || strcmp(name_of(a, x), name_of(b, y)) != 0 ||
	    x->info != y->info)
		return false;
	if (btf_is_ptr(x))
		return !y->type;
	if (btf_is_mod(x) || btf_is_typedef(x))
		return same(a, (int)x->type, b, (int)y->type, depth + 1);
	if (btf_is_array(x))
		return btf_array(x)->nelems == btf_array(y)->nelems &&
		       same(a, (int)btf_array(x)->type, b, (int)btf_array(y)->type, depth + 1);
	if (x->size != y->size)
		return false;
	for (int m = 0; btf_is_enum(x) && m < btf_vlen(x); m++)
		if (btf_enum(x)[m].val != btf_enum(y)[m].val ||
		    strcmp(btf__name_by_offset(a, btf_enum(x)[m].name_off),
			   btf__name_by_offset(b, btf_enum(y)[m].name_off)) != 0)
			return false;
	for (int m = 0; btf_is_composite(x) && m < btf_vlen(x); m++) {
		const struct btf_member *p = &btf_members(x)[m], *q = &btf_members(y)[m];

		if (p->offset != q->offset ||
		    strcmp(btf__name_by_offset(a, p->name_off),
			   btf__name_by_offset(b, q->name_off)) != 0 ||
		    !same(a, (int)p->type, b, (int)q->type, depth + 1))
			return false;
	}
	return true;
}

static bool same_by_name(const struct btf *all, const struct btf *reduced, const char *name)
{
	int i = btf__find_by_name_kind(all, name, BTF_KIND_STRUCT);
	int j = btf__find_by_name_kind(reduced, name, BTF_KIND_STRUCT);

	return i > 0 && j > 0 && same(all, i, reduced, j, 0);
}

static void test_what_lies_within_comes_along_and_nothing_else(void)
{
	static const char *const names[] = { "outer___of_old", "nowhere" };
	struct btf *kernel = make_kernel(), *reduced = reduce(names, 2, kernel);

	CHECK(same_by_name(kernel, reduced, "outer"), "as it was, told without its flavour");
	CHECK(same_by_name(kernel, reduced, "inner"), "what it holds, too");
	CHECK(btf__find_by_name(reduced, "stranger") < 0, "nobody asked for this");
	btf__free(reduced);
	btf__free(kernel);
}

static void test_flavours_of_the_kernel_count_as_well(void)
{
	static const char *const names[] = { "inner" };
	struct btf *kernel = make_kernel(), *reduced;

	CHECK(btf__add_struct(kernel, "inner___2", 0) > 0, "one more");
	CHECK(btf__add_struct(kernel, "inner_circle", 0) > 0, "and one of another name");
	reduced = reduce(names, 1, kernel);
	CHECK(btf__find_by_name(reduced, "inner___2") > 0, "the first");
	CHECK(btf__find_by_name(reduced, "inner_circle") < 0, "not the second");
	CHECK(btf__find_by_name(reduced, "outer") < 0, "which holds it");
	btf__free(reduced);
	btf__free(kernel);
}

/* Each case has memory of its own, so that a sanitizer sees reads beyond it. */
static int reduce_bytes(const struct btf *wanted, const uint8_t *bytes, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1), *out = NULL;
	size_t out_size;
	int err;

	if (!copy)
		abort();
	memcpy(copy, bytes, size);
	err = live_btf_reduce(wanted, copy, size, &out, &out_size);
	free(out);
	free(copy);
	return err;
}

static void test_damage_is_told(void)
{
	static const char *const names[] = { "outer", "stranger" };
	struct btf *wanted = make_wanted(names, 2), *kernel = make_kernel();
	uint8_t bytes[4096];
	uint32_t size = 0;
	const void *all = btf__raw_data(kernel, &size);

	CHECK(size < sizeof(bytes), "it is small");
	for (size_t cut = 0; cut < size; cut++)
		CHECK(reduce_bytes(wanted, all, cut) == -EBADMSG, "cut off");
	for (size_t at = 0; at < size; at++)
		for (unsigned int bit = 0; bit < 8; bit++) {
			memcpy(bytes, all, size);
			bytes[at] ^= (uint8_t)(1u << bit);
			(void)reduce_bytes(wanted, bytes, size); /* any result, but it returns */
		}
	btf__free(wanted);
	btf__free(kernel);
}

static void test_the_kernel_that_runs_here(void)
{
	static const char *const names[] = { "task_struct", "mm_struct", "cgroup", "pt_regs" };
	struct btf *wanted = make_wanted(names, 4), *all = btf__load_vmlinux_btf(), *reduced;
	int fd = memfd_create("btf", MFD_CLOEXEC);
	char path[64];
	struct stat st;

	if (!all) { /* a kernel without */
		CHECK(live_btf_write(wanted, fd) == -ENOENT, "it has none");
		goto out;
	}
	CHECK(!live_btf_write(wanted, fd) && !fstat(fd, &st), "it is written");
	CHECK(st.st_size < 512 << 10, "and small");
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	reduced = btf__parse(path, NULL);
	CHECK(reduced != NULL, "libbpf takes it");
	for (size_t i = 0; reduced && i < 4; i++)
		CHECK(same_by_name(all, reduced, names[i]), names[i]);
	btf__free(reduced);
	btf__free(all);
out:
	btf__free(wanted);
	(void)close(fd);
}

int main(void)
{
	test_what_lies_within_comes_along_and_nothing_else();
	test_flavours_of_the_kernel_count_as_well();
	test_damage_is_told();
	test_the_kernel_that_runs_here();
	return check_done();
}
