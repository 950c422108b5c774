#include "unwinder/hot.h"

#include <errno.h>
#include <string.h>

#include "unwinder/child.h"
#include "unwinder/guess.h"
#include "unwinder/object.h"
#include "unwinder/past.h"
#include "unwinder/row.h"
#include "unwinder/space.h"
#include "unwinder/stepper.h"
#include "unwinder/walk.h"

#define ADDRESS_BITS 48
#define EXACT	     ((uint64_t)1 << 63)
#define SP_LOW	     ((uint64_t)1 << 62) /* see struct uw_walking: only fp may be counted from */
#define TAG_MAX	     0x3fff

#define LIKELY(x)   __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/* What a frame's step comes to; the lower bits of all kinds but ASK mean the same. */
enum {
	KIND_FP = 1,	   /* the CFA counts from fp, not sp */
	KIND_SAVED_FP = 2, /* the caller's fp is at slot->fp */
	KIND_RARE = 4,	   /* from here on there is more to it: */
	KIND_ROOT = 4,	   /* undefined return address */
	KIND_LINK = 8,	   /* interrupted with the return address in lr */
	KIND_CHAIN = 12,   /* no rule, and not interrupted: the frame pointer may lead on */
	KIND_KEPT = 2,	   /* … and the code sets it */
	KIND_ASK = 16,	   /* somebody else must see to it */
};

/* ---- memory ------------------------------------------------------------------------------ */

/* The captured bytes around sp, where most words are. */
static struct uw_near near_sp(const struct uw_thread *thread, uint64_t sp)
{
	const struct uw_memory *memory = thread->ctx;

	if (thread->read != uw_memory_read)
		return (struct uw_near){ .room = 0 };
	for (size_t i = 0; i < memory->n_regions; i++) {
		const struct uw_region *r = &memory->regions[i];

		if (r->size >= 8 && sp >= r->addr && sp - r->addr < r->size)
			return (struct uw_near){ .addr = r->addr,
						 .room = r->size - 7,
						 .bytes = r->bytes };
	}
	return (struct uw_near){ .room = 0 };
}

static __attribute__((noinline)) bool far_word(struct uw_walking *w, uint64_t addr, uint64_t *out)
{
	return !uw_machine_read(&w->machine, addr, 8, out);
}

static inline uint64_t near_word(const struct uw_near *near, uint64_t addr)
{
	uint64_t word;

	memcpy(&word, near->bytes + (addr - near->addr), 8);
	return word;
}

static inline bool read_word(struct uw_walking *w, const struct uw_near *near, uint64_t addr,
			     uint64_t *out)
{
	if (UNLIKELY(addr - near->addr >= near->room))
		return far_word(w, addr, out);
	*out = near_word(near, addr);
	return true;
}

/* ---- slots ------------------------------------------------------------------------------ */

bool uw_hot_full(const struct uw_hot *hot)
{
	return hot->last_tag == TAG_MAX;
}

/* Keys of a space carry its tag; a space that has changed is another one. */
uint64_t uw_hot_tag(struct uw_hot *hot, uint64_t space)
{
	size_t i = space % UW_HOT_TAGS;

	if (hot->tags[i].space != space) {
		if (uw_hot_full(hot)) {
			memset(hot->slots, 0, sizeof(hot->slots));
			memset(hot->tags, 0, sizeof(hot->tags));
			hot->last_tag = 0;
		}
		hot->tags[i].space = space;
		hot->tags[i].tag = ++hot->last_tag;
	}
	return (uint64_t)hot->tags[i].tag << ADDRESS_BITS;
}

/* Fibonacci hashing: low bits alone are alike in code that is generated or aligned. */
static inline size_t index_of(uint64_t key)
{
	return (size_t)(key * 0x9e3779b97f4a7c15u >> (64 - UW_HOT_BITS));
}

#define PLT_SHIFT_MAX 16 /* files may say what they like; it is 3 */

