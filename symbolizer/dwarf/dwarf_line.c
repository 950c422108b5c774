/* symbolizer/dwarf/dwarf_line.c: runs line number programs, versions 2 to 5 (DWARF 5 §6.2). */
#include "symbolizer/dwarf/dwarf.h"

#include <dwarf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* The line program of a unit with a million lines has some 4 MB. */
#define PROGRAM_MAX ((uint64_t)256 << 20)
#define ROWS_MAX    ((size_t)16 << 20)
#define FORMATS_MAX 16

struct sequence { /* a sequence of rows */
	size_t first, past;
	uint64_t start, end;
};

struct program {
	const struct dw_file *file;
	struct dw_unit unit; /* sizes for reading the forms in the header */
	uint64_t off;	     /* offset of bytes in .debug_line */
	const uint8_t *bytes;
	struct dw_table *table;
	size_t room, room_files, room_folders;
	uint8_t min_inst, max_ops, line_range, opcode_base;
	int8_t line_base;
	uint8_t lengths[256];
	size_t first;		    /* first row of the current sequence */
	struct sequence *sequences; /* owned */
	size_t n_sequences, room_sequences;
	/* Addresses whose rows are wanted, ascending; NULL: all rows. */
	const uint64_t *wanted;
	size_t n_wanted, n_found;
	/* State of the current sequence: */
	size_t at;     /* index in wanted of the first address that the rows so far do not reach */
	uint64_t next; /* wanted[at] */
	struct dw_row before; /* the last row */
	bool begun;	      /* before is valid */
	bool unordered;	      /* addresses decrease: the whole table must be read */
};

static int grow_rows(struct program *p)
{
	struct dw_table *t = p->table;
	size_t room = p->room ? p->room * 2 : 256;
	struct dw_row *grown;

	if (room > ROWS_MAX)
		return -E2BIG;
	grown = reallocarray(t->rows, room, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	t->rows = grown;
	p->room = room;
	return 0;
}

/*
 * Append a row. Of several rows at one address the last one counts. A row that repeats the row
 * before is dropped: half of a compiler's rows only state columns and views.
 */
static inline int push_row(struct program *p, uint64_t addr, uint32_t file, uint32_t line)
{
	struct dw_table *t = p->table;

	if (t->n_rows > p->first && file != DW_ROW_END) {
		struct dw_row *last = &t->rows[t->n_rows - 1];

		if (last->addr <= addr && last->line == line && last->file == file)
			return 0;
		if (last->addr == addr) {
			last->file = file;
			last->line = line;
			return 0;
		}
	}
	if (t->n_rows == p->room) {
		int err = grow_rows(p);

		if (err)
			return err;
	}
	t->rows[t->n_rows++] = (struct dw_row){ .addr = addr, .file = file, .line = line };
	return 0;
}

/* ---- wanted addresses ---- */

/* Start a sequence in the mode for wanted addresses. */
static void begin_sequence(struct program *p)
{
	p->begun = false;
	p->next = 0;
	p->before.addr = UINT64_MAX; /* makes emit call take_row for the next row */
}

/* Find the first wanted address at or above addr. */
static void find_next(struct program *p, uint64_t addr)
{
	size_t low = 0, high = p->n_wanted;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (p->wanted[middle] < addr)
			low = middle + 1;
		else
			high = middle;
	}
	p->at = low;
	p->next = low < p->n_wanted ? p->wanted[low] : UINT64_MAX;
}

/*
 * Take the first row of a sequence, or a row that ends the row before it, which covers a wanted
 * address.
 */
static int take_row(struct program *p, uint64_t addr, uint32_t file, uint32_t line)
{
	size_t at = p->at;
	int err = 0;

	if (!p->begun) {
		p->begun = true;
		find_next(p, addr);
		/* A sequence that the linker dropped is not wanted; see end_sequence. */
		if (!addr || addr >= UINT64_MAX - 1)
			p->next = UINT64_MAX;
	} else if (addr < p->before.addr) {
		p->unordered = true;
	} else {
		err = push_row(p, p->before.addr, p->before.file, p->before.line);
		if (!err)
			err = push_row(p, addr, DW_ROW_END, 0);
		find_next(p, addr);
		p->n_found += p->at - at;
	}
	p->before = (struct dw_row){ .addr = addr, .file = file, .line = line };
	return err;
}

