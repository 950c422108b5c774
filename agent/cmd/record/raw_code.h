/*
 * agent/cmd/record/raw_code.h: notes which code of large files walks will read, so that a capture stores it.
 *
 * A capture stores the code of small files only (SYM_CODE_MAX). Walks read code where there is no unwind information: the
 * caller of generated code is believed if a call ends at the return address, and how a function begins tells whether it
 * has a frame. Without that code a walk of the capture on another machine would end there.
 */
#ifndef AGENT_CMD_RECORD_RAW_CODE_H
#define AGENT_CMD_RECORD_RAW_CODE_H

#include "agent/event.h"
#include "agent/process/process.h"
#include "symbolizer/symbolizer.h"

struct raw_code;

int raw_code_new(struct raw_code **out);   /* 0 or -ENOMEM */
void raw_code_free(struct raw_code *code); /* NULL is fine */

/* Note the code that a walk of this sample of the thread may read. A lack of memory costs only that code. */
void raw_code_sample(struct raw_code *code, const struct thread *thread,
		     const struct event_sample *sample);

/* Note for a module what is noted for another one, because both have the same file. */
void raw_code_join(struct raw_code *code, uint32_t module, uint32_t other);

/*
 * Return the noted parts of a module's file, sorted and apart, and their number in *n. object: the module's, which tells
 * where code has no unwind information; NULL: unknown. The caller frees them. NULL: there are none, or no memory.
 */
struct sym_part *raw_code_parts(const struct raw_code *code, uint32_t module,
				struct uw_object *object, size_t *n);

#endif
