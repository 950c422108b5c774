/*
 * agent/process/hotspot_layout.c: reads the layout of HotSpot's structures from the tables that
 * libjvm.so exports.
 */
#include "agent/process/hotspot_layout.h"

#include "base/bytes.h"

#include <errno.h>
#include <string.h>

#define STRUCTS_MAX 8192 /* limit on what a virtual machine can claim about itself */

const char *const hotspot_exports[HOTSPOT_EXPORTS] = { "gHotSpotVMStructs", "gHotSpotVMTypes" };

static const struct wanted {
	const char *type, *name;
	enum hotspot_field field;
} wanted[] = {
	{ "CodeCache", "_heaps", HOTSPOT_HEAPS },
	{ "GrowableArrayBase", "_len", HOTSPOT_LEN },
	{ "GenericGrowableArray", "_len", HOTSPOT_LEN }, /* up to JDK 15 */
	{ "GrowableArray<int>", "_data", HOTSPOT_DATA },
	{ "CodeHeap", "_memory", HOTSPOT_MEMORY },
	{ "CodeHeap", "_segmap", HOTSPOT_SEGMAP },
	{ "CodeHeap", "_log2_segment_size", HOTSPOT_LOG2 },
	{ "VirtualSpace", "_low", HOTSPOT_LOW },
	{ "VirtualSpace", "_high", HOTSPOT_HIGH },
	{ "VirtualSpace", "_low_boundary", HOTSPOT_LOW_EDGE },
	{ "VirtualSpace", "_high_boundary", HOTSPOT_HIGH_EDGE },
	{ "HeapBlock::Header", "_used", HOTSPOT_BLOCK_USED },
	{ "CodeBlob", "_name", HOTSPOT_NAME },
	{ "CodeBlob", "_size", HOTSPOT_SIZE },
	{ "CodeBlob", "_frame_complete_offset", HOTSPOT_FRAME_COMPLETE },
	{ "CodeBlob", "_frame_size", HOTSPOT_FRAME_SIZE },
	{ "CodeBlob", "_data_offset", HOTSPOT_DATA_OFFSET },
	{ "CodeBlob", "_code_begin", HOTSPOT_CODE_BEGIN },
	{ "CodeBlob", "_code_offset", HOTSPOT_CODE_OFFSET },
	{ "CompiledMethod", "_method", HOTSPOT_METHOD },
	{ "nmethod", "_method", HOTSPOT_METHOD }, /* before JDK 9, and from 23 on */
	{ "nmethod", "_compile_id", HOTSPOT_COMPILE_ID },
	{ "Method", "_constMethod", HOTSPOT_CONST_METHOD },
	{ "ConstMethod", "_constants", HOTSPOT_CONSTANTS },
	{ "ConstMethod", "_name_index", HOTSPOT_NAME_INDEX },
	{ "ConstantPool", "_pool_holder", HOTSPOT_HOLDER },
	{ "Klass", "_name", HOTSPOT_KLASS_NAME },
	{ "Symbol", "_length", HOTSPOT_SYMBOL_LENGTH },
	{ "Symbol", "_body", HOTSPOT_SYMBOL_BODY },
	{ "StubRoutines", "_call_stub_return_address", HOTSPOT_CALL_RETURN },
	{ "ConstMethod", "_code_size", HOTSPOT_CODE_SIZE },
	{ "ConstMethod", "_flags", HOTSPOT_CONST_FLAGS },
	{ "ConstMethod", "_flags._flags", HOTSPOT_CONST_FLAGS }, /* from JDK 21 on */
	{ "ConstantPool", "_source_file_name_index", HOTSPOT_SOURCE_FILE },
	{ "PcDesc", "_pc_offset", HOTSPOT_PC_OFFSET },
	{ "PcDesc", "_scope_decode_offset", HOTSPOT_SCOPE_OFFSET },
	{ "nmethod", "_scopes_pcs_offset", HOTSPOT_SCOPES_PCS },
	{ "nmethod", "_dependencies_offset", HOTSPOT_SCOPES_PCS_END },
	{ "CompiledMethod", "_scopes_data_begin", HOTSPOT_SCOPES_BEGIN },
	{ "nmethod", "_metadata_offset", HOTSPOT_METADATA },
	{ "nmethod", "_immutable_data", HOTSPOT_IMMUTABLE },
	{ "nmethod", "_scopes_data_offset", HOTSPOT_SCOPES_DATA },
	{ "CodeBlob", "_mutable_data", HOTSPOT_MUTABLE },
	{ "CodeBlob", "_relocation_size", HOTSPOT_RELOCATION_SIZE },
	{ "JDK_Version", "_current", HOTSPOT_VERSION },
	{ "JDK_Version", "_major", HOTSPOT_MAJOR },
	{ "nmethod", "_orig_pc_offset", HOTSPOT_SAVED_PC },
	{ "CompiledMethod", "_deopt_handler_begin", HOTSPOT_DEOPT_AT },
	{ "CompiledMethod", "_deopt_mh_handler_begin", HOTSPOT_DEOPT_MH_AT },
	{ "nmethod", "_deopt_handler_offset", HOTSPOT_DEOPT_OFFSET },
	{ "nmethod", "_deopt_mh_handler_offset", HOTSPOT_DEOPT_MH_OFFSET },
};
#define N_WANTED (sizeof(wanted) / sizeof(*wanted))
_Static_assert(N_WANTED <= 64, "a bit for each");

