/*
 * tests/fuzz/fuzz_pprof.c: fuzzes the reader of pprof profiles: the result is an error, or a
 * profile that can be checked, printed and converted. What is JSON in the results, also in the flame
 * graph's page, is valid for SQLite. The sum of the bytes chooses one of these, so that an input costs
 * one.
 */
#include "agent/cmd/cmd.h"
#include "agent/export/formats.h"
#include "agent/export/profile/flame.h"
#include "agent/export/profile/ranking.h"
#include "agent/export/profile/tree.h"
#include "proto/pprof_read.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool all(void *ctx, uint32_t function)
{
	(void)ctx;
	(void)function;
	return true;
}

static void check_json(const char *text, size_t size)
{
	static sqlite3_stmt *valid;
	static sqlite3 *db;

	if (!valid && (sqlite3_open(":memory:", &db) ||
		       sqlite3_prepare_v2(db, "SELECT json_valid(?)", -1, &valid, NULL)))
		abort();
	(void)sqlite3_bind_text(valid, 1, text, (int)size, SQLITE_STATIC);
	if (sqlite3_step(valid) != SQLITE_ROW || !sqlite3_column_int(valid, 0))
		abort();
	(void)sqlite3_reset(valid);
}

/* Write one of the formats that have JSON. */
static void check_format(const struct stacks *s, enum format format)
{
	size_t size = 0;
	char *text = NULL;
	FILE *out = open_memstream(&text, &size);
	int err = out ? format_write(format, s, SIZE_MAX, out) : -1;

	if (!out || fclose(out))
		abort();
	if (!err && format != FORMAT_JSONL)
		check_json(text, size);
	for (char *line = text, *end; !err && format == FORMAT_JSONL && line < text + size;
	     line = end + 1) {
		end = strchr(line, '\n');
		if (!end)
			abort();
		check_json(line, (size_t)(end - line));
	}
	free(text);
}

/* The page's data stand in a script element, and end with it. */
static void check_page(const struct stacks *s)
{
	const struct flame_page page = { .title = "<title>", .against = "</script>" };
	struct flame *flame = NULL;
	size_t size = 0;
	char *text = NULL, *begin, *end;
	FILE *out;

	if (flame_new(s, s->default_type, NULL, &flame))
		return;
	out = open_memstream(&text, &size);
	if (!out || flame_write(flame, &page, out) || fclose(out))
		abort();
	begin = strstr(text, "{\"title\":");
	end = begin ? strstr(begin, "</script>") : NULL;
	if (!end)
		abort();
	check_json(begin, (size_t)(end - begin));
	free(text);
	flame_free(flame);
}

/*
 * Print one of the views; a view with a base compares the profile with itself.
 */
static void show(int fd, unsigned int which, FILE *null)
{
	struct stacks *s = NULL;
	struct tree tree = { 0 };
	bool compared = which == FORMAT_N || format_compares((enum format)which);

	if (stacks_new(&s) || lseek(fd, 0, SEEK_SET) || stacks_load_fd(s, fd, "it", false) ||
	    (compared && (lseek(fd, 0, SEEK_SET) || stacks_load_fd(s, fd, "it", true)))) {
		stacks_free(s);
		return;
	}
	if (which == FORMAT_JSONL || which == FORMAT_SPEEDSCOPE || which == FORMAT_FIREFOX) {
		check_format(s, (enum format)which);
	} else if (which == 13) {
		check_page(s);
	} else if (which < FORMAT_N) {
		(void)format_write((enum format)which, s, SIZE_MAX, null);
	} else {
		struct ranking r = { .by = which % (RANKING_STOP + 1) };

		if (!ranking_add(&r, s, s->default_type))
			ranking_sort(&r, RANKING_BY_CHANGE);
		ranking_fini(&r);
		if (!tree_make(s, s->default_type, which % 2, 16, all, NULL, &tree))
			tree_fini(&tree);
	}
	stacks_free(s);
}

static void check(int fd)
{
	struct pprof_file *file = NULL;
	char error[PPROF_ERROR_SIZE] = "";

	if (!pprof_read(fd, 1 << 20, &file, error))
		(void)pprof_check(pprof_profile(file), true, NULL, NULL);
	else if (file || !error[0])
		abort();
	pprof_file_free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unsigned int sum = 0;
	static int file_fd = -1;
	static FILE *null;
	static char path[32];

	if (file_fd < 0) {
		file_fd = memfd_create("pprof", 0);
		(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", file_fd);
		null = fopen("/dev/null", "we");
		if (file_fd < 0 || !null)
			abort();
		stderr = null; /* libFuzzer has its own way to standard error */
	}
	if (ftruncate(file_fd, 0) || pwrite(file_fd, data, size, 0) != (ssize_t)size ||
	    lseek(file_fd, 0, SEEK_SET))
		abort();
	for (size_t i = 0; i < size; i++)
		sum += data[i];
	if (sum % 16 == 14)
		check(file_fd);
	else if (sum % 16 == 15)
		(void)report_print(path, 5, null);
	else
		show(file_fd, sum % 16, null);
	return 0;
}
