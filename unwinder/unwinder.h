/*
 * unwinder/unwinder.h: the public face of liboffwind.
 *
 * Sections, registers and captured memory in, frames out.  Nothing here opens
 * a path, prints, exits or keeps mutable state of its own, but for two counters
 * that number objects and spaces; an x86_64 sample can be unwound on any host.
 *
 * Addresses: `pc` is where a thread is, `ra` a return address, `lookup` what
 * rules and symbols are sought by (pc, or ra - 1), `vaddr` an address as the
 * ELF file states it, `off` an offset in the file, `bias` run-time address -
 * vaddr, `cfa` the canonical frame address (DWARF 5 §6.4).
 *
 * Errors: functions that can fail return 0 or a negative errno value and leave
 * their result untouched on failure.  -EINVAL the caller's fault, -ENOENT
 * nothing there, -EBADMSG damaged input, -ENOTSUP sound input not handled,
 * -EFAULT memory that was not captured, -ENOMEM and others as they came.
 *
 * Threads: objects are immutable for their users and counted atomically; any
 * number of threads may share one.  A space and a worker belong to one thread
 * at a time.
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

struct uw_build_id {
	uint8_t size; /* 0: the file has none */
	uint8_t bytes[UW_BUILD_ID_MAX];
};

/*
 * Return whether both have the same bytes.  Zeros at the end do not count: perf before 5.11 and
 * simpleperf write ids of every size in 20 bytes.
 */
bool uw_build_id_equal(const struct uw_build_id *a, const struct uw_build_id *b);

/* ---- kept bytes --------------------------------------------------------- */

/* XXH64, as kept blobs are checked by: against accidents; who means harm can compute it too. */
uint64_t uw_checksum(const void *data, size_t size, uint64_t seed);

/*
 * Where a blob (schema/blob.h) is kept.  read gives all of [off, off + size) or a negative code;
 * damaged is told once that what it gave was not what was kept; release that nothing will be read
 * any more.  Calls may come from any thread, one at a time.
 */
struct uw_kept {
	uint64_t size;
	int (*read)(void *ctx, uint64_t off, void *out, size_t size);
	void (*damaged)(void *ctx); /* NULL is fine, as in the next */
	void (*release)(void *ctx);
	void *ctx;
};

/* Takes kept over, and releases it on failure too.  -EBADMSG its front is damaged, or not magic's. */
struct uw_blob;
int uw_blob_open(const struct uw_kept *kept, uint32_t magic, struct uw_blob **out);
void uw_blob_free(struct uw_blob *blob); /* NULL is fine */
/* Where it lies from the first byte to the last; there is what was needed. */
const void *uw_blob_bytes(const struct uw_blob *blob);
uint64_t uw_blob_size(const struct uw_blob *blob);
/* Sees to it that bytes are there, and sound: -EBADMSG outside, or damaged; or what read gave. */
int uw_blob_need(struct uw_blob *blob, uint64_t off, uint64_t size);
int uw_blob_whole(struct uw_blob *blob);
uint64_t uw_blob_read(struct uw_blob *blob); /* how many bytes were read so far */

/* A whole blob in memory, at a multiple of 8.  -EBADMSG damaged. */
int uw_blob_check(const void *bytes, size_t size);
/* For its makers: the room that sums take of so many bytes behind the front; fills them in. */
size_t uw_blob_sums(uint64_t rest);
void uw_blob_seal(void *bytes);

/* ---- bytes in sight ----------------------------------------------------- */

/*
 * A file's bytes in memory, from its first, beside the descriptor: small reads are copied from there.
 * cut says, by any thread, that some of the bytes there are not in the file any more, as after SIGBUS;
 * then the file is read.  release is told that nothing will be looked at any more.
 */
struct uw_view {
	const uint8_t *bytes; /* borrowed; NULL: there is none, and nothing else matters */
	uint64_t size;
	bool (*cut)(void *ctx); /* NULL: they always are; the next may be NULL, too */
	void (*release)(void *ctx);
	void *ctx;
};

/*
 * Whether out now has the bytes [off, off + size) as the file has them; false: it is to be read, for
 * more than 64 KiB, too, which costs no less to look at.
 */
bool uw_view_copy(const struct uw_view *view, uint64_t off, void *out, uint64_t size);

/*
 * From now on, what the calling thread unpacks asks stop (with ctx) every 256 KiB and gives up with
 * -ECANCELED once that says true.  NULL: nothing asks any more.  For threads that read strangers' files
 * and may be abandoned: a few hundred KB of a file unpack to as many MB.
 */
void uw_unpack_unless(bool (*stop)(void *ctx), void *ctx);
/* Ask it: whether the calling thread is to give up.  False where nothing asks. */
bool uw_unpack_is_stopped(void);

/* ---- objects: one ELF file's unwind information ------------------------- */

struct uw_object; /* immutable, counted */

struct uw_segment { /* a PT_LOAD entry */
	uint64_t off, vaddr;
	uint64_t file_size, mem_size;
	uint32_t flags; /* PF_R | PF_W | PF_X */
};

