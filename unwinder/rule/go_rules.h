/*
 * unwinder/rule/go_rules.h: makes call-frame information from Go's own function table.
 *
 * Go's linker writes no .eh_frame, and its .debug_frame is lost when a binary is stripped. The
 * table that the Go runtime walks its own stacks with stays (base/pclntab.h). For each pc
 * it says how far the stack pointer has come down, which is all that Go's .debug_frame says. It
 * also says what .debug_frame does not: which functions have no caller, and which ones continue
 * on another stack, so that no caller is above them.
 */
#ifndef UNWINDER_RULE_GO_RULES_H
#define UNWINDER_RULE_GO_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct uw_elf;
struct uw_object;

/* Return whether a file has a section that can hold the table. Ask an object instead (uw_object_is_go). */
bool uw_gopclntab_is_in(const struct uw_elf *elf);

/*
 * Make a section in the format of .debug_frame, which the caller frees. -ENOENT the file has no
 * table; -EBADMSG the table is damaged; -ENOTSUP it is of an unknown kind; -ENOMEM.
 */
int uw_gopclntab_frames(const struct uw_object *object, uint8_t **out, size_t *size);

#endif
