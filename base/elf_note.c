/* base/elf_note.c: walks over the notes of ELF files. */
#include "base/elf_note.h"

#include <elf.h>
#include <string.h>

bool uw_note_next(struct uw_bytes *notes, uint64_t align, struct uw_note *out)
{
	const uint64_t mask = align == 8 ? 7 : 3;
	uint64_t padding;

	if (uw_bytes_done(notes))
		return false;
	out->owner_size = uw_bytes_u32(notes);
	out->size = uw_bytes_u32(notes);
	out->type = uw_bytes_u32(notes);
	out->owner = uw_bytes_advance(notes, out->owner_size);
	uw_bytes_skip(notes, -(12 + (uint64_t)out->owner_size) & mask);
	out->contents = uw_bytes_advance(notes, out->size);
	if (notes->err)
		return false;
	padding = -(uint64_t)out->size & mask;
	uw_bytes_skip(notes, padding < uw_bytes_left(notes) ? padding : uw_bytes_left(notes));
	return true;
}

bool uw_note_is(const struct uw_note *note, const char *owner, uint32_t type)
{
	return note->type == type && note->owner_size == strlen(owner) + 1 &&
	       !memcmp(note->owner, owner, note->owner_size);
}

bool uw_note_build_id(const void *notes, uint64_t size, uint64_t align, struct uw_build_id *out)
{
	struct uw_bytes b = uw_bytes_of(notes, size);
	struct uw_note note;

	while (uw_note_next(&b, align, &note)) {
		if (!uw_note_is(&note, "GNU", NT_GNU_BUILD_ID) || !note.size ||
		    note.size > UW_BUILD_ID_MAX)
			continue;
		*out = (struct uw_build_id){ .size = (uint8_t)note.size };
		memcpy(out->bytes, note.contents, note.size);
		return true;
	}
	return false;
}
