/*
 * unwinder/rule/object_internal.h: what an object holds, for the four files that implement objects:
 * object.c opens and frees them, object_sections.c reads their unwind sections, object_tables.c
 * compiles and takes over tables, lookup.c finds rules.
 */
#ifndef UNWINDER_RULE_OBJECT_INTERNAL_H
#define UNWINDER_RULE_OBJECT_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/elf.h"
#include "unwinder/rule/lazy_fde.h"
#include "unwinder/rule/object.h"
#include "unwinder/table/procs.h"
#include "unwinder/table/table.h"

/* A table and the blob that it lies in. */
struct uw_compiled {
	struct uw_table table;
	uint8_t *blob;		/* owned; NULL if stored is set */
	struct uw_blob *stored; /* owned: a blob that is read while it is needed */
	size_t size;
};

struct uw_object {
	atomic_uint refs;
	uint64_t id;
	const struct uw_arch *arch;
	struct uw_elf elf; /* its source is owned: a descriptor or a copy of the image */
	uint8_t *image;
	struct uw_build_id build_id;
	struct uw_segment *segments; /* owned */
	size_t n_segments;
	const Elf64_Shdr *init, *fini; /* of elf; NULL: the file has none */
	uint64_t entry;		       /* where a process begins; 0: not in this file */
	bool is_go;		       /* it has Go's function table */

	/*
	 * .eh_frame is read when rules are needed that no table has, and more of them than is worth
	 * a lookup in the file (lazy FDE lookup). Go's table, .debug_frame and
	 * MiniDebugInfo's .debug_frame are read when .eh_frame has no answer.
	 */
	pthread_mutex_t lock;
	atomic_bool eh_ready, debug_ready, lazy_fde_ready;
	atomic_uint n_lazy_fdes;
	struct uw_lazy_fde lazy_fde;
	struct uw_frames frames[UW_FRAMES_N];
	uint8_t *data[UW_FRAMES_N]; /* of frames; owned */
	uint8_t *header_data;	    /* .eh_frame_hdr; owned */
	uint64_t reserved;	    /* by uw_unpack_keep; in bytes */

	/* NULL until the object is compiled, then unchanged. Owned, with its blob. */
	_Atomic(struct uw_compiled *) compiled;
	_Atomic(struct uw_procs *) procs; /* owned, with its blob, stored or not */
	atomic_uint_fast64_t n_parsed;
};

/* ---- object.c ---- */

/* Initialize a zeroed object so that uw_object_put can free it. */
void uw_object_init(struct uw_object *o);

/* ---- object_sections.c ---- */

/* Set the bases that encoded pointers may count from. The sections may be absent. */
void uw_object_bases(const struct uw_elf *elf, struct uw_cfi *cfi);

/* ---- object_tables.c ---- */

/* Free the object's table and ranges with their blobs. */
void uw_object_free_tables(struct uw_object *o);

#endif
