/*
 * unwinder/unwinder.h: the public interface of liboffwind.
 *
 * The library takes unwind sections, registers and captured memory, and returns
 * stack frames. It never opens a path, prints or exits. Its only mutable global
 * state is two counters that number objects and spaces. A sample can be unwound
 * on any host: an x86_64 sample on an aarch64 machine, for example.
 *
 * Addresses: `pc` is where a thread is, `ra` is a return address, `lookup` is the
 * address to look up rules and symbols with (pc, or ra - 1), `vaddr` is an address
 * as the ELF file states it, `off` is an offset in the file, `bias` is run-time
 * address - vaddr, `cfa` is the canonical frame address (DWARF 5 §6.4).
 *
 * Errors: functions that can fail return 0 or a negative errno value, and leave
 * their result untouched on failure. -EINVAL means a mistake of the caller,
 * -ENOENT that there is nothing there, -EBADMSG damaged input, -ENOTSUP valid
 * input that the library does not handle, -EFAULT memory that was not captured.
 * -ENOMEM and other system errors are passed on unchanged.
 *
 * Threads: objects do not change for their users and have an atomic reference
 * count, so any number of threads may share one. A space and a worker may be used
 * by one thread at a time.
 */
#ifndef UNWINDER_UNWINDER_H
#define UNWINDER_UNWINDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- build-ids ---------------------------------------------------------- */

#define UW_BUILD_ID_MAX 32

/* A build-id, as the linker wrote it to the file. */
struct uw_build_id {
	uint8_t size; /* 0: the file has none */
	uint8_t bytes[UW_BUILD_ID_MAX];
};

/*
 * Return whether both build-ids have the same bytes. Zeros at the end are ignored: perf before 5.11
 * and simpleperf write build-ids of every size in 20 bytes.
 */
bool uw_build_id_equal(const struct uw_build_id *a, const struct uw_build_id *b);

/* ---- stored bytes ------------------------------------------------------- */

/*
 * Return the XXH64 of the bytes. Stored blobs are checked with it. It detects accidental damage
 * only: an attacker can compute it, too.
 */
uint64_t uw_checksum(const void *data, size_t size, uint64_t seed);

/*
 * A source of stored bytes, for blobs (schema/blob.h). read copies all of [off, off + size) to out,
 * or returns a negative code. damaged is called once if the bytes that read gave do not match their
 * checksums. release is called when nothing more will be read. The functions may be called from any
 * thread, but by one thread at a time.
 */
struct uw_kept {
	uint64_t size;
	int (*read)(void *ctx, uint64_t off, void *out, size_t size);
	void (*damaged)(void *ctx); /* NULL is allowed, for release, too */
	void (*release)(void *ctx);
	void *ctx;
};

/*
 * Open a stored blob and read its front part. The blob takes over kept, and releases it on failure,
 * too. -EBADMSG: the front part is damaged, or the blob does not begin with magic.
 */
struct uw_blob;
int uw_blob_open(const struct uw_kept *kept, uint32_t magic, struct uw_blob **out);

/* Free the blob and release its source; NULL is allowed. */
void uw_blob_free(struct uw_blob *blob);

/*
 * Return the address of the blob's first byte. Only the ranges that were passed to uw_blob_need are
 * valid; the front part is always valid.
 */
const void *uw_blob_bytes(const struct uw_blob *blob);

/* Return the size of the whole blob in bytes. */
uint64_t uw_blob_size(const struct uw_blob *blob);

/*
 * Make sure that [off, off + size) has been read and is undamaged. -EBADMSG: the range lies outside
 * the blob, or is damaged. Errors of the read function are returned unchanged.
 */
int uw_blob_need(struct uw_blob *blob, uint64_t off, uint64_t size);

/* Read and check the whole blob, with the errors of uw_blob_need. */
int uw_blob_whole(struct uw_blob *blob);

/* Return how many bytes have been read so far. */
uint64_t uw_blob_read(struct uw_blob *blob);

/* Check a whole blob in memory. bytes must be aligned to 8 (-EINVAL). -EBADMSG: it is damaged. */
int uw_blob_check(const void *bytes, size_t size);

/* Return how many bytes the checksums take for rest bytes after the front part. */
size_t uw_blob_sums(uint64_t rest);

/* Fill in the checksums of a blob that is complete otherwise. */
void uw_blob_seal(void *bytes);

/* ---- mapped bytes ------------------------------------------------------- */

/*
 * A file's bytes mapped in memory, from its first byte. An object that has a view also has a file
 * descriptor, and copies small reads from the view. cut returns whether some of the mapped bytes
 * are no longer in the file, as after SIGBUS; any thread may call it, and the file is then read
 * instead. release is called when the view is no longer used.
 */