/* Offsets of the members of struct VMStructEntry and struct VMTypeEntry. */
enum {
	STRUCT_TYPE = 0,
	STRUCT_FIELD = 8,
	STRUCT_OF = 16, /* the type of the field */
	STRUCT_OFFSET = 32,
	STRUCT_ADDRESS = 40,
	STRUCT_ENTRY = 48,
	TYPE_NAME = 0,
	TYPE_SIZE = 32,
	TYPE_ENTRY = 40,
};

static bool is_static(enum hotspot_field field)
{
	return field == HOTSPOT_HEAPS || field == HOTSPOT_CALL_RETURN || field == HOTSPOT_VERSION;
}

/* Store the offset of a field, if the field is wanted. of_type: the bits of what is wanted of its type. */
static void take_field(struct hotspot_memory *m, struct hotspot_layout *l, uint64_t of_type,
		       const uint8_t *entry)
{
	char name[32], of[16];

	if (!hotspot_get_text(m, uw_bytes_little_n(entry + STRUCT_FIELD, 8), name, sizeof(name)))
		return;
	for (; of_type; of_type &= of_type - 1) {
		const struct wanted *w = &wanted[__builtin_ctzll(of_type)];

		if (strcmp(w->name, name) != 0)
			continue;
		l->at[w->field] = uw_bytes_little_n(
			entry + (is_static(w->field) ? STRUCT_ADDRESS : STRUCT_OFFSET), 8);
		l->has[w->field] = true;
		if (w->field == HOTSPOT_FRAME_COMPLETE)
			l->short_complete =
				hotspot_get_text(m, uw_bytes_little_n(entry + STRUCT_OF, 8), of,
						 sizeof(of)) &&
				!strcmp(of, "int16_t");
	}
}

/* Return a bit for each row of wanted that is of this type. */
static uint64_t wanted_of(const char *type)
{
	uint64_t bits = 0;

	for (size_t i = 0; i < N_WANTED; i++)
		if (*wanted[i].type == *type && !strcmp(wanted[i].type, type))
			bits |= UINT64_C(1) << i;
	return bits;
}

/* Read the offsets of all wanted fields from gHotSpotVMStructs. */
static void read_structs(struct hotspot_memory *m, struct hotspot_layout *l, uint64_t table)
{
	uint8_t entry[STRUCT_ENTRY];
	uint64_t at, type, last = 0, of_type = 0;
	char name[32];

	if (!hotspot_get_number(m, table, 8, &at))
		return;
	for (unsigned int i = 0; i < STRUCTS_MAX && hotspot_get(m, at, entry, sizeof(entry));
	     i++, at += sizeof(entry)) {
		type = uw_bytes_little_n(entry + STRUCT_TYPE, 8);
		if (!type)
			return;
		if (type != last)
			of_type =
				hotspot_get_text(m, type, name, sizeof(name)) ? wanted_of(name) : 0;
		last = type;
		if (of_type)
			take_field(m, l, of_type, entry);
	}
}

/* Read the sizes of the types from gHotSpotVMTypes. */
static void read_types(struct hotspot_memory *m, struct hotspot_layout *l, uint64_t table)
{
	uint8_t entry[TYPE_ENTRY];
	uint64_t at, type;
	char name[32];

	if (!hotspot_get_number(m, table, 8, &at))
		return;
	for (unsigned int i = 0; i < STRUCTS_MAX && hotspot_get(m, at, entry, sizeof(entry));
	     i++, at += sizeof(entry)) {
		type = uw_bytes_little_n(entry + TYPE_NAME, 8);
		if (!type)
			return;
		if (!hotspot_get_text(m, type, name, sizeof(name)))
			continue;
		if (!strcmp(name, "ConstantPool"))
			l->pool_size = uw_bytes_little_n(entry + TYPE_SIZE, 8);
		else if (!strcmp(name, "HeapBlock"))
			l->block_size = uw_bytes_little_n(entry + TYPE_SIZE, 8);
		else if (!strcmp(name, "ConstMethod"))
			l->const_size = uw_bytes_little_n(entry + TYPE_SIZE, 8);
		else if (!strcmp(name, "PcDesc"))
			l->pc_size = uw_bytes_little_n(entry + TYPE_SIZE, 8);
		if (l->pool_size && l->block_size && l->const_size && l->pc_size)
			return;
	}
}