/*
 * Reads the headers of the ELF file behind fd, which the caller keeps and may
 * close at once; call-frame information is read when it is first asked for.  elf_off: where in the file the ELF image begins (0
 * but for archives).  -EBADMSG damaged, -ENOTSUP not ELF64 little-endian of a
 * machine we know.  A file without unwind sections is fine: it has no rules.
 */
int uw_object_open(int fd, uint64_t elf_off, struct uw_object **out);

/* The same where the file's bytes are in sight.  Takes view over, and releases it on failure too. */
int uw_object_open_viewed(int fd, uint64_t elf_off, const struct uw_view *view,
			  struct uw_object **out);
/* Borrowed for the object's life; without bytes where it was opened without. */
const struct uw_view *uw_object_view(const struct uw_object *object);

/* The same from an image in memory (a vDSO), whose bytes are copied. */
int uw_object_open_image(const void *image, size_t size, struct uw_object **out);
/* The image of a file that begins at elf_off of what is mapped: mappings count from there. */
int uw_object_open_image_at(const void *image, size_t size, uint64_t elf_off,
			    struct uw_object **out);

struct uw_object *uw_object_get(struct uw_object *object); /* one more reference */
void uw_object_put(struct uw_object *object);		   /* NULL is fine */

uint16_t uw_object_machine(const struct uw_object *object); /* EM_X86_64, EM_AARCH64 */
/* Borrowed for the object's life. */
const struct uw_build_id *uw_object_build_id(const struct uw_object *object);
const struct uw_segment *uw_object_segments(const struct uw_object *object, size_t *n);

/*
 * Offset in the file (elf_off included) → vaddr by the executable PT_LOAD
 * entries (any other if none fits); -ENOENT outside.
 */
int uw_object_vaddr(const struct uw_object *object, uint64_t off, uint64_t *vaddr);

/*
 * The function around vaddr as unwind information bounds it, names or none:
 * [*start, *end).  A part that was split off is one of its own.  -ENOENT where no
 * FDE covers vaddr, or how the one that should is damaged.
 */
int uw_object_function(struct uw_object *object, uint64_t vaddr, uint64_t *start, uint64_t *end);

/* Copies bytes of segments that are not writable, as the file has them; -EFAULT outside. */
int uw_object_read(const struct uw_object *object, uint64_t vaddr, void *out, size_t size);

/*
 * An object's rules, compiled (schema/table.h): walks look them up in a few
 * nanoseconds.  Compiling takes milliseconds a megabyte of unwind information;
 * walks of other threads go on meanwhile, find rules in the file, and find the
 * same.  0 also where it was done before; -ENOENT there is nothing to compile;
 * -EFBIG it would take more time or memory than any real file needs.
 */
int uw_object_compile(struct uw_object *object);
/* Do the same, but ask stop (with ctx) every few hundred functions: -ECANCELED once that says true. */
int uw_object_compile_unless(struct uw_object *object, bool (*stop)(void *ctx), void *ctx);

/* The compiled table to keep, borrowed for the object's life; NULL: not compiled yet. */
const void *uw_object_compiled(const struct uw_object *object, size_t *size);

/*
 * The size and XXH64 of the unwind sections, which a table's header repeats.  They find a table that
 * was made from other sections by accident.  Anybody can make sections with a given XXH64: whoever
 * keeps tables of strangers' files needs a cryptographic hash of uw_object_inputs beside it.
 */
struct uw_identity {
	uint64_t size, hash;
};
/* Read the unwind sections and give their identity.  -ENOMEM. */
int uw_object_identify(struct uw_object *object, struct uw_identity *out);
/* Take the next size bytes, which are borrowed for the call. */
typedef void (*uw_input_fn)(void *ctx, const void *bytes, size_t size);
/*
 * Call take with every byte that the object's table and ranges are made from, piece by piece, in an
 * order and with lengths that no other input can give: machine, segments, what pointers count from,
 * the sections.  -ENOMEM.
 */
int uw_object_inputs(struct uw_object *object, uw_input_fn take, void *ctx);

/*
 * A kept table instead of compiling; it is copied and checked.  -EBADMSG damaged,
 * -ENOTSUP of another version, -ENOENT made from other unwind information.
 */
int uw_object_adopt(struct uw_object *object, const void *blob, size_t size);
/*
 * The same without a copy: blob, from malloc, is taken over, and freed on failure too.  known: what
 * the file's identity is, from one who is sure that it has not changed; NULL: it is worked out.
 */
int uw_object_take(struct uw_object *object, void *blob, size_t size,
		   const struct uw_identity *known);
/*
 * The same of a blob that is read as walks need it; kept is taken over, and released on failure
 * too.  Where a part turns out to be damaged, the file's own rules are used.
 */
int uw_object_take_kept(struct uw_object *object, const struct uw_kept *kept,
			const struct uw_identity *known);
/*
 * Make an object of a kept table alone, for a file that is gone: rules and segments are the table's,
 * and there is no code to look at.  kept is taken over, and released on failure too.  -EBADMSG
 * damaged, -ENOTSUP of another version.
 */
