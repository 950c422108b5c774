/* tests/unit/test_sym_kernel.c: tests the reader of kallsyms. */
#include "symbolizer/symbolizer.h"

#include "tests/check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int file_of(const char *bytes, size_t n)
{
	int fd = memfd_create("kallsyms", MFD_CLOEXEC);

	if (fd < 0 || write(fd, bytes, n) != (ssize_t)n || lseek(fd, 0, SEEK_SET) != 0) {
		perror("memfd");
		exit(1);
	}
	return fd;
}

static int open_text(const char *text, struct sym_kernel **out)
{
	int fd = file_of(text, strlen(text));
	int err = sym_kernel_open(fd, out);

	(void)close(fd);
	return err;
}

static const char kallsyms[] = "0000000000000000 A fixed_percpu_data\n"
			       "ffffffff81000000 T _text\n"
			       "ffffffff81000000 T _stext\n"
			       "ffffffff81000000 T startup_64\n"
			       "ffffffff81000040 t __local_one\n"
			       "ffffffff81000040 W weak_one\n"
			       "ffffffff81000040 T __ia32_sys_read\n"
			       "ffffffff81000040 T __x64_sys_read\n"
			       "ffffffff81000100 T last_code\n"
			       "ffffffff81000180 D some_data\n"
			       "ffffffff81000200 b some_bss\n"
			       "ffffffffc0101000 t ext4_open\t[ext4]\n"
			       "ffffffffc0101080 t ext4_end\t[ext4]\n"
			       "ffffffffc0001000 t first_module\t[loop]\n"
			       "ffffffffc0001000 t _text\t[loop]\n"
			       "ffffffffc0200000 t bpf_prog_6deef7357e7b4530\t[bpf]\n";

static const struct {
	uint64_t addr;
	const char *name, *module;
	uint64_t start;
} finds[] = {
	{ 0xffffffff80ffffff, NULL, NULL, 0 },
	{ 0xffffffff81000000, "startup_64", "", 0xffffffff81000000 },
	{ 0xffffffff8100003f, "startup_64", "", 0xffffffff81000000 },
	{ 0xffffffff81000040, "__x64_sys_read", "", 0xffffffff81000040 },
	{ 0xffffffff8100017f, "last_code", "", 0xffffffff81000100 },
	{ 0xffffffff81000180, NULL, NULL, 0 }, /* data begins */
	{ 0xffffffffc0001000, "first_module", "[loop]", 0xffffffffc0001000 },
	{ 0xffffffffc0001fff, "first_module", "[loop]", 0xffffffffc0001000 },
	{ 0xffffffffc0002000, NULL, NULL, 0 }, /* between modules */
	{ 0xffffffffc0101081, "ext4_end", "[ext4]", 0xffffffffc0101080 },
	{ 0xffffffffc0200004, "bpf_prog_6deef7357e7b4530", "[bpf]", 0xffffffffc0200000 },
	{ UINT64_MAX, NULL, NULL, 0 },
};

static void test_addresses_find_the_symbol_they_lie_in(void)
{
	struct sym_kernel *k = NULL;
	uint64_t addr = 1;

	CHECK(open_text(kallsyms, &k) == 0, "opens");
	for (size_t i = 0; k && i < sizeof(finds) / sizeof(finds[0]); i++) {
		struct sym_symbol s = { 0 };
		const char *module = NULL;
		char what[32];
		int err = sym_kernel_find(k, finds[i].addr, &s, &module);

		(void)snprintf(what, sizeof(what), "%llx", (unsigned long long)finds[i].addr);
		if (!finds[i].name) {
			CHECK(err == -ENOENT && !module, what);
			continue;
		}
		CHECK(err == 0 && strcmp(s.name, finds[i].name) == 0, what);
		CHECK(err == 0 && strcmp(module, finds[i].module) == 0, what);
		CHECK(err == 0 && s.addr == finds[i].start, what);
		if (err == 0)
			CHECK(finds[i].addr - s.addr < s.size, what);
	}
	CHECK(k && sym_kernel_lookup(k, "_stext", &addr) == 0 && addr == 0xffffffff81000000,
	      "an alias is found by its name");
	CHECK(k && sym_kernel_lookup(k, "_text", &addr) == 0 && addr == 0xffffffff81000000,
	      "the kernel's own before a module's");
	CHECK(k && sym_kernel_lookup(k, "ext4_open", &addr) == 0 && addr == 0xffffffffc0101000,
	      "a module's");
	CHECK(k && sym_kernel_lookup(k, "some_data", &addr) == -ENOENT &&
		      addr == 0xffffffffc0101000,
	      "data is not there");
	sym_kernel_free(k);
}

static const struct {
	const char *what, *text;
	int err;
} bad[] = {
	{ "nothing", "", -EBADMSG },
	{ "hidden addresses", "0000000000000000 T _text\n0000000000000000 t a\t[b]\n", -EPERM },
	{ "no address", "T _text\n", -EBADMSG },
	{ "17 digits", "0ffffffff81000000 T _text\n", -EBADMSG },
	{ "no type", "ffffffff81000000\n", -EBADMSG },
	{ "no name", "ffffffff81000000 T \n", -EBADMSG },
	{ "no name, module", "ffffffff81000000 T \t[ext4]\n", -EBADMSG },
	{ "module without brackets", "ffffffff81000000 T a\text4\n", -EBADMSG },
	{ "an empty line", "ffffffff81000000 T a\n\n", -EBADMSG },
	{ "one torn line", "ffffffff81000000 T _te", -EBADMSG },
};

