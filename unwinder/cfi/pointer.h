/* unwinder/cfi/pointer.h: encoded pointers (LSB 5.0 §10.5, "DWARF Exception Header Encoding"). */
#ifndef UNWINDER_CFI_POINTER_H
#define UNWINDER_CFI_POINTER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"

enum {
	UW_PE_ABSPTR = 0x00, /* the low four bits: the format */
	UW_PE_ULEB = 0x01,
	UW_PE_UDATA2 = 0x02,
	UW_PE_UDATA4 = 0x03,
	UW_PE_UDATA8 = 0x04,
	UW_PE_SIGNED = 0x08,
	UW_PE_SLEB = 0x09,
	UW_PE_SDATA2 = 0x0a,
	UW_PE_SDATA4 = 0x0b,
	UW_PE_SDATA8 = 0x0c,
	UW_PE_PCREL = 0x10, /* the next three bits: what the pointer is relative to */
	UW_PE_TEXTREL = 0x20,
	UW_PE_DATAREL = 0x30,
	UW_PE_FUNCREL = 0x40,
	UW_PE_ALIGNED = 0x50,
	UW_PE_INDIRECT = 0x80, /* the value is the address of the pointer, in process memory */
	UW_PE_OMIT = 0xff,
};

/* The bases of encoded pointers. */
struct uw_bases {
	const uint8_t *start; /* where the section's bytes begin */
	uint64_t vaddr;	      /* the address of start */
	uint64_t text, data, func;
	bool has_text, has_data, has_func;
	uint8_t address_size; /* size of ABSPTR: 4 or 8 */
};

/*
 * Decode a pointer. -EBADMSG: it is cut short. -ENOTSUP: the file alone cannot resolve the
 * encoding, because it is indirect, omitted, or relative to something that is not known.
 */
int uw_pointer_read(struct uw_bytes *b, const struct uw_bases *bases, uint8_t encoding,
		    uint64_t *out);

/* Skip a pointer whose value does not matter, even an indirect one. */
int uw_pointer_skip(struct uw_bytes *b, const struct uw_bases *bases, uint8_t encoding);

/* Decode the number without adding a base; an FDE's length field is such a number. */
int uw_pointer_number(struct uw_bytes *b, uint8_t encoding, uint8_t address_size, uint64_t *out);

/* Return how many bytes a pointer takes; 0: this varies, or the encoding is unknown. */
unsigned int uw_pointer_size(uint8_t encoding, uint8_t address_size);

#endif