int uw_object_open_kept(const struct uw_kept *kept, struct uw_object **out);

/*
 * The procedures' ranges (schema/procs.h), to keep beside the table: with both, call-frame
 * information is read only where it is odd.  The caller frees *blob.  -ENOTSUP it is odd all over.
 */
int uw_object_procs(struct uw_object *object, void **blob, size_t *size);
/* Takes blob over as uw_object_take does. */
int uw_object_take_procs(struct uw_object *object, void *blob, size_t size,
			 const struct uw_identity *known);
int uw_object_take_kept_procs(struct uw_object *object, const struct uw_kept *kept,
			      const struct uw_identity *known);

/* How often the file's call-frame information was read: for a look-up, to compile. */
uint64_t uw_object_parsed(const struct uw_object *object);

/*
 * A kept table, and ranges, to be looked at: no file is needed.  One thread at a
 * time.  The blobs are borrowed, begin at multiples of 8 and are checked as
 * adopting does; either may be NULL.
 */
struct uw_rows;
int uw_rows_open(const void *table, size_t size, const void *procs, size_t procs_size,
		 struct uw_rows **out);
/* The same of what is read as it is needed; both are taken over, and released on failure too. */
int uw_rows_open_kept(const struct uw_kept *table, const struct uw_kept *procs,
		      struct uw_rows **out);
/* The blobs' bytes, NULL: none; of kept ones the front, and all of them after uw_rows_whole. */
const void *uw_rows_table(const struct uw_rows *rows, size_t *size);
const void *uw_rows_ranges(const struct uw_rows *rows, size_t *size);
int uw_rows_whole(struct uw_rows *rows);
uint64_t uw_rows_read(struct uw_rows *rows); /* bytes of kept ones read so far */
void uw_rows_free(struct uw_rows *rows);     /* NULL is fine */

/* A row in words; texts live as long as rows.  Registers as readelf --debug-dump=frames-interp. */
struct uw_row_info {
	uint64_t start, end;	 /* vaddr */
	uint32_t rule;		 /* rows with the same number say the same */
	bool none;		 /* the file has to be asked; nothing below is told */
	bool slow;		 /* by a record of its own */
	bool signal, ra_signed;	 /* the caller was interrupted; the address carries a code */
	const char *cfa_kind;	 /* "sp", "fp", "register", "expression" */
	const char *cfa_reg;	 /* NULL: an expression */
	int64_t cfa_off;	 /* 0 with an expression */
	const char *fp, *ra;	 /* "c-16", "u", "s", "exp", …; "" not mentioned: the same */
	const char *others;	 /* "rbx=c-24 r12=c-16" */
	const char *expressions; /* "cfa: DW_OP_…; rip: …"; "" none */
	const char *words;	 /* "CFA = rsp + 16, return address at CFA - 8, …" */
};
/* How many rows the table has. */
size_t uw_rows_count(const struct uw_rows *rows);
/* The row that holds at vaddr.  -ENOENT outside all; -EBADMSG that part is damaged, as in the next. */
int uw_rows_find(struct uw_rows *rows, uint64_t vaddr, size_t *i);
int uw_rows_at(struct uw_rows *rows, size_t i, struct uw_row_info *out);

/* Procedures in order; and as uw_object_function, but -ENOENT gives the range without any. */
size_t uw_rows_procs(const struct uw_rows *rows);
int uw_rows_proc(struct uw_rows *rows, size_t i, uint64_t *start, uint64_t *end);
/* How many end at or before vaddr. */
int uw_rows_procs_before(struct uw_rows *rows, uint64_t vaddr, size_t *n);
int uw_rows_function(struct uw_rows *rows, uint64_t vaddr, uint64_t *start, uint64_t *end);

/* Compiles objects one by one on a thread of its own. */
struct uw_builder;
int uw_builder_new(struct uw_builder **out);
void uw_builder_free(struct uw_builder *builder); /* gives up what is not done; NULL is fine */
/* Takes a reference of its own while it needs one, and never waits.  -ENOMEM. */
int uw_builder_add(struct uw_builder *builder, struct uw_object *object);
void uw_builder_wait(struct uw_builder *builder); /* until nothing is left to compile */

/* ---- address spaces: the mappings of one process at one time ------------ */

enum uw_mapping_kind {
	UW_MAPPING_FILE,  /* backed by a file; off counts in it */
	UW_MAPPING_ANON,  /* executable memory without a file: generated code */
	UW_MAPPING_VDSO,  /* the kernel's image */
	UW_MAPPING_OTHER, /* [vsyscall], [uprobes] and their kin */
};

struct uw_mapping {
	uint64_t start, end;	  /* run-time addresses, end is past the last byte */
	uint64_t off;		  /* file offset of start */
	uint32_t prot;		  /* PROT_READ | PROT_WRITE | PROT_EXEC */
	uint8_t kind;		  /* enum uw_mapping_kind */
	bool resolved;		  /* object was asked for; NULL then means there is none to use */
	struct uw_object *object; /* the space holds a reference */
	uint64_t bias;		  /* run-time address - vaddr; valid where object is set */
	void *user;		  /* the owner's; copied along, never looked at */
};