static void test_what_is_not_kallsyms_is_refused(void)
{
	char *line = malloc(300000);
	int fd;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct sym_kernel *k = NULL;

		CHECK(open_text(bad[i].text, &k) == bad[i].err && !k, bad[i].what);
		sym_kernel_free(k);
	}
	for (size_t n = 5000; n <= 300000; n += 295000) {
		struct sym_kernel *k = NULL;

		memset(line, 'f', n);
		fd = file_of(line, n);
		CHECK(sym_kernel_open(fd, &k) == -EBADMSG && !k, "a line without end");
		(void)close(fd);
	}
	free(line);
}

static void test_a_torn_last_line_is_left_out(void)
{
	struct sym_kernel *k = NULL;
	struct sym_symbol s;
	const char *module;

	CHECK(open_text("ffffffff81000000 T whole\nffffffff81000100 T tor", &k) == 0, "opens");
	CHECK(k && sym_kernel_find(k, 0xffffffff81000100, &s, &module) == 0 &&
		      strcmp(s.name, "whole") == 0,
	      "its neighbour reaches there");
	sym_kernel_free(k);
}

static void test_names_are_clean(void)
{
	struct sym_kernel *k = NULL;
	struct sym_symbol s;
	const char *module = "";

	CHECK(open_text("ffffffff81000000 T a\x1b[2J\t[m\xff]\n", &k) == 0, "opens");
	CHECK(k && sym_kernel_find(k, 0xffffffff81000000, &s, &module) == 0 &&
		      strcmp(s.name, "a\xef\xbf\xbd[2J") == 0 &&
		      strcmp(module, "[m\xef\xbf\xbd]") == 0,
	      "U+FFFD for what is not text");
	sym_kernel_free(k);
}

/* Lines that cross the reader's chunks. */
static void test_many_lines(void)
{
	enum { N = 60000 };
	FILE *file = tmpfile();
	struct sym_kernel *k = NULL;
	int wrong = 0;

	for (int i = N - 1; file && i >= 0; i--) /* backwards: not sorted */
		(void)fprintf(file, "%016llx t function_number_%d\n",
			      0xffffffff81000000ULL + (unsigned long long)i * 16, i);
	CHECK(file && fflush(file) == 0 && lseek(fileno(file), 0, SEEK_SET) == 0 &&
		      sym_kernel_open(fileno(file), &k) == 0,
	      "opens");
	for (int i = 0; k && i < N; i++) {
		struct sym_symbol s;
		const char *module;
		char want[32];

		(void)snprintf(want, sizeof(want), "function_number_%d", i);
		wrong += sym_kernel_find(k, 0xffffffff81000000ULL + (uint64_t)i * 16 + 15, &s,
					 &module) != 0 ||
			 strcmp(s.name, want) != 0;
	}
	CHECK(wrong == 0, "every one is found");
	sym_kernel_free(k);
	if (file)
		(void)fclose(file);
}

/* The head of a file is read as needed; symbols in changed parts are not found, all others are. */
static void test_a_file_is_read_as_it_is_needed(void)
{
	enum { N = 20000, TORN = 9000, SHORT = 15000 };
	static const unsigned long long base = 0xffffffff81000000ULL;
	FILE *file = tmpfile();
	struct sym_kernel *k = NULL;
	int wrong = 0, near = 0;
	long torn = 0, cut = 0;
	uint64_t addr = 0;

	for (int i = 0; file && i < N; i++) {
		torn = i == TORN ? ftell(file) : torn;
		cut = i == SHORT ? ftell(file) : cut;
		(void)fprintf(file, "%016llx t function_number_%d\n", base + (unsigned)i * 16u, i);
	}
	if (file)
		(void)fprintf(file, "%016llx t in_a_module\t[mod]\n", base + N * 16u);
	CHECK(file && fflush(file) == 0 && lseek(fileno(file), 0, SEEK_SET) == 0 &&
		      sym_kernel_open(fileno(file), &k) == 0,
	      "opens");
	/* Damage that happens, or is read, after the file was opened. */
	CHECK(file && pwrite(fileno(file), "z", 1, torn) == 1 && ftruncate(fileno(file), cut) == 0,
	      "is damaged");
	for (int i = 0; k && i < N; i++) {
		struct sym_symbol s = { .name = "" };
		const char *module = "?";
		char want[32];
		int err = sym_kernel_find(k, base + (unsigned)i * 16u + 15, &s, &module);
		/* A block is 4 KiB: 110 lines. */
		bool maybe = (i > TORN - 130 && i < TORN + 130) || i > SHORT - 130;

		(void)snprintf(want, sizeof(want), "function_number_%d", i);
		near += maybe && err;
		wrong += err ? !maybe : strcmp(s.name, want) != 0 || *module;
	}
	CHECK(wrong == 0, "every one is found, or not named at all");
	CHECK(near > 100, "what was damaged is not found");
	CHECK(k && sym_kernel_lookup(k, "function_number_777", &addr) == 0 &&
		      addr == base + 777 * 16,
	      "by name");
	CHECK(k && sym_kernel_lookup(k, "in_a_module", &addr) == 0 && addr == base + N * 16u,
	      "the rest was read before");
	sym_kernel_free(k);
	if (file)
		(void)fclose(file);
}

int main(void)
{
	test_a_file_is_read_as_it_is_needed();
	test_addresses_find_the_symbol_they_lie_in();
	test_what_is_not_kallsyms_is_refused();
	test_a_torn_last_line_is_left_out();
	test_names_are_clean();
	test_many_lines();
	return check_done();
}
