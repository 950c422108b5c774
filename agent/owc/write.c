/*
 * agent/owc/write.c: writes capture files (.owc). proto/capture.proto describes the format.
 *
 * Records are collected in memory and written as one zstd frame at a time. The index of all frames
 * is written at the end.
 */
#include "agent/owc/writing.h"

#include "agent/array.h"
#include "agent/clock.h"
#include "agent/owc/owc_format.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum {
	FRAME_SIZE = 1 << 20,	 /* a frame of this content size is written */
	SYMBOLS_A_RECORD = 4096, /* kernel symbols in one record */
};

static const uint64_t frame_age_ns = 1000000000;

/*
 * Return w->err if it has not been returned yet, else 0. All public functions return through this
 * one, so that an error is returned once.
 */
static int outcome(struct owc_writer *w)
{
	if (!w->err || w->reported)
		return 0;
	w->reported = true;
	return w->err;
}

void owc_fail(struct owc_writer *w, int err)
{
	if (!w->err)
		w->err = err;
}

/*
 * Truncate a regular file to off after a failed write, so that it ends with a complete frame and
 * n_written is the number of samples in it.
 */
static void cut_off(struct owc_writer *w, uint64_t off)
{
	struct stat st;

	/* Do not truncate a file that had contents before: its offsets differ from w->off. */
	if (w->off == off || fstat(w->fd, &st) || !S_ISREG(st.st_mode) ||
	    (uint64_t)st.st_size != w->off)
		return;
	if (!ftruncate(w->fd, (off_t)off))
		w->off = off;
}

/* Write all bytes. On failure set w->err and remove the bytes of this call from the file. */
static void write_bytes(struct owc_writer *w, const void *bytes, size_t size)
{
	const uint8_t *at = bytes;
	const uint64_t from = w->off;

	while (!w->err && size) {
		ssize_t n = write(w->fd, at, size);

		if (n > 0) {
			at += n;
			size -= (size_t)n;
			w->off += (uint64_t)n;
		} else if (n == 0 || errno != EINTR) {
			owc_fail(w, n ? -errno : -EIO);
			cut_off(w, from);
		}
	}
}

/* ---- frames ---------------------------------------------------------------- */

/*
 * Grow a buffer to at least want bytes. Return false and set w->err if there is no memory. Also
 * return false if an error happened before.
 */
static bool reserve(struct owc_writer *w, uint8_t **bytes, size_t *room, size_t want)
{
	if (!w->err && array_reserve(*bytes, want, *room))
		owc_fail(w, -ENOMEM);
	return !w->err;
}

/* Append the frame that was written to the list for the index. size is its compressed size. */
static void remember_frame(struct owc_writer *w, size_t size)
{
	if (array_grow(w->frames, w->n_frames, w->room_frames)) {
		owc_fail(w, -ENOMEM);
		return;
	}
	w->frame.size = size;
	w->frame.content_size = w->n_content;
	w->frames[w->n_frames++] = w->frame;
}

/* Compress the buffered content, write it as one frame and begin an empty one. */
static void write_frame(struct owc_writer *w)
{
	size_t size;

	if (!w->n_content ||
	    !reserve(w, &w->packed, &w->room_packed, ZSTD_compressBound(w->n_content)))
		return;
	size = ZSTD_compress2(w->zstd, w->packed, w->room_packed, w->content, w->n_content);
	if (ZSTD_isError(size)) {
		owc_fail(
			w,
			-ENOMEM); /* the only possible error, as there is room for the worst case */
		return;
	}
	write_bytes(w, w->packed, size);
	if (!w->err) {
		w->n_written += w->frame.n_samples;
		remember_frame(w, size);
	}
	w->n_content = 0;
	w->frame = (struct owc_written_frame){ 0 };
}

/* Write the buffered frame if it is large or old enough. */
static void write_frame_if_due(struct owc_writer *w)
{
	if (w->n_content >= FRAME_SIZE ||
	    (w->n_content && now_ns() - w->frame_since_ns >= frame_age_ns))
		write_frame(w);
}

int owc_add_record(struct owc_writer *w, const Offwind__Capture__Record *record)
{
	size_t size = offwind__capture__record__get_packed_size(record);
	uint8_t *at;

	if (size > OWC_RECORD_MAX)
		return -E2BIG;
	if (!reserve(w, &w->content, &w->room_content, w->n_content + size + 10))
		return 0;
	if (!w->n_content)
		w->frame_since_ns = now_ns();
	at = w->content + w->n_content;
	for (size_t rest = size;; rest >>= 7) {
		*at++ = (uint8_t)(rest >= 0x80 ? rest | 0x80 : rest);
		if (rest < 0x80)
			break;
	}
	at += offwind__capture__record__pack(record, at);
	w->n_content = (size_t)(at - w->content);
	return 0;
}

