/*
 * unwinder/walk/walk.c: walks captured stacks: one at a time, several at once, or up to a frame of
 * an earlier walk.
 */
#include "unwinder/walk/walk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "unwinder/arch/arch.h"
#include "unwinder/rule/object.h"
#include "unwinder/unwinder.h"
#include "unwinder/walk/space.h"
#include "unwinder/walk/step.h"
#include "unwinder/walk/stepper.h"

/* ---- the worker's caches ---------------------------------------------------------- */

int uw_worker_new(struct uw_worker **out)
{
	struct uw_worker *worker = calloc(1, sizeof(*worker));

	if (!worker)
		return -ENOMEM;
	*out = worker;
	return 0;
}

void uw_worker_free(struct uw_worker *worker)
{
	free(worker);
}

/* ---- a walk ------------------------------------------------------------------------- */

/* Larger than a page: few code mappings are smaller, and the slot's bounds are checked anyway. */
#define PAGE_SHIFT 16

/* Return the mapping around addr, from the cache or the space. NULL: nothing is mapped there. */
static struct uw_mapping *mapping_at(struct uw_walking *w, uint64_t addr)
{
	uint64_t id;
	struct uw_mapping *mapping = w->last;
	struct uw_mapping_slot *slot;

	if (mapping && addr >= mapping->start && addr < mapping->end)
		return mapping;
	id = uw_space_id(w->space);
	slot = &w->worker->mappings[uw_slot_of(id, addr >> PAGE_SHIFT, UW_MAPPING_SLOTS)];
	if (slot->space != id || addr < slot->start || addr >= slot->end) {
		mapping = uw_space_at(w->space, addr);
		*slot = (struct uw_mapping_slot){ .space = id, .mapping = mapping };
		if (mapping) {
			slot->start = mapping->start;
			slot->end = mapping->end;
		} else {
			uw_space_gap(w->space, addr, &slot->start, &slot->end);
		}
	}
	mapping = slot->mapping;
	if (mapping && mapping->prot & PROT_EXEC)
		w->last = mapping;
	return mapping;
}

struct uw_mapping *uw_walk_code(struct uw_walking *w, uint64_t addr)
{
	struct uw_mapping *mapping = mapping_at(w, addr);

	return mapping && mapping->prot & PROT_EXEC ? mapping : NULL;
}

/*
 * Read captured bytes or, if there are none, the file's bytes for memory that cannot have been
 * written.
 */
static int read_memory(void *ctx, uint64_t addr, void *out, size_t size)
{
	struct uw_walking *w = ctx;

	if (!w->thread->read(w->thread->ctx, addr, out, size))
		return 0;
	return uw_space_read(w->space, mapping_at(w, addr), addr, out, size);
}

void uw_walk_record_missing(struct uw_walking *w)
{
	if (!w->has_missing)
		w->missing = w->machine.missing;
	w->has_missing = true;
}

/*
 * Brent's algorithm: the mark moves to the current frame whenever the number of calls is a power
 * of two.
 */
bool uw_cycle_met(struct uw_cycle *cycle, uint64_t pc, uint64_t sp)
{
	if (cycle->turns && pc == cycle->mark_pc && sp == cycle->mark_sp)
		return true;
	if (!(cycle->turns & (cycle->turns - 1))) {
		cycle->mark_pc = pc;
		cycle->mark_sp = sp;
	}
	cycle->turns++;
	return false;
}

bool uw_walk_cycle(struct uw_walking *w, uint64_t pc, uint64_t sp)
{
	return uw_cycle_met(&w->cycle, pc, sp);
}

/*
 * Return whether the frame's return address begins a function. makecontext puts such an address on
 * the stack by hand: there is nothing before it to look up, and that function was never called.
 */
static bool begins(struct uw_walking *w)
{
	struct uw_mapping *mapping = w->exact ? NULL : uw_walk_code(w, w->pc);
	struct uw_object *object = mapping ? uw_space_resolve(w->space, mapping) : NULL;

	return object && uw_facts_begins(&w->worker->facts, object, w->pc - mapping->bias);
}

/*
 * Return whether a stop comes from applying such a function's rule. The rule describes the time
 * after the function was called, and it never was: with glibc's function the rule gives the value
 * of uc_link as the caller, or the function itself once more.
 */
