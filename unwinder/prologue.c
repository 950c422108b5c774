#include "unwinder/prologue.h"

#include <errno.h>

#include "unwinder/arch.h"
#include "unwinder/object.h"

/* Assemblers begin functions there when they are told to, and are. */
#define ALIGN 16

static const struct uw_arch *arch_of(const struct uw_beginnings *b)
{
	return uw_arch_of(uw_object_machine(b->object));
}

void uw_beginnings_init(struct uw_beginnings *b, struct uw_object *object, uint64_t pc)
{
	b->object = object;
	b->pc = pc;
	b->length = pc % ALIGN;
	b->size = !arch_of(b)->begins ? 0 : pc < UW_PROLOGUE_BACK ? pc : UW_PROLOGUE_BACK;
	/* Its segment may begin later. */
	while (b->size && uw_object_read(object, pc - b->size, b->code, b->size))
		b->size /= 2;
}

int uw_beginnings_next(struct uw_beginnings *b, struct uw_rule *out)
{
	const struct uw_arch *arch = arch_of(b);

	for (; b->length < b->size; b->length += ALIGN) {
		const uint8_t *start = b->code + (b->size - b->length);
		uint64_t length = b->length;

		if (!arch->begins(b->code, start))
			continue;
		/* What has rules is another function. */
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
