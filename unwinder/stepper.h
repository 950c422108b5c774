/*
 * unwinder/stepper.h: who is asked for a frame's caller, and in which order.
 *
 * The group of a space is the table of its steppers; a space without one has the
 * built-in ones.  uw_hot_run goes ahead of all of them for frames that the table or
 * the interpreter would take, wherever nobody else is to be asked before these.
 */
#ifndef UNWINDER_STEPPER_H
#define UNWINDER_STEPPER_H

#include <stdbool.h>
#include <stdint.h>

#include "unwinder/prologue.h"
#include "unwinder/unwinder.h"

struct uw_walking;
struct uw_arch;
struct uw_machine;
struct uw_rule;

struct uw_found {		 /* a frame left, or not */
	uint8_t stepper;	 /* who answered last */
	uint8_t confidence;	 /* enum uw_confidence */
	bool signal;		 /* the frame is a signal trampoline */
	uint64_t cfa;		 /* 0: not known */
	struct uw_save saves[3]; /* as the user's stepper says, see struct uw_query */
};

/*
 * From the frame in w to its caller's registers: asks one stepper after another until
 * one knows.  UW_GO_ON or why the walk ends there; *found in either case.
 */
int uw_stepper_step(struct uw_walking *w, struct uw_found *found);

/*
 * Where sp is not surely the frame's, as after a frame pointer led to it on machines
 * whose frame records lie anywhere in the frame: counts the CFA from the frame pointer
 * instead, if the rule says where the record is.  False: the rule is as it was.
 */
bool uw_stepper_from_record(const struct uw_arch *arch, struct uw_rule *rule);

/*
 * Whether code that no object has, at pc, is a signal's trampoline: by the bytes that were
 * captured, as of an emulator, or, in a vDSO that is not to be had, because it was returned to.
 */
bool uw_stepper_trampoline(struct uw_space *space, struct uw_machine *machine, uint64_t pc,
			   bool exact, struct uw_rule *rule);

/*
 * The rule at lookup by what the process registered, and what DW_OP_addr counts from; an alias's
 * is that of the code it is a copy of.  -ENOENT nothing was; -EBADMSG it is of no use.
 */
int uw_stepper_dynamic(struct uw_space *space, uint64_t lookup, bool exact, struct uw_rule *rule,
		       uint64_t *bias);

/*
 * What code without rules, at w->pc or another pc as it stands, does with the frame pointer. On
 * aarch64 the procedure call standard has it that all keep one which call others.
 */
enum uw_keeping uw_stepper_keeping(struct uw_walking *w, struct uw_object *object, uint64_t vaddr);

/*
 * Whether one of the user's steppers is asked about lookup before the built-in one of
 * this priority, or that one or any before it is switched off: then nothing may go
 * ahead of them all.
 */
bool uw_stepper_before(const struct uw_steppers *steppers, uint64_t lookup, uint32_t priority);

/* Is the built-in stepper asked here? */
bool uw_stepper_is_on(const struct uw_steppers *steppers, enum uw_stepper stepper);

/* Asks the user's stepper of this id; NOT_ME where there is none. */
enum uw_answer uw_stepper_ask(const struct uw_steppers *steppers, uint8_t id,
			      struct uw_query *query);

#endif
