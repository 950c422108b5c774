/*
 * unwinder/gopclntab.h: call-frame information out of Go's own table of functions.
 *
 * Go's linker writes no .eh_frame, and what it writes as .debug_frame goes when a
 * binary is stripped; the table by which Go walks its own stacks stays
 * (schema/gopclntab.h).  It says how far the stack pointer has come down at each pc,
 * which is all that Go's .debug_frame says, and what that does not: which functions
 * nobody called, and which go on on another stack, so that no caller is above them.
 */
#ifndef UNWINDER_GOPCLNTAB_H
#define UNWINDER_GOPCLNTAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct uw_object;

bool uw_gopclntab_has(const struct uw_object *object);

/*
 * A section as .debug_frame is, for the caller to free.  -ENOENT there is no such table;
 * -EBADMSG, -ENOTSUP it is damaged or not of a kind that is known; -ENOMEM.
 */
int uw_gopclntab_frames(const struct uw_object *object, uint8_t **out, size_t *size);

#endif
