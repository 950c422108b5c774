/*
 * agent/process/hotspot_layout.h: where a Java virtual machine's structures have their fields.
 */
#ifndef AGENT_PROCESS_HOTSPOT_LAYOUT_H
#define AGENT_PROCESS_HOTSPOT_LAYOUT_H

#include "agent/process/hotspot.h"
#include "agent/process/hotspot_memory.h"

/* Bytes of a block that contain all fields wanted of its blob. */
#define HOTSPOT_HEAD_SIZE 384

enum hotspot_field {
	HOTSPOT_HEAPS, /* static: its address */
	HOTSPOT_LEN,
	HOTSPOT_DATA,
	HOTSPOT_MEMORY,
	HOTSPOT_SEGMAP,
	HOTSPOT_LOG2,
	HOTSPOT_LOW,
	HOTSPOT_HIGH,
	HOTSPOT_LOW_EDGE, /* lower end of the reserved memory */
	HOTSPOT_HIGH_EDGE,
	HOTSPOT_BLOCK_USED,
	HOTSPOT_NAME,
	HOTSPOT_SIZE,
	HOTSPOT_FRAME_COMPLETE,
	HOTSPOT_FRAME_SIZE,
	HOTSPOT_DATA_OFFSET,
	HOTSPOT_CODE_BEGIN,  /* in older versions */
	HOTSPOT_CODE_OFFSET, /* in newer versions */
	HOTSPOT_METHOD,
	HOTSPOT_COMPILE_ID,
	HOTSPOT_CONST_METHOD,
	HOTSPOT_CONSTANTS,
	HOTSPOT_NAME_INDEX,
	HOTSPOT_HOLDER,
	HOTSPOT_KLASS_NAME,
	HOTSPOT_SYMBOL_LENGTH,
	HOTSPOT_SYMBOL_BODY,
	HOTSPOT_N_NEEDED,
	HOTSPOT_CALL_RETURN = HOTSPOT_N_NEEDED, /* static */
	/* What follows is only needed for lines and inlined calls. */
	HOTSPOT_CODE_SIZE, /* bytes of a method's bytecode */
	HOTSPOT_CONST_FLAGS,
	HOTSPOT_SOURCE_FILE,
	HOTSPOT_PC_OFFSET,
	HOTSPOT_SCOPE_OFFSET,
	HOTSPOT_SCOPES_PCS,
	HOTSPOT_SCOPES_PCS_END, /* these three in older versions */
	HOTSPOT_SCOPES_BEGIN,
	HOTSPOT_METADATA,
	HOTSPOT_IMMUTABLE, /* and these in newer ones */
	HOTSPOT_SCOPES_DATA,
	HOTSPOT_MUTABLE,
	HOTSPOT_RELOCATION_SIZE,
	HOTSPOT_VERSION, /* static; in older versions */
	HOTSPOT_MAJOR,
	/* And these for code that is no longer valid. */
	HOTSPOT_SAVED_PC, /* where its frames keep their return addresses */
	HOTSPOT_DEOPT_AT, /* what takes their place, an address, and for calls of method handles */
	HOTSPOT_DEOPT_MH_AT,  /* these two in older versions */
	HOTSPOT_DEOPT_OFFSET, /* and these in newer ones */
	HOTSPOT_DEOPT_MH_OFFSET,
	HOTSPOT_N_FIELDS
};

struct hotspot_layout {
	uint64_t at[HOTSPOT_N_FIELDS];
	bool has[HOTSPOT_N_FIELDS];
	bool short_complete;	    /* FRAME_COMPLETE has 16 bits */
	uint64_t pool_size;	    /* bytes of a ConstantPool without its entries */
	uint64_t block_size;	    /* bytes of a block's header */
	uint64_t const_size;	    /* bytes of a ConstMethod without its bytecode; 0: not known */
	uint64_t pc_size;	    /* bytes of a PcDesc; 0: not known */
	bool has_lines, has_scopes; /* all that is needed for lines; for inlined calls */
	bool has_saved;		    /* and for code that is no longer valid */
	uint8_t least_byte;	    /* of compressed numbers: 0, or 1 in newer versions */
};

/* Read and check the layout. -ENOENT: not a virtual machine that this code understands; -EFAULT. */
int hotspot_layout_read(struct hotspot_memory *m, const uint64_t exports[HOTSPOT_EXPORTS],
			struct hotspot_layout *l);

#endif
