/*
 * unwinder/rule/object_tables.c: compiles an object's table and FDE ranges, and takes over stored
 * ones if they belong to the file.
 */
#include "unwinder/rule/object.h"

#include <elf.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "unwinder/rule/object_internal.h"
#include "unwinder/table/procs.h"
#include "unwinder/table/table.h"
#include "unwinder/table/table_build.h"

/* Free a table with its blob; NULL is allowed. */
static void free_compiled(struct uw_compiled *compiled)
{
	if (compiled) {
		uw_table_fini(&compiled->table);
		uw_blob_free(compiled->stored);
		free(compiled->blob);
	}
	free(compiled);
}

/* Free the ranges and their blob: a stored blob, or bytes from malloc. */
static void free_procs(struct uw_procs *procs)
{
	if (procs && procs->stored)
		uw_blob_free(procs->stored);
	else if (procs)
		free((void *)(uintptr_t)procs->header);
	free(procs);
}

void uw_object_free_tables(struct uw_object *o)
{
	free_compiled(atomic_load_explicit(&o->compiled, memory_order_relaxed));
	free_procs(atomic_load_explicit(&o->procs, memory_order_relaxed));
}

/* ---- compiling ------------------------------------------------------------------ */

/* Return what tables are compiled from. This reads all sections. */
static struct uw_table_source source_of(struct uw_object *o)
{
	struct uw_table_source source = { .arch = o->arch,
					  .build_id = &o->build_id,
					  .segments = o->segments,
					  .n_segments = o->n_segments };

	for (unsigned int i = 0; i < UW_FRAMES_N; i++)
		source.cfi[i] = &uw_object_frames(o, i)->cfi;
	return source;
}

/* Publish a compiled table. If another thread was first, its table is the same and this one is freed. */
static void publish(struct uw_object *o, struct uw_compiled *compiled)
{
	struct uw_compiled *none = NULL;

	if (!atomic_compare_exchange_strong_explicit(&o->compiled, &none, compiled,
						     memory_order_acq_rel, memory_order_acquire))
		free_compiled(compiled);
}

/* Publish ranges in the same way. */
static void publish_procs(struct uw_object *o, struct uw_procs *procs)
{
	struct uw_procs *none = NULL;

	if (!atomic_compare_exchange_strong_explicit(&o->procs, &none, procs, memory_order_acq_rel,
						     memory_order_acquire))
		free_procs(procs);
}

/* Publish a table of which made has the parts, and take them over. -ENOMEM: they are freed. */
static int install(struct uw_object *o, const struct uw_compiled *made)
{
	struct uw_compiled *compiled = malloc(sizeof(*compiled));

	if (!compiled) {
		struct uw_table table = made->table;

		uw_table_fini(&table);
		uw_blob_free(made->stored);
		free(made->blob);
		return -ENOMEM;
	}
	*compiled = *made;
	publish(o, compiled);
	return 0;
}

/* Do the same with a blob that has been checked. */
static int install_blob(struct uw_object *o, uint8_t *blob, size_t size)
{
	struct uw_compiled made = { .blob = blob, .size = size };

	uw_table_trust(&made.table, blob);
	return install(o, &made);
}

int uw_object_compile(struct uw_object *object)
{
	return uw_object_compile_unless(object, NULL, NULL);
}

int uw_object_compile_unless(struct uw_object *object, bool (*stop)(void *ctx), void *ctx)
{
	struct uw_table_source source;
	uint8_t *blob;
	size_t size;
	int err;

	if (uw_object_table(object))
		return 0;
	source = source_of(object);
	source.stop = stop;
	source.stop_ctx = ctx;
	atomic_fetch_add_explicit(&object->n_parsed, 1, memory_order_relaxed);
	err = uw_table_build(&source, &blob, &size);
	return err ? err : install_blob(object, blob, size);
}

const void *uw_object_compiled(const struct uw_object *object, size_t *size)
{
	const struct uw_compiled *compiled =
		atomic_load_explicit(&object->compiled, memory_order_acquire);

	*size = 0;
	if (!compiled || (compiled->stored && uw_blob_whole(compiled->stored)))
		return NULL;
	*size = compiled->size;
	return compiled->stored ? uw_blob_bytes(compiled->stored) : compiled->blob;
}

/* ---- whose a table is ----------------------------------------------------------- */

int uw_object_identify(struct uw_object *object, struct uw_identity *out)
{
	struct uw_table_source source = source_of(object);
	__u64 size, hash;

	if (!atomic_load_explicit(&object->eh_ready, memory_order_acquire))
		return -ENOMEM;
	uw_table_identify(&source, &size, &hash);
	*out = (struct uw_identity){ .size = size, .hash = hash };
	return 0;
}

