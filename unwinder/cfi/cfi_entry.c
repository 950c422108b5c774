/*
 * unwinder/cfi/cfi_entry.c: decodes CIEs and FDEs.
 *
 * Two decoders share the work: a fast one for the entries that compilers usually write, and a
 * general one for everything else. Both give the same result.
 */
#include "unwinder/cfi/cfi.h"

#include <errno.h>
#include <string.h>

#include "unwinder/cfi/pointer.h"

/* Maximum length of an augmentation string, with its NUL; "zPLRSB" is the longest seen. */
#define LETTERS_MAX 16

/* ---- heads --------------------------------------------------------------------- */

static const uint8_t zeros[64];

/* The header that CIEs and FDEs have in common (LSB 5.0 §10.6.1, DWARF 5 §6.4.1). */
struct head {
	struct uw_bytes body; /* the bytes after the id */
	uint64_t id_off;      /* of the id field */
	uint64_t id;
	bool cie, dwarf64;
};

/* Skip the terminators that follow. A sparse section can hold millions of them. */
static void skip_zeros(struct uw_bytes *b)
{
	const uint8_t *p = b->pos, *end = b->end;

	if (b->err)
		return;
	while (end - p >= 64 && !memcmp(p, zeros, sizeof(zeros)))
		p += sizeof(zeros);
	while (end - p >= 4 && !memcmp(p, zeros, 4))
		p += 4;
	b->pos = p;
}

bool uw_cfi_ends(const struct uw_cfi *cfi, uint64_t off)
{
	return cfi->to_terminator && cfi->size - off >= 4 && !memcmp(cfi->data + off, zeros, 4);
}

/*
 * Read the length and the id of the entry at off. Set *next, if not NULL, to the offset of the
 * next entry as soon as the length is known. -ENOENT for a terminator, -EBADMSG if the entry
 * does not fit into the section.
 */
static int read_head(const struct uw_cfi *cfi, uint64_t off, struct head *head, uint64_t *next)
{
	struct uw_bytes b;
	uint64_t length;

	if (off > cfi->size)
		return -EBADMSG;
	b = uw_bytes_of(cfi->data + off, cfi->size - off);
	length = uw_bytes_u32(&b);
	head->dwarf64 = length == 0xffffffff;
	if (head->dwarf64)
		length = uw_bytes_u64(&b);
	head->id_off = (uint64_t)(b.pos - cfi->data);
	head->body = uw_bytes_take(&b, length);
	if (b.err)
		return -EBADMSG;
	/* A terminator ends the section, or one input of a relocatable link. */
	if (length == 0 && !head->dwarf64)
		skip_zeros(&b);
	if (next)
		*next = (uint64_t)(b.pos - cfi->data);
	if (length == 0)
		return -ENOENT;
	/*
	 * In .eh_frame the id has four bytes even if the length has the 64-bit form (LSB 5.0
	 * §10.6.1.1).
	 */
	if (head->dwarf64 && !cfi->eh) {
		head->id = uw_bytes_u64(&head->body);
		head->cie = head->id == UINT64_MAX;
	} else {
		head->id = uw_bytes_u32(&head->body);
		head->cie = head->id == (cfi->eh ? 0 : UINT32_MAX);
	}
	return head->body.err;
}

uint64_t uw_cfi_count(const struct uw_cfi *cfi)
{
	uint64_t n = 0, off = 0;

	while (off < cfi->size) {
		const uint8_t *at = cfi->data + off;
		uint64_t left = cfi->size - off, next = off;
		uint32_t length = uw_cfi_usual_length(at, left);
		struct head head;
		int err;

		/*
		 * Fast path for the 32-bit form, which all entries but a terminator usually
		 * have.
		 */
		if (length >= 4) {
			uint32_t id = uw_bytes_little(at + 4);

			n += id != (cfi->eh ? 0 : UINT32_MAX);
			off += 4 + (uint64_t)length;
			continue;
		}
		err = read_head(cfi, off, &head, &next);
		if (next <= off || (err == -ENOENT && cfi->to_terminator))
			break;
		n += !err && !head.cie;
		off = next;
	}
	return n;
}

/* ---- the general decoder ------------------------------------------------------- */

/*
 * Read the fields that the augmentation string announces (LSB 5.0 §10.6.1.1.1) and advance b to
 * the initial instructions. -ENOTSUP for an unknown letter.
 */
