/* unwinder/cfi/pointer.c: decodes encoded pointers. */
#include "unwinder/cfi/pointer.h"

#include <errno.h>

/* The low four bits of the encoding are the format (LSB 5.0 §10.5.1). */
int uw_pointer_number(struct uw_bytes *b, uint8_t encoding, uint8_t address_size, uint64_t *out)
{
	uint64_t value;

	switch (encoding & 0x0f) {
	case UW_PE_ABSPTR:
		value = address_size == 4 ? uw_bytes_u32(b) : uw_bytes_u64(b);
		break;
	case UW_PE_SIGNED: /* a signed address */
		value = address_size == 4 ? (uint64_t)(int32_t)uw_bytes_u32(b) : uw_bytes_u64(b);
		break;
	case UW_PE_ULEB:
		value = uw_bytes_uleb(b);
		break;
	case UW_PE_SLEB:
		value = (uint64_t)uw_bytes_sleb(b);
		break;
	case UW_PE_UDATA2:
		value = uw_bytes_u16(b);
		break;
	case UW_PE_SDATA2:
		value = (uint64_t)(int16_t)uw_bytes_u16(b);
		break;
	case UW_PE_UDATA4:
		value = uw_bytes_u32(b);
		break;
	case UW_PE_SDATA4:
		value = (uint64_t)(int32_t)uw_bytes_u32(b);
		break;
	case UW_PE_UDATA8:
	case UW_PE_SDATA8:
		value = uw_bytes_u64(b);
		break;
	default:
		return -ENOTSUP;
	}
	if (b->err)
		return b->err;
	*out = value;
	return 0;
}

/* Read an ALIGNED pointer: a plain address at the next multiple of its size. */
static int read_aligned(struct uw_bytes *b, const struct uw_bases *bases, uint64_t *out)
{
	uint64_t at = bases->vaddr + (uint64_t)(b->pos - bases->start);

	uw_bytes_skip(b, -at & (bases->address_size - 1u));
	return uw_pointer_number(b, UW_PE_ABSPTR, bases->address_size, out);
}

/* Bits 4 to 6 of the encoding say what the number is relative to (LSB 5.0 §10.5.1). */
int uw_pointer_read(struct uw_bytes *b, const struct uw_bases *bases, uint8_t encoding,
		    uint64_t *out)
{
	uint64_t base, value;
	int err;

	if (encoding == UW_PE_OMIT || encoding & UW_PE_INDIRECT)
		return -ENOTSUP;
	switch (encoding & 0x70) {
	case 0:
		base = 0;
		break;
	case UW_PE_PCREL:
		base = bases->vaddr + (uint64_t)(b->pos - bases->start);
		break;
	case UW_PE_TEXTREL:
		if (!bases->has_text)
			return -ENOTSUP;
		base = bases->text;
		break;
	case UW_PE_DATAREL:
		if (!bases->has_data)
			return -ENOTSUP;
		base = bases->data;
		break;
	case UW_PE_FUNCREL:
		if (!bases->has_func)
			return -ENOTSUP;
		base = bases->func;
		break;
	case UW_PE_ALIGNED:
		return encoding == UW_PE_ALIGNED ? read_aligned(b, bases, out) : -ENOTSUP;
	default:
		return -ENOTSUP;
	}
	err = uw_pointer_number(b, encoding, bases->address_size, &value);
	if (err)
		return err;
	*out = base + value;
	return 0;
}

int uw_pointer_skip(struct uw_bytes *b, const struct uw_bases *bases, uint8_t encoding)
{
	uint64_t ignored;

	if (encoding == UW_PE_OMIT)
		return 0;
	if ((encoding & 0x7f) == UW_PE_ALIGNED)
		return read_aligned(b, bases, &ignored);
	return uw_pointer_number(b, encoding, bases->address_size, &ignored);
}

unsigned int uw_pointer_size(uint8_t encoding, uint8_t address_size)
{
	switch (encoding & 0x0f) {
	case UW_PE_ABSPTR:
	case UW_PE_SIGNED:
		return address_size;
	case UW_PE_UDATA2:
	case UW_PE_SDATA2:
		return 2;
	case UW_PE_UDATA4:
	case UW_PE_SDATA4:
		return 4;
	case UW_PE_UDATA8:
	case UW_PE_SDATA8:
		return 8;
	default:
		return 0;
	}
}
