/*
 * unwinder/walk/hot.c: the fast loop of a walk (hot.h): frames by packed rules, through a cache of
 * what each frame's step does.
 */
#include "unwinder/walk/hot.h"

#include <errno.h>
#include <string.h>

#include "unwinder/rule/object.h"
#include "unwinder/table/row.h"
#include "unwinder/walk/child.h"
#include "unwinder/walk/guess.h"
#include "unwinder/walk/history.h"
#include "unwinder/walk/space.h"
#include "unwinder/walk/stepper.h"
#include "unwinder/walk/walk.h"

#define ADDRESS_BITS 48
#define EXACT	     ((uint64_t)1 << 63)
#define SP_LOW	     ((uint64_t)1 << 62) /* sp is only a lower bound, see struct uw_walking */
#define TAG_MAX	     0x3fff

#define LIKELY(x)   __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/*
 * What a frame's step does. The two low bits are flags: KIND_FP and KIND_SAVED_FP, or KIND_FP
 * and KIND_SETS_FP with KIND_CHAIN. KIND_ASK has no flags.
 */
enum {
	KIND_FP = 1,	   /* the CFA is computed from fp instead of sp */
	KIND_SAVED_FP = 2, /* the caller's fp is at slot->fp */
	KIND_RARE = 4,	   /* all kinds from here on take the slow branch: */
	KIND_ROOT = 4,	   /* undefined return address */
	KIND_LINK = 8,	   /* interrupted with the return address in lr */
	KIND_CHAIN = 12,   /* no rule, and not interrupted: try the frame pointer */
	KIND_SETS_FP = 2,  /* with KIND_CHAIN: the code sets up the frame pointer */
	KIND_ASK = 16,	   /* another part of the walk must step from this frame */
};

/* ---- memory ------------------------------------------------------------------------------ */

/*
 * Return the captured region that contains sp, where most words are read. Return an empty range
 * if the thread has no such region or another memory accessor.
 */
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

/*
 * Read a word outside the captured bytes around sp, in the slow way. Return whether it can be
 * read.
 */
static __attribute__((noinline)) bool far_u64(struct uw_walking *w, uint64_t addr, uint64_t *out)
{
	return !uw_machine_read(&w->machine, addr, 8, out);
}

/* Read a word of the captured bytes around sp. The caller has checked the bounds. */
static inline uint64_t near_u64(const struct uw_near *near, uint64_t addr)
{
	uint64_t value;

	memcpy(&value, near->bytes + (addr - near->addr), 8);
	return value;
}

/* Read a word: from the captured bytes around sp if it is there. Return whether it can be read. */
static inline bool read_u64(struct uw_walking *w, const struct uw_near *near, uint64_t addr,
			    uint64_t *out)
{
	if (UNLIKELY(addr - near->addr >= near->room))
		return far_u64(w, addr, out);
	*out = near_u64(near, addr);
	return true;
}

/* ---- slots ------------------------------------------------------------------------------ */

bool uw_hot_full(const struct uw_hot *hot)
{
	return hot->last_tag == TAG_MAX;
}

/*
 * The keys of a space's slots contain its tag. A space that has changed has a new id and so a
 * new tag.
 */
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

/*
 * Return the slot of a key by Fibonacci hashing: the low bits alone are too similar in
 * generated or aligned code.
 */
static inline size_t index_of(uint64_t key)
{
	return (size_t)(key * 0x9e3779b97f4a7c15u >> (64 - UW_HOT_BITS));
}

#define PLT_SHIFT_MAX 16 /* the file may hold any value; real files have 3 */

/*
 * Convert a packed rule to the effect of the frame's step. Leave the slot as KIND_ASK if the
 * fast loop cannot execute the rule.
 */
