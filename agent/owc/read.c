/*
 * agent/owc/read.c: reads capture files (.owc) as a source. proto/capture.proto describes
 * the format.
 *
 * The file is untrusted input: sizes, counts and the order of records are checked against limits
 * before they are used. The first error ends the stream; all records before it have been delivered
 * by then.
 */
#include "agent/owc/reader.h"

#include "agent/array.h"
#include "agent/io.h"
#include "agent/owc/owc_format.h"
#include "base/bytes.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

/* Limit of the bytes that one record may take after unpacking. */
enum { ARENA_MAX = 128 << 20, CONTENT_LEAST = 64 << 10 };

/*
 * End the stream with an error: set source.error to one line with name, offset and reason. Return
 * err.
 */
__attribute__((format(printf, 4, 5))) static int end(struct owc *o, int err, uint64_t off,
						     const char *format, ...)
{
	char reason[256];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(reason, sizeof(reason), format, args);
	va_end(args);
	(void)snprintf(o->base.error, sizeof(o->base.error), "%.220s: offset %llu: %s", o->name,
		       (unsigned long long)off, reason);
	o->ended = true;
	o->err = err;
	return err;
}

/* ---- input ----------------------------------------------------------------- */

/* Refill the input buffer from the file. n is 0 at the end of the file. */
static int input_fill(struct owc_input *in)
{
	ssize_t n;

	do
		n = read(in->fd, in->buffer, sizeof(in->buffer));
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	in->pos = 0;
	in->n = (size_t)n;
	return 0;
}

/* Read up to size bytes. *got is less than size only at the end of the file. */
static int input_read(struct owc_input *in, void *out, size_t size, size_t *got)
{
	uint8_t *to = out;

	*got = 0;
	while (*got < size) {
		size_t n = in->n - in->pos;

		if (!n) {
			int err = input_fill(in);

			if (err)
				return err;
			if (!in->n)
				return 0;
			continue;
		}
		if (n > size - *got)
			n = size - *got;
		memcpy(to + *got, in->buffer + in->pos, n);
		in->pos += n;
		in->off += n;
		*got += n;
	}
	return 0;
}

/* ---- frames ---------------------------------------------------------------- */

/* Make room for more decompressed bytes. Return -EFBIG at the limit of OWC_CONTENT_MAX. */
static int content_grow(struct owc_content *c)
{
	size_t need = c->n < CONTENT_LEAST ? CONTENT_LEAST : c->n + 1;
	int err = UW_ARRAY_RESERVE(c->bytes, need, c->room, OWC_CONTENT_MAX);

	return err == -E2BIG ? -EFBIG : err;
}

/*
 * Decompress one zstd frame into o->content. Its magic number has been read already and is passed
 * to zstd first.
 *
 * If the file ends inside the frame, the content before that point is used. The content of a
 * damaged frame is discarded, because it cannot be trusted.
 */
static int read_zstd_frame(struct owc *o, const uint8_t magic[4])
{
	struct owc_content *c = &o->content;
	struct owc_input *in = &o->in;
	ZSTD_inBuffer from = { magic, 4, 0 };
	size_t rest = 1, before;
	bool at_end = false;

	c->n = c->pos = 0;
	c->off = in->off - 4;
	(void)ZSTD_DCtx_reset(o->zstd, ZSTD_reset_session_only);
	while (rest) {
		ZSTD_outBuffer to;
		int err = content_grow(c);

		if (err == -EFBIG)
			return end(o, -EBADMSG, c->off, "a frame of more than %d bytes",
				   OWC_CONTENT_MAX);
		if (err)
			return end(o, err, c->off, "%s", strerror(-err));
		if (from.pos == from.size) {
			if (in->pos == in->n) {
				err = input_fill(in);
				if (err)
					return end(o, err, in->off, "%s", strerror(-err));
			}
			from = (ZSTD_inBuffer){ in->buffer, in->n, in->pos };
			at_end = from.pos == from.size;
		}
		before = c->n;
		to = (ZSTD_outBuffer){ c->bytes, c->room, c->n };
		rest = ZSTD_decompressStream(o->zstd, &to, &from);
		if (ZSTD_isError(rest)) {
			c->n = 0;
			return end(o, -EBADMSG, c->off, "zstd frame: %s", ZSTD_getErrorName(rest));
		}
		c->n = to.pos;
		/*
		 * zstd may hold back output for which the buffer had no room, so repeat until
		 * nothing more comes.
		 */
		if (rest && at_end && c->n == before) {
			o->torn = -EBADMSG;
			c->cut = true;
			(void)snprintf(o->why, sizeof(o->why), "the file is cut short here");
			return 0;
		}
		if (from.src == in->buffer) {
			in->off += from.pos - in->pos;
			in->pos = from.pos;
		}
	}
	return 0;
}

