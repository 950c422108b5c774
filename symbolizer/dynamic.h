/* symbolizer/dynamic.h: the dynamic symbols of a file whose section headers are gone. */
#ifndef SYMBOLIZER_DYNAMIC_H
#define SYMBOLIZER_DYNAMIC_H

#include "symbolizer/image.h"

/*
 * By PT_DYNAMIC, as the loader finds them: sh_offset and sh_size of both are
 * filled in, and nothing else.  -ENOENT there are none, -EBADMSG damaged.
 */
int sym_dynamic_find(const struct sym_image *image, Elf64_Shdr *symbols, Elf64_Shdr *strings);

#endif