struct uw_view {
	/* borrowed; NULL: there is no view, and the other fields are ignored */
	const uint8_t *bytes;
	uint64_t size;
	bool (*cut)(void *ctx); /* NULL: the bytes are always valid; release may be NULL, too */
	void (*release)(void *ctx);
	void *ctx;
};

/*
 * Copy [off, off + size) from the view to out, and return whether out now has the file's bytes. If
 * it returns false, read the file instead. That is always so for more than 64 KiB, for which
 * reading costs no more than looking at the view.
 */
bool uw_view_copy(const struct uw_view *view, uint64_t off, void *out, uint64_t size);

/*
 * Let stop(ctx) cancel the calling thread's decompression from now on. stop is called every 256 KiB
 * of output; once it returns true, decompression fails with -ECANCELED. NULL removes the callback.
 * This is for threads that read untrusted files and may be abandoned: a few hundred KB of a file
 * can unpack to as many MB.
 */
void uw_unpack_unless(bool (*stop)(void *ctx), void *ctx);

/*
 * Return whether the calling thread's stop function says that it must give up. False if none is
 * set.
 */
bool uw_unpack_is_stopped(void);

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

/* Take one more reference to the object. */
struct uw_object *uw_object_get(struct uw_object *object);

/* Drop one reference and free the object with the last; NULL is allowed. */
void uw_object_put(struct uw_object *object);

/* Return EM_X86_64 or EM_AARCH64. */
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
 * Compile the object's rules to a table (schema/table.h), in which a walk finds a rule in a few
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
 * kept, and releases it on failure, too. If a part of the blob turns out to be damaged, the file's
 * own rules are used for that part.
 */
int uw_object_take_kept(struct uw_object *object, const struct uw_kept *kept,
			const struct uw_identity *known);

/*
 * Make an object from a stored table alone, for a file that is gone. The table supplies rules and
 * segments; there is no code to look at. The object takes over kept, which is released on failure,
 * too. -EBADMSG: the table is damaged. -ENOTSUP: it has another version.
 */
int uw_object_open_kept(const struct uw_kept *kept, struct uw_object **out);

/*
 * Return the address ranges of the procedures (schema/procs.h), to store them beside the table. An
 * object with both reads call-frame information only where that is unusual. The caller frees *blob.
 * -ENOTSUP: FDEs overlap or lie too far apart.
 */
int uw_object_procs(struct uw_object *object, void **blob, size_t *size);

/* Use stored ranges. The object takes over blob as uw_object_take does, with the same errors. */
int uw_object_take_procs(struct uw_object *object, void *blob, size_t size,
			 const struct uw_identity *known);

/* Do the same with a blob that is read while it is needed, as uw_object_take_kept does. */
int uw_object_take_kept_procs(struct uw_object *object, const struct uw_kept *kept,
			      const struct uw_identity *known);

/* Return how many times the file's call-frame information was read, for lookups or to compile. */
uint64_t uw_object_parsed(const struct uw_object *object);

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
int uw_rows_open_kept(const struct uw_kept *table, const struct uw_kept *procs,
		      struct uw_rows **out);

/*
 * Return the bytes of the table and their number in *size; NULL: there is no table. With
 * uw_rows_open_kept only the front part is valid until uw_rows_whole succeeds.
 */
const void *uw_rows_table(const struct uw_rows *rows, size_t *size);

/* Return the bytes of the ranges likewise. */
const void *uw_rows_ranges(const struct uw_rows *rows, size_t *size);

/* Read and check all of both blobs. -EBADMSG: one of them is damaged. */
int uw_rows_whole(struct uw_rows *rows);

/* Return how many bytes of uw_rows_open_kept's blobs have been read so far. */
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
	const char *words;	 /* "CFA = rsp + 16, return address at CFA - 8, …" */
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

/* ---- address spaces: the mappings of one process at one time ------------ */

/* What a mapping shows. */
enum uw_mapping_kind {
	UW_MAPPING_FILE,  /* backed by a file; off counts in it */
	UW_MAPPING_ANON,  /* executable memory without a file: generated code */
	UW_MAPPING_VDSO,  /* the kernel's image */
	UW_MAPPING_OTHER, /* [vsyscall], [uprobes] and the like */
};

/* A memory mapping (VMA) of a process. */
struct uw_mapping {
	uint64_t start, end; /* run-time addresses, end is past the last byte */
	uint64_t off;	     /* file offset of start */
	uint32_t prot;	     /* PROT_READ | PROT_WRITE | PROT_EXEC */
	uint8_t kind;	     /* enum uw_mapping_kind */
	/* the resolve callback was called; object NULL then means that there is none */
	bool resolved;
	struct uw_object *object; /* the space holds a reference */
	uint64_t bias;		  /* run-time address - vaddr; valid if object is set */
	void *user;		  /* the caller's own; copied with the mapping, never used */
};

struct uw_space;

