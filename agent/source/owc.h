/*
 * agent/source/owc.h: writes capture files; source_owc_open reads them.
 * The layout is in proto/capture.proto.
 */
#ifndef AGENT_SOURCE_OWC_H
#define AGENT_SOURCE_OWC_H

#include "agent/event.h"
#include "agent/source/source.h"

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
 * event that no reader would take, larger than 16 MiB; it alone is left out.
 */
int owc_writer_event(struct owc_writer *w, const struct event *event);
int owc_writer_flush(struct owc_writer *w); /* what is buffered, now */
int owc_writer_idle(struct owc_writer *w);  /* if it is a second old; for when no event comes */

/*
 * The lookup addresses of all kernel frames written so far, each once, in the
 * order they came (at most a million); borrowed until the next event.
 */
const uint64_t *owc_writer_kernel_lookups(const struct owc_writer *w, size_t *n);

/* Names for them, sorted by address, so that kernel frames have names elsewhere; before close. */
int owc_writer_kernel_symbols(struct owc_writer *w, const struct source_kernel_symbol *symbols,
			      size_t n);

/* Completes the file and frees w (NULL is fine); 0, or the first failure of all. */
int owc_writer_close(struct owc_writer *w);

#endif
