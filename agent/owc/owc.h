/*
 * agent/owc/owc.h: writes capture files; source_owc_open() reads them. proto/capture.proto
 * describes the format.
 */
#ifndef AGENT_OWC_OWC_H
#define AGENT_OWC_OWC_H

#include "agent/event.h"
#include "agent/source/source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct owc_writer;

/*
 * Start a capture file at the current position of fd, which need not be seekable. The caller
 * closes fd after owc_writer_close(). info is borrowed until close and read again during writing,
 * because facts may be added to it. If info->same_boot is set, the boot id of this machine is
 * written, too. -ENOMEM, or the error of the first write.
 */
int owc_writer_open(int fd, const struct source_info *info, struct owc_writer **out);

/*
 * Append an event. Events must be passed in the order in which the source returned them. A frame
 * is written when it has 1 MiB, or when it is older than one second at the time of a call, so that
 * little is lost if the process is killed.
 *
 * A failed write (-ENOSPC, ...) is returned once, by the call in which it happened. Later calls
 * write nothing and return 0; owc_writer_close() returns the error again. In a regular file the
 * incomplete frame of a failed write is cut off, so that the file ends with a complete frame.
 *
 * -E2BIG: the event is larger than 16 MiB, which readers do not accept. Only this event is left
 * out.
 */
int owc_writer_event(struct owc_writer *w, const struct event *event);
int owc_writer_flush(struct owc_writer *w); /* write what is buffered */
int owc_writer_idle(struct owc_writer *w);  /* if it is older than a second, for idle times */

/* Return how many samples are in the file. Buffered samples are not counted. */
uint64_t owc_writer_samples(const struct owc_writer *w);

/*
 * Return the lookup addresses of all kernel frames written so far, without duplicates, in order of
 * appearance, at most a million (1 << 20). The array is borrowed until the next event.
 */
const uint64_t *owc_writer_kernel_lookups(const struct owc_writer *w, size_t *n);

/*
 * Write the symbols for these addresses, sorted by address, so that kernel frames have names on
 * other machines. Call it before close.
 */
int owc_writer_kernel_symbols(struct owc_writer *w, const struct source_kernel_symbol *symbols,
			      size_t n);

/*
 * A mapped file that is embedded in the capture. Call owc_writer_file_begin(), then
 * owc_writer_file_piece() any number of times, then owc_writer_file_end(). Files follow the kernel
 * symbols and precede close.
 */
struct owc_file {
	const char *path; /* as in the file's mappings; copied by owc_writer_file_begin() */
	uint32_t major, minor;
	uint64_t inode;
	struct uw_build_id build_id; /* size 0: the file has none */
	uint64_t size;
};
int owc_writer_file_begin(struct owc_writer *w, const struct owc_file *file);
int owc_writer_file_piece(struct owc_writer *w, uint64_t off, const void *bytes, size_t size);
int owc_writer_file_end(struct owc_writer *w, bool drop); /* drop: leave it out of the index */
/*
 * Add another file with the same contents as the file that was ended last: a copy with another
 * inode.
 */
int owc_writer_file_again(struct owc_writer *w, const struct owc_file *file);

/* Write trailer and index, and free w (NULL is fine). Return 0, or the first error since open. */
int owc_writer_close(struct owc_writer *w);

#endif
