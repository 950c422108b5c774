/*
 * agent/runtime/frames.h: what the frames of interpreted code mean.
 *
 * A frame of interpreted code is a location as any other: its module is that of its runtime
 * ("[cpython]", MODULE_RUNTIME), and its address a hash of what names it. So equal frames have one address,
 * in whichever process, recording or machine they ran, and whatever counts, stores or shows addresses need
 * know nothing of them. This table leads from the address back to the names.
 *
 * The table is bounded (the limit interpreted-frames). Beyond it, the longest unused frames go.
 * All functions are thread-safe: a profile is named while the next one is being filled.
 */
#ifndef AGENT_RUNTIME_FRAMES_H
#define AGENT_RUNTIME_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct runtime_frames;

/* The most bytes of each text; longer ones are cut. */
#define RUNTIME_TEXT_MAX 4096

struct runtime_name {
	const char *function; /* qualified: "Shop.Cart.total" */
	const char *file;     /* NULL: not known */
	uint32_t line;	      /* 0: not known */
	uint32_t start_line;  /* of the function; 0: not known */
};

int runtime_frames_new(struct runtime_frames **out);	 /* -ENOMEM */
void runtime_frames_free(struct runtime_frames *frames); /* NULL is fine */

/*
 * Add a frame of a runtime (its module's name), or note that it is used. Return its address, which has 62
 * bits and is never 0. The texts may be any bytes: they are sanitised. Return 0 when out of memory.
 */
uint64_t runtime_frames_add(struct runtime_frames *frames, const char *module,
			    const struct runtime_name *name);

/* Note that a frame is used. Return whether it is still in the table. */
bool runtime_frames_use(struct runtime_frames *frames, uint64_t address);

/*
 * Copy the name of a frame; the caller frees the text, which has all that *out points to. NULL: it is not in
 * the table, or no memory.
 */
char *runtime_frames_find(struct runtime_frames *frames, uint64_t address,
			  struct runtime_name *out);

size_t runtime_frames_count(struct runtime_frames *frames);

#endif