/*
 * Return the object of a mapping that a pc lies in, with a reference that passes to the space, or
 * NULL. It is called once for each mapping, from inside uw_walk.
 */
typedef struct uw_object *(*uw_resolve_fn)(void *ctx, const struct uw_mapping *mapping);

/*
 * Make an empty space. resolve is called with ctx to get objects; it may be NULL. -EINVAL: the
 * machine is not supported. -ENOMEM.
 */
int uw_space_new(uint16_t machine, uw_resolve_fn resolve, void *ctx, struct uw_space **out);

/* Free the space; NULL is allowed. */
void uw_space_free(struct uw_space *space);

/* Copy the space, as fork() does. */
int uw_space_copy(const struct uw_space *space, struct uw_space **out);

/*
 * Do the same as uw_space_copy, but copy the mappings only when one of the two spaces changes: most
 * children exec or sleep. Spaces that share mappings must be used by the same thread. Call
 * uw_space_own before a walk in *out. -ENOMEM.
 */
int uw_space_share(struct uw_space *space, struct uw_space **out);

/*
 * Copy the mappings that a space from uw_space_share still shares. Return 0 also if it shares none.
 * -ENOMEM.
 */
int uw_space_own(struct uw_space *space);

/* Remove all mappings, as exec does. */
void uw_space_clear(struct uw_space *space);

/* Return EM_X86_64 or EM_AARCH64. */
uint16_t uw_space_machine(const struct uw_space *space);

/*
 * Add a mapping. It replaces the parts of others that it overlaps; what lies on either side of it
 * stays. If the mapping has an object, the space takes one more reference to it and computes the
 * bias. -EINVAL: the mapping is empty. -ENOMEM.
 */
int uw_space_map(struct uw_space *space, const struct uw_mapping *mapping);

/* Remove [start, end) from the mappings. If nothing is mapped there, the space does not change. */
int uw_space_unmap(struct uw_space *space, uint64_t start, uint64_t end);

/*
 * Return the mapping around addr, borrowed until the space changes. NULL: nothing is mapped there.
 */
const struct uw_mapping *uw_space_find(const struct uw_space *space, uint64_t addr);

/* Do the same as uw_space_find, and get the mapping's object if that was not done before. */
const struct uw_mapping *uw_space_resolved(struct uw_space *space, uint64_t addr);

/*
 * Return all mappings by ascending address and their number in *n, borrowed until the space
 * changes.
 */
const struct uw_mapping *uw_space_mappings(const struct uw_space *space, size_t *n);

/* ---- code generated at run time ------------------------------------------ */

/*
 * What a process registered about code that it generated (schema/dynamic.h): immutable, with a
 * reference count. It is read from the memory of a running process or from a core file, and stored
 * as bytes in captures.
 */
struct uw_dynamic;

/*
 * Copy [addr, addr + size) to out and return 0, or return -EFAULT if any byte cannot be read. All
 * of it is copied or nothing.
 */
typedef int (*uw_read_fn)(void *ctx, uint64_t addr, void *out, size_t size);

/* Interfaces through which a process registers generated code. */
enum uw_dynamic_kind {
	UW_DYNAMIC_LIST, /* struct unw_dyn_info_list, libunwind-dynamic(3) */
	UW_DYNAMIC_JIT,	 /* struct jit_descriptor, GDB's JIT interface */
};

/* Where a process has a registration list. */
struct uw_dynamic_list {
	enum uw_dynamic_kind kind;
	uint64_t addr; /* in the process; 0: none */
};

/*
 * Look up where an object has the registration lists, by its symbols. The addresses are vaddrs, 0
 * if the object has no such list. The file is read each time, so call this once for each object.
 */
void uw_object_lists(const struct uw_object *object, struct uw_dynamic_list out[2]);

/* Look up the vaddrs of n exported names, likewise. 0: the object does not export the name. */
void uw_object_exports(const struct uw_object *object, const char *const *names, size_t n,
		       uint64_t *vaddrs);

/*
 * Read what the lists hold now, at most DYNAMIC_LISTS_MAX bytes of it. The header's flags say what
 * was left out and why. Endless chains, wild pointers and wild counts cost no more than this limit,
 * and read can end the reading sooner by failing. -ENOENT: nothing is registered. -ENOMEM.
 */
int uw_dynamic_read(uint16_t machine, const struct uw_dynamic_list *lists, size_t n,
		    uw_read_fn read, void *ctx, struct uw_dynamic **out);

/*
 * Compute a mark of what the lists hold now. If it differs from uw_dynamic_mark of what was read
 * before, there is something new. -ENOENT: nothing is registered.
 */
int uw_dynamic_marks(const struct uw_dynamic_list *lists, size_t n, uw_read_fn read, void *ctx,
		     uint64_t *mark);

/* Return the mark of the lists at the time when they were read. */
uint64_t uw_dynamic_mark(const struct uw_dynamic *dynamic);

