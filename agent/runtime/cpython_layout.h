/*
 * agent/runtime/cpython_layout.h: where CPython has what, version by version.
 *
 * A new version is a row in the table of cpython_layout.c. From 3.13 on CPython says the offsets itself
 * (_Py_DebugOffsets, at the beginning of _PyRuntime); the rows only say what they do not.
 */
#ifndef AGENT_RUNTIME_CPYTHON_LAYOUT_H
#define AGENT_RUNTIME_CPYTHON_LAYOUT_H

#include "schema/plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CPYTHON_NONE UINT16_MAX /* there is no such field */

/* How native frames of the interpreter's loop belong to Python's frames. */
enum cpython_entry {
	/* Each call of the loop runs one frame, a PyFrameObject (to 3.10). */
	CPYTHON_EACH,
	/* Each has a _PyCFrame on the stack, and its outermost frame is marked (3.11). */
	CPYTHON_CFRAME,
	/* Each has a frame of its own on the stack, behind its outermost frame (from 3.12). */
	CPYTHON_SHIM,
};

/* All offsets are in bytes. */
struct cpython_layout {
	uint16_t version; /* 0x030b for 3.11 */
	enum cpython_entry entry;
	/* Of _PyRuntime: the state of the thread that has the GIL, or NONE; the list of interpreters. */
	uint16_t current, interpreters;
	uint16_t threads;		 /* of an interpreter: the list of its threads */
	uint16_t next_thread, thread_id; /* of a thread; the id is pthread_self() */
	/* Of a thread: its frame, or its _PyCFrame, which has the frame at cframe_frame (else NONE). */
	uint16_t frame, cframe_frame;
	uint16_t f_code, f_previous,
		f_instr;	   /* of a frame; f_instr is a pointer, or a number (EACH) */
	uint16_t f_owner, f_entry; /* a byte each, or NONE */
	uint16_t lasti_unit;	   /* bytes that the number counts, if it is one */
	/* Of a code object. name is qualname, if there is one. lines: the line table, a bytes object. */
	uint16_t c_file, c_name, c_first_line, c_lines, c_code;
	/* The words of a code object that tell whether it is still the same one: c_check to its end. */
	uint16_t c_check, c_check_size;
	uint16_t str_ascii, str_compact; /* where the characters of a str begin */
	uint16_t str_kind_bit;		 /* in its state */
	uint8_t code_tags;		 /* bits of f_code that are no address */
	uint64_t
		code_type; /* what code objects have as their type, in this process; 0: not known */
};

#define CPYTHON_STR_HEAD    36u /* bytes of a str that have its length, at 16, and its state, at 32 */
#define CPYTHON_CHECK_MAX   32
#define CPYTHON_OFFSETS_MAX 1024 /* bytes of _Py_DebugOffsets that are read */

/* Return the row for a version; NULL: it is not known. */
const struct cpython_layout *cpython_layout_of(uint16_t version);
/* Return whether the version says its offsets itself. */
bool cpython_has_offsets(uint16_t version);
/*
 * Fill in a layout from the first size bytes of _PyRuntime, and the row for its version. -ENOTSUP: of a
 * version that is not known, or without the GIL; -EBADMSG: impossible.
 */
int cpython_layout_read(const uint8_t *bytes, size_t size, struct cpython_layout *out);

/* The address under which the slices have the address of the sampled thread's state. */
#define CPYTHON_MARK 1

/* Make the plan that copies the frames of a thread. runtime is the address of _PyRuntime less the base. */
void cpython_plan(const struct cpython_layout *layout, uint64_t runtime, struct plan *out);

#endif
