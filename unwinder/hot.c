#include "unwinder/hot.h"

#include <string.h>

#include "unwinder/object.h"
#include "unwinder/space.h"
#include "unwinder/stepper.h"
#include "unwinder/walk.h"

#define ADDRESS_BITS 48
#define EXACT	     ((uint64_t)1 << 63)
#define TAG_MAX	     0x7fff

/* The word's kind is SP or FP, all places count from the CFA and nobody was interrupted. */
#define COMMON_MASK (TABLE_WORD_BASED | TABLE_WORD_SIGNAL | 6u)
#define COMMON	    ((uint32_t)TABLE_SP)

_Static_assert((TABLE_SP & 6) == TABLE_SP && TABLE_FP == (TABLE_SP | 1) &&
		       (TABLE_REG & 6) != TABLE_SP,
	       "COMMON_MASK tells them");

/* ---- memory ------------------------------------------------------------------------------ */

/* The captured bytes around sp, where most words are. */
struct near {
	uint64_t addr, room; /* words may begin in [addr, addr + room) */
	const uint8_t *bytes;
};

static struct near near_sp(const struct uw_thread *thread, uint64_t sp)
{
	const struct uw_memory *memory = thread->ctx;

	if (thread->read != uw_memory_read)
		return (struct near){ .room = 0 };
	for (size_t i = 0; i < memory->n_regions; i++) {
		const struct uw_region *r = &memory->regions[i];

		if (r->size >= 8 && sp >= r->addr && sp - r->addr < r->size)
			return (struct near){ .addr = r->addr,
					      .room = r->size - 7,
					      .bytes = r->bytes };
	}
	return (struct near){ .room = 0 };
}

static __attribute__((noinline)) bool far_word(struct uw_walking *w, uint64_t addr, uint64_t *out)
{
	return !uw_machine_read(&w->machine, addr, 8, out);
}

static inline bool read_word(struct uw_walking *w, const struct near *near, uint64_t addr,
			     uint64_t *out)
{
	if (__builtin_expect(addr - near->addr >= near->room, 0))
		return far_word(w, addr, out);
	memcpy(out, near->bytes + (addr - near->addr), 8);
	return true;
}

/* ---- saved registers ---------------------------------------------------------------------- */

/* Reads what the log, innermost frame first, says of registers other than fp; empties it. */
static void read_log(struct uw_walking *w, struct uw_hot_frame **end)
{
	const struct uw_arch *arch = w->machine.arch;
	struct uw_hot_frame *frame = w->worker->hot.log;
	struct uw_regs *regs = &w->machine.regs;
	struct near near;

	if (frame == *end)
		return;
	near = near_sp(w->thread, frame->sp);
	for (; frame < *end; frame++) {
		for (unsigned int i = 0; i < arch->n_saved; i++) {
			uint64_t addr = frame->cfa + (uint64_t)(frame->ext[i] * (int64_t)8), value;
			uint64_t bit = (uint64_t)1 << arch->saved[i];

			/* Below sp: popped already (see step.c). */
			if (frame->ext[i] == TABLE_SAME || addr < frame->sp)
				continue;
			regs->known &= ~bit;
			if (read_word(w, &near, addr, &value)) {
				regs->value[arch->saved[i]] = value;
				regs->known |= bit;
			}
		}
	}
	*end = w->worker->hot.log;
}

void uw_hot_settle(struct uw_walking *w)
{
	read_log(w, &w->log);
}

/* ---- words by (space, lookup) --------------------------------------------------------- */

/* Keys of a space carry its tag; a space that has changed is another one. */
static uint64_t tag_of(struct uw_hot *hot, uint64_t space)
{
	size_t i = space % UW_SPACE_TAGS;

	if (hot->tags[i].space != space) {
		if (hot->last_tag == TAG_MAX) {
			memset(hot->slots, 0, sizeof(hot->slots));
			memset(hot->tags, 0, sizeof(hot->tags));
			hot->last_tag = 0;
		}
		hot->tags[i].space = space;
		hot->tags[i].tag = ++hot->last_tag;
	}
	return (uint64_t)hot->tags[i].tag << ADDRESS_BITS;
}

static inline size_t index_of(uint64_t key)
{
	return (key ^ key >> 12 ^ key >> ADDRESS_BITS) & (UW_WORD_SLOTS - 1);
}

/*
 * Fills the slot of a lookup it does not hold; false: no mapping, nothing to
 * hold.  *log ends the frames logged so far.
 */
static __attribute__((noinline)) bool fill(struct uw_walking *w, uint64_t lookup, uint64_t key,
					   struct uw_hot_frame **log)
{
	struct uw_hot *hot = &w->worker->hot;
	size_t i = index_of(key);
	struct uw_mapping *mapping = uw_walk_code(w, lookup);
	struct uw_object *object = mapping ? uw_space_resolve(w->space, mapping) : NULL;
	struct uw_word_slot slot = { .key = key, .word = TABLE_NONE, .mapping = mapping };