static void expand(const struct uw_arch *arch, uint64_t packed, struct uw_hot_slot *slot)
{
	uint64_t pc = slot->key & EXACT ? slot->key : slot->key + 1;
	int16_t fp = uw_packed_fp(packed), ra = uw_packed_ra(packed);
	uint8_t kind = 0;

	if (packed & (TABLE_RULE_SIGNAL | TABLE_RULE_BASED))
		return;
	slot->cfa = (int32_t)uw_packed_cfa(packed);
	switch (uw_packed_kind(packed)) {
	case TABLE_FP:
		kind = KIND_FP;
		break;
	case TABLE_PLT:
		if (uw_packed_plt_shift(packed) > PLT_SHIFT_MAX)
			return;
		if ((pc & uw_packed_plt_mask(packed)) >= uw_packed_plt_least(packed))
			slot->cfa += 1 << uw_packed_plt_shift(packed);
		fp = TABLE_SAME;
		/* fall through */
	case TABLE_SP:
		if (slot->key & SP_LOW)
			return;
		break;
	default:
		return;
	}
	slot->saved = packed & TABLE_RULE_SAVED;
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

/*
 * Make the slot a link of a frame pointer chain. The offsets let fetch() prefetch the frame
 * record; whether the record is followed is decided when it is read. sets_fp: the code sets up the
 * frame pointer.
 */
static void follow_chain(struct uw_hot_slot *slot, bool sets_fp)
{
	slot->kind = KIND_CHAIN | KIND_FP | (sets_fp ? KIND_SETS_FP : 0);
	slot->caller = 0;
	slot->ra = 8;
}

/* Return whether the rule's FDE covers vaddr and the byte after it. */
static bool goes_on(const struct uw_rule *rule, uint64_t vaddr)
{
	return vaddr >= rule->start && rule->end > vaddr && rule->end - vaddr > 1;
}

/*
 * Fill the slot for a lookup that the cache does not hold. Return false if no executable
 * mapping contains lookup.
 */
static __attribute__((noinline)) bool fill(struct uw_walking *w, uint64_t lookup, uint64_t key)
{
	struct uw_mapping *mapping = uw_walk_code(w, lookup);
	struct uw_hot_slot *slot = &w->worker->hot.slots[index_of(key)];
	const struct uw_steppers *steppers = uw_space_steppers(w->space);
	const struct uw_arch *arch = w->machine.arch;
	bool exact = key & EXACT;
	struct uw_object *object;
	struct uw_rule rule;
	uint64_t packed;
	enum uw_rule_origin from = UW_ORIGIN_STORED;
	bool in_fde; /* an FDE surely covers lookup and the byte after it */
	int err;

	if (!mapping)
		return false;
	object = uw_space_resolve(w->space, mapping);
	*slot = (struct uw_hot_slot){
		.key = key, .kind = KIND_ASK, .stepper = UW_STEPPER_CFI, .mapping = mapping
	};
	err = object ? uw_facts_packed(&w->worker->facts, object, lookup - mapping->bias, exact,
				       &packed, &slot->stepper, &rule, &from)
		     : -ENOENT;
	in_fde = from == UW_ORIGIN_MADE && !err && goes_on(&rule, lookup - mapping->bias);
	/*
	 * The return address may have been stored by hand (makecontext): then it begins a
	 * function, and uw_walk_frame has a special case for it. If the rule's FDE also covers
	 * the return address itself, no procedure begins there.
	 */
	if (object && !exact && !in_fde &&
	    uw_facts_begins(&w->worker->facts, object, lookup + 1 - mapping->bias)) {
		slot->stepper = UW_STEPPER_CFI;
		return true;
	}
	/*
	 * A thread that clone has just created has the same pc as its parent; only its
	 * registers tell. Most addresses have an FDE where that is not possible, so their code
	 * need not be read.
	 */
	if (object && exact &&
	    ((from != UW_ORIGIN_INSIDE && !in_fde) || uw_child_may_be_covered(object)) &&
	    uw_facts_child(&w->worker->facts, object, lookup - mapping->bias))
		return true;
	/* Use the rule only if no stepper with a higher priority must be asked first. */
	if (!err &&
	    !uw_stepper_before(steppers, lookup,
			       slot->stepper == UW_STEPPER_PLT ? UW_PRIORITY_PLT : UW_PRIORITY_CFI))
		expand(arch, packed, slot);
	else if (err == -ENOENT && !exact && !uw_space_is_dynamic(w->space, lookup) &&
		 !uw_stepper_before(steppers, lookup, UW_PRIORITY_FP) &&
		 !uw_stepper_trampoline(w->space, &w->machine, lookup + 1, false, &rule)) {
		enum uw_keeping keeping =
			uw_stepper_keeping(w, object, lookup + 1 - mapping->bias, false);

		/*
		 * If the function does not touch the frame pointer, its own pushes may be
		 * better evidence.
		 */
		if (keeping != UW_KEEPING_NOT)
			follow_chain(slot, keeping == UW_KEEPING_FP);
	}
	return true;
}

/* ---- saved registers ---------------------------------------------------------------------- */

/*
 * Read the caller's registers that frame saved on the stack, except fp and the return address.
 * A register that cannot be read becomes unknown.
 */
static void read_saved(struct uw_walking *w, const struct uw_frame *frame,
		       const struct uw_rule *rule)
{
	const struct uw_arch *arch = w->machine.arch;
	struct uw_regs *regs = &w->machine.regs;
	struct uw_near near = near_sp(w->thread, frame->sp);

	for (unsigned int i = 0; i < rule->n_regs; i++) {
		const struct uw_reg_rule *r = &rule->regs[i];
		uint64_t addr = frame->cfa + (uint64_t)r->off, bit = (uint64_t)1 << r->reg, value;

		/* A slot below sp has been popped already (see step.c). */
		if (r->kind != UW_RULE_AT_CFA || r->reg == rule->ra || r->reg == arch->fp ||
		    r->reg >= arch->n_regs || addr < frame->sp)
			continue;
		regs->known &= ~bit;
		if (read_u64(w, &near, addr, &value)) {
			regs->value[r->reg] = value;
			regs->known |= bit;
		}
	}
}

/*
 * Look up the rule of each frame again, unless its slot is still cached and says that no
 * registers were saved.
 */
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
		if (!uw_facts_rule(&w->worker->facts, frame->mapping->object,
				   frame->lookup - frame->mapping->bias, frame->exact, &rule))
			read_saved(w, frame, &rule);
	}
}