struct uw_space;

/*
 * Asked once for a mapping a pc fell into: gives the object (with a reference
 * that passes to the space) or NULL.  Called inside uw_walk.
 */
typedef struct uw_object *(*uw_resolve_fn)(void *ctx, const struct uw_mapping *mapping);

/* Empty; resolve, unless NULL, is asked for objects with ctx.  -ENOTSUP another machine, -ENOMEM. */
int uw_space_new(uint16_t machine, uw_resolve_fn resolve, void *ctx, struct uw_space **out);
void uw_space_free(struct uw_space *space);				/* NULL is fine */
int uw_space_copy(const struct uw_space *space, struct uw_space **out); /* fork */
/*
 * Do the same, but have the mappings copied only when one of the two changes: most children exec
 * or sleep.  Spaces that share belong to one thread, and before a walk in *out, uw_space_own is
 * called.  -ENOMEM.
 */
int uw_space_share(struct uw_space *space, struct uw_space **out);
int uw_space_own(struct uw_space *space);    /* 0 also where nothing is shared; -ENOMEM */
void uw_space_clear(struct uw_space *space); /* exec */
/* EM_X86_64, EM_AARCH64. */
uint16_t uw_space_machine(const struct uw_space *space);

/*
 * A new mapping replaces what it overlaps; what stands out on either side stays.
 * An object it brings along is counted once more, and its bias is worked out here.
 */
int uw_space_map(struct uw_space *space, const struct uw_mapping *mapping);
/* Where nothing is mapped the space does not change. */
int uw_space_unmap(struct uw_space *space, uint64_t start, uint64_t end);

/* Borrowed until the space changes; NULL where nothing is mapped. */
const struct uw_mapping *uw_space_find(const struct uw_space *space, uint64_t addr);
/* The same with its object asked for, if it was not before. */
const struct uw_mapping *uw_space_resolved(struct uw_space *space, uint64_t addr);
const struct uw_mapping *uw_space_mappings(const struct uw_space *space, size_t *n);

/* ---- code generated at run time ------------------------------------------ */

/*
 * What a process registered of code it generated (schema/dynamic.h): immutable, counted.
 * Read out of its memory while it lives, or out of a core; kept as bytes in captures.
 */
struct uw_dynamic;

/* 0, or -EFAULT if any byte of [addr, addr + size) is not to be had; all of it or nothing. */
typedef int (*uw_read_fn)(void *ctx, uint64_t addr, void *out, size_t size);

enum uw_dynamic_kind {
	UW_DYNAMIC_LIST, /* struct unw_dyn_info_list, libunwind-dynamic(3) */
	UW_DYNAMIC_JIT,	 /* struct jit_descriptor, GDB's JIT interface */
};

struct uw_dynamic_list {
	enum uw_dynamic_kind kind;
	uint64_t addr; /* in the process; 0: none */
};

/*
 * Where an object keeps them, by its symbols: vaddrs, 0 where it has none.  Reads the file; to be
 * asked once an object.
 */
void uw_object_lists(const struct uw_object *object, struct uw_dynamic_list out[2]);
/* Likewise the vaddrs of n names that it exports; 0: it does not. */
void uw_object_exports(const struct uw_object *object, const char *const *names, size_t n,
		       uint64_t *vaddrs);

/*
 * What the lists hold now, at most DYNAMIC_LISTS_MAX of it; what was left out and why is in
 * the header's flags.  Chains that never end, wild pointers and counts cost no more than that,
 * and read may end it sooner by failing.  -ENOENT: nothing is registered; -ENOMEM.
 */
int uw_dynamic_read(uint16_t machine, const struct uw_dynamic_list *lists, size_t n,
		    uw_read_fn read, void *ctx, struct uw_dynamic **out);

/* Another mark than uw_dynamic_mark of what was read: there is something new.  -ENOENT: nothing is registered. */
int uw_dynamic_marks(const struct uw_dynamic_list *lists, size_t n, uw_read_fn read, void *ctx,
		     uint64_t *mark);
uint64_t uw_dynamic_mark(const struct uw_dynamic *dynamic);

/* Bytes that were kept; they are copied and checked.  -EBADMSG, -ENOTSUP, -ENOMEM. */
int uw_dynamic_open(const void *bytes, size_t size, struct uw_dynamic **out);
const void *uw_dynamic_bytes(const struct uw_dynamic *dynamic, size_t *size); /* borrowed */

/* What is wrong with it, in words for people; NULL: nothing is. */
const char *uw_dynamic_fault(const struct uw_dynamic *dynamic);

struct uw_dynamic *uw_dynamic_get(struct uw_dynamic *dynamic); /* one more reference */
void uw_dynamic_put(struct uw_dynamic *dynamic);	       /* NULL is fine */

struct uw_dynamic_proc {
	uint64_t start, end; /* addresses of the process */
	const char *name;    /* as it stood there, borrowed; NULL: it has none */
	bool walkable;	     /* how it is left was registered, not its name alone */
};

