/*
 * tests/unit/test_owc_files.c: tests files that a capture stores: they are read back as written,
 * and damage is an error, never a wrong byte.
 */
#include "agent/owc/owc.h"
#include "agent/owc/owc_format.h"
#include "agent/source/source.h"

#include "tests/check.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct source_info info = { .machine = EM_X86_64, .kind = "live" };

enum { PIECE = 300000, FAR = 50 << 20, SIZE = FAR + PIECE };

static const struct owc_file whole = { .path = "/usr/bin/gone",
				       .major = 8,
				       .minor = 1,
				       .inode = 42,
				       .build_id = { .size = 20, .bytes = { 1, 2, 3 } },
				       .size = SIZE };
static const struct owc_file copy = { .path = "/run/copy",
				      .major = 9,
				      .inode = 7,
				      .build_id = { .size = 20, .bytes = { 1, 2, 3 } },
				      .size = SIZE };
/* The same file without its symbols, as containers have it. */
static const struct owc_file stripped = { .path = "/srv/b/gone",
					  .major = 8,
					  .minor = 1,
					  .inode = 50,
					  .build_id = { .size = 20, .bytes = { 1, 2, 3 } },
					  .size = 5 };
static const struct owc_file dropped = { .path = "/dropped", .inode = 43, .size = 10 };
static const struct owc_file nameless = { .path = "/no/build-id", .inode = 44, .size = 3 };
/* As agent/process/debug_file.h describes it; the program itself is not stored. */
static const struct uw_build_id its_program = { .size = 3, .bytes = { 0xab, 0xcd, 0xef } };
static const struct owc_file debug = { .path = "/usr/lib/debug/.build-id/ab/cdef.debug",
				       .size = 3 };
static const struct uw_build_id none;

static uint8_t bytes[PIECE];

static int capture(void)
{
	const struct event exec = { .type = EVENT_EXEC, .pid = 1, .tid = 1, .time_ns = 5 };
	struct owc_writer *w = NULL;
	int fd = memfd_create("capture", MFD_CLOEXEC);

	CHECK(fd >= 0 && !owc_writer_open(fd, &info, &w) && !owc_writer_event(w, &exec),
	      "a capture");
	CHECK(!owc_writer_file_begin(w, &dropped) && !owc_writer_file_piece(w, 0, "abc", 3) &&
		      !owc_writer_file_end(w, true),
	      "a file that is left out");
	CHECK(!owc_writer_file_begin(w, &whole) && !owc_writer_file_piece(w, 0, bytes, PIECE) &&
		      !owc_writer_file_piece(w, FAR, bytes, PIECE) &&
		      !owc_writer_file_piece(w, 4, "new", 3) && !owc_writer_file_end(w, false) &&
		      !owc_writer_file_again(w, &copy),
	      "a file with a hole, under two names");
	CHECK(!owc_writer_file_begin(w, &stripped) && !owc_writer_file_piece(w, 0, "strip", 5) &&
		      !owc_writer_file_end(w, false),
	      "one with the same build-id");
	CHECK(!owc_writer_file_begin(w, &nameless) && !owc_writer_file_piece(w, 0, "xyz", 3) &&
		      !owc_writer_file_end(w, false),
	      "one without a build-id");
	CHECK(!owc_writer_file_begin(w, &debug) && !owc_writer_file_piece(w, 0, "dbg", 3) &&
		      !owc_writer_file_end(w, false) && !owc_writer_close(w),
	      "a debug file");
	return fd;
}

static int open_capture(int fd, struct source **source)
{
	char error[512] = "";

	return lseek(fd, 0, SEEK_SET) ? -errno : source_owc_open(dup(fd), "test", source, error);
}

static int ask(struct source *source, const struct owc_file *file, const struct uw_build_id *id,
	       int *fd)
{
	struct uw_build_id build_id = *id;
	int err;

	if (!source->info.embedded_file)
		return -ENOENT;
	err = source->info.embedded_file(source->info.embedded_file_ctx, file->major, file->minor,
					 file->inode, file->path, &build_id, fd);
	if (!err && file != &nameless && file != &debug)
		CHECK(uw_build_id_equal(&build_id, &whole.build_id), "its build-id");
	return err;
}