/* Open stored bytes. They are copied and checked. -EBADMSG, -ENOTSUP, -ENOMEM. */
int uw_dynamic_open(const void *bytes, size_t size, struct uw_dynamic **out);

/* Return the bytes to store, borrowed. */
const void *uw_dynamic_bytes(const struct uw_dynamic *dynamic, size_t *size);

/* Return a sentence that says what is wrong with the information, or NULL if nothing is. */
const char *uw_dynamic_fault(const struct uw_dynamic *dynamic);

/* Take one more reference. */
struct uw_dynamic *uw_dynamic_get(struct uw_dynamic *dynamic);

/* Drop one reference; NULL is allowed. */
void uw_dynamic_put(struct uw_dynamic *dynamic);

/* A registered procedure. */
struct uw_dynamic_proc {
	uint64_t start, end; /* addresses in the process */
	const char *name;    /* as the process has it, borrowed; NULL: it has none */
	bool walkable;	     /* unwind information was registered, not only a name */
};

/*
 * Generated code that the caller knows about, for uw_dynamic_make. frames is its unwind information
 * as .eh_frame, with addresses that may count from anywhere; NULL: only the name is known.
 */
struct uw_dynamic_code {
	uint64_t start, end;
	const char *name;
	const uint8_t *frames;
	size_t frames_size;
};

/*
 * Make dynamic information from codes, the newest last: where two overlap, the newer one counts.
 * What exceeds DYNAMIC_SIZE_MAX is left out, the oldest first. names: walks do not use the
 * information, even if it has frames.
 */
int uw_dynamic_make(uint16_t machine, const struct uw_dynamic_code *codes, size_t n, bool names,
		    struct uw_dynamic **out);

/* Return whether uw_dynamic_make was called with names: no walk uses this information. */
bool uw_dynamic_is_names(const struct uw_dynamic *dynamic);

/* Look up the procedure around addr. -ENOENT. */
int uw_dynamic_proc(const struct uw_dynamic *dynamic, uint64_t addr, struct uw_dynamic_proc *out);

/*
 * Let walks in space, and in later copies of it, use the information. The space takes one more
 * reference. NULL: use none.
 */
void uw_space_set_dynamic(struct uw_space *space, struct uw_dynamic *dynamic);

/* Return the space's information, borrowed. */
struct uw_dynamic *uw_space_dynamic(const struct uw_space *space);

/* ---- a captured thread --------------------------------------------------- */

/*
 * Registers by DWARF number. x86_64 (psABI figure 3.36): rax rdx rcx rbx rsi rdi rbp rsp r8…r15,
 * and 16, the return address column, which is rip here. aarch64 (AADWARF64 §4.1): x0…x30, 31 sp, 32
 * pc.
 */
enum { UW_X86_64_RBP = 6, UW_X86_64_RSP = 7, UW_X86_64_RIP = 16, UW_X86_64_REGS = 17 };
enum {
	UW_AARCH64_FP = 29,
	UW_AARCH64_LR = 30,
	UW_AARCH64_SP = 31,
	UW_AARCH64_PC = 32,
	UW_AARCH64_REGS = 33
};
#define UW_REGS_MAX 33

/* Register values, by DWARF number. */
struct uw_regs {
	uint64_t value[UW_REGS_MAX];
	uint64_t known; /* bit i: value[i] is known */
};

/* Captured bytes for uw_memory_read. Regions do not overlap. */
struct uw_region {
	uint64_t addr;
	uint64_t size;
	const uint8_t *bytes; /* borrowed */
};

/* All captured bytes of a thread. */
struct uw_memory {
	const struct uw_region *regions;
	size_t n_regions;
};

/* Read captured bytes; a uw_read_fn whose ctx is a struct uw_memory. */
int uw_memory_read(void *ctx, uint64_t addr, void *out, size_t size);

/* A captured thread: its registers, and how to read its memory. */
struct uw_thread {
	struct uw_regs regs;
	uw_read_fn read; /* captured memory; the walk itself adds read-only file contents */
	void *ctx;
	/*
	 * aarch64: which bits of a code address hold its authentication code, if the source knows
	 * (NT_ARM_PAC_MASK). 0: derive them from the highest mapped address.
	 */
	uint64_t code_mask;
};

/* ---- walking ------------------------------------------------------------- */