/* What a rule's word comes to. */
static void expand(const struct uw_arch *arch, uint64_t word, struct uw_hot_slot *slot)
{
	uint64_t pc = slot->key & EXACT ? slot->key : slot->key + 1;
	int16_t fp = uw_word_fp(word), ra = uw_word_ra(word);
	uint8_t kind = 0;

	if (word & (TABLE_WORD_SIGNAL | TABLE_WORD_BASED))
		return;
	slot->cfa = (int32_t)uw_word_cfa(word);
	switch (uw_word_kind(word)) {
	case TABLE_FP:
		kind = KIND_FP;
		break;
	case TABLE_PLT:
		if (uw_word_plt_shift(word) > PLT_SHIFT_MAX)
			return;
		if ((pc & uw_word_plt_mask(word)) >= uw_word_plt_least(word))
			slot->cfa += 1 << uw_word_plt_shift(word);
		fp = TABLE_SAME;
		/* fall through */
	case TABLE_SP:
		if (slot->key & SP_LOW)
			return;
		break;
	default:
		return;
	}
	slot->saved = word & TABLE_WORD_SAVED;
	slot->ra = slot->fp = slot->cfa + ra * 8;
	if (ra == TABLE_UNDEFINED) {
		kind |= KIND_ROOT;
	} else if (ra == TABLE_SAME) {
		if (!(slot->key & EXACT) || arch->lr == arch->pc || fp != TABLE_SAME)
			return;
		kind |= KIND_LINK;
	} else if (fp != TABLE_SAME) {
		kind |= KIND_SAVED_FP;
		slot->fp = slot->cfa + fp * 8;
	}
	slot->kind = kind;
}

/* Where its words are, so that fetch() finds them; whether to go by them they say themselves. */
static void follow_chain(struct uw_hot_slot *slot, bool kept)
{
	slot->kind = KIND_CHAIN | KIND_FP | (kept ? KIND_KEPT : 0);
	slot->caller = 0;
	slot->ra = 8;
}

/* The FDE that the rule is of covers vaddr and what follows. */
static bool goes_on(const struct uw_rule *rule, uint64_t vaddr)
{
	return vaddr >= rule->start && rule->end > vaddr && rule->end - vaddr > 1;
}

/* Fills the slot of a lookup it does not hold; false: no mapping, nothing to hold. */
static __attribute__((noinline)) bool fill(struct uw_walking *w, uint64_t lookup, uint64_t key)
{
	struct uw_mapping *mapping = uw_walk_code(w, lookup);
	struct uw_hot_slot *slot = &w->worker->hot.slots[index_of(key)];
	const struct uw_steppers *steppers = uw_space_steppers(w->space);
	const struct uw_arch *arch = w->machine.arch;
	bool exact = key & EXACT;
	struct uw_object *object;
	struct uw_rule rule;
	uint64_t word;
	enum uw_word_from from = UW_WORD_KEPT;
	int err;

	if (!mapping)
		return false;
	object = uw_space_resolve(w->space, mapping);
	*slot = (struct uw_hot_slot){
		.key = key, .kind = KIND_ASK, .stepper = UW_STEPPER_CFI, .mapping = mapping
	};
	err = object ? uw_object_word_made(object, lookup - mapping->bias, exact, &word,
					   &slot->stepper, &rule, &from)
		     : -ENOENT;
	/* Where a frame was put together by hand: see uw_walk's part of it.  No procedure begins in one. */
	if (object && !exact &&
	    !(from == UW_WORD_MADE && !err && goes_on(&rule, lookup - mapping->bias)) &&
	    uw_object_begins(object, lookup + 1 - mapping->bias)) {
		slot->stepper = UW_STEPPER_CFI;
		return true;
	}
	/*
	 * That there is none is what whoever sees to this frame asks next.  Rules that were found are
	 * seldom wanted again, and their slots lie where nothing else of a first walk does.
	 */
	if (object && from == UW_WORD_MADE && err)
		uw_walk_keep_rule(w->worker, object, lookup - mapping->bias, exact, err, &rule);
	/* Its registers tell what the rule does not.  Most code goes on, and need not be read. */
	if (object && exact && (from != UW_WORD_INSIDE || arch->lr != arch->pc) &&
	    uw_child_may_begin(object, lookup - mapping->bias))
		return true;
	/* Nothing may go ahead of those who are to be asked first. */
	if (!err &&
	    !uw_stepper_before(steppers, lookup,
			       slot->stepper == UW_STEPPER_PLT ? UW_PRIORITY_PLT : UW_PRIORITY_CFI))
		expand(arch, word, slot);
	else if (err == -ENOENT && !exact && !uw_space_is_dynamic(w->space, lookup) &&
		 !uw_stepper_before(steppers, lookup, UW_PRIORITY_FP) &&
		 !uw_stepper_trampoline(w->space, &w->machine, lookup + 1, false, &rule)) {
		enum uw_keeping keeping = uw_stepper_keeping(w, object, lookup + 1 - mapping->bias);

		/* Where the function lets the register be, its own pushes may tell better. */
		if (keeping != UW_KEEPING_NOT)
			follow_chain(slot, keeping == UW_KEEPING_FP);
	}
	return true;
}

