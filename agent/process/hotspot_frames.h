/*
 * agent/process/hotspot_frames.h: how the frames of a Java virtual machine's code are left, as call
 * frame information (DWARF 5 §6.4), told by the code itself and the size of its frame.
 */
#ifndef AGENT_PROCESS_HOTSPOT_FRAMES_H
#define AGENT_PROCESS_HOTSPOT_FRAMES_H

#include <stddef.h>
#include <stdint.h>

/* A CIE and an FDE of .eh_frame, whose addresses count from where the code begins. */
struct hotspot_frames {
	uint8_t bytes[1024];
	size_t n;
	uint64_t at; /* in the code, while it is being written */
};

struct hotspot_cache { /* compiled code lies in the 1 << log2 bytes from low on */
	uint64_t low;
	uint8_t log2;
};

struct hotspot_code {
	uint64_t size;
	const uint8_t *bytes; /* so many of it, borrowed */
	size_t n_bytes;
	size_t complete; /* its frame is built before this; at most n_bytes */
	uint32_t words;	 /* in its frame, the return address among them; 1: it has none */
};

void hotspot_frames_compiled(struct hotspot_frames *frames, const struct hotspot_code *code,
			     const struct hotspot_cache *cache);
void hotspot_frames_interpreted(struct hotspot_frames *frames, uint64_t size);

#endif
