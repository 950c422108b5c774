/*
 * unwinder/objects.h: objects, which are the unwind information of one ELF file each: open them,
 * ask for what they know, compile, store and inspect their tables. Part of unwinder.h.
 */
#ifndef UNWINDER_OBJECTS_H
#define UNWINDER_OBJECTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unwinder/file_bytes.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- objects: one ELF file's unwind information ------------------------- */

struct uw_object; /* immutable for its users, with a reference count */

struct uw_segment { /* a PT_LOAD entry */
	uint64_t off, vaddr;
	uint64_t file_size, mem_size;
	uint32_t flags; /* PF_R | PF_W | PF_X */
};

/*
 * Open the ELF file behind fd and read its headers. The caller still owns fd and may close it at
 * once. Call-frame information is read when it is first needed. elf_off is the offset of the ELF
 * image in the file: 0 except for archives. -EBADMSG: the file is damaged. -ENOTSUP: it is not
 * little-endian ELF64 of a supported machine, or not a regular file. A file without unwind sections
 * is valid; it just has no rules.
 */
int uw_object_open(int fd, uint64_t elf_off, struct uw_object **out);

/*
 * Do the same as uw_object_open for a file that is also mapped. The object takes over view, and
 * releases it on failure, too.
 */
int uw_object_open_viewed(int fd, uint64_t elf_off, const struct uw_view *view,
			  struct uw_object **out);

/*
 * Return the object's view, borrowed for the object's life. Its bytes are NULL if it was opened
 * without one.
 */
const struct uw_view *uw_object_view(const struct uw_object *object);

/* Open an ELF image in memory, such as a vDSO. The bytes are copied. */
int uw_object_open_image(const void *image, size_t size, struct uw_object **out);

/*
 * Open an image of a file whose mappings count offsets from the file's start, while the ELF image
 * begins at elf_off.
 */
int uw_object_open_image_at(const void *image, size_t size, uint64_t elf_off,
			    struct uw_object **out);

/*
 * Open the file of an object once more. The two have nothing in common but the file: what is read for one, to compile
 * it or to identify it, is freed with it. The caller puts *out. -ENOTSUP: the object is not of an open file; or
 * -ENOMEM, -EMFILE, ….
 */
int uw_object_open_copy(const struct uw_object *object, struct uw_object **out);

/* Take one more reference to the object. */
struct uw_object *uw_object_get(struct uw_object *object);

/* Drop one reference and free the object with the last; NULL is allowed. */
void uw_object_put(struct uw_object *object);

/* Return the ELF machine (e_machine) of the file. */
uint16_t uw_object_machine(const struct uw_object *object);

/* Return the file's build-id, borrowed for the object's life. */
const struct uw_build_id *uw_object_build_id(const struct uw_object *object);

/* Return the file's PT_LOAD segments and their number in *n, borrowed for the object's life. */
const struct uw_segment *uw_object_segments(const struct uw_object *object, size_t *n);

/*
 * Convert an offset in the file (elf_off included) to a vaddr. Executable PT_LOAD entries are tried
 * first, then all others. -ENOENT: no segment has the offset.
 */
int uw_object_vaddr(const struct uw_object *object, uint64_t off, uint64_t *vaddr);

/*
 * Look up the function around vaddr, [*start, *end), as the unwind information bounds it. Symbols
 * are not used. A part that was split off counts as a function of its own. -ENOENT: no FDE covers
 * vaddr. If the FDE is damaged or not supported, the error says so.
 */
int uw_object_function(struct uw_object *object, uint64_t vaddr, uint64_t *start, uint64_t *end);

/*
 * Copy bytes of a segment that is not writable, as the file has them. -EFAULT: no such segment has
 * all of them.
 */
int uw_object_read(const struct uw_object *object, uint64_t vaddr, void *out, size_t size);

/*
 * Compile the object's rules to a table (schema/table_blob.h), in which a walk finds a rule in a few
 * nanoseconds. Compiling takes milliseconds for each megabyte of unwind information. Meanwhile
 * other threads can walk: they find the same rules in the file. Return 0 also if the object was
 * compiled before. -ENOENT: there is nothing to compile. -EFBIG: it would take more time or memory
 * than any real file needs.
 */
