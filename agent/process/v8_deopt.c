/* agent/process/v8_deopt.c: reads translations of V8's optimized code, and tables of places and positions. */
#include "agent/process/v8_deopt.h"

#include <string.h>

#define EXITS_MAX	16384u	     /* of one function's code */
#define OPERATIONS_MAX	20000u	     /* of one translation */
#define TRANSLATION_MAX (4u << 20)   /* bytes of one function's translations */
#define POSITIONS_MAX	(256u << 10) /* bytes of one function's table of positions */

/*
 * A position (src/codegen/source-position.h). Bit 0: not in a script; then where in its script it is, plus 1; then which of the
 * functions that were inlined it is in, plus 1.
 */
#define POSITION_MAX	 0x3fffffffu
#define POSITION_INLINED 31
#define POSITION_BITS	 47
#define INLINED_BYTES \
	16 /* of a function that was inlined: the position of the call, and which function it is */

/*
 * src/deoptimizer/translation-opcode.h of each version, in the order there, with WebAssembly. The numbers of operations
 * are those of the digits.
 */
static const struct v8_deopt_version versions[] = {
	/* node 18 */
	{ .major = 10,
	  .minor = 2,
	  .operands = "2103"
		      "1131311111"
		      "11115334"
		      "111112",
	  .begin = { 3, 3 },
	  .frame = { 18, 18 },
	  .builtin = { 19, 20 },
	  .other = { 0, 6, 8, 21 },
	  .again = -1,
	  .bytecodes = "000001234kl101000001331112111000a22231133133b3322233333d1222222222"
		       "22222222222222211110001114434542344klcc442222222211110cc01c0c2c122"
		       "220002111111111111111111111131224100001001343301100000000000000000",
	  .code_deopt = 16,
	  .code_size = 40,
	  .code_places = 24,
	  .bytecode_positions = 32,
	  .array_data = 16,
	  .deopt_shared = 6 },
	/* node 20 */
	{ .major = 11,
	  .minor = 3,
	  .operands = "1033"
		      "1131311111"
		      "2111111115"
		      "3334"
		      "01111121",
	  .begin = { 2, 3 },
	  .frame = { 23, 24 },
	  .builtin = { 25, 26 },
	  .other = { 6, 8, 14, 27 },
	  .again = 35,
	  .bytecodes = "000001234kl101000001331112111000a22231133133b33222333d3d2222222222"
		       "22222222222222111100011134434542344klcc442222222211110kc01c0c2c122"
		       "220003111111111111111111111131224100001001343301100000000000000000",
	  .code_deopt = 16,
	  .code_size = 56,
	  .code_places = 24,
	  .bytecode_positions = 32,
	  .array_data = 16,
	  .deopt_shared = 6 },
};

const struct v8_deopt_version *v8_deopt_version_of(int32_t major, int32_t minor)
{
	for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++)
		if (versions[i].major == major && versions[i].minor == minor)
			return &versions[i];
	return NULL;
}

/* ---- arrays ----------------------------------------------------------------------------------- */

/* Indexes in a DeoptimizationData (src/objects/code.h), the same in these versions. */
enum {
	DATA_TRANSLATIONS = 0,
	DATA_LITERALS = 2,
	DATA_INLINED = 7, /* where each function was inlined */
	DATA_EXITS = 8,	  /* where the code for leaving begins */
	DATA_EAGER = 9,	  /* how many exits of checks there are */
	DATA_LAZY = 10,	  /* and of calls, which are behind them */
	DATA_FIRST = 11,
	DATA_WORDS =
		3, /* of each exit: place in bytecode, translation, return address of the call */
	EXIT_BYTES = 4,	       /* of the code of an exit */
	BYTECODE_PREFIXES = 4, /* the first operations of bytecode */
	WIDE = 256,	       /* with a prefix, numbers begin here */
};

/* Read a small integer, which is in the high half of a word. */
static bool small_at(struct hotspot_memory *m, uint64_t addr, int32_t *out)
{
	uint64_t word;

	if (!hotspot_get_number(m, addr, 8, &word) || word & UINT32_MAX)
		return false;
	*out = (int32_t)(word >> 32);
	return true;
}

