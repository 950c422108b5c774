/* symbolizer/elf/dynamic_symbols.h: finds the dynamic symbols of a file without section headers. */
#ifndef SYMBOLIZER_ELF_DYNAMIC_SYMBOLS_H
#define SYMBOLIZER_ELF_DYNAMIC_SYMBOLS_H

#include "symbolizer/elf/open.h"

/*
 * Find the symbols and their names through PT_DYNAMIC, as the loader does. Only sh_offset and
 * sh_size of both are set. -ENOENT: there are none; -EBADMSG: damaged.
 */
int sym_dynamic_find(const struct uw_elf *image, Elf64_Shdr *symbols, Elf64_Shdr *strings);

/* Find vaddr in the file: *room bytes are available at *off. -EBADMSG: none are. */
int sym_dynamic_locate(const struct uw_elf *image, uint64_t vaddr, uint64_t *off, uint64_t *room);

#endif