/* How the walk found a frame from the one inside it; frame 0 is CONTEXT. */
enum uw_stepper {
	UW_STEPPER_CONTEXT, /* the captured registers */
	UW_STEPPER_CFI,	    /* .eh_frame or .debug_frame */
	/* signal trampoline, recognized by its code or its place */
	UW_STEPPER_SIGNAL,
	UW_STEPPER_PLT,	    /* PLT entry or other stub, recognized by its code */
	UW_STEPPER_LEAF,    /* [sp] (x86_64) or lr (aarch64); no rule for the pc */
	UW_STEPPER_FP,	    /* frame pointer chain */
	UW_STEPPER_SCAN,    /* the next word on the stack that follows a call */
	UW_STEPPER_DYNAMIC, /* what the process registered about code it generated */
	/* how the function begins (x86_64); no rule for the pc */
	UW_STEPPER_PROLOGUE,
	UW_STEPPER_N /* from here on: steppers added by uw_steppers_add */
};

/* How sure it is that a frame is the caller. */
enum uw_confidence {
	/* Unwind information says so, or code that is recognized. */
	UW_CONFIDENCE_RULE,
	/* Guessed; a call precedes the return address and fits the code at the pc. */
	UW_CONFIDENCE_CHECKED,
	/* Guessed; it may be a frame further out, or the code could not be looked at. */
	UW_CONFIDENCE_GUESS,
};

/* Why a walk ended; each reason has a name and a sentence. */
enum uw_stop {
	UW_STOP_ROOT,	    /* proven: this is the thread's outermost frame */
	UW_STOP_TRUNCATED,  /* the walk needs memory that was not captured, at stop_addr */
	UW_STOP_NO_MAPPING, /* the pc lies in no executable mapping */
	/* The mapping's file is missing, replaced or unreadable, and no stepper found a caller. */
	UW_STOP_NO_OBJECT,
	UW_STOP_NO_UNWIND_INFO, /* no rule for the pc, and no stepper found a caller */
	UW_STOP_BAD_CFI,	/* damaged or unsupported unwind information */
	UW_STOP_REG_UNKNOWN,	/* a rule needs a register whose value is not known */
	UW_STOP_CFA_NOT_RISING, /* the caller's frame would not lie above this one */
	UW_STOP_CYCLE,		/* the walk came to the same pc and sp again */
	UW_STOP_MAX_FRAMES,	/* the stack has as many frames as the caller has room for */
	UW_STOP_NO_USER_STATE,	/* the sample has no user registers (kernel thread, exiting task) */
	UW_STOP_COMPAT,		/* 32-bit code under a 64-bit kernel, which is not supported */
	/* a zero frame pointer or return address, without proof of the end */
	UW_STOP_GUESS_ENDED,
	UW_STOP_N
};

/* Return the reason's name: "truncated". */
const char *uw_stop_name(enum uw_stop stop);

/* Return a sentence for people: the meaning, and what helps. */
const char *uw_stop_sentence(enum uw_stop stop);

/* Return the name of a built-in stepper: "cfi". */
const char *uw_stepper_name(enum uw_stepper stepper);

/* One frame of a walked stack. */
struct uw_frame {
	uint64_t pc;	 /* the return address without authentication bits, or the interrupted pc */
	uint64_t lookup; /* pc if exact, else pc - 1 */
	uint64_t cfa;	 /* 0 if the walk stopped before it was known */
	uint64_t sp;	 /* the stack pointer in this frame */
	const struct uw_mapping *mapping; /* borrowed until the space changes; NULL: none */
	uint8_t stepper;    /* enum uw_stepper: how this frame was found from the one inside it */
	uint8_t confidence; /* enum uw_confidence; RULE for frame 0 */
	/* lookup == pc: frame 0, interrupted by a signal, or the entry of a coroutine */
	bool exact;
	bool signal; /* this frame is a signal trampoline */
};

/* The result of a walk: frames[0] is the innermost frame. */
struct uw_stack {
	struct uw_frame *frames; /* owned by the caller, with room for max_frames */
	size_t max_frames;
	size_t n_frames;
	enum uw_stop stop;
	uint64_t stop_addr; /* TRUNCATED: the first address missing; else the last pc walked */
};

/* ---- where registers are saved --------------------------------------------- */

/* Where a caller's register was found. */
enum uw_place {
	UW_PLACE_UNDEFINED, /* the rules say that it is lost */
	UW_PLACE_SAME,	    /* in the same register */
	UW_PLACE_REGISTER,  /* in another register */
	UW_PLACE_MEMORY,    /* at addr */
	UW_PLACE_VALUE,	    /* computed, stored nowhere */
};

/* Where one of the caller's registers was found. */
struct uw_save {
	/* the caller's register by DWARF number; for the return address that of the pc */
	uint8_t reg;
	uint8_t place;	 /* enum uw_place */
	uint8_t from;	 /* REGISTER: which register */
	bool expression; /* found by a DWARF expression */
	bool popped;	 /* SAME, because its slot lies below sp already */
	bool known;	 /* value is known */
	uint64_t addr, value;
};

/* ---- steppers ------------------------------------------------------------ */

