/* agent/process/v8.c: reads JavaScript functions from V8's heap. */
#include "agent/process/v8.h"

#include "agent/array.h"
#include "agent/clock.h"
#include "agent/hash.h"
#include "agent/process/hotspot_memory.h"
#include "agent/process/module.h"
#include "agent/process/v8_deopt.h"
#include "base/bytes.h"
#include "schema/calls_blob.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_BYTES 512
#define DEPTH_MAX      16	    /* of strings that consist of others */
#define FEEDBACK_WORDS 12	    /* of a FeedbackVector, before the feedback itself */
#define CONTEXTS_MAX   4	    /* around each other, of one function */
#define PARTS_MAX      64	    /* of one string */
#define SOURCE_MAX     (4u << 20)   /* bytes of a script that are searched for ends of lines */
#define SCRIPTS_MAX    4096u	    /* then all are read again */
#define ENDS_MAX       (4u << 20)   /* ends of lines of all scripts */
#define SEEN_MAX       131072u	    /* frames that are remembered */
#define CODE_MAX       (128u << 10) /* bytes of a function's code */
#define LOCALS_MAX     4096u	    /* of a function, in contexts */
#define HANDLERS       768u	    /* operations of bytecode, without and with the two prefixes */
#define HANDLERS_MAX   (4u << 20)   /* bytes that the code for all operations takes */
#define PIECE_MAX      1024	    /* bytes of code that are searched at a time; a power of 2 */

/*
 * A frame that could not be read is tried again after MOVED_NS, twice of it, and so on up to FAILED_NS, while its
 * words are the same: what fails each time is no frame. If its function has moved, the next sample has other words.
 * A frame that is known is looked at again after SOON_NS, twice of it, and so on up to LATE_NS; but after CHANGED_NS
 * if it has another function: its code or bytecode may be where another one's was. If the calls that were inlined at
 * a return address could not be read, that begins with MOVED_NS: objects may have been about to move.
 */
#define FAILED	   1024 /* a power of 2 */
#define MOVED_NS   UINT64_C(2000000)
#define FAILED_NS  UINT64_C(100000000)
#define CHANGED_NS UINT64_C(50000000)
#define SOON_NS	   UINT64_C(1000000000)
#define LATE_NS	   (60 * SOON_NS)

const char *const v8_exports[V8_VALUES] = {
	[V8_TAGGED_SIZE] = "v8dbg_TaggedSize",
	[V8_FP_CONTEXT] = "v8dbg_off_fp_context",
	[V8_FP_FUNCTION] = "v8dbg_off_fp_function",
	[V8_FP_BYTECODE] = "v8dbg_off_fp_bytecode_array",
	[V8_FUNCTION_CONTEXT] = "v8dbg_class_JSFunction__context__Context",
	[V8_FUNCTION_SHARED] = "v8dbg_class_JSFunction__shared__SharedFunctionInfo",
	[V8_SHARED_NAME] = "v8dbg_class_SharedFunctionInfo__name_or_scope_info__Object",
	[V8_SHARED_DATA] = "v8dbg_class_SharedFunctionInfo__function_data__Object",
	[V8_SHARED_SCRIPT] = "v8dbg_class_SharedFunctionInfo__script_or_debug_info__HeapObject",
	[V8_SCRIPT_NAME] = "v8dbg_class_Script__name__Object",
	[V8_SCRIPT_SOURCE] = "v8dbg_class_Script__source__Object",
	[V8_MAP_TYPE] = "v8dbg_class_Map__instance_type__uint16_t",
	[V8_STRING_LENGTH] = "v8dbg_class_String__length__int32_t",
	[V8_STRING_CHARS] = "v8dbg_class_SeqOneByteString__chars__char",
	[V8_CONS_FIRST] = "v8dbg_class_ConsString__first__String",
	[V8_CONS_SECOND] = "v8dbg_class_ConsString__second__String",
	[V8_THIN_ACTUAL] = "v8dbg_class_ThinString__actual__String",
	[V8_SLICED_PARENT] = "v8dbg_class_SlicedString__parent__String",
	[V8_SLICED_OFFSET] = "v8dbg_class_SlicedString__offset__SMI",
	[V8_EXTERNAL_RESOURCE] = "v8dbg_class_ExternalString__resource__Object",
	[V8_TYPE_SHARED] = "v8dbg_type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE",
	[V8_TYPE_SCOPE] = "v8dbg_type_ScopeInfo__SCOPE_INFO_TYPE",
	[V8_TYPE_SCRIPT] = "v8dbg_type_Script__SCRIPT_TYPE",
	[V8_TYPE_BYTECODE] = "v8dbg_type_BytecodeArray__BYTECODE_ARRAY_TYPE",
	[V8_TYPE_NO_STRING] = "v8dbg_FirstNonstringType",
	[V8_SCOPE_LOCALS] = "v8dbg_scopeinfo_idx_ncontextlocals",
	[V8_SCOPE_FIRST] = "v8dbg_scopeinfo_idx_first_vars",
	[V8_CONTEXT_PREVIOUS] = "v8dbg_context_idx_prev",
	[V8_TYPE_STREAM] = "v8dbg_type_InstructionStream__INSTRUCTION_STREAM_TYPE",
	[V8_TYPE_CODE] = "v8dbg_type_Code__CODE_TYPE",
	[V8_CODE_DEOPT] = "v8dbg_class_Code__deoptimization_data__FixedArray",
	[V8_ARRAY_DATA] = "v8dbg_class_FixedArray__data__uintptr_t",
	[V8_CODE_BYTECODE] = "v8dbg_class_Code__bytecode_or_interpreter_data__HeapObject",
	[V8_DEOPT_SHARED] = "v8dbg_DeoptimizationDataSharedFunctionInfoIndex",
	[V8_MAJOR] = "_ZN2v88internal7Version6major_E",
	[V8_MINOR] = "_ZN2v88internal7Version6minor_E",
	[V8_STREAM_START] = "v8dbg_class_InstructionStream__instruction_start__uintptr_t",
	[V8_CODE_START] = "v8dbg_class_Code__instruction_start__uintptr_t",
	[V8_BYTECODE_DATA] = "v8dbg_class_BytecodeArray__data__uintptr_t",
	[V8_TYPE_BYTES] = "v8dbg_type_ByteArray__BYTE_ARRAY_TYPE",
};