/* Arrays have a map, a length and then their elements. */
static uint64_t element(uint64_t array, size_t i)
{
	return array - 1 + 16 + 8 * i;
}

static bool length_of(struct hotspot_memory *m, uint64_t array, int32_t max, int32_t *out)
{
	return v8_is_object(array) && small_at(m, array - 1 + 8, out) && *out >= 0 && *out <= max;
}

/* ---- bytes ------------------------------------------------------------------------------------ */

/* Bytes of an array that are read one after the other. */
struct bytes {
	struct hotspot_memory *m;
	uint64_t at, end;
	bool bad; /* there was none any more, or it could not be read */
};

static uint8_t next_byte(struct bytes *b)
{
	uint8_t byte = 0;

	if (b->at >= b->end || !hotspot_get(b->m, b->at, &byte, 1))
		b->bad = true;
	b->at++;
	return b->bad ? 0 : byte;
}

/* Read a number of seven bits a byte, the lowest first. */
static uint64_t next_number(struct bytes *b)
{
	uint64_t value = 0;
	uint8_t byte = 0x80;

	for (unsigned int shift = 0; byte & 0x80 && shift < 63; shift += 7) {
		byte = next_byte(b);
		value |= (uint64_t)(byte & 0x7f) << shift;
	}
	b->bad |= byte >> 7;
	return value;
}

/* The number's sign is its lowest bit. */
static int64_t next_signed(struct bytes *b)
{
	uint64_t value = next_number(b);

	return value & 1 ? -(int64_t)(value >> 1) : (int64_t)(value >> 1);
}

/* ---- translations ----------------------------------------------------------------------------- */

/*
 * Operations are read in turn. In newer versions an operation can say that the next ones are those of another
 * translation, which is before it: from there as many are left out as were read here since the last such place.
 */
struct reader {
	const struct v8_deopt_version *version;
	struct bytes here, before;
	uint64_t n_before; /* operations that are still to be read from there, and one */
	uint32_t since;
	uint32_t work;
};

static unsigned int operands_of(const struct reader *r, uint8_t op)
{
	return op < strlen(r->version->operands) ? (unsigned int)(r->version->operands[op] - '0')
						 : 0;
}

static bool is_one_of(uint8_t op, const int8_t *ops, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (ops[i] == op)
			return true;
	return false;
}

static struct bytes *source_of(struct reader *r)
{
	return r->n_before ? &r->before : &r->here;
}

static void skip_operands(struct reader *r, struct bytes *from, uint8_t op)
{
	for (unsigned int n = operands_of(r, op); n > 0; n--)
		(void)next_number(from);
}

/* Read an operation where there are none of other translations. */
static uint8_t next_plain(struct reader *r, struct bytes *from)
{
	uint64_t op = r->version->again < 0 ? next_number(from) >> 1 : next_byte(from);

	if (op >= strlen(r->version->operands) || (int64_t)op == r->version->again)
		from->bad = true;
	return from->bad ? 0 : (uint8_t)op;
}

/* Begin a translation at its first operation; return whether it is one, with the operands behind it left to read. */
static bool begin(struct reader *r, uint64_t at)
{
	r->here.at = at;
	if (!is_one_of(next_plain(r, &r->here), r->version->begin, 2) || r->here.bad)
		return false;
	if (r->version->again >= 0) {
		uint64_t back = next_number(&r->here);

		r->before = r->here;
		r->before.at = back <= at ? at - back : 0;
		r->since = 1;
	}
	return true;
}

/* Read the next operation. Its operands are read from source_of then. */
static uint8_t next_operation(struct reader *r)
{
	const size_t n = strlen(r->version->operands);
	uint8_t op;

	r->work++;
	if (r->version->again < 0)
		return next_plain(r, &r->here);
	if (r->n_before && --r->n_before)
		return next_plain(r, &r->before);
	op = next_byte(&r->here);
	if (op < n && op != r->version->again) {
		r->since++;
		return op;
	}
	/* How many is in the number of the operation itself, if it is small. */
	r->n_before = op >= n ? op - n : next_number(&r->here);
	r->here.bad |= !r->n_before;
	for (; r->since && !r->before.bad && r->work < OPERATIONS_MAX; r->since--, r->work++)
		skip_operands(r, &r->before, next_plain(r, &r->before));
	return next_plain(r, &r->before);
}

