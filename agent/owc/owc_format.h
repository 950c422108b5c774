/*
 * agent/owc/owc_format.h: constants and helpers shared by the writer and the reader of capture
 * files; internal to them. proto/capture.proto describes the format.
 */
#ifndef AGENT_OWC_OWC_FORMAT_H
#define AGENT_OWC_OWC_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OWC_MAGIC	 "OFFWIND1"
#define OWC_FOOTER_MAGIC "OFFWIDX1"

enum {
	OWC_VERSION = 1,
	OWC_HEAD_SIZE = 32,
	OWC_FOOTER_SIZE = 24,
	OWC_SKIPPABLE = 0x184d2a50,   /* magic; RFC 8878 §3.1.2 */
	OWC_RECORD_MAX = 16 << 20,    /* bytes of one record */
	OWC_CONTENT_MAX = 64 << 20,   /* bytes of one frame, decompressed */
	OWC_INDEX_MAX = 16 << 20,     /* bytes of the packed index */
	OWC_REGIONS_MAX = 4096,	      /* regions of one sample */
	OWC_KERNEL_IPS_MAX = 1 << 16, /* kernel addresses of one sample */
	OWC_BOOT_ID_SIZE = 64,
};

/*
 * Read the boot id of this machine, NUL-terminated. Return false if the kernel does not provide
 * one.
 */
bool owc_boot_id(char out[OWC_BOOT_ID_SIZE]);

/*
 * Read the size that precedes each record: a varint of at most four bytes. *used is its own length.
 * Return 0, -ENODATA if the content ends inside it, or -EBADMSG if it is longer.
 */
int owc_record_size(const uint8_t *at, size_t left, size_t *size, size_t *used);

static inline void owc_put_u32(uint8_t *to, uint32_t value)
{
	for (int i = 0; i < 4; i++)
		to[i] = (uint8_t)(value >> 8 * i);
}

static inline void owc_put_u64(uint8_t *to, uint64_t value)
{
	owc_put_u32(to, (uint32_t)value);
	owc_put_u32(to + 4, (uint32_t)(value >> 32));
}

#endif
