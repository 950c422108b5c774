/*
 * agent/process/hotspot_frames.h: makes call frame information (DWARF 5 §6.4) for code of a Java
 * virtual machine, from the code itself and the size of its frame.
 */
#ifndef AGENT_PROCESS_HOTSPOT_FRAMES_H
#define AGENT_PROCESS_HOTSPOT_FRAMES_H

#include <stddef.h>
#include <stdint.h>

#define HOTSPOT_MACHINE "x86_64" /* the machine whose compiled code is understood */

/* A CIE and an FDE of .eh_frame. Addresses are relative to the start of the code. */
struct hotspot_frames {
	uint8_t bytes[1024];
	size_t n;
	uint64_t at; /* current location in the code while writing */
};

struct hotspot_cache { /* all compiled code lies in the 1 << log2 bytes from low on */
	uint64_t low;
	uint8_t log2;
};

struct hotspot_code {
	uint64_t size;
	const uint8_t *bytes; /* the first n_bytes of the code; borrowed */
	size_t n_bytes;
	size_t complete; /* the frame is complete at this offset; at most n_bytes */
	uint32_t words;	 /* frame size in words, with the return address; 1: no frame */
};

/* Make CFI for compiled code. The result is cut if it needs more than the room in frames->bytes. */
void hotspot_frames_compiled(struct hotspot_frames *frames, const struct hotspot_code *code,
			     const struct hotspot_cache *cache);
/* Make CFI for the interpreter's code of this size in bytes. */
void hotspot_frames_interpreted(struct hotspot_frames *frames, uint64_t size);

/* Bytes of code around a return address: the last one of the call, and the next. */
#define HOTSPOT_CALL_SIZE 2
/* Make CFI for the place in the stub of calls where a method returns to it. */
void hotspot_frames_call_stub(struct hotspot_frames *frames);

#endif
