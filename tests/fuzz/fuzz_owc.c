/*
 * Any bytes as a capture file.  Checksums keep random bytes out of the decoder,
 * so the first byte chooses: 0 the rest is a file; 1 the rest is the content of a
 * frame, which is packed here; 2 of two frames, the first cut short.
 */
#include "agent/source/owc_format.h"
#include "agent/source/source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zstd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink; /* what is read must be readable */

static void touch(const void *bytes, size_t size)
{
	const uint8_t *b = bytes;

	for (size_t i = 0; i < size; i++)
		sink += b[i];
}

static void touch_event(const struct source *source, const struct event *e)
{
	switch (e->type) {
	case EVENT_MAPPING:
		touch(e->mapping.path, strlen(e->mapping.path));
		touch(e->mapping.build_id.bytes, e->mapping.build_id.size);
		touch(e->mapping.image, e->mapping.image_size);
		break;
	case EVENT_COMM:
		touch(e->comm.comm, strlen(e->comm.comm));
		break;
	case EVENT_SAMPLE:
		if (e->sample.event >= source->info.n_events || !e->sample.period ||
		    e->sample.regs.known >> UW_REGS_MAX)
			abort();
		for (size_t i = 0; i < e->sample.n_regions; i++)
			touch(e->sample.regions[i].bytes, e->sample.regions[i].size);
		touch(e->sample.kernel_ips, e->sample.n_kernel_ips * sizeof(uint64_t));
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t bytes[1 << 20];
	struct source *source = NULL;
	char error[512] = "";
	struct event event;
	size_t n = size ? size - 1 : 0;
	int fd = memfd_create("owc", 0), rc;

	if (fd < 0 || n > 64 * 1024)
		abort();
	if (size && data[0] % 3) {
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
	if (write(fd, bytes, size) != (ssize_t)size || lseek(fd, 0, SEEK_SET))
		abort();
	rc = source_owc_open(fd, "fuzz", &source, error);
	if (rc) {
		if (source || !error[0])
			abort();
		return 0;
	}
	while ((rc = source_next(source, &event, -1)) == 1)
		touch_event(source, &event);
	if (rc && !source->error[0])
		abort();
	for (size_t i = 0; i < source->info.n_kernel_symbols; i++) {
		const struct source_kernel_symbol *s = &source->info.kernel_symbols[i];

		if (i && s->addr < s[-1].addr)
			abort();
		touch(s->name, strlen(s->name));
		touch(s->module, strlen(s->module));
	}
	source_close(source);
	return 0;
}
