/*
 * agent/owc/reader.h: the private state of the reader of capture files; read.c reads the frames and
 * their records, and messages.c turns the records into events.
 */
#ifndef AGENT_OWC_READER_H
#define AGENT_OWC_READER_H

#include "agent/owc/embedded.h"
#include "agent/source/source.h"
#include "proto/arena.h"
#include "proto/capture.pb-c.h"

#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zstd.h>

struct owc_image {
	uint32_t id;
	uint64_t size;
	uint8_t *bytes;
};

struct owc_input {
	int fd;
	uint64_t off; /* file offset of the next byte */
	size_t pos, n;
	uint8_t buffer[64 * 1024];
};

struct owc_content { /* the decompressed content of one frame */
	uint8_t *bytes;
	size_t pos, n, room;
	uint64_t off; /* file offset of the frame */
	bool cut;     /* the file ends inside the frame */
};

/* A block of memory for headers, images and symbols. All blocks live as long as the source. */
struct owc_block {
	struct owc_block *next;
	alignas(max_align_t) char bytes[];
};

struct owc {
	struct source base; /* the first member */
	char name[256];
	struct owc_input in;
	ZSTD_DCtx *zstd;
	struct owc_content content;
	struct arena arena; /* memory of the current record */
	struct owc_block *blocks;
	bool any_header, ended, all_symbols;
	int err;       /* error code that ended the stream; 0: the file is complete */
	int torn;      /* error to return once the content is used up; 0: none */
	char why[256]; /* the message for torn */
	size_t n_events_total;
	struct owc_image *images;
	size_t n_images, image_bytes;
	struct source_kernel_symbol *symbols;
	size_t n_symbols, room_symbols, symbol_bytes;
	struct owc_files *files;	/* embedded files; NULL: none, or fd is not seekable */
	uint64_t files_off, files_end;	/* the file range of all their frames */
	bool trailer, indexed;		/* the trailer, the index was read */
	Offwind__Capture__Trailer seen; /* counted while reading */
};

/* What owc_take_… returns if memory is short; compared by address. */
extern const char owc_no_memory[];

/*
 * Copy a header into source.info. Return NULL, or what is wrong with the header. A file has
 * several headers if facts became known during the recording; the last one is valid.
 */
const char *owc_take_header(struct owc *o, const Offwind__Capture__Header *h);

/* Add kernel symbols to source.info, sorted by address. Return NULL, or what is wrong. */
const char *owc_take_symbols(struct owc *o, const Offwind__Capture__KernelSymbols *s);

/*
 * Process one record of any kind. Return NULL, or what is wrong. *is_event says whether *e was
 * filled.
 */
const char *owc_take_record(struct owc *o, const Offwind__Capture__Record *r, struct event *e,
			    bool *is_event);

#endif
