/* unwinder/rule/object.h: what the parts of the library look up in an object. */
#ifndef UNWINDER_RULE_OBJECT_H
#define UNWINDER_RULE_OBJECT_H

#include <stdbool.h>
#include <stdint.h>

#include "unwinder/arch/arch.h"
#include "unwinder/cfi/ehframe.h"
#include "unwinder/rule.h"
#include "unwinder/table/row.h"
#include "unwinder/table/table.h"
#include "unwinder/unwinder.h"

struct uw_elf;

/*
 * Return the object's number. No two objects of this process ever have the same, so caches use it
 * as a key even after objects are freed.
 */
uint64_t uw_object_id(const struct uw_object *object);

/*
 * Look up the rule at lookup, without reading process memory. exact means that lookup is the pc
 * itself, not a return address minus 1. -ENOENT: there is no unwind information and the code is not
 * recognized. -EBADMSG, -ENOTSUP: there is unwind information, but it cannot be used.
 */
int uw_object_rule(struct uw_object *object, uint64_t lookup, bool exact, struct uw_rule *out);

/*
 * Do the same without the compiled table. The table has the same rules, for the addresses that it
 * covers.
 */
int uw_object_interpret(struct uw_object *object, uint64_t lookup, bool exact, struct uw_rule *out);

/*
 * Return whether a function begins at vaddr, with no end of another function and no call just
 * before it. A thread that returns to such an address was not called from there (makecontext). This
 * is checked for every return address, so only aligned entries are considered, to keep it cheap.
 */
#define UW_ENTRY_ALIGN 16
bool uw_object_begins(struct uw_object *object, uint64_t vaddr);

/*
 * Return whether unwind information covers vaddr itself. Padding after a function does not count.
 */
bool uw_object_covers(struct uw_object *object, uint64_t vaddr);

/* Return the compiled table, borrowed for the object's life. NULL: not compiled yet. */
const struct uw_table *uw_object_table(const struct uw_object *object);

/*
 * Look up the rule at lookup as a packed rule (schema/table_blob.h), and the stepper that it
 * belongs to. The rule's kind is TABLE_SLOW if no packed rule can express the rule. Errors are
 * those of uw_object_rule.
 */
int uw_object_packed(struct uw_object *object, uint64_t lookup, bool exact, uint64_t *packed,
		     uint8_t *stepper);

/* Return whether the file has Go's function table. */
bool uw_object_is_go(const struct uw_object *object);

/* Where a packed rule was found. */
enum uw_rule_origin {
	UW_ORIGIN_INSIDE, /* in a row of the table that surely covers this code */
	UW_ORIGIN_STORED, /* in a row that may extend over a gap, or in a cache */
	UW_ORIGIN_MADE,	  /* made now from the unwind information, or there is no rule */
};

/*
 * The two steps of uw_object_packed, for callers with a cache between them. First look into the
 * compiled table: return the packed rule of the row at lookup, TABLE_NONE if there is none. *inside
 * says whether the row surely covers lookup; if so, this is the rule.
 */
uint64_t uw_object_look(const struct uw_object *object, uint64_t lookup, bool exact, bool *inside);

/*
 * Then, if the row does not surely cover lookup: turn *packed from what uw_object_look returned
 * into the rule, and return where it is from. With UW_ORIGIN_MADE, *rule is what uw_object_rule
 * would give, unless the call failed.
 */
int uw_object_packed_outside(struct uw_object *object, uint64_t lookup, bool exact,
			     uint64_t *packed, uint8_t *stepper, struct uw_rule *rule,
			     enum uw_rule_origin *from);

/* Return the open ELF file, borrowed for the object's life. */
const struct uw_elf *uw_object_elf(const struct uw_object *object);

/* Return whether the code at pc is a PLT entry or a similar stub, and its rule in *out. */
bool uw_object_stub(const struct uw_object *object, uint64_t pc, struct uw_rule *out);

/*
 * Return whether the code at pc is a signal trampoline, and its rule in *rule. exact: pc may also be at its system call, or
 * behind it.
 */
bool uw_object_trampoline(const struct uw_object *object, uint64_t pc, bool exact,
			  struct uw_rule *rule);

/* Read the code bytes around vaddr, up to the ends of its segment. -EFAULT: vaddr lies outside. */
int uw_object_code(const struct uw_object *object, uint64_t vaddr,
		   uint8_t buffer[UW_CODE_BEFORE + UW_CODE_AFTER], struct uw_code *out);

/*
 * Return the vaddr of a mapping's first byte, by the segment that the mapping shows most of. With
 * exec, only executable segments are considered first.
 */
int uw_object_map(const struct uw_object *object, uint64_t off, uint64_t size, bool exec,
		  uint64_t *vaddr);

/*
 * Return the call-frame section i (enum uw_frames_kind), for tests and tables. NULL: there is no
 * such i.
 */
struct uw_frames *uw_object_frames(struct uw_object *object, unsigned int i);

#endif
