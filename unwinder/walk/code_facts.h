/*
 * unwinder/walk/code_facts.h: a worker's cache of what is known about places in objects' code.
 *
 * Where code is mapped belongs to a space, but what the code is belongs to the object: the hundred
 * short processes of a compilation share it. So the cache is asked when a space meets a pc for the
 * first time, and by the steppers. All that a walk finds out about one pc is in one slot.
 *
 * A worker is used by one thread at a time, and so is its cache. Nothing needs to be invalidated:
 * an object's number is never used twice, and the code of an open object does not change.
 */
#ifndef UNWINDER_WALK_CODE_FACTS_H
#define UNWINDER_WALK_CODE_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unwinder/arch/arch.h"
#include "unwinder/rule/object.h"
#include "unwinder/walk/prologue.h"

/* libLLVM, libclang and rustc's driver are sampled at about 10,000 addresses each. */
#define UW_CODE_FACTS 16384

/* What is known about a pc: each member from call on is valid if its bit is set in known. */
struct uw_code_fact {
	uint64_t object;     /* the object's number; 0: the slot is empty */
	uint64_t pc;	     /* vaddr: a return address or, if exact, where a thread was */
	uint64_t packed;     /* RULE, without an error: the packed rule, see uw_object_packed */
	struct uw_call call; /* CALL: the call that ends at pc */
	int16_t err;	     /* RULE: 0, or why there is no rule */
	bool exact;
	uint8_t known;	 /* UW_KNOWS_… */
	uint8_t stepper; /* RULE, without an error */
	uint8_t keeping; /* KEEPING: enum uw_keeping */
	bool begins;	 /* BEGINS: uw_object_begins */
	bool child;	 /* CHILD: uw_child_may_begin */
};
_Static_assert(sizeof(struct uw_code_fact) == 40, "no padding");

enum {
	UW_KNOWS_RULE = 1,
	UW_KNOWS_CALL = 2,
	UW_KNOWS_KEEPING = 4,
	UW_KNOWS_BEGINS = 8,
	UW_KNOWS_CHILD = 16,
};

struct uw_code_facts { /* all zero: empty */
	struct uw_code_fact slots[UW_CODE_FACTS];
};

/*
 * Look up a packed rule as uw_object_packed does, and return where it is from. A row of the table
 * that surely covers lookup is as fast as the cache, and is used first. With UW_ORIGIN_MADE, *rule
 * is what uw_object_rule would give, unless the call failed.
 */
int uw_facts_packed(struct uw_code_facts *facts, struct uw_object *object, uint64_t lookup,
		    bool exact, uint64_t *packed, uint8_t *stepper, struct uw_rule *rule,
		    enum uw_rule_origin *from);

/*
 * Look up a rule as uw_object_rule does. That there is none is cached; a rule is not, for few
 * frames need more of it than the packed form has.
 */
int uw_facts_rule(struct uw_code_facts *facts, struct uw_object *object, uint64_t lookup,
		  bool exact, struct uw_rule *rule);

/*
 * Find the call that ends at the return address pc. A direct call of a PLT entry counts as an
 * indirect call. An error, such as -EFAULT, means that the code cannot be read; it is not cached.
 */
int uw_facts_call(struct uw_code_facts *facts, struct uw_object *object, uint64_t pc,
		  struct uw_call *out);

/* Return what the code at pc does with the frame pointer, see uw_beginnings_keep. */
enum uw_keeping uw_facts_keeping(struct uw_code_facts *facts, struct uw_object *object, uint64_t pc,
				 bool exact);

/* Return whether a function begins at the return address pc, see uw_object_begins. */
bool uw_facts_begins(struct uw_code_facts *facts, struct uw_object *object, uint64_t pc);

/* Return whether a new thread may be at pc, see uw_child_may_begin. */
bool uw_facts_child(struct uw_code_facts *facts, struct uw_object *object, uint64_t pc);

/*
 * Return the slot of a cache for (owner, key); slots must be a power of two. Fibonacci hashing: the
 * high bits depend on all bits of the key.
 */
static inline size_t uw_slot_of(uint64_t owner, uint64_t key, unsigned int slots)
{
	uint64_t hash = (key ^ owner << 40) * 0x9e3779b97f4a7c15u;

	return (size_t)(hash >> 32) & (slots - 1);
}

#endif