/*
 * The same made of what somebody else knows, the newest last: it counts where two overlap.  What is
 * more than DYNAMIC_SIZE_MAX is left out, the oldest first.  frames: of the code as .eh_frame, its
 * addresses may be counted from anywhere; NULL: there is its name alone.
 */
struct uw_dynamic_code {
	uint64_t start, end;
	const char *name;
	const uint8_t *frames;
	size_t frames_size;
};
/* names: walks do not go by it even if it has frames. */
int uw_dynamic_make(uint16_t machine, const struct uw_dynamic_code *codes, size_t n, bool names,
		    struct uw_dynamic **out);
/* Made so: nothing is to be walked by it. */
bool uw_dynamic_is_names(const struct uw_dynamic *dynamic);

/* The procedure around addr; -ENOENT. */
int uw_dynamic_proc(const struct uw_dynamic *dynamic, uint64_t addr, struct uw_dynamic_proc *out);

/* Walks in space go by it, and in copies made later; it is counted once more.  NULL: by none. */
void uw_space_set_dynamic(struct uw_space *space, struct uw_dynamic *dynamic);
struct uw_dynamic *uw_space_dynamic(const struct uw_space *space); /* borrowed */

/* ---- a captured thread --------------------------------------------------- */

/*
 * By DWARF number.  x86_64 (psABI figure 3.36): rax rdx rcx rbx rsi rdi rbp rsp
 * r8…r15, 16 the return address column, here rip.  aarch64 (AADWARF64 §4.1):
 * x0…x30, 31 sp, 32 pc.
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

struct uw_regs {
	uint64_t value[UW_REGS_MAX];
	uint64_t known; /* bit i: value[i] is known */
};

/* Ready-made accessor over captured bytes; regions do not overlap; ctx is a struct uw_memory. */
struct uw_region {
	uint64_t addr;
	uint64_t size;
	const uint8_t *bytes; /* borrowed */
};

struct uw_memory {
	const struct uw_region *regions;
	size_t n_regions;
};

/* A uw_read_fn: ctx is a struct uw_memory. */
int uw_memory_read(void *ctx, uint64_t addr, void *out, size_t size);

struct uw_thread {
	struct uw_regs regs;
	uw_read_fn read; /* captured memory; read-only file contents are added by the walk */
	void *ctx;
	/*
	 * aarch64: which bits of a code address hold its authentication code, where the
	 * source knows (NT_ARM_PAC_MASK); 0: told by how far up memory is mapped.
	 */
	uint64_t code_mask;
};

/* ---- walking ------------------------------------------------------------- */

enum uw_stepper { /* what found a frame's caller-side registers; frame 0 is CONTEXT */
		  UW_STEPPER_CONTEXT, /* the captured registers */
		  UW_STEPPER_CFI,     /* .eh_frame or .debug_frame */
		  UW_STEPPER_SIGNAL, /* signal trampoline, recognised by its code, or by where it is */
		  UW_STEPPER_PLT,    /* PLT or other stub, recognised by its code */
		  UW_STEPPER_LEAF,     /* [sp] (x86_64) or lr (aarch64), no rule for the pc */
		  UW_STEPPER_FP,       /* frame pointer chain */
		  UW_STEPPER_SCAN,     /* the next word on the stack that follows a call */
		  UW_STEPPER_DYNAMIC,  /* what the process registered of code it generated */
		  UW_STEPPER_PROLOGUE, /* how the function begins (x86_64), no rule for the pc */
		  UW_STEPPER_N	       /* from here on: the user's own, see uw_steppers_add */
};

enum uw_confidence {			 /* how sure it is that a frame is the caller */
		     UW_CONFIDENCE_RULE, /* unwind information, or code that is recognised, says so */
		     UW_CONFIDENCE_CHECKED, /* guessed; a call precedes the return address and fits the code at the pc */
		     UW_CONFIDENCE_GUESS, /* guessed; nothing tells the frame from one further out, or the code could not be looked at */
};

enum uw_stop {			   /* why a walk ended; each has a name and a sentence */
	       UW_STOP_ROOT,	   /* proven: this is the thread's outermost frame */
	       UW_STOP_TRUNCATED,  /* needs memory that was not captured, addr says which */
	       UW_STOP_NO_MAPPING, /* the pc lies in no executable mapping */
	       UW_STOP_NO_OBJECT, /* the mapping's file is missing, replaced or unreadable, and nothing else led on */
	       UW_STOP_NO_UNWIND_INFO, /* no rule for the pc and no stepper knew it */
	       UW_STOP_BAD_CFI,	       /* damaged or unsupported unwind information */
	       UW_STOP_REG_UNKNOWN,    /* a rule needs a register whose value is not known */
	       UW_STOP_CFA_NOT_RISING, /* the caller's frame would not lie above this one */
	       UW_STOP_CYCLE,	       /* the same pc and cfa came again */
	       UW_STOP_MAX_FRAMES,     /* as many frames as were asked for */
	       UW_STOP_NO_USER_STATE, /* the sample has no user registers (kernel thread, exiting task) */
	       UW_STOP_COMPAT,	      /* 32-bit code under a 64-bit kernel, which is not walked */
	       UW_STOP_GUESS_ENDED, /* a zero frame pointer or return address, and no proof of the end */
	       UW_STOP_N
};

