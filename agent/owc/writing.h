/*
 * agent/owc/writing.h: the private state of the writer of capture files; pack.c makes records, and
 * write.c collects them into frames and writes these.
 */
#ifndef AGENT_OWC_WRITING_H
#define AGENT_OWC_WRITING_H

#include "agent/hash.h"
#include "agent/owc/owc.h"
#include "proto/capture.pb-c.h"

#include <string.h>
#include <zstd.h>

/* Stored images; further ones are written each time. */
enum { OWC_IMAGES_MAX = 64 };

struct owc_written_image {
	uint32_t id;
	uint8_t *bytes;
	uint64_t size;
};

struct owc_written_frame { /* like Frame in the index */
	uint64_t size, content_size, first_time_ns, last_time_ns;
	uint32_t n_events, n_samples;
	bool kernel_symbols;
};

struct owc_written_file { /* like EmbeddedFile in the index */
	struct owc_file file;
	char *path; /* owned */
	uint32_t first_frame, n_frames;
};

struct owc_writer {
	int fd;
	int err;       /* the first error; nothing is written after it */
	bool reported; /* err has been returned */
	const struct source_info *info;
	uint64_t off; /* bytes written */
	ZSTD_CCtx *zstd;

	uint8_t *content; /* content of the frame being filled */
	size_t n_content, room_content;
	uint8_t *packed; /* room for a compressed frame */
	size_t room_packed;
	uint64_t frame_since_ns; /* when its first record was added, CLOCK_MONOTONIC */
	struct owc_written_frame frame;
	struct owc_written_frame *frames;
	size_t n_frames, room_frames;

	uint8_t *header; /* the packed header that was written last */
	size_t n_header, n_header_events;
	struct owc_written_image images[OWC_IMAGES_MAX];
	size_t n_images;
	uint32_t next_image;
	Offwind__Capture__Region *regions; /* buffer for one sample */
	Offwind__Capture__Region **region_list;
	size_t room_regions;
	Offwind__Capture__Trailer totals;
	uint64_t n_written; /* samples in the complete frames of the file */

	struct owc_written_file *files;
	size_t n_files, room_files;

	uint64_t *lookups;
	size_t n_lookups, room_lookups;
	struct uw_hash_index by_lookup;
};

/* Store the first error; later ones are ignored. */
void owc_fail(struct owc_writer *w, int err);

/*
 * Append a record to the frame: its size as a varint, then the packed record. Return -E2BIG if the
 * record is larger than readers accept. If memory is short, set w->err and return 0.
 */
int owc_add_record(struct owc_writer *w, const Offwind__Capture__Record *record);

/* Append a header if it changed since the last one. Event kinds may be added during a recording. */
void owc_pack_header(struct owc_writer *w);

/* Append an event of any type. Return 0 or -E2BIG. */
int owc_pack_event(struct owc_writer *w, const struct event *e);

/* Append one record with n kernel symbols. */
void owc_pack_symbols(struct owc_writer *w, const struct source_kernel_symbol *symbols, size_t n);

/* Return s as protobuf bytes that borrow it; NULL becomes the empty text. */
static inline ProtobufCBinaryData owc_text(const char *s)
{
	return (ProtobufCBinaryData){ .len = s ? strlen(s) : 0, .data = (uint8_t *)(uintptr_t)s };
}

/* Return size bytes as protobuf bytes that borrow them. */
static inline ProtobufCBinaryData owc_bytes(const void *bytes, size_t size)
{
	return (ProtobufCBinaryData){ .len = size, .data = (uint8_t *)(uintptr_t)bytes };
}

#endif