/* ---- saved registers ---------------------------------------------------------------------- */

static void read_saved(struct uw_walking *w, const struct uw_frame *frame,
		       const struct uw_rule *rule)
{
	const struct uw_arch *arch = w->machine.arch;
	struct uw_regs *regs = &w->machine.regs;
	struct uw_near near = near_sp(w->thread, frame->sp);

	for (unsigned int i = 0; i < rule->n_regs; i++) {
		const struct uw_reg_rule *r = &rule->regs[i];
		uint64_t addr = frame->cfa + (uint64_t)r->off, bit = (uint64_t)1 << r->reg, value;

		/* Below sp: popped already (see step.c). */
		if (r->kind != UW_RULE_AT_CFA || r->reg == rule->ra || r->reg == arch->fp ||
		    r->reg >= arch->n_regs || addr < frame->sp)
			continue;
		regs->known &= ~bit;
		if (read_word(w, &near, addr, &value)) {
			regs->value[r->reg] = value;
			regs->known |= bit;
		}
	}
}

void uw_hot_settle(struct uw_walking *w)
{
	struct uw_hot *hot = &w->worker->hot;

	for (; w->due + 1 < w->out->n_frames; w->due++) {
		const struct uw_frame *frame = &w->out->frames[w->due];
		uint64_t key = frame->lookup | w->tag | (frame->exact ? EXACT : 0);
		const struct uw_hot_slot *slot = &hot->slots[index_of(key)];
		struct uw_rule rule;

		if (slot->key == key && !slot->saved)
			continue;
		if (!uw_walk_rule(w->worker, frame->mapping->object,
				  frame->lookup - frame->mapping->bias, frame->exact, &rule))
			read_saved(w, frame, &rule);
	}
}

/* ---- a frame -------------------------------------------------------------------------------- */

enum outcome {
	ON,    /* the run is in the caller's frame */
	ASIDE, /* it is where it was: the frame is for somebody else */
	STOP,  /* the frame is in out, and the walk ends: run->stop */
	JOIN,  /* it is where it was: from here on an earlier walk has been */
};

/* A frame record lies anywhere in its frame (AAPCS64 §6.4.6). */
static inline uint64_t chain_low(const struct uw_arch *arch)
{
	return arch->lr != arch->pc ? SP_LOW : 0;
}

/* What ra, found behind the frame pointer fp where next stands, is worth. */
static inline enum uw_worth link_worth(struct uw_walking *w, uint64_t ra, uint64_t fp,
				       uint64_t next)
{
	uint64_t lookup = ra - 1, key = lookup | w->tag | chain_low(w->machine.arch);
	struct uw_hot_slot *slot = &w->worker->hot.slots[index_of(key)];

	if (lookup >> ADDRESS_BITS || (slot->key != key && !fill(w, lookup, key)))
		return UW_WORTH_NOTHING;
	if (!slot->worth)
		slot->worth = (uint8_t)(1 + uw_guess_worth(w, ra));
	return uw_guess_link((enum uw_worth)(slot->worth - 1), fp, next, true);
}

/*
 * Return whether the call before ra, whose worth was kept for any lookup, is of what lies at the
 * slot's. The slot keeps the last one that is; filling that of ra may have taken it away.
 */
static bool calls(struct uw_walking *w, struct uw_hot_slot *slot, uint64_t key, uint64_t lookup,
		  uint64_t ra)
{
	uint64_t off = ra - lookup;

	if (slot->key == key && off == (uint64_t)(int64_t)slot->caller)
		return true;
	w->lookup = lookup;
	if (uw_guess_worth(w, ra) != UW_WORTH_DIRECT)
		return false;
	if (slot->key == key && off == (uint64_t)(int64_t)(int32_t)off)
		slot->caller = (int32_t)off;
	return true;
}

/*
 * Return how the caller is found by the frame pointer fp, where next stands and ra behind it;
 * 0: not at all. above: of the key of the frame's slot, which is filled.
 */