/*
 * Read a skippable frame: check the index, which ends the file, and skip any other one.
 * read_index() uses the index; here only its place and its checksum are verified.
 */
static int read_skippable(struct owc *o, uint32_t magic)
{
	struct owc_input *in = &o->in;
	uint64_t start = in->off - 4;
	uint8_t head[4], tail[OWC_FOOTER_SIZE], piece[4096];
	uLong crc = crc32(0, NULL, 0);
	size_t size, left, got;
	int err = input_read(in, head, sizeof(head), &got);

	if (err)
		return end(o, err, in->off, "%s", strerror(-err));
	if (got < sizeof(head))
		return end(o, -EBADMSG, start, "the index is cut short");
	size = uw_bytes_little(head);
	if (magic == OWC_SKIPPABLE && (size < sizeof(tail) || o->indexed))
		return end(o, -EBADMSG, start, "damaged index");
	left = magic == OWC_SKIPPABLE ? size - sizeof(tail) : size;
	while (left) {
		size_t want = left < sizeof(piece) ? left : sizeof(piece);

		err = input_read(in, piece, want, &got);
		if (err)
			return end(o, err, in->off, "%s", strerror(-err));
		if (got < want)
			return end(o, -EBADMSG, start, "the index is cut short");
		crc = crc32(crc, piece, (uInt)want);
		left -= want;
	}
	if (magic != OWC_SKIPPABLE)
		return 0;
	err = input_read(in, tail, sizeof(tail), &got);
	if (err)
		return end(o, err, in->off, "%s", strerror(-err));
	if (got < sizeof(tail))
		return end(o, -EBADMSG, start, "the index is cut short");
	if (memcmp(tail + 16, OWC_FOOTER_MAGIC, 8) || uw_bytes_little8(tail) != start ||
	    uw_bytes_little(tail + 8) != size - sizeof(tail) || uw_bytes_little(tail + 12) != crc)
		return end(o, -EBADMSG, start, "damaged index");
	if (!o->trailer)
		return end(o, -EBADMSG, start, "an index before the trailer");
	o->indexed = true;
	return 0;
}

/* Seek over the frames of embedded files, which hold no events. */
static int pass_over_files(struct owc *o)
{
	struct owc_input *in = &o->in;

	if (!o->files || in->off != o->files_off || o->files_end <= o->files_off)
		return 0;
	if (lseek(in->fd, (off_t)o->files_end, SEEK_SET) < 0)
		return -errno;
	in->off = o->files_end;
	in->pos = in->n = 0;
	return 0;
}

/*
 * Read the next frame into o->content. Return 1 if there is one, 0 at the end of a complete file,
 * or a negative code after end() was called.
 */