static bool leads_nowhere(int stop)
{
	return stop == uw_stopping(UW_STOP_CFA_NOT_RISING) ||
	       stop == uw_stopping(UW_STOP_REG_UNKNOWN);
}

/*
 * Return the stop for the end of a stack that was made by hand. ruled: a rule led there, not a
 * guess. To a guess, any pointer to a function may look like a return address.
 */
static int end_of_made(bool ruled)
{
	return uw_stopping(ruled ? UW_STOP_ROOT : UW_STOP_GUESS_ENDED);
}

int uw_walk_frame(struct uw_walking *w, struct uw_found *found)
{
	const struct uw_arch *arch = w->machine.arch;
	struct uw_stack *out = w->out;
	struct uw_frame *frame;
	uint64_t sp, pc;
	bool begun, ruled;
	int stop;

	w->pc = uw_walk_stripped(w, w->machine.regs.value[arch->pc]);
	w->sp = w->machine.regs.value[arch->sp];
	/*
	 * A stack that was made by hand may end with 0. But the word is also 0 if a rule or a guess
	 * named the wrong place, so 0 proves nothing.
	 */
	if (w->pc == 0 && out->n_frames && !w->exact)
		return uw_stopping(UW_STOP_GUESS_ENDED);
	if (out->n_frames == out->max_frames)
		return uw_stopping(UW_STOP_MAX_FRAMES);
	begun = begins(w);
	ruled = w->confidence == UW_CONFIDENCE_RULE;
	w->exact |= begun;
	/*
	 * The call may be the last instruction of its function, and ra then belongs to the next
	 * one.
	 */
	w->lookup = w->exact ? w->pc : w->pc - 1;
	w->mapping = uw_walk_code(w, w->lookup);
	frame = &out->frames[out->n_frames++];
	*frame = (struct uw_frame){ .pc = w->pc,
				    .lookup = w->lookup,
				    .sp = w->sp,
				    .mapping = w->mapping,
				    .stepper = w->stepper,
				    .confidence = w->confidence,
				    .exact = w->exact };
	out->stop_addr = w->pc;
	stop = uw_stepper_step(w, found);
	frame->cfa = found->cfa;
	frame->signal = found->signal;
	if (stop != UW_GO_ON)
		return begun && leads_nowhere(stop) ? end_of_made(ruled) : stop;
	w->stepper = found->stepper;
	w->confidence = found->confidence;
	w->exact = found->signal;
	w->due = out->n_frames;
	sp = w->machine.regs.value[arch->sp];
	pc = uw_walk_stripped(w, w->machine.regs.value[arch->pc]);
	if (begun && !uw_walk_code(w, pc - 1))
		return end_of_made(ruled);
	if (sp <= w->sp && uw_walk_cycle(w, pc, sp))
		return uw_stopping(UW_STOP_CYCLE);
	return UW_GO_ON;
}

/* Walk one frame for a caller that does not need the details of the step. */
static int walk_frame(struct uw_walking *w)
{
	struct uw_found found;

	found.applied = NULL;
	return uw_walk_frame(w, &found);
}

int uw_walk_begin(struct uw_walking *w, struct uw_space *space, struct uw_worker *worker,
		  const struct uw_thread *thread, struct uw_stack *out)
{
	const struct uw_arch *arch = uw_arch_of(uw_space_machine(space));

	out->n_frames = 0;
	out->stop_addr = 0;
	if (!(thread->regs.known >> arch->pc & 1) || !(thread->regs.known >> arch->sp & 1))
		return uw_stopping(UW_STOP_NO_USER_STATE);
	/* What is not set here is written before it is read. */
	w->space = space;
	w->worker = worker;
	w->thread = thread;
	w->out = out;
	w->tag = uw_hot_tag(&worker->hot, uw_space_id(space));
	w->mask = arch->strip(UINT64_MAX, thread->code_mask, uw_space_top(space));
	w->machine.arch = arch;
	w->taken = false;
	w->machine.read = read_memory;
	w->machine.ctx = w;
	w->due = 0;
	w->lookup = 0;
	w->exact = true;
	w->sp_low = false;
	w->stepper = UW_STEPPER_CONTEXT;
	w->confidence = UW_CONFIDENCE_RULE;
	w->last = NULL;
	w->cycle.turns = 0;
	return UW_GO_ON;
}

