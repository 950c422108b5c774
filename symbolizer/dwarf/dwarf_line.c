/* symbolizer/dwarf/dwarf_line.c: runs line number programs, versions 2 to 5 (DWARF 5 §6.2). */
#include "symbolizer/dwarf/dwarf_line.h"

#include "base/growth.h"
#include "base/limits.h"
#include "base/search.h"

#include <dwarf.h>
#include <errno.h>
#include <stdlib.h>

/* The line program of a unit with a million lines has some 4 MB. */
#define PROGRAM_MAX   ((uint64_t)256 << 20)
#define SEQUENCES_MAX ((size_t)16 << 20)

struct program {
	struct dw_line_lists lists; /* the bytes, and what their header states */
	size_t room;		    /* for rows in the table */
	uint8_t min_inst, max_ops, line_range, opcode_base;
	int8_t line_base;
	uint8_t lengths[256];
	size_t first;		       /* first row of the current sequence */
	struct dw_sequence *sequences; /* owned */
	size_t n_sequences, room_sequences;
	/* Addresses whose rows are wanted, ascending; NULL: all rows. */
	const uint64_t *wanted;
	size_t n_wanted, n_found;
	uint8_t *found; /* 1: a row covered it, as rows of several sequences may; owned */
	/* State of the current sequence: */
	size_t at;     /* index in wanted of the first address that the rows so far do not reach */
	uint64_t next; /* wanted[at] */
	struct dw_row before; /* the last row */
	bool begun;	      /* before is valid */
	bool unordered;	      /* addresses decrease: the whole table must be read */
};

/*
 * Append a row. Of several rows at one address the last one counts. A row that repeats the row
 * before is dropped: half of a compiler's rows only state columns and views.
 */