static int next_frame(struct owc *o)
{
	for (;;) {
		uint8_t magic[4];
		uint32_t word;
		size_t got = 0;
		int err = pass_over_files(o);

		if (!err)
			err = input_read(&o->in, magic, sizeof(magic), &got);
		if (err)
			return end(o, err, o->in.off, "%s", strerror(-err));
		if (!got) {
			if (!o->indexed)
				return end(o, -EBADMSG, o->in.off, "the file ends without its %s",
					   o->trailer ? "index" : "trailer");
			o->ended = true;
			return 0;
		}
		if (got < sizeof(magic))
			return end(o, -EBADMSG, o->in.off - got, "the file is cut short here");
		word = uw_bytes_little(magic);
		if ((word & ~0xfu) == OWC_SKIPPABLE) {
			err = read_skippable(o, word);
			if (err)
				return err;
			continue;
		}
		if (word != ZSTD_MAGICNUMBER)
			return end(o, -EBADMSG, o->in.off - 4, "no zstd frame where one begins");
		if (o->trailer)
			return end(o, -EBADMSG, o->in.off - 4, "a frame after the trailer");
		err = read_zstd_frame(o, magic);
		return err ? err : 1;
	}
}

/*
 * Unpack the record at content->pos into the arena. Return 1, or 0 at the end of the content, or
 * -EBADMSG with the reason in *why. In a frame that the file's end cut off, an incomplete record
 * is the end of the content, too.
 */
static int next_record(struct owc_content *c, struct arena *arena, Offwind__Capture__Record **out,
		       const char **why)
{
	const uint8_t *at = c->bytes + c->pos;
	size_t left = c->n - c->pos, size, n;
	int err;

	if (!left)
		return 0;
	err = owc_record_size(at, left, &size, &n);
	if (err) {
		*why = "a record's size runs on";
		return err == -ENODATA && c->cut ? 0 : -EBADMSG;
	}
	if (size > OWC_RECORD_MAX) {
		*why = "a record larger than any";
		return -EBADMSG;
	}
	if (size > left - n) {
		*why = "a record runs over the end of its frame";
		return c->cut ? 0 : -EBADMSG;
	}
	arena_reset(arena);
	*out = offwind__capture__record__unpack(&arena->allocator, size, at + n);
	if (!*out) {
		*why = "a damaged record";
		return -EBADMSG;
	}
	c->pos += n + size;
	return 1;
}

/*
 * source_ops.next: unpack records until one of them is an event, and read the next frame when the
 * content is used up.
 */
static int owc_next(struct source *source, struct event *event, int timeout_ms)
{
	struct owc *o = (struct owc *)source;

	(void)timeout_ms;
	for (;;) {
		Offwind__Capture__Record *record = NULL;
		const char *why = NULL;
		size_t at = o->content.pos;
		bool is_event;
		int rc;

		if (o->ended)
			return o->err;
		rc = next_record(&o->content, &o->arena, &record, &why);
		if (rc > 0)
			why = owc_take_record(o, record, event, &is_event);
		if (rc < 0 || (rc > 0 && why))
			return end(o, why == owc_no_memory ? -ENOMEM : -EBADMSG, o->content.off,
				   "byte %zu of the frame there: %s", at, why);
		if (rc > 0 && is_event)
			return 1;
		if (rc > 0)
			continue;
		if (o->torn)
			return end(o, o->torn, o->in.off, "%s", o->why);
		rc = next_frame(o);
		if (rc <= 0)
			return rc;
	}
}

/* ---- opening --------------------------------------------------------------- */

/*
 * Add the kernel symbols of the frame at off. Return false if the frame cannot be read; the
 * symbols are then read from the stream.
 */