/* Count an event for the index and the trailer. */
static void count_event(struct owc_writer *w, const struct event *e)
{
	if (e->type == EVENT_CGROUP || e->type == EVENT_FREED || e->type == EVENT_GENERATED ||
	    e->type == EVENT_MEMORY || e->type == EVENT_WAKER)
		return; /* older readers skip these records, so counts leave them out */
	if (!w->frame.n_events++ || e->time_ns < w->frame.first_time_ns)
		w->frame.first_time_ns = e->time_ns;
	if (e->time_ns > w->frame.last_time_ns)
		w->frame.last_time_ns = e->time_ns;
	w->totals.n_events++;
	if (e->type == EVENT_SAMPLE) {
		w->frame.n_samples++;
		w->totals.n_samples++;
	} else if (e->type == EVENT_LOST) {
		w->totals.n_lost_samples += e->lost.n_samples;
		w->totals.n_lost_sideband += e->lost.n_sideband;
	}
}

int owc_writer_event(struct owc_writer *w, const struct event *event)
{
	int err;

	if (w->err)
		return outcome(w);
	/* A pipe may have described more event kinds since the last header. */
	if (!w->n_content || w->info->n_events != w->n_header_events)
		owc_pack_header(w);
	err = owc_pack_event(w, event);
	if (err)
		return err;
	if (!w->err)
		count_event(w, event);
	write_frame_if_due(w);
	return outcome(w);
}

uint64_t owc_writer_samples(const struct owc_writer *w)
{
	return w->n_written;
}

int owc_writer_flush(struct owc_writer *w)
{
	write_frame(w);
	return outcome(w);
}

int owc_writer_idle(struct owc_writer *w)
{
	write_frame_if_due(w);
	return outcome(w);
}

/* ---- end of the file ----------------------------------------------------------- */

const uint64_t *owc_writer_kernel_lookups(const struct owc_writer *w, size_t *n)
{
	*n = w->n_lookups;
	return w->lookups;
}

int owc_writer_kernel_symbols(struct owc_writer *w, const struct source_kernel_symbol *symbols,
			      size_t n)
{
	write_frame(w); /* symbols get their own frames: readers fetch these first */
	for (size_t at = 0; !w->err && at < n; at += SYMBOLS_A_RECORD) {
		owc_pack_symbols(w, symbols + at,
				 n - at < SYMBOLS_A_RECORD ? n - at : SYMBOLS_A_RECORD);
		if (w->n_content >= FRAME_SIZE)
			write_frame(w);
	}
	write_frame(w);
	return outcome(w);
}

/* Append an entry for an embedded file whose frames begin at index first. The path is copied. */
static void add_file(struct owc_writer *w, const struct owc_file *file, uint32_t first, uint32_t n)
{
	char *path = strdup(file->path);

	if (!path || array_grow(w->files, w->n_files, w->room_files)) {
		free(path);
		owc_fail(w, -ENOMEM);
		return;
	}
	w->files[w->n_files++] = (struct owc_written_file){ *file, path, first, n };
}

int owc_writer_file_begin(struct owc_writer *w, const struct owc_file *file)
{
	write_frame(w); /* pieces get their own frames: readers of events skip them */
	add_file(w, file, (uint32_t)w->n_frames, 0);
	return outcome(w);
}

int owc_writer_file_again(struct owc_writer *w, const struct owc_file *file)
{
	const struct owc_written_file *last = &w->files[w->n_files - 1];

	add_file(w, file, last->first_frame, last->n_frames);
	return outcome(w);
}

int owc_writer_file_piece(struct owc_writer *w, uint64_t off, const void *bytes, size_t size)
{
	Offwind__Capture__Record record = OFFWIND__CAPTURE__RECORD__INIT;
	Offwind__Capture__FilePiece piece = OFFWIND__CAPTURE__FILE_PIECE__INIT;

	piece.off = off;
	piece.content = owc_bytes(bytes, size);
	record.kind_case = OFFWIND__CAPTURE__RECORD__KIND_FILE_PIECE;
	record.file_piece = &piece;
	if (owc_add_record(w, &record))
		owc_fail(w, -E2BIG);
	if (w->n_content >= FRAME_SIZE)
		write_frame(w);
	return outcome(w);
}

int owc_writer_file_end(struct owc_writer *w, bool drop)
{
	struct owc_written_file *file = &w->files[w->n_files - 1];

	write_frame(w);
	file->n_frames = (uint32_t)w->n_frames - file->first_frame;
	if (drop) {
		free(file->path);
		w->n_files--;
	}
	return outcome(w);
}

static void add_trailer(struct owc_writer *w)
{
	Offwind__Capture__Record record = OFFWIND__CAPTURE__RECORD__INIT;

	record.kind_case = OFFWIND__CAPTURE__RECORD__KIND_TRAILER;
	record.trailer = &w->totals;
	(void)owc_add_record(w, &record);
}

/*
 * Write the index as a skippable zstd frame, with the footer that readers find from the end of the
 * file.
 */