/* ---- one frame ---------------------------------------------------------------------------- */

enum outcome {
	ON,    /* the run has moved to the caller's frame */
	ASIDE, /* the run has not moved: another part of the walk must step from the frame */
	STOP,  /* the frame is in out, and the walk ends for the reason run->stop */
	REUSE, /* the run has not moved: an earlier walk has the same frames from here on */
};

/*
 * Return SP_LOW on machines where a frame record may lie anywhere in its frame (AAPCS64
 * §6.4.6), so that fp + 16 is only a lower bound of the caller's sp.
 */
static inline uint64_t chain_low(const struct uw_arch *arch)
{
	return arch->lr != arch->pc ? SP_LOW : 0;
}

/*
 * Return the evidence that ra is the caller's return address, where ra and next were read at
 * the frame pointer fp. Cache it in the slot of ra - 1.
 */
static inline enum uw_evidence link_evidence(struct uw_walking *w, uint64_t ra, uint64_t fp,
					     uint64_t next)
{
	uint64_t lookup = ra - 1, key = lookup | w->tag | chain_low(w->machine.arch);
	struct uw_hot_slot *slot = &w->worker->hot.slots[index_of(key)];

	if (lookup >> ADDRESS_BITS || (slot->key != key && !fill(w, lookup, key)))
		return UW_EVIDENCE_NONE;
	if (!slot->evidence)
		slot->evidence = (uint8_t)(1 + uw_guess_evidence(w, ra));
	return uw_guess_link((enum uw_evidence)(slot->evidence - 1), fp, next, true);
}

/*
 * Return whether the call that ends at ra calls the code at lookup. The evidence cached for ra
 * does not depend on lookup, so the target is checked here. The slot caches the last return
 * address for which this is true; filling the slot of ra may have evicted it.
 */
static bool calls(struct uw_walking *w, struct uw_hot_slot *slot, uint64_t key, uint64_t lookup,
		  uint64_t ra)
{
	uint64_t off = ra - lookup;

	if (slot->key == key && off == (uint64_t)(int64_t)slot->caller)
		return true;
	w->lookup = lookup;
	if (uw_guess_evidence(w, ra) != UW_EVIDENCE_DIRECT)
		return false;
	if (slot->key == key && off == (uint64_t)(int64_t)(int32_t)off)
		slot->caller = (int32_t)off;
	return true;
}