static bool symbols_of_frame(struct owc *o, uint64_t off, const Offwind__Capture__Frame *f)
{
	uint8_t *packed = malloc(f->size);
	struct owc_content c = { .bytes = malloc(f->content_size + 1) };
	Offwind__Capture__Record *record;
	struct arena arena;
	const char *why = NULL;
	bool ok = packed && c.bytes && !io_read_at(o->in.fd, off, packed, f->size);

	arena_init(&arena, ARENA_MAX);
	c.n = ok ? ZSTD_decompressDCtx(o->zstd, c.bytes, f->content_size, packed, f->size) : 0;
	ok = ok && !ZSTD_isError(c.n);
	while (ok && !why && next_record(&c, &arena, &record, &why) > 0)
		if (record->kind_case == OFFWIND__CAPTURE__RECORD__KIND_KERNEL_SYMBOLS)
			why = owc_take_symbols(o, record->kernel_symbols);
	free(packed);
	free(c.bytes);
	arena_fini(&arena);
	return ok && !why;
}

/* Free the blocks that were allocated since `before` was the latest one; NULL: all of them. */
static void free_blocks(struct owc *o, const struct owc_block *before)
{
	while (o->blocks != before) {
		struct owc_block *next = o->blocks->next;

		free(o->blocks);
		o->blocks = next;
	}
}

/*
 * Read all frames that hold kernel symbols, as the index lists them. end_off is where the index
 * begins; the sizes of all frames must add up to it.
 */
static void symbols_by_index(struct owc *o, const Offwind__Capture__Index *index, uint64_t end_off)
{
	const struct owc_block *before = o->blocks;
	uint64_t off = OWC_HEAD_SIZE;
	bool ok = true;

	for (size_t i = 0; ok && i < index->n_frames; i++) {
		const Offwind__Capture__Frame *f = index->frames[i];

		if (f->size > end_off - off)
			ok = false;
		else if (f->kernel_symbols)
			ok = f->content_size <= OWC_CONTENT_MAX &&
			     f->size <= ZSTD_compressBound(OWC_CONTENT_MAX) &&
			     symbols_of_frame(o, off, f);
		off += ok ? f->size : 0;
	}
	o->all_symbols = ok && off == end_off;
	if (!o->all_symbols) {
		/* Discard what was read: the stream will deliver all symbols. */
		free_blocks(o, before);
		o->n_symbols = o->symbol_bytes = 0;
		o->base.info.kernel_symbols = NULL;
		o->base.info.n_kernel_symbols = 0;
	}
}

/*
 * Read the index at the end of a seekable file. It lists the frames with kernel symbols, so that
 * these are known before the first sample. It also lists the embedded files.
 *
 * A missing or damaged index is not an error here. It is reported when the stream reaches that
 * place.
 */
static void read_index(struct owc *o)
{
	off_t size = lseek(o->in.fd, 0, SEEK_END);
	uint8_t footer[OWC_FOOTER_SIZE], *packed = NULL;
	Offwind__Capture__Index *index = NULL;
	struct arena arena;
	uint64_t off, room;
	uint32_t n;

	if (lseek(o->in.fd, 0, SEEK_SET) || size < OWC_HEAD_SIZE + 8 + OWC_FOOTER_SIZE)
		return;
	if (io_read_at(o->in.fd, (uint64_t)size - sizeof(footer), footer, sizeof(footer)) ||
	    memcmp(footer + 16, OWC_FOOTER_MAGIC, 8))
		return;
	off = uw_bytes_little8(footer);
	n = uw_bytes_little(footer + 8);
	room = (uint64_t)size - sizeof(footer) - 8;
	if (n > OWC_INDEX_MAX || n > room || off != room - n || off < OWC_HEAD_SIZE)
		return;
	packed = malloc(n + 1u);
	arena_init(&arena, (size_t)OWC_INDEX_MAX * 8);
	if (packed && !io_read_at(o->in.fd, off + 8, packed, n) &&
	    (uint32_t)crc32(0, packed, (uInt)n) == uw_bytes_little(footer + 12))
		index = offwind__capture__index__unpack(&arena.allocator, n, packed);
	if (index)
		symbols_by_index(o, index, off);
	/*
	 * Without embedded files some frames may have no names. An error in the index is reported
	 * when the stream reaches it.
	 */
	if (index && !owc_files_new(o->in.fd, index, off, &o->files) && o->files) {
		owc_files_span(o->files, &o->files_off, &o->files_end);
		o->base.info.embedded_file = owc_files_open;
		o->base.info.embedded_file_ctx = o->files;
	}
	arena_fini(&arena);
	free(packed);
}