int uw_object_compile(struct uw_object *object);

/*
 * Do the same as uw_object_compile, but call stop(ctx) every few hundred functions. -ECANCELED:
 * stop returned true.
 */
int uw_object_compile_unless(struct uw_object *object, bool (*stop)(void *ctx), void *ctx);

/*
 * Return the compiled table so that it can be stored, borrowed for the object's life. NULL: the
 * object is not compiled yet, or its stored table cannot be read.
 */
const void *uw_object_compiled(const struct uw_object *object, size_t *size);

/*
 * The size and XXH64 of the unwind sections, which a table's header repeats. They detect a table
 * that was made from other sections by accident. But anybody can make sections with a given XXH64:
 * to store tables of untrusted files, store a cryptographic hash of uw_object_inputs with the
 * table.
 */
struct uw_identity {
	uint64_t size, hash;
};

/* Read the unwind sections and return their identity. -ENOMEM. */
int uw_object_identify(struct uw_object *object, struct uw_identity *out);

/* Receive the next size bytes, which are borrowed for the call. */
typedef void (*uw_input_fn)(void *ctx, const void *bytes, size_t size);

/*
 * Call take with every byte that the object's table and ranges are made from: machine, segments,
 * the bases of pointers, the sections. The pieces come in an order and with lengths that no other
 * input can give, so that a hash of them identifies the input. -ENOMEM.
 */
int uw_object_inputs(struct uw_object *object, uw_input_fn take, void *ctx);

/*
 * Use a stored table instead of compiling the object. The table is copied and checked. -EBADMSG: it
 * is damaged. -ENOTSUP: it has another version. -ENOENT: it was made from other unwind information.
 */
int uw_object_adopt(struct uw_object *object, const void *blob, size_t size);

/*
 * Do the same as uw_object_adopt without a copy. The object takes over blob, which must come from
 * malloc, and frees it on failure, too. known is the identity of the file's unwind sections, if the
 * caller is sure that they have not changed. If known is NULL, the sections are read to compute it.
 */
int uw_object_take(struct uw_object *object, void *blob, size_t size,
		   const struct uw_identity *known);

/*
 * Do the same as uw_object_take with a blob that is read while walks need it. The object takes over
 * stored, and releases it on failure, too. If a part of the blob turns out to be damaged, the
 * file's own rules are used for that part.
 */
int uw_object_take_stored(struct uw_object *object, const struct uw_blob_source *stored,
			  const struct uw_identity *known);

/*
 * Make an object from a stored table alone, for a file that is gone. The table supplies rules and
 * segments; there is no code to look at. The object takes over stored, which is released on
 * failure, too. -EBADMSG: the table is damaged. -ENOTSUP: it has another version.
 */
int uw_object_open_stored(const struct uw_blob_source *stored, struct uw_object **out);

/*
 * Return the address ranges of the procedures (schema/procs_blob.h), to store them beside the table. An
 * object with both reads call-frame information only where that is unusual. The caller frees *blob.
 * -ENOTSUP: FDEs overlap or lie too far apart.
 */
int uw_object_procs(struct uw_object *object, void **blob, size_t *size);

/* Use stored ranges. The object takes over blob as uw_object_take does, with the same errors. */
int uw_object_take_procs(struct uw_object *object, void *blob, size_t size,
			 const struct uw_identity *known);

/* Do the same with a blob that is read while it is needed, as uw_object_take_stored does. */
int uw_object_take_stored_procs(struct uw_object *object, const struct uw_blob_source *stored,
				const struct uw_identity *known);

/*
 * Give the table and ranges that from has to another object of the same file, unless that has its own. No other thread
 * may use from. Thread-safe for object.
 */
void uw_object_take_from(struct uw_object *object, struct uw_object *from);

/* Return how many times the file's call-frame information was read, for lookups or to compile. */
uint64_t uw_object_parsed(const struct uw_object *object);

