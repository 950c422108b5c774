/*
 * symbolizer/symbolizer.h: (object, vaddr) → function name, source line, inlined calls.
 *
 * Reads descriptors, never paths.  A table is immutable once open and may be
 * used by several threads.  Names are bytes from strangers: what is handed out
 * here is valid UTF-8 without control characters.
 *
 * Errors as in unwinder/unwinder.h.
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
	uint64_t size;	  /* 0: not told; the symbol reaches to the next one or its section's end */
	const char *name; /* as linked, sanitised; borrowed for the table's life */
};

/*
 * Function symbols of .symtab, .dynsym and of the ELF file inside
 * .gnu_debugdata (MiniDebugInfo), merged and sorted; without section headers
 * those that PT_DYNAMIC leads to, and of Go programs without .symtab those of
 * .gopclntab.  elf_off as for uw_object_open; the caller keeps fd and may close it at
 * once.  A file without symbols gives an empty table; a damaged part is left out and
 * told by sym_table_damage.  -EBADMSG not an ELF file, or a torn one; -ENOTSUP
 * big-endian, or not a regular file.
 *
 * What counts as a function: symbols of type FUNC and GNU_IFUNC; untyped ones in executable
 * sections (hand-written assembly) where no typed one with a size covers them; `name@plt` for
 * PLT entries where nothing else is.  `name@@VERSION` loses its version.
 *
 * Of several symbols for one address it is, in this order: typed, told its size, global, weak,
 * local, with fewer leading underscores, shorter, first by bytes.
 */
int sym_table_open(int fd, uint64_t elf_off, struct sym_table **out);
int sym_table_open_image(const void *image, size_t size, struct sym_table **out);
/* The same with the symbols of a debug file of it added; debug_fd -1: there is none. */
int sym_table_open_with(int fd, uint64_t elf_off, int debug_fd, struct sym_table **out);
/*
 * The same for some thousand look-ups and not to be packed (-ENOTSUP): names of a large file stay
 * there and are read one by one, those asked for.  One that the file does not have any more is
 * -EBADMSG to ask for.  With n addresses that will be sought the table may have no more than it
 * takes to find those, and says -EAGAIN of others; n 0: of any.  view: of fd, it must stay until the
 * table is freed; NULL: none.
 */
int sym_table_open_brief(int fd, const struct uw_view *view, uint64_t elf_off, int debug_fd,
			 const uint64_t *vaddrs, size_t n, struct sym_table **out);
void sym_table_free(struct sym_table *table); /* NULL is fine */
size_t sym_table_size(const struct sym_table *table);
/* 0, or why the first part that was left out was: -EBADMSG, -ENOTSUP, -E2BIG (beyond our caps). */
int sym_table_damage(const struct sym_table *table);
/* By rank in address order; -ENOENT, or why a kept one cannot be read there. */
int sym_table_at(const struct sym_table *table, size_t i, struct sym_symbol *out);

/*
 * The function that vaddr lies in, of those inside each other the one that starts last; -ENOENT
 * where there is none: a gap behind functions whose size is told belongs to nobody.  Others as
 * sym_table_at.
 */
int sym_table_find(const struct sym_table *table, uint64_t vaddr, struct sym_symbol *out);

/*
 * A table as bytes to keep (schema/symbols.h), and back.  key says which file it is of; it comes
 * back with the same key only.  The caller frees *blob; unpacking takes blob (from malloc) over and
 * frees it on failure too.  -EBADMSG damaged, -ENOTSUP of another version, -ENOENT of another key.
 */
int sym_table_pack(const struct sym_table *table, uint64_t key, void **blob, size_t *size);
int sym_table_unpack(void *blob, size_t size, uint64_t key, struct sym_table **out);
/* The same of what is read as it is needed (unwinder.h), which is taken over, and released on failure. */
struct uw_kept;
int sym_table_take_kept(const struct uw_kept *kept, uint64_t key, struct sym_table **out);

/* ---- keeping a file elsewhere ---------------------------------------------------- */