/*
 * To find a frame's caller, a walk calls one stepper after another until one
 * returns something other than NOT_ME. It calls those whose ranges contain the
 * frame's lookup address, the lowest priority value first, equal ones in the order
 * in which they were added.
 *
 *   0x1000  table   a compiled row of unwind information
 *   0x1100  cfi     unwind information, interpreted: the same rules; a frame does
 *                   not show which of the two found it
 *   0x1180  dynamic what the process registered about code it generated
 *   0x1200  signal  a signal trampoline, recognized by its code
 *   0x1300  plt     a PLT entry, stub or .init, recognized by its code
 *   0x1800  leaf    no frame yet: the word at sp, if a call precedes it, or lr
 *   0x1900  fp      the frame pointer, if the chain and the call fit
 *   0x1a00  prologue how the function begins, if it leads to a return address
 *   0x1f00  scan    the next word on the stack that a call precedes; off by default
 */
#define UW_PRIORITY_TABLE    0x1000
#define UW_PRIORITY_CFI	     0x1100
#define UW_PRIORITY_DYNAMIC  0x1180
#define UW_PRIORITY_SIGNAL   0x1200
#define UW_PRIORITY_PLT	     0x1300
#define UW_PRIORITY_LEAF     0x1800
#define UW_PRIORITY_FP	     0x1900
#define UW_PRIORITY_PROLOGUE 0x1a00
#define UW_PRIORITY_SCAN     0x1f00

/* What a stepper found. */
enum uw_answer {
	UW_ANSWER_SUCCESS,	/* the query's registers are the caller's */
	UW_ANSWER_STACK_BOTTOM, /* this frame is the outermost: the walk stops with ROOT */
	UW_ANSWER_NOT_ME,	/* the walk calls the next stepper */
	UW_ANSWER_ERROR,	/* the walk stops with query->stop */
};

/* A frame whose caller is wanted; borrowed while the stepper runs. */
struct uw_query {
	struct uw_space *space;
	const struct uw_frame *frame; /* its cfa and signal are not known yet */
	uw_read_fn read;	      /* reads the memory that the walk sees */
	void *read_ctx;
	/* In: this frame's registers. Out with SUCCESS: the caller's; pc and sp must be known. */
	struct uw_regs regs;
	/* Out: */
	uint64_t cfa;	    /* of this frame; 0: use the caller's sp */
	uint8_t confidence; /* enum uw_confidence; RULE unless changed */
	bool signal;	    /* this frame is a signal trampoline: the caller's pc is exact */
	enum uw_stop stop;  /* for ERROR; BAD_CFI unless changed */
	uint64_t stop_addr; /* for ERROR with TRUNCATED: the address that is missing */
	/*
	 * Out, optional: where the caller's pc, sp and frame pointer were found, in this order, by
	 * place, from and addr. REGISTER and SAME mean a register of this frame.
	 */
	struct uw_save saves[3];
};

/* Find the caller of the query's frame. */
typedef enum uw_answer (*uw_stepper_fn)(void *ctx, struct uw_query *query);

/* A range of code. */
struct uw_range {
	uint64_t start, end; /* run-time addresses; end is past the last byte */
};

struct uw_steppers; /* the built-in steppers and those that were added */

/* A stepper, as it is added or listed. */
struct uw_stepper_info {
	const char *name;
	uint32_t priority;
	/* n_ranges of them; none: the stepper is called for every address */
	const struct uw_range *ranges;
	size_t n_ranges;
	uw_stepper_fn step; /* NULL for a built-in one */
	void *ctx;
	/*
	 * Called once the stepper is added; it may look for code and add ranges. NULL is allowed.
	 */
	void (*added)(void *ctx, struct uw_steppers *steppers, uint8_t id);
};

/* Make a group with the built-in steppers. -ENOMEM. */
int uw_steppers_new(struct uw_steppers **out);

/* Free the group, which no space may use any more; NULL is allowed. */
void uw_steppers_free(struct uw_steppers *steppers);

/*
 * Add a stepper. No space may be using the group. info is copied, except what ctx points to. Frames
 * that the stepper finds have *id as their stepper; id may be NULL. -EINVAL: no name, no step
 * function or an empty range. -ENOSPC: there are too many steppers.
 */
int uw_steppers_add(struct uw_steppers *steppers, const struct uw_stepper_info *info, uint8_t *id);

/*
 * Add ranges to a user's stepper. A stepper that was called everywhere is then called in the added
 * ranges only. No space may be using the group. -ENOENT: there is no such stepper. -EINVAL: a range
 * is empty. -ENOMEM.
 */
int uw_steppers_add_ranges(struct uw_steppers *steppers, uint8_t id, const struct uw_range *ranges,
			   size_t n);

/*
 * Remove ranges from a user's stepper. A stepper that was called everywhere is then called
 * everywhere else. No space may be using the group. Errors are those of uw_steppers_add_ranges.
 */
