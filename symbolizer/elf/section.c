/* symbolizer/elf/section.c: reads, maps and unpacks sections of debug information. */
#include "symbolizer/elf/section.h"

#include "base/limits.h"
#include "base/unpack.h"
#include "symbolizer/symbolizer.h"
#include "unwinder/unwinder.h"

#include <errno.h>
#include <fcntl.h>
#include <libdeflate.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

/* A section that unpacks to more than this goes to a file. */
#define MEMORY_MAX ((uint64_t)8 << 20)
/*
 * Limit on the compression ratio. Debug information packs to a fifth, repeated strings to a
 * thirtieth.
 */
#define RATIO_MAX 200
#define CHUNK	  ((size_t)256 << 10)

#ifndef ELFCOMPRESS_ZSTD
#define ELFCOMPRESS_ZSTD 2
#endif

/* ---- reading ------------------------------------------------------------------ */

enum { PAGE = 4096, PAGES = 2048 };

struct sym_blocks { /* a cache; each page has exactly one slot */
	uint64_t number[PAGES];
	uint8_t *bytes[PAGES]; /* NULL: empty; owned */
};

void sym_section_keep_pages(struct sym_section *s)
{
	if (s->source.size && !s->source.image && !s->blocks)
		s->blocks = calloc(1, sizeof(*s->blocks));
}

/* Return a page of the section from the cache; read it if needed. */
static int read_page(const struct sym_section *s, uint64_t number, const uint8_t **out)
{
	struct sym_blocks *b = s->blocks;
	size_t at = number % PAGES;
	uint64_t left = s->source.size - number * PAGE;
	int err;

	*out = b->bytes[at];
	if (*out && b->number[at] == number)
		return 0;
	if (!*out)
		b->bytes[at] = malloc(PAGE);
	if (!b->bytes[at])
		return -ENOMEM;
	b->number[at] = UINT64_MAX;
	err = uw_source_read(&s->source, number * PAGE, b->bytes[at], left < PAGE ? left : PAGE);
	if (err)
		return err;
	b->number[at] = number;
	*out = b->bytes[at];
	return 0;
}

/* Copy bytes from cached pages. */
static int read_pages(const struct sym_section *s, uint64_t off, uint8_t *out, uint64_t size)
{
	while (size) {
		uint64_t in = off % PAGE, n = PAGE - in < size ? PAGE - in : size;
		const uint8_t *page;
		int err = read_page(s, off / PAGE, &page);

		if (err)
			return err;
		memcpy(out, page + in, n);
		out += n;
		off += n;
		size -= n;
	}
	return 0;
}

int sym_section_read(const struct sym_section *s, uint64_t off, void *out, uint64_t size)
{
	if (off > s->source.size || size > s->source.size - off)
		return -EBADMSG;
	return s->blocks && size <= PAGE ? read_pages(s, off, out, size)
					 : uw_source_read(&s->source, off, out, size);
}

int sym_section_map(const struct sym_section *s, uint64_t off, uint64_t size, const uint8_t **out,
		    uint8_t **owned)
{
	uint8_t *copy;
	int err;

	*owned = NULL;
	if (off > s->source.size || size > s->source.size - off)
		return -EBADMSG;
	if (s->source.image) {
		*out = s->source.image + off;
		return 0;
	}
	copy = malloc(size + 1);
	if (!copy)
		return -ENOMEM;
	err = sym_section_read(s, off, copy, size);
	if (err) {
		free(copy);
		return err;
	}
	*out = *owned = copy;
	return 0;
}

int sym_section_text(const struct sym_section *s, uint64_t off, char *out, size_t room)
{
	size_t have = 0;

	if (off >= s->source.size)
		return -EBADMSG;
	while (have < room - 1) {
		/* Most strings are short. */
		size_t want = have ? room - 1 - have : 127, n;
		const char *nul;
		int err;

		want = want < room - 1 - have ? want : room - 1 - have;
		if (off + have >= s->source.size)
			return -EBADMSG; /* the string has no end */
		n = s->source.size - off - have < want ? (size_t)(s->source.size - off - have)
						       : want;
		err = sym_section_read(s, off + have, out + have, n);
		if (err)
			return err;
		nul = memchr(out + have, 0, n);
		if (nul)
			return (int)(nul - out);
		have += n;
	}
	out[have] = '\0';
	return (int)have;
}

/* ---- unpacking ---------------------------------------------------------------- */

struct sink { /* receives exactly size bytes */
	uint8_t *bytes;
	int fd;
	uint64_t size, done;
};

/* Append unpacked bytes. -EBADMSG: more than size; -ECANCELED: the work was given up. */
static int put(struct sink *sink, const uint8_t *bytes, size_t n)
{
	if (n > sink->size - sink->done)
		return -EBADMSG;
	if (uw_unpack_is_stopped())
		return -ECANCELED;
	if (sink->bytes) {
		memcpy(sink->bytes + sink->done, bytes, n);
		sink->done += n;
		return 0;
	}
	while (n) {
		ssize_t w = write(sink->fd, bytes, n);

		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0)
			return w < 0 ? -errno : -EIO;
		bytes += w;
		n -= (size_t)w;
		sink->done += (uint64_t)w;
	}
	return 0;
}

