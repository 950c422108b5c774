/* unwinder/object.h: what the walk asks of an object. */
#ifndef UNWINDER_OBJECT_H
#define UNWINDER_OBJECT_H

#include <stdbool.h>
#include <stdint.h>

#include "unwinder/arch.h"
#include "unwinder/ehframe.h"
#include "unwinder/row.h"
#include "unwinder/rule.h"
#include "unwinder/table.h"
#include "unwinder/unwinder.h"

struct uw_elf;

/* Never the same for two objects of this process, dead ones included: keys of caches. */
uint64_t uw_object_id(const struct uw_object *object);

/*
 * The rule at lookup; exact: it is the pc itself and no return address less one.
 * Reads no process memory.  -ENOENT no unwind information and no code that is
 * known by its bytes; -EBADMSG, -ENOTSUP what there is cannot be used.
 */
int uw_object_rule(struct uw_object *object, uint64_t lookup, bool exact, struct uw_rule *out);

/* The same without the compiled table, which gives the same rules wherever it has one. */
int uw_object_interpret(struct uw_object *object, uint64_t lookup, bool exact, struct uw_rule *out);

/*
 * Whether a function begins at vaddr, and below it there is no other's end and no
 * call: what returns there was not called from there (makecontext).  Asked of every
 * return address, so it is answered for aligned entries only.
 */
#define UW_ENTRY_ALIGN 16
bool uw_object_begins(struct uw_object *object, uint64_t vaddr);

/* Whether unwind information covers vaddr, not merely that of what ends before it. */
bool uw_object_covers(struct uw_object *object, uint64_t vaddr);

/* NULL: not compiled yet.  Borrowed for the object's life. */
const struct uw_table *uw_object_table(const struct uw_object *object);

/*
 * The rule at lookup as a word (schema/table.h) and who says so; kind TABLE_SLOW
 * where no word can say it.  Fails as uw_object_rule does.
 */
int uw_object_word(struct uw_object *object, uint64_t lookup, bool exact, uint64_t *word,
		   uint8_t *stepper);

enum uw_word_from {
	UW_WORD_INSIDE, /* of a row of the table, whose code surely goes on there */
	UW_WORD_KEPT,	/* of a row that may reach across a gap, or made before */
	UW_WORD_MADE,	/* the rule was worked out just now, or found to be none */
};

/*
 * The same, and where the word is from. Where it was made, *rule has what uw_object_rule would
 * give, unless this failed.
 */
int uw_object_word_made(struct uw_object *object, uint64_t lookup, bool exact, uint64_t *word,
			uint8_t *stepper, struct uw_rule *rule, enum uw_word_from *from);

/* Borrowed for the object's life. */
const struct uw_elf *uw_object_elf(const struct uw_object *object);

/* Whether the code at pc is a PLT entry or a stub like it, and the rule there. */
bool uw_object_stub(const struct uw_object *object, uint64_t pc, struct uw_rule *out);

/* Code bytes around vaddr, as far as its segment reaches; -EFAULT outside. */
int uw_object_code(const struct uw_object *object, uint64_t vaddr,
		   uint8_t buffer[UW_CODE_BEFORE + UW_CODE_AFTER], struct uw_code *out);

/* The vaddr of a mapping's first byte, by the segment it shows most of; exec: prefer code. */
int uw_object_map(const struct uw_object *object, uint64_t off, uint64_t size, bool exec,
		  uint64_t *vaddr);

/* For tests and tables; i: enum uw_frames_kind, NULL beyond. */
struct uw_frames *uw_object_frames(struct uw_object *object, unsigned int i);

#endif
