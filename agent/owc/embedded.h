/*
 * agent/owc/embedded.h: extracts the files embedded in a capture; internal to the reader of
 * captures.
 */
#ifndef AGENT_OWC_EMBEDDED_H
#define AGENT_OWC_EMBEDDED_H

#include "proto/capture.pb-c.h"
#include "unwinder/unwinder.h"

#include <stddef.h>
#include <stdint.h>

struct owc_files;

/*
 * Read the list of embedded files from the index. fd is borrowed and must be seekable. end_off is
 * the file offset where the index begins. *out is NULL if no file is embedded. Return -EBADMSG for
 * impossible entries, or -ENOMEM.
 */
int owc_files_new(int fd, const Offwind__Capture__Index *index, uint64_t end_off,
		  struct owc_files **out);
void owc_files_free(struct owc_files *files); /* NULL is fine */

/*
 * Return the range [*start, *end) of the capture that holds the frames of all embedded files. A
 * reader of events can skip it. If no file has frames, *start is larger than *end.
 */
void owc_files_span(const struct owc_files *files, uint64_t *start, uint64_t *end);

/*
 * Extract an embedded file; this is a source_info.embedded_file function, and ctx is the owc_files.
 * *fd is a new file in memory (memfd) that the caller closes. Return -EBADMSG if the capture is
 * damaged, -EFBIG if all extracted files together exceed the limit (2 GiB), or a system error.
 */
int owc_files_open(void *ctx, uint32_t major, uint32_t minor, uint64_t inode, const char *path,
		   struct uw_build_id *build_id, int *fd);

#endif
