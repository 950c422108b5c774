/*
 * tests/unit/test_lazy_names.c: tests symbol tables whose names stay in the file against tables
 * that have read them, symbol by symbol, on files that exist: one string table, two, hundreds of
 * aliases, PLTs. It also tests tables for some addresses only against whole tables. Then it tests a
 * file that is cut short while its table is in use, and files with random changes, where only the
 * bounds matter.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "symbolizer/elf/open.h"
#include "symbolizer/elf/symbol_table.h"
#include "symbolizer/symbolizer.h"
#include "tests/check.h"

#define FLIPS 120

static uint64_t random_below(uint64_t n)
{
	static uint64_t state = 1;

	state = state * 6364136223846793005 + 1442695040888963407;
	return (state >> 33) % n;
}

static bool same_symbol(const struct sym_table *a, const struct sym_table *b, size_t i)
{
	struct sym_symbol x, y;
	int err = sym_table_at(a, i, &x);

	if (err != sym_table_at(b, i, &y))
		return false;
	return err || (x.addr == y.addr && x.size == y.size && strcmp(x.name, y.name) == 0);
}

static void test_is_the_whole_table(const char *path)
{
	struct sym_table *brief, *whole;
	struct sym_symbol first, again;
	size_t n, wrong = 0, size;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	void *blob;

	if (fd < 0)
		return;
	if (sym_table_open_partial(fd, NULL, 0, -1, NULL, 0, &brief) ||
	    sym_table_open(fd, 0, &whole)) {
		CHECK(false, path);
		return;
	}
	(void)close(fd);
	n = sym_table_size(whole);
	CHECK(n > 1000 && sym_table_size(brief) == n, path);
	CHECK(sym_table_damage(brief) == sym_table_damage(whole), path);
	CHECK(brief->lazy_names && !whole->lazy_names, path);
	CHECK(sym_table_pack(brief, 1, &blob, &size) == -ENOTSUP, path);
	for (size_t i = 0; i < n && sym_table_size(brief) == n; i++)
		wrong += !same_symbol(brief, whole, i);
	CHECK(wrong == 0, path);
	/* Names belong to the table: each way to look them up gives the same pointer. */
	CHECK(!sym_table_at(brief, n / 2, &first) && !sym_table_find(brief, first.addr, &again) &&
		      again.addr == first.addr,
	      path);
	if (again.size == first.size)
		CHECK(again.name == first.name, path);
	CHECK(sym_table_at(brief, n, &first) == -ENOENT, path);
	sym_table_free(brief);
	sym_table_free(whole);
}

static bool finds_the_same(const struct sym_table *a, const struct sym_table *b, uint64_t vaddr)
{
	struct sym_symbol x, y;
	int err = sym_table_find(a, vaddr, &x);

	if (err != sym_table_find(b, vaddr, &y))
		return false;
	return err || (x.addr == y.addr && x.size == y.size && strcmp(x.name, y.name) == 0);
}

/* Addresses in functions and after them, all over the file or in a part of it. */
static void test_some_addresses(const char *path, size_t n)
{
	uint64_t *vaddrs = calloc(n, sizeof(*vaddrs));
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct sym_table *brief, *whole;
	size_t wrong = 0, size, others = 0;
	struct sym_symbol symbol;

	if (fd < 0 || !vaddrs || sym_table_open(fd, 0, &whole)) {
		free(vaddrs);
		return;
	}
	size = sym_table_size(whole);
	for (size_t i = 0; i < n; i++) {
		CHECK(!sym_table_at(whole, size / 4 + random_below(size / (1 + i % 2) / 2),
				    &symbol),
		      path);
		vaddrs[i] = symbol.addr + random_below(symbol.size ? symbol.size + 8 : 64);
	}
	if (sym_table_open_partial(fd, NULL, 0, -1, vaddrs, n, &brief)) {
		CHECK(false, path);
		return;
	}
	for (size_t i = 0; i < n; i++)
		wrong += !finds_the_same(brief, whole, vaddrs[i]);
	CHECK(wrong == 0, path);
	CHECK(sym_table_size(brief) < size, path);
	/* Other addresses: the same or -EAGAIN, never anything else. */
	for (size_t i = 0; i < size; i += 7) {
		CHECK(!sym_table_at(whole, i, &symbol), path);
		if (sym_table_find(brief, symbol.addr, &(struct sym_symbol){ 0 }) == -EAGAIN)
			others++;
		else
			wrong += !finds_the_same(brief, whole, symbol.addr);
	}
	CHECK(wrong == 0 && others > 0, path);
	CHECK(sym_table_find(brief, UINT64_MAX, &symbol) == -EAGAIN, path);
	sym_table_free(brief);
	sym_table_free(whole);
	(void)close(fd);
	free(vaddrs);
}