/* Unpack a section that fits into memory in one call, which takes half the time. */
static int unpack_whole(const struct uw_source *packed, struct sink *sink)
{
	struct libdeflate_decompressor *d = libdeflate_alloc_decompressor();
	const uint8_t *in = packed->image;
	void *owned = NULL;
	size_t n;
	int err = d ? 0 : -ENOMEM;

	if (!err && !in) {
		err = uw_source_load(packed, 0, packed->size, 1, &owned);
		in = owned;
	}
	if (!err && libdeflate_zlib_decompress(d, in, packed->size, sink->bytes, sink->size, &n) !=
			    LIBDEFLATE_SUCCESS)
		err = -EBADMSG;
	if (!err)
		sink->done = n;
	free(owned);
	libdeflate_free_decompressor(d);
	return err;
}

/* Unpack zlib data in chunks, for sections that are too large for unpack_whole. */
static int unpack_zlib(const struct uw_source *packed, struct sink *sink)
{
	uint8_t *in = malloc(CHUNK), *out = malloc(CHUNK);
	z_stream z = { 0 };
	uint64_t off = 0;
	int err = in && out ? 0 : -ENOMEM, rc = Z_OK;

	if (!err && inflateInit(&z) != Z_OK)
		err = -ENOMEM;
	while (!err && rc != Z_STREAM_END) {
		size_t n = packed->size - off < CHUNK ? (size_t)(packed->size - off) : CHUNK;

		if (!n) {
			err = -EBADMSG;
			break;
		}
		err = uw_source_read(packed, off, in, n);
		off += n;
		z.next_in = in;
		z.avail_in = (uInt)n;
		while (!err && rc != Z_STREAM_END) {
			z.next_out = out;
			z.avail_out = CHUNK;
			rc = inflate(&z, Z_NO_FLUSH);
			if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)
				err = rc == Z_MEM_ERROR ? -ENOMEM : -EBADMSG;
			else
				err = put(sink, out, CHUNK - z.avail_out);
			if (!err && rc == Z_BUF_ERROR) {
				rc = Z_OK;
				break;
			}
			if (!err && rc == Z_OK && !z.avail_in && z.avail_out)
				break;
		}
	}
	(void)inflateEnd(&z);
	free(in);
	free(out);
	return err;
}

/* Unpack zstd data in chunks. Linkers write one frame after the other, for 1 MiB each, on several threads. */
static int unpack_zstd(const struct uw_source *packed, struct sink *sink)
{
	uint8_t *in = malloc(CHUNK), *out = malloc(CHUNK);
	ZSTD_DStream *stream = ZSTD_createDStream();
	uint64_t off = 0;
	size_t left = 1; /* 0: a frame has ended */
	int err = in && out && stream ? 0 : -ENOMEM;

	if (stream)
		(void)ZSTD_DCtx_setParameter(stream, ZSTD_d_windowLogMax, UW_ZSTD_WINDOW_LOG_MAX);
	while (!err && (off < packed->size || left)) {
		size_t n = packed->size - off < CHUNK ? (size_t)(packed->size - off) : CHUNK;
		ZSTD_inBuffer from = { .src = in, .size = n };
		bool more = true; /* of the output, or of the input */

		if (!n) {
			err = -EBADMSG;
			break;
		}
		err = uw_source_read(packed, off, in, n);
		off += n;
		while (!err && more) {
			ZSTD_outBuffer to = { .dst = out, .size = CHUNK };

			left = ZSTD_decompressStream(stream, &to, &from);
			err = ZSTD_isError(left) ? -EBADMSG : put(sink, out, to.pos);
			more = from.pos < from.size || (left && to.pos == to.size);
		}
	}
	ZSTD_freeDStream(stream);
	free(in);
	free(out);
	return err;
}

static _Atomic(sym_scratch_fn) scratch; /* NULL: the files are made here */

void sym_scratch_by(sym_scratch_fn make)
{
	scratch = make;
}