	if (!mapping)
		return false;
	/* The log may name the row that this slot is about to lose. */
	if (object && !uw_object_table(object))
		read_log(w, log);
	/* NONE, if somebody has to be asked first. */
	if (object && !uw_stepper_before(uw_space_steppers(w->space), lookup, UW_PRIORITY_CFI))
		slot.word = uw_object_word(object, lookup - mapping->bias, key & EXACT, &slot.ext,
					   &hot->rows[i]);
	hot->slots[i] = slot;
	return true;
}

/* ---- the loop -------------------------------------------------------------------------------- */

int uw_hot_run(struct uw_walking *w, struct uw_stack *out, struct uw_found *from)
{
	const struct uw_arch *arch = w->machine.arch;
	struct uw_hot *hot = &w->worker->hot;
	uint64_t *value = w->machine.regs.value;
	uint64_t pc = value[arch->pc], sp = value[arch->sp], fp = value[arch->fp];
	uint64_t mark_pc = w->mark_pc, mark_sp = w->mark_sp, back = !w->exact, above;
	size_t n = out->n_frames, max = out->max_frames;
	struct uw_frame *frame = out->frames + n;
	struct uw_hot_frame *log = w->log;
	uint8_t found = from->stepper, confidence = from->confidence;
	int stop = UW_GO_ON;
	struct near near;

	/* Elsewhere the return address may be in a register and signed. */
	if (arch->lr != arch->pc || !(w->machine.regs.known >> arch->fp & 1))
		return UW_GO_ON;
	near = near_sp(w->thread, sp);
	above = tag_of(hot, uw_space_id(w->space)) | (back ? 0 : EXACT);
	for (; n < max; n++, frame++) {
		uint64_t lookup = pc - back, key = lookup | above, cfa, ra = 0, word,
			 caller_fp = fp;
		struct uw_word_slot *slot = &hot->slots[index_of(key)];
		int64_t place;

		/* 0 less one is not an address either. */
		if (lookup >> ADDRESS_BITS || (pc == mark_pc && sp == mark_sp && n))
			break;
		if (__builtin_expect(slot->key != key, 0) && !fill(w, lookup, key, &log))
			break;
		word = slot->word;
		if (((uint32_t)word & COMMON_MASK) != COMMON)
			break;
		cfa = (word & 1 ? fp : sp) + (uint64_t)uw_word_cfa(word);
		place = uw_word_ra(word);
		if (__builtin_expect(place == TABLE_UNDEFINED, 0)) {
			stop = uw_stopping(UW_STOP_ROOT);
		} else if (!read_word(w, &near, cfa + (uint64_t)(place * 8), &ra)) {
			stop = uw_stopping(UW_STOP_TRUNCATED);
			w->missing = w->machine.missing;
		} else {
			if (cfa <= sp)
				break;
			place = uw_word_fp(word);
			if (place != TABLE_SAME) {
				uint64_t addr = cfa + (uint64_t)(place * 8);

				if (addr >= sp && !read_word(w, &near, addr, &caller_fp))
					break;
			}
		}
		if (!(n & (n - 1))) {
			mark_pc = pc;
			mark_sp = sp;
		}
		frame->pc = pc;
		frame->lookup = lookup;
		frame->cfa = cfa;
		frame->sp = sp;
		frame->mapping = slot->mapping;
		frame->stepper = found;
		frame->confidence = confidence;
		frame->exact = !back;
		frame->signal = false;
		if (__builtin_expect(stop != UW_GO_ON, 0)) {
			n++;
			break;
		}
		*log = (struct uw_hot_frame){ .ext = slot->ext, .cfa = cfa, .sp = sp };
		log += word >> 6 & 1;
		if (__builtin_expect(log == hot->log + UW_LOG_MAX, 0))
			read_log(w, &log);
		found = UW_STEPPER_CFI;
		confidence = UW_CONFIDENCE_RULE;
		above &= ~EXACT;
		back = 1;
		pc = ra;
		sp = cfa;
		fp = caller_fp;
	}
	if (n > out->n_frames)
		out->stop_addr = out->frames[n - 1].pc;
	out->n_frames = n;
	w->mark_pc = mark_pc;
	w->mark_sp = mark_sp;
	if (stop != UW_GO_ON)
		return stop;
	w->log = log;
	value[arch->pc] = pc;
	value[arch->sp] = sp;
	value[arch->fp] = fp;
	w->exact = !back;
	from->stepper = found;
	from->confidence = confidence;
	return UW_GO_ON;
}
