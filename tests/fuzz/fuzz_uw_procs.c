/*
 * tests/fuzz/fuzz_uw_procs.c: fuzzes stored ranges of procedures (schema/procs_blob.h) with right
 * checksums, read as a whole (byte 0 even) or in the parts that look-ups need: they are refused, or
 * look-ups are safe.
 */
#include "tests/fuzz/stored.h"
#include "unwinder/table/procs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look(const struct uw_procs *procs, bool checked)
{
	uint64_t start, end, last = 0;
	size_t n;

	for (size_t i = 0; i < procs->header->n && i < 600; i++) {
		if (uw_procs_at(procs, i, &start, &end))
			continue;
		if (checked && (start < last || start >= end))
			abort();
		last = end;
	}
	/* Others for other contents. */
	for (uint64_t i = procs->header->base % 4; i < 200; i += 4) {
		uint64_t at = procs->header->base + i * 37;
		int err = uw_procs_find(procs, at, &start, &end);

		if (checked && !err && (at < start || at >= end))
			abort();
		(void)uw_procs_before(procs, at, &n);
	}
	(void)uw_procs_find(procs, UINT64_MAX, &start, &end);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct uw_blob *parts = NULL;
	struct procs_header h;
	struct uw_procs procs;
	struct uw_blob_source source;
	struct stored stored;
	uint8_t *blob;

	if (size < 1 + sizeof(h))
		return 0;
	stored.size = size - 1;
	blob = malloc(stored.size);
	if (!blob)
		return 0;
	memcpy(blob, data + 1, stored.size);
	memcpy(&h, blob, sizeof(h));
	stored_head(&h.blob, PROCS_MAGIC, PROCS_VERSION, sizeof(h), stored.size);
	memcpy(blob, &h, sizeof(h));
	stored_seal(blob, &h.blob);
	stored.bytes = blob;
	if (!(data[0] & 1)) {
		if (!uw_procs_open(&procs, blob, stored.size))
			look(&procs, true);
	} else {
		source = stored_source(&stored);
		if (!uw_blob_open(&source, PROCS_MAGIC, &parts)) {
			if (!uw_procs_open_stored(&procs, parts))
				look(&procs, false);
			uw_blob_free(parts);
		}
	}
	free(blob);
	return 0;
}
