/* agent/runtime/ruby.c: reads the stack of a Ruby thread, and the names of its frames. */
#include "agent/runtime/ruby.h"

#include "agent/runtime/interpreter.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Special values (include/ruby/internal/special_consts.h): anything else is an address. */
#define QNIL 8

/* RBasic.flags (include/ruby/internal/value_type.h, fl_type.h): the kind in five bits; what is above it. */
enum { KIND = 0x1f, KIND_CLASS = 2, KIND_MODULE = 3, KIND_STRING = 5, KIND_ARRAY = 7 };
enum { KIND_IMEMO = 0x1a, KIND_ICLASS = 0x1c };
enum { IMEMO_SHIFT = 12, IMEMO_MASK = 0xf, IMEMO_SVAR = 2, IMEMO_METHOD = 6 };
enum { CLASS_SINGLETON = 1 << 12 };
enum { STRING_HEAP = 1 << 13, STRING_SHIFT = 14, STRING_MASK = 0x1f };
enum { ARRAY_EMBEDDED = 1 << 13, ARRAY_SHIFT = 15, ARRAY_MASK = 0x3 };
enum {
	OBJECT_CLASS = 8,
	OBJECT_BODY = 16,
	STRING_POINTER = 24,
	ARRAY_POINTER = 32,
	SVAR_METHOD = 8
};

/* The words below an ep, and the flags in the word at it (vm_core.h). */
enum { ENV_METHOD = -16, ENV_PREVIOUS = -8, ENV_SIZE = 24 };
enum { ENV_LOCAL = 2, FRAME_FINISH = 0x20, FRAME_KIND = 0x7fff0001, FRAME_CFUNC = 0x55550001 };

/* The names of symbols are in arrays of this many pairs of name and symbol (symbol.c). */
enum { NAMES_EACH = 512 };
enum { ID_SHIFT = 4 };

/* The index of instructions with information (succ_index_table in iseq.c). */
enum { INDEX_NEAR = 54, INDEX_NEAR_EACH = 9, INDEX_FAR_EACH = 512, INDEX_FAR_SIZE = 80 };

#define CF_MAX		 128
#define WORDS_MAX	 (1u << 27)
#define SYMBOLS_MAX	 (1u << 28)
#define INSTRUCTIONS_MAX (1u << 26)
#define SCOPES_MAX	 32 /* blocks in blocks that are gone through to the method */
#define IVARS_MAX	 128

/* Offsets in the structures of Ruby's headers where pointers have 64 bits. */
static const struct ruby_layout layouts[] = {
	{ .major = 3,
	  .minor = 1,
	  .ec_stack = 0,
	  .ec_stack_words = 8,
	  .ec_cfp = 16,
	  .ec_size = 24,
	  .cf_pc = 0,
	  .cf_iseq = 16,
	  .cf_ep = 32,
	  .cf_size = 64,
	  .iseq_body = 16,
	  .iseq_n = 4,
	  .iseq_code = 8,
	  .iseq_path = 64,
	  .iseq_base_label = 72,
	  .iseq_label = 80,
	  .iseq_first_line = 88,
	  .info_table = 120,
	  .info_n = 136,
	  .info_index = 144,
	  .entry_size = 12,
	  .entry_line = 0,
	  .me_class = 8,
	  .me_definition = 16,
	  .definition_name = 32,
	  .class_ext = 24,
	  .ext_ivars = 8,
	  .ivars_start = 32,
	  .ivars_entries = 48,
	  .symbols_last = 0,
	  .symbols_names = 16,
	  .last_operator = 169 },
};

const struct ruby_layout *ruby_layout_of(unsigned int major, unsigned int minor)
{
	for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
		if (layouts[i].major == major && layouts[i].minor == minor)
			return &layouts[i];
	return NULL;
}

/* ---- the stack --------------------------------------------------------------------------------- */

/* An environment: which method it is of, or the environment around it; and flags. */
struct environment {
	uint64_t method, previous, flags;
};

