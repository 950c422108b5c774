/*
 * unwinder/dynamic/dynamic_read.c: reads the lists of generated code out of a process's memory,
 * and makes one sorted list of procedures of them.
 *
 * The process may be hostile and may write while it is read. Everything that is read is therefore
 * charged to a budget of DYNAMIC_LISTS_MAX bytes, which also limits the length of each chain.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/search.h"
#include "unwinder/arch/arch.h"
#include "unwinder/cfi/cfi.h"
#include "unwinder/dynamic/dynamic.h"
#include "unwinder/dynamic/target_memory.h"

/* How often the lists are read if the process writes to them meanwhile. */
#define ATTEMPTS 3

int uw_dynamic_marks(const struct uw_dynamic_list *lists, size_t n, uw_read_fn read, void *ctx,
		     uint64_t *mark)
{
	uint64_t hash = 0;
	bool any = false;

	for (size_t i = 0; i < n; i++) {
		uint8_t head[UW_JIT_SIZE] = { 0 };
		size_t size = lists[i].kind == UW_DYNAMIC_JIT ? UW_JIT_SIZE : 16;

		if (!lists[i].addr || read(ctx, lists[i].addr, head, size))
			continue;
		/*
		 * libunwind's list head has a generation number; GDB's descriptor names the
		 * entry that changed last.
		 */
		any |= uw_reading_number(
			       head + (lists[i].kind == UW_DYNAMIC_JIT ? UW_JIT_FIRST : 8), 8) != 0;
		hash = uw_checksum(head, size, hash + lists[i].addr);
	}
	*mark = hash;
	return any ? 0 : -ENOENT;
}

struct newest {
	struct dynamic_proc proc;
	size_t turn; /* order of reading: the last one registered is read first */
};

/* Order procedures by start, then by the order of reading. */
UW_ORDER_2(by_start, struct newest, proc.start, turn)

/*
 * Sort the procedures by address. Of procedures that overlap, only the newest stays: a process
 * may reuse the memory of code without notice. -ENOMEM.
 */
static int tidy(struct uw_reading *r)
{
	struct newest *all = calloc(r->n_procs + 1, sizeof(*all));
	size_t n = 0;

	if (!all)
		return -ENOMEM;
	for (size_t i = 0; i < r->n_procs; i++)
		all[i] = (struct newest){ r->procs[i], i };
	qsort(all, r->n_procs, sizeof(*all), by_start);
	for (size_t i = 0; i < r->n_procs; i++) {
		bool stays = true;

		while (n && stays && all[i].proc.start < all[n - 1].proc.end) {
			if (all[i].turn < all[n - 1].turn)
				n--;
			else
				stays = false;
		}
		if (stays)
			all[n++] = all[i];
	}
	for (size_t i = 0; i < n; i++)
		r->procs[i] = all[i].proc;
	r->n_procs = n;
	free(all);
	return 0;
}

/* Build the result: header, procedures, data. Offsets become relative to the header. */
static int put_together(struct uw_reading *r, uint64_t mark, struct uw_dynamic **out)
{
	size_t procs = sizeof(struct dynamic_header) + r->n_procs * sizeof(*r->procs);
	size_t size = procs + r->n_data + 1;
	uint8_t *bytes = calloc(1, size);
	struct dynamic_header *head = (void *)bytes;
	int err;

	if (!bytes)
		return -ENOMEM;
	for (size_t i = 0; i < r->n_procs; i++) {
		r->procs[i].data += (uint32_t)procs;
		/* a name's offset is stored + 1 */
		if (r->procs[i].name)
			r->procs[i].name += (uint32_t)procs - 1;
	}
	head->machine = r->arch->machine;
	head->n_procs = (uint32_t)r->n_procs;
	head->flags = r->flags;
	head->mark = mark;
	if (r->n_procs)
		memcpy(bytes + sizeof(*head), r->procs, r->n_procs * sizeof(*r->procs));
	if (r->n_data)
		memcpy(bytes + procs, r->data, r->n_data);
	err = uw_dynamic_take(bytes, size, out);
	if (err)
		free(bytes);
	return err;
}

/* Build the result unless there was an error, and free the reading. */
static int finish(struct uw_reading *r, int err, uint64_t mark, struct uw_dynamic **out)
{
	if (!err)
		err = tidy(r);
	if (!err)
		err = put_together(r, mark, out);
	free(r->procs);
	free(r->data);
	return err;
}