/*
 * Return how the caller is found by the frame pointer fp, with next at fp and ra behind it; 0
 * if the frame pointer does not lead to a caller. above: the upper bits of the key of the
 * frame's slot, which is filled.
 */
static __attribute__((noinline)) uint32_t follow(struct uw_walking *w, uint64_t lookup,
						 uint64_t above, uint64_t ra, uint64_t fp,
						 uint64_t next)
{
	struct uw_hot_slot *slot = &w->worker->hot.slots[index_of(lookup | above)];
	bool own = slot->kind & KIND_SETS_FP, readable = slot->mapping->object;
	enum uw_evidence evidence = link_evidence(w, ra, fp, next);

	if (evidence == UW_EVIDENCE_NONE)
		return 0;
	if (!own && readable &&
	    (evidence == UW_EVIDENCE_DIRECT || evidence == UW_EVIDENCE_ELSEWHERE))
		own = calls(w, slot, lookup | above, lookup, ra);
	/* Other registers may have been saved anywhere, or not at all. */
	uw_walk_take_regs(w);
	w->machine.regs.known = 0;
	return uw_run_how(UW_STEPPER_FP, (uint8_t)uw_guess_confidence(evidence, own), false);
}

/*
 * Step by the frame pointer: read the frame record and check it. Return how the caller is
 * found, or 0 if the record does not lead to a caller.
 */
static inline uint32_t chain(struct uw_walking *w, const struct uw_run *run, uint64_t lookup,
			     uint64_t *ra, uint64_t *caller_fp)
{
	const struct uw_near near = run->near;
	uint64_t fp = run->fp, link, next;

	if (!uw_guess_is_fp(run->sp, fp) || !read_u64(w, &near, fp, &next) ||
	    !read_u64(w, &near, fp + 8, &link) || !(link & run->mask))
		return 0;
	*ra = link;
	*caller_fp = next;
	return follow(w, lookup, run->above, link & run->mask, fp, next);
}

/*
 * Read a word outside the captured bytes around sp. far_u64 gets the address of a local
 * variable only, so that the caller's variable can stay in a register.
 */
static inline bool far_copy(struct uw_walking *w, uint64_t addr, uint64_t *out)
{
	uint64_t value;
	bool there = far_u64(w, addr, &value);

	if (there)
		*out = value;
	return there;
}

/*
 * Return whether the run is at a frame of the walk to be reused, in the same state. room: how
 * many more frames fit. The run's values are passed one by one, so that it can stay in
 * registers.
 */
static __attribute__((noinline)) bool can_reuse(struct uw_walking *w, uint64_t pc, uint64_t sp,
						uint64_t fp, bool low, size_t room)
{
	struct uw_reuse *reuse = &w->reuse;
	const struct uw_frame *frame;
	const struct uw_record *record;

	while (reuse->n && reuse->frames[reuse->n - 1].sp < sp)
		reuse->n--;
	/* With more frames than fit, the whole stack would not be complete. */
	if (!reuse->n || reuse->n > room) {
		reuse->sp = UINT64_MAX;
		return false;
	}
	frame = &reuse->frames[reuse->n - 1];
	record = &reuse->records[reuse->n - 1];
	reuse->sp = frame->sp;
	return sp == frame->sp && pc == frame->pc && fp == record->fp && !frame->exact &&
	       low == !!(record->flags & UW_RECORD_LOW);
}

/*
 * Record what the step from the frame at run->pc used. kind, ra_at and fp_at are those of
 * hot_frame.
 */
static inline void record_frame(struct uw_walking *w, const struct uw_run *run, unsigned int kind,
				uint64_t ra_at, uint64_t fp_at)
{
	struct uw_record *record = &w->records[run->frame - w->out->frames];
	unsigned int flags = UW_RECORD_HOT;

	if (kind < KIND_RARE) {
		flags |= kind & KIND_SAVED_FP && fp_at >= run->sp ? UW_RECORD_FP : 0;
	} else if ((kind & ~3u) == KIND_CHAIN) {
		ra_at = run->fp + 8;
		fp_at = run->fp;
		flags |= UW_RECORD_FP;
	} else if ((kind & ~3u) == KIND_ROOT) {
		flags |= UW_RECORD_ROOT;
	} else {
		flags = 0;
	}
	if (run->above & SP_LOW)
		flags |= UW_RECORD_LOW;
	if (run->stop == uw_stopping(UW_STOP_TRUNCATED))
		flags |= UW_RECORD_MISSING;
	*record = (struct uw_record){
		.fp = run->fp, .ra_at = ra_at, .fp_at = fp_at, .flags = (uint8_t)flags
	};
}