static bool read_environment(struct runtime_memory *m, uint64_t ep, struct environment *out)
{
	uint8_t bytes[ENV_SIZE];

	if (!runtime_read(m, ep + (uint64_t)ENV_METHOD, bytes, sizeof(bytes)))
		return false;
	out->method = raw_number(bytes, 8);
	out->previous = raw_number(bytes + 8, 8) & ~UINT64_C(3);
	out->flags = raw_number(bytes + 16, 8);
	return true;
}

/*
 * Find what the environment of a method has for it. A block's environment leads to the one around it. Where
 * that was not captured, the method is not known.
 */
static uint64_t method_of(struct runtime_memory *m, struct environment e)
{
	for (unsigned int i = 0; i < SCOPES_MAX && !(e.flags & ENV_LOCAL); i++)
		if (!read_environment(m, e.previous, &e))
			return 0;
	return e.flags & ENV_LOCAL ? e.method : 0;
}

static bool add_frame(struct runtime_memory *m, const struct ruby_layout *l, const uint8_t *cf,
		      struct raw_stack *stack)
{
	uint64_t iseq = raw_number(cf + l->cf_iseq, 8), pc = raw_number(cf + l->cf_pc, 8);
	struct raw_frame frame = { .code = iseq, .at = pc };
	struct environment e;
	bool known = read_environment(m, raw_number(cf + l->cf_ep, 8), &e);

	if (known)
		frame.entry = e.flags & FRAME_FINISH;
	if (iseq && pc) {
		frame.owner = known ? method_of(m, e) : 0;
	} else if (known && (e.flags & FRAME_KIND) == FRAME_CFUNC) {
		frame.code = e.method;
		frame.at = 0;
	} else { /* the dummy at the stack's start, or C code that stands for a block */
		return true;
	}
	return !frame.code || raw_add(stack, &frame);
}

int ruby_stack(struct runtime_memory *m, const struct ruby_layout *l, uint64_t ec,
	       struct raw_stack *stack)
{
	uint8_t head[64], cf[CF_MAX];
	uint64_t start, words, end, at;

	if (!runtime_read(m, ec, head, l->ec_size))
		return -EFAULT;
	start = raw_number(head + l->ec_stack, 8);
	words = raw_number(head + l->ec_stack_words, 8);
	at = raw_number(head + l->ec_cfp, 8);
	if (words > WORDS_MAX || start > UINT64_MAX - 8 * words)
		return -EBADMSG;
	end = start + 8 * words;
	if (at < start || at > end || (end - at) % l->cf_size)
		return -EBADMSG;
	/* The outermost frame is only there to begin with. */
	for (; at < end && end - at > l->cf_size; at += l->cf_size) {
		if (!runtime_read(m, at, cf, l->cf_size))
			return -EFAULT;
		if (!add_frame(m, l, cf, stack))
			return -E2BIG;
	}
	return 0;
}

/*
 * Find the thread's execution context as __tls_get_addr does it: thread-local storage of glibc for 64 bits has, in
 * a vector (dtv) of 16 bytes for each module, where the module's block is (tls_index in dl-tls.h; psABI, TLS).
 */
enum { THREAD_DTV = 8, DTV_LOG2 = 4 };

