/* tests/unit/test_sym_keep.c: tests packed symbol tables: packing, unpacking, damage. */
#include "symbolizer/symbolizer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/check.h"

static struct sym_table *open_self(void)
{
	struct sym_table *table = NULL;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	CHECK(fd >= 0 && sym_table_open(fd, 0, &table) == 0, "this program's symbols");
	close(fd);
	return table;
}

static void test_what_is_unpacked_is_what_was_packed(void)
{
	struct sym_table *a = open_self(), *b;
	struct sym_symbol x, y;
	size_t size;
	void *blob;

	CHECK(sym_table_pack(a, 77, &blob, &size) == 0, "packed");
	CHECK(sym_table_unpack(blob, size, 77, &b) == 0, "and back");
	CHECK(sym_table_size(a) > 20 && sym_table_size(a) == sym_table_size(b), "as many");
	for (size_t i = 0; i < sym_table_size(a); i++) {
		CHECK(!sym_table_at(a, i, &x) && !sym_table_at(b, i, &y) && x.addr == y.addr &&
			      x.size == y.size && !strcmp(x.name, y.name),
		      "each of them");
		CHECK(sym_table_find(a, x.addr, &x) == sym_table_find(b, x.addr, &y) &&
			      !strcmp(x.name, y.name),
		      "found as before");
	}
	CHECK(sym_table_pack(b, 77, &blob, &size) == 0, "once more");
	sym_table_free(b);
	CHECK(sym_table_unpack(blob, size, 78, &b) == -ENOENT, "of another file");
	sym_table_free(a);
}

/* Each bit of the head, and some 1,500 of the rest: with sanitizers, this program has many symbols. */
static void test_damage_is_found_everywhere(void)
{
	struct sym_table *table = open_self(), *out;
	size_t size;
	void *blob, *copy;

	CHECK(sym_table_pack(table, 1, &blob, &size) == 0, "packed");
	for (size_t bit = 0; bit < size * 8; bit += bit < 512 ? 1 : size * 8 / 1500 + 1) {
		copy = malloc(size);
		memcpy(copy, blob, size);
		((uint8_t *)copy)[bit / 8] ^= (uint8_t)(1u << bit % 8);
		CHECK(sym_table_unpack(copy, size, 1, &out) < 0, "a bit flipped");
	}
	for (size_t cut = 0; cut < size; cut += cut < 128 ? 1 : size / 500 + 1) {
		copy = malloc(cut ? cut : 1);
		memcpy(copy, blob, cut);
		CHECK(sym_table_unpack(copy, cut, 1, &out) == -EBADMSG, "cut short");
	}
	free(blob);
	sym_table_free(table);
}

int main(void)
{
	test_what_is_unpacked_is_what_was_packed();
	test_damage_is_found_everywhere();
	return check_done();
}
