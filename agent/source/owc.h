/*
 * agent/source/owc.h: writes capture files; source_owc_open reads them.
 * The layout is in proto/capture.proto.
 */
#ifndef AGENT_SOURCE_OWC_H
#define AGENT_SOURCE_OWC_H

#include "agent/event.h"
#include "agent/source/source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct owc_writer;

/*
 * fd is written from where it stands and stays the caller's; it needs no
 * seeking.  info is borrowed until close, and read again as it becomes fuller;
 * with same_boot set the file keeps this machine's boot id.
 */
int owc_writer_open(int fd, const struct source_info *info, struct owc_writer **out);

/*
 * Events in the order the source gave them.  What is buffered goes out when it
 * reaches 1 MiB or is a second old at the next call, so that a kill loses little.
 *
 * A failed write (-ENOSPC, …) is returned once, by the call that met it; the
 * calls after it write nothing and return 0, close returns it again.  -E2BIG: an
 * event that no reader would take, larger than 16 MiB; it alone is left out.  What a failed
 * write left behind is cut off a regular file, which then ends behind a whole frame.
 */
int owc_writer_event(struct owc_writer *w, const struct event *event);
int owc_writer_flush(struct owc_writer *w); /* what is buffered, now */
int owc_writer_idle(struct owc_writer *w);  /* if it is a second old; for when no event comes */

/* How many samples are in the file, not counting those that are buffered. */
uint64_t owc_writer_samples(const struct owc_writer *w);

/*
 * The lookup addresses of all kernel frames written so far, each once, in the
 * order they came (at most a million); borrowed until the next event.
 */
const uint64_t *owc_writer_kernel_lookups(const struct owc_writer *w, size_t *n);

/* Names for them, sorted by address, so that kernel frames have names elsewhere; before close. */
int owc_writer_kernel_symbols(struct owc_writer *w, const struct source_kernel_symbol *symbols,
			      size_t n);

/*
 * A file of a mapping that is kept in the capture.  begin, then any number of pieces, then end; a
 * piece has at most OWC_PIECE_MAX bytes.  After the kernel symbols and before close.
 */
struct owc_file {
	const char *path; /* as in its mappings; borrowed until end */
	uint32_t major, minor;
	uint64_t inode;
	struct uw_build_id build_id; /* size 0: it has none */
	uint64_t size;
};
#define OWC_PIECE_MAX (1 << 20)
int owc_writer_file_begin(struct owc_writer *w, const struct owc_file *file);
int owc_writer_file_piece(struct owc_writer *w, uint64_t off, const void *bytes, size_t size);
int owc_writer_file_end(struct owc_writer *w, bool drop); /* drop: as if it had not begun */
/* The file that ended last has the contents of this one, too: a copy with another inode. */
int owc_writer_file_again(struct owc_writer *w, const struct owc_file *file);

/* Completes the file and frees w (NULL is fine); 0, or the first failure of all. */
int owc_writer_close(struct owc_writer *w);

#endif