struct sym_extract {
	/* Take size bytes of the file at off; a later call may replace bytes of an earlier one. */
	int (*put)(void *ctx, uint64_t off, const void *bytes, size_t size);
	void *ctx;
	uint64_t most; /* bytes */
	bool whole;
};

/*
 * Give to->put the bytes of an ELF file that walks and names read: headers, unwind information, symbols,
 * stubs, notes, Go's tables, and code and data unless there is much of it; or all bytes, if to->whole.
 * Debug information that is left out has no bytes in the section headers given; everything else that
 * is left out is to be read as zeros.  elf_off as for sym_table_open.  -EFBIG: more than to->most
 * bytes; what put failed with; or as sym_table_open.
 */
int sym_extract(int fd, uint64_t elf_off, const struct sym_extract *to);

/* ---- lines of code and inlined calls ------------------------------------------ */

/*
 * What debug information says of the addresses asked for so far, in flat arrays (schema/lines.h):
 * a look-up is a binary search, and what was read once is not read again.  One thread at a time.
 */
struct sym_lines;

struct sym_place {	      /* borrowed for the life of the lines */
	const char *function; /* as linked, else as written; sanitised; NULL: not told */
	const char *file;     /* NULL: not told */
	uint32_t line;	      /* 0: not told */
	uint32_t start_line;  /* where the function is declared; 0: not told */
};

int sym_lines_new(struct sym_lines **out);
void sym_lines_free(struct sym_lines *lines); /* NULL is fine */
/*
 * The place of vaddr and, outwards from it, of the calls that were inlined; the last one is the
 * function that is really there.  *n is 0 where nothing is known of it; -ENOENT: it was not
 * looked for so far.
 */
int sym_lines_find(const struct sym_lines *lines, uint64_t vaddr, struct sym_place *out, size_t max,
		   size_t *n);
/* As for symbol tables. */
int sym_lines_pack(const struct sym_lines *lines, uint64_t key, void **blob, size_t *size);
int sym_lines_unpack(void *blob, size_t size, uint64_t key, struct sym_lines **out);
size_t sym_lines_size(const struct sym_lines *lines); /* stretches of code that are known */
/* Something was added that is worth keeping. */
bool sym_lines_grown(const struct sym_lines *lines);

/* One file's DWARF 2 to 5, to fill its lines from. */
struct sym_debug;

/* How to come by the other files that one names.  Each may be NULL, gives a descriptor that is then
 * ours, or -ENOENT.  What comes is checked by build-id or unit id. */
struct sym_debug_files {
	/* .gnu_debugaltlink: what dwz took out of several files. */
	int (*alt)(void *ctx, const char *name, const struct uw_build_id *id, int *fd);
	/* A .dwo file: its name, and the folder it is relative to. */
	int (*split)(void *ctx, const char *folder, const char *name, int *fd);
	/* The .dwp file. */
	int (*package)(void *ctx, int *fd);
	void *ctx;
};

/*
 * -ENOENT: there is no DWARF in it.  fd is copied; lines and files' ctx are borrowed.  Reads where
 * its units are; what it holds later on stays below 100 MiB.
 */
int sym_debug_open(int fd, uint64_t elf_off, const struct sym_debug_files *files,
		   struct sym_lines *lines, struct sym_debug **out);
int sym_debug_open_image(const void *image, size_t size, const struct sym_debug_files *files,
			 struct sym_lines *lines, struct sym_debug **out);
void sym_debug_free(struct sym_debug *debug); /* NULL is fine */
/*
 * Sees to it that vaddr can be found in the lines.  Fast where addresses come in ascending order.
 * What is damaged is known as not known; -ENOMEM, -E2BIG: no more can be taken in.
 */
int sym_debug_add(struct sym_debug *debug, uint64_t vaddr);
/*
 * The same for many, faster: each unit is looked into once, and of its line table only what these
 * addresses need is kept.  turns NULL, or shared by twins who are given the same addresses: each
 * takes units that no other has taken.
 */
struct sym_turns {
	atomic_size_t taken; /* units, in the order they are in */
};
int sym_debug_prepare(struct sym_debug *debug, const uint64_t *vaddrs, size_t n,
		      struct sym_turns *turns);