static __attribute__((noinline)) uint32_t follow(struct uw_walking *w, uint64_t lookup,
						 uint64_t above, uint64_t ra, uint64_t fp,
						 uint64_t next)
{
	struct uw_hot_slot *slot = &w->worker->hot.slots[index_of(lookup | above)];
	bool own = slot->kind & KIND_KEPT, readable = slot->mapping->object;
	enum uw_worth worth = link_worth(w, ra, fp, next);

	if (worth == UW_WORTH_NOTHING)
		return 0;
	if (!own && readable && (worth == UW_WORTH_DIRECT || worth == UW_WORTH_ELSEWHERE))
		own = calls(w, slot, lookup | above, lookup, ra);
	/* Other registers may have been saved anywhere, or not. */
	uw_walk_take_regs(w);
	w->machine.regs.known = 0;
	return uw_run_how(UW_STEPPER_FP, (uint8_t)uw_guess_confidence(worth, own), false);
}

/* The frame pointer's step, and how the caller is found so; 0: it leads nowhere. */
static inline uint32_t chain(struct uw_walking *w, const struct uw_run *run, uint64_t lookup,
			     uint64_t *ra, uint64_t *caller_fp)
{
	const struct uw_near near = run->near;
	uint64_t fp = run->fp, link, next;

	if (!uw_guess_is_fp(run->sp, fp) || !read_word(w, &near, fp, &next) ||
	    !read_word(w, &near, fp + 8, &link) || !(link & run->mask))
		return 0;
	*ra = link;
	*caller_fp = next;
	return follow(w, lookup, run->above, link & run->mask, fp, next);
}

/* Of what is not in the captured bytes around sp; the run's own words stay in registers. */
static inline bool far_copy(struct uw_walking *w, uint64_t addr, uint64_t *out)
{
	uint64_t word;
	bool there = far_word(w, addr, &word);

	if (there)
		*out = word;
	return there;
}

/*
 * Whether a run, of which this much is told so that it stays in registers, stands where the
 * walk to be joined was, in the same state; room: for so many more frames.
 */
static __attribute__((noinline)) bool joins(struct uw_walking *w, uint64_t pc, uint64_t sp,
					    uint64_t fp, bool low, size_t room)
{
	struct uw_join *join = &w->join;
	const struct uw_frame *frame;
	const struct uw_note *note;

	while (join->n && join->frames[join->n - 1].sp < sp)
		join->n--;
	/* With too many frames in all they are not the same ones. */
	if (!join->n || join->n > room) {
		join->sp = UINT64_MAX;
		return false;
	}
	frame = &join->frames[join->n - 1];
	note = &join->notes[join->n - 1];
	join->sp = frame->sp;
	return sp == frame->sp && pc == frame->pc && fp == note->fp && !frame->exact &&
	       low == !!(note->flags & UW_NOTE_LOW);
}

/* What the step from the frame at run->pc went by, kind and places as in hot_frame. */
static inline void take_note(struct uw_walking *w, const struct uw_run *run, unsigned int kind,
			     uint64_t ra_at, uint64_t fp_at)
{
	struct uw_note *note = &w->notes[run->frame - w->out->frames];
	unsigned int flags = UW_NOTE_HOT;

	if (kind < KIND_RARE) {
		flags |= kind & KIND_SAVED_FP && fp_at >= run->sp ? UW_NOTE_FP : 0;
	} else if ((kind & ~3u) == KIND_CHAIN) {
		ra_at = run->fp + 8;
		fp_at = run->fp;
		flags |= UW_NOTE_FP;
	} else if ((kind & ~3u) == KIND_ROOT) {
		flags |= UW_NOTE_ROOT;
	} else {
		flags = 0;
	}
	if (run->above & SP_LOW)
		flags |= UW_NOTE_LOW;
	if (run->stop == uw_stopping(UW_STOP_TRUNCATED))
		flags |= UW_NOTE_MISSING;
	*note = (struct uw_note){
		.fp = run->fp, .ra_at = ra_at, .fp_at = fp_at, .flags = (uint8_t)flags
	};
}

/*
 * Puts the frame at run->pc into out and takes the run to its caller.  Every word
 * is read within the captured bytes or by far_word, and the CFA lies above sp;
 * what is otherwise is left to others, who also know what it means.  What differs
 * from frame to frame without a pattern is chosen by masks: no branch foretells it.
 * noting, a constant: see uw_hot_run_noting.
 */