int uw_object_inputs(struct uw_object *object, uw_input_fn take, void *ctx)
{
	struct uw_table_source source = source_of(object);
	const uint64_t head[] = { TABLE_BUILDER, object->arch->machine, object->n_segments,
				  UW_FRAMES_N };

	if (!atomic_load_explicit(&object->eh_ready, memory_order_acquire))
		return -ENOMEM;
	take(ctx, head, sizeof(head));
	for (size_t i = 0; i < object->n_segments; i++) {
		const struct uw_segment *s = &object->segments[i];
		const uint64_t segment[] = { s->off, s->vaddr, s->file_size, s->mem_size,
					     s->flags };

		take(ctx, segment, sizeof(segment));
	}
	for (unsigned int i = 0; i < UW_FRAMES_N; i++) {
		const struct uw_cfi *cfi = source.cfi[i];
		const uint64_t section[] = { cfi->size, cfi->vaddr,	   cfi->text,
					     cfi->got,	cfi->has_text,	   cfi->has_got,
					     cfi->eh,	cfi->to_terminator };

		take(ctx, section, sizeof(section));
		if (cfi->size)
			take(ctx, cfi->data, cfi->size);
	}
	return 0;
}

static bool same_identity(const struct uw_identity *a, uint64_t size, uint64_t hash)
{
	return a->size == size && a->hash == hash;
}

/* Return whether the file's executable segments are those that the table was made for. */
static bool same_segments(const struct uw_object *o, const struct table_header *h)
{
	const struct table_seg *seg =
		(const struct table_seg *)(const void *)((const uint8_t *)h + h->seg);
	uint32_t n = 0;

	for (size_t i = 0; i < o->n_segments; i++) {
		const struct uw_segment *s = &o->segments[i];

		if (!(s->flags & PF_X) || !s->mem_size)
			continue;
		if (n == h->n_segs || seg[n].file_off != s->off || seg[n].vaddr != s->vaddr ||
		    seg[n].size != s->mem_size)
			return false;
		n++;
	}
	return n == h->n_segs;
}

/* Check that a valid table belongs to this file. -ENOENT: it does not. */
static int check_own(struct uw_object *o, const struct uw_table *table,
		     const struct uw_identity *known)
{
	const struct table_header *h = table->header;
	struct uw_identity own;
	int err = 0;

	if (h->builder != TABLE_BUILDER || table->arch != o->arch ||
	    h->build_id_size != o->build_id.size ||
	    memcmp(h->build_id, o->build_id.bytes, h->build_id_size) != 0 || !same_segments(o, h))
		return -ENOENT;
	if (!known) {
		err = uw_object_identify(o, &own);
		known = &own;
	}
	return err ? err : same_identity(known, h->src_size, h->src_hash) ? 0 : -ENOENT;
}

/* ---- stored tables -------------------------------------------------------------- */

int uw_object_take(struct uw_object *object, void *blob, size_t size,
		   const struct uw_identity *known)
{
	struct uw_table table;
	int err;

	if (uw_object_table(object)) {
		free(blob);
		return 0;
	}
	err = uw_table_open(&table, blob, size);
	if (!err)
		err = check_own(object, &table, known);
	if (!err)
		return install_blob(object, blob, size);
	free(blob);
	return err;
}

int uw_object_take_stored(struct uw_object *object, const struct uw_blob_source *stored,
			  const struct uw_identity *known)
{
	struct uw_compiled made = { .size = (size_t)stored->size };
	int err = uw_blob_open(stored, TABLE_MAGIC, &made.stored);

	if (!err)
		err = uw_table_open_stored(&made.table, made.stored);
	if (!err)
		err = check_own(object, &made.table, known);
	if (!err)
		return install(object, &made);
	uw_table_fini(&made.table);
	uw_blob_free(made.stored);
	return err;
}

int uw_object_adopt(struct uw_object *object, const void *blob, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	if (!copy)
		return -ENOMEM;
	if (size)
		memcpy(copy, blob, size);
	return uw_object_take(object, copy, size, NULL);
}

/*
 * Set the object up from the table's description of the file: machine, build-id, where the code
 * lies.
 */