const char *uw_stop_name(enum uw_stop stop);	      /* "truncated" */
const char *uw_stop_sentence(enum uw_stop stop);      /* for people; what it means and what helps */
const char *uw_stepper_name(enum uw_stepper stepper); /* "cfi" */

struct uw_frame {
	uint64_t pc;	 /* the return address as it stood, or the interrupted pc */
	uint64_t lookup; /* pc where exact, else pc - 1 */
	uint64_t cfa;	 /* 0 where the walk stopped before it was known */
	uint64_t sp;	 /* the stack pointer in this frame */
	const struct uw_mapping *mapping; /* borrowed until the space changes; NULL: none */
	uint8_t stepper;    /* enum uw_stepper: how this frame was found from the one inside it */
	uint8_t confidence; /* enum uw_confidence: how surely; of frame 0 RULE */
	bool exact;  /* lookup == pc: frame 0, interrupted by a signal, or a coroutine's entry */
	bool signal; /* this frame is a signal trampoline */
};

struct uw_stack {
	struct uw_frame *frames; /* the caller's, room for max_frames */
	size_t max_frames;
	size_t n_frames;
	enum uw_stop stop;
	uint64_t stop_addr; /* TRUNCATED: the first address missing; else the pc walked last */
};

/* ---- where registers are kept ---------------------------------------------- */

enum uw_place {			    /* where a caller's register was */
		UW_PLACE_UNDEFINED, /* the rules say that it is lost */
		UW_PLACE_SAME,	    /* in the same register */
		UW_PLACE_REGISTER,  /* in another one */
		UW_PLACE_MEMORY,    /* at addr */
		UW_PLACE_VALUE,	    /* worked out, stored nowhere */
};

struct uw_save {
	uint8_t reg;	 /* the caller's, by DWARF number; the pc's for the return address */
	uint8_t place;	 /* enum uw_place */
	uint8_t from;	 /* REGISTER: which */
	bool expression; /* found by a DWARF expression */
	bool popped;	 /* SAME, because its slot lies below sp already */
	bool known;	 /* value is */
	uint64_t addr, value;
};

/* ---- steppers ------------------------------------------------------------ */

/*
 * A walk asks for each frame's caller one stepper after another, lowest priority
 * first, equal ones in the order they were added, of those whose range holds the
 * frame's lookup address, until one does not answer NOT_ME.
 *
 *   0x1000  table   a compiled row of unwind information
 *   0x1100  cfi     unwind information interpreted: the same rules, and frames do
 *                   not tell which of the two it was
 *   0x1180  dynamic what the process registered of code it generated
 *   0x1200  signal  a signal trampoline, by its code
 *   0x1300  plt     a PLT entry, stub or .init, by its code
 *   0x1800  leaf    no frame yet: the word at sp, if a call precedes it, or lr
 *   0x1900  fp      the frame pointer, if the chain and the call hold
 *   0x1a00  prologue how the function begins, if a return address is where that says
 *   0x1f00  scan    the next word on the stack that a call precedes; off
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

enum uw_answer {
	UW_ANSWER_SUCCESS,	/* the caller is in the query's registers */
	UW_ANSWER_STACK_BOTTOM, /* this frame is the outermost: the walk stops at ROOT */
	UW_ANSWER_NOT_ME,	/* the next stepper is asked */
	UW_ANSWER_ERROR,	/* the walk stops as query->stop says */
};

/* A frame, whose caller is wanted; borrowed while the stepper runs. */
struct uw_query {
	struct uw_space *space;
	const struct uw_frame *frame; /* its cfa and signal are not known yet */
	uw_read_fn read;	      /* the memory that the walk sees */
	void *read_ctx;
	/* In: this frame's registers.  Out with SUCCESS: the caller's, pc and sp known. */
	struct uw_regs regs;
	/* Out: */
	uint64_t cfa;	    /* of this frame; 0: the caller's sp */
	uint8_t confidence; /* enum uw_confidence; RULE unless changed */
	bool signal;	    /* this frame is a signal's: the caller's pc is exact */
	enum uw_stop stop;  /* of ERROR; BAD_CFI unless changed */
	uint64_t stop_addr; /* … if TRUNCATED: what is missing */
	/*
	 * Out, if it likes, of the caller's pc, sp and frame pointer in this order: where they were
	 * found, by place, from and addr.  REGISTER and SAME: in this frame's.
	 */
	struct uw_save saves[3];
};

typedef enum uw_answer (*uw_stepper_fn)(void *ctx, struct uw_query *query);

struct uw_range {
	uint64_t start, end; /* run-time addresses, end is past the last */
};

struct uw_steppers; /* the built-in ones and those that were added */