/* Read all lists from the beginning. -ENOMEM; all other failures are flags of the result. */
static int read_all(struct uw_reading *r, const struct uw_dynamic_list *lists, size_t n)
{
	/* The budget excludes the header, the last byte and the alignment of the data. */
	r->room = DYNAMIC_LISTS_MAX - sizeof(struct dynamic_header) - 64;
	r->visits = r->n_procs = r->n_data = 0;
	r->flags = 0;
	for (size_t i = 0; i < n; i++) {
		if (!lists[i].addr)
			continue;
		if (lists[i].kind == UW_DYNAMIC_JIT)
			uw_reading_jit(r, lists[i].addr);
		else
			uw_reading_list(r, lists[i].addr);
	}
	return r->err;
}

/*
 * Compute the mark before and after the reading. If the two differ, the process changed its lists
 * meanwhile: read again, at most ATTEMPTS times.
 */
int uw_dynamic_read(uint16_t machine, const struct uw_dynamic_list *lists, size_t n,
		    uw_read_fn read, void *ctx, struct uw_dynamic **out)
{
	struct uw_reading r = { .arch = uw_arch_of(machine), .read = read, .ctx = ctx };
	uint64_t before, after;
	int err;

	if (!r.arch)
		return -EINVAL;
	for (int attempt = 0;; attempt++) {
		err = uw_dynamic_marks(lists, n, read, ctx, &before);
		if (!err)
			err = read_all(&r, lists, n);
		if (err)
			break;
		err = uw_dynamic_marks(lists, n, read, ctx, &after);
		if (!err && after == before)
			break;
		r.flags |= err ? DYNAMIC_CUT : DYNAMIC_TORN;
		/*
		 * If the lists cannot be read any more, do not try again: the process has
		 * ended, or the time is up.
		 */
		if (err || attempt == ATTEMPTS - 1) {
			err = 0;
			break;
		}
	}
	return finish(&r, err, before, out);
}

/*
 * Store call-frame information that the caller supplied for generated code. Its first FDE
 * becomes the rules of proc. Return false if there is no FDE or no room.
 */
static bool keep_frames(struct uw_reading *r, const struct uw_dynamic_code *code,
			struct dynamic_proc *proc)
{
	struct uw_cfi cfi = { .data = code->frames, .size = code->frames_size, .eh = true };
	uint64_t off = 0, next;
	struct uw_fde fde;
	uint8_t *block;
	int err = -ENOENT;

	for (; err == -ENOENT && off < code->frames_size; off = next) {
		next = off;
		err = uw_cfi_entry(&cfi, off, &fde, &next);
		if (!err || next <= off)
			break;
	}
	block = err ? NULL : uw_reading_keep(r, code->frames_size, &proc->data);
	if (!block)
		return false;
	memcpy(block, code->frames, code->frames_size);
	proc->kind = DYNAMIC_FDE;
	proc->size = (uint32_t)code->frames_size;
	proc->entry = (uint32_t)off;
	proc->bias = proc->start - fde.start;
	return true;
}

/* Add the newest code first, so that the oldest is left out when there is no more room. */
int uw_dynamic_make(uint16_t machine, const struct uw_dynamic_code *codes, size_t n, bool names,
		    struct uw_dynamic **out)
{
	struct uw_reading r = { .arch = uw_arch_of(machine),
				.flags = DYNAMIC_NAMES,
				.room = DYNAMIC_SIZE_MAX - sizeof(struct dynamic_header) - 64 };

	if (!r.arch)
		return -EINVAL;
	for (size_t i = n; i-- > 0 && !r.err && !(r.flags & DYNAMIC_CUT);) {
		struct dynamic_proc proc = { .start = codes[i].start,
					     .end = codes[i].end,
					     .kind = DYNAMIC_NAME };

		uw_reading_keep_name(&r, codes[i].name, strnlen(codes[i].name, UW_NAME_MAX_SIZE),
				     &proc.name);
		if (codes[i].frames && !names && keep_frames(&r, &codes[i], &proc))
			r.flags &= ~(uint32_t)DYNAMIC_NAMES;
		(void)uw_reading_add(&r, &proc);
	}
	return finish(&r, r.err, 0, out);
}
