/*
 * unwinder/cfi/cfi.h: decodes call-frame information: CIEs, FDEs and the rows that their
 * instructions describe.
 *
 * The formats are DWARF 5 §6.4 for .debug_frame (versions 1, 3, 4) and LSB 5.0 §10.6 for
 * .eh_frame. The functions read only the section's bytes, allocate nothing and keep no state.
 */
#ifndef UNWINDER_CFI_CFI_H
#define UNWINDER_CFI_CFI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "unwinder/cfi/pointer.h"
#include "unwinder/rule.h"

/* The sections that rules come from, in the order in which they are searched. */
enum uw_frames_kind {
	UW_FRAMES_EH,
	UW_FRAMES_GO, /* built from .gopclntab */
	UW_FRAMES_DEBUG,
	UW_FRAMES_MINI, /* .debug_frame in MiniDebugInfo */
	UW_FRAMES_N
};

/*
 * A section of call-frame information. Its bytes are borrowed; they must outlive every struct
 * uw_fde and rule that points into them.
 */
struct uw_cfi {
	const uint8_t *data;
	size_t size;
	uint64_t vaddr;		/* of data; the base of pc-relative pointers */
	uint64_t text, got;	/* bases of textrel and datarel pointers */
	bool has_text, has_got; /* whether they are known */
	bool eh;		/* .eh_frame, else .debug_frame */
	bool to_terminator;	/* the section's size is not known: a zero length ends it */
};

/* Return the bases that encoded pointers of this section count from. */
static inline struct uw_bases uw_cfi_bases(const struct uw_cfi *cfi, uint8_t address_size)
{
	return (struct uw_bases){ .start = cfi->data,
				  .vaddr = cfi->vaddr,
				  .text = cfi->text,
				  .data = cfi->got,
				  .has_text = cfi->has_text,
				  .has_data = cfi->has_got,
				  .address_size = address_size };
}

struct uw_cie {
	uint64_t code_align;
	int64_t data_align;
	uint64_t ra; /* return address column */
	uint8_t version;
	uint8_t address_size, segment_size;
	uint8_t fde_encoding, lsda_encoding;
	bool sized;  /* 'z': FDEs have augmentation data */
	bool signal; /* 'S' */
	bool b_key;  /* 'B': aarch64, signed with the B key */
	uint8_t personality_encoding;
	const uint8_t *personality; /* 'P': where its pointer is stored; NULL: none */
	struct uw_bytes program;    /* initial instructions */
};

struct uw_fde {
	struct uw_cie cie;
	uint64_t start, end;	      /* vaddr; end == start covers nothing */
	struct uw_bytes augmentation; /* the augmentation data; with 'L', the LSDA pointer */
	struct uw_bytes program;
};

/*
 * Return the length field of the entry at p, which has left bytes up to the section's end. Return 0
 * if the entry does not have the usual 32-bit form or does not fit. An id follows the field if the
 * length is 4 or more.
 */
static inline uint32_t uw_cfi_usual_length(const uint8_t *p, uint64_t left)
{
	uint32_t length = left < 8 ? 0 : uw_bytes_little(p);

	return length < 0xfffffff0 && length <= left - 4 ? length : 0;
}

/*
 * Decode the entry at off into *fde. If next is not NULL, *next is the offset of the following
 * entry. It is set whenever the entry's length could be read, so that the caller can skip a
 * damaged entry.
 *
 * Return 0 for an FDE, -ENOENT for a CIE or a terminator, -EBADMSG for a damaged entry,
 * -ENOTSUP for an entry that is sound but not supported.
 */
int uw_cfi_entry(const struct uw_cfi *cfi, uint64_t off, struct uw_fde *fde, uint64_t *next);
/*
 * Do the same with the general decoder only. uw_cfi_entry has a faster path for the entries
 * that compilers usually write; tests compare the two.
 */
int uw_cfi_entry_general(const struct uw_cfi *cfi, uint64_t off, struct uw_fde *fde,
			 uint64_t *next);

/*
 * Return whether the section ends at off: its size is not known and the entry at off has length
 * zero.
 */
bool uw_cfi_ends(const struct uw_cfi *cfi, uint64_t off);

/* Return the number of FDEs. Only the headers of the entries are read. */
uint64_t uw_cfi_count(const struct uw_cfi *cfi);

/*
 * Write to *out the row that covers lookup, which lies in the FDE or in the padding behind it.
 * For padding, the last row of the FDE is used. The rule borrows expressions from the section.
 * -EBADMSG, -ENOTSUP as uw_cfi_entry. -E2BIG: more instructions than the limit (unwinder/limits.h).
 */
int uw_cfi_rule(const struct uw_cfi *cfi, const struct uw_fde *fde, uint64_t lookup,
		struct uw_rule *out);

/*
 * Call fn for every row of the FDE in ascending order of addresses; no range [start, end) is
 * empty. A non-zero result of fn ends the iteration and is returned.
 */
typedef int (*uw_row_fn)(void *ctx, uint64_t start, uint64_t end, const struct uw_rule *rule);
int uw_cfi_rows(const struct uw_cfi *cfi, const struct uw_fde *fde, uw_row_fn fn, void *ctx);

#endif
