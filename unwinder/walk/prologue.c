/*
 * unwinder/walk/prologue.c: finds where the function around a pc may begin, for code without rules.
 */
#include "unwinder/walk/prologue.h"

#include <errno.h>

#include "unwinder/arch/arch.h"
#include "unwinder/rule/object.h"

/* How much code is read at first, at least. */
#define NEAR_MIN 1024

/* Assemblers align functions to this when they are told to, which is usual. */
#define ALIGN 16

static const struct uw_arch *arch_of(const struct uw_beginnings *b)
{
	return uw_arch_of(uw_object_machine(b->object));
}

/* Read the size bytes below the pc, or as many as can be read. */
static void read_code(struct uw_beginnings *b)
{
	uint64_t size = b->size;

	/* The segment may begin inside these bytes. */
	while (b->size && uw_object_read(b->object, b->pc - b->size, b->code, b->size))
		b->size /= 2;
	if (b->size < size)
		b->more = 0;
}

void uw_beginnings_init(struct uw_beginnings *b, struct uw_object *object, uint64_t pc)
{
	b->object = object;
	b->pc = pc;
	b->length = pc % ALIGN;
	b->size = !arch_of(b)->begins ? 0 : pc < UW_PROLOGUE_BACK ? pc : UW_PROLOGUE_BACK;
	b->more = 0;
	/* Most functions begin close to the pc: read a quarter first. */
	if (b->size / 4 >= NEAR_MIN) {
		b->more = b->size;
		b->size /= 4;
	}
	read_code(b);
}

/* Read the rest of the code if the next candidate needs it. */
static void widen(struct uw_beginnings *b)
{
	if (!b->more || b->length + UW_BEGINS_BACK <= b->size)
		return;
	b->size = b->more;
	b->more = 0;
	read_code(b);
}

int uw_beginnings_next(struct uw_beginnings *b, struct uw_rule *out)
{
	const struct uw_arch *arch = arch_of(b);

	for (; widen(b), b->length < b->size; b->length += ALIGN) {
		const uint8_t *start = b->code + (b->size - b->length);
		uint64_t length = b->length;

		if (!arch->begins(b->code, start))
			continue;
		/* Code that has rules belongs to another function. */
		if (uw_object_rule(b->object, b->pc - length, true, out) != -ENOENT)
			break;
		b->length += ALIGN;
		*out = (struct uw_rule){ .start = b->pc - length,
					 .end = b->pc + 1,
					 .stepper = UW_STEPPER_PROLOGUE };
		return arch->prologue(start, length < UW_PROLOGUE_MAX ? length : UW_PROLOGUE_MAX,
				      out)
			       ? 0
			       : -EAGAIN;
	}
	b->length = b->size;
	return -ENOENT;
}

enum uw_keeping uw_beginnings_keep(struct uw_object *object, uint64_t pc)
{
	const struct uw_arch *arch = uw_arch_of(uw_object_machine(object));
	struct uw_beginnings b;
	struct uw_rule rule;
	int err = 0;

	uw_beginnings_init(&b, object, pc);
	for (unsigned int i = 0; i < UW_PROLOGUE_TRIES && err != -ENOENT; i++) {
		err = uw_beginnings_next(&b, &rule);
		if (!err && (rule.cfa_off > 8 || rule.cfa_reg == arch->fp))
			return rule.cfa_reg == arch->fp ? UW_KEEPING_FP : UW_KEEPING_NOT;
	}
	return UW_KEEPING_UNKNOWN;
}

bool uw_beginnings_taken(struct uw_object *object, uint64_t pc, const struct uw_regs *regs,
			 uint64_t cfa, struct uw_rule *out)
{
	struct uw_beginnings b;
	int err = 0;

	uw_beginnings_init(&b, object, pc);
	for (unsigned int i = 0; i < UW_PROLOGUE_TRIES && err != -ENOENT; i++) {
		err = uw_beginnings_next(&b, out);
		if (!err && regs->value[out->cfa_reg] + (uint64_t)out->cfa_off == cfa)
			return true;
	}
	return false;
}
