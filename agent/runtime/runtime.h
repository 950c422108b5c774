/*
 * agent/runtime/runtime.h: frames of interpreted code in stacks. A runtime (CPython, V8, …) is a struct
 * runtime_ops; this is what the pipeline asks of all of them. docs/runtimes.md tells how to add one.
 *
 * A runtime decodes a sample: from the bytes that were captured with it (stack, slices), from memory of its
 * process that leads to names and was read soon after (runtime_piece), and from the native frames that the
 * walk found. It puts its frames between the native ones, or in their place.
 *
 * The bytes are the process's own: nothing in them is trusted. A runtime bounds every loop.
 */
#ifndef AGENT_RUNTIME_RUNTIME_H
#define AGENT_RUNTIME_RUNTIME_H

#include "agent/event.h"
#include "agent/process/process.h"
#include "agent/runtime/context.h"
#include "agent/runtime/frames.h"
#include "agent/runtime/memory.h"
#include "agent/source/source.h"

struct call;
struct opener;

/* A frame that a runtime puts into a stack; runtime_put. */
struct runtime_put {
	uint32_t at;
	bool instead;
	uint64_t address;
};

/* Frames that runtimes put into one stack at most. */
#define RUNTIME_PUT_MAX 1024

/* A sample that a runtime decodes. */
struct runtime_stack {
	const struct event *event;
	struct uw_space *space; /* the process's mappings */
	struct runtime_memory *memory;
	struct runtime_frames *frames;
	const struct calls
		*calls; /* what frames of generated code execute; NULL: nothing is known */
	/*
	 * The frames that the walk found, innermost first. n_native 0: the sample is not walked (a capture
	 * file is being written). Then a runtime only asks for the pieces that lead to names.
	 */
	const struct uw_frame *const *native;
	size_t n_native;
	/* What was put so far, by all runtimes of the process. */
	struct runtime_put *put;
	size_t n_put, max_put;
	/* Set this if frames are missing: why, in few words. NULL: all are there. Static. */
	const char *missing;
};

/*
 * Put a frame (runtime_frames_add) before the native frame number at, that is, inside of it: it called it;
 * n_native: outside of all. instead: the native frame is left out, because this one stands for it. Frames
 * with the same at are put innermost first. Return false if there is no room for more.
 */
bool runtime_put(struct runtime_stack *stack, size_t at, uint64_t address, bool instead);
/* Put the calls that a frame of generated code runs, in its place, the innermost first. Returns likewise. */
bool runtime_put_calls(struct runtime_stack *stack, size_t at, const char *module,
		       const struct call *calls, size_t n);

#define RUNTIME_EXPORTS_MAX 8

/* The file of a runtime in a process. */
struct runtime_file {
	const struct module *module;
	struct uw_object *object;
	uint64_t bias;
	/* Run-time addresses of ops.exports; 0: not exported. */
	uint64_t exports[RUNTIME_EXPORTS_MAX];
	struct runtime_memory *memory; /* for runtime_piece */
	uint64_t
		note; /* runtime_note: under this address attach may keep what it found out in the file */
};

/*
 * Read what the file has at a run-time address and never changes: as the capture file has it, or else the file. Return
 * false if it cannot be read.
 */
bool runtime_constant(const struct runtime_file *file, uint64_t addr, void *out, size_t size);

struct runtime_ops {
	const char *module; /* of its frames: "[cpython]" */
	/* Names that its file exports; NULL after the last. attach gets their addresses. */
	const char *exports[RUNTIME_EXPORTS_MAX + 1];
	bool once; /* the process maps parts of the file in other places, too: attach it only once */
	/* Return whether a file with this base name may be the runtime. Cheap: no file is opened. */
	bool (*is_named)(const char *base);
	/*
	 * Begin with a process that has mapped such a file. *state is passed to the other functions. *plan
	 * is what samples of the process copy beside the stack, with file->bias as its base; n 0: nothing.
	 * -ENOTSUP: it is not this runtime, or of a version that is not known. -EAGAIN: memory that is
	 * needed cannot be read yet. -ENOMEM.
	 */
	int (*attach)(const struct runtime_file *file, void **state, struct plan *plan);
	void (*detach)(void *state);
	/* Put the frames of a sample into the stack. */
	void (*decode)(void *state, struct runtime_stack *stack);
};

/* All runtimes, NULL after the last. */
extern const struct runtime_ops *const runtimes_all[];
/* Return the runtime whose frames have this module; NULL: it is none of theirs. */
const struct runtime_ops *runtime_of_module(const char *module);
/* Return a runtime's number in runtimes_all, or how many there are if it is in none of them (NULL). */
size_t runtime_number(const struct runtime_ops *runtime);

struct runtimes;

/*
 * Create the state for a recording. All are borrowed. live: pids are those of running processes, so that
 * their memory can be read, and their samples can have slices (info->plan).
 */
struct runtimes_options {
	struct processes *processes;
	struct modules *modules;
	struct opener *opener;
	const struct source_info *info;
	bool live;
};
int runtimes_new(const struct runtimes_options *options, struct runtimes **out);
void runtimes_free(struct runtimes *runtimes); /* NULL is fine */

/*
 * Return whether the sample's process has a runtime, so that runtimes_decode may put frames, or says why it has none.
 * Cheap; call it for every sample.
 */
bool runtimes_concern(struct runtimes *runtimes, const struct event *sample);

/*
 * Decode a sample for which runtimes_concern has returned true. The walked frames are given innermost first;
 * n 0: none. *put is borrowed until the next call, sorted by at. Return the number of frames in it. *missing:
 * why there are not all; NULL: all are there.
 */
size_t runtimes_decode(struct runtimes *runtimes, const struct event *sample,
		       const struct uw_frame *const *native, size_t n,
		       const struct runtime_put **put, const char **missing);
/* Return the module of a frame that runtimes_decode has put. NULL when out of memory. */
const struct module *runtimes_module(struct runtimes *runtimes, const struct runtime_put *put);

/*
 * Add the labels of a sample that its thread has set itself (agent/runtime/context.h) to a set. others: those that
 * its process has, or NULL. Call it after runtimes_concern.
 */
enum context_state runtimes_labels(struct runtimes *runtimes, const struct event *sample,
				   const struct label_rules *rules, const char *others,
				   struct labels *to);

/*
 * Take what a living process says of itself (agent/process/contexts.h): it tells what labels of its threads are called.
 * A capture file gets it, too. -ENOMEM.
 */
int runtimes_publish(struct runtimes *runtimes, uint32_t pid, const void *bytes, size_t size);
/* Return what was published since the last call, borrowed until the next event; NULL: nothing. */
const void *runtimes_published(struct runtimes *runtimes, uint32_t pid, size_t *size);

/*
 * Return the module, such as "[woken by]", of a frame that has a name but no code, and set its address. NULL when
 * out of memory.
 */
const struct module *runtimes_text(struct runtimes *runtimes, const char *module, const char *name,
				   uint64_t *address);

/*
 * Return 1 if memory of the process was read since the last call for it; *out describes it (EVENT_MEMORY),
 * borrowed until the next call. A capture file gets it before the sample.
 */
int runtimes_found(struct runtimes *runtimes, struct event *out);

/*
 * Apply EVENT_MEMORY, and the ends and beginnings of processes, after the processes have applied them: so the
 * samples of a process have slices from the first one on. -ENOMEM.
 */
int runtimes_event(struct runtimes *runtimes, const struct event *event);

#endif