/*
 * Add the frame at run->pc to out and move the run to its caller.
 *
 * Each word is read from the captured bytes or by far_u64, and the CFA must lie above sp. All
 * other cases are left to the other parts of the walk, which also know what they mean. Choices
 * that vary from frame to frame without a pattern are made with masks, because a branch would
 * be mispredicted. recording must be a constant: see uw_hot_run_recording.
 */
static inline __attribute__((always_inline)) enum outcome
hot_frame(struct uw_walking *w, struct uw_hot *hot, struct uw_run *run, bool recording)
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

	/* This also rejects a return address of 0, whose lookup is 2^64 - 1. */
	if (UNLIKELY(lookup >> ADDRESS_BITS) || UNLIKELY(frame == run->end))
		return ASIDE;
	if (recording && UNLIKELY(sp >= run->reuse_sp)) {
		if (run->back && can_reuse(w, run->pc, sp, run->fp, run->above & SP_LOW,
					   (size_t)(run->end - frame)))
			return REUSE;
		run->reuse_sp = w->reuse.sp;
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
			/* On this machine a call need not move sp, so cfa may equal sp. */
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
			ra = near_u64(&run->near, at);
		/*
		 * The slot has been popped already (see step.c), or is not in the captured
		 * bytes around sp.
		 */
		if (UNLIKELY(fp_at - run->near.addr >= run->near.room || fp_at < sp)) {
			if (kind & KIND_SAVED_FP && fp_at >= sp && !far_copy(w, fp_at, &caller_fp))
				return ASIDE;
		} else {
			caller_fp ^= (near_u64(&run->near, fp_at) ^ caller_fp) &
				     -(uint64_t)(kind >> 1 & 1);
		}
	}
	if (recording)
		record_frame(w, run, kind, at, fp_at);
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

/* ---- runs of frames ----------------------------------------------------------------------- */

/* Load the walk's state into a run. */
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
	/* A frame whose fp is not known is left to the other parts of the walk: no frame fits. */
	run->end = regs->known >> arch->fp & 1 ? w->out->frames + w->out->max_frames : run->frame;
	run->how = uw_run_how(w->stepper, w->confidence, w->exact);
	run->stop = UW_GO_ON;
	run->reuse_sp = UINT64_MAX;
}

/*
 * Store the state of a run that ended with outcome back into the walk. Return UW_GO_ON, or why
 * the walk ends.
 */
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

/* Step on a local copy of the run, which a compiler can keep in registers. */
int uw_hot_run(struct uw_walking *w)
{
	struct uw_hot *hot = &w->worker->hot;
	struct uw_run first, run, last;
	enum outcome outcome;

	enter(w, &first);
	run = first; /* run's address is never taken, so that it stays in registers */
	do
		outcome = hot_frame(w, hot, &run, false);
	while (outcome == ON);
	last = run;
	return leave(w, &last, outcome);
}

int uw_hot_run_recording(struct uw_walking *w)
{
	struct uw_hot *hot = &w->worker->hot;
	struct uw_run first, run, last;
	enum outcome outcome;

	enter(w, &first);
	first.reuse_sp = w->reuse.sp;
	run = first;
	do
		outcome = hot_frame(w, hot, &run, true);
	while (outcome == ON);
	last = run;
	if (outcome != REUSE)
		return leave(w, &last, outcome);
	w->out->n_frames = (size_t)(last.frame - w->out->frames);
	w->reuse.how = last.how;
	return UW_REUSED;
}

/*
 * Prefetch what the next frame's step reads, while the other walks take their turns. The slot
 * may belong to another key, and the addresses may be invalid: a prefetch of them is harmless.
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

/*
 * Step the walks in turn, so that the memory reads of one walk overlap with the work of the
 * others.
 */
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