/* How a string is stored: bits of its type (src/objects/instance-type.h), the same since V8 4. */
enum {
	STRING_KIND = 7,
	STRING_SEQUENTIAL = 0,
	STRING_CONS = 1,
	STRING_EXTERNAL = 2,
	STRING_SLICED = 3,
	STRING_THIN = 5,
	STRING_ONE_BYTE = 8,
	STRING_UNCACHED = 16, /* an external one: where its bytes are is not in it */
};

struct script {
	uint64_t at;
	uint32_t name;	       /* offset in texts; 0: it has none */
	uint32_t ends, n_ends; /* index in ends: where its lines end */
	uint32_t length;       /* characters of its source: another one is another script */
	uint32_t n_read;       /* of which so many were searched for ends of lines */
};

/* What is no frame, or could not be read. */
struct failed {
	uint64_t words; /* hash of what tells it */
	uint64_t again_ns, pause_ns;
};

struct v8 {
	uint64_t exports[V8_VALUES];
	int32_t value[V8_VALUES];
	bool has_values, is_other;		/* read; not a V8 that this code understands */
	bool has_streams;			/* code leads to its function */
	const struct v8_deopt_version *version; /* NULL: not known */
	uint64_t handlers[HANDLERS]; /* where the code for each operation begins; 0: nowhere */
	uint64_t first_handler;	     /* the lowest of these */
	bool has_handlers;
	uint64_t code_map; /* of InstructionStreams, or before V8 11 of Code; 0: not found yet */
	struct script *scripts;
	size_t n_scripts, room_scripts;
	struct uw_hash_index by_address;
	uint32_t *ends;
	size_t n_ends, room_ends;
	char *texts;
	size_t n_texts, room_texts;
	struct calls_seen seen;
	struct failed failed[FAILED];
	struct calls_writer writer;
	struct hotspot_memory memory;
	bool is_part; /* of what write_frame wrote: the inlined calls are missing */
};

