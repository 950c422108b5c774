/*
 * tests/fuzz/fuzz_owc.c: fuzzes the reader of capture files.
 * Checksums keep random bytes away from the decoder, so the first byte chooses: 0: the rest is a
 * file; 1: the rest is the content of a frame, which is packed here; 2: the same for two frames,
 * the first of which is cut short. If 128 is added: byte 1 gives half the size of the following
 * index of stored files, which gets a right checksum.
 */
#include "agent/owc/owc_format.h"
#include "agent/source/source.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/touch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink; /* all bytes that are returned must be readable */

static void touch_event(const struct source *source, const struct event *e)
{
	switch (e->type) {
	case EVENT_MAPPING:
		sink += touch(e->mapping.path, strlen(e->mapping.path));
		sink += touch(e->mapping.build_id.bytes, e->mapping.build_id.size);
		sink += touch(e->mapping.image, e->mapping.image_size);
		break;
	case EVENT_COMM:
		sink += touch(e->comm.comm, strlen(e->comm.comm));
		break;
	case EVENT_SAMPLE:
	case EVENT_WAKER:
		if (e->sample.event >= source->info.n_events || !e->sample.period ||
		    e->sample.regs.known >> UW_REGS_MAX)
			abort();
		for (size_t i = 0; i < e->sample.n_regions; i++)
			sink += touch(e->sample.regions[i].bytes, e->sample.regions[i].size);
		sink += touch(e->sample.kernel_ips, e->sample.n_kernel_ips * sizeof(uint64_t));
		break;
	case EVENT_LOST:
		if (e->lost.reason >= EVENT_LOST_N)
			abort();
		break;
	default:
		break;
	}
}

static size_t pack(uint8_t *out, size_t room, const uint8_t *content, size_t size)
{
	static ZSTD_CCtx *zstd;

	if (!zstd) {
		zstd = ZSTD_createCCtx();
		(void)ZSTD_CCtx_setParameter(zstd, ZSTD_c_checksumFlag, 1);
	}
	size = ZSTD_compress2(zstd, out, room, content, size);
	if (ZSTD_isError(size))
		abort();
	return size;
}

/* Append an index of n bytes and its footer after the frames. */
static size_t add_index(uint8_t *out, uint64_t off, const uint8_t *index, size_t n)
{
	owc_put_u32(out, OWC_SKIPPABLE);
	owc_put_u32(out + 4, (uint32_t)(n + OWC_FOOTER_SIZE));
	memcpy(out + 8, index, n);
	owc_put_u64(out + 8 + n, off);
	owc_put_u32(out + 16 + n, (uint32_t)n);
	owc_put_u32(out + 20 + n, (uint32_t)crc32(0, index, (uInt)n));
	memcpy(out + 24 + n, OWC_FOOTER_MAGIC, 8);
	return 8 + n + OWC_FOOTER_SIZE;
}

/* Look up the stored files that a fuzzer finds easily, and read them. */
static void touch_kept(const struct source_info *info)
{
	struct uw_build_id ids[] = { { .size = 0 }, { .size = 1, .bytes = { 'x' } } };
	uint8_t byte;
	int fd;

	for (size_t i = 0; info->embedded_file && i < 2; i++)
		if (!info->embedded_file(info->embedded_file_ctx, 0, 0, 0, "", &ids[i], &fd)) {
			sink += pread(fd, &byte, 1, 0) == 1 ? byte : 0;
			(void)close(fd);
		}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t bytes[1 << 20];
	struct source *source = NULL;
	char error[512] = "";
	struct event event;
	const uint8_t *index = NULL;
	size_t n = size ? size - 1 : 0, n_index = 0;
	int rc;

	if (n > 64 * 1024)
		abort();
	if (n && data[0] & 128) {
		n_index = 2u * data[1] < n - 1 ? 2u * data[1] : n - 1;
		index = data + 2;
		n -= 1 + n_index;
		data += 1 + n_index;
		memset(bytes, 0, OWC_HEAD_SIZE);
		memcpy(bytes, OWC_MAGIC, 8);
		owc_put_u32(bytes + 8, OWC_VERSION);
		owc_put_u32(bytes + 12, OWC_HEAD_SIZE);
		size = OWC_HEAD_SIZE;
		size += pack(bytes + size, sizeof(bytes) / 2, data + 1, n);
		size += add_index(bytes + size, size, index, n_index);
	} else if (size && data[0] % 3) {
		memset(bytes, 0, OWC_HEAD_SIZE);
		memcpy(bytes, OWC_MAGIC, 8);
		owc_put_u32(bytes + 8, OWC_VERSION);
		owc_put_u32(bytes + 12, OWC_HEAD_SIZE);
		size = OWC_HEAD_SIZE;
		size += pack(bytes + size, sizeof(bytes) / 2, data + 1, n);
		if (data[0] % 3 == 2)
			size += pack(bytes + size, sizeof(bytes) / 2, data + 1, n) - 5;
	} else if (size) {
		memcpy(bytes, data + 1, n);
		size = n;
	}
	rc = source_owc_open(memory_file(bytes, size), "fuzz", &source, error);
	if (rc) {
		if (source || !error[0])
			abort();
		return 0;
	}
	touch_kept(&source->info);
	while ((rc = source_next(source, &event, -1)) == 1)
		touch_event(source, &event);
	if (rc && !source->error[0])
		abort();
	for (size_t i = 0; i < source->info.n_kernel_symbols; i++) {
		const struct source_kernel_symbol *s = &source->info.kernel_symbols[i];

		if (i && s->addr < s[-1].addr)
			abort();
		sink += touch(s->name, strlen(s->name));
		sink += touch(s->module, strlen(s->module));
	}
	source_close(source);
	return 0;
}
