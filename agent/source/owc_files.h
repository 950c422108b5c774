/*
 * agent/source/owc_files.h: the files that a capture keeps, put together again when they are asked
 * for; internal to the reader of captures.
 */
#ifndef AGENT_SOURCE_OWC_FILES_H
#define AGENT_SOURCE_OWC_FILES_H

#include "proto/capture.pb-c.h"
#include "unwinder/unwinder.h"

#include <stddef.h>
#include <stdint.h>

struct owc_files;

/*
 * Take what the index says of kept files.  fd is borrowed and must be seekable; end_off is where the
 * index begins.  *out is NULL where no file is kept.  -EBADMSG: entries that cannot be; -ENOMEM.
 */
int owc_files_new(int fd, const Offwind__Capture__Index *index, uint64_t end_off,
		  struct owc_files **out);
void owc_files_free(struct owc_files *files); /* NULL is fine */

/* Where the frames of all kept files begin and end in the capture: [*start, *end) can be passed over. */
void owc_files_span(const struct owc_files *files, uint64_t *start, uint64_t *end);

/*
 * A source_info.kept_file, ctx: the owc_files.  The descriptor is of a file in memory.  -EBADMSG:
 * damaged; -EFBIG: more than a capture may unpack to; or a system code.
 */
int owc_files_open(void *ctx, uint32_t major, uint32_t minor, uint64_t inode, const char *path,
		   struct uw_build_id *build_id, int *fd);

#endif