int uw_steppers_remove_ranges(struct uw_steppers *steppers, uint8_t id,
			      const struct uw_range *ranges, size_t n);

/*
 * Return the next stepper to call for code at lookup, as its index in uw_steppers_at. last is the
 * index of the one that returned NOT_ME, SIZE_MAX at first. SIZE_MAX: no stepper is left.
 */
size_t uw_steppers_find(const struct uw_steppers *steppers, uint64_t lookup, size_t last);

/*
 * Choose the next stepper in place of uw_steppers_find, which the function may call. It is called
 * until a stepper that it chose does not return NOT_ME, at most as often as there are steppers.
 */
typedef size_t (*uw_choose_fn)(void *ctx, const struct uw_steppers *steppers, uint64_t lookup,
			       size_t last);

/*
 * Set the function that chooses steppers. NULL: uw_steppers_find again. No space may be using the
 * group.
 */
void uw_steppers_choose(struct uw_steppers *steppers, uw_choose_fn choose, void *ctx);

/*
 * Turn all steppers of this name on or off. No space may be using the group. -ENOENT: none has this
 * name.
 */
int uw_steppers_enable(struct uw_steppers *steppers, const char *name, bool on);

/*
 * Return the i-th stepper in calling order, borrowed. steppers NULL: the built-in ones. -ENOENT: i
 * is too large.
 */
int uw_steppers_at(const struct uw_steppers *steppers, size_t i, struct uw_stepper_info *info,
		   uint8_t *id, bool *on);

/* Return the name of a frame's stepper, built in or added. */
const char *uw_steppers_name(const struct uw_steppers *steppers, uint8_t id);

/*
 * Let walks in space, and in later copies of it, use these steppers. NULL: the built-in ones again.
 */
void uw_space_use(struct uw_space *space, const struct uw_steppers *steppers);

/*
 * Caches and scratch memory of one walking thread. Cache entries belong to a space and become
 * invalid when the space changes.
 */
struct uw_worker;

/* Make a worker. -ENOMEM. */
int uw_worker_new(struct uw_worker **out);

/* Free the worker; NULL is allowed. */
void uw_worker_free(struct uw_worker *worker);

/*
 * Walk a captured stack. out->frames and out->stop are always filled in: a walk cannot fail, it
 * stops somewhere for a reason.
 *
 * The walk allocates nothing itself: frames, stack and worker are the caller's. An object allocates
 * memory for what it reads from its file (unwind sections, at most 256 MiB each, and indexes of
 * them). It reads when the data is first needed, which may be in a walk; later walks need no more
 * memory.
 */
void uw_walk(struct uw_space *space, struct uw_worker *worker, const struct uw_thread *thread,
	     struct uw_stack *out);

/* One walk of uw_walk_many. */
struct uw_job {
	struct uw_space *space;
	const struct uw_thread *thread;
	struct uw_stack *stack;
};

/*
 * Walk n stacks, several at once, a frame of each in turn. The frames are the same as from n calls
 * of uw_walk. It takes less time if the captured bytes have left the CPU's caches. Jobs may share
 * spaces. No space may change before the call returns.
 */
void uw_walk_many(struct uw_worker *worker, const struct uw_job *jobs, size_t n);

/*
 * A history of the last walks of many threads, for their next samples. If a caller's frame is where
 * it was, and everything that was read to walk on from it is unchanged, its callers are the same,
 * too. One thread at a time may use it.
 */
struct uw_pasts;

/*
 * Make an empty history, for stacks with room for at most max_frames frames. It takes at most
 * max_bytes; threads that were not seen for longest are dropped first. -ENOMEM.
 */
int uw_pasts_new(size_t max_frames, size_t max_bytes, struct uw_pasts **out);

/* Free the history; NULL is allowed. */
void uw_pasts_free(struct uw_pasts *pasts);

/* Drop all walks from the history. */
void uw_pasts_forget(struct uw_pasts *pasts);

/* All frames of a walk, outermost first, borrowed until the next walk with the same history. */
struct uw_again {
	size_t n_taken; /* outermost frames that were taken from the walk before */
	size_t n;	/* 0: the walk was not stored; all frames are in the stack alone */
	const struct uw_frame *frames;
	/* one for each frame, for the caller's use; frames that were taken keep theirs */
	uint32_t *users;
};

/*
 * Walk as uw_walk does, but take the outermost frames from the history if they are unchanged. key
 * is the caller's number for the thread. job->stack is filled in as by uw_walk, but its frames are
 * only the innermost ones, those that were walked this time. Frames, stop and stop_addr are the
 * same as uw_walk's. The function may allocate memory before and after the walk.
 */
void uw_walk_again(struct uw_pasts *pasts, uint64_t key, struct uw_worker *worker,
		   const struct uw_job *job, struct uw_again *out);

/* ---- how a walk went, step by step --------------------------------------- */