static int describe(struct uw_object *o, const struct uw_table *table)
{
	const struct table_header *h = table->header;
	const struct table_seg *seg =
		(const struct table_seg *)(const void *)((const uint8_t *)h + h->seg);

	o->arch = table->arch;
	o->build_id.size = h->build_id_size;
	memcpy(o->build_id.bytes, h->build_id, h->build_id_size);
	o->segments = calloc(h->n_segs ? h->n_segs : 1, sizeof(*o->segments));
	if (!o->segments)
		return -ENOMEM;
	for (uint32_t i = 0; i < h->n_segs; i++)
		o->segments[o->n_segments++] = (struct uw_segment){ .off = seg[i].file_off,
								    .vaddr = seg[i].vaddr,
								    .file_size = seg[i].size,
								    .mem_size = seg[i].size,
								    .flags = PF_R | PF_X };
	/* There are no sections to read: mark them as read, and empty. */
	atomic_store_explicit(&o->eh_ready, true, memory_order_release);
	atomic_store_explicit(&o->debug_ready, true, memory_order_release);
	return 0;
}

int uw_object_open_stored(const struct uw_blob_source *stored, struct uw_object **out)
{
	struct uw_compiled made = { .size = (size_t)stored->size };
	struct uw_object *o = calloc(1, sizeof(*o));
	int err = uw_blob_open(stored, TABLE_MAGIC, &made.stored);

	if (!err && !o)
		err = -ENOMEM;
	if (!err)
		err = uw_table_open_stored(&made.table, made.stored);
	if (!err) {
		uw_object_init(o);
		err = describe(o, &made.table);
		if (!err) {
			err = install(o, &made);
			/* install takes over made on failure, too */
			made = (struct uw_compiled){ .size = 0 };
		}
		if (err)
			uw_object_put(o);
		else
			*out = o;
		o = NULL;
	}
	uw_table_fini(&made.table);
	uw_blob_free(made.stored);
	free(o);
	return err;
}

/* ---- FDE ranges ----------------------------------------------------------------- */

int uw_object_procs(struct uw_object *object, void **blob, size_t *size)
{
	struct uw_frames *frames[UW_FRAMES_N];
	struct uw_identity identity;
	uint8_t *made;
	int err = 0;

	for (unsigned int i = 0; i < UW_FRAMES_N; i++)
		frames[i] = uw_object_frames(object, i);
	atomic_fetch_add_explicit(&object->n_parsed, 1, memory_order_relaxed);
	err = uw_object_identify(object, &identity);
	if (!err)
		err = uw_procs_build(frames, UW_FRAMES_N, object->arch->machine, identity.size,
				     identity.hash, &made, size);
	if (!err)
		*blob = made;
	return err;
}

/*
 * Publish ranges whose blob has been checked. Takes over made and its blob. -ENOENT: they belong to
 * another file.
 */
static int install_procs(struct uw_object *o, const struct uw_procs *made,
			 const struct uw_identity *known)
{
	struct uw_procs *procs = malloc(sizeof(*procs));
	int err = procs ? 0 : -ENOMEM;

	if (!err && (made->header->blob.machine != o->arch->machine ||
		     !same_identity(known, made->header->src_size, made->header->src_hash)))
		err = -ENOENT;
	if (!err) {
		*procs = *made;
		publish_procs(o, procs);
		return 0;
	}
	free(procs);
	if (made->stored)
		uw_blob_free(made->stored);
	else
		free((void *)(uintptr_t)made->header);
	return err;
}

int uw_object_take_procs(struct uw_object *object, void *blob, size_t size,
			 const struct uw_identity *known)
{
	struct uw_procs procs;
	int err = uw_procs_open(&procs, blob, size);

	if (!err)
		return install_procs(object, &procs, known);
	free(blob);
	return err;
}

int uw_object_take_stored_procs(struct uw_object *object, const struct uw_blob_source *stored,
				const struct uw_identity *known)
{
	struct uw_blob *blob;
	struct uw_procs procs;
	int err = uw_blob_open(stored, PROCS_MAGIC, &blob);

	if (err)
		return err;
	err = uw_procs_open_stored(&procs, blob);
	if (!err)
		return install_procs(object, &procs, known);
	uw_blob_free(blob);
	return err;
}

/* ---- of another object ---------------------------------------------------------- */

void uw_object_take_from(struct uw_object *object, struct uw_object *from)
{
	struct uw_compiled *compiled = atomic_exchange(&from->compiled, NULL);
	struct uw_procs *procs = atomic_exchange(&from->procs, NULL);

	atomic_fetch_add_explicit(&object->n_parsed, uw_object_parsed(from), memory_order_relaxed);
	if (compiled)
		publish(object, compiled);
	if (procs)
		publish_procs(object, procs);
}
