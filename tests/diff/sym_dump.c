/*
 * tests/diff/sym_dump.c: prints the symbolizer's answers as text that scripts compare.
 *   sym_dump table FILE          address, size, name of each symbol (hex, hex; size 0: not known)
 *   sym_dump extract FILE        the same of what a capture stores of the file
 *   sym_dump find FILE           addresses (hex) from stdin → name or "?"
 *   sym_dump kernel FILE         addresses (hex) from stdin → name, module or "?"
 *   sym_dump demangle            names from stdin → readable names
 */
#include "symbolizer/symbolizer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail(const char *what, int err)
{
	(void)fprintf(stderr, "%s: %s\n", what, strerror(-err));
	return 1;
}

static int dump_table(const struct sym_table *table)
{
	struct sym_symbol s;

	for (size_t i = 0; sym_table_at(table, i, &s) == 0; i++)
		(void)printf("%016" PRIx64 " %" PRIx64 " %s\n", s.addr, s.size, s.name);
	return 0;
}

static int put_in_file(void *ctx, uint64_t off, const void *bytes, size_t size)
{
	const int *fd = ctx;

	return pwrite(*fd, bytes, size, (off_t)off) == (ssize_t)size ? 0 : -EIO;
}

/* Return a file with what a capture stores of fd, as long as fd. */
static int extract(int fd)
{
	int file = memfd_create("extract", MFD_CLOEXEC), err;
	struct sym_extract to = { .put = put_in_file, .ctx = &file, .most = UINT64_MAX };
	struct stat st;

	if (file < 0 || fstat(fd, &st) || ftruncate(file, st.st_size))
		return -errno;
	err = sym_extract(fd, 0, &to);
	return err ? err : file;
}

static int find_lines(const struct sym_table *table, const struct sym_kernel *kernel)
{
	char *line = NULL;
	size_t room = 0;

	while (getline(&line, &room, stdin) > 0) {
		uint64_t addr = strtoull(line, NULL, 16);
		struct sym_symbol s;
		const char *module = "";
		int err = table ? sym_table_find(table, addr, &s)
				: sym_kernel_find(kernel, addr, &s, &module);

		if (err)
			(void)printf("?\n");
		else
			(void)printf("%s%s%s\n", s.name, *module ? " " : "", module);
	}
	free(line);
	return 0;
}

static int demangle_lines(void)
{
	char *line = NULL;
	size_t room = 0;
	ssize_t n;

	while ((n = getline(&line, &room, stdin)) > 0) {
		char *text;

		line[n - (line[n - 1] == '\n')] = '\0';
		text = sym_demangle(line);
		(void)printf("%s\n", text ? text : "?");
		free(text);
	}
	free(line);
	return 0;
}

int main(int argc, char **argv)
{
	struct sym_table *table = NULL;
	struct sym_kernel *kernel = NULL;
	int fd = -1, err, rc = 2;

	if (argc == 2 && strcmp(argv[1], "demangle") == 0)
		return demangle_lines();
	if (argc != 3)
		return 2;
	fd = open(argv[2], O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		perror(argv[2]);
		return 1;
	}
	if (strcmp(argv[1], "extract") == 0) {
		int file = extract(fd);

		(void)close(fd);
		if (file < 0)
			return fail(argv[2], file);
		fd = file;
	}
	if (strcmp(argv[1], "kernel") == 0) {
		err = sym_kernel_open(fd, &kernel);
		rc = err ? fail(argv[2], err) : find_lines(NULL, kernel);
	} else {
		err = sym_table_open(fd, 0, &table);
		if (err)
			rc = fail(argv[2], err);
		else if (strcmp(argv[1], "table") == 0 || strcmp(argv[1], "extract") == 0)
			rc = dump_table(table);
		else if (strcmp(argv[1], "find") == 0)
			rc = find_lines(table, NULL);
		if (table && sym_table_damage(table))
			(void)fail("left out", sym_table_damage(table));
	}
	(void)close(fd);
	sym_table_free(table);
	sym_kernel_free(kernel);
	return rc;
}