/*
 * Return how many bytes of memory the object's sections and tables take, at most: of stored tables only what was
 * read is in memory. Thread-safe.
 */
uint64_t uw_object_memory(struct uw_object *object);

/*
 * Open a stored table and stored ranges to inspect them; the file is not needed. One thread at a
 * time may use *out. The blobs are borrowed, must be aligned to 8, and are checked as
 * uw_object_adopt checks them. Either may be NULL.
 */
struct uw_rows;
int uw_rows_open(const void *table, size_t size, const void *procs, size_t procs_size,
		 struct uw_rows **out);

/*
 * Do the same with blobs that are read while they are needed. Both are taken over, and released on
 * failure, too.
 */
int uw_rows_open_stored(const struct uw_blob_source *table, const struct uw_blob_source *procs,
			struct uw_rows **out);

/*
 * Return the bytes of the table and their number in *size; NULL: there is no table. With
 * uw_rows_open_stored only the front part is valid until uw_rows_whole succeeds.
 */
const void *uw_rows_table(const struct uw_rows *rows, size_t *size);

/* Return the bytes of the ranges likewise. */
const void *uw_rows_ranges(const struct uw_rows *rows, size_t *size);

/* Read and check all of both blobs. -EBADMSG: one of them is damaged. */
int uw_rows_whole(struct uw_rows *rows);

/* Return how many bytes of uw_rows_open_stored's blobs have been read so far. */
uint64_t uw_rows_read(struct uw_rows *rows);

/* Free what uw_rows_open made; NULL is allowed. */
void uw_rows_free(struct uw_rows *rows);

/*
 * A row as text. The strings live as long as rows. Registers are written as by readelf
 * --debug-dump=frames-interp.
 */
struct uw_row_info {
	uint64_t start, end; /* vaddr */
	uint32_t rule;	     /* rows with the same number have the same rule */
	/* the table has no rule here, the file has to be read; all fields below are empty */
	bool none;
	bool slow; /* the rule is in a record of its own, outside the row */
	/* signal: the caller was interrupted; ra_signed: the return address is signed */
	bool signal, ra_signed;
	const char *cfa_kind;	 /* "sp", "fp", "register", "expression" */
	const char *cfa_reg;	 /* NULL: an expression */
	int64_t cfa_off;	 /* 0 with an expression */
	const char *fp, *ra;	 /* "c-16", "u", "s", "exp", …; "": not mentioned, so unchanged */
	const char *others;	 /* "rbx=c-24 r12=c-16" */
	const char *expressions; /* "cfa: DW_OP_…; rip: …"; "": none */
	const char *text;	 /* "CFA = rsp + 16, return address at CFA - 8, …" */
};

/* Return how many rows the table has. */
size_t uw_rows_count(const struct uw_rows *rows);

/*
 * Look up the row that covers vaddr. -ENOENT: vaddr lies outside the table. -EBADMSG: that part of
 * the table is damaged.
 */
int uw_rows_find(struct uw_rows *rows, uint64_t vaddr, size_t *i);

/*
 * Describe row i. -ENOENT: there is no such row. -EBADMSG: that part of the table is damaged.
 * -ENOMEM.
 */
int uw_rows_at(struct uw_rows *rows, size_t i, struct uw_row_info *out);

/* Return how many procedures the ranges have. */
size_t uw_rows_procs(const struct uw_rows *rows);

/* Return the i-th procedure by ascending address, as [*start, *end). */
int uw_rows_proc(struct uw_rows *rows, size_t i, uint64_t *start, uint64_t *end);

/* Count the procedures that end at or before vaddr. */
int uw_rows_procs_before(struct uw_rows *rows, uint64_t vaddr, size_t *n);

/*
 * Look up the procedure around vaddr as uw_object_function does. With -ENOENT, *start and *end
 * bound the gap around vaddr that has no procedure.
 */
int uw_rows_function(struct uw_rows *rows, uint64_t vaddr, uint64_t *start, uint64_t *end);

#ifdef __cplusplus
}
#endif

#endif