static inline __attribute__((always_inline)) enum outcome
hot_frame(struct uw_walking *w, struct uw_hot *hot, struct uw_run *run, bool noting)
{
	uint64_t lookup = run->pc - run->back, key = lookup | run->above;
	struct uw_hot_slot *slot = &hot->slots[index_of(key)];
	uint64_t base, cfa, at, ra = 0, fp_at, caller_fp = run->fp, sp = run->sp;
	uint64_t above = w->tag;
	struct uw_frame *frame = run->frame;
	struct uw_mapping *mapping;
	enum outcome outcome = ON;
	unsigned int kind;
	uint32_t how;

	/* 0 less one is not an address either. */
	if (UNLIKELY(lookup >> ADDRESS_BITS) || UNLIKELY(frame == run->end))
		return ASIDE;
	if (noting && UNLIKELY(sp >= run->join_sp)) {
		if (run->back &&
		    joins(w, run->pc, sp, run->fp, run->above & SP_LOW, (size_t)(run->end - frame)))
			return JOIN;
		run->join_sp = w->join.sp;
	}
	if (UNLIKELY(slot->key != key) && !fill(w, lookup, key))
		return ASIDE;
	kind = slot->kind;
	mapping = slot->mapping;
	how = uw_run_how(slot->stepper, UW_CONFIDENCE_RULE, false);
	base = sp + ((run->fp - sp) & -(uint64_t)(kind & KIND_FP));
	cfa = base + (uint64_t)(int64_t)slot->cfa;
	at = base + (uint64_t)(int64_t)slot->ra;
	fp_at = base + (uint64_t)(int64_t)slot->fp;
	if (UNLIKELY(kind >= KIND_RARE)) {
		switch (kind & ~3u) {
		case KIND_ROOT:
			run->stop = uw_stopping(UW_STOP_ROOT);
			outcome = STOP;
			break;
		case KIND_LINK:
			if (!(uw_walk_regs(w)->known >> w->machine.arch->lr & 1))
				return ASIDE;
			ra = run->ra;
			/* A call need not touch the stack. */
			if (cfa < sp || (cfa == sp && ra == run->pc))
				return ASIDE;
			if (cfa == sp && uw_walk_cycle(w, ra & run->mask, sp)) {
				run->stop = uw_stopping(UW_STOP_CYCLE);
				outcome = STOP;
			}
			break;
		case KIND_CHAIN:
			how = chain(w, run, lookup, &ra, &caller_fp);
			if (!how)
				return ASIDE;
			cfa = run->fp + 16;
			above |= chain_low(w->machine.arch);
			w->due = (size_t)(frame - w->out->frames) + 1;
			break;
		default:
			return ASIDE;
		}
	} else if (UNLIKELY(at - run->near.addr >= run->near.room) && !far_copy(w, at, &ra)) {
		w->missing = w->machine.missing;
		run->stop = uw_stopping(UW_STOP_TRUNCATED);
		outcome = STOP;
	} else {
		if (UNLIKELY(cfa <= sp))
			return ASIDE;
		if (LIKELY(at - run->near.addr < run->near.room))
			ra = near_word(&run->near, at);
		/* Popped already (see step.c), or not where most words are. */
		if (UNLIKELY(fp_at - run->near.addr >= run->near.room || fp_at < sp)) {
			if (kind & KIND_SAVED_FP && fp_at >= sp && !far_copy(w, fp_at, &caller_fp))
				return ASIDE;
		} else {
			caller_fp ^= (near_word(&run->near, fp_at) ^ caller_fp) &
				     -(uint64_t)(kind >> 1 & 1);
		}
	}
	if (noting)
		take_note(w, run, kind, at, fp_at);
	frame->pc = run->pc;
	frame->lookup = lookup;
	frame->cfa = cfa;
	frame->sp = sp;
	frame->mapping = mapping;
	memcpy(&frame->stepper, &run->how, sizeof(run->how));
	run->frame = frame + 1;
	if (UNLIKELY(outcome == STOP))
		return STOP;
	run->how = how;
	run->above = above;
	run->back = 1;
	run->ra = ra;
	run->pc = ra & run->mask;
	run->sp = cfa;
	run->fp = caller_fp;
	return ON;
}

/* ---- runs of them ------------------------------------------------------------------------- */

