/* agent/runtime/ruby_names.c: reads the names of a Ruby thread's frames. */
#include "agent/runtime/ruby.h"

#include "base/bytes.h"

#include <errno.h>
#include <string.h>

/* RBasic.flags (include/ruby/internal/value_type.h, fl_type.h): the kind in five bits; what is above it. */
enum { KIND = 0x1f, KIND_CLASS = 2, KIND_MODULE = 3, KIND_STRING = 5, KIND_ARRAY = 7 };
enum { KIND_IMEMO = 0x1a, KIND_ICLASS = 0x1c };
enum { IMEMO_SHIFT = 12, IMEMO_MASK = 0xf, IMEMO_SVAR = 2, IMEMO_METHOD = 6 };
enum { CLASS_SINGLETON = 1 << 12 };
enum { STRING_HEAP = 1 << 13, STRING_SHIFT = 14, STRING_MASK = 0x1f };
enum { ARRAY_EMBEDDED = 1 << 13, ARRAY_SHIFT = 15 };
enum {
	OBJECT_CLASS = 8,
	OBJECT_BODY = 16,
	STRING_POINTER = 24,
	ARRAY_POINTER = 32,
	SVAR_METHOD = 8
};

/* The names of symbols are in arrays of this many pairs of name and symbol (symbol.c). */
enum { NAMES_EACH = 512 };
enum { ID_SHIFT = 4 };

/* The index of instructions with information (succ_index_table in iseq.c). */
enum { INDEX_NEAR = 54, INDEX_NEAR_EACH = 9, INDEX_FAR_EACH = 512, INDEX_FAR_SIZE = 80 };

#define SYMBOLS_MAX	 (1u << 28)
#define INSTRUCTIONS_MAX (1u << 26)
#define IVARS_MAX	 128

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

static bool add_string(struct raw_reader *r, const struct ruby_layout *l, uint64_t string,
		       struct raw_text *text)
{
	uint64_t flags = flags_of(r, string), size, at = string + l->string_bytes;

	if ((flags & KIND) != KIND_STRING)
		return false;
	if (!(flags & STRING_HEAP) && l->string_bytes == OBJECT_BODY)
		return raw_text_get(text, r, at, flags >> STRING_SHIFT & STRING_MASK);
	return raw_get_number(r, string + OBJECT_BODY, 8, &size) &&
	       (!(flags & STRING_HEAP) || raw_get_number(r, string + STRING_POINTER, 8, &at)) &&
	       raw_text_get(text, r, at, size);
}

static bool array_at(struct raw_reader *r, const struct ruby_layout *l, uint64_t array,
		     uint64_t index, uint64_t *out)
{
	uint64_t flags = flags_of(r, array), size, at = array + OBJECT_BODY;

	if ((flags & KIND) != KIND_ARRAY)
		return false;
	if (flags & ARRAY_EMBEDDED)
		size = flags >> ARRAY_SHIFT & l->array_mask;
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
	       array_at(r, l, names, number / NAMES_EACH, &part) &&
	       array_at(r, l, part, 2 * (number % NAMES_EACH), &name) &&
	       add_string(r, l, name, text);
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

/* Find the object that a class of its own is attached to. */
static bool attached_object(struct raw_reader *r, const struct ruby_layout *l,
			    struct ruby_known *known, uint64_t class, uint64_t *out)
{
	return l->class_attached ? raw_get_number(r, class + l->class_attached, 8, out)
				 : class_variable(r, l, known->symbols, class, "__attached__",
						  &known->attached, out);
}

/* Find the name of a class. One that is in a class without a name has none for good. */
static bool class_name(struct raw_reader *r, const struct ruby_layout *l, struct ruby_known *known,
		       uint64_t class, uint64_t *out)
{
	uint64_t flags;

	return l->class_path ? raw_get_number(r, class + l->class_flags, 1, &flags) &&
				       flags & l->class_is_permanent &&
				       raw_get_number(r, class + l->class_path, 8, out)
			     : class_variable(r, l, known->symbols, class, "__classpath__",
					      &known->classpath, out);
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
		if (!attached_object(r, l, known, class, &class))
			return;
		flags = flags_of(r, class);
		between = ".";
	}
	if (((flags & KIND) != KIND_CLASS && (flags & KIND) != KIND_MODULE) ||
	    !class_name(r, l, known, class, &name) || !add_string(r, l, name, text))
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
	if (!raw_get_number(r, body + l->iseq_label, 8, &at) || !add_string(r, l, at, &label))
		return -EFAULT;
	if (method && raw_get_number(r, body + l->iseq_base_label, 8, &at) &&
	    add_string(r, l, at, &base) && base.n <= label.n &&
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
	if (raw_get_number(r, body + l->iseq_path, 8, &path) &&
	    !add_string(r, l, path, &out->file) && array_at(r, l, path, 0, &path))
		(void)add_string(r, l, path, &out->file);
	if (raw_get_number(r, body + l->iseq_first_line, l->first_line_size, &line))
		out->start_line = (uint32_t)(l->first_line_size == 8 ? line >> 1 : line);
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
		at = addr + i + 7 + (uint64_t)(int64_t)(int32_t)uw_bytes_little_n(code + i + 3, 4);
		if (is_symbols(r, l, at - l->symbols_names))
			return at - l->symbols_names;
	}
	return 0;
}
