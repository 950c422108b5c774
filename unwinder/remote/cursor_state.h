/*
 * unwinder/remote/cursor_state.h: what a struct uw_cursor holds, and how its frame's rule is found.
 * Used by the cursor's files: cursor.c (begin, look at a frame), cursor_rule.c (find its rule),
 * cursor_step.c (step).
 */
#ifndef UNWINDER_REMOTE_CURSOR_STATE_H
#define UNWINDER_REMOTE_CURSOR_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unwinder/arch/arch.h"
#include "unwinder/cursor.h"
#include "unwinder/remote/target.h"
#include "unwinder/rule.h"
#include "unwinder/walk/space.h"
#include "unwinder/walk/step.h"
#include "unwinder/walk/walk.h"

#define UW_CURSOR_MAGIC 0x6f6666777363757fu

/* A flag beside enum uw_place: an expression computes the place or the value. */
#define UW_CURSOR_BY_EXPRESSION 0x80

/* The contents of a struct uw_cursor. */
struct __attribute__((may_alias)) uw_cursor_state {
	uint64_t magic;
	struct uw_target *target;
	void *ctx;
	struct uw_regs regs;
	uint64_t at[UW_REGS_MAX]; /* MEMORY: address; REGISTER: the innermost frame's */
	uint8_t place[UW_REGS_MAX];
	uint8_t stepper, confidence; /* how the frame was found */
	bool exact, sp_low;	     /* as in struct uw_walking */
	uint32_t stop;		     /* enum uw_stop of the last step */
	uint64_t stop_addr;
	uint64_t n; /* number of inner frames */
	struct uw_cycle cycle;
};

_Static_assert(sizeof(struct uw_cursor_state) <= sizeof(struct uw_cursor), "a cursor holds it");

/* Return the cursor's state, or NULL if it was not initialized. */
static inline struct uw_cursor_state *uw_cursor_state(struct uw_cursor *cursor)
{
	struct uw_cursor_state *s = (struct uw_cursor_state *)cursor->opaque;

	return s->magic == UW_CURSOR_MAGIC ? s : NULL;
}

/* Return the cursor's state for reading, or NULL if it was not initialized. */
static inline const struct uw_cursor_state *uw_cursor_look(const struct uw_cursor *cursor)
{
	const struct uw_cursor_state *s = (const struct uw_cursor_state *)cursor->opaque;

	return s->magic == UW_CURSOR_MAGIC ? s : NULL;
}

/* Return pc without authentication bits and tags. */
static inline uint64_t uw_cursor_stripped(const struct uw_cursor_state *s, uint64_t pc)
{
	const struct uw_target *t = s->target;

	/* Without a space, addresses have 48 bits unless the mask says otherwise. */
	return t->arch->strip(pc, t->code_mask,
			      t->space ? uw_space_top(t->space) : (uint64_t)1 << 48);
}

/* Return the frame's pc without authentication bits and tags. */
static inline uint64_t uw_cursor_pc(const struct uw_cursor_state *s)
{
	return uw_cursor_stripped(s, s->regs.value[s->target->arch->pc]);
}

/* Return the address to look the frame up by: the pc, or the return address - 1. */
static inline uint64_t uw_cursor_lookup(const struct uw_cursor_state *s)
{
	/*
	 * A call may be the last instruction of its function; the return address then belongs
	 * to the next one.
	 */
	return uw_cursor_pc(s) - !s->exact;
}

/* Return a machine with the frame's registers and the target's memory. */
static inline struct uw_machine uw_cursor_machine(const struct uw_cursor_state *s)
{
	return (struct uw_machine){ .arch = s->target->arch,
				    .regs = s->regs,
				    .read = uw_target_reader(s->target),
				    .ctx = s->ctx };
}

/* The owners of the bytes that a rule's expressions point to. */
struct uw_held {
	struct uw_proc_info info;
	struct uw_dynamic *dynamic;
};

/*
 * Find the rule of the frame without the address space: in the cache, in the code that the
 * target registered, by the find_proc_info accessor, and by the code itself. Return 0, 1 for
 * the outermost frame, -ENOENT, or the code of find_proc_info. The caller releases *held after
 * it has used the rule.
 */
int uw_cursor_rule_here(const struct uw_cursor_state *s, struct uw_rule *rule, uint64_t *bias,
			struct uw_held *held);

/* Release what a rule borrowed from. */
void uw_cursor_release(const struct uw_cursor_state *s, struct uw_held *held);

/*
 * Find the rule of the frame in the address space: that of the object, of registered code, or of
 * a signal trampoline. The caller holds the target's lock.
 */
int uw_cursor_rule_in_space(const struct uw_cursor_state *s, struct uw_rule *rule, uint64_t *bias);

/* Read the code around pc: as many bytes as can be read, up to UW_CODE_BEFORE and UW_CODE_AFTER. */
void uw_cursor_code(const struct uw_machine *machine, uint64_t pc,
		    uint8_t bytes[UW_CODE_BEFORE + UW_CODE_AFTER], struct uw_code *code);

#endif
