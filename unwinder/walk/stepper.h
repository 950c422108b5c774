/*
 * unwinder/walk/stepper.h: finds a frame's caller with steppers, in the order of their priorities.
 *
 * A space's group is the list of its steppers. A space without a group has the built-in ones.
 * uw_hot_run runs before all steppers, for frames that the table or cfi stepper would handle, if no
 * other stepper comes before these.
 */
#ifndef UNWINDER_WALK_STEPPER_H
#define UNWINDER_WALK_STEPPER_H

#include <stdbool.h>
#include <stdint.h>

#include "unwinder/rule.h"
#include "unwinder/unwinder.h"
#include "unwinder/walk/prologue.h"

struct uw_walking;
struct uw_machine;

/* A rule that a step applied. */
struct uw_applied {
	bool is; /* the step applied a rule */
	struct uw_rule rule;
	uint64_t bias; /* what DW_OP_addr in the rule's expressions counts from */
};

/* The result of one step. */
struct uw_found {
	/* NULL, or where the step stores its rule if it applies one; set by the caller */
	struct uw_applied *applied;
	uint8_t stepper;	 /* the stepper that answered last */
	uint8_t confidence;	 /* enum uw_confidence */
	bool signal;		 /* the frame is a signal trampoline */
	uint64_t cfa;		 /* 0: not known */
	struct uw_save saves[3]; /* set by a user's stepper, see struct uw_query */
};

/*
 * Find the caller of the frame in w: call one stepper after another until one knows it. Return
 * UW_GO_ON, or why the walk ends there. *found is set in both cases, but for applied.
 */
int uw_stepper_step(struct uw_walking *w, struct uw_found *found);

/*
 * Return whether code at pc that no object has is a signal trampoline, and its rule. It is
 * recognized by its captured bytes (an emulator's code, for example), or, in a vDSO that cannot be
 * read, because it is returned to.
 */
bool uw_stepper_trampoline(struct uw_space *space, struct uw_machine *machine, uint64_t pc,
			   bool exact, struct uw_rule *rule);

/*
 * Look up the rule at lookup in what the process registered. *bias is what DW_OP_addr counts from.
 * For an alias, the rule is that of the code that it is a copy of. -ENOENT: nothing was registered
 * for lookup. -EBADMSG: what was registered cannot be used.
 */
int uw_stepper_dynamic(struct uw_space *space, uint64_t lookup, bool exact, struct uw_rule *rule,
		       uint64_t *bias);

/*
 * Return what code without rules, at w->pc or at another address, does with the frame pointer. On
 * aarch64, by the procedure call standard, all functions that call others use one.
 */
enum uw_keeping uw_stepper_keeping(struct uw_walking *w, struct uw_object *object, uint64_t vaddr,
				   bool exact);

/*
 * Return whether something may come before the built-in stepper of this priority at lookup: a
 * user's stepper or choice function, or the built-in stepper or one before it is off. Then the hot
 * loop must not run ahead of the steppers.
 */
bool uw_stepper_before(const struct uw_steppers *steppers, uint64_t lookup, uint32_t priority);

/* Return whether the built-in stepper is on. */
bool uw_stepper_is_on(const struct uw_steppers *steppers, enum uw_stepper stepper);

/* Call the user's stepper with this id. NOT_ME: there is none. */
enum uw_answer uw_stepper_ask(const struct uw_steppers *steppers, uint8_t id,
			      struct uw_query *query);

#endif