/* Open a file without a name, on disk if possible. Return its descriptor or a negative code. */
static int unnamed_file(void)
{
	sym_scratch_fn make = scratch;
	int fd = -1, err = make ? make(&fd) : -ENOENT;

	if (!err)
		return fd;
	fd = make ? -1 : open("/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		fd = memfd_create("debug information", MFD_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/*
 * Unpack a compressed section to memory or to a file. size is the unpacked size that the header
 * states.
 */
static int unpack(const struct uw_source *packed, uint64_t type, uint64_t size,
		  struct sym_section *out)
{
	struct sink sink = { .fd = -1, .size = size };
	int err;

	if (type != ELFCOMPRESS_ZLIB && type != ELFCOMPRESS_ZSTD)
		return -ENOTSUP;
	if (!packed->size)
		return -EBADMSG;
	if (uw_limit_exceeded(debug_bytes, size) || size / RATIO_MAX > packed->size)
		return -E2BIG;
	if (size <= MEMORY_MAX) {
		sink.bytes = malloc(size + 1);
		if (!sink.bytes)
			return -ENOMEM;
	} else {
		sink.fd = unnamed_file();
		if (sink.fd < 0)
			return sink.fd;
	}
	if (type == ELFCOMPRESS_ZSTD)
		err = unpack_zstd(packed, &sink);
	else if (sink.bytes && packed->size <= MEMORY_MAX)
		err = unpack_whole(packed, &sink);
	else
		err = unpack_zlib(packed, &sink);
	if (!err && sink.done != size)
		err = -EBADMSG;
	if (err) {
		free(sink.bytes);
		if (sink.fd >= 0)
			(void)close(sink.fd);
		return err;
	}
	*out = (struct sym_section){ .source = { .size = size, .image = sink.bytes, .fd = sink.fd },
				     .owned = sink.bytes,
				     .own_fd = sink.fd };
	return 0;
}

/* ---- opening ------------------------------------------------------------------ */

/* Return size bytes of the source from its byte n on, without the file's view. */
static struct uw_source part_of(const struct uw_source *from, uint64_t n, uint64_t size)
{
	return (struct uw_source){ .image = from->image ? from->image + n : NULL,
				   .fd = from->fd,
				   .base = from->base + n,
				   .size = size };
}

static int raw_section(const struct uw_elf *image, const Elf64_Shdr *s, struct sym_section *out)
{
	if (s->sh_offset > image->source.size || s->sh_size > image->source.size - s->sh_offset)
		return -EBADMSG;
	*out = (struct sym_section){
		.source = part_of(&image->source, s->sh_offset, s->sh_size),
		.own_fd = -1,
	};
	return 0;
}

/* Unpack a section with a compression header (gABI, SHF_COMPRESSED). */
static int open_compressed(bool narrow_class, const struct uw_source *raw, struct sym_section *out)
{
	struct uw_source packed;
	Elf64_Chdr head;
	Elf32_Chdr narrow;
	int err;

	if (narrow_class) {
		err = uw_source_read(raw, 0, &narrow, sizeof(narrow));
		if (err)
			return err;
		packed = part_of(raw, sizeof(narrow), raw->size - sizeof(narrow));
		return unpack(&packed, narrow.ch_type, narrow.ch_size, out);
	}
	err = uw_source_read(raw, 0, &head, sizeof(head));
	if (err)
		return err;
	packed = part_of(raw, sizeof(head), raw->size - sizeof(head));
	return unpack(&packed, head.ch_type, head.ch_size, out);
}

/* Open a section in GNU's older format: "ZLIB", then the unpacked size, big-endian. */
static int open_zdebug(const struct uw_source *raw, struct sym_section *out)
{
	struct uw_source packed;
	uint8_t head[12];
	uint64_t size = 0;
	int err = uw_source_read(raw, 0, head, sizeof(head));

	if (err)
		return err;
	if (memcmp(head, "ZLIB", 4) != 0)
		return -EBADMSG;
	for (int i = 4; i < 12; i++)
		size = size << 8 | head[i];
	packed = part_of(raw, sizeof(head), raw->size - sizeof(head));
	return unpack(&packed, ELFCOMPRESS_ZLIB, size, out);
}

int sym_section_open_header(const struct uw_elf *image, const Elf64_Shdr *s,
			    struct sym_section *out)
{
	struct sym_section raw;
	int err = raw_section(image, s, &raw);

	if (err)
		return err;
	if (s->sh_flags & SHF_COMPRESSED)
		return open_compressed(image->narrow, &raw.source, out);
	*out = raw;
	return raw.source.size ? 0 : -ENOENT;
}

int sym_section_open(const struct uw_elf *image, const char *name, struct sym_section *out)
{
	const Elf64_Shdr *s = uw_elf_section(image, name);
	struct sym_section raw;
	char older[64];
	int err;

	if (s)
		return sym_section_open_header(image, s, out);
	(void)snprintf(older, sizeof(older), ".z%s", name + 1);
	s = uw_elf_section(image, older);
	if (!s)
		return -ENOENT;
	err = raw_section(image, s, &raw);
	return err ? err : open_zdebug(&raw.source, out);
}

void sym_section_close(struct sym_section *s)
{
	for (size_t i = 0; s->blocks && i < PAGES; i++)
		free(s->blocks->bytes[i]);
	free(s->blocks);
	free(s->owned);
	if (s->source.size && s->own_fd >= 0)
		(void)close(s->own_fd);
	*s = (struct sym_section){ .source.fd = -1, .own_fd = -1 };
}