/*
 * Read the head of the file, the index if there is one, and the first record, which must be a
 * header.
 */
static int begin(struct owc *o)
{
	uint8_t head[OWC_HEAD_SIZE];
	Offwind__Capture__Record *record = NULL;
	const char *why = "no header";
	size_t got, skip;
	int rc;

	if (lseek(o->in.fd, 0, SEEK_CUR) >= 0)
		read_index(o);
	rc = input_read(&o->in, head, sizeof(head), &got);
	if (rc)
		return end(o, rc, 0, "%s", strerror(-rc));
	if (got < 8 || memcmp(head, OWC_MAGIC, 8))
		return end(o, -EBADMSG, 0, "not a capture file");
	if (got < sizeof(head))
		return end(o, -EBADMSG, got, "the file is cut short here");
	if (uw_bytes_little(head + 8) != OWC_VERSION)
		return end(o, -ENOTSUP, 8, "capture file version %u, this program reads %d",
			   uw_bytes_little(head + 8), OWC_VERSION);
	skip = uw_bytes_little(head + 12);
	if (skip != sizeof(head))
		return end(o, -EBADMSG, 12, "a head of %zu bytes", skip);
	rc = next_frame(o);
	if (rc < 0)
		return rc;
	rc = rc ? next_record(&o->content, &o->arena, &record, &why) : 0;
	if (rc > 0 && record->kind_case == OFFWIND__CAPTURE__RECORD__KIND_HEADER)
		why = owc_take_header(o, record->header);
	else if (rc > 0)
		why = "no header where the records begin";
	if (!o->any_header && o->torn)
		return end(o, -EBADMSG, o->in.off, "%s", o->why);
	if (rc > 0 && !why)
		return 0;
	return end(o, why == owc_no_memory ? -ENOMEM : -EBADMSG, o->content.off, "%s", why);
}

/* source_ops.close: free everything and close the file. */
static void owc_close(struct source *source)
{
	struct owc *o = (struct owc *)source;

	free_blocks(o, NULL);
	owc_files_free(o->files);
	(void)ZSTD_freeDCtx(o->zstd);
	arena_fini(&o->arena);
	free(o->content.bytes);
	free(o->images);
	free(o->symbols);
	(void)close(o->in.fd);
	free(o);
}

static const struct source_ops ops = { .next = owc_next, .close = owc_close };

/* Limit the window of zstd to 64 MiB (2^26), so that a hostile frame cannot ask for more memory. */
int source_owc_open(int fd, const char *name, struct source **out, char *error)
{
	struct owc *o = calloc(1, sizeof(*o));
	int err;

	if (!o) {
		(void)snprintf(error, 512, "%s: %s", name, strerror(ENOMEM));
		(void)close(fd);
		return -ENOMEM;
	}
	o->base.ops = &ops;
	o->in.fd = fd;
	(void)snprintf(o->base.info.kind, sizeof(o->base.info.kind), "capture");
	(void)snprintf(o->name, sizeof(o->name), "%s", name);
	arena_init(&o->arena, ARENA_MAX);
	offwind__capture__trailer__init(&o->seen);
	o->zstd = ZSTD_createDCtx();
	if (o->zstd) {
		(void)ZSTD_DCtx_setParameter(o->zstd, ZSTD_d_windowLogMax, 26);
		err = begin(o);
	} else {
		err = end(o, -ENOMEM, 0, "%s", strerror(ENOMEM));
	}
	if (err) {
		(void)snprintf(error, sizeof(o->base.error), "%s", o->base.error);
		owc_close(&o->base);
		return err;
	}
	*out = &o->base;
	return 0;
}
