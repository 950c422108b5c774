/*
 * tests/unit/test_sym_section.c: tests how sections of debug information are unpacked: the largest
 * window of zstd is the same as for unwind sections.
 */
#include "symbolizer/elf/section.h"

#include "base/unpack.h"
#include "tests/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#define TEXT "debug information"

/*
 * Write a frame (RFC 8878 §3.1.1) with a window of 2^log bytes, without the content's size, with
 * TEXT as one raw block. Return its size.
 */
static size_t frame_of(unsigned int log, uint8_t *out)
{
	const uint8_t head[] = { 0x28, 0xb5, 0x2f, 0xfd, 0, (uint8_t)((log - 10) << 3),
				 /* the last block, raw, and its size in the other 21 bits */
				 1 | sizeof(TEXT) << 3, 0, 0 };

	memcpy(out, head, sizeof(head));
	memcpy(out + sizeof(head), TEXT, sizeof(TEXT));
	return sizeof(head) + sizeof(TEXT);
}

/* Unpack the frame as a section of debug information. */
static int open_section(const uint8_t *frame, size_t n)
{
	uint8_t bytes[128];
	Elf64_Chdr head = { .ch_type = 2 /* ELFCOMPRESS_ZSTD */, .ch_size = sizeof(TEXT) };
	Elf64_Shdr headers[2] = { { 0 },
				  { .sh_name = 1,
				    .sh_type = SHT_PROGBITS,
				    .sh_flags = SHF_COMPRESSED,
				    .sh_size = sizeof(head) + n } };
	char names[] = "\0.debug_info";
	struct uw_elf image = {
		.source = { .fd = -1, .image = bytes, .size = sizeof(head) + n },
		.sections = headers,
		.n_sections = 2,
		.names = names,
		.names_size = sizeof(names),
	};
	struct sym_section section;
	int err;

	memcpy(bytes, &head, sizeof(head));
	memcpy(bytes + sizeof(head), frame, n);
	err = sym_section_open(&image, ".debug_info", &section);
	if (!err) {
		CHECK(section.source.size == sizeof(TEXT) &&
			      !memcmp(section.source.image, TEXT, sizeof(TEXT)),
		      "what was packed");
		sym_section_close(&section);
	}
	return err;
}

static void test_both_readers_have_one_limit_for_windows(void)
{
	static const unsigned int logs[] = { 10, 27, UW_ZSTD_WINDOW_LOG_MAX,
					     UW_ZSTD_WINDOW_LOG_MAX + 1 };

	for (size_t i = 0; i < sizeof(logs) / sizeof(logs[0]); i++) {
		int want = logs[i] > UW_ZSTD_WINDOW_LOG_MAX ? -EBADMSG : 0;
		uint8_t frame[64], *out = NULL;
		size_t n = frame_of(logs[i], frame);

		CHECK(uw_unpack_zstd(frame, n, sizeof(TEXT), sizeof(TEXT), &out) == want,
		      "unwind section");
		CHECK(want || !memcmp(out, TEXT, sizeof(TEXT)), "what was packed");
		free(out);
		CHECK(open_section(frame, n) == want, "debug section");
	}
}

/* Write a frame with n bytes, the numbers from first on, in blocks without compression. Return its size. */
static size_t raw_frame(size_t first, size_t n, uint8_t *out)
{
	static const uint8_t head[] = { 0x28, 0xb5, 0x2f, 0xfd, 0, (20 - 10) << 3 };
	size_t at = sizeof(head);

	memcpy(out, head, sizeof(head));
	for (size_t i = 0; i < n;) {
		size_t block = n - i < 100000 ? n - i : 100000;

		out[at++] = (uint8_t)((i + block == n) | (block & 31) << 3);
		out[at++] = (uint8_t)(block >> 5);
		out[at++] = (uint8_t)(block >> 13);
		for (size_t end = i + block; i < end; i++)
			out[at++] = (uint8_t)((first + i) * 7 >> 3);
	}
	return at;
}

/* As linkers write them that pack on several threads: frames of 1 MiB, and a shorter one. */
static void test_several_frames_are_one_section(void)
{
	enum { FRAME = 1 << 20, LAST = 300000, ALL = 2 * FRAME + LAST };
	uint8_t *bytes = malloc(ALL + ALL / 8);
	Elf64_Chdr head = { .ch_type = 2, .ch_size = ALL };
	Elf64_Shdr headers[2] = {
		{ 0 }, { .sh_name = 1, .sh_type = SHT_PROGBITS, .sh_flags = SHF_COMPRESSED }
	};
	char names[] = "\0.debug_info";
	size_t n = sizeof(head), wrong = 0;
	struct sym_section section;
	int err;

	if (!bytes)
		abort();
	memcpy(bytes, &head, sizeof(head));
	for (size_t i = 0; i < ALL; i += FRAME)
		n += raw_frame(i, ALL - i < FRAME ? ALL - i : FRAME, bytes + n);
	/* Whole, cut short, and with something behind the last frame. */
	for (int more = -1; more <= 1; more++) {
		struct uw_elf image = {
			.source = { .fd = -1, .image = bytes, .size = n + (size_t)(ssize_t)more },
			.sections = headers,
			.n_sections = 2,
			.names = names,
			.names_size = sizeof(names)
		};

		headers[1].sh_size = image.source.size;
		bytes[n] = 0;
		err = sym_section_open(&image, ".debug_info", &section);
		CHECK(err == (more ? -EBADMSG : 0), "what is not whole is damaged");
		if (err)
			continue;
		CHECK(section.source.size == ALL, "its size");
		for (size_t i = 0; i < ALL; i += 4093) {
			uint8_t byte = 0;

			CHECK(!sym_section_read(&section, i, &byte, 1), "read");
			wrong += byte != (uint8_t)(i * 7 >> 3);
		}
		CHECK(!wrong, "its bytes");
		sym_section_close(&section);
	}
	free(bytes);
}

int main(void)
{
	test_both_readers_have_one_limit_for_windows();
	test_several_frames_are_one_section();
	return check_done();
}
