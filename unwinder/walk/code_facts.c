/* unwinder/walk/code_facts.c: a worker's cache of what is known about places in objects' code. */
#include "unwinder/walk/code_facts.h"

#include <errno.h>

#include "unwinder/table/row.h"
#include "unwinder/walk/child.h"

/* Return the slot of a pc, emptied if it held another. */
static struct uw_code_fact *fact_at(struct uw_code_facts *facts, const struct uw_object *object,
				    uint64_t pc, bool exact)
{
	uint64_t id = uw_object_id(object);
	struct uw_code_fact *fact = &facts->slots[uw_slot_of(id, pc << 1 | exact, UW_CODE_FACTS)];

	if (fact->object != id || fact->pc != pc || fact->exact != exact)
		*fact = (struct uw_code_fact){ .object = id, .pc = pc, .exact = exact };
	return fact;
}

/* Do the same for the pc that a rule is looked up for. */
static struct uw_code_fact *fact_of(struct uw_code_facts *facts, const struct uw_object *object,
				    uint64_t lookup, bool exact)
{
	return fact_at(facts, object, exact ? lookup : lookup + 1, exact);
}

/* Cache an answer about the rule, unless it may not last. */
static void set_rule(struct uw_code_fact *fact, int err, uint64_t packed, uint8_t stepper)
{
	if (err == -ENOMEM)
		return;
	fact->err = (int16_t)err;
	fact->packed = packed;
	fact->stepper = stepper;
	fact->known |= UW_KNOWS_RULE;
}

int uw_facts_packed(struct uw_code_facts *facts, struct uw_object *object, uint64_t lookup,
		    bool exact, uint64_t *packed, uint8_t *stepper, struct uw_rule *rule,
		    enum uw_rule_origin *from)
{
	struct uw_code_fact *fact;
	bool inside;
	int err;

	*packed = uw_object_look(object, lookup, exact, &inside);
	*stepper = UW_STEPPER_CFI;
	*from = UW_ORIGIN_INSIDE;
	if (inside)
		return 0;
	fact = fact_of(facts, object, lookup, exact);
	if (fact->known & UW_KNOWS_RULE) {
		*packed = fact->packed;
		*stepper = fact->stepper;
		*from = UW_ORIGIN_STORED;
		return fact->err;
	}
	err = uw_object_packed_outside(object, lookup, exact, packed, stepper, rule, from);
	set_rule(fact, err, *packed, *stepper);
	return err;
}

int uw_facts_rule(struct uw_code_facts *facts, struct uw_object *object, uint64_t lookup,
		  bool exact, struct uw_rule *rule)
{
	struct uw_code_fact *fact = fact_of(facts, object, lookup, exact);
	int err;

	if (fact->known & UW_KNOWS_RULE && fact->err)
		return fact->err;
	err = uw_object_rule(object, lookup, exact, rule);
	if (err)
		set_rule(fact, err, 0, UW_STEPPER_CFI);
	return err;
}

int uw_facts_call(struct uw_code_facts *facts, struct uw_object *object, uint64_t pc,
		  struct uw_call *out)
{
	struct uw_code_fact *fact = fact_at(facts, object, pc, false);
	uint8_t buffer[UW_CODE_BEFORE + UW_CODE_AFTER];
	struct uw_rule rule;
	struct uw_code code;
	int err;

	if (!(fact->known & UW_KNOWS_CALL)) {
		err = uw_object_code(object, pc, buffer, &code);
		if (err)
			return err;
		fact->call = uw_arch_of(uw_object_machine(object))->after_call(&code);
		/* The entry is recognised by its code, whether it has CFI or not. */
		if (fact->call.kind == UW_CALL_DIRECT &&
		    uw_object_stub(object, pc + (uint64_t)(int64_t)fact->call.target, &rule))
			fact->call.kind = UW_CALL_INDIRECT;
		fact->known |= UW_KNOWS_CALL;
	}
	*out = fact->call;
	return 0;
}

enum uw_keeping uw_facts_keeping(struct uw_code_facts *facts, struct uw_object *object, uint64_t pc,
				 bool exact)
{
	struct uw_code_fact *fact = fact_at(facts, object, pc, exact);

	if (!(fact->known & UW_KNOWS_KEEPING)) {
		fact->keeping = (uint8_t)uw_beginnings_keep(object, pc);
		fact->known |= UW_KNOWS_KEEPING;
	}
	return fact->keeping;
}

bool uw_facts_begins(struct uw_code_facts *facts, struct uw_object *object, uint64_t pc)
{
	struct uw_code_fact *fact;

	if (pc % UW_ENTRY_ALIGN != 0) /* most addresses, for which no slot is needed */
		return false;
	fact = fact_at(facts, object, pc, false);
	if (!(fact->known & UW_KNOWS_BEGINS)) {
		fact->begins = uw_object_begins(object, pc);
		fact->known |= UW_KNOWS_BEGINS;
	}
	return fact->begins;
}

bool uw_facts_child(struct uw_code_facts *facts, struct uw_object *object, uint64_t pc)
{
	struct uw_code_fact *fact = fact_at(facts, object, pc, true);

	if (!(fact->known & UW_KNOWS_CHILD)) {
		fact->child = uw_child_may_begin(object, pc);
		fact->known |= UW_KNOWS_CHILD;
	}
	return fact->child;
}