/* Return whether all these fields are there. */
static bool has_all(const struct hotspot_layout *l, const enum hotspot_field *fields, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!l->has[fields[i]])
			return false;
	return true;
}

#define HAS_ALL(l, ...)                                         \
	has_all(l, (const enum hotspot_field[]){ __VA_ARGS__ }, \
		sizeof((const enum hotspot_field[]){ __VA_ARGS__ }) / sizeof(enum hotspot_field))

/*
 * See what is there for lines and inlined calls. Up to JDK 19 any byte can begin a compressed number
 * (CompressedStream), later not 0 (unsigned5.hpp). The version is exported as long as there was
 * a doubt.
 */
static void see_scopes(struct hotspot_memory *m, struct hotspot_layout *l)
{
	uint64_t major = UINT64_MAX;

	l->least_byte = 1;
	if (HAS_ALL(l, HOTSPOT_VERSION, HOTSPOT_MAJOR) &&
	    !hotspot_get_number(m, l->at[HOTSPOT_VERSION] + l->at[HOTSPOT_MAJOR], 1, &major))
		return;
	if (major < 20)
		l->least_byte = 0;
	l->has_lines = HAS_ALL(l, HOTSPOT_CODE_SIZE, HOTSPOT_CONST_FLAGS) && l->const_size &&
		       l->const_size <= 4096;
	l->has_scopes =
		l->has_lines && l->pc_size >= 8 && l->pc_size <= 64 &&
		HAS_ALL(l, HOTSPOT_PC_OFFSET, HOTSPOT_SCOPE_OFFSET, HOTSPOT_SCOPES_PCS) &&
		l->at[HOTSPOT_PC_OFFSET] <= l->pc_size - 4 &&
		l->at[HOTSPOT_SCOPE_OFFSET] <= l->pc_size - 4 &&
		(HAS_ALL(l, HOTSPOT_SCOPES_PCS_END, HOTSPOT_SCOPES_BEGIN, HOTSPOT_METADATA) ||
		 HAS_ALL(l, HOTSPOT_IMMUTABLE, HOTSPOT_SCOPES_DATA, HOTSPOT_MUTABLE,
			 HOTSPOT_RELOCATION_SIZE));
	l->has_saved = l->has_scopes && l->has[HOTSPOT_SAVED_PC] &&
		       (l->has[HOTSPOT_DEOPT_AT] || l->has[HOTSPOT_DEOPT_OFFSET]);
}

/*
 * The virtual machine exports the names, types and offsets of its fields for debuggers
 * (vmStructs.hpp). Anything unusual means another version: then nothing is read.
 */
int hotspot_layout_read(struct hotspot_memory *m, const uint64_t exports[HOTSPOT_EXPORTS],
			struct hotspot_layout *l)
{
	memset(l, 0, sizeof(*l));
	read_structs(m, l, exports[0]);
	read_types(m, l, exports[1]);
	if (m->over)
		return -EFAULT;
	for (unsigned int i = 0; i < HOTSPOT_N_FIELDS; i++) {
		bool spare = i == HOTSPOT_CODE_BEGIN || i == HOTSPOT_CODE_OFFSET ||
			     i >= HOTSPOT_N_NEEDED;

		/* The structures are small, so a larger number is not an offset. */
		if ((!l->has[i] && !spare) || (l->has[i] && !is_static(i) && l->at[i] > 4096))
			return -ENOENT;
	}
	/* All wanted fields of a block are read at once. */
	for (unsigned int i = HOTSPOT_NAME; i <= HOTSPOT_COMPILE_ID; i++)
		if (l->block_size > 64 || l->at[i] > HOTSPOT_HEAD_SIZE - 64 - 8)
			return -ENOENT;
	if ((!l->has[HOTSPOT_CODE_BEGIN] && !l->has[HOTSPOT_CODE_OFFSET]) || !l->pool_size ||
	    l->pool_size > 4096 || !l->block_size || l->at[HOTSPOT_BLOCK_USED] >= l->block_size)
		return -ENOENT;
	see_scopes(m, l);
	return m->over ? -EFAULT : 0;
}