/*
 * Read the frames of a translation. Its first operation has how many there are. literals: the array whose elements
 * they name.
 */
static size_t read_frames(struct reader *r, uint64_t literals, int32_t innermost,
			  struct v8_inlined out[V8_INLINED_MAX])
{
	const struct v8_deopt_version *v = r->version;
	int64_t frames = next_signed(&r->here), functions = next_signed(&r->here);
	int64_t last = 0;
	int32_t n_literals;
	size_t n = 0;

	/* The operands of the first operation are as many in each version. */
	if (v->again < 0)
		(void)next_signed(&r->here);
	if (frames < 1 || frames > 2 * V8_INLINED_MAX || functions < 1 ||
	    functions > V8_INLINED_MAX || !length_of(r->here.m, literals, INT32_MAX, &n_literals))
		return 0;
	while (frames && r->work < OPERATIONS_MAX && !r->here.bad && !r->before.bad) {
		uint8_t op = next_operation(r);
		bool is_frame = is_one_of(op, v->frame, 2),
		     is_builtin = is_one_of(op, v->builtin, 2);
		struct bytes *from = source_of(r);
		int64_t literal;

		if (is_one_of(op, v->begin, 2))
			return 0;
		if (!is_frame && !is_builtin && !is_one_of(op, v->other, 4)) {
			skip_operands(r, from, op);
			continue;
		}
		frames--;
		last = next_signed(from);
		literal = next_signed(from);
		for (unsigned int k = operands_of(r, op); k > 2; k--)
			(void)next_number(from);
		if (!is_frame && !is_builtin)
			continue;
		if (n >= V8_INLINED_MAX || literal < 0 || literal >= n_literals || last < -1 ||
		    last > INT32_MAX ||
		    !hotspot_get_number(r->here.m, element(literals, (size_t)literal), 8,
					&out[n].shared))
			return 0;
		out[n].is_builtin = is_builtin;
		out[n].has_position = false;
		out[n++].offset = (int32_t)last;
	}
	/* The exit has the place of the innermost frame, too. */
	if (frames || r->here.bad || r->before.bad || n != (uint64_t)functions || last != innermost)
		return 0;
	return n;
}

