/*
 * symbolizer/symbolizer.h: maps (object, vaddr) to function name, source line and inlined calls.
 *
 * The library reads descriptors, never paths. A table is immutable once open, so several threads
 * may use it. Names come from untrusted files. The names returned here are valid UTF-8 without
 * control characters.
 *
 * Errors are as in unwinder/unwinder.h.
 */
#ifndef SYMBOLIZER_SYMBOLIZER_H
#define SYMBOLIZER_SYMBOLIZER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct uw_build_id;
struct uw_view;

/* ---- symbols of one ELF file --------------------------------------------- */

struct sym_table;

struct sym_symbol {
	uint64_t addr;	  /* vaddr */
	uint64_t size;	  /* 0: not stated; up to the next symbol or its section's end */
	const char *name; /* as linked, sanitised; borrowed for the table's life */
};

/*
 * Open the function symbols of an ELF file: those of .symtab, .dynsym and the ELF file inside
 * .gnu_debugdata (MiniDebugInfo), merged and sorted. Without section headers, use the symbols that
 * PT_DYNAMIC leads to. For Go programs without .symtab, use the functions of .gopclntab, and for
 * node's library also those that are built into V8. elf_off is as for uw_object_open. fd stays the
 * caller's, and may be closed at once. A file without symbols gives an empty table. A damaged part
 * is left out; sym_table_damage returns the reason. -EBADMSG: not an ELF file, or a torn one.
 * -ENOTSUP: big-endian, or not a regular file.
 *
 * Functions are symbols of type FUNC and GNU_IFUNC; untyped symbols in executable sections
 * (hand-written assembly), where no typed symbol with a size covers them; and `name@plt` for PLT
 * entries without any other symbol. `name@@VERSION` loses its version.
 *
 * If several symbols have one address, the choice is, in this order: typed, with a size, global,
 * weak, local, with fewer leading underscores, shorter, first by bytes.
 */
int sym_table_open(int fd, uint64_t elf_off, struct sym_table **out);
/* Do the same for an ELF file in memory. The image is read only during the call. */
int sym_table_open_image(const void *image, size_t size, struct sym_table **out);
/*
 * Do the same, and add the symbols of the file's separate debug file; debug_fd -1: there is none.
 */
int sym_table_open_with(int fd, uint64_t elf_off, int debug_fd, struct sym_table **out);
/*
 * Do the same for a table that is used for some thousand lookups and cannot be packed (-ENOTSUP).
 * The names of a large file stay in the file and are read one by one when they are looked up. If
 * the file does not have a name any more, the lookup fails with -EBADMSG. vaddrs are n addresses
 * that will be looked up: the table may be limited to the symbols for these, and a lookup of
 * another address may fail with -EAGAIN; n 0: any address. view is a view of fd that must stay
 * until the table is freed; NULL: none.
 */
int sym_table_open_partial(int fd, const struct uw_view *view, uint64_t elf_off, int debug_fd,
			   const uint64_t *vaddrs, size_t n, struct sym_table **out);
void sym_table_free(struct sym_table *table); /* NULL is fine */
size_t sym_table_size(const struct sym_table *table);
/* Return about how many bytes of memory the table takes now. */
size_t sym_table_memory(const struct sym_table *table);
/*
 * Return 0, or why the first part was left out: -EBADMSG, -ENOTSUP, or -E2BIG (beyond this
 * library's limits).
 */
int sym_table_damage(const struct sym_table *table);
/*
 * Return symbol number i in address order. -ENOENT: no such symbol; or why it cannot be read from a
 * stored table.
 */
int sym_table_at(const struct sym_table *table, size_t i, struct sym_symbol *out);

/*
 * Return the function that contains vaddr. If functions are nested, this is the one that starts
 * last. -ENOENT: there is none; a gap after functions whose sizes are stated belongs to no
 * function. Other errors as for sym_table_at.
 */
int sym_table_find(const struct sym_table *table, uint64_t vaddr, struct sym_symbol *out);

/*
 * Convert a table to bytes for storage (schema/symbols_blob.h), and back. key identifies the file;
 * unpacking needs the same key. The caller of sym_table_pack frees *blob. sym_table_unpack takes
 * ownership of blob (from malloc), also on failure. -EBADMSG: damaged; -ENOTSUP: another version;
 * -ENOENT: another key.
 */
int sym_table_pack(const struct sym_table *table, uint64_t key, void **blob, size_t *size);
int sym_table_unpack(void *blob, size_t size, uint64_t key, struct sym_table **out);
/*
 * Do the same for a stored table whose parts are read when they are needed (unwinder.h). Takes
 * ownership of stored, and releases it on failure.
 */
struct uw_blob_source;
int sym_table_take_stored(const struct uw_blob_source *stored, uint64_t key,
			  struct sym_table **out);

/* ---- storing a copy of a file ---------------------------------------------------- */