/* Set out->stop, and for a truncated walk the address that is missing. */
static void end(const struct uw_walking *w, struct uw_stack *out, int stop)
{
	out->stop = (enum uw_stop)(-1 - stop);
	if (out->stop == UW_STOP_TRUNCATED)
		out->stop_addr = w->missing;
}

void uw_walk(struct uw_space *space, struct uw_worker *worker, const struct uw_thread *thread,
	     struct uw_stack *out)
{
	struct uw_walking w;
	int stop = uw_walk_begin(&w, space, worker, thread, out);

	while (stop == UW_GO_ON) {
		stop = uw_hot_run(&w);
		if (stop == UW_GO_ON)
			stop = walk_frame(&w);
	}
	end(&w, out, stop);
}

bool uw_walk_recording(struct uw_walking *w, struct uw_worker *worker, const struct uw_job *job)
{
	struct uw_stack *out = job->stack;
	int stop = uw_walk_begin(w, job->space, worker, job->thread, out);

	while (stop == UW_GO_ON) {
		size_t n;

		stop = uw_hot_run_recording(w);
		if (stop != UW_GO_ON)
			break;
		n = out->n_frames;
		stop = walk_frame(w);
		/* What this step depends on is not recorded. */
		if (out->n_frames > n)
			w->records[n].flags = 0;
	}
	if (stop == UW_REUSED)
		return true;
	end(w, out, stop);
	return false;
}

/*
 * How many walks to interleave: enough to hide the latency of memory, also if two CPUs share a
 * core. 16 is 2 to 5 % faster than 8 with stacks in DRAM, and as fast with stacks in the cache.
 */
#define LANES 16

void uw_walk_many(struct uw_worker *worker, const struct uw_job *jobs, size_t n)
{
	struct uw_walking lanes[LANES], *live[LANES], *idle[LANES];
	size_t n_live = 0, n_idle = 0, next = 0, at = 0;

	for (size_t i = 0; i < LANES; i++)
		idle[n_idle++] = &lanes[i];
	for (;;) {
		struct uw_walking *w;
		int stop;

		/* When all tags are used up, let the walks under way end first. */
		while (next < n && n_idle && !(n_live && uw_hot_full(&worker->hot))) {
			const struct uw_job *job = &jobs[next++];

			w = idle[n_idle - 1];
			stop = uw_walk_begin(w, job->space, worker, job->thread, job->stack);
			if (stop != UW_GO_ON) {
				end(w, job->stack, stop);
				continue;
			}
			uw_hot_enter(w);
			live[n_live++] = w;
			n_idle--;
		}
		if (!n_live)
			return;
		stop = uw_hot_turns(live, n_live, &at);
		w = live[at];
		if (stop == UW_GO_ON)
			stop = walk_frame(w);
		if (stop == UW_GO_ON) {
			uw_hot_enter(w);
			at++;
			continue;
		}
		end(w, w->out, stop);
		live[at] = live[--n_live];
		idle[n_idle++] = w;
	}
}

/* ---- ready-made accessor ------------------------------------------------------------------ */

int uw_memory_read(void *ctx, uint64_t addr, void *out, size_t size)
{
	const struct uw_memory *memory = ctx;

	for (size_t i = 0; i < memory->n_regions; i++) {
		const struct uw_region *r = &memory->regions[i];
		uint64_t left;

		if (addr < r->addr || addr - r->addr >= r->size)
			continue;
		left = r->size - (addr - r->addr);
		if (size > left) {
			/*
			 * Captured pages may adjoin as separate regions. out is filled completely
			 * or not at all.
			 */
			uint8_t bytes[64];
			int err;

			if (size > sizeof(bytes) || addr > UINT64_MAX - left)
				return -EFAULT;
			memcpy(bytes, r->bytes + (addr - r->addr), left);
			err = uw_memory_read(ctx, addr + left, bytes + left, size - left);
			if (!err)
				memcpy(out, bytes, size);
			return err;
		}
		memcpy(out, r->bytes + (addr - r->addr), size);
		return 0;
	}
	return -EFAULT;
}
