/*
 * unwinder/file_bytes.h: what the library takes of a file: its build-id, stored blobs, mapped
 * bytes, and what may stop unpacking. Part of unwinder.h.
 */
#ifndef UNWINDER_FILE_BYTES_H
#define UNWINDER_FILE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- build-ids ---------------------------------------------------------- */

#define UW_BUILD_ID_MAX 32

/* A build-id, as the linker wrote it to the file. */
struct uw_build_id {
	uint8_t size; /* 0: the file has none */
	uint8_t bytes[UW_BUILD_ID_MAX];
};

/*
 * Return whether both build-ids have the same bytes. Zeros at the end are ignored: perf before 5.11
 * and simpleperf write build-ids of every size in 20 bytes.
 */
bool uw_build_id_equal(const struct uw_build_id *a, const struct uw_build_id *b);

/* ---- stored bytes ------------------------------------------------------- */

/*
 * Return the XXH64 of the bytes. Stored blobs are checked with it. It detects accidental damage
 * only: an attacker can compute it, too.
 */
uint64_t uw_checksum(const void *data, size_t size, uint64_t seed);

/*
 * A source of stored bytes, for blobs (schema/blob.h). read copies all of [off, off + size) to out,
 * or returns a negative code. damaged is called once if the bytes that read gave do not match their
 * checksums. release is called when nothing more will be read. The functions may be called from any
 * thread, but by one thread at a time.
 */
struct uw_blob_source {
	uint64_t size;
	int (*read)(void *ctx, uint64_t off, void *out, size_t size);
	void (*damaged)(void *ctx); /* NULL is allowed, for release, too */
	void (*release)(void *ctx);
	void *ctx;
};

/*
 * Open a stored blob and read its front part. The blob takes over source, and releases it on
 * failure, too. -EBADMSG: the front part is damaged, or the blob does not begin with magic.
 */
struct uw_blob;
int uw_blob_open(const struct uw_blob_source *source, uint32_t magic, struct uw_blob **out);

/* Free the blob and release its source; NULL is allowed. */
void uw_blob_free(struct uw_blob *blob);

/*
 * Return the address of the blob's first byte. Only the ranges that were passed to uw_blob_need are
 * valid; the front part is always valid.
 */
const void *uw_blob_bytes(const struct uw_blob *blob);

/* Return the size of the whole blob in bytes. */
uint64_t uw_blob_size(const struct uw_blob *blob);

/*
 * Make sure that [off, off + size) has been read and is undamaged. -EBADMSG: the range lies outside
 * the blob, or is damaged. Errors of the read function are returned unchanged.
 */
int uw_blob_need(struct uw_blob *blob, uint64_t off, uint64_t size);

/* Read and check the whole blob, with the errors of uw_blob_need. */
int uw_blob_whole(struct uw_blob *blob);

/* Return how many bytes have been read so far. */
uint64_t uw_blob_read(struct uw_blob *blob);

/* Check a whole blob in memory. bytes must be aligned to 8 (-EINVAL). -EBADMSG: it is damaged. */
int uw_blob_check(const void *bytes, size_t size);

/* Return how many bytes the checksums take for rest bytes after the front part. */
size_t uw_blob_sums(uint64_t rest);

/* Fill in the checksums of a blob that is complete otherwise. */
void uw_blob_seal(void *bytes);

/* ---- mapped bytes ------------------------------------------------------- */

/*
 * A file's bytes mapped in memory, from its first byte. An object that has a view also has a file
 * descriptor, and copies small reads from the view. cut returns whether some of the mapped bytes
 * are no longer in the file, as after SIGBUS; any thread may call it, and the file is then read
 * instead. release is called when the view is no longer used.
 */
struct uw_view {
	/* borrowed; NULL: there is no view, and the other fields are ignored */
	const uint8_t *bytes;
	uint64_t size;
	bool (*cut)(void *ctx); /* NULL: the bytes are always valid; release may be NULL, too */
	void (*release)(void *ctx);
	void *ctx;
};

/*
 * Copy [off, off + size) from the view to out, and return whether out now has the file's bytes. If
 * it returns false, read the file instead. That is always so for more than 64 KiB, for which
 * reading costs no more than looking at the view.
 */
bool uw_view_copy(const struct uw_view *view, uint64_t off, void *out, uint64_t size);

struct uw_object;

/*
 * Let stop(ctx) cancel the calling thread's decompression from now on. stop is called every 256 KiB
 * of output; once it returns true, decompression fails with -ECANCELED. NULL removes the callback.
 * This is for threads that read untrusted files and may be abandoned: a few hundred KB of a file
 * can unpack to as many MB.
 *
 * All such threads together hold at most 384 MiB of sections of 4 MiB and more, with the objects
 * that keep theirs (uw_object_keep). A thread that would exceed this waits until others have
 * removed their callbacks, which gives back what they hold.
 */
void uw_unpack_unless(bool (*stop)(void *ctx), void *ctx);

/*
 * Return whether the calling thread's stop function says that it must give up. False if none is
 * set.
 */
bool uw_unpack_is_stopped(void);

/*
 * Count the sections that the calling thread has read for the object as the object's until it is
 * freed. Call this at most once for an object, on the thread with a stop function that opened it.
 * -E2BIG: a section was not read, because that would take too much memory; the object has no rules
 * from it.
 */
int uw_object_keep(struct uw_object *object);

#ifdef __cplusplus
}
#endif

#endif
