/*
 * symbolizer/symbolizer.h: (object, vaddr) → function name.
 *
 * Reads descriptors, never paths.  A table is immutable once open and may be
 * used by several threads.  Names are bytes from strangers: what is handed out
 * here is demangled and valid UTF-8 without control characters.
 *
 * Errors as in unwinder/unwinder.h.
 */
#ifndef SYMBOLIZER_SYMBOLIZER_H
#define SYMBOLIZER_SYMBOLIZER_H

#include <stddef.h>
#include <stdint.h>

/* ---- symbols of one ELF file --------------------------------------------- */

struct sym_table;

struct sym_symbol {
	uint64_t addr;	  /* vaddr */
	uint64_t size;	  /* 0: not told; the symbol reaches to the next one or its section's end */
	const char *name; /* as linked, sanitised; borrowed for the table's life */
};

/*
 * Function symbols of .symtab, .dynsym and of the ELF file inside
 * .gnu_debugdata (MiniDebugInfo), merged and sorted.  elf_off as for
 * uw_object_open; the caller keeps fd and may close it at once.  A file
 * without symbols gives an empty table.
 */
int sym_table_open(int fd, uint64_t elf_off, struct sym_table **out);
int sym_table_open_image(const void *image, size_t size, struct sym_table **out);
void sym_table_free(struct sym_table *table); /* NULL is fine */
size_t sym_table_size(const struct sym_table *table);
/* By rank in address order. */
int sym_table_at(const struct sym_table *table, size_t i, struct sym_symbol *out);

/* The function that vaddr lies in; -ENOENT where there is none. */
int sym_table_find(const struct sym_table *table, uint64_t vaddr, struct sym_symbol *out);

/* ---- the kernel's symbols ------------------------------------------------ */

struct sym_kernel;

/* fd: /proc/kallsyms or a copy of it.  -EPERM where all addresses read as zero. */
int sym_kernel_open(int fd, struct sym_kernel **out);
void sym_kernel_free(struct sym_kernel *kernel); /* NULL is fine */
/* module: "" for the kernel proper; both borrowed for the table's life. */
int sym_kernel_find(const struct sym_kernel *kernel, uint64_t addr, struct sym_symbol *out,
		    const char **module);
int sym_kernel_lookup(const struct sym_kernel *kernel, const char *name, uint64_t *addr);

/* ---- names ---------------------------------------------------------------- */

/*
 * C++ (Itanium) and Rust (v0 and legacy) names in readable form, anything else
 * as it is; always sanitised.  NULL only when out of memory; free it.
 */
char *sym_demangle(const char *name);

/*
 * Copies n bytes as valid UTF-8 without control characters: what is not becomes U+FFFD; at most
 * limit bytes (0: 64 KiB), cut at a character.  NULL only when out of memory.
 */
char *sym_sanitize(const char *bytes, size_t n, size_t limit);

#endif
