/*
 * tests/fuzz/fuzz_compat.c: fuzzes libunwind-offwind's functions for core files. The input is the
 * core file and every file that it names. Its threads are unwound as libunwind's users do it.
 */
#include <fcntl.h>
#include <libunwind-coredump.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FRAMES_MAX  24
#define THREADS_MAX 3
#define OPENED_MAX  8

static int input = -1;
static unsigned int opened;
static bool running;

/* The names in the core file lead nowhere else. */
int open(const char *path, int flags, ...)
{
	mode_t mode = 0;
	char name[32];
	va_list args;

	if (flags & (O_CREAT | O_TMPFILE)) {
		va_start(args, flags);
		mode = va_arg(args, mode_t);
		va_end(args);
	}
	if (!running)
		return openat(AT_FDCWD, path, flags, mode);
	if (opened++ >= OPENED_MAX)
		return -1;
	(void)snprintf(name, sizeof(name), "/proc/self/fd/%d", input);
	return openat(AT_FDCWD, name, O_RDONLY | O_CLOEXEC);
}

static void unwind(unw_addr_space_t as, struct UCD_info *core)
{
	unw_cursor_t cursor;
	unw_proc_info_t info;
	unw_word_t word;
	char name[64];

	if (unw_init_remote(&cursor, as, core))
		return;
	for (int i = 0; i < FRAMES_MAX; i++) {
		for (int reg = -1; reg <= UNW_TDEP_LAST_REG; reg++)
			(void)unw_get_reg(&cursor, reg, &word);
		(void)unw_get_proc_info(&cursor, &info);
		if (!unw_get_proc_name(&cursor, name, sizeof(name), &word) &&
		    !memchr(name, 0, sizeof(name)))
			abort();
		(void)unw_is_signal_frame(&cursor);
		if (unw_step(&cursor) <= 0)
			break;
	}
}

static void use(struct UCD_info *core)
{
	unw_addr_space_t as = unw_create_addr_space(&_UCD_accessors, 0);

	if (!as)
		abort();
	for (int i = 0; i < THREADS_MAX && i < _UCD_get_num_threads(core); i++) {
		_UCD_select_thread(core, i);
		unwind(as, core);
	}
	(void)_UCD_get_pid(core);
	(void)_UCD_get_cursig(core);
	(void)_UCD_add_backing_file_at_segment(core, 1, "/dev/null");
	unw_destroy_addr_space(as);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct UCD_info *core;

	if (input < 0)
		input = memfd_create("core", MFD_CLOEXEC);
	if (input < 0 || pwrite(input, data, size, 0) != (ssize_t)size ||
	    ftruncate(input, (off_t)size))
		abort();
	opened = 0;
	running = true;
	core = _UCD_create("core");
	if (core) {
		use(core);
		_UCD_destroy(core);
	}
	running = false;
	return 0;
}
