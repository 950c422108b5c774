/* base/elf_note.h: reads the notes of ELF files, and the build-id among them. */
#ifndef BASE_ELF_NOTE_H
#define BASE_ELF_NOTE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "unwinder/unwinder.h"

struct uw_note { /* the pointers are borrowed from the bytes that were read */
	uint32_t type;
	uint32_t owner_size; /* with the NUL, if there is one */
	const uint8_t *owner;
	uint32_t size;
	const uint8_t *contents;
};

/*
 * Read the next note. Notes have one layout in both ELF classes. Owner and contents are padded to 4
 * bytes, or to 8 bytes in segments with that alignment (gABI); any other align means 4. The last
 * note may lack its padding. Return false at the end, and if a note reaches beyond it.
 */
bool uw_note_next(struct uw_bytes *notes, uint64_t align, struct uw_note *out);

/* Return whether a note has this type and this owner, such as "GNU". */
bool uw_note_is(const struct uw_note *note, const char *owner, uint32_t type);

/*
 * Find the first build-id (NT_GNU_BUILD_ID) among notes. Return false, and leave *out unchanged, if
 * there is none before the end or the first damage.
 */
bool uw_note_build_id(const void *notes, uint64_t size, uint64_t align, struct uw_build_id *out);

#endif