/* A writable copy; -1: there is no such file. */
static int copy_of(const char *path)
{
	int from = open(path, O_RDONLY | O_CLOEXEC), to = memfd_create("copy", MFD_CLOEXEC);
	struct stat st;
	char *bytes;

	if (from < 0 || fstat(from, &st))
		return -1;
	bytes = malloc((size_t)st.st_size);
	if (!bytes || uw_read_at(from, 0, bytes, (uint64_t)st.st_size) ||
	    write(to, bytes, (size_t)st.st_size) != st.st_size)
		abort();
	free(bytes);
	(void)close(from);
	return to;
}

static void test_a_name_that_is_gone_is_an_error(const char *path)
{
	int fd = copy_of(path);
	struct sym_table *table;
	struct sym_symbol symbol;

	if (fd < 0)
		return;
	CHECK(!sym_table_open_partial(fd, NULL, 0, -1, NULL, 0, &table) && table->lazy_names, path);
	CHECK(!sym_table_at(table, 5, &symbol), "while it is there");
	CHECK(!ftruncate(fd, 4096), "the file is cut short");
	CHECK(sym_table_at(table, 6, &symbol) == -EBADMSG, "gone");
	CHECK(!sym_table_at(table, 5, &symbol) && *symbol.name, "what was read is kept");
	sym_table_free(table);
	(void)close(fd);
}

static void ask_all(const struct sym_table *table)
{
	struct sym_symbol symbol;

	for (size_t i = 0; i < sym_table_size(table); i += 1 + random_below(40))
		if (!sym_table_at(table, i, &symbol))
			CHECK(*symbol.name && strlen(symbol.name) <= SYM_NAME_BYTES_MAX, "a name");
}

static void test_damage_is_survived(const char *path)
{
	static const char *const names[] = { ".dynsym", ".dynstr", ".rela.plt", ".shstrtab" };
	int fd = copy_of(path);
	struct uw_elf image;

	if (fd < 0 || sym_elf_open_fd(&image, fd, 0))
		return;
	for (unsigned int i = 0; i < FLIPS; i++) {
		const Elf64_Shdr *s = uw_elf_section(&image, names[i % 4]);
		struct {
			off_t at;
			uint8_t was[64];
		} changed[8];
		uint64_t vaddr = s ? s->sh_addr + (uint64_t)i * 4096 : 0;
		struct sym_table *table;

		for (unsigned int k = 0; s && k < 8; k++) {
			uint8_t noise[64];
			uint64_t room = s->sh_size > 64 ? s->sh_size - 64 : 1;

			memset(noise, (int)random_below(256), sizeof(noise));
			changed[k].at = (off_t)(s->sh_offset + random_below(room));
			if (pread(fd, changed[k].was, 64, changed[k].at) != 64 ||
			    pwrite(fd, noise, 1 + random_below(64), changed[k].at) < 1)
				abort();
		}
		if (!sym_table_open_partial(fd, NULL, 0, -1, &vaddr, i % 3 == 0, &table)) {
			ask_all(table);
			sym_table_free(table);
		}
		for (unsigned int k = 8; s && k-- > 0;)
			if (pwrite(fd, changed[k].was, 64, changed[k].at) != 64)
				abort();
	}
	uw_elf_fini(&image);
	(void)close(fd);
}

/* Return the file that has node's symbols: the program itself or, in Debian, its library. */
static const char *node(void)
{
	struct stat st;

	return !stat("/usr/bin/node", &st) && st.st_size > 1 << 20
		       ? "/usr/bin/node"
		       : "/usr/lib/x86_64-linux-gnu/libnode.so.108";
}

int main(void)
{
	/* Files of clang, which the build needs; with both .symtab and .dynsym; of gcc. */
	test_is_the_whole_table("/usr/lib/x86_64-linux-gnu/libclang-cpp.so.14");
	test_is_the_whole_table(node());
	test_is_the_whole_table("/usr/lib/x86_64-linux-gnu/libstdc++.so.6");
	for (size_t n = 1; n <= 1000; n *= 10) {
		test_some_addresses("/usr/lib/x86_64-linux-gnu/libclang-cpp.so.14", n);
		test_some_addresses(node(), n);
		test_some_addresses("/usr/lib/x86_64-linux-gnu/libstdc++.so.6", n);
	}
	test_a_name_that_is_gone_is_an_error("/usr/lib/x86_64-linux-gnu/libstdc++.so.6");
	test_damage_is_survived("/usr/lib/x86_64-linux-gnu/libstdc++.so.6");
	return check_done();
}