void ruby_plan(const struct ruby_layout *l, uint64_t index, uint64_t base, struct plan *out)
{
	enum {
		END = PLAN_R0,
		EC = PLAN_R1,
		UNUSED = PLAN_R1,
		FRAME = PLAN_R2,
		LAST = PLAN_R3,
		EP = PLAN_R4,
		EP2 = PLAN_R5
	};
	enum { PAIR = 11, STOP = 15 };
	const int64_t env = ENV_METHOD, end = -(int64_t)l->cf_size;
	const struct plan_op ops[] = {
		{ .what = PLAN_LOAD, .src = PLAN_BASE, .imm = (int64_t)(index - base), .dst = END },
		{ .what = PLAN_LOAD, .src = PLAN_THREAD, .imm = THREAD_DTV, .dst = EC },
		{ .what = PLAN_ADD, .src = EC, .other = END, .size = DTV_LOG2, .dst = EC },
		{ .what = PLAN_LOAD, .src = EC, .dst = EC },
		{ .what = PLAN_LOAD,
		  .src = PLAN_BASE,
		  .imm = (int64_t)(index - base) + 8,
		  .dst = END },
		{ .what = PLAN_ADD, .src = EC, .other = END, .dst = EC },
		{ .what = PLAN_LOAD,
		  .src = EC,
		  .dst = EC,
		  .when = PLAN_ZERO,
		  .reg = EC,
		  .jump = STOP },
		{ .what = PLAN_COPY,
		  .src = EC,
		  .size = l->ec_size,
		  .dst = FRAME,
		  .at = (uint8_t)(l->ec_cfp / 8),
		  .dst2 = LAST,
		  .at2 = (uint8_t)(l->ec_stack_words / 8) },
		{ .what = PLAN_LOAD, .src = EC, .imm = l->ec_stack, .dst = END },
		{ .what = PLAN_ADD, .src = END, .other = LAST, .size = 3, .dst = END },
		{ .what = PLAN_ADD,
		  .src = END,
		  .imm = end,
		  .size = 64,
		  .dst = LAST,
		  .when = PLAN_EQUAL,
		  .reg = LAST,
		  .other = FRAME,
		  .jump = STOP },
		/* PAIR: two frames and their environments; the second one may be the outermost frame, which is not read. */
		{ .what = PLAN_COPY,
		  .src = FRAME,
		  .size = (uint16_t)(2 * l->cf_size),
		  .dst = EP,
		  .at = (uint8_t)(l->cf_ep / 8),
		  .dst2 = EP2,
		  .at2 = (uint8_t)((l->cf_size + l->cf_ep) / 8) },
		{ .what = PLAN_ADD,
		  .src = FRAME,
		  .imm = 2 * (int64_t)l->cf_size,
		  .size = 64,
		  .dst = FRAME },
		{ .what = PLAN_COPY,
		  .src = EP,
		  .imm = env,
		  .size = ENV_SIZE,
		  .dst = UNUSED,
		  .dst2 = UNUSED,
		  .when = PLAN_EQUAL,
		  .reg = FRAME,
		  .other = END,
		  .jump = STOP },
		{ .what = PLAN_COPY,
		  .src = EP2,
		  .imm = env,
		  .size = ENV_SIZE,
		  .dst = UNUSED,
		  .dst2 = UNUSED,
		  .when = PLAN_DIFFER,
		  .reg = FRAME,
		  .other = LAST,
		  .jump = PAIR },
		{ .what = PLAN_STOP },
	};

	raw_plan(out, ops, sizeof(ops) / sizeof(ops[0]));
}

/* ---- strings, arrays, symbols --------------------------------------------------------------------- */

static bool is_address(uint64_t value)
{
	return value > 0x1000 && !(value & 7);
}

/* Return the flags of an object, 0 if it is none. */
static uint64_t flags_of(struct raw_reader *r, uint64_t object)
{
	uint64_t flags;

	return is_address(object) && raw_get_number(r, object, 8, &flags) ? flags : 0;
}

static bool add_string(struct raw_reader *r, uint64_t string, struct raw_text *text)
{
	uint64_t flags = flags_of(r, string), size, at = string + OBJECT_BODY;

	if ((flags & KIND) != KIND_STRING)
		return false;
	if (!(flags & STRING_HEAP))
		return raw_text_get(text, r, at, flags >> STRING_SHIFT & STRING_MASK);
	return raw_get_number(r, at, 8, &size) &&
	       raw_get_number(r, string + STRING_POINTER, 8, &at) &&
	       raw_text_get(text, r, at, size);
}

static bool array_at(struct raw_reader *r, uint64_t array, uint64_t index, uint64_t *out)
{
	uint64_t flags = flags_of(r, array), size, at = array + OBJECT_BODY;

	if ((flags & KIND) != KIND_ARRAY)
		return false;
	if (flags & ARRAY_EMBEDDED)
		size = flags >> ARRAY_SHIFT & ARRAY_MASK;
	else if (!raw_get_number(r, at, 8, &size) ||
		 !raw_get_number(r, array + ARRAY_POINTER, 8, &at))
		return false;
	return index < size && index < SYMBOLS_MAX && raw_get_number(r, at + 8 * index, 8, out);
}