static void write_index(struct owc_writer *w)
{
	Offwind__Capture__Index index = OFFWIND__CAPTURE__INDEX__INIT;
	Offwind__Capture__Frame *frames = calloc(w->n_frames + 1, sizeof(*frames));
	Offwind__Capture__Frame **list = calloc(w->n_frames + 1, sizeof(*list));
	Offwind__Capture__EmbeddedFile *files = calloc(w->n_files + 1, sizeof(*files));
	Offwind__Capture__EmbeddedFile **file_list = calloc(w->n_files + 1, sizeof(*file_list));
	enum { HEAD = 8 };
	uint8_t *all = NULL, *footer;
	size_t size;

	if (!frames || !list || !files || !file_list)
		goto out;
	for (size_t i = 0; i < w->n_files; i++) {
		const struct owc_written_file *f = &w->files[i];

		offwind__capture__embedded_file__init(&files[i]);
		files[i].path = owc_text(f->path);
		files[i].major = f->file.major;
		files[i].minor = f->file.minor;
		files[i].inode = f->file.inode;
		files[i].build_id = owc_bytes(f->file.build_id.bytes, f->file.build_id.size);
		files[i].size = f->file.size;
		files[i].first_frame = f->first_frame;
		files[i].n_frames = f->n_frames;
		file_list[i] = &files[i];
	}
	index.files = file_list;
	index.n_files = w->n_files;
	for (size_t i = 0; i < w->n_frames; i++) {
		const struct owc_written_frame *f = &w->frames[i];

		offwind__capture__frame__init(&frames[i]);
		frames[i].size = f->size;
		frames[i].content_size = f->content_size;
		frames[i].first_time_ns = f->first_time_ns;
		frames[i].last_time_ns = f->last_time_ns;
		frames[i].n_events = f->n_events;
		frames[i].n_samples = f->n_samples;
		frames[i].kernel_symbols = f->kernel_symbols;
		list[i] = &frames[i];
	}
	index.frames = list;
	index.n_frames = w->n_frames;
	size = offwind__capture__index__get_packed_size(&index);
	/*
	 * Only a recording of a week or a terabyte has such an index. The file is complete with an
	 * empty one, too.
	 */
	if (size > OWC_INDEX_MAX) {
		index.n_frames = index.n_files = 0;
		size = 0;
	}
	all = malloc(HEAD + size + OWC_FOOTER_SIZE);
	if (!all)
		goto out;
	owc_put_u32(all, OWC_SKIPPABLE);
	owc_put_u32(all + 4, (uint32_t)(size + OWC_FOOTER_SIZE));
	(void)offwind__capture__index__pack(&index, all + HEAD);
	footer = all + HEAD + size;
	owc_put_u64(footer, w->off);
	owc_put_u32(footer + 8, (uint32_t)size);
	owc_put_u32(footer + 12, (uint32_t)crc32(0, all + HEAD, (uInt)size));
	memcpy(footer + 16, OWC_FOOTER_MAGIC, 8);
	/* Write all of it at once: on a full disk none of it stays. */
	write_bytes(w, all, HEAD + size + OWC_FOOTER_SIZE);
out:
	if (!all)
		owc_fail(w, -ENOMEM);
	free(frames);
	free(list);
	free(files);
	free(file_list);
	free(all);
}

int owc_writer_open(int fd, const struct source_info *info, struct owc_writer **out)
{
	struct owc_writer *w = calloc(1, sizeof(*w));
	uint8_t head[OWC_HEAD_SIZE] = OWC_MAGIC;
	int err = -ENOMEM;

	if (!w)
		return -ENOMEM;
	w->fd = fd;
	w->info = info;
	offwind__capture__trailer__init(&w->totals);
	w->zstd = ZSTD_createCCtx();
	if (!w->zstd)
		goto out;
	(void)ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_compressionLevel, 1);
	(void)ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_checksumFlag, 1);
	owc_put_u32(head + 8, OWC_VERSION);
	owc_put_u32(head + 12, OWC_HEAD_SIZE);
	write_bytes(w, head, sizeof(head));
	owc_pack_header(w);
	err = w->err;
out:
	if (err) {
		w->err = err;
		(void)owc_writer_close(w);
		return err;
	}
	*out = w;
	return 0;
}

int owc_writer_close(struct owc_writer *w)
{
	int err;

	if (!w)
		return 0;
	if (!w->err)
		owc_pack_header(w);
	add_trailer(w);
	write_frame(w);
	if (!w->err)
		write_index(w);
	err = w->err;
	for (size_t i = 0; i < w->n_images; i++)
		free(w->images[i].bytes);
	for (size_t i = 0; i < w->n_files; i++)
		free(w->files[i].path);
	free(w->files);
	(void)ZSTD_freeCCtx(w->zstd);
	free(w->content);
	free(w->packed);
	free(w->frames);
	free(w->header);
	free(w->regions);
	free(w->region_list);
	free(w->lookups);
	uw_hash_fini(&w->by_lookup);
	free(w);
	return err;
}