struct uw_stepper_info {
	const char *name;
	uint32_t priority;
	const struct uw_range *ranges; /* n_ranges of them; none: it is asked everywhere */
	size_t n_ranges;
	uw_stepper_fn step; /* of a built-in one: NULL */
	void *ctx;
	/* Told once it is among them: it may find out about code, and add ranges; NULL is fine. */
	void (*added)(void *ctx, struct uw_steppers *steppers, uint8_t id);
};

/* The built-in ones.  -ENOMEM. */
int uw_steppers_new(struct uw_steppers **out);
void uw_steppers_free(struct uw_steppers *steppers); /* NULL is fine; no space uses it */

/*
 * Not while a space uses it.  Copies info but for ctx; *id, unless NULL, is what
 * frames found by it have as their stepper.  -EINVAL no name or step, an empty
 * range; -ENOSPC too many.
 */
int uw_steppers_add(struct uw_steppers *steppers, const struct uw_stepper_info *info, uint8_t *id);

/*
 * Ranges of a user's stepper, more or fewer of them; one that was asked everywhere is asked in
 * those that were added alone, or everywhere but in those removed.  Not while a space uses it.
 * -ENOENT no such stepper, -EINVAL an empty range, -ENOMEM.
 */
int uw_steppers_add_ranges(struct uw_steppers *steppers, uint8_t id, const struct uw_range *ranges,
			   size_t n);
int uw_steppers_remove_ranges(struct uw_steppers *steppers, uint8_t id,
			      const struct uw_range *ranges, size_t n);

/*
 * Which is asked about code at lookup: its place in the order of uw_steppers_at.  last: the one
 * that answered NOT_ME, SIZE_MAX at first.  SIZE_MAX: nobody is left.
 */
size_t uw_steppers_find(const struct uw_steppers *steppers, uint64_t lookup, size_t last);

/*
 * Another choice than uw_steppers_find's, which it may call; it is asked until one of those it
 * names does not answer NOT_ME, as often as there are steppers.  Not while a space uses it.
 */
typedef size_t (*uw_choose_fn)(void *ctx, const struct uw_steppers *steppers, uint64_t lookup,
			       size_t last);
/* choose NULL: uw_steppers_find's choice again. */
void uw_steppers_choose(struct uw_steppers *steppers, uw_choose_fn choose, void *ctx);

/* Switches those of this name on or off, not while a space uses it.  -ENOENT there is none. */
int uw_steppers_enable(struct uw_steppers *steppers, const char *name, bool on);

/* The i-th to be asked, borrowed; NULL lists the built-in ones.  -ENOENT beyond the last. */
int uw_steppers_at(const struct uw_steppers *steppers, size_t i, struct uw_stepper_info *info,
		   uint8_t *id, bool *on);

/* Of a frame's stepper, be it built in or added. */
const char *uw_steppers_name(const struct uw_steppers *steppers, uint8_t id);

/* Walks in space, and in copies made of it later, ask these; NULL: the built-in ones again. */
void uw_space_use(struct uw_space *space, const struct uw_steppers *steppers);

/* Caches and scratch of one walking thread; entries are keyed by space and forgotten as it changes. */
struct uw_worker;
int uw_worker_new(struct uw_worker **out);
void uw_worker_free(struct uw_worker *worker); /* NULL is fine */

/*
 * Fills out->frames and always out->stop: a walk cannot fail, it stops somewhere for a reason.
 *
 * It allocates nothing of its own: frames, stack and worker are the caller's.  An object keeps
 * what it reads of its file (unwind sections, at most 256 MiB each, and indexes of them) and
 * reads it when first asked, which may be in a walk; once it has, walks ask for no memory.
 */
void uw_walk(struct uw_space *space, struct uw_worker *worker, const struct uw_thread *thread,
	     struct uw_stack *out);

struct uw_job {
	struct uw_space *space;
	const struct uw_thread *thread;
	struct uw_stack *stack;
};

/*
 * Walks them all, some at once, a frame of each in turn: the same frames as
 * uw_walk's one by one, in less time where captured bytes have left the CPU's
 * caches.  Spaces may be the same or different, and change afterwards only.
 */
void uw_walk_many(struct uw_worker *worker, const struct uw_job *jobs, size_t n);

/*
 * The last walks of many threads, for their next samples: a caller whose frame is where it was,
 * and for which all that was read to walk on from it is what it was, has the same callers.
 * One thread at a time.  At most max_bytes; threads not seen for longest are forgotten first.
 */
struct uw_pasts;
int uw_pasts_new(size_t max_frames, size_t max_bytes, struct uw_pasts **out);
void uw_pasts_free(struct uw_pasts *pasts); /* NULL is fine */
void uw_pasts_forget(struct uw_pasts *pasts);

/* All frames of a walk, outermost first, borrowed until the next one with the same pasts. */
struct uw_again {
	size_t n_taken; /* of the outermost, taken over from the walk before */
	size_t n;	/* 0: no walk was kept; all frames are in the stack alone */
	const struct uw_frame *frames;
	uint32_t *users; /* the caller's, one a frame; those of frames taken over are kept */
};