int v8_new(const uint64_t exports[V8_VALUES], struct v8 **out)
{
	struct v8 *v;

	for (size_t i = 0; i < V8_NEEDED; i++)
		if (!exports[i])
			return -ENOTSUP;
	v = calloc(1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	memcpy(v->exports, exports, sizeof(v->exports));
	v->n_texts = 1;
	*out = v;
	return 0;
}

void v8_free(struct v8 *v)
{
	if (!v)
		return;
	free(v->scripts);
	uw_hash_fini(&v->by_address);
	free(v->ends);
	free(v->texts);
	calls_seen_fini(&v->seen);
	calls_writer_fini(&v->writer);
	hotspot_memory_fini(&v->memory);
	free(v);
}

size_t v8_memory_of(const struct v8 *v)
{
	return sizeof(*v) + v->room_scripts * sizeof(*v->scripts) + uw_hash_memory(&v->by_address) +
	       v->room_ends * sizeof(*v->ends) + v->room_texts + calls_seen_memory(&v->seen) +
	       calls_writer_memory(&v->writer) + hotspot_memory_size(&v->memory);
}

bool v8_is_of(const struct v8 *v, const uint64_t exports[V8_VALUES])
{
	return !memcmp(v->exports, exports, sizeof(v->exports));
}

/* Read the numbers. Those of a sound V8 are small. */
static bool read_values(struct v8 *v)
{
	if (v->has_values || v->is_other)
		return v->has_values;
	v->has_streams = true;
	for (size_t i = 0; i < V8_VALUES; i++) {
		uint64_t value;

		v->has_streams &= v->exports[i] || i >= V8_STREAMS;
		if (!v->exports[i])
			continue;
		if (!hotspot_get_number(&v->memory, v->exports[i], 4, &value))
			return false;
		v->value[i] = (int32_t)value;
		v->is_other |=
			v->value[i] > 8192 || v->value[i] < (i >= V8_FUNCTION_CONTEXT ? 0 : -256);
	}
	v->is_other |= v->value[V8_TAGGED_SIZE] != 8 || v->value[V8_FP_CONTEXT] != -8 ||
		       v->value[V8_FP_FUNCTION] >= -8 || v->value[V8_FP_FUNCTION] % 8 ||
		       v->value[V8_FP_BYTECODE] >= -8 || v->value[V8_FP_BYTECODE] % 8;
	v->has_values = !v->is_other;
	/* Numbers that are not exported are 0. */
	if (v->value[V8_TYPE_BYTES] && v->value[V8_TYPE_CODE] && v->value[V8_BYTECODE_DATA] &&
	    v->value[v->has_streams ? V8_STREAM_START : V8_CODE_START])
		v->version = v8_deopt_version_of(v->value[V8_MAJOR], v->value[V8_MINOR]);
	if (v->version && !v->has_streams) {
		v->value[V8_CODE_DEOPT] = v->value[V8_CODE_BYTECODE] = v->version->code_deopt;
		v->value[V8_ARRAY_DATA] = v->version->array_data;
		v->value[V8_DEOPT_SHARED] = v->version->deopt_shared;
	}
	return v->has_values;
}

/* ---- objects ---------------------------------------------------------------------------------- */

/* Read the field at an offset of an object. */
static bool get_field(struct v8 *v, uint64_t object, int32_t off, uint64_t *out)
{
	return hotspot_get_number(&v->memory, object - 1 + (uint64_t)off, 8, out);
}

/* Return an object's type, or -1. */
static int32_t type_of(struct v8 *v, uint64_t object)
{
	uint64_t map, type;

	if (!v8_is_object(object) || !get_field(v, object, 0, &map) || !v8_is_object(map) ||
	    !hotspot_get_number(&v->memory, map - 1 + (uint64_t)v->value[V8_MAP_TYPE], 2, &type))
		return -1;
	return (int32_t)type;
}

/* A string that is one piece of memory. */
struct flat {
	uint64_t at; /* of its characters */
	uint32_t length;
	bool two_bytes;
};

/*
 * Find the memory of a string. A string that was joined of two and not yet written in one piece has none, but
 * its first part has; V8 writes the source of a script in one piece before it compiles it.
 */
static bool find_flat(struct v8 *v, uint64_t string, struct flat *out)
{
	uint64_t skip = 0, n = UINT64_MAX, length, word;

	for (unsigned int depth = 0; depth < DEPTH_MAX; depth++) {
		int32_t type = type_of(v, string), next;

		if (type < 0 || type >= v->value[V8_TYPE_NO_STRING] ||
		    !hotspot_get_number(&v->memory,
					string - 1 + (uint64_t)v->value[V8_STRING_LENGTH], 4,
					&length))
			return false;
		n = length < n ? length : n;
		out->two_bytes = !(type & STRING_ONE_BYTE);
		out->length = (uint32_t)n;
		switch (type & STRING_KIND) {
		case STRING_SEQUENTIAL:
			out->at = string - 1 + (uint64_t)v->value[V8_STRING_CHARS];
			out->at += skip << out->two_bytes;
			return true;
		case STRING_EXTERNAL:
			/* Behind the resource, where its characters are. */
			if (type & STRING_UNCACHED ||
			    !get_field(v, string, v->value[V8_EXTERNAL_RESOURCE] + 8, &out->at))
				return false;
			out->at += skip << out->two_bytes;
			return true;
		case STRING_CONS:
			next = v->value[V8_CONS_FIRST];
			break;
		case STRING_THIN:
			next = v->value[V8_THIN_ACTUAL];
			break;
		case STRING_SLICED:
			if (!get_field(v, string, v->value[V8_SLICED_OFFSET], &word))
				return false;
			skip += word >> 32;
			next = v->value[V8_SLICED_PARENT];
			break;
		default:
			return false;
		}
		if (!get_field(v, string, next, &string))
			return false;
	}
	return false;
}

/* Append a character in UTF-8; characters that take two units become '?'. */
static size_t put_char(char *to, uint16_t c)
{
	if (c < 0x80) {
		to[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		to[0] = (char)(0xc0 | c >> 6);
		to[1] = (char)(0x80 | (c & 63));
		return 2;
	}
	if (c >= 0xd800 && c < 0xe000) {
		to[0] = '?';
		return 1;
	}
	to[0] = (char)(0xe0 | c >> 12);
	to[1] = (char)(0x80 | (c >> 6 & 63));
	to[2] = (char)(0x80 | (c & 63));
	return 3;
}

/* Read a flat string in UTF-8. Return its length; 0: empty or unreadable. It is cut at the room of out. */
static size_t read_flat(struct v8 *v, const struct flat *f, char out[NAME_MAX_BYTES])
{
	uint8_t units[2 * NAME_MAX_BYTES];
	size_t n = f->length < NAME_MAX_BYTES ? f->length : NAME_MAX_BYTES, size = 0;

	if (!hotspot_get(&v->memory, f->at, units, n << f->two_bytes))
		return 0;
	for (size_t i = 0; i < n && size < NAME_MAX_BYTES - 4; i++)
		size += put_char(out + size, f->two_bytes
						     ? (uint16_t)uw_bytes_little_n(units + 2 * i, 2)
						     : units[i]);
	out[size] = 0;
	return size;
}

/* Read a string, with all that it was joined of, up to a limit. Return its length; 0: empty or unreadable. */
static size_t read_string(struct v8 *v, uint64_t string, char out[NAME_MAX_BYTES])
{
	uint64_t todo[DEPTH_MAX] = { string }, first, second;
	char part[NAME_MAX_BYTES];
	size_t n = 1, size = 0, more;
	struct flat flat;

	for (unsigned int i = 0; i < PARTS_MAX && n && size < NAME_MAX_BYTES - 1; i++) {
		uint64_t next = todo[--n];
		int32_t type = type_of(v, next);

		if (type >= 0 && type < v->value[V8_TYPE_NO_STRING] &&
		    (type & STRING_KIND) == STRING_CONS && n + 2 <= DEPTH_MAX &&
		    get_field(v, next, v->value[V8_CONS_FIRST], &first) &&
		    get_field(v, next, v->value[V8_CONS_SECOND], &second)) {
			todo[n++] = second;
			todo[n++] = first;
			continue;
		}
		if (!find_flat(v, next, &flat))
			break;
		more = read_flat(v, &flat, part);
		if (more > NAME_MAX_BYTES - 1 - size)
			more = NAME_MAX_BYTES - 1 - size;
		memcpy(out + size, part, more);
		size += more;
	}
	out[size] = 0;
	return size;
}

/* ---- scripts ---------------------------------------------------------------------------------- */

static uint32_t keep(struct v8 *v, const char *text, size_t n)
{
	uint32_t at = (uint32_t)v->n_texts;

	if (UW_ARRAY_RESERVE(v->texts, v->n_texts + n + 1, v->room_texts,
			     SCRIPTS_MAX * NAME_MAX_BYTES))
		return 0;
	memcpy(v->texts + at, text, n);
	v->texts[at + n] = 0;
	v->n_texts += n + 1;
	return at;
}

/* Read where the lines of a script end. What is beyond SOURCE_MAX has no lines. */
static void read_ends(struct v8 *v, const struct flat *source, struct script *s)
{
	unsigned int width = source->two_bytes ? 2 : 1;
	uint32_t n = source->length < SOURCE_MAX / width ? source->length : SOURCE_MAX / width;
	uint8_t piece[HOTSPOT_PAGE];

	s->ends = (uint32_t)v->n_ends;
	for (uint32_t at = 0; at < n;) {
		uint32_t some =
			n - at < sizeof(piece) / width ? n - at : (uint32_t)sizeof(piece) / width;

		if (!hotspot_get(&v->memory, source->at + (uint64_t)at * width, piece,
				 some * width))
			return;
		for (uint32_t i = 0; i < some; i++) {
			if (piece[i * width] != '\n' || (width == 2 && piece[i * 2 + 1]))
				continue;
			if (UW_ARRAY_GROW(v->ends, v->n_ends, v->room_ends, ENDS_MAX))
				return;
			v->ends[v->n_ends++] = at + i;
			s->n_ends++;
		}
		at += some;
		s->n_read = at;
	}
}

/* Return the script at this address, read or cached; borrowed until the next call. NULL: it cannot be read. */
static const struct script *script_of(struct v8 *v, uint64_t at)
{
	uint32_t i = UW_HASH_FIND(k, &v->by_address, hash_u64(0, at), v->scripts[k].at == at);
	struct script new = { .at = at };
	char name[NAME_MAX_BYTES];
	uint64_t field;
	struct flat source;
	const char *path = name;
	size_t n;

	if (!get_field(v, at, v->value[V8_SCRIPT_SOURCE], &field) || !find_flat(v, field, &source))
		source.length = 0;
	if (i != UW_HASH_NONE && v->scripts[i].length == source.length)
		return &v->scripts[i];
	if (v->n_scripts >= SCRIPTS_MAX || v->n_ends >= ENDS_MAX - SOURCE_MAX / 8) {
		uw_hash_clear(&v->by_address);
		v->n_scripts = v->n_ends = 0;
		v->n_texts = 1;
		i = UW_HASH_NONE;
	}
	new.length = source.length;
	n = get_field(v, at, v->value[V8_SCRIPT_NAME], &field) ? read_string(v, field, name) : 0;
	if (n > 7 && !memcmp(name, "file://", 7)) {
		path += 7;
		n -= 7;
	}
	if (n)
		new.name = keep(v, path, n);
	if (source.length)
		read_ends(v, &source, &new);
	if (v->memory.over)
		return NULL;
	if (i == UW_HASH_NONE) {
		if (array_grow(v->scripts, v->n_scripts, v->room_scripts) ||
		    uw_hash_add(&v->by_address, hash_u64(0, at), (uint32_t)v->n_scripts))
			return NULL;
		i = (uint32_t)v->n_scripts++;
	}
	v->scripts[i] = new;
	return &v->scripts[i];
}

/* Return the line of a position; 0: not known. */
static uint32_t line_of(const struct v8 *v, const struct script *s, uint32_t position)
{
	uint32_t low = 0, high = s->n_ends;

	if (position >= s->n_read)
		return 0;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (v->ends[s->ends + middle] < position)
			low = middle + 1;
		else
			high = middle;
	}
	return low + 1;
}

/* ---- functions -------------------------------------------------------------------------------- */

/*
 * Read a function's name and where it begins and ends in its script. A ScopeInfo has first the numbers of parameters and
 * of locals, the locals' names and properties; then the function's name and a number, unless the function has no
 * name; the name that was inferred from where it is assigned; and the positions where it begins and ends. What
 * is there depends on flags, so the first strings and numbers that fit are taken.
 */
static bool read_scope(struct v8 *v, uint64_t scope, char out[NAME_MAX_BYTES], uint32_t *position,
		       uint32_t *end)
{
	uint64_t base = scope - 1 + 8, locals, words[10], at;
	uint8_t bytes[sizeof(words)];
	size_t n = 0;

	*position = *end = UINT32_MAX;
	*out = 0;
	if (!hotspot_get_number(&v->memory, base + 8 * (uint64_t)v->value[V8_SCOPE_LOCALS], 8,
				&locals) ||
	    locals & UINT32_MAX || locals >> 32 > LOCALS_MAX)
		return false;
	locals >>= 32;
	/* The names of many locals are in a table of their own. */
	at = base + 8 * (uint64_t)v->value[V8_SCOPE_FIRST] +
	     8 * (locals < 75 ? 2 * locals : 1 + locals);
	if (!hotspot_get(&v->memory, at, bytes, sizeof(bytes)))
		return false;
	for (size_t i = 0; i < 10; i++)
		words[i] = uw_bytes_little_n(bytes + 8 * i, 8);
	for (size_t i = 0; i < 10 && (!n || *position == UINT32_MAX); i++) {
		bool string = type_of(v, words[i]) >= 0 &&
			      type_of(v, words[i]) < v->value[V8_TYPE_NO_STRING];

		if (string && !n)
			n = read_string(v, words[i], out);
		/* Two numbers, one behind the other and not beyond it; the one behind a name is -1. */
		if (i + 1 < 10 && !(words[i] & UINT32_MAX) && !(words[i + 1] & UINT32_MAX) &&
		    words[i + 1] >> 32 >= words[i] >> 32 && words[i + 1] >> 63 == 0) {
			*position = (uint32_t)(words[i] >> 32);
			*end = (uint32_t)(words[i + 1] >> 32);
		}
		if (*position != UINT32_MAX)
			break;
	}
	return true;
}

/* The words of a frame. */
struct frame {
	uint64_t context, function, bytecode, pc;
	/* In V8's code for an operation: the pc, or that of the frame which it called. */
	uint64_t here;
	/* V8's table of such code, if the thread was interrupted there; else 0. */
	uint64_t handlers;
	/* Behind the bytecode: where in it interpreted code is; baseline code has its feedback there. */
	uint64_t place;
};

/* Return whether code leads to its function, so that no function in a frame is needed. */
static bool has_code(const struct v8 *v)
{
	return v->has_streams || v->version;
}

/*
 * Find the Code around a pc, and how far the pc is from its first instruction. Code is in an InstructionStream, whose first
 * words are its map and its Code; before V8 11, it is in the Code itself.
 */
static bool find_code(struct v8 *v, uint64_t pc, uint64_t *found, uint64_t *off)
{
	int32_t type = v->value[v->has_streams ? V8_TYPE_STREAM : V8_TYPE_CODE];
	uint64_t at = pc & ~UINT64_C(7), word, code, start, size;
	uint64_t begin = UINT64_MAX; /* of what was read: nothing */
	uint8_t piece[PIECE_MAX];

	for (size_t i = 0; i < CODE_MAX / 8 && at > CODE_MAX; i++, at -= 8) {
		if (at < begin) {
			begin = at & ~(uint64_t)(PIECE_MAX - 1);
			if (!hotspot_get(&v->memory, begin, piece, at + 8 - begin))
				return false;
		}
		word = uw_bytes_little_n(piece + (at - begin), 8);
		if (!v8_is_object(word) || (v->code_map && word != v->code_map) ||
		    type_of(v, at + 1) != type)
			continue;
		v->code_map = word;
		code = at + 1;
		if (v->has_streams &&
		    (!get_field(v, at + 1, 8, &code) || type_of(v, code) != v->value[V8_TYPE_CODE]))
			return false;
		start = at + (uint64_t)v->value[v->has_streams ? V8_STREAM_START : V8_CODE_START];
		*off = pc - start;
		/* What is behind its instructions is no part of it. */
		if (v->version &&
		    (pc < start ||
		     !hotspot_get_number(&v->memory, code - 1 + (uint64_t)v->version->code_size, 4,
					 &size) ||
		     *off > size))
			return false;
		*found = code;
		return true;
	}
	return false;
}

/* Find the data for leaving optimized code; of the baseline compiler's code, its bytecode is there. */
static bool find_data(struct v8 *v, uint64_t pc, uint64_t *code, uint64_t *data, uint64_t *off)
{
	return find_code(v, pc, code, off) && get_field(v, *code, v->value[V8_CODE_DEOPT], data) &&
	       v8_is_object(*data);
}

/* Find a function's bytecode, by its SharedFunctionInfo, which may have its baseline code. Look at its type before use. */
static bool bytecode_of(struct v8 *v, uint64_t shared, uint64_t *bytecode)
{
	if (!get_field(v, shared, v->value[V8_SHARED_DATA], bytecode))
		return false;
	return !has_code(v) || type_of(v, *bytecode) != v->value[V8_TYPE_CODE] ||
	       get_field(v, *bytecode, v->value[V8_CODE_BYTECODE], bytecode);
}

/* Return whether a function, by its SharedFunctionInfo, has this bytecode; it may be that of its baseline code. */
static bool has_bytecode(struct v8 *v, uint64_t shared, uint64_t bytecode)
{
	uint64_t data;

	return bytecode_of(v, shared, &data) && data == bytecode;
}

/* Return whether a context is another one or within it: a function can make contexts of its own. */
static bool is_context_within(struct v8 *v, uint64_t context, uint64_t other)
{
	for (unsigned int i = 0; i < CONTEXTS_MAX; i++) {
		if (context == other)
			return true;
		/* Its elements are behind its map and its length. */
		if (!v8_is_object(context) ||
		    !get_field(v, context, 16 + 8 * v->value[V8_CONTEXT_PREVIOUS], &context))
			return false;
	}
	return false;
}

/* Return whether a function has baseline code instead of bytecode. */
static bool has_baseline(struct v8 *v, uint64_t shared)
{
	uint64_t data;
	int32_t type =
		get_field(v, shared, v->value[V8_SHARED_DATA], &data) ? type_of(v, data) : -1;

	return type >= 0 && type != v->value[V8_TYPE_BYTECODE];
}

/*
 * Find the SharedFunctionInfo of a frame that has bytecode, or whose code does not lead to it: of the function in the
 * frame, if that is still the one of the sample.
 */
static bool shared_of_frame(struct v8 *v, const struct frame *f, bool bytecode, uint64_t *shared)
{
	uint64_t data;

	/* Baseline code has its feedback in the next slot, which does not move, and has the function, too. */
	for (int32_t i = 1;
	     bytecode && v->has_streams && v8_is_object(f->place) && i < FEEDBACK_WORDS; i++)
		if (get_field(v, f->place, 8 * i, shared) &&
		    type_of(v, *shared) == v->value[V8_TYPE_SHARED])
			return has_bytecode(v, *shared, f->bytecode);
	if (!get_field(v, f->function, v->value[V8_FUNCTION_SHARED], shared) ||
	    type_of(v, *shared) != v->value[V8_TYPE_SHARED])
		return false;
	if (bytecode && (has_code(v) || !has_baseline(v, *shared)))
		return has_bytecode(v, *shared, f->bytecode);
	return get_field(v, f->function, v->value[V8_FUNCTION_CONTEXT], &data) &&
	       is_context_within(v, f->context, data);
}

#define NO_PLACE INT32_MIN /* in bytecode */

/* Find the table of positions of bytecode. V8 makes one when an error needs it. */
static bool find_positions(struct v8 *v, uint64_t bytecode, uint64_t *table)
{
	return v->version && type_of(v, bytecode) == v->value[V8_TYPE_BYTECODE] &&
	       get_field(v, bytecode, v->version->bytecode_positions, table) &&
	       type_of(v, *table) == v->value[V8_TYPE_BYTES];
}

/* Find where in its script a function is that runs. False: it is not known. */
static bool find_position(struct v8 *v, const struct v8_inlined *f, uint32_t *out)
{
	uint64_t bytecode, table;

	if (f->has_position) {
		*out = f->position - 1;
		return f->position != 0;
	}
	return f->offset != NO_PLACE && bytecode_of(v, f->shared, &bytecode) &&
	       find_positions(v, bytecode, &table) &&
	       v8_position_find(&v->memory, table, f->offset, out);
}

/*
 * Find out what a function is called and where it is, and add it to the frame that was begun last. The name of one of
 * V8's own functions is in the place of its scope.
 */
static bool write_function(struct v8 *v, const struct v8_inlined *f, int *err)
{
	uint64_t script, scope;
	uint32_t position, end, now;
	char name[NAME_MAX_BYTES];
	struct call call = { .function = name };
	const struct script *s;

	if (type_of(v, f->shared) != v->value[V8_TYPE_SHARED] ||
	    !get_field(v, f->shared, v->value[V8_SHARED_NAME], &scope))
		return false;
	if (f->is_builtin) {
		if (!read_string(v, scope, name))
			return false;
	} else {
		if (!get_field(v, f->shared, v->value[V8_SHARED_SCRIPT], &script) ||
		    type_of(v, script) != v->value[V8_TYPE_SCRIPT] ||
		    type_of(v, scope) != v->value[V8_TYPE_SCOPE] ||
		    !read_scope(v, scope, name, &position, &end))
			return false;
		if (!*name)
			strcpy(name, "(anonymous)");
		s = script_of(v, script);
		if (!s)
			return false;
		call.file = s->name ? v->texts + s->name : NULL;
		call.line = call.start_line = line_of(v, s, position);
		if (find_position(v, f, &now) && now >= position && now <= end &&
		    line_of(v, s, now))
			call.line = line_of(v, s, now);
	}
	if (v->memory.over)
		return false;
	*err = calls_add(&v->writer, &call);
	return !*err;
}

/* Write the functions of a frame down; they are given the outermost first. */
static bool write_functions(struct v8 *v, const uint64_t key[2], const struct v8_inlined *f,
			    size_t n, int *err)
{
	*err = calls_frame(&v->writer, key[0], key[1]);
	while (!*err && n > 0)
		if (!write_function(v, &f[--n], err)) {
			/* It was dropped already if the blob is full. */
			if (!*err)
				calls_drop(&v->writer);
			return false;
		}
	return !*err;
}

/* Find the place in its bytecode at which the baseline compiler's code of a frame is. */
static bool find_place(struct v8 *v, const struct frame *f, int32_t *place)
{
	uint64_t code, off, bytecode, table;

	return find_code(v, f->pc, &code, &off) &&
	       get_field(v, code, v->value[V8_CODE_BYTECODE], &bytecode) &&
	       bytecode == f->bytecode && get_field(v, code, v->version->code_places, &table) &&
	       type_of(v, table) == v->value[V8_TYPE_BYTES] &&
	       v8_baseline_find(&v->memory, v->version, table, bytecode, v->value[V8_BYTECODE_DATA],
				off, place);
}

/*
 * Read the table of the code for operations, from where a register may point to. Which code that is does not change, and all
 * threads have the same.
 */
static bool read_handlers(struct v8 *v, uint64_t table, uint64_t pc)
{
	uint8_t bytes[sizeof(v->handlers)];

	if (v->has_handlers)
		return true;
	if (!table || table % 8 || !hotspot_get(&v->memory, table, bytes, sizeof(bytes)))
		return false;
	v->first_handler = UINT64_MAX;
	for (size_t i = 0; i < HANDLERS; i++) {
		uint64_t at = v->handlers[i] = uw_bytes_little_n(bytes + 8 * i, 8);

		if (at && at - (pc - HANDLERS_MAX) > 2 * HANDLERS_MAX)
			return false;
		if (at && at < v->first_handler)
			v->first_handler = at;
	}
	return true;
}

/* Return whether a pc is in the code for an operation, which ends where that for another one begins. */
static bool is_handled(const struct v8 *v, int32_t operation, uint64_t pc)
{
	uint64_t start = v->handlers[operation];

	for (size_t i = 0; i < HANDLERS; i++)
		if (v->handlers[i] > start && v->handlers[i] <= pc)
			return false;
	return start && pc >= start;
}

/* Return whether a pc may be in the code for some operation. */
static bool may_be_handled(const struct v8 *v, uint64_t pc)
{
	return v->has_handlers && pc >= v->first_handler && pc - v->first_handler <= HANDLERS_MAX;
}

/*
 * Find out whether interpreted code is at a place in its bytecode: an operation begins there, whose code is at f->here. Its
 * stack has where it was before its last call, and its registers can have something else. They have the next place at the end of
 * an operation's code: *place is the operation's own then.
 */
static bool is_at(struct v8 *v, const struct frame *f, int32_t *place)
{
	struct v8_operation at, before;
	/* A return address can be behind the code. */
	uint64_t pc = f->handlers ? f->here : f->here - 1;

	if (!v->version ||
	    !v8_operations_at(&v->memory, v->version, f->bytecode, v->value[V8_BYTECODE_DATA],
			      *place, &at, &before) ||
	    !read_handlers(v, f->handlers, pc))
		return false;
	if (!is_handled(v, at.number, pc)) {
		if (!f->handlers || before.number < 0 || !is_handled(v, before.number, pc))
			return false;
		*place = before.place;
	}
	v->has_handlers = true;
	return true;
}

/* Return whether a key is of optimized code: its first word is a pc. */
static bool is_of_code(const uint64_t key[2])
{
	return key[1] == V8_KEY_PC || key[1] == V8_KEY_INTERRUPTED;
}

/*
 * Read which functions a frame runs, and write them down. place: where in its bytecode, or NO_PLACE. False: it is none, or
 * has moved. Objects that are about to move cannot be read, for as long as the thread that moves them may be kept from it. So
 * a frame gets no names without those of the calls that were inlined, if these are known (or the frame is), unless that lasts.
 */
static bool write_frame(struct v8 *v, const struct frame *f, const uint64_t key[2], int32_t place,
			bool known, bool lasts, int *err)
{
	bool bytecode = !is_of_code(key);
	struct v8_inlined all[V8_INLINED_MAX];
	uint64_t code, data, off, table;
	size_t n;

	v->is_part = false;
	if (bytecode || !has_code(v)) {
		if (key[1] == V8_KEY_BASELINE && !find_place(v, f, &place))
			return false;
		if ((key[1] & V8_KEY_KIND) == V8_KEY_HERE && !is_at(v, f, &place))
			return false;
		all[0] = (struct v8_inlined){ .offset = place };
		return shared_of_frame(v, f, bytecode, &all[0].shared) &&
		       write_functions(v, key, all, 1, err);
	}
	if (!find_data(v, f->pc, &code, &data, &off))
		return false;
	n = v->version ? v8_deopt_find(&v->memory, v->version, data, off, all) : 0;
	/* Calls after which V8 never leaves the code, and other places. A return address is behind its call. */
	if (!n && v->version && get_field(v, code, v->version->code_places, &table) &&
	    type_of(v, table) == v->value[V8_TYPE_BYTES])
		n = v8_positions_find(&v->memory, v->version, data, table,
				      key[1] == V8_KEY_PC ? off - 1 : off, all);
	if (n && write_functions(v, key, all, n, err))
		return true;
	if (*err || ((n || (known && v->version)) && !lasts))
		return false;
	/* Which calls were inlined is not known, but whose code it is. */
	v->is_part = v->version != NULL;
	all[0] = (struct v8_inlined){ .offset = NO_PLACE };
	return get_field(v, data, v->value[V8_ARRAY_DATA] + 8 * v->value[V8_DEOPT_SHARED],
			 &all[0].shared) &&
	       write_functions(v, key, all, 1, err);
}

/* ---- frames ----------------------------------------------------------------------------------- */

/* Return the word at an address of the stack that was captured, 0 if it was not. */
static uint64_t word_at(const struct calls_sample *s, uint64_t addr)
{
	uint64_t at = addr - s->addr;

	return at < s->size && s->size - at >= 8 ? uw_bytes_little_n(s->stack + at, 8) : 0;
}

static bool is_generated(const struct calls_sample *s, uint64_t pc)
{
	return !s->space || module_is_generated(uw_space_find(s->space, pc));
}

/*
 * Return whether a frame is one of interpreted code or of the baseline compiler's, and not of optimized code. Code that
 * interpreted code was replaced by in a loop still has the bytecode in its frame. What was found out is remembered.
 */
static bool runs_bytecode(struct v8 *v, const struct calls_sample *s, const struct frame *f)
{
	const uint64_t key[2] = { f->pc, f->bytecode };
	struct calls_seen_frame *seen;
	uint64_t code, data, off;
	bool is;

	if (!v8_is_object(f->bytecode))
		return false;
	seen = calls_seen_find(&v->seen, key);
	if (seen && s->now < seen->again_ns)
		return seen->known;
	is = !is_generated(s, f->pc) || (type_of(v, f->bytecode) == v->value[V8_TYPE_BYTECODE] &&
					 !(has_code(v) && find_data(v, f->pc, &code, &data, &off) &&
					   type_of(v, data) != v->value[V8_TYPE_BYTECODE]));
	seen = v->memory.over ? NULL : calls_seen_of(&v->seen, key);
	if (seen) {
		seen->pause_ns = longer_pause(seen->pause_ns, SOON_NS, LATE_NS);
		seen->again_ns = s->now + seen->pause_ns;
		seen->known = is;
	}
	return is;
}

/*
 * Look at a frame by its key, unless it was looked at not long ago. Return what is remembered of it then; NULL: nothing.
 */
static struct calls_seen_frame *look_at(struct v8 *v, const struct calls_sample *s,
					const struct frame *f, const uint64_t key[2], int32_t place,
					int *err)
{
	uint64_t words = hash_u64(hash_u64(hash_u64(key[1], f->function), f->bytecode), f->pc);
	struct failed *failed = &v->failed[words & (FAILED - 1)];
	struct calls_seen_frame *seen = calls_seen_find(&v->seen, key);
	uint64_t again_ns = seen ? seen->again_ns : 0, table;
	bool is_code = is_of_code(key), lasts;

	if (seen && seen->serial != (uint32_t)f->function)
		again_ns += CHANGED_NS - seen->pause_ns;
	if (s->now < again_ns || (failed->words == words && s->now < failed->again_ns))
		return seen;
	lasts = failed->words == words && failed->pause_ns == FAILED_NS;
	/* Without bytecode, only code that V8 compiled leads to a function: no builtin, and no C++. */
	if ((!is_code || is_generated(s, f->pc)) &&
	    write_frame(v, f, key, place, seen && seen->known, lasts, err)) {
		seen = calls_seen_of(&v->seen, key);
		if (!seen)
			return NULL;
		seen->pause_ns =
			v->is_part
				? longer_pause(seen->known ? 0 : seen->pause_ns, MOVED_NS, LATE_NS)
				: longer_pause(seen->pause_ns < SOON_NS ? 0 : seen->pause_ns,
					       SOON_NS, LATE_NS);
		seen->again_ns = s->now + seen->pause_ns;
		seen->serial = (uint32_t)f->function;
		seen->known = is_code ? !v->is_part : find_positions(v, f->bytecode, &table);
		return seen;
	}
	if (!v->memory.over) {
		failed->pause_ns = longer_pause(failed->words == words ? failed->pause_ns : 0,
						MOVED_NS, FAILED_NS);
		failed->words = words;
		failed->again_ns = s->now + failed->pause_ns;
	}
	return NULL;
}

/* Return the place in bytecode of a word as in a frame's slot: there it is counted from the object's tagged address. */
static int32_t place_of(const struct v8 *v, uint64_t word)
{
	return (int32_t)(word >> 32) - (v->value[V8_BYTECODE_DATA] - 1);
}

/* A frame by its frame pointer. */
struct place {
	uint64_t fp, pc;
	uint64_t called; /* the pc of the frame that it called; 0: not known */
};

/* Look for the line of interpreted code that called no other function of JavaScript. */
static void look_here(struct v8 *v, const struct calls_sample *s, struct frame *f,
		      const struct place *at, int *err)
{
	const uint64_t pcs[2] = { at->pc, at->called };

	for (size_t i = 0; i < 2 && !*err; i++) {
		bool now = pcs[i] == s->regs->value[UW_X86_64_RIP];
		uint64_t word = now ? v8_place_now(s->regs, f->bytecode) : f->place;
		const uint64_t key[2] = { f->bytecode, v8_key_here(word, pcs[i]) };

		f->here = pcs[i];
		f->handlers = now ? s->regs->value[UW_X86_64_R15] : 0;
		if (pcs[i] && key[1] && (now || may_be_handled(v, pcs[i])))
			(void)look_at(v, s, f, key, place_of(v, word), err);
	}
}

/* Look at what may be a frame. called: it has called one of JavaScript. Return whether it is one. */
static bool look(struct v8 *v, const struct calls_sample *s, const struct place *at, bool called,
		 int *err)
{
	const uint64_t fp = at->fp, pc = at->pc;

	struct frame f = { .context = word_at(s, fp + (uint64_t)(int64_t)v->value[V8_FP_CONTEXT]),
			   .function = word_at(s, fp + (uint64_t)(int64_t)v->value[V8_FP_FUNCTION]),
			   .bytecode = word_at(s, fp + (uint64_t)(int64_t)v->value[V8_FP_BYTECODE]),
			   .place =
				   word_at(s, fp + (uint64_t)(int64_t)v->value[V8_FP_BYTECODE] - 8),
			   .pc = pc };
	uint64_t key[2] = { pc, V8_KEY_PC };
	struct calls_seen_frame *seen;
	bool bytecode;

	if (pc == s->regs->value[UW_X86_64_RIP] && fp == s->regs->value[UW_X86_64_RBP])
		key[1] = V8_KEY_INTERRUPTED;
	if (!v8_is_object(f.context) || !v8_is_object(f.function))
		return false;
	bytecode = runs_bytecode(v, s, &f);
	if (bytecode) {
		key[0] = f.bytecode;
		key[1] = V8_KEY_BYTECODE;
	}
	seen = look_at(v, s, &f, key, NO_PLACE, err);
	/* known, of bytecode: V8 has its positions, so that each place in it has a line. */
	key[1] = v8_key_at(f.place);
	if (!bytecode || !seen || !seen->known || *err)
		return seen != NULL;
	if (key[1]) {
		(void)look_at(v, s, &f, key, place_of(v, f.place), err);
		if (!called)
			look_here(v, s, &f, at, err);
	} else if (is_generated(s, pc)) {
		key[0] = pc;
		key[1] = V8_KEY_BASELINE;
		(void)look_at(v, s, &f, key, NO_PLACE, err);
	}
	return true;
}

int v8_calls(struct v8 *v, uw_read_fn read, void *ctx, const struct calls_sample *s,
	     const void **bytes, size_t *size)
{
	struct calls_interpreter how = { .runtime = CALLS_V8, .reg = CALLS_NO_REG };
	/* Where the thread is, and then the last frame in V8's code for an operation. */
	struct place handled = { .fp = s->regs->value[UW_X86_64_RBP],
				 .pc = s->regs->value[UW_X86_64_RIP] };
	uint64_t innermost = 0; /* the frame of JavaScript that called no other */
	int err = 0;

	hotspot_memory_begin(&v->memory, read, ctx);
	if (!read_values(v))
		return -ENOENT;
	how.slots[0] = (int16_t)(v->value[V8_FP_FUNCTION] / 8);
	how.slots[1] = (int16_t)(v->value[V8_FP_BYTECODE] / 8);
	calls_begin(&v->writer);
	calls_seen_bound(&v->seen, SEEN_MAX);
	if (look(v, s, &handled, false, &err))
		innermost = handled.fp;
	/* A frame that was called has stored its caller's rbp below the return address. */
	for (uint64_t at = (s->addr + 7) & ~UINT64_C(7);
	     !err && !v->memory.over && at - s->addr < s->size; at += 8) {
		struct place next = { .fp = word_at(s, at), .pc = word_at(s, at + 8) };

		if (next.fp <= at || next.fp % 8 || next.fp - s->addr >= s->size)
			continue;
		next.called = at == handled.fp ? handled.pc : 0;
		/* What looks like a frame may be another word with the frame pointer of one. */
		if (look(v, s, &next, innermost && innermost != next.fp, &err) && !innermost)
			innermost = next.fp;
		/* What is below such a frame was left there by calls that have returned. */
		if (may_be_handled(v, next.pc) && at >= s->regs->value[UW_X86_64_RSP] &&
		    (at >= handled.fp || !may_be_handled(v, handled.pc)))
			handled = next;
	}
	if (err == -ENOMEM)
		return err;
	*bytes = calls_finish(&v->writer, &how, v->seen.forgot, size);
	if (!*bytes)
		return -EAGAIN;
	v->seen.forgot = false;
	return 0;
}