/* Return the register's name: "rip"; "?": there is no such register. */
const char *uw_reg_name(uint16_t machine, unsigned int reg);

/* Where the rule for a frame comes from. */
enum uw_rules {
	UW_RULES_NONE, /* there is none for its pc */
	UW_RULES_EH_FRAME,
	UW_RULES_DEBUG_FRAME,
	UW_RULES_MINI,	  /* .debug_frame inside .gnu_debugdata */
	UW_RULES_GAP,	  /* an FDE or the entry point next to the pc, or the code itself */
	UW_RULES_DYNAMIC, /* registered by the process, for code it generated */
	UW_RULES_CODE,	  /* derived from how its function begins, at fde_start */
	UW_RULES_GO,	  /* Go's function table, .gopclntab */
};

/* Why a stepper found no caller for code without rules. */
enum uw_verdict {
	UW_VERDICT_CALLER,  /* the frame called another: sp and lr no longer point to its return */
	UW_VERDICT_UNKNOWN, /* the register's value is not known */
	/* the frame pointer is 0: the chain ends, but that proves nothing */
	UW_VERDICT_NONE,
	UW_VERDICT_ASTRAY,     /* the frame pointer points to no frame of this stack */
	UW_VERDICT_NOT_RISING, /* the frame that it points to does not lie above it */
	UW_VERDICT_MISSING,    /* the bytes at addr were not captured */
	UW_VERDICT_NO_CODE,    /* the value is not an address of code */
	UW_VERDICT_NO_CALL,    /* it is an address of code, but no call precedes it */
	/* it is an address of code, but the bytes before it cannot be read */
	UW_VERDICT_UNREAD,
	UW_VERDICT_OTHER,   /* a call precedes it, but a call of another function */
	UW_VERDICT_OFF,	    /* this stepper has not been turned on */
	UW_VERDICT_NO_WORD, /* no word on the stack follows a call */
	/* no function start below the pc leads to a return address */
	UW_VERDICT_NOT_PLAIN,
	UW_VERDICT_N
};

/* A guess that was not taken. */
struct uw_try {
	uint8_t stepper; /* LEAF, FP, PROLOGUE or SCAN */
	uint8_t verdict; /* enum uw_verdict */
	uint8_t reg;	 /* the register that the stepper used */
	bool has_addr, has_value;
	/* of the possible return address; ASTRAY, NONE: of the register */
	uint64_t addr, value;
};

/* Return the verdict's name: "no_call". */
const char *uw_verdict_name(enum uw_verdict verdict);

/* Return it in words: "no call ends there". */
const char *uw_verdict_sentence(enum uw_verdict verdict);

/* One step, from a frame to its caller. */
struct uw_step {
	size_t frame;			/* its index in the stack */
	struct uw_regs regs;		/* in this frame */
	const struct uw_object *object; /* borrowed until the space changes; NULL: none */
	uint64_t vaddr;			/* of the frame's lookup address in the object */
	enum uw_rules rules;
	/*
	 * vaddrs; row: 0, 0 if there is none.  DYNAMIC rules: run-time addresses of the
	 * procedure.  CODE: of the function up to the pc.
	 */
	uint64_t fde_start, fde_end, row_start, row_end;
	bool found; /* the step found a caller */
	/* enum uw_stepper or a user's: the one that found the caller, or failed to */
	uint8_t stepper;
	enum uw_confidence confidence;
	bool cfa_known, cfa_expression;
	uint8_t cfa_reg; /* cfa = cfa_reg + cfa_off, unless an expression gives it */
	int64_t cfa_off;
	uint64_t cfa;
	struct uw_save ra;
	struct uw_save saves[UW_REGS_MAX]; /* all other registers that have a rule */
	size_t n_saves;
	struct uw_try tried[4]; /* for the last frame, if it has no rule */
	size_t n_tried;
	bool differs; /* an error in this library: the walk found another caller */
};

/* Receive one step, which is borrowed for the call. */
typedef void (*uw_step_fn)(void *ctx, const struct uw_step *step);

/*
 * Walk the stack once more, slowly and without caches or compiled tables, and report each step to
 * fn. stack must be the result of uw_walk in the same space, which must not have changed. Walks
 * that are not explained cost nothing more.
 */
void uw_explain(struct uw_space *space, const struct uw_thread *thread,
		const struct uw_stack *stack, uw_step_fn fn, void *ctx);

/* Return the name: ".eh_frame". */
const char *uw_rules_name(enum uw_rules rules);

/* Return the name: "rule". */
const char *uw_confidence_name(enum uw_confidence confidence);

#ifdef __cplusplus
}
#endif

/*
 * The rest of the library's interface: single frames by callbacks (cursor.h), whole processes
 * (walker.h).
 */
#include "unwinder/cursor.h"
#include "unwinder/walker.h"

#endif