/* Add the name of an ID (rb_id2str). */
static bool add_symbol(struct raw_reader *r, const struct ruby_layout *l, uint64_t symbols,
		       uint64_t id, struct raw_text *text)
{
	uint64_t number = id > l->last_operator ? id >> ID_SHIFT : id, names, part, name;

	return symbols && number < SYMBOLS_MAX &&
	       raw_get_number(r, symbols + l->symbols_names, 8, &names) &&
	       array_at(r, names, number / NAMES_EACH, &part) &&
	       array_at(r, part, 2 * (number % NAMES_EACH), &name) && add_string(r, name, text);
}

/* ---- names ------------------------------------------------------------------------------------- */

/*
 * Find an instance variable of a class by its name. The table is a small one, so all entries are looked at. *id is
 * that of the name, once it was met; 0: not yet.
 */
static bool class_variable(struct raw_reader *r, const struct ruby_layout *l, uint64_t symbols,
			   uint64_t class, const char *wanted, uint64_t *id, uint64_t *out)
{
	struct raw_text name;
	uint64_t ext, table, start, end, entries, key;

	if (!raw_get_number(r, class + l->class_ext, 8, &ext) || !is_address(ext) ||
	    !raw_get_number(r, ext + l->ext_ivars, 8, &table) || !is_address(table) ||
	    !raw_get_number(r, table + l->ivars_start, 8, &start) ||
	    !raw_get_number(r, table + l->ivars_start + 8u, 8, &end) ||
	    !raw_get_number(r, table + l->ivars_entries, 8, &entries) || end < start)
		return false;
	for (uint64_t i = start; i < end && i - start < IVARS_MAX; i++) {
		uint64_t entry = entries + 24 * i; /* hash, key, value */

		if (!raw_get_number(r, entry + 8, 8, &key))
			return false;
		raw_text_clear(&name);
		if (!*id && add_symbol(r, l, symbols, key, &name) && !strcmp(name.bytes, wanted))
			*id = key;
		if (*id && key == *id)
			return raw_get_number(r, entry + 16, 8, out);
	}
	return false;
}

/*
 * Add the class of a method and what is between them: "Class#", or "Class." if it is a method of the class
 * itself. Nothing is added if the class has no name.
 */
static void add_class(struct raw_reader *r, const struct ruby_layout *l, struct ruby_known *known,
		      uint64_t class, struct raw_text *text)
{
	uint64_t flags = flags_of(r, class), name;
	const char *between = "#";

	if ((flags & KIND) == KIND_ICLASS) {
		if (!raw_get_number(r, class + OBJECT_CLASS, 8, &class))
			return;
		flags = flags_of(r, class);
	}
	if ((flags & KIND) == KIND_CLASS && flags & CLASS_SINGLETON) {
		if (!class_variable(r, l, known->symbols, class, "__attached__", &known->attached,
				    &class))
			return;
		flags = flags_of(r, class);
		between = ".";
	}
	if (((flags & KIND) != KIND_CLASS && (flags & KIND) != KIND_MODULE) ||
	    !class_variable(r, l, known->symbols, class, "__classpath__", &known->classpath,
			    &name) ||
	    !add_string(r, name, text))
		return;
	raw_text_word(text, between);
}

/* Return the method entry that an environment has, 0 if it has none (check_method_entry). */
static uint64_t method_entry(struct raw_reader *r, uint64_t value)
{
	uint64_t flags = flags_of(r, value);

	if ((flags & KIND) == KIND_IMEMO && (flags >> IMEMO_SHIFT & IMEMO_MASK) == IMEMO_SVAR) {
		if (!raw_get_number(r, value + SVAR_METHOD, 8, &value))
			return 0;
		flags = flags_of(r, value);
	}
	return (flags & KIND) == KIND_IMEMO && (flags >> IMEMO_SHIFT & IMEMO_MASK) == IMEMO_METHOD
		       ? value
		       : 0;
}