/* Take the next row of the program. A row that covers no wanted address costs one comparison. */
static inline __attribute__((always_inline)) int emit(struct program *p, uint64_t addr,
						      uint32_t file, uint32_t line)
{
	if (!p->wanted)
		return push_row(p, addr, file, line);
	if (addr > p->next || addr < p->before.addr)
		return p->begun && file == p->before.file && line == p->before.line &&
				       addr >= p->before.addr
			       ? 0
			       : take_row(p, addr, file, line);
	if (file != p->before.file || line != p->before.line)
		p->before = (struct dw_row){ .addr = addr, .file = file, .line = line };
	return 0;
}

static int push_name(struct dw_name **list, size_t *n, size_t *room, struct dw_name name)
{
	if (*n == *room) {
		size_t more = *room ? *room * 2 : 16;
		struct dw_name *grown = reallocarray(*list, more, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		*list = grown;
		*room = more;
	}
	(*list)[(*n)++] = name;
	return 0;
}

static int push_file(struct program *p, struct dw_name name)
{
	return push_name(&p->table->files, &p->table->n_files, &p->room_files, name);
}

static int push_folder(struct program *p, struct dw_name name)
{
	return push_name(&p->table->folders, &p->table->n_folders, &p->room_folders, name);
}

/* Return the offset in .debug_line of a position in the program. */
static uint64_t off_of(const struct program *p, const void *at)
{
	return p->off + (uint64_t)((const uint8_t *)at - p->bytes);
}

/* Read a file's entry of versions 2 to 4; the program itself can contain one, too. */
static int older_file(struct program *p, struct sym_cursor *c, const char *text)
{
	uint64_t folder = sym_cursor_uleb(c);

	(void)sym_cursor_uleb(c); /* time */
	(void)sym_cursor_uleb(c); /* size */
	if (c->bad)
		return -EBADMSG;
	return push_file(
		p, (struct dw_name){ .off = off_of(p, text),
				     .folder = folder > UINT32_MAX ? UINT32_MAX : (uint32_t)folder,
				     .where = DW_IN_LINE });
}

/* Read the directory and file lists of versions 2 to 4. */
static int older_names(struct program *p, struct sym_cursor *c)
{
	/* Directory 0 is the unit's own. There is no file 0. */
	int err = push_folder(p, (struct dw_name){ .where = DW_NOWHERE });

	if (!err)
		err = push_file(p, (struct dw_name){ .where = DW_NOWHERE });
	while (!err) {
		const char *text = sym_cursor_text(c);

		if (!text)
			return -EBADMSG;
		if (!*text)
			break;
		err = push_folder(p,
				  (struct dw_name){ .off = off_of(p, text), .where = DW_IN_LINE });
	}
	while (!err) {
		const char *text = sym_cursor_text(c);

		if (!text)
			return -EBADMSG;
		if (!*text)
			break;
		err = older_file(p, c, text);
	}
	return err;
}

/* Return where the name in a value is stored. */
static struct dw_name name_of(const struct program *p, const struct dw_value *v)
{
	switch (v->form) {
	case DW_FORM_string:
		return (struct dw_name){ .off = off_of(p, v->data), .where = DW_IN_LINE };
	case DW_FORM_line_strp:
		return (struct dw_name){ .off = v->u, .where = DW_IN_LINE_STR };
	case DW_FORM_strp:
		return (struct dw_name){ .off = v->u, .where = DW_IN_STR };
	case DW_FORM_strp_sup:
	case DW_FORM_GNU_strp_alt:
		return (struct dw_name){ .off = v->u, .where = DW_IN_ALT };
	default:
		return (struct dw_name){ .where = DW_NOWHERE };
	}
}

/* Read one of the two lists of version 5: a description of the entries, and the entries. */
static int newer_names(struct program *p, struct sym_cursor *c, bool files)
{
	struct dw_spec formats[FORMATS_MAX];
	uint8_t n_formats = sym_cursor_u8(c);
	uint64_t n;
	int err = 0;

	if (n_formats > FORMATS_MAX)
		return -E2BIG;
	for (uint8_t i = 0; i < n_formats; i++) {
		uint64_t type = sym_cursor_uleb(c), form = sym_cursor_uleb(c);

		if (form > UINT16_MAX || form == DW_FORM_implicit_const)
			return -EBADMSG;
		formats[i] = (struct dw_spec){ .name = type > UINT16_MAX ? 0 : (uint16_t)type,
					       .form = (uint16_t)form };
	}
	n = sym_cursor_uleb(c);
	if (c->bad || (n && !n_formats) || n > sym_cursor_left(c))
		return -EBADMSG;
	while (!err && n--) {
		struct dw_name name = { .where = DW_NOWHERE };
		uint32_t folder = 0;

		for (uint8_t i = 0; i < n_formats; i++) {
			struct dw_value v;

			err = dw_value_read(&p->unit, c, &formats[i], &v);
			if (err)
				return err;
			if (formats[i].name == DW_LNCT_path)
				name = name_of(p, &v);
			else if (formats[i].name == DW_LNCT_directory_index)
				folder = v.u > UINT32_MAX ? UINT32_MAX : (uint32_t)v.u;
		}
		name.folder = folder;
		err = files ? push_file(p, name) : push_folder(p, name);
	}
	return err;
}

/* Limit a number to 32 bits, below DW_ROW_END. */
static uint32_t clip(uint64_t value)
{
	return value < UINT32_MAX ? (uint32_t)value : UINT32_MAX - 1;
}

struct machine { /* the registers of the state machine (DWARF 5 §6.2.2) */
	uint64_t addr, line, file;
	unsigned int op;
};

/* Advance the address by operations (DWARF 5 §6.2.5.1). */
static inline void advance(const struct program *p, struct machine *m, uint64_t by)
{
	if (p->max_ops <= 1) {
		m->addr += by * p->min_inst;
		return;
	}
	m->addr += p->min_inst * ((m->op + by) / p->max_ops);
	m->op = (unsigned int)((m->op + by) % p->max_ops);
}

/* Run an extended opcode (DWARF 5 §6.2.5.3). */
static int run_extended(struct program *p, struct sym_cursor *c, struct machine *m, bool *ended)
{
	uint64_t size = sym_cursor_uleb(c);
	const uint8_t *bytes = sym_cursor_take(c, size);
	struct sym_cursor in = sym_cursor_of(bytes, bytes ? size : 0);
	const char *text;

	if (!bytes || !size)
		return bytes ? 0 : -EBADMSG;
	switch (sym_cursor_u8(&in)) {
	case DW_LNE_end_sequence:
		*ended = true;
		return emit(p, m->addr, DW_ROW_END, 0);
	case DW_LNE_set_address:
		if (size - 1 > 8 || size == 1)
			return -EBADMSG;
		m->addr = sym_cursor_uint(&in, (unsigned int)(size - 1));
		m->op = 0;
		return 0;
	case DW_LNE_define_file:
		text = sym_cursor_text(&in);
		return text ? older_file(p, &in, text) : -EBADMSG;
	default:
		return 0;
	}
}

/* Run a standard opcode (DWARF 5 §6.2.5.2). */
static inline int run_standard(struct program *p, struct sym_cursor *c, struct machine *m,
			       uint8_t op)
{
	switch (op) {
	case DW_LNS_copy:
		return emit(p, m->addr, clip(m->file), clip(m->line));
	case DW_LNS_advance_pc:
		advance(p, m, sym_cursor_uleb(c));
		break;
	case DW_LNS_advance_line:
		m->line += (uint64_t)sym_cursor_sleb(c);
		break;
	case DW_LNS_set_file:
		m->file = sym_cursor_uleb(c);
		break;
	case DW_LNS_set_column:
	case DW_LNS_set_isa:
		(void)sym_cursor_uleb(c);
		break;
	case DW_LNS_const_add_pc:
		advance(p, m, (uint64_t)(255 - p->opcode_base) / p->line_range);
		break;
	case DW_LNS_fixed_advance_pc:
		m->addr += sym_cursor_u16(c);
		m->op = 0;
		break;
	case DW_LNS_negate_stmt:
	case DW_LNS_set_basic_block:
	case DW_LNS_set_prologue_end:
	case DW_LNS_set_epilogue_begin:
		break;
	default: /* of a later version: its number of operands is stated */
		for (uint8_t i = 0; i < p->lengths[op]; i++)
			(void)sym_cursor_uleb(c);
	}
	return 0;
}

/* What an opcode does, as far as run_simple needs it. */
enum act {
	ACT_OTHER, /* must be run by run_other */
	ACT_ROW,   /* adds to address and line, and makes a row */
	ACT_ADD,
	ACT_PASS, /* its operand is not needed */
	ACT_PC,	  /* its operand is added to the address, … */
	ACT_LINE, /* … to the line, … */
	ACT_FILE, /* … or is the file */
};

struct op {
	uint16_t by; /* bytes; at most 255 * 255 */
	int16_t line;
	uint8_t act;
	uint8_t spare[3];
};

/* Prepare the table of opcodes for this program's header. */
static void make_ops(const struct program *p, struct op ops[256])
{
	static const uint8_t acts[] = {
		[DW_LNS_copy] = ACT_ROW,
		[DW_LNS_advance_pc] = ACT_PC,
		[DW_LNS_advance_line] = ACT_LINE,
		[DW_LNS_set_file] = ACT_FILE,
		[DW_LNS_set_column] = ACT_PASS,
		[DW_LNS_negate_stmt] = ACT_ADD,
		[DW_LNS_set_basic_block] = ACT_ADD,
		[DW_LNS_const_add_pc] = ACT_ADD,
		[DW_LNS_set_prologue_end] = ACT_ADD,
		[DW_LNS_set_epilogue_begin] = ACT_ADD,
		[DW_LNS_set_isa] = ACT_PASS,
	};
	bool simple = p->max_ops <= 1;

	for (unsigned int op = 0; op < 256; op++) {
		unsigned int special = op - p->opcode_base; /* DWARF 5 §6.2.5.1 */

		ops[op] = (struct op){ .act = ACT_OTHER };
		if (op >= p->opcode_base) {
			ops[op].by = (uint16_t)(special / p->line_range * p->min_inst);
			ops[op].line = (int16_t)(p->line_base + (int)(special % p->line_range));
			ops[op].act = simple ? ACT_ROW : ACT_OTHER;
		} else if (op < sizeof(acts) && simple) {
			ops[op].act = acts[op];
		}
	}
	if (p->opcode_base > DW_LNS_const_add_pc)
		ops[DW_LNS_const_add_pc].by =
			(uint16_t)((255u - p->opcode_base) / p->line_range * p->min_inst);
}

/* End the current sequence; drop it if it is unused code. */
static int end_sequence(struct program *p)
{
	struct dw_table *t = p->table;

	/* The linker sets the start of a dropped sequence to 0, or to -1 (lld). */
	if (p->first < t->n_rows &&
	    (!t->rows[p->first].addr || t->rows[p->first].addr >= UINT64_MAX - 1))
		t->n_rows = p->first;
	if (p->first < t->n_rows) {
		if (p->n_sequences == p->room_sequences) {
			size_t room = p->room_sequences ? p->room_sequences * 2 : 64;
			struct sequence *grown = reallocarray(p->sequences, room, sizeof(*grown));

			if (!grown)
				return -ENOMEM;
			p->sequences = grown;
			p->room_sequences = room;
		}
		p->sequences[p->n_sequences++] =
			(struct sequence){ .first = p->first, .past = t->n_rows };
	}
	p->first = t->n_rows;
	return 0;
}

/* Run one opcode of any kind. */
static int run_other(struct program *p, struct sym_cursor *c, struct machine *m, uint8_t op)
{
	bool ended = false;
	int err;

	if (op >= p->opcode_base) {
		unsigned int special = op - p->opcode_base;

		advance(p, m, special / p->line_range);
		m->line += (uint64_t)(int64_t)(p->line_base + (int)(special % p->line_range));
		return emit(p, m->addr, clip(m->file), clip(m->line));
	}
	err = op ? run_standard(p, c, m, op) : run_extended(p, c, m, &ended);
	if (!ended || err)
		return err;
	*m = (struct machine){ .line = 1, .file = 1 };
	err = end_sequence(p);
	if (p->wanted)
		begin_sequence(p);
	return err;
}

/*
 * Read a LEB128 operand of one or two bytes. The caller has checked that two bytes are there.
 * False: the operand is longer.
 */
static inline bool take_short(const uint8_t **at, uint32_t *out)
{
	const uint8_t *p = *at;

	*out = p[0];
	*at = p + 1;
	if (p[0] < 0x80)
		return true;
	*out = (p[0] & 0x7fu) | (uint32_t)p[1] << 7;
	*at = p + 2;
	return p[1] < 0x80;
}

/*
 * Run simple opcodes up to the end, or up to one that is not simple; *from is then at that opcode.
 * A row that is not wanted costs one comparison. Columns, views and discriminators are ignored.
 */
static inline int run_simple(struct program *p, const struct op ops[256], const uint8_t **from,
			     const uint8_t *end, struct machine *m)
{
	uint64_t addr = m->addr, line = m->line;
	uint32_t file = clip(m->file), operand;
	const uint8_t *at = *from, *start;
	int err = 0;

	for (start = at; at < end; start = at) {
		const struct op *op = &ops[*at++];

		switch ((enum act)op->act) {
		case ACT_ROW:
			addr += op->by;
			line += (uint64_t)(int64_t)op->line;
			err = emit(p, addr, file, clip(line));
			if (!err)
				continue;
			break;
		case ACT_ADD:
			addr += op->by;
			continue;
		case ACT_PASS:
			if (take_short(&at, &operand))
				continue;
			break;
		case ACT_PC:
			if (!take_short(&at, &operand))
				break;
			addr += (uint64_t)operand * p->min_inst;
			continue;
		case ACT_LINE:
			if (!take_short(&at, &operand))
				break;
			operand ^= at - start == 2 ? 0x40 : 0x2000;
			line += (uint64_t)operand - (at - start == 2 ? 0x40 : 0x2000);
			continue;
		case ACT_FILE:
			if (!take_short(&at, &operand))
				break;
			file = operand;
			m->file = file;
			continue;
		case ACT_OTHER:
			if (!start[0] && start[1] < 8 && start[2] == DW_LNE_set_discriminator) {
				at += 1 + start[1];
				continue;
			}
			break;
		}
		break;
	}
	m->addr = addr;
	m->line = line;
	*from = start;
	return err;
}

/* Run the program until its end, or until all wanted addresses are found. */
static int run(struct program *p, struct sym_cursor *c)
{
	struct machine m = { .line = 1, .file = 1 };
	struct op ops[256];
	/* No simple opcode is longer than 16 bytes. */
	const uint8_t *roomy = c->end - c->p > 16 ? c->end - 16 : c->p;
	int err = 0;

	make_ops(p, ops);
	begin_sequence(p);
	while (!err && !c->bad && c->p < c->end &&
	       (!p->n_wanted || p->n_found < p->n_wanted || p->unordered)) {
		if (c->p < roomy)
			err = run_simple(p, ops, &c->p, roomy, &m);
		if (!err && c->p < c->end)
			err = run_other(p, c, &m, *c->p++);
	}
	/* Everything wanted was found, possibly in the middle of a sequence. */
	if (!err && !c->bad && c->p < c->end)
		err = end_sequence(p);
	/* A sequence without an end does not state where its code ends: drop it. */
	p->table->n_rows = p->first;
	return err;
}

static int by_start(const void *a, const void *b)
{
	const struct sequence *x = a, *y = b;

	return x->start != y->start ? (x->start < y->start ? -1 : 1)
				    : (x->first > y->first) - (x->first < y->first);
}

/*
 * Order the sequences by start. They usually cover different code. Return false if they overlap or
 * their addresses decrease.
 */
static bool order_sequences(struct program *p, bool *sorted)
{
	const struct dw_row *rows = p->table->rows;

	*sorted = true;
	for (size_t i = 0; i < p->n_sequences; i++) {
		struct sequence *s = &p->sequences[i];

		for (size_t j = s->first + 1; j < s->past; j++)
			if (rows[j].addr < rows[j - 1].addr)
				return false;
		s->start = rows[s->first].addr;
		s->end = rows[s->past - 1].addr;
		*sorted = *sorted && (!i || s[-1].end <= s->start);
	}
	if (*sorted)
		return true;
	qsort(p->sequences, p->n_sequences, sizeof(*p->sequences), by_start);
	for (size_t i = 1; i < p->n_sequences; i++)
		if (p->sequences[i - 1].end > p->sequences[i].start)
			return false;
	return true;
}

/*
 * Return whether a must be before b: by address, and the end of one sequence before the start of
 * the next.
 */
static bool goes_before(const struct dw_row *a, const struct dw_row *b)
{
	if (a->addr != b->addr)
		return a->addr < b->addr;
	return a->file == DW_ROW_END && b->file != DW_ROW_END;
}

/* Sort rows by merging runs that are in order already. Stable. */
static int merge_rows(struct dw_table *t)
{
	struct dw_row *from = t->rows, *to;
	size_t n = t->n_rows;
	bool sorted = true;

	for (size_t i = 1; i < n && sorted; i++)
		sorted = !goes_before(&from[i], &from[i - 1]);
	if (sorted)
		return 0;
	to = reallocarray(NULL, n, sizeof(*to));
	if (!to)
		return -ENOMEM;
	while (!sorted) {
		size_t at = 0;

		while (at < n) {
			size_t a = at, middle, b, end;

			for (middle = at + 1;
			     middle < n && !goes_before(&from[middle], &from[middle - 1]); middle++)
				;
			for (end = middle + 1; end < n && !goes_before(&from[end], &from[end - 1]);
			     end++)
				;
			if (middle >= n)
				end = middle = n;
			for (b = middle; a < middle || b < end;)
				to[at++] =
					b >= end || (a < middle && !goes_before(&from[b], &from[a]))
						? from[a++]
						: from[b++];
		}
		/* Each pass halves the number of runs. */
		struct dw_row *swap = from;

		from = to;
		to = swap;
		sorted = true;
		for (size_t i = 1; i < n && sorted; i++)
			sorted = !goes_before(&from[i], &from[i - 1]);
	}
	free(to);
	t->rows = from;
	return 0;
}

/* Sort the rows by address. */
static int sort_rows(struct program *p)
{
	struct dw_table *t = p->table;
	struct dw_row *to;
	size_t n = 0;
	bool sorted;

	if (!order_sequences(p, &sorted))
		return merge_rows(t);
	if (sorted)
		return 0;
	to = reallocarray(NULL, t->n_rows, sizeof(*to));
	if (!to)
		return -ENOMEM;
	for (size_t i = 0; i < p->n_sequences; i++) {
		const struct sequence *s = &p->sequences[i];

		memcpy(to + n, t->rows + s->first, (s->past - s->first) * sizeof(*to));
		n += s->past - s->first;
	}
	free(t->rows);
	t->rows = to;
	return 0;
}

/* Parse the header and run the program. */
static int parse(struct program *p, struct sym_cursor *c)
{
	struct sym_cursor head;
	const uint8_t *bytes;
	uint64_t head_size;
	int err;

	p->unit.version = p->table->version = sym_cursor_u16(c);
	if (c->bad || p->unit.version < 2 || p->unit.version > 5)
		return -ENOTSUP;
	if (p->unit.version >= 5) {
		p->unit.addr_size = sym_cursor_u8(c);
		(void)sym_cursor_u8(c); /* segment selector */
		if (p->unit.addr_size != 4 && p->unit.addr_size != 8)
			return -ENOTSUP;
	}
	head_size = sym_cursor_uint(c, p->unit.off_size);
	bytes = sym_cursor_take(c, head_size);
	if (!bytes)
		return -EBADMSG;
	head = sym_cursor_of(bytes, head_size);
	p->min_inst = sym_cursor_u8(&head);
	p->max_ops = p->unit.version >= 4 ? sym_cursor_u8(&head) : 1;
	(void)sym_cursor_u8(&head); /* default_is_stmt */
	p->line_base = (int8_t)sym_cursor_u8(&head);
	p->line_range = sym_cursor_u8(&head);
	p->opcode_base = sym_cursor_u8(&head);
	if (head.bad || !p->line_range || !p->opcode_base)
		return -EBADMSG;
	for (unsigned int i = 1; i < p->opcode_base; i++)
		p->lengths[i] = sym_cursor_u8(&head);
	if (p->unit.version >= 5) {
		err = newer_names(p, &head, false);
		if (!err)
			err = newer_names(p, &head, true);
	} else {
		err = older_names(p, &head);
	}
	if (err || head.bad)
		return err ? err : -EBADMSG;
	err = run(p, c);
	return err ? err : sort_rows(p);
}

/* Read or map the program's bytes. *owned must go back to file->line_spare. */
static int read_program(struct dw_file *file, uint64_t off, uint64_t size, const uint8_t **out,
			uint8_t **owned, uint64_t *room)
{
	int err;

	*owned = NULL;
	if (file->line.bytes)
		return sym_section_map(&file->line, off, size, out, owned);
	*out = *owned = dw_spare_take(&file->line_spare, size, room);
	if (!*owned)
		return -ENOMEM;
	err = sym_section_read(&file->line, off, *owned, size);
	if (err)
		dw_spare_give(&file->line_spare, *owned, *room);
	return err;
}

int dw_table_read(struct dw_file *file, uint64_t off, uint8_t addr_size, const uint64_t *wanted,
		  size_t n_wanted, struct dw_table **out)
{
	struct program p = {
		.file = file,
		.unit = { .addr_size = addr_size, .off_size = 4 },
		.wanted = wanted,
		.n_wanted = n_wanted,
	};
	uint8_t head[12] = { 0 };
	struct sym_cursor c = sym_cursor_of(head, sizeof(head));
	uint64_t left, size, room = 0;
	uint8_t *owned;
	int err;

	if (off >= file->line.size || file->line.size - off < sizeof(head))
		return -EBADMSG;
	err = sym_section_read(&file->line, off, head, sizeof(head));
	if (err)
		return err;
	size = sym_cursor_u32(&c);
	if (size == 0xffffffff) {
		p.unit.off_size = 8;
		size = sym_cursor_u64(&c);
	}
	p.off = off + (p.unit.off_size == 8 ? 12 : 4);
	left = file->line.size - p.off;
	if (size > left || size > PROGRAM_MAX)
		return -EBADMSG;
	err = read_program(file, p.off, size, &p.bytes, &owned, &room);
	if (err)
		return err;
	file->budget->spent += size;
	p.table = calloc(1, sizeof(*p.table));
	c = sym_cursor_of(p.bytes, size);
	err = p.table ? parse(&p, &c) : -ENOMEM;
	free(p.sequences);
	if (owned)
		dw_spare_give(&file->line_spare, owned, room);
	if (err || p.unordered)
		dw_table_free(p.table);
	if (p.unordered && (!err || err == -EBADMSG))
		return dw_table_read(file, off, addr_size, NULL, 0, out);
	if (err)
		return err;
	*out = p.table;
	return 0;
}

void dw_table_free(struct dw_table *t)
{
	if (!t)
		return;
	free(t->rows);
	free(t->folders);
	free(t->files);
	free(t);
}

int dw_table_find(const struct dw_table *t, uint64_t addr, const struct dw_row **out, uint64_t *end)
{
	size_t low = 0, high = t->n_rows;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (t->rows[middle].addr <= addr)
			low = middle + 1;
		else
			high = middle;
	}
	if (!low || low == t->n_rows || t->rows[low - 1].file == DW_ROW_END)
		return -ENOENT;
	*out = &t->rows[low - 1];
	*end = t->rows[low].addr;
	return 0;
}