/*
 * The same file again, for one more thread: with lines of its own, but what was unpacked is shared.
 * of outlives it, and is not in use while it is made.
 */
int sym_debug_twin(const struct sym_debug *of, struct sym_lines *lines, struct sym_debug **out);
/* Adds what of from is not in lines. */
int sym_lines_join(struct sym_lines *lines, const struct sym_lines *from);

/* It has DWARF, sound or not. */
bool sym_has_debug(int fd, uint64_t elf_off);
/* The same, and of a file without it what leads to its debug file. */
struct sym_debug_where {
	bool inside, linked; /* it has DWARF; it names a file that has */
	char link[256];	     /* where linked, as is the CRC of all of that file */
	uint32_t crc;
};
int sym_debug_where(int fd, uint64_t elf_off, struct sym_debug_where *out);
int sym_build_id(int fd, uint64_t elf_off, struct uw_build_id *out);
/* The CRC that debug links carry, of the whole file. */
int sym_crc32(int fd, uint32_t *out);

/* ---- generated code ------------------------------------------------------------- */

struct sym_jit;

/*
 * A perf map (/tmp/perf-PID.map) or a jitdump file, told apart by how it begins.  Lines and records
 * that are not sound are left out; of two that overlap the later one holds.  -E2BIG: larger than
 * 128 MiB, a dump 8 GiB; -ENOTSUP: not a regular file.
 */
int sym_jit_open(int fd, struct sym_jit **out);
void sym_jit_free(struct sym_jit *jit); /* NULL is fine */
/* The i-th by address; -ENOENT beyond the last.  As below. */
int sym_jit_at(const struct sym_jit *jit, size_t i, struct sym_symbol *out);
/*
 * Where the file has the i-th's call-frame information: .eh_frame, whose addresses may be counted
 * from anywhere; *size 0: it has none.
 */
void sym_jit_frames(const struct sym_jit *jit, size_t i, uint64_t *off, uint32_t *size);
/* By run-time address; -ENOENT.  The name is sanitised, and borrowed for the table's life. */
int sym_jit_find(const struct sym_jit *jit, uint64_t addr, struct sym_symbol *out);

/* ---- the kernel's symbols ------------------------------------------------ */

struct sym_kernel;

/*
 * fd: /proc/kallsyms or a copy of it, read from where it stands.  Code symbols only.  -EPERM where
 * all addresses read as zero (kptr_restrict), -EBADMSG where a line is not as the kernel writes it.
 * Of a file most is read when it is asked for: what is damaged there is not found, and one thread
 * at a time may ask.
 */
int sym_kernel_open(int fd, struct sym_kernel **out);
void sym_kernel_free(struct sym_kernel *kernel); /* NULL is fine */
/*
 * module: "" for the kernel proper, else as kallsyms has it: "[ext4]", "[bpf]".  Borrowed for the
 * table's life, as the name is.  A symbol reaches to the next one; size tells how far.
 */
int sym_kernel_find(const struct sym_kernel *kernel, uint64_t addr, struct sym_symbol *out,
		    const char **module);
/* The address of a code symbol, all its aliases known; the kernel's own before its modules'. */
int sym_kernel_lookup(const struct sym_kernel *kernel, const char *name, uint64_t *addr);

/* ---- names ---------------------------------------------------------------- */

/*
 * C++ (Itanium, with parameters, std::string short) and Rust (v0 and legacy, without hashes) names
 * in readable form, anything else as it is; always sanitised.  Clones are told: "f(int) [clone
 * .cold]"; "@plt" stays.  C++ names of more than 1,024 bytes, and what would expand beyond 64 KiB,
 * stay as linked.  Needs up to 4 MiB of stack.  NULL only when out of memory; free it.
 */
char *sym_demangle(const char *name);

/*
 * Copies n bytes as valid UTF-8 without control characters (C0, C1, DEL, line and paragraph
 * separators, those that turn the reading direction): what is not becomes U+FFFD; at most limit
 * bytes (0: 64 KiB), cut at a character, and a NUL.  NULL only when out of memory; free it.
 */
char *sym_sanitize(const char *bytes, size_t n, size_t limit);

#endif