/* The name of a C function: that of its method. */
static int c_name(struct raw_reader *r, const struct ruby_layout *l, struct ruby_known *known,
		  const struct raw_frame *frame, struct raw_name *out)
{
	uint64_t method = method_entry(r, frame->code), class, definition, id;

	if (!method)
		return -EBADMSG;
	if (!raw_get_number(r, method + l->me_class, 8, &class) ||
	    !raw_get_number(r, method + l->me_definition, 8, &definition) ||
	    !raw_get_number(r, definition + l->definition_name, 8, &id))
		return -EFAULT;
	add_class(r, l, known, class, &out->function);
	return add_symbol(r, l, known->symbols, id, &out->function) ? 0 : -EFAULT;
}

/*
 * Return how many instructions with information there are up to the one at pos: the index of the entry that
 * holds for it, counted from 1 (succ_index_lookup). 0: it cannot be read.
 */
static uint64_t entry_of(struct raw_reader *r, uint64_t index, uint64_t pos)
{
	const unsigned int near = INDEX_NEAR / INDEX_NEAR_EACH * 8;
	uint64_t word, block, bit, ranks, rank;

	if (pos < INDEX_NEAR) {
		if (!raw_get_number(r, index + 8 * (pos / INDEX_NEAR_EACH), 8, &word))
			return 0;
		return word >> (7 * (pos % INDEX_NEAR_EACH)) & 0x7f;
	}
	block = index + near + (pos - INDEX_NEAR) / INDEX_FAR_EACH * INDEX_FAR_SIZE;
	bit = (pos - INDEX_NEAR) % INDEX_FAR_EACH;
	if (!raw_get_number(r, block, 4, &rank) || !raw_get_number(r, block + 8, 8, &ranks) ||
	    !raw_get_number(r, block + 16 + 8 * (bit / 64), 8, &word))
		return 0;
	if (bit / 64)
		rank += ranks >> (9 * (bit / 64 - 1)) & 0x1ff;
	return rank + (uint64_t)__builtin_popcountll(word << (63 - bit % 64));
}

/* Find the line of a pc, which is behind the instruction that runs (calc_pos). */
static void find_line(struct raw_reader *r, const struct ruby_layout *l, uint64_t body, uint64_t pc,
		      struct raw_name *out)
{
	uint64_t size, code, table, n, index, pos, entry = 1, line;

	if (!raw_get_number(r, body + l->iseq_n, 4, &size) ||
	    !raw_get_number(r, body + l->iseq_code, 8, &code) ||
	    !raw_get_number(r, body + l->info_table, 8, &table) ||
	    !raw_get_number(r, body + l->info_n, 4, &n) ||
	    !raw_get_number(r, body + l->info_index, 8, &index) || pc < code || !n ||
	    size > INSTRUCTIONS_MAX)
		return;
	pos = (pc - code) / 8;
	if (pos > size)
		return;
	if (pos)
		pos--;
	if (n > 1)
		entry = entry_of(r, index, pos);
	if (entry && entry <= n &&
	    raw_get_number(r, table + (entry - 1) * l->entry_size + l->entry_line, 4, &line))
		out->line = (uint32_t)line;
}

/*
 * Add a function's label with the class of its method: a label is the method's name, perhaps with
 * "block in " and the like before it.
 */
static int add_label(struct raw_reader *r, const struct ruby_layout *l, struct ruby_known *known,
		     uint64_t body, uint64_t method, struct raw_text *text)
{
	struct raw_text label, base;
	uint64_t at, class;
	size_t before = 0;

	raw_text_clear(&label);
	raw_text_clear(&base);
	if (!raw_get_number(r, body + l->iseq_label, 8, &at) || !add_string(r, at, &label))
		return -EFAULT;
	if (method && raw_get_number(r, body + l->iseq_base_label, 8, &at) &&
	    add_string(r, at, &base) && base.n <= label.n &&
	    !strcmp(label.bytes + label.n - base.n, base.bytes) &&
	    raw_get_number(r, method + l->me_class, 8, &class)) {
		before = label.n - base.n;
		raw_text_add(text, label.bytes, before);
		add_class(r, l, known, class, text);
	}
	raw_text_add(text, label.bytes + before, label.n - before);
	return 0;
}