/* Sections of code up to this size are passed as a whole. */
#define SYM_CODE_MAX ((uint64_t)1 << 20)
/* Source lines and inlined calls are passed if they have up to so many bytes together. */
#define SYM_DEBUG_MAX ((uint64_t)4 << 20)

struct sym_part {
	uint64_t start, end; /* offsets in the file */
};

struct sym_extract {
	/* Take size bytes of the file at off. A later call may replace bytes of an earlier one. */
	int (*put)(void *ctx, uint64_t off, const void *bytes, size_t size);
	void *ctx;
	uint64_t most; /* limit; bytes */
	/* copy the whole file */
	bool whole;
	/* Pass these parts of the file, too: borrowed, sorted and apart. What is outside of the file is ignored. */
	const struct sym_part *parts;
	size_t n_parts;
};

/*
 * Pass to to->put those bytes of an ELF file that unwinding and symbolization read: headers, unwind
 * information, symbols, stubs, notes, Go's tables, to->parts, and also code, data and debug information unless
 * they are large. With to->whole, pass all bytes. In the section headers passed, debug information that is left out
 * is marked SHT_NOBITS. Everything else that is left out must read as zeros. elf_off is as for
 * sym_table_open. -EFBIG: more than to->most bytes; the error that put returned; or as
 * sym_table_open.
 */
int sym_extract(int fd, uint64_t elf_off, const struct sym_extract *to);

/* ---- source lines and inlined calls ----------------------------------------------- */

/*
 * What debug information says about the addresses looked up so far, in flat arrays
 * (schema/lines_blob.h). A lookup is a binary search. Debug information is read only once for each
 * address. Use from one thread at a time.
 */
struct sym_lines;

struct sym_place {	      /* borrowed for the life of the lines */
	const char *function; /* as linked, else as in the source; sanitised; NULL: not stated */
	const char *file;     /* NULL: not stated */
	uint32_t line;	      /* 0: not stated */
	uint32_t start_line;  /* where the function is declared; 0: not stated */
};

int sym_lines_new(struct sym_lines **out);
void sym_lines_free(struct sym_lines *lines); /* NULL is fine */
/*
 * Return the place of vaddr, followed outwards by the places of the calls that were inlined there.
 * The last one is the function that really exists. *n is 0 if nothing is known about vaddr.
 * -ENOENT: vaddr was not read from debug information so far.
 */
int sym_lines_find(const struct sym_lines *lines, uint64_t vaddr, struct sym_place *out, size_t max,
		   size_t *n);
/* Convert lines to bytes for storage, and back, as for symbol tables. */
int sym_lines_pack(const struct sym_lines *lines, uint64_t key, void **blob, size_t *size);
int sym_lines_unpack(void *blob, size_t size, uint64_t key, struct sym_lines **out);
size_t sym_lines_size(const struct sym_lines *lines); /* number of known code ranges */
size_t
sym_lines_memory(const struct sym_lines *lines); /* about how many bytes of memory they take */
/* Return whether something was added that is worth storing. */
bool sym_lines_grown(const struct sym_lines *lines);

/* The DWARF 2 to 5 of one file, from which lines are filled. */
struct sym_debug;

/*
 * Callbacks that open other files which the debug information names. Each may be NULL. Each returns
 * a descriptor, which the library then owns, or -ENOENT. The library checks the files by build-id
 * or unit id.
 */
struct sym_debug_files {
	/* .gnu_debugaltlink: the file with what dwz moved out of several files. */
	int (*alt)(void *ctx, const char *name, const struct uw_build_id *id, int *fd);
	/* A .dwo file: its name, and the directory that the name is relative to. */
	int (*split)(void *ctx, const char *directory, const char *name, int *fd);
	/* The .dwp file. */
	int (*package)(void *ctx, int *fd);
	void *ctx;
};

/*
 * From now on, get the unnamed files for unpacked sections from make, in a process that cannot open
 * files. It returns 0 and a descriptor, or a negative code: the section is then unpacked to memory.
 * For the whole process, so it is the only such setting; call it before other threads exist.
 */
typedef int (*sym_scratch_fn)(int *fd);
void sym_scratch_by(sym_scratch_fn make);

/*
 * Open the debug information of a file. -ENOENT: it has no DWARF. fd is duplicated; lines and the
 * ctx of files are borrowed. Opening reads where the units are. The memory used later stays below
 * 100 MiB.
 */
int sym_debug_open(int fd, uint64_t elf_off, const struct sym_debug_files *files,
		   struct sym_lines *lines, struct sym_debug **out);
int sym_debug_open_image(const void *image, size_t size, const struct sym_debug_files *files,
			 struct sym_lines *lines, struct sym_debug **out);
void sym_debug_free(struct sym_debug *debug); /* NULL is fine */
/*
 * Read the lines for vaddr, so that they can be found. Fast if addresses come in ascending order.
 * Damaged parts count as known to have no lines. -ENOMEM, -E2BIG: no more can be added.
 */