static inline void enter(struct uw_walking *w, struct uw_run *run)
{
	const struct uw_arch *arch = w->machine.arch;
	const struct uw_regs *regs = uw_walk_regs(w);
	const uint64_t *value = regs->value;

	run->sp = value[arch->sp];
	run->fp = value[arch->fp];
	run->ra = value[arch->lr];
	run->mask = w->mask;
	run->pc = value[arch->pc] & run->mask;
	run->back = !w->exact;
	run->above = w->tag | (w->exact ? EXACT : 0) | (w->sp_low ? SP_LOW : 0);
	run->near = near_sp(w->thread, run->sp);
	run->frame = w->out->frames + w->out->n_frames;
	/* A frame without fp is for somebody else. */
	run->end = regs->known >> arch->fp & 1 ? w->out->frames + w->out->max_frames : run->frame;
	run->how = uw_run_how(w->stepper, w->confidence, w->exact);
	run->stop = UW_GO_ON;
	run->join_sp = UINT64_MAX;
}

static int leave(struct uw_walking *w, const struct uw_run *run, enum outcome outcome)
{
	const struct uw_arch *arch = w->machine.arch;
	uint64_t *value = w->machine.regs.value;
	uint64_t known =
		(uint64_t)1 << arch->pc | (uint64_t)1 << arch->sp | (uint64_t)1 << arch->fp;
	size_t n = (size_t)(run->frame - w->out->frames);

	if (n > w->out->n_frames)
		w->out->stop_addr = run->frame[-1].pc;
	if (outcome == STOP) {
		w->out->n_frames = n;
		return run->stop;
	}
	uw_walk_take_regs(w);
	if (n > w->out->n_frames) {
		value[arch->lr] = run->ra;
		if ((uint8_t)run->how != UW_STEPPER_FP)
			known |= (uint64_t)1 << arch->lr;
		w->machine.regs.known |= known;
		value[arch->pc] = run->pc;
		value[arch->sp] = run->sp;
		value[arch->fp] = run->fp;
		w->exact = false;
		w->sp_low = run->above & SP_LOW;
		w->stepper = (uint8_t)run->how;
		w->confidence = (uint8_t)(run->how >> 8);
		w->out->n_frames = n;
	}
	return UW_GO_ON;
}

int uw_hot_run(struct uw_walking *w)
{
	struct uw_hot *hot = &w->worker->hot;
	struct uw_run first, run, last;
	enum outcome outcome;

	enter(w, &first);
	run = first; /* whose address nobody has: it lives in registers */
	do
		outcome = hot_frame(w, hot, &run, false);
	while (outcome == ON);
	last = run;
	return leave(w, &last, outcome);
}

int uw_hot_run_noting(struct uw_walking *w)
{
	struct uw_hot *hot = &w->worker->hot;
	struct uw_run first, run, last;
	enum outcome outcome;

	enter(w, &first);
	first.join_sp = w->join.sp;
	run = first;
	do
		outcome = hot_frame(w, hot, &run, true);
	while (outcome == ON);
	last = run;
	if (outcome != JOIN)
		return leave(w, &last, outcome);
	w->out->n_frames = (size_t)(last.frame - w->out->frames);
	w->join.how = last.how;
	return UW_JOINED;
}

/*
 * What the next frame's step reads: it is others' turn meanwhile.  The slot may be
 * another's, and addresses need not be there: that does no harm.
 */
static inline void fetch(const struct uw_hot *hot, const struct uw_run *run)
{
	const struct uw_hot_slot *slot = &hot->slots[index_of((run->pc - run->back) | run->above)];
	uintptr_t base = (uintptr_t)run->near.bytes +
			 (uintptr_t)((slot->kind & KIND_FP ? run->fp : run->sp) - run->near.addr);

	__builtin_prefetch((const void *)(base + (uintptr_t)(intptr_t)slot->ra));
	__builtin_prefetch((const void *)(base + (uintptr_t)(intptr_t)slot->fp));
}

void uw_hot_enter(struct uw_walking *w)
{
	enter(w, &w->run);
	fetch(&w->worker->hot, &w->run);
}

int uw_hot_turns(struct uw_walking *const *lanes, size_t n, size_t *at)
{
	for (size_t i = *at;; i++) {
		struct uw_walking *w = lanes[i = i < n ? i : 0];
		enum outcome outcome = hot_frame(w, &w->worker->hot, &w->run, false);

		if (UNLIKELY(outcome != ON)) {
			*at = i;
			return leave(w, &w->run, outcome);
		}
		fetch(&w->worker->hot, &w->run);
	}
}