/*
 * As uw_walk, but what key, a number of the caller's for the thread, has in pasts is taken over.
 * job->stack: as after uw_walk, but frames has only the innermost frames, those walked anew.
 * Frames, stop and stop_addr are the same as uw_walk's.  May allocate, before and after walking.
 */
void uw_walk_again(struct uw_pasts *pasts, uint64_t key, struct uw_worker *worker,
		   const struct uw_job *job, struct uw_again *out);

/* ---- how a walk went, step by step --------------------------------------- */

const char *uw_reg_name(uint16_t machine, unsigned int reg); /* "rip"; "?" where there is none */

enum uw_rules {		       /* where the rule for a frame comes from */
		UW_RULES_NONE, /* there is none for its pc */
		UW_RULES_EH_FRAME,
		UW_RULES_DEBUG_FRAME,
		UW_RULES_MINI,	  /* .debug_frame inside .gnu_debugdata */
		UW_RULES_GAP,	  /* an FDE or the entry point beside the pc, or the code itself */
		UW_RULES_DYNAMIC, /* registered by the process, of code it generated */
		UW_RULES_CODE,	  /* read off how its function begins, at fde_start */
		UW_RULES_GO,	  /* Go's own table of functions, .gopclntab */
};

enum uw_verdict {		     /* why a stepper did not lead on from code without rules */
		  UW_VERDICT_CALLER, /* the frame called another: nothing is at sp or in lr any more */
		  UW_VERDICT_UNKNOWN, /* the register's value is not known */
		  UW_VERDICT_NONE, /* the frame pointer is 0: the chain ends, which proves nothing */
		  UW_VERDICT_ASTRAY,	 /* the frame pointer points to no frame of this stack */
		  UW_VERDICT_NOT_RISING, /* what it points to leads back down */
		  UW_VERDICT_MISSING,	 /* what is at addr was not captured */
		  UW_VERDICT_NO_CODE,	 /* the value is no address of code */
		  UW_VERDICT_NO_CALL,	 /* it is, and the code before it is no call */
		  UW_VERDICT_UNREAD,	 /* it is, and nobody can look at the code before it */
		  UW_VERDICT_OTHER,	 /* a call ends there, but of something else */
		  UW_VERDICT_OFF,	 /* this stepper has not been switched on */
		  UW_VERDICT_NO_WORD,	 /* no word on the stack follows a call */
		  UW_VERDICT_NOT_PLAIN,	 /* no beginning of a function leads to a return address */
		  UW_VERDICT_N
};

struct uw_try {		 /* a guess that was not taken */
	uint8_t stepper; /* LEAF, FP, PROLOGUE or SCAN */
	uint8_t verdict; /* enum uw_verdict */
	uint8_t reg;	 /* it went by */
	bool has_addr, has_value;
	uint64_t addr, value; /* of the would-be return address; ASTRAY, NONE: of the register */
};

const char *uw_verdict_name(enum uw_verdict verdict);	  /* "no_call" */
const char *uw_verdict_sentence(enum uw_verdict verdict); /* "no call ends there" */

struct uw_step { /* from one frame to its caller */
	size_t frame;
	struct uw_regs regs;		/* in this frame */
	const struct uw_object *object; /* borrowed until the space changes; NULL: none */
	uint64_t vaddr;			/* of the frame's lookup address in it */
	enum uw_rules rules;
	uint64_t fde_start, fde_end, row_start,
		row_end; /* vaddr; row: 0, 0 where there is none.  Of DYNAMIC rules: run-time addresses of the procedure; of CODE: of the function up to the pc */
	bool found;	 /* the step led to a caller */
	uint8_t stepper; /* enum uw_stepper or a user's: that led on, or failed to */
	enum uw_confidence confidence;
	bool cfa_known, cfa_expression;
	uint8_t cfa_reg; /* cfa = cfa_reg + cfa_off, unless by expression */
	int64_t cfa_off;
	uint64_t cfa;
	struct uw_save ra;
	struct uw_save saves[UW_REGS_MAX]; /* all other registers with a rule */
	size_t n_saves;
	struct uw_try tried[4]; /* of the last frame, where it has no rule */
	size_t n_tried;
	bool differs; /* a fault of ours: the walk found another caller */
};

typedef void (*uw_step_fn)(void *ctx, const struct uw_step *step);

/*
 * Goes once more, slowly and without caches or compiled tables, the way that
 * uw_walk went to fill stack, and tells each step.  space must not have changed.
 * Walks that nobody explains pay nothing for it.
 */
void uw_explain(struct uw_space *space, const struct uw_thread *thread,
		const struct uw_stack *stack, uw_step_fn fn, void *ctx);

const char *uw_rules_name(enum uw_rules rules);		       /* ".eh_frame" */
const char *uw_confidence_name(enum uw_confidence confidence); /* "rule" */

#ifdef __cplusplus
}
#endif

/* The rest of the library's face: one frame after another by call-backs; whole processes. */
#include "unwinder/cursor.h"
#include "unwinder/walker.h"

#endif
