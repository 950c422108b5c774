/*
 * tests/diff/sym_lines.c: prints source lines and inlined calls as text that scripts compare.
 *   sym_lines FILE [DEBUGFILE]     addresses (hex) from stdin → the address, then
 *                                  "function<TAB>file:line" of each place, innermost first, then
 *                                  an empty line; "?" for what is not known
 *   -t                             look up a second time, after packing and unpacking
 *   -q                             print only the time it took, and the size
 * Other files are found by the names that the file states, relative to it, and as FILE.dwp.
 */
#include "symbolizer/symbolizer.h"
#include "unwinder/unwinder.h"

#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static const char *program;

static int open_it(const char *path, int *fd)
{
	*fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	return *fd < 0 ? -2 : 0;
}

static int open_beside(const char *name, int *fd)
{
	char folder[4096], path[8192];

	(void)snprintf(folder, sizeof(folder), "%s", program);
	(void)snprintf(path, sizeof(path), "%s/%s", dirname(folder), name);
	return open_it(*name == '/' ? name : path, fd);
}

static int find_alt(void *ctx, const char *name, const struct uw_build_id *id, int *fd)
{
	(void)ctx;
	(void)id;
	return open_beside(name, fd);
}

static int find_split(void *ctx, const char *folder, const char *name, int *fd)
{
	char path[8192];

	(void)ctx;
	(void)snprintf(path, sizeof(path), "%s/%s", folder, name);
	return open_it(*name == '/' ? name : path, fd);
}

static int find_package(void *ctx, int *fd)
{
	char path[4096];

	(void)ctx;
	(void)snprintf(path, sizeof(path), "%s.dwp", program);
	return open_it(path, fd);
}

static uint64_t now_us(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

static void print(const struct sym_lines *lines, uint64_t addr)
{
	struct sym_place places[128];
	size_t n = 0;

	(void)printf("%016" PRIx64 "\n", addr);
	if (sym_lines_find(lines, addr, places, 128, &n))
		(void)printf("not found\n");
	for (size_t i = 0; i < n; i++)
		(void)printf("%s\t%s:%u\n", places[i].function ? places[i].function : "?",
			     places[i].file ? places[i].file : "?", places[i].line);
	(void)printf("\n");
}

static int again(struct sym_lines **lines)
{
	size_t size;
	void *blob;
	int err = sym_lines_pack(*lines, 7, &blob, &size);

	if (err)
		return err;
	sym_lines_free(*lines);
	*lines = NULL;
	return sym_lines_unpack(blob, size, 7, lines);
}

int main(int argc, char **argv)
{
	struct sym_debug_files files = { .alt = find_alt,
					 .split = find_split,
					 .package = find_package };
	struct sym_debug *debug = NULL;
	struct sym_lines *lines = NULL;
	uint64_t *addrs = NULL, start;
	size_t n = 0, room = 0, line_room = 0;
	bool twice = false, quiet = false;
	char *line = NULL;
	struct rusage usage;
	int fd, err, c;

	while ((c = getopt(argc, argv, "tq")) != -1) {
		twice = twice || c == 't';
		quiet = quiet || c == 'q';
	}
	if (optind >= argc)
		return 2;
	program = argv[argc - 1];
	if (open_it(program, &fd)) {
		perror(program);
		return 1;
	}
	while (getline(&line, &line_room, stdin) > 0) {
		if (n == room) {
			room = room ? room * 2 : 256;
			addrs = reallocarray(addrs, room, sizeof(*addrs));
			if (!addrs)
				return 1;
		}
		addrs[n++] = strtoull(line, NULL, 16);
	}
	start = now_us();
	err = sym_lines_new(&lines);
	if (!err)
		err = sym_debug_open(fd, 0, &files, lines, &debug);
	if (quiet)
		(void)printf("opened after %" PRIu64 " us\n", now_us() - start);
	/* There are two ways: many addresses at once, and one by one. */
	if (!err)
		err = sym_debug_prepare(debug, addrs, n / 2, NULL);
	for (size_t i = 0; !err && i < n; i++)
		err = sym_debug_add(debug, addrs[i]);
	(void)getrusage(RUSAGE_SELF, &usage);
	if (quiet)
		(void)printf("%zu addresses in %" PRIu64 " us, %ld KiB\n", n, now_us() - start,
			     usage.ru_maxrss);
	sym_debug_free(debug);
	if (!err && twice)
		err = again(&lines);
	for (size_t i = 0; !err && !quiet && i < n; i++)
		print(lines, addrs[i]);
	if (err)
		(void)fprintf(stderr, "%s: %s\n", program, strerror(-err));
	sym_lines_free(lines);
	(void)close(fd);
	free(addrs);
	free(line);
	return err != 0;
}
