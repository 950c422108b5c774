/* agent/owc/embedded.c: extracts the files embedded in a capture into memory. */
#include "agent/owc/embedded.h"

#include "agent/io.h"
#include "agent/owc/owc_format.h"
#include "proto/arena.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zstd.h>

enum {
	FILES_MAX = 65536,
	ARENA_MAX = 2 * OWC_RECORD_MAX, /* bytes that one record may take after unpacking */
};
#define FILE_SIZE_MAX ((uint64_t)1 << 40) /* apparent size; holes between pieces take no memory */
#define UNPACKED_MAX  ((uint64_t)2 << 30) /* bytes of frames, each time that one is unpacked */
#define HOLE	      4096		  /* zero blocks of this size stay holes */

struct frame {
	uint64_t off, size, content_size;
};

struct file {
	char *path; /* owned */
	uint32_t major, minor;
	uint64_t inode, size;
	struct uw_build_id build_id;
	size_t first_frame, n_frames;
};

struct owc_files {
	int fd;
	struct file *files;
	size_t n_files;
	struct frame *frames; /* all frames of the capture */
	size_t n_frames;
	uint64_t unpacked;
};

/* Read the list of all frames from the index. Their sizes may not reach beyond end_off. */
static int take_frames(struct owc_files *f, const Offwind__Capture__Index *index, uint64_t end_off)
{
	uint64_t off = OWC_HEAD_SIZE;

	f->frames = calloc(index->n_frames + 1, sizeof(*f->frames));
	if (!f->frames)
		return -ENOMEM;
	for (size_t i = 0; i < index->n_frames; i++) {
		const Offwind__Capture__Frame *from = index->frames[i];

		if (from->size > end_off - off)
			return -EBADMSG;
		f->frames[i] = (struct frame){ off, from->size, from->content_size };
		off += from->size;
	}
	f->n_frames = index->n_frames;
	return 0;
}

/* Read one entry for an embedded file from the index. */
static int take_file(struct owc_files *f, const Offwind__Capture__EmbeddedFile *from)
{
	struct file *to = &f->files[f->n_files];

	if (from->size > FILE_SIZE_MAX || from->build_id.len > UW_BUILD_ID_MAX ||
	    from->first_frame > f->n_frames || from->n_frames > f->n_frames - from->first_frame ||
	    (from->path.len && memchr(from->path.data, 0, from->path.len)))
		return -EBADMSG;
	to->path = calloc(1, from->path.len + 1);
	if (!to->path)
		return -ENOMEM;
	f->n_files++;
	if (from->path.len)
		memcpy(to->path, from->path.data, from->path.len);
	to->major = from->major;
	to->minor = from->minor;
	to->inode = from->inode;
	to->size = from->size;
	to->build_id.size = (uint8_t)from->build_id.len;
	if (from->build_id.len)
		memcpy(to->build_id.bytes, from->build_id.data, from->build_id.len);
	to->first_frame = from->first_frame;
	to->n_frames = from->n_frames;
	return 0;
}

int owc_files_new(int fd, const Offwind__Capture__Index *index, uint64_t end_off,
		  struct owc_files **out)
{
	struct owc_files *f;
	int err;

	*out = NULL;
	if (!index->n_files)
		return 0;
	if (index->n_files > FILES_MAX)
		return -EBADMSG;
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->fd = fd;
	f->files = calloc(index->n_files, sizeof(*f->files));
	err = f->files ? take_frames(f, index, end_off) : -ENOMEM;
	for (size_t i = 0; !err && i < index->n_files; i++)
		err = take_file(f, index->files[i]);
	if (err) {
		owc_files_free(f);
		return err;
	}
	*out = f;
	return 0;
}

void owc_files_free(struct owc_files *files)
{
	if (!files)
		return;
	for (size_t i = 0; i < files->n_files; i++)
		free(files->files[i].path);
	free(files->files);
	free(files->frames);
	free(files);
}

void owc_files_span(const struct owc_files *files, uint64_t *start, uint64_t *end)
{
	*start = UINT64_MAX;
	*end = 0;
	for (size_t i = 0; i < files->n_files; i++) {
		const struct file *file = &files->files[i];
		const struct frame *first, *last;

		if (!file->n_frames)
			continue;
		first = &files->frames[file->first_frame];
		last = first + file->n_frames - 1;
		if (first->off < *start)
			*start = first->off;
		if (last->off + last->size > *end)
			*end = last->off + last->size;
	}
}