static void check_contents(int fd)
{
	uint8_t *got = malloc(SIZE);
	struct stat st;
	bool hole = true;

	CHECK(got && !fstat(fd, &st) && st.st_size == SIZE && pread(fd, got, SIZE, 0) == SIZE,
	      "all of it");
	CHECK(st.st_blocks < 4 * PIECE / 512, "the hole takes no memory");
	if (got) {
		for (size_t i = PIECE; i < FAR; i++)
			hole = hole && !got[i];
		CHECK(hole && !memcmp(got + FAR, bytes, PIECE), "pieces and zeros");
		CHECK(!memcmp(got + 4, "new", 3) && !memcmp(got + 7, bytes + 7, PIECE - 7),
		      "a later piece replaces bytes");
	}
	free(got);
}

static void test_files_come_back(void)
{
	const struct uw_build_id other = { .size = 20, .bytes = { 1, 2, 4 } };
	struct source *source = NULL;
	struct event event;
	int fd = capture(), got = -1;

	CHECK(!open_capture(fd, &source), "open");
	if (!source)
		return;
	CHECK(source_next(source, &event, -1) == 1 && event.type == EVENT_EXEC &&
		      !source_next(source, &event, -1),
	      "events are as they were, up to a sound end");
	CHECK(!ask(source, &dropped, &whole.build_id, &got), "by its build-id, whatever its name");
	check_contents(got);
	(void)close(got);
	for (int known = 0; known < 2; known++) { /* with its inode, and without */
		struct owc_file wanted = stripped;
		char text[6] = "";

		if (!known)
			wanted.major = wanted.minor = 0, wanted.inode = 0;
		CHECK(!ask(source, &wanted, &whole.build_id, &got) && pread(got, text, 6, 0) == 5 &&
			      !strcmp(text, "strip"),
		      "of several with a build-id, that of this path");
		(void)close(got);
	}
	CHECK(!ask(source, &copy, &none, &got), "by inode and path, as a copy");
	check_contents(got);
	(void)close(got);
	CHECK(!ask(source, &nameless, &none, &got), "without a build-id");
	(void)close(got);
	CHECK(!ask(source, &debug, &none, &got), "a debug file by its path");
	(void)close(got);
	CHECK(ask(source, &debug, &its_program, &got) == -ENOENT &&
		      ask(source, &nameless, &its_program, &got) == -ENOENT,
	      "a debug file is not taken for its program");
	CHECK(ask(source, &whole, &other, &got) == -ENOENT, "another build-id");
	CHECK(ask(source, &dropped, &none, &got) == -ENOENT, "one that was left out");
	source_close(source);
	(void)close(fd);
}

/* Any changed byte of the frames is an error or changes nothing; what was right stays right. */
static void test_damage_is_an_error(void)
{
	int fd = capture(), n_refused = 0;
	off_t size = lseek(fd, 0, SEEK_END);

	for (off_t at = OWC_HEAD_SIZE; at < size; at += 1 + size / 600) {
		struct source *source = NULL;
		uint8_t byte, flipped;
		int got = -1, err;

		CHECK(pread(fd, &byte, 1, at) == 1, "read");
		flipped = byte ^ 0x10;
		CHECK(pwrite(fd, &flipped, 1, at) == 1, "flip");
		if (!open_capture(fd, &source)) {
			err = ask(source, &whole, &whole.build_id, &got);
			if (!err) {
				uint8_t head[8];

				CHECK(pread(got, head, 8, FAR) == 8 && !memcmp(head, bytes, 8),
				      "no wrong byte");
				(void)close(got);
			} else {
				CHECK(err == -EBADMSG || err == -ENOENT, "a reason");
				n_refused++;
			}
			source_close(source);
		}
		CHECK(pwrite(fd, &byte, 1, at) == 1, "and back");
	}
	CHECK(n_refused > 100, "damage was met");
	(void)close(fd);
}

static void test_a_torn_capture_keeps_none(void)
{
	struct source *source = NULL;
	int fd = capture(), got = -1;
	off_t size = lseek(fd, 0, SEEK_END);

	CHECK(!ftruncate(fd, size - 40) && !open_capture(fd, &source), "cut in its index");
	if (source)
		CHECK(ask(source, &whole, &whole.build_id, &got) == -ENOENT, "nothing is kept");
	source_close(source);
	(void)close(fd);
}

int main(void)
{
	for (size_t i = 0; i < PIECE; i++)
		bytes[i] = (uint8_t)(i * 2654435761u >> 13 | 1);
	test_files_come_back();
	test_damage_is_an_error();
	test_a_torn_capture_keeps_none();
	return check_done();
}