/* ---- names -------------------------------------------------------------------------------- */

/* Copy the text of a name. */
static int text_of(const struct dw_file *file, const struct dw_name *name, char *out, size_t room)
{
	switch (name->where) {
	case DW_IN_LINE:
		return sym_section_text(&file->line, name->off, out, room);
	case DW_IN_LINE_STR:
		return sym_section_text(&file->line_str, name->off, out, room);
	case DW_IN_STR:
		return sym_section_text(&file->str, name->off, out, room);
	case DW_IN_ALT:
		return file->alt ? sym_section_text(&file->alt->str, name->off, out, room)
				 : -ENOENT;
	default:
		return -ENOENT;
	}
}

/* Put "folder/" before the text in out, if there is room. Return the length of the text. */
static int prepend(const char *folder, char *out, size_t room)
{
	size_t n = strlen(folder), m = strlen(out);
	bool slash = n && folder[n - 1] != '/';

	if (!n || n + slash + m >= room)
		return (int)m;
	memmove(out + n + slash, out, m + 1);
	memcpy(out, folder, n);
	if (slash)
		out[n] = '/';
	return (int)(n + slash + m);
}

int dw_table_path(const struct dw_file *file, const struct dw_table *t, uint32_t index,
		  const char *dir, char *out, size_t room)
{
	char folder[4096];
	const struct dw_name *name;
	int n;

	if (index >= t->n_files)
		return -ENOENT;
	name = &t->files[index];
	n = text_of(file, name, out, room);
	if (n <= 0)
		return n ? n : -ENOENT;
	if (*out == '/')
		return n;
	if (name->folder < t->n_folders &&
	    text_of(file, &t->folders[name->folder], folder, sizeof(folder)) > 0) {
		n = prepend(folder, out, room);
		if (*out == '/')
			return n;
		/*
		 * In version 5, directory 0 is the unit's own directory and is not relative to dir.
		 */
		if (t->version >= 5 && !name->folder && *dir != '/')
			return n;
	}
	return prepend(dir, out, room);
}