/* Write a piece at off, except pages of zeros, which a new file in memory has already. */
static int put_piece(int fd, uint64_t off, const uint8_t *bytes, size_t size)
{
	static const uint8_t zeros[HOLE];

	while (size) {
		size_t n = size < HOLE ? size : HOLE;

		if (memcmp(bytes, zeros, n) != 0 && pwrite(fd, bytes, n, (off_t)off) != (ssize_t)n)
			return errno ? -errno : -EIO;
		bytes += n;
		off += n;
		size -= n;
	}
	return 0;
}

/* Write all pieces of one frame's content into fd, a file of size bytes. */
static int put_frame(const uint8_t *content, size_t n, uint64_t size, int fd)
{
	struct arena arena;
	int err = 0;

	arena_init(&arena, ARENA_MAX);
	while (!err && n) {
		Offwind__Capture__Record *record;
		const Offwind__Capture__FilePiece *piece;
		size_t length, used;

		if (owc_record_size(content, n, &length, &used) || length > n - used ||
		    length > OWC_RECORD_MAX) {
			err = -EBADMSG;
			break;
		}
		arena_reset(&arena);
		record = offwind__capture__record__unpack(&arena.allocator, length, content + used);
		content += used + length;
		n -= used + length;
		if (!record) {
			err = -EBADMSG;
			break;
		}
		if (record->kind_case != OFFWIND__CAPTURE__RECORD__KIND_FILE_PIECE)
			continue;
		piece = record->file_piece;
		if (piece->off > size || piece->content.len > size - piece->off)
			err = -EBADMSG;
		else
			err = put_piece(fd, piece->off, piece->content.data, piece->content.len);
	}
	arena_fini(&arena);
	return err;
}

/* Read and decompress one frame, and write its pieces into fd, a file of size bytes. */
static int unpack_frame(struct owc_files *f, ZSTD_DCtx *zstd, const struct frame *frame,
			uint64_t size, int fd)
{
	uint8_t *packed = NULL, *content = NULL;
	size_t n;
	int err = -EBADMSG;

	if (frame->content_size > OWC_CONTENT_MAX ||
	    frame->size > ZSTD_compressBound(OWC_CONTENT_MAX))
		return err;
	/* Files may share frames, and pieces may be a small part of what is unpacked. */
	if (frame->content_size > UNPACKED_MAX - f->unpacked)
		return -EFBIG;
	f->unpacked += frame->content_size;
	packed = malloc(frame->size + 1);
	content = malloc(frame->content_size + 1);
	err = packed && content ? io_read_at(f->fd, frame->off, packed, frame->size) : -ENOMEM;
	if (!err) {
		n = ZSTD_decompressDCtx(zstd, content, frame->content_size, packed, frame->size);
		err = ZSTD_isError(n) ? -EBADMSG : put_frame(content, n, size, fd);
	}
	free(packed);
	free(content);
	return err;
}

/*
 * Look up a file by build-id or, if build_id->size is 0, by device, inode and path. A stripped copy has the same build-id as
 * its original, and other code of it may be stored: of several the one at this path is taken.
 */
static const struct file *find(const struct owc_files *f, uint32_t major, uint32_t minor,
			       uint64_t inode, const char *path, const struct uw_build_id *build_id)
{
	const struct file *found = NULL;

	for (size_t i = 0; i < f->n_files; i++) {
		const struct file *file = &f->files[i];
		bool here = !strcmp(file->path, path),
		     same = file->major == major && file->minor == minor && file->inode == inode;

		if (build_id->size ? !uw_build_id_equal(&file->build_id, build_id) : !here || !same)
			continue;
		/* The kernel may have told the build-id of a mapping, and not its inode. */
		if (here && (same || !inode))
			return file;
		if (!found || (here && strcmp(found->path, path) != 0))
			found = file;
	}
	return found;
}

/*
 * Set the size first: a file may be embedded without some of its parts, which then read as zeros.
 */
int owc_files_open(void *ctx, uint32_t major, uint32_t minor, uint64_t inode, const char *path,
		   struct uw_build_id *build_id, int *fd)
{
	struct owc_files *f = ctx;
	const struct file *file = find(f, major, minor, inode, path, build_id);
	ZSTD_DCtx *zstd;
	int to, err = 0;

	if (!file)
		return -ENOENT;
	*build_id = file->build_id;
	if (!fd)
		return 0;
	to = memfd_create("offwind-embedded", MFD_CLOEXEC);
	if (to < 0)
		return -errno;
	zstd = ZSTD_createDCtx();
	if (!zstd)
		err = -ENOMEM;
	else if (ftruncate(to, (off_t)file->size))
		err = -errno;
	for (size_t i = 0; !err && i < file->n_frames; i++)
		err = unpack_frame(f, zstd, &f->frames[file->first_frame + i], file->size, to);
	(void)ZSTD_freeDCtx(zstd);
	if (err) {
		(void)close(to);
		return err;
	}
	*fd = to;
	return 0;
}