int sym_debug_add(struct sym_debug *debug, uint64_t vaddr);
/*
 * Do the same for many addresses, faster: each unit is read once, and of its line table only what
 * these addresses need is stored. turns is NULL, or shared by readers that get the same addresses:
 * each takes units that no other reader has taken.
 */
struct sym_turns {
	atomic_size_t taken; /* units, in their order in the file */
};
int sym_debug_prepare(struct sym_debug *debug, const uint64_t *vaddrs, size_t n,
		      struct sym_turns *turns);
/*
 * Open the same file for one more thread, with lines of its own, but sharing the unpacked sections.
 * of must outlive *out, and must not be used during this call.
 */
int sym_debug_new_reader(const struct sym_debug *of, struct sym_lines *lines,
			 struct sym_debug **out);
/* Add what from has and lines does not have. */
int sym_lines_join(struct sym_lines *lines, const struct sym_lines *from);

/* Return whether the file has DWARF, whether sound or damaged. */
bool sym_has_debug(int fd, uint64_t elf_off);
/* Return the same and, for a file without DWARF, the name of its debug file. */
struct sym_debug_where {
	bool inside, linked; /* the file has DWARF; it names a debug file */
	char link[256];	     /* if linked, like crc, the CRC of the whole debug file */
	uint32_t crc;
};
int sym_debug_where(int fd, uint64_t elf_off, struct sym_debug_where *out);
int sym_build_id(int fd, uint64_t elf_off, struct uw_build_id *out);
/* Return the CRC of the whole file, as debug links state it. */
int sym_crc32(int fd, uint32_t *out);

/* ---- generated code ------------------------------------------------------------- */

struct sym_jit;

/*
 * Open a perf map (/tmp/perf-PID.map) or a jitdump file; the first bytes tell which. Lines and
 * records that are not sound are left out. If two overlap, the later one wins. -E2BIG: a map
 * larger than 128 MiB or a dump larger than 8 GiB; -ENOTSUP: not a regular file.
 */
int sym_jit_open(int fd, struct sym_jit **out);
void sym_jit_free(struct sym_jit *jit); /* NULL is fine */
/*
 * Return symbol number i in address order; -ENOENT after the last. The name is as for sym_jit_find.
 */
int sym_jit_at(const struct sym_jit *jit, size_t i, struct sym_symbol *out);
/*
 * Return where the file has the call frame information of symbol number i: .eh_frame, whose
 * addresses may be relative to any base. *size 0: it has none.
 */
void sym_jit_frames(const struct sym_jit *jit, size_t i, uint64_t *off, uint32_t *size);
/* Look up a run-time address; -ENOENT. The name is sanitised, and borrowed for the table's life. */
int sym_jit_find(const struct sym_jit *jit, uint64_t addr, struct sym_symbol *out);

/* ---- the kernel's symbols ------------------------------------------------ */

struct sym_kernel;

/*
 * Open the kernel's symbols. fd is /proc/kallsyms or a copy of it, read from its current position.
 * Only code symbols are used. -EPERM: all addresses are zero (kptr_restrict). -EBADMSG: a line is
 * not in the kernel's format. A regular file is mostly read during lookups. Then damage is not
 * detected, and only one thread at a time may use the table.
 */
int sym_kernel_open(int fd, struct sym_kernel **out);
void sym_kernel_free(struct sym_kernel *kernel); /* NULL is fine */
/*
 * Look up an address. *module is "" for the kernel proper, otherwise as in kallsyms: "[ext4]",
 * "[bpf]". It is borrowed for the table's life, like the name. A symbol extends to the next one;
 * size is the distance.
 */
int sym_kernel_find(const struct sym_kernel *kernel, uint64_t addr, struct sym_symbol *out,
		    const char **module);
/*
 * Return the address of a code symbol, under any of its aliases. The kernel's own symbols come
 * before those of modules.
 */
int sym_kernel_lookup(const struct sym_kernel *kernel, const char *name, uint64_t *addr);

/* ---- names ---------------------------------------------------------------- */

/*
 * Return the readable form of C++ names (Itanium ABI, with parameters, std::string short) and Rust
 * names (v0 and legacy, without hashes), and any other name unchanged. The result is always
 * sanitised. Clones are marked: "f(int) [clone .cold]"; "@plt" stays. C++ names of more than 1,024
 * bytes, and names that would expand beyond 64 KiB, stay as linked. Needs up to 4 MiB of stack.
 * NULL only when out of memory. The caller frees the result.
 */
char *sym_demangle(const char *name);

/*
 * Copy n bytes as valid UTF-8 without control characters (C0, C1, DEL, line and paragraph
 * separators, and those that change the reading direction). Invalid bytes become U+FFFD. The copy
 * has at most limit bytes (0: 64 KiB), is cut at a character, and ends with a NUL. NULL only when
 * out of memory. The caller frees it.
 */
char *sym_sanitize(const char *bytes, size_t n, size_t limit);

#endif
