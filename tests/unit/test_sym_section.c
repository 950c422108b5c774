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

int main(void)
{
	test_both_readers_have_one_limit_for_windows();
	return check_done();
}
