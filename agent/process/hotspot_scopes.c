/* agent/process/hotspot_scopes.c: reads the scopes of HotSpot's compiled code. */
#include "agent/process/hotspot_scopes.h"

#include "schema/calls_blob.h"

/* Limits on what a virtual machine can claim about one method. */
#define PCS_MAX	     (1u << 20)
#define METADATA_MAX (1u << 20)

/* Where the debug information of a method is. */
struct parts {
	uint64_t pcs, pcs_end; /* PcDescs by ascending pc, with a guard at each end */
	uint64_t scopes;
	uint64_t metadata; /* an array of pointers */
};

/* Read where they are; nmethod.hpp has the pictures. The offsets are of the nmethod, or of its own memory. */
static bool read_parts(struct hotspot_memory *m, const struct hotspot_layout *l, uint64_t at,
		       struct parts *out)
{
	uint64_t off, end, data, base, size;

	if (!hotspot_get_number(m, at + l->at[HOTSPOT_SCOPES_PCS], 4, &off))
		return false;
	if (l->has[HOTSPOT_IMMUTABLE]) {
		if (!hotspot_get_number(m, at + l->at[HOTSPOT_IMMUTABLE], 8, &base) ||
		    !hotspot_get_number(m, at + l->at[HOTSPOT_SCOPES_DATA], 4, &end) ||
		    !hotspot_get_number(m, at + l->at[HOTSPOT_MUTABLE], 8, &data) ||
		    !hotspot_get_number(m, at + l->at[HOTSPOT_RELOCATION_SIZE], 4, &size))
			return false;
		out->pcs = base + off;
		out->pcs_end = out->scopes = base + end;
		out->metadata = data + ((size + 7) & ~UINT64_C(7));
	} else {
		if (!hotspot_get_number(m, at + l->at[HOTSPOT_SCOPES_PCS_END], 4, &end) ||
		    !hotspot_get_number(m, at + l->at[HOTSPOT_SCOPES_BEGIN], 8, &out->scopes) ||
		    !hotspot_get_number(m, at + l->at[HOTSPOT_METADATA], 4, &data))
			return false;
		out->pcs = at + off;
		out->pcs_end = at + end;
		out->metadata = at + data;
	}
	return out->pcs < out->pcs_end && out->pcs_end - out->pcs <= PCS_MAX * l->pc_size;
}

/*
 * Find the PcDesc at this offset in the code or, if near is set, the next one. Read where its scope begins,
 * an offset in the scopes; 0: it has none.
 */
static bool find_scope(struct hotspot_memory *m, const struct hotspot_layout *l,
		       const struct parts *p, uint64_t off, bool near, uint64_t *out)
{
	uint64_t low = 0, n = (p->pcs_end - p->pcs) / l->pc_size, high = n, at;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (!hotspot_get_number(m, p->pcs + middle * l->pc_size + l->at[HOTSPOT_PC_OFFSET],
					4, &at))
			return false;
		/* The first guard is at -1. */
		if ((int64_t)(int32_t)at < (int64_t)off)
			low = middle + 1;
		else
			high = middle;
	}
	if (low + 1 >= n ||
	    !hotspot_get_number(m, p->pcs + low * l->pc_size + l->at[HOTSPOT_PC_OFFSET], 4, &at) ||
	    (at != off && !near))
		return false;
	return hotspot_get_number(m, p->pcs + low * l->pc_size + l->at[HOTSPOT_SCOPE_OFFSET], 4,
				  out);
}

/*
 * A scope begins with the offset of its caller's scope (0: none), the number of its method among the
 * metadata, and the index in the method's bytecode plus 1 (code/scopeDesc.cpp). An index of -1 is the entry.
 */
size_t hotspot_scopes_read(struct hotspot_memory *m, const struct hotspot_layout *l,
			   const struct hotspot_nmethod *nmethod, uint64_t pc, bool exact,
			   struct hotspot_call out[HOTSPOT_CALLS_MAX])
{
	struct parts parts;
	uint64_t scope;
	size_t n = 0;

	if (!l->has_scopes || pc < nmethod->start || pc >= nmethod->end ||
	    !read_parts(m, l, nmethod->at, &parts) ||
	    !find_scope(m, l, &parts, pc - nmethod->start, exact, &scope))
		return 0;
	while (scope && n < HOTSPOT_CALLS_MAX) {
		uint64_t at = parts.scopes + scope;
		uint32_t caller, number, bci;

		if (!hotspot_get_packed(m, &at, l->least_byte, &caller) ||
		    !hotspot_get_packed(m, &at, l->least_byte, &number) ||
		    !hotspot_get_packed(m, &at, l->least_byte, &bci) || !number ||
		    number > METADATA_MAX ||
		    !hotspot_get_number(m, parts.metadata + 8 * (uint64_t)(number - 1), 8,
					&out[n].method))
			return 0;
		out[n++].bci = bci ? bci - 1 : 0;
		/* A caller's scope was written before: this ends every chain. */
		if (caller >= scope)
			return caller ? 0 : n;
		scope = caller;
	}
	return n;
}

/* Read what takes the place of return addresses; 0: not known. */
static uint64_t read_handler(struct hotspot_memory *m, const struct hotspot_layout *l, uint64_t at,
			     enum hotspot_field address, enum hotspot_field offset)
{
	uint64_t handler;

	if (l->has[address])
		return hotspot_get_number(m, at + l->at[address], 8, &handler) ? handler : 0;
	return l->has[offset] && hotspot_get_number(m, at + l->at[offset], 4, &handler)
		       ? at + handler
		       : 0;
}

bool hotspot_scopes_saved(struct hotspot_memory *m, const struct hotspot_layout *l,
			  const struct hotspot_nmethod *nmethod, uint64_t pc, uint32_t *saved)
{
	uint64_t off;

	if (!l->has_saved ||
	    (read_handler(m, l, nmethod->at, HOTSPOT_DEOPT_AT, HOTSPOT_DEOPT_OFFSET) != pc &&
	     read_handler(m, l, nmethod->at, HOTSPOT_DEOPT_MH_AT, HOTSPOT_DEOPT_MH_OFFSET) != pc) ||
	    !hotspot_get_number(m, nmethod->at + l->at[HOTSPOT_SAVED_PC], 4, &off) || !off ||
	    off > CALLS_SAVED_MAX)
		return false;
	*saved = (uint32_t)off;
	return true;
}
