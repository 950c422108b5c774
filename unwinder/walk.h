/* unwinder/walk.h: a walk under way and its worker, for the parts of the walk. */
#ifndef UNWINDER_WALK_H
#define UNWINDER_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unwinder/hot.h"
#include "unwinder/past.h"
#include "unwinder/rule.h"
#include "unwinder/step.h"
#include "unwinder/unwinder.h"

/*
 * In front stand words by (space, pc), see hot.h.  Of what those do not cover
 * there are two small caches instead of one keyed by (space, pc): where a page
 * is mapped belongs to the space, but the rule belongs to the object, and the
 * hundred short processes of a compilation share theirs.
 */
#define UW_PAGE_SLOTS	 1024
#define UW_RECENT_SLOTS	 8
#define UW_RULE_SLOTS	 4096
#define UW_CALL_SLOTS	 4096
#define UW_KEEPING_SLOTS 1024

/* Rules with more registers, those of signal frames, are found anew each time. */
#define UW_SLOT_REGS 8

struct uw_page_slot {
	uint64_t space;
	uint64_t page;
	struct uw_mapping *mapping; /* valid while the space has this id */
};

/* Code is mostly in a few mappings. */
struct uw_recent_slot {
	uint64_t space;
	uint64_t start, end;
	struct uw_mapping *mapping; /* executable; valid while the space has this id */
};

/* Where nothing is mapped, and yet memory was asked for: the stack behind what was captured. */
struct uw_hollow {
	uint64_t space;
	uint64_t start, end;
};

struct uw_rule_slot {	 /* three cache lines */
	uint64_t object; /* its id; 0: empty */
	uint64_t key;	 /* lookup and whether it is exact */
	int err;
	uint8_t rule[offsetof(struct uw_rule, regs)]; /* the head, then n_regs of */
	struct uw_reg_rule regs[UW_SLOT_REGS];
};

struct uw_call_slot {
	uint64_t object;
	uint64_t vaddr;
	struct uw_call call;
};

struct uw_keeping_slot {
	uint64_t object;
	uint64_t vaddr;
	uint8_t keeping; /* enum uw_keeping */
};

struct uw_worker {
	struct uw_hot hot;
	struct uw_rule_slot rules[UW_RULE_SLOTS];
	struct uw_page_slot pages[UW_PAGE_SLOTS];
	struct uw_call_slot calls[UW_CALL_SLOTS];
	struct uw_keeping_slot keeping[UW_KEEPING_SLOTS];
	struct uw_recent_slot recent[UW_RECENT_SLOTS];
	unsigned int n_recent;	  /* kept so far, also those that gave way */
	struct uw_page_slot last; /* executable, where an address was last found */
	struct uw_hollow hollow;
};

/* The captured bytes around sp. */
struct uw_near {
	uint64_t addr, room; /* words may begin in [addr, addr + room) */
	const uint8_t *bytes;
};

/* The part of a walk that changes with each hot frame, see hot.c. */
struct uw_run {
	uint64_t pc, sp, fp;
	uint64_t ra;   /* pc as it stood in memory or in lr */
	uint64_t mask; /* what of ra is the address */
	uint64_t back; /* lookup = pc - back */
	uint64_t above;
	struct uw_near near;
	struct uw_frame *frame; /* the next in out */
	struct uw_frame *end;	/* where no more may be written */
	int stop;
	uint32_t how; /* the frame at pc was found, as the last members of struct uw_frame say it */
	uint64_t join_sp; /* noting: below it no frame of the walk to be joined has its sp */
};

/* Those four bytes at once, in the order of the host's. */
static inline uint32_t uw_run_how(uint8_t stepper, uint8_t confidence, bool exact)
{
	_Static_assert(offsetof(struct uw_frame, confidence) ==
				       offsetof(struct uw_frame, stepper) + 1 &&
			       offsetof(struct uw_frame, exact) ==
				       offsetof(struct uw_frame, stepper) + 2 &&
			       offsetof(struct uw_frame, signal) ==
				       offsetof(struct uw_frame, stepper) + 3 &&
			       __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
		       "one word");
	return stepper | (uint32_t)confidence << 8 | (uint32_t)exact << 16;
}

