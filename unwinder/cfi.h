/*
 * unwinder/cfi.h: CIE and FDE → the rules at a pc, or all of them.
 *
 * DWARF 5 §6.4 for .debug_frame (versions 1, 3, 4), LSB 5.0 §10.6 for
 * .eh_frame.  Reads nothing but the section's bytes; allocates nothing.
 */
#ifndef UNWINDER_CFI_H
#define UNWINDER_CFI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unwinder/bytes.h"
#include "unwinder/rule.h"

/* The sections that rules come from, in the order in which they are asked. */
enum uw_frames_kind {
	UW_FRAMES_EH,
	UW_FRAMES_GO, /* made of .gopclntab */
	UW_FRAMES_DEBUG,
	UW_FRAMES_MINI, /* .debug_frame in MiniDebugInfo */
	UW_FRAMES_N
};

/* A section of call-frame information; its bytes are borrowed and outlive all that points here. */
struct uw_cfi {
	const uint8_t *data;
	size_t size;
	uint64_t vaddr;		/* of data; counts where pointers are relative to their place */
	uint64_t text, got;	/* bases of textrel and datarel pointers */
	bool has_text, has_got; /* whether they are known */
	bool eh;		/* .eh_frame, else .debug_frame */
	bool to_terminator;	/* the size is not known: a zero length ends it */
};

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
	const uint8_t *personality; /* 'P': where its pointer is; NULL: there is none */
	struct uw_bytes program;    /* initial instructions */
};

struct uw_fde {
	struct uw_cie cie;
	uint64_t start, end;	      /* vaddr; end == start covers nothing */
	struct uw_bytes augmentation; /* its data: of 'L', a pointer */
	struct uw_bytes program;
};

/*
 * The entry at off.  *next, if not NULL, is where the following one begins, set
 * whenever the length could be read, so that a damaged entry can be passed over.
 * 0 an FDE; -ENOENT a CIE or a terminator; -EBADMSG; -ENOTSUP.
 */
int uw_cfi_entry(const struct uw_cfi *cfi, uint64_t off, struct uw_fde *fde, uint64_t *next);
/* The same; for entries as compilers write them the other has a shorter way. */
int uw_cfi_entry_general(const struct uw_cfi *cfi, uint64_t off, struct uw_fde *fde,
			 uint64_t *next);

/* Whether the section ends at off: its size is not known and a zero length stands there. */
bool uw_cfi_ends(const struct uw_cfi *cfi, uint64_t off);

/* How many FDEs there are, by the heads of all entries alone. */
uint64_t uw_cfi_count(const struct uw_cfi *cfi);

/* The row that covers lookup, which lies in the FDE (or in padding behind it: its last row). */
int uw_cfi_rule(const struct uw_cfi *cfi, const struct uw_fde *fde, uint64_t lookup,
		struct uw_rule *out);

/* Every row in order, [start, end) never empty; a non-zero answer ends it and is returned. */
typedef int (*uw_row_fn)(void *ctx, uint64_t start, uint64_t end, const struct uw_rule *rule);
int uw_cfi_rows(const struct uw_cfi *cfi, const struct uw_fde *fde, uw_row_fn fn, void *ctx);

#endif