int ruby_name(struct raw_reader *r, const struct ruby_layout *l, struct ruby_known *known,
	      const struct raw_frame *frame, struct raw_name *out)
{
	uint64_t flags, body, path, line;
	int err;

	raw_text_clear(&out->function);
	raw_text_clear(&out->file);
	out->line = out->start_line = 0;
	if (!frame->at)
		return c_name(r, l, known, frame, out);
	flags = flags_of(r, frame->code);
	if ((flags & KIND) != KIND_IMEMO)
		return -EBADMSG;
	if (!raw_get_number(r, frame->code + l->iseq_body, 8, &body))
		return -EFAULT;
	err = add_label(r, l, known, body, frame->owner ? method_entry(r, frame->owner) : 0,
			&out->function);
	if (err)
		return err;
	/* The path, or an array of the path as it was given and the real one. */
	if (raw_get_number(r, body + l->iseq_path, 8, &path) && !add_string(r, path, &out->file) &&
	    array_at(r, path, 0, &path))
		(void)add_string(r, path, &out->file);
	if (raw_get_number(r, body + l->iseq_first_line, 8, &line) && line & 1)
		out->start_line = (uint32_t)(line >> 1); /* a Fixnum */
	find_line(r, l, body, frame->at, out);
	if (!out->line)
		out->line = out->start_line;
	return 0;
}

/* ---- the table of symbols ------------------------------------------------------------------------- */

/* Return whether rb_symbols_t is at an address: its array has the name of the operator "+". */
static bool is_symbols(struct raw_reader *r, const struct ruby_layout *l, uint64_t addr)
{
	struct raw_text name;
	uint64_t last;

	raw_text_clear(&name);
	return raw_get_number(r, addr + l->symbols_last, 4, &last) && last > l->last_operator &&
	       last < SYMBOLS_MAX && add_symbol(r, l, addr, '+', &name) && !strcmp(name.bytes, "+");
}

uint64_t ruby_symbols(struct raw_reader *r, const struct ruby_layout *l, const uint8_t *code,
		      size_t size, uint64_t addr)
{
	/* mov disp32(%rip), %reg: REX.W (with or without R), 8b, mod 00 and r/m 101. */
	for (size_t i = 0; i + 7 <= size; i++) {
		uint64_t at;

		if ((code[i] & 0xfb) != 0x48 || code[i + 1] != 0x8b || (code[i + 2] & 0xc7) != 0x05)
			continue;
		at = addr + i + 7 + (uint64_t)(int64_t)(int32_t)raw_number(code + i + 3, 4);
		if (is_symbols(r, l, at - l->symbols_names))
			return at - l->symbols_names;
	}
	return 0;
}

/* ---- the runtime -------------------------------------------------------------------------------- */

enum { EXPORT_VERSION, EXPORT_LOOP, EXPORT_ID, EXPORT_EC_USER };

#define LOOP_CALLEE 8192 /* bytes that vm_exec_core has at least, which rb_vm_exec calls */

struct state {
	const struct ruby_layout *layout;
	uint8_t code[128]; /* where ruby_global_symbols is sought; its address */
	uint64_t code_at;
	struct ruby_known known;
};

/* libruby-3.1.so.3.1.2, libruby.so.3.1, ruby3.1 */
static bool is_named(const char *base)
{
	return !strncmp(base, "libruby", 7) || !strncmp(base, "ruby", 4);
}

static const struct ruby_layout *find_layout(const struct runtime_file *file)
{
	unsigned int major, minor;
	char version[8];

	if (uw_object_read(file->object, file->exports[EXPORT_VERSION] - file->bias, version,
			   sizeof(version)))
		return NULL;
	version[sizeof(version) - 1] = '\0';
	return sscanf(version, "%2u.%2u", &major, &minor) == 2 ? ruby_layout_of(major, minor)
							       : NULL;
}

