/*
 * unwinder/registered.h: what a process registered about code that it generated: read it, store
 * it, and let walks use it. Part of unwinder.h.
 */
#ifndef UNWINDER_REGISTERED_H
#define UNWINDER_REGISTERED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unwinder/spaces.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- code generated at run time ------------------------------------------ */

/*
 * What a process registered about code that it generated (schema/dynamic_blob.h): immutable, with a
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

/* How the dynamic linker tells where a thread-local variable is: what it writes into a word of the object. */
enum uw_tls_word {
	UW_TLS_NONE,   /* no relocation of the object names the variable */
	UW_TLS_DESC,   /* the second word of a TLS descriptor */
	UW_TLS_MODULE, /* the module's number, of a pair of module and offset */
	UW_TLS_STATIC, /* the distance from the thread pointer */
};

/* A thread-local variable that an object exports. */
struct uw_tls {
	uint64_t off;	/* in the object's block of thread-local storage */
	uint64_t block; /* bytes of that block, rounded up to its alignment */
	bool is_executable; /* the object is a program: its block ends where the thread pointer is (x86_64) */
	enum uw_tls_word word;
	uint64_t vaddr; /* of the word */
};

/*
 * Look up a thread-local variable of a file for x86_64 among the exported symbols, else among all, likewise. -ENOENT:
 * it is not there.
 * -ENOTSUP: it is of another machine. -EBADMSG: it lies outside of its block. -ENOMEM.
 */
int uw_object_tls(const struct uw_object *object, const char *name, struct uw_tls *out);

/*
 * Find the version of Go that a program was built with, 1.18 or later, and where its threads have the address of the
 * running goroutine's g, from the thread pointer. -ENOENT: it is no Go program; -ENOTSUP: of another machine, or it is
 * not known where; -EBADMSG; -ENOMEM.
 */
int uw_object_go(const struct uw_object *object, unsigned int *major, unsigned int *minor,
		 uint64_t *g);

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

#ifdef __cplusplus
}
#endif

#endif