static inline int push_row(struct program *p, uint64_t addr, uint32_t file, uint32_t line)
{
	struct dw_table *t = p->lists.table;
	int err;

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
	err = UW_ARRAY_GROW(t->rows, t->n_rows, p->room, uw_limit(lines));
	if (err == -E2BIG)
		uw_limit_reach(lines);
	if (err)
		return err;
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
	p->at = UW_COUNT_WHILE(i, p->n_wanted, p->wanted[i] < addr);
	p->next = p->at < p->n_wanted ? p->wanted[p->at] : UINT64_MAX;
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
		for (; at < p->at; at++) {
			p->n_found += !p->found[at];
			p->found[at] = 1;
		}
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
static int run_extended(struct program *p, struct uw_bytes *c, struct machine *m, bool *ended)
{
	uint64_t size = uw_bytes_uleb(c);
	const uint8_t *bytes = uw_bytes_advance(c, size);
	struct uw_bytes in = uw_bytes_of(bytes, bytes ? size : 0);
	const char *text;

	if (!bytes || !size)
		return bytes ? 0 : -EBADMSG;
	switch (uw_bytes_u8(&in)) {
	case DW_LNE_end_sequence:
		*ended = true;
		return emit(p, m->addr, DW_ROW_END, 0);
	case DW_LNE_set_address:
		if (size - 1 > 8 || size == 1)
			return -EBADMSG;
		m->addr = uw_bytes_uint(&in, (unsigned int)(size - 1));
		m->op = 0;
		return 0;
	case DW_LNE_define_file:
		text = uw_bytes_string(&in);
		return !in.err ? dw_line_older_file(&p->lists, &in, text) : -EBADMSG;
	default:
		return 0;
	}
}

/* Run a standard opcode (DWARF 5 §6.2.5.2). */
static inline int run_standard(struct program *p, struct uw_bytes *c, struct machine *m, uint8_t op)
{
	switch (op) {
	case DW_LNS_copy:
		return emit(p, m->addr, clip(m->file), clip(m->line));
	case DW_LNS_advance_pc:
		advance(p, m, uw_bytes_uleb(c));
		break;
	case DW_LNS_advance_line:
		m->line += (uint64_t)uw_bytes_sleb(c);
		break;
	case DW_LNS_set_file:
		m->file = uw_bytes_uleb(c);
		break;
	case DW_LNS_set_column:
	case DW_LNS_set_isa:
		(void)uw_bytes_uleb(c);
		break;
	case DW_LNS_const_add_pc:
		advance(p, m, (uint64_t)(255 - p->opcode_base) / p->line_range);
		break;
	case DW_LNS_fixed_advance_pc:
		m->addr += uw_bytes_u16(c);
		m->op = 0;
		break;
	case DW_LNS_negate_stmt:
	case DW_LNS_set_basic_block:
	case DW_LNS_set_prologue_end:
	case DW_LNS_set_epilogue_begin:
		break;
	default: /* of a later version: its number of operands is stated */
		for (uint8_t i = 0; i < p->lengths[op]; i++)
			(void)uw_bytes_uleb(c);
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
	struct dw_table *t = p->lists.table;

	/* The linker sets the start of a dropped sequence to 0, or to -1 (lld). */
	if (p->first < t->n_rows &&
	    (!t->rows[p->first].addr || t->rows[p->first].addr >= UINT64_MAX - 1))
		t->n_rows = p->first;
	if (p->first < t->n_rows) {
		int err = UW_ARRAY_GROW(p->sequences, p->n_sequences, p->room_sequences,
					SEQUENCES_MAX);

		if (err)
			return err;
		p->sequences[p->n_sequences++] =
			(struct dw_sequence){ .first = p->first, .past = t->n_rows };
	}
	p->first = t->n_rows;
	return 0;
}

/* Run one opcode of any kind. */
static int run_other(struct program *p, struct uw_bytes *c, struct machine *m, uint8_t op)
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
static int run(struct program *p, struct uw_bytes *c)
{
	struct machine m = { .line = 1, .file = 1 };
	struct op ops[256];
	/* No simple opcode is longer than 16 bytes. */
	const uint8_t *roomy = c->end - c->pos > 16 ? c->end - 16 : c->pos;
	int err = 0;

	make_ops(p, ops);
	begin_sequence(p);
	while (!err && !c->err && c->pos < c->end &&
	       (!p->n_wanted || p->n_found < p->n_wanted || p->unordered)) {
		if (c->pos < roomy)
			err = run_simple(p, ops, &c->pos, roomy, &m);
		if (!err && c->pos < c->end)
			err = run_other(p, c, &m, *c->pos++);
	}
	/* Everything wanted was found, possibly in the middle of a sequence. */
	if (!err && !c->err && c->pos < c->end)
		err = end_sequence(p);
	/* A sequence without an end does not state where its code ends: drop it. */
	p->lists.table->n_rows = p->first;
	return err;
}

/* Parse the header and run the program. */
static int parse(struct program *p, struct uw_bytes *c)
{
	struct uw_bytes head;
	const uint8_t *bytes;
	uint64_t head_size;
	int err;

	p->lists.unit.version = p->lists.table->version = uw_bytes_u16(c);
	if (c->err || p->lists.unit.version < 2 || p->lists.unit.version > 5)
		return -ENOTSUP;
	if (p->lists.unit.version >= 5) {
		p->lists.unit.addr_size = uw_bytes_u8(c);
		(void)uw_bytes_u8(c); /* segment selector */
		if (p->lists.unit.addr_size != 4 && p->lists.unit.addr_size != 8)
			return -ENOTSUP;
	}
	head_size = uw_bytes_uint(c, p->lists.unit.off_size);
	bytes = uw_bytes_advance(c, head_size);
	if (!bytes)
		return -EBADMSG;
	head = uw_bytes_of(bytes, head_size);
	p->min_inst = uw_bytes_u8(&head);
	p->max_ops = p->lists.unit.version >= 4 ? uw_bytes_u8(&head) : 1;
	(void)uw_bytes_u8(&head); /* default_is_stmt */
	p->line_base = (int8_t)uw_bytes_u8(&head);
	p->line_range = uw_bytes_u8(&head);
	p->opcode_base = uw_bytes_u8(&head);
	if (head.err || !p->line_range || !p->opcode_base)
		return -EBADMSG;
	for (unsigned int i = 1; i < p->opcode_base; i++)
		p->lengths[i] = uw_bytes_u8(&head);
	err = dw_line_lists_read(&p->lists, &head);
	if (err || head.err)
		return err ? err : -EBADMSG;
	err = run(p, c);
	return err ? err : dw_table_sort(p->lists.table, p->sequences, p->n_sequences);
}

/* Read or map the program's bytes. *owned must go back to file->line_spare. */
static int read_program(struct dw_file *file, uint64_t off, uint64_t size, const uint8_t **out,
			uint8_t **owned, uint64_t *room)
{
	int err;

	*owned = NULL;
	if (file->line.source.image)
		return sym_section_map(&file->line, off, size, out, owned);
	*out = *owned = dw_spare_take(&file->line_spare, size, room);
	if (!*owned)
		return -ENOMEM;
	err = sym_section_read(&file->line, off, *owned, size);
	if (err)
		dw_spare_give(&file->line_spare, *owned, *room);
	return err;
}

/*
 * If the addresses of a sequence do not ascend (unordered), rows cannot be chosen by address: read
 * again, with all rows.
 */
int dw_table_read(struct dw_file *file, uint64_t off, uint8_t addr_size, const uint64_t *wanted,
		  size_t n_wanted, struct dw_table **out)
{
	struct program p = {
		.lists.unit = { .addr_size = addr_size, .off_size = 4 },
		.wanted = wanted,
		.n_wanted = n_wanted,
	};
	uint8_t head[12] = { 0 };
	struct uw_bytes c = uw_bytes_of(head, sizeof(head));
	uint64_t left, size, room = 0;
	uint8_t *owned;
	int err;

	if (off >= file->line.source.size || file->line.source.size - off < sizeof(head))
		return -EBADMSG;
	err = sym_section_read(&file->line, off, head, sizeof(head));
	if (err)
		return err;
	size = uw_bytes_u32(&c);
	if (size == 0xffffffff) {
		p.lists.unit.off_size = 8;
		size = uw_bytes_u64(&c);
	}
	p.lists.off = off + (p.lists.unit.off_size == 8 ? 12 : 4);
	left = file->line.source.size - p.lists.off;
	if (size > left || size > PROGRAM_MAX)
		return -EBADMSG;
	err = read_program(file, p.lists.off, size, &p.lists.bytes, &owned, &room);
	if (err)
		return err;
	file->budget->spent += size;
	p.lists.table = calloc(1, sizeof(*p.lists.table));
	p.found = n_wanted ? calloc(n_wanted, 1) : NULL;
	c = uw_bytes_of(p.lists.bytes, size);
	err = p.lists.table && (p.found || !n_wanted) ? parse(&p, &c) : -ENOMEM;
	free(p.found);
	free(p.sequences);
	if (owned)
		dw_spare_give(&file->line_spare, owned, room);
	if (err || p.unordered)
		dw_table_free(p.lists.table);
	if (p.unordered && (!err || err == -EBADMSG))
		return dw_table_read(file, off, addr_size, NULL, 0, out);
	if (err)
		return err;
	*out = p.lists.table;
	return 0;
}

void dw_table_free(struct dw_table *t)
{
	if (!t)
		return;
	free(t->rows);
	free(t->directories);
	free(t->files);
	free(t);
}

int dw_table_find(const struct dw_table *t, uint64_t addr, const struct dw_row **out, uint64_t *end)
{
	size_t low = UW_COUNT_WHILE(i, t->n_rows, t->rows[i].addr <= addr);

	if (!low || low == t->n_rows || t->rows[low - 1].file == DW_ROW_END)
		return -ENOENT;
	*out = &t->rows[low - 1];
	*end = t->rows[low].addr;
	return 0;
}