struct uw_walking {
	struct uw_space *space;
	struct uw_worker *worker;
	const struct uw_thread *thread;
	struct uw_stack *out;
	uint64_t tag;		   /* of the space in keys of the worker's hot slots */
	uint64_t mask;		   /* a code address without authentication bits and tags */
	struct uw_machine machine; /* reads what was captured, then what files say */
	bool taken; /* machine.regs are the frame's; until then it is frame 0, and they are the thread's */
	size_t due; /* of frames from here on saved registers have not been read */
	/* Of the frame being left: */
	uint64_t pc, lookup, sp;
	bool exact;
	bool sp_low; /* sp is no more than the least it may be: a frame pointer led here */
	uint8_t stepper, confidence; /* how it was found */
	struct uw_mapping *mapping;
	struct uw_mapping *last; /* executable, where an address was found; NULL: none yet */
	/* Where the caller was looked for and not found. */
	uint64_t missing;
	bool has_missing;
	/* See uw_walk_cycle. */
	uint64_t mark_pc, mark_sp;
	size_t turns;
	struct uw_run run; /* of uw_hot_turns */
	/* Of uw_walk_noting: */
	struct uw_note *notes; /* beside out->frames, as long */
	struct uw_join join;
};

/* A step's outcome where the walk does not go on: an enum uw_stop below zero. */
#define UW_GO_ON  0
#define UW_JOINED 1 /* see uw_hot_run_noting */
static inline int uw_stopping(enum uw_stop stop)
{
	return -1 - (int)stop;
}

/*
 * w on the thread's innermost frame, but for w->run; UW_GO_ON, or why there is none to walk.
 * What out holds is the caller's to set.
 */
int uw_walk_begin(struct uw_walking *w, struct uw_space *space, struct uw_worker *worker,
		  const struct uw_thread *thread, struct uw_stack *out);

/*
 * One frame by whatever way there is: it is added to w->out, and w goes on to its caller.
 * UW_GO_ON or why it does not; *found, unless the walk ended before anybody was asked.
 */
struct uw_found;
int uw_walk_frame(struct uw_walking *w, struct uw_found *found);

/*
 * uw_walk that notes in w->notes what it goes by and ends where it comes upon w->join: true,
 * and out->stop is not set; w is what the caller lends, of which it fills in these two.
 */
bool uw_walk_noting(struct uw_walking *w, struct uw_worker *worker, const struct uw_job *job);

/* The executable mapping around addr; NULL: none. */
struct uw_mapping *uw_walk_code(struct uw_walking *w, uint64_t addr);

/* uw_object_rule through the worker's cache. */
int uw_walk_rule(struct uw_worker *worker, struct uw_object *object, uint64_t lookup, bool exact,
		 struct uw_rule *rule);
/* Keeps what that would find, err or rule, for it. */
void uw_walk_keep_rule(struct uw_worker *worker, const struct uw_object *object, uint64_t lookup,
		       bool exact, int err, const struct uw_rule *rule);

/* Most walks end before anybody but the hot loop asks for registers: they are copied late. */
static inline const struct uw_regs *uw_walk_regs(const struct uw_walking *w)
{
	return w->taken ? &w->machine.regs : &w->thread->regs;
}

static inline void uw_walk_take_regs(struct uw_walking *w)
{
	if (w->taken)
		return;
	w->machine.regs = w->thread->regs;
	w->taken = true;
}

/* A code address without authentication bits and tags. */
static inline uint64_t uw_walk_stripped(const struct uw_walking *w, uint64_t pc)
{
	return pc & w->mask;
}

/*
 * To be asked of every frame that does not lie above the one before it, which
 * each cycle has one of.  Brent: any cycle comes to hold a mark, however long it is.
 */
bool uw_walk_cycle(struct uw_walking *w, uint64_t pc, uint64_t sp);

/* The machine's last read failed, and the caller may be there. */
void uw_walk_note_missing(struct uw_walking *w);

/* A slot of a cache for what owner says of key; slots is a power of two. */
size_t uw_slot_of(uint64_t owner, uint64_t key, unsigned int slots);

#endif