/* Find the exit of a return address. */
static bool exit_of(struct hotspot_memory *m, uint64_t data, uint64_t off, int32_t *exit)
{
	int32_t length, start, eager, lazy, low, high;

	if (!length_of(m, data, INT32_MAX, &length) || length < DATA_FIRST ||
	    !small_at(m, element(data, DATA_EXITS), &start) ||
	    !small_at(m, element(data, DATA_EAGER), &eager) ||
	    !small_at(m, element(data, DATA_LAZY), &lazy) || start < 0 || eager < 0 || lazy < 0 ||
	    eager > (int32_t)EXITS_MAX || lazy > (int32_t)EXITS_MAX ||
	    length != DATA_FIRST + DATA_WORDS * (eager + lazy))
		return false;
	low = eager;
	high = eager + lazy;
	/* Code that is to be left when the call returns has the exit itself as return address. */
	if (off >= (uint64_t)start && off - (uint64_t)start < (uint64_t)(EXIT_BYTES * high)) {
		*exit = (int32_t)(off - (uint64_t)start) / EXIT_BYTES;
		return (off - (uint64_t)start) % EXIT_BYTES == 0 && *exit >= eager;
	}
	/* They are in the order of their return addresses. */
	while (low < high) {
		int32_t middle = low + (high - low) / 2, at;

		if (!small_at(m, element(data, (size_t)(DATA_FIRST + DATA_WORDS * middle + 2)),
			      &at))
			return false;
		if (at >= 0 && (uint64_t)at == off) {
			*exit = middle;
			return true;
		}
		if (at < 0 || (uint64_t)at < off)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

size_t v8_deopt_find(struct hotspot_memory *m, const struct v8_deopt_version *version,
		     uint64_t data, uint64_t off, struct v8_inlined out[V8_INLINED_MAX])
{
	struct reader r = { .version = version, .here.m = m, .before.m = m };
	uint64_t translations, literals, shared;
	int32_t exit, innermost, index, length;
	size_t n;

	if (!exit_of(m, data, off, &exit) ||
	    !small_at(m, element(data, (size_t)(DATA_FIRST + DATA_WORDS * exit)), &innermost) ||
	    !small_at(m, element(data, (size_t)(DATA_FIRST + DATA_WORDS * exit + 1)), &index) ||
	    !hotspot_get_number(m, element(data, DATA_TRANSLATIONS), 8, &translations) ||
	    !hotspot_get_number(m, element(data, DATA_LITERALS), 8, &literals) ||
	    !hotspot_get_number(m, element(data, (size_t)version->deopt_shared), 8, &shared) ||
	    !length_of(m, translations, (int32_t)TRANSLATION_MAX, &length) || index < 0 ||
	    index >= length)
		return 0;
	r.here.end = element(translations, 0) + (uint64_t)length;
	if (!begin(&r, element(translations, 0) + (uint64_t)index) ||
	    (version->again >= 0 && r.before.at < element(translations, 0)))
		return 0;
	n = read_frames(&r, literals, innermost, out);
	/* The outermost frame is that of the code's own function. */
	return n && out[0].shared == shared && !out[0].is_builtin ? n : 0;
}

/* ---- baseline code ----------------------------------------------------------------------------- */

/*
 * Move behind an operation of bytecode, and return its number (struct v8_operation). It may have a prefix, by which its
 * operands take two or four bytes.
 */
static int32_t next_bytecode(const struct v8_deopt_version *v, struct bytes *code)
{
	uint8_t op = next_byte(code), kind;
	unsigned int width = 1, more = 0;

	if (op < BYTECODE_PREFIXES) {
		width = op % 2 ? 4 : 2;
		op = next_byte(code);
	}
	if (op >= strlen(v->bytecodes)) {
		code->bad = true;
		return -1;
	}
	kind = (uint8_t)v->bytecodes[op];
	if (kind >= 'a') {
		more = (kind - 'a') / 8u + 1;
		kind = (uint8_t)('0' + (kind - 'a') % 8);
	}
	code->at += (kind - '0') * width + more;
	code->bad |= code->at > code->end;
	return code->bad ? -1 : op + (int32_t)(width / 2) * WIDE;
}

/*
 * src/baseline/bytecode-offset-iterator.h: the table says how many bytes of code are before those of the first operation, and
 * then how many were made of each.
 */
bool v8_baseline_find(struct hotspot_memory *m, const struct v8_deopt_version *version,
		      uint64_t table, uint64_t bytecode, int32_t first, uint64_t off, int32_t *out)
{
	struct bytes b = { .m = m }, code = { .m = m };
	uint64_t begin = bytecode - 1 + (uint64_t)first, end;
	int32_t n_table, n_code, place = -1;

	if (!length_of(m, table, (int32_t)POSITIONS_MAX, &n_table) ||
	    !length_of(m, bytecode, (int32_t)POSITIONS_MAX, &n_code))
		return false;
	b.at = element(table, 0);
	b.end = b.at + (uint64_t)n_table;
	code.at = begin;
	code.end = begin + (uint64_t)n_code;
	/* A return address is behind its call: it is the end at most. */
	for (end = next_number(&b); end < off && !b.bad && !code.bad; end += next_number(&b)) {
		place = (int32_t)(code.at - begin);
		(void)next_bytecode(version, &code);
	}
	*out = place;
	return !b.bad && !code.bad;
}

bool v8_operations_at(struct hotspot_memory *m, const struct v8_deopt_version *version,
		      uint64_t bytecode, int32_t first, int32_t place, struct v8_operation *at,
		      struct v8_operation *before)
{
	struct bytes code = { .m = m };
	uint64_t begin = bytecode - 1 + (uint64_t)first;
	int32_t n;

	*at = (struct v8_operation){ .number = -1 };
	if (place < 0 || !length_of(m, bytecode, (int32_t)POSITIONS_MAX, &n) || place >= n)
		return false;
	code.at = begin;
	code.end = begin + (uint64_t)n;
	while (code.at <= begin + (uint64_t)place && !code.bad) {
		*before = *at;
		at->place = (int32_t)(code.at - begin);
		at->number = next_bytecode(version, &code);
	}
	return !code.bad && (at->place == place || (at->number >= WIDE && at->place == place - 1));
}

/* ---- positions -------------------------------------------------------------------------------- */

/*
 * Find the last entry of a table of positions that begins at a place or before it. src/codegen/source-position-table.cc: each
 * entry has two numbers, which are relative to those of the entry before: the place in the bytecode or code, whose sign only says
 * whether a statement begins there; and the position. Their signs are as in two's complement, moved to the lowest bit. False:
 * there is none.
 */
static bool entry_find(struct hotspot_memory *m, uint64_t table, int64_t place, uint64_t *out)
{
	struct bytes b = { .m = m };
	int64_t at = -1, position = 0, best = -1;
	int32_t length;

	if (!length_of(m, table, (int32_t)POSITIONS_MAX, &length))
		return false;
	b.at = element(table, 0);
	b.end = b.at + (uint64_t)length;
	while (b.at < b.end && !b.bad) {
		uint64_t more_place = next_number(&b), more = next_number(&b);

		at += (int64_t)(more_place >> 1);
		if (b.bad || at > place)
			break;
		position += (int64_t)(more >> 1) ^ -(int64_t)(more & 1);
		b.bad = position >> POSITION_BITS != 0; /* so that no sum is too large */
		best = position;
	}
	if (b.bad || best < 0 || best & 1)
		return false;
	*out = (uint64_t)best;
	return true;
}

bool v8_position_find(struct hotspot_memory *m, uint64_t table, int32_t offset, uint32_t *out)
{
	uint64_t entry;

	if (offset < -1 || !entry_find(m, table, offset, &entry) || entry >> POSITION_INLINED ||
	    entry < 2)
		return false;
	*out = (uint32_t)(entry >> 1) - 1;
	return true;
}

/* Return the function that a number of DeoptimizationData means: a literal, or -1, the function of the code. */
static bool function_of(struct hotspot_memory *m, const struct v8_deopt_version *version,
			uint64_t data, int32_t number, uint64_t *out)
{
	uint64_t literals;
	int32_t length;

	if (number == -1)
		return hotspot_get_number(m, element(data, (size_t)version->deopt_shared), 8, out);
	return number >= 0 && hotspot_get_number(m, element(data, DATA_LITERALS), 8, &literals) &&
	       length_of(m, literals, INT32_MAX, &length) && number < length &&
	       hotspot_get_number(m, element(literals, (size_t)number), 8, out);
}

size_t v8_positions_find(struct hotspot_memory *m, const struct v8_deopt_version *version,
			 uint64_t data, uint64_t positions, uint64_t off,
			 struct v8_inlined out[V8_INLINED_MAX])
{
	uint64_t entry, inlined, at, number;
	int32_t length, n_inlined;
	size_t n = 0;

	if (off > INT32_MAX || !length_of(m, data, INT32_MAX, &length) || length < DATA_FIRST ||
	    !hotspot_get_number(m, element(data, DATA_INLINED), 8, &inlined) ||
	    !length_of(m, inlined, (int32_t)POSITIONS_MAX, &n_inlined) ||
	    !entry_find(m, positions, (int64_t)off, &entry))
		return 0;
	/* The innermost function, then the one into which it was inlined, and where. */
	for (uint64_t last = UINT64_MAX; n < V8_INLINED_MAX; n++) {
		uint64_t i = entry >> POSITION_INLINED;

		memmove(out + 1, out, n * sizeof(*out));
		out[0] = (struct v8_inlined){ .has_position = true,
					      .position = (uint32_t)(entry >> 1 & POSITION_MAX) };
		if (!i)
			return function_of(m, version, data, -1, &out[0].shared) ? n + 1 : 0;
		if (i >= last || i * INLINED_BYTES > (uint64_t)n_inlined)
			return 0;
		last = i;
		at = element(inlined, 0) + (i - 1) * INLINED_BYTES;
		if (!hotspot_get_number(m, at, 8, &entry) || entry & 1 || entry >> POSITION_BITS ||
		    !hotspot_get_number(m, at + 8, 4, &number) ||
		    !function_of(m, version, data, (int32_t)number, &out[0].shared))
			return 0;
	}
	return 0;
}