/*
 * Read the code that uses ruby_global_symbols: rb_id2str ends with a jump to it. Without the jump it is
 * rb_id2str itself.
 */
static void read_code(struct state *s, const struct runtime_file *file)
{
	uint64_t at = file->exports[EXPORT_ID] - file->bias;

	if (!file->exports[EXPORT_ID] || uw_object_read(file->object, at, s->code, sizeof(s->code)))
		return;
	for (size_t i = 0; i < 48; i++) {
		uint8_t code[sizeof(s->code)];
		uint64_t to =
			at + i + 5 + (uint64_t)(int64_t)(int32_t)raw_number(s->code + i + 1, 4);

		if (s->code[i] == 0xe9 && !uw_object_read(file->object, to, code, sizeof(code))) {
			memcpy(s->code, code, sizeof(code));
			at = to;
			break;
		}
	}
	s->code_at = at + file->bias;
}

/*
 * Find where the file has the module and the offset of ruby_current_ec, which is in thread-local storage. rb_errinfo
 * begins to use them: data16 lea INDEX(%rip), %rdi; then it calls __tls_get_addr. Return 0 if it does not.
 */
static uint64_t find_index(const struct runtime_file *file)
{
	static const uint8_t lea[] = { 0x66, 0x48, 0x8d, 0x3d };
	uint64_t at = file->exports[EXPORT_EC_USER];
	uint8_t code[48];

	if (!at || uw_object_read(file->object, at - file->bias, code, sizeof(code)))
		return 0;
	for (size_t i = 0; i + 8 <= sizeof(code); i++)
		if (!memcmp(code + i, lea, sizeof(lea)))
			return at + i + 8 +
			       (uint64_t)(int64_t)(int32_t)raw_number(code + i + sizeof(lea), 4);
	return 0;
}

static int begin(struct interpreter *in, const struct runtime_file *file, struct plan *plan)
{
	struct state *s = interpreter_own(in);
	uint64_t index = find_index(file);

	if (!file->exports[EXPORT_VERSION] || !index)
		return -ENOTSUP;
	s->layout = find_layout(file);
	if (!s->layout)
		return -ENOTSUP;
	read_code(s, file);
	ruby_plan(s->layout, index, file->bias, plan);
	return 0;
}

/* The first slice is the beginning of the thread's execution context (ruby_plan). */
static int find_stack(struct interpreter *in, const struct runtime_stack *stack,
		      struct raw_stack *raw)
{
	const struct state *s = interpreter_own(in);
	uint64_t ec;
	int err = interpreter_first_slice(stack, &ec);

	return err ? err : ruby_stack(stack->memory, s->layout, ec, raw);
}

static int find_name(struct interpreter *in, struct raw_reader *r, const struct raw_frame *frame,
		     struct raw_name *out)
{
	struct state *s = interpreter_own(in);

	if (!s->known.symbols && s->code_at)
		s->known.symbols = ruby_symbols(r, s->layout, s->code, sizeof(s->code), s->code_at);
	return ruby_name(r, s->layout, &s->known, frame, out);
}

static const struct interpreter_kind kind = { .module = "[ruby]",
					      .own_size = sizeof(struct state),
					      .loop = EXPORT_LOOP,
					      .callee_size = LOOP_CALLEE,
					      .attach = begin,
					      .stack = find_stack,
					      .name = find_name };

static int attach(const struct runtime_file *file, void **state, struct plan *plan)
{
	return interpreter_attach(&kind, file, state, plan);
}

const struct runtime_ops runtime_ruby = { .module = "[ruby]",
					  .exports = { [EXPORT_VERSION] = "ruby_version",
						       [EXPORT_LOOP] = "rb_vm_exec",
						       [EXPORT_ID] = "rb_id2str",
						       [EXPORT_EC_USER] = "rb_errinfo" },
					  .is_named = is_named,
					  .attach = attach,
					  .detach = interpreter_detach,
					  .decode = interpreter_decode };
