/* agent/source/linkmap.c: walks the dynamic linker's list of loaded files in process memory. */
#include "agent/source/linkmap.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#define PHDRS_MAX   128u
#define DYNAMIC_MAX 1024u
#define FILES_MAX   16384u /* a longer list is taken for a cycle */

/* Offsets in struct r_debug and struct link_map of 64-bit machines. */
enum {
	R_DEBUG_MAP = 8,
	LINK_MAP_ADDR = 0,
	LINK_MAP_NAME = 8,
	LINK_MAP_LD = 16,
	LINK_MAP_NEXT = 24
};

/* Return the run-time address of the program's dynamic section, or 0 if it has none. */
static uint64_t find_dynamic(uw_read_fn read, void *ctx, uint64_t phdr, uint64_t n_phdrs)
{
	uint64_t bias = 0, vaddr = 0;

	for (uint64_t i = 0; i < n_phdrs && i < PHDRS_MAX; i++) {
		Elf64_Phdr p;

		if (read(ctx, phdr + i * sizeof(p), &p, sizeof(p)))
			return 0;
		if (p.p_type == PT_PHDR)
			bias = phdr - p.p_vaddr;
		else if (p.p_type == PT_DYNAMIC)
			vaddr = p.p_vaddr;
	}
	return vaddr ? bias + vaddr : 0;
}

/*
 * The dynamic linker writes the address of its struct r_debug (<link.h>) into the program's
 * DT_DEBUG.
 */
int linkmap_open(uw_read_fn read, void *ctx, uint64_t phdr, uint64_t n_phdrs, struct linkmap *out)
{
	uint64_t dynamic = phdr ? find_dynamic(read, ctx, phdr, n_phdrs) : 0, map;

	for (uint64_t i = 0; dynamic && i < DYNAMIC_MAX; i++) {
		Elf64_Dyn dyn;

		if (read(ctx, dynamic + i * sizeof(dyn), &dyn, sizeof(dyn)) || dyn.d_tag == DT_NULL)
			break;
		if (dyn.d_tag != DT_DEBUG)
			continue;
		if (!dyn.d_un.d_ptr || read(ctx, dyn.d_un.d_ptr + R_DEBUG_MAP, &map, sizeof(map)) ||
		    !map)
			break;
		*out = (struct linkmap){ .read = read, .ctx = ctx, .next = map };
		return 0;
	}
	return -ENOENT;
}

int linkmap_string(uw_read_fn read, void *ctx, uint64_t addr, char out[LINKMAP_NAME_MAX])
{
	size_t n = 0, part = 64;

	/* Memory may end right after the string, so read smaller parts near its end. */
	while (part && n + part <= LINKMAP_NAME_MAX) {
		if (read(ctx, addr + n, out + n, part)) {
			part /= 2;
			continue;
		}
		if (memchr(out + n, 0, part))
			return 0;
		n += part;
	}
	return -ENOENT;
}

int linkmap_next(struct linkmap *map, struct linkmap_file *out)
{
	uint8_t entry[LINK_MAP_NEXT + 8];
	uint64_t name;

	if (!map->next || ++map->n > FILES_MAX ||
	    map->read(map->ctx, map->next, entry, sizeof(entry)))
		return 0;
	memcpy(&out->bias, entry + LINK_MAP_ADDR, 8);
	memcpy(&name, entry + LINK_MAP_NAME, 8);
	memcpy(&out->dynamic, entry + LINK_MAP_LD, 8);
	memcpy(&map->next, entry + LINK_MAP_NEXT, 8);
	if (linkmap_string(map->read, map->ctx, name, out->name))
		out->name[0] = '\0';
	return 1;
}
