/* tests/peers/image.h: holds an ELF file in memory, as the other unwinders need it. */
#ifndef TESTS_PEERS_IMAGE_H
#define TESTS_PEERS_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/process/modules.h"

#define IMAGE_LOADS 16

struct image {
	const struct module *module;
	const uint8_t *bytes; /* all of the file */
	size_t size;
	bool mapped; /* from a file, not from memory */
	struct {
		uint64_t off, vaddr, size;
	} loads[IMAGE_LOADS];
	size_t n_loads;
	uint64_t low, high; /* vaddr of all loads */
	uint64_t entry;
	/* .eh_frame_hdr's table of (start, FDE), 8 bytes each; n_fdes 0: none. */
	uint64_t hdr_vaddr, table_vaddr, n_fdes;
	struct sym_table *symbols; /* on demand */
};

struct images {
	struct image **all;
	size_t n, room;
};

/* Return the image of a module whose object was resolved, stored in images; NULL if it has none. */
const struct image *image_of(struct images *images, const struct module *module);
void images_free(struct images *images);

/*
 * Return the bytes at vaddr if size bytes of a segment are there, writable ones with their contents
 * in the file; or NULL.
 */
const uint8_t *image_at(const struct image *image, uint64_t vaddr, size_t size);

/* Return a function's name; NULL: there is none. */
const char *image_symbol(const struct image *image, uint64_t vaddr);

#endif