static int read_augmentation(const struct uw_cfi *cfi, struct uw_bytes *b, const char *letters,
			     struct uw_cie *cie)
{
	struct uw_bases bases = uw_cfi_bases(cfi, cie->address_size);
	struct uw_bytes data = *b;
	int err = 0;

	if (letters[0] == 'z') {
		cie->sized = true;
		data = uw_bytes_take(b, uw_bytes_uleb(b));
		letters++;
	}
	for (; *letters && !err; letters++) {
		switch (*letters) {
		case 'R':
			cie->fde_encoding = uw_bytes_u8(&data);
			break;
		case 'L':
			cie->lsda_encoding = uw_bytes_u8(&data);
			break;
		case 'P': /* the personality routine; rules do not depend on it */
			cie->personality_encoding = uw_bytes_u8(&data);
			cie->personality = data.pos;
			err = uw_pointer_skip(&data, &bases, cie->personality_encoding);
			break;
		case 'S':
			cie->signal = true;
			break;
		case 'B':
			cie->b_key = true;
			break;
		case 'G': /* aarch64: stack memory is tagged */
			break;
		default: /* it may change the layout of FDEs or the meaning of rows */
			return -ENOTSUP;
		}
	}
	if (!cie->sized)
		*b = data;
	return err ? err : data.err;
}

/*
 * Decode the CIE at off. -EBADMSG if there is no CIE, -ENOTSUP for an unknown version,
 * augmentation or address size.
 */
static int read_cie(const struct uw_cfi *cfi, uint64_t off, struct uw_cie *cie)
{
	struct head head;
	struct uw_bytes *b = &head.body;
	const char *letters;
	int err = read_head(cfi, off, &head, NULL);

	if (err)
		return err == -ENOENT ? -EBADMSG : err;
	if (!head.cie)
		return -EBADMSG;
	*cie = (struct uw_cie){ .address_size = 8, .lsda_encoding = UW_PE_OMIT };
	cie->version = uw_bytes_u8(b);
	if (cie->version != 1 && cie->version != 3 && cie->version != 4)
		return b->err ? b->err : -ENOTSUP;
	if (!memchr(b->pos, 0, uw_bytes_left(b) < LETTERS_MAX ? uw_bytes_left(b) : LETTERS_MAX))
		return -ENOTSUP;
	letters = uw_bytes_string(b);
	if (letters[0] == 'e' && letters[1] == 'h') {
		uw_bytes_skip(b, 8); /* GCC 2: the address of its exception table */
		letters += 2;
	}
	if (cie->version == 4) {
		cie->address_size = uw_bytes_u8(b);
		cie->segment_size = uw_bytes_u8(b);
		if (cie->address_size != 4 && cie->address_size != 8)
			return b->err ? b->err : -ENOTSUP;
	}
	cie->code_align = uw_bytes_uleb(b);
	cie->data_align = uw_bytes_sleb(b);
	cie->ra = cie->version == 1 ? uw_bytes_u8(b) : uw_bytes_uleb(b);
	err = read_augmentation(cfi, b, letters, cie);
	if (err)
		return err;
	cie->program = *b;
	return b->err;
}

int uw_cfi_entry_general(const struct uw_cfi *cfi, uint64_t off, struct uw_fde *fde, uint64_t *next)
{
	struct head head;
	struct uw_bytes *b = &head.body;
	struct uw_bases bases;
	uint64_t cie_off = 0, size = 0;
	struct uw_fde result = { .start = 0 };
	int err = read_head(cfi, off, &head, next);

	if (err)
		return err;
	if (head.cie)
		return -ENOENT;
	if (cfi->eh) {
		/*
		 * The id is the distance from the id field back to the CIE. binutils declares
		 * it signed, but no producer refers to a CIE further on.
		 */
		if (head.id > head.id_off)
			return -EBADMSG;
		cie_off = head.id_off - head.id;
	} else {
		cie_off = head.id;
	}
	err = read_cie(cfi, cie_off, &result.cie);
	if (err)
		return err;
	bases = uw_cfi_bases(cfi, result.cie.address_size);
	uw_bytes_skip(b, result.cie.segment_size);
	err = uw_pointer_read(b, &bases, result.cie.fde_encoding, &result.start);
	if (!err)
		err = uw_pointer_number(b, result.cie.fde_encoding, result.cie.address_size, &size);
	if (err)
		return err;
	if (result.cie.sized)
		result.augmentation = uw_bytes_take(b, uw_bytes_uleb(b));
	if (b->err)
		return b->err;
	/* A range that wraps around is clipped: its start is still valid. */
	result.end = size <= UINT64_MAX - result.start ? result.start + size : UINT64_MAX;
	result.program = *b;
	*fde = result;
	return 0;
}

