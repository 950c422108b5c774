/* unwinder/pointer.h: encoded pointers (LSB 5.0 §10.5, "DWARF Exception Header Encoding"). */
#ifndef UNWINDER_POINTER_H
#define UNWINDER_POINTER_H

#include <stdbool.h>
#include <stdint.h>

#include "unwinder/bytes.h"

enum {
	UW_PE_ABSPTR = 0x00, /* formats, low four bits */
	UW_PE_ULEB = 0x01,
	UW_PE_UDATA2 = 0x02,
	UW_PE_UDATA4 = 0x03,
	UW_PE_UDATA8 = 0x04,
	UW_PE_SIGNED = 0x08,
	UW_PE_SLEB = 0x09,
	UW_PE_SDATA2 = 0x0a,
	UW_PE_SDATA4 = 0x0b,
	UW_PE_SDATA8 = 0x0c,
	UW_PE_PCREL = 0x10, /* what it counts from, the next three */
	UW_PE_TEXTREL = 0x20,
	UW_PE_DATAREL = 0x30,
	UW_PE_FUNCREL = 0x40,
	UW_PE_ALIGNED = 0x50,
	UW_PE_INDIRECT = 0x80, /* the address of the pointer: process memory */
	UW_PE_OMIT = 0xff,
};

/* What the parts of an encoding count from. */
struct uw_bases {
	const uint8_t *start; /* where the section's bytes begin … */
	uint64_t vaddr;	      /* … and the address they have */
	uint64_t text, data, func;
	bool has_text, has_data, has_func;
	uint8_t address_size; /* of ABSPTR: 4 or 8 */
};

/*
 * 0; -EBADMSG cut short; -ENOTSUP an encoding that cannot be resolved from the
 * file alone: indirect, omitted, or relative to something not known.
 */
int uw_pointer_read(struct uw_bytes *b, const struct uw_bases *bases, uint8_t encoding,
		    uint64_t *out);

/* Steps over a pointer whose value does not matter, indirect ones too. */
int uw_pointer_skip(struct uw_bytes *b, const struct uw_bases *bases, uint8_t encoding);

/* The bare number, not counted from anything: the length field of an FDE. */
int uw_pointer_number(struct uw_bytes *b, uint8_t encoding, uint8_t address_size, uint64_t *out);

/* Bytes one takes, 0 where that varies or is unknown. */
unsigned int uw_pointer_size(uint8_t encoding, uint8_t address_size);

#endif