/* ---- the fast decoder ---------------------------------------------------------- */

/*
 * Decode the CIE at p, which has left bytes up to the section's end, if it has the form that
 * compilers usually write: version 1, augmentation "zR" or "zPLR", every number in one byte.
 * Return false for any other form.
 */
static bool usual_cie(const uint8_t *p, uint64_t left, struct uw_cie *cie)
{
	static const uint8_t plain[] = { 1, 'z', 'R', 0 },
			     personal[] = { 1, 'z', 'P', 'L', 'R', 0 };
	uint32_t length = uw_cfi_usual_length(p, left);
	bool is_personal = length >= 24 && p[10] == 'P';
	const uint8_t *end, *at;
	uint8_t size;

	if (length < 16 || uw_bytes_little(p + 4) != 0 ||
	    memcmp(p + 8, is_personal ? personal : plain,
		   is_personal ? sizeof(personal) : sizeof(plain)) != 0)
		return false;
	end = p + 4 + length;
	at = p + 8 + (is_personal ? sizeof(personal) : sizeof(plain));
	size = at[3];
	if ((at[0] | at[1] | size) >= 0x80 || size < (is_personal ? 7 : 1) || size > end - (at + 4))
		return false;
	/* Only a personality pointer of four bytes is supported here. */
	if (is_personal && (at[4] & 0x0f) != UW_PE_UDATA4 && (at[4] & 0x0f) != UW_PE_SDATA4)
		return false;
	*cie = (struct uw_cie){ .code_align = at[0],
				.data_align = (int64_t)(at[1] ^ 0x40) - 0x40,
				.ra = at[2],
				.version = 1,
				.address_size = 8,
				.fde_encoding = at[is_personal ? 10 : 4],
				.lsda_encoding = is_personal ? at[9] : UW_PE_OMIT,
				.sized = true,
				.personality_encoding = is_personal ? at[4] : 0,
				.personality = is_personal ? at + 5 : NULL,
				.program = { .pos = at + 4 + size, .end = end } };
	return true;
}

/*
 * Decode the FDE at off if it has the form that compilers usually write: in .eh_frame, with a
 * CIE that usual_cie accepts and pcrel sdata4 pointers. The result is that of
 * uw_cfi_entry_general. Return false for any other form; *fde may have been changed then.
 */
static bool usual_entry(const struct uw_cfi *cfi, uint64_t off, struct uw_fde *fde, uint64_t *next)
{
	const uint8_t *p, *end;
	uint32_t length, id;
	uint64_t cie_off, size;

	if (!cfi->eh || off > cfi->size)
		return false;
	p = cfi->data + off;
	__builtin_prefetch(p + 64); /* half of the programs continue in the next cache line */
	length = uw_cfi_usual_length(p, cfi->size - off);
	if (length < 13)
		return false;
	end = p + 4 + length;
	id = uw_bytes_little(p + 4);
	if (id == 0 || id > off + 4 || p[16] >= 0x80 || p[16] > end - (p + 17))
		return false;
	cie_off = off + 4 - id;
	if (!usual_cie(cfi->data + cie_off, cfi->size - cie_off, &fde->cie) ||
	    fde->cie.fde_encoding != (UW_PE_PCREL | UW_PE_SDATA4))
		return false;
	fde->start = cfi->vaddr + off + 8 + (uint64_t)(int32_t)uw_bytes_little(p + 8);
	size = (uint64_t)(int32_t)uw_bytes_little(p + 12);
	fde->end = size <= UINT64_MAX - fde->start ? fde->start + size : UINT64_MAX;
	fde->augmentation = (struct uw_bytes){ .pos = p + 17, .end = p + 17 + p[16] };
	fde->program = (struct uw_bytes){ .pos = p + 17 + p[16], .end = end };
	if (next)
		*next = off + 4 + length;
	return true;
}

int uw_cfi_entry(const struct uw_cfi *cfi, uint64_t off, struct uw_fde *fde, uint64_t *next)
{
	struct uw_fde usual;

	if (!usual_entry(cfi, off, &usual, next))
		return uw_cfi_entry_general(cfi, off, fde, next);
	*fde = usual;
	return 0;
}
