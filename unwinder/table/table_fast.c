/*
 * unwinder/table/table_fast.c: turns common call-frame programs into table rows, with a cache of
 * instruction sequences.
 */
#include "unwinder/table/table_fast.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/leb128.h"
#include "schema/table_blob.h"
#include "unwinder/cfi/cfa_ops.h"
#include "unwinder/cfi/pointer.h"

#define CIE_SLOTS   64
#define SHAPES_MAX  255
#define STEP_BITS   12
#define STATES_MAX  (1u << 18)	    /* real files have thousands; cfi.c does the rest */
#define CFA_MAX	    ((1 << 21) - 1) /* larger numbers are for the general decoder */
#define DEPTH_MAX   8		    /* states on the stack of DW_CFA_remember_state */
#define PROGRAM_MAX (1u << 16)
#define INITIAL_MAX 4096 /* bytes of a CIE's program; the longest known is 39 */

#define NO_STATE UINT32_MAX
#define NO_RULE	 UINT32_MAX	  /* not computed yet */
#define ODD_RULE (UINT32_MAX - 1) /* cfi.c must handle the state */

/*
 * A row while a program runs. off has the places of ext, then those of fp and ra, and a spare one.
 */
struct state {
	uint32_t cfa;
	uint8_t kind, reg; /* enum table_kind; TABLE_NONE: no CFA yet */
	bool ra_signed;
	uint8_t shape;
	int16_t off[TABLE_EXT_AARCH64];
};

/*
 * What the result of an instruction depends on besides the state. It belongs to a CIE and is the
 * same for most of a file.
 */
struct shape {
	int32_t data_align; /* a factored offset of 1 is this many bytes */
	bool signal;
	struct state start;
};

struct uw_fast_cie {
	const struct uw_cfi *cfi;
	uint64_t off; /* of the CIE + 1; 0: empty */
	bool slow, sized;
	uint8_t encoding;
	uint32_t units; /* an advance of 1 is this many units */
	uint32_t start; /* the state after the CIE's instructions */
};

/*
 * A step from one state to another by one or more instructions, none of which is flow (see
 * is_flow).
 */
struct step {
	uint64_t bytes;	  /* of the instructions, then 0 */
	uint32_t from;	  /* counts from 1; 0: empty */
	uint32_t to_size; /* state × 16 + the number of bytes */
};

struct uw_fast {
	const struct uw_arch *arch;
	struct uw_table_rows *rows;
	int8_t slot[256]; /* index in off of each register, or SLOT_ODD or SLOT_IGNORE */

	struct state *states;
	uint32_t *rules; /* rule number of each state, or NO_RULE or ODD_RULE */
	size_t n_states, room_states, room_rules;
	struct uw_hash_index index; /* of states */
	struct step steps[1 << STEP_BITS];

	struct shape shapes[SHAPES_MAX];
	unsigned int n_shapes;
	struct uw_fast_cie cies[CIE_SLOTS];
	const struct uw_fast_cie *last; /* the CIE that was used last; NULL: none yet */
};

#define SLOT_ODD    (-1) /* no packed rule can express where it is saved */
#define SLOT_IGNORE (-2) /* a vector register, or one that is not recorded */

/* Return the index in state.off of the frame pointer. */
static unsigned int slot_fp(const struct uw_arch *arch)
{
	return arch->ext_slots - 3u;
}

/* Return the index in state.off of the return address. */
static unsigned int slot_ra(const struct uw_arch *arch)
{
	return arch->ext_slots - 2u;
}

/* ---- states, each stored once ---------------------------------------------------------- */

/* Hash a state as 64-bit words. */
static uint32_t hash_of(const struct state *s)
{
	uint64_t hash = 0, part;

	for (size_t i = 0; i < sizeof(*s); i += 8) {
		memcpy(&part, (const uint8_t *)s + i, 8);
		hash = (hash ^ hash >> 31 ^ part) * 0x9e3779b97f4a7c15u;
	}
	return (uint32_t)(hash >> 32);
}

_Static_assert(sizeof(struct state) == 8 + 2 * TABLE_EXT_AARCH64 && sizeof(struct state) % 8 == 0,
	       "states are compared as bytes");

/*
 * Return a state's number; a new state gets the next one. NO_STATE: there are too many states, or
 * no memory.
 */
static uint32_t intern(struct uw_fast *f, const struct state *s)
{
	uint32_t hash = hash_of(s);
	uint32_t found = UW_HASH_FIND(i, &f->index, hash, !memcmp(&f->states[i], s, sizeof(*s)));

	if (found != UW_HASH_NONE)
		return found;
	if (f->n_states == STATES_MAX ||
	    !uw_table_rows_grow(f->rows, &f->states, f->n_states, 1, &f->room_states,
				sizeof(*f->states)) ||
	    !uw_table_rows_grow(f->rows, &f->rules, f->n_states, 1, &f->room_rules,
				sizeof(*f->rules)))
		return NO_STATE;
	if (uw_hash_add(&f->index, hash, (uint32_t)f->n_states)) {
		uw_table_rows_fail(f->rows, -ENOMEM);
		return NO_STATE;
	}
	f->states[f->n_states] = *s;
	f->rules[f->n_states] = NO_RULE;
	return (uint32_t)f->n_states++;
}

/* Convert a state to the row that uw_row_of would make. False: this file cannot handle it. */
static bool row_of(const struct uw_fast *f, const struct state *s, struct uw_row *out)
{
	const struct uw_arch *arch = f->arch;
	int64_t cfa = s->cfa / 8; /* at most CFA_MAX / 8, which a packed rule has room for */
	int16_t fp = s->off[slot_fp(arch)], ra = s->off[slot_ra(arch)];
	uint64_t packed = s->kind | (uint64_t)cfa << 8;

	if (s->kind == TABLE_NONE || s->cfa % 8 || (ra == TABLE_SAME && arch->lr == arch->pc))
		return false;
	for (unsigned int i = 0; i < TABLE_EXT_AARCH64; i++)
		out->ext[i] = TABLE_SAME;
	for (unsigned int i = 0; i < arch->n_saved; i++) {
		/* A slot below sp has been popped already (see step.c). */
		if (s->kind != TABLE_SP || s->off[i] >= -cfa)
			out->ext[i] = s->off[i];
		if (out->ext[i] != TABLE_SAME)
			packed |= TABLE_RULE_SAVED;
	}
	if (s->kind == TABLE_SP && fp < -cfa)
		fp = TABLE_SAME;
	if (s->kind == TABLE_REG)
		out->ext[uw_ext_reg(arch)] = s->reg;
	packed |= f->shapes[s->shape].signal ? TABLE_RULE_SIGNAL : 0;
	packed |= s->ra_signed ? TABLE_RULE_SIGNED : 0;
	out->packed = packed | (uint64_t)(uint16_t)fp << 32 | (uint64_t)(uint16_t)ra << 48;
	return true;
}

/* Compute, store and return the rule number of a state. ODD_RULE: cfi.c must handle it. */
static __attribute__((noinline)) uint32_t find_rule(struct uw_fast *f, uint32_t state)
{
	struct uw_row row;

	f->rules[state] =
		row_of(f, &f->states[state], &row) ? uw_table_rows_intern(f->rows, &row) : ODD_RULE;
	return f->rules[state];
}

/* ---- steps ------------------------------------------------------------------------------- */

/* Read a ULEB128 number. False: it is cut off or large, so it is for the general decoder. */
static bool take_uleb(const uint8_t **p, const uint8_t *end, uint32_t *out)
{
	uint64_t value;

	if (!uw_uleb(p, end, &value) || value > CFA_MAX)
		return false;
	*out = (uint32_t)value;
	return true;
}

/*
 * Record that the register of this slot is saved at a factored offset. True also for a register
 * that is not recorded. False: a packed rule cannot express the place.
 */
static bool set_place(struct state *s, int slot, uint32_t factor, int32_t data_align)
{
	int64_t off = (int64_t)factor * data_align;

	if (slot < 0)
		return slot == SLOT_IGNORE;
	if (off % 8 || off / 8 >= TABLE_UNDEFINED || off / 8 < INT16_MIN)
		return false;
	s->off[slot] = (int16_t)(off / 8);
	return true;
}

/* Let the CFA count from reg. */
static void set_cfa_reg(const struct uw_arch *arch, struct state *s, uint32_t reg)
{
	s->reg = (uint8_t)reg;
	s->kind = reg == arch->sp ? TABLE_SP : reg == arch->fp ? TABLE_FP : TABLE_REG;
}

/*
 * Execute the instruction at *p, which must be one that changes the row. False: this file cannot
 * handle it.
 */
static bool execute(const struct uw_fast *f, struct state *s, const uint8_t **p, const uint8_t *end)
{
	const struct uw_arch *arch = f->arch;
	const struct shape *shape = &f->shapes[s->shape];
	uint8_t op = *(*p)++;
	int slot = f->slot[op & 0x3f];
	uint32_t reg, value;
	int64_t factor, off;

	switch (op & 0xc0) {
	case DW_CFA_offset:
		return take_uleb(p, end, &value) && set_place(s, slot, value, shape->data_align);
	case DW_CFA_restore:
		if (slot >= 0)
			s->off[slot] = shape->start.off[slot];
		return true;
	}
	switch (op) {
	case DW_CFA_def_cfa:
		if (!take_uleb(p, end, &reg) || !take_uleb(p, end, &value) || reg >= arch->n_regs)
			return false;
		set_cfa_reg(arch, s, reg);
		s->cfa = value;
		return true;
	case DW_CFA_def_cfa_register:
		if (!take_uleb(p, end, &reg) || reg >= arch->n_regs || s->kind == TABLE_NONE)
			return false;
		set_cfa_reg(arch, s, reg);
		return true;
	case DW_CFA_def_cfa_offset:
		if (!take_uleb(p, end, &value) || s->kind == TABLE_NONE)
			return false;
		s->cfa = value;
		return true;
	case DW_CFA_def_cfa_offset_sf: /* Go's linker writes only this one */
		if (!uw_sleb(p, end, &factor) || s->kind == TABLE_NONE ||
		    __builtin_mul_overflow(factor, shape->data_align, &off) || off < 0 ||
		    off > CFA_MAX)
			return false;
		s->cfa = (uint32_t)off;
		return true;
	case DW_CFA_offset_extended:
		return take_uleb(p, end, &reg) && take_uleb(p, end, &value) &&
		       set_place(s, reg < sizeof(f->slot) ? f->slot[reg] : SLOT_IGNORE, value,
				 shape->data_align);
	case DW_CFA_undefined:
		if (!take_uleb(p, end, &reg) || reg != arch->lr)
			return false;
		s->off[slot_ra(arch)] = TABLE_UNDEFINED;
		return true;
	case DW_CFA_GNU_args_size:
		return take_uleb(p, end, &value);
	case DW_CFA_AARCH64_negate_ra_state:
		s->ra_signed = !s->ra_signed;
		return true;
	default:
		return false;
	}
}

/* Return the first size bytes, 1 to 8; the rest is 0. */
static inline uint64_t first_of(uint64_t bytes, uint32_t size)
{
	return bytes & UINT64_MAX >> (64 - 8 * size);
}

/* Return the cache slot of a step from this state that begins with these bytes. */
static inline size_t slot_of(uint32_t state, uint64_t bytes)
{
	uint64_t third = bytes >> 16 & 0xff;

	/*
	 * The delta of an advance has nothing to do with the step before it, so all advances count
	 * as the same here.
	 */
	if ((third & 0xc0) == DW_CFA_advance_loc)
		third = DW_CFA_advance_loc;
	return (size_t)((((uint64_t)state << 24 | third << 16 | (bytes & 0xffff)) *
			 0x9e3779b97f4a7c15u) >>
			(64 - STEP_BITS));
}

/* Return whether an instruction belongs to the program's flow, which uw_fast_run handles itself. */
static bool is_flow(uint8_t op)
{
	return (op & 0xc0) == DW_CFA_advance_loc || op == DW_CFA_nop || op == DW_CFA_advance_loc1 ||
	       op == DW_CFA_advance_loc2 || op == DW_CFA_advance_loc4 ||
	       op == DW_CFA_remember_state || op == DW_CFA_restore_state;
}

/*
 * Execute the instructions at *p up to the next one of flow, and cache the step if it has at most
 * 8 bytes. Return the state after it. NO_STATE: this file cannot handle it.
 */
static __attribute__((noinline)) uint32_t
new_step(struct uw_fast *f, uint32_t state, const uint8_t **p, const uint8_t *end, uint64_t bytes)
{
	struct state s = f->states[state];
	const uint8_t *start = *p;
	uint32_t next;

	do {
		struct state then = s;
		const uint8_t *at = *p;

		if (!execute(f, &then, &at, end))
			return NO_STATE;
		if (at - start > 8 && *p > start)
			break;
		s = then;
		*p = at;
	} while (*p < end && !is_flow(**p));
	next = intern(f, &s);
	if (*p - start <= 8 && next != NO_STATE) {
		uint32_t size = (uint32_t)(*p - start);

		f->steps[slot_of(state, bytes)] = (struct step){ .bytes = first_of(bytes, size),
								 .from = state + 1,
								 .to_size = next << 4 | size };
	}
	return next;
}

/* Add a row with a state's rule. False: cfi.c must handle the state. */
static inline bool place(struct uw_fast *f, uint32_t unit, uint32_t state)
{
	uint32_t rule = f->rules[state];

	if (__builtin_expect(rule >= ODD_RULE, 0)) {
		if (rule == NO_RULE)
			rule = find_rule(f, state);
		if (rule == ODD_RULE)
			return false;
	}
	uw_table_rows_put(f->rows, unit, rule);
	return true;
}

/* ---- programs ------------------------------------------------------------------------------ */

/* The main loop: flow instructions are executed here, all others through the cache of steps. */
bool uw_fast_run(struct uw_fast *f, const struct uw_fast_fde *fde, uint32_t first, uint32_t limit)
{
	struct uw_table_rows *rows = f->rows;
	const uint8_t *p = fde->program, *const end = fde->end, *const readable = fde->readable;
	uint32_t saved[DEPTH_MAX], depth = 0, state = fde->cie->start, placed = NO_STATE, delta;
	const uint32_t units = fde->cie->units;
	const size_t n_rows = rows->n_rows;
	struct uw_table_row before;
	uint64_t unit = first;

	if (end - p > (ptrdiff_t)PROGRAM_MAX || !uw_table_rows_reserve(rows, (size_t)(end - p) + 1))
		return false;
	before = n_rows ? rows->rows[n_rows - 1] : (struct uw_table_row){ .unit = 0 };
	while (p < end) {
		const struct step *step;
		uint64_t bytes = 0;
		uint32_t size;

		if ((*p & 0xc0) == DW_CFA_advance_loc) {
			delta = *p++ & 0x3f;
			goto advance;
		}
		switch (*p) {
		case DW_CFA_nop:
			p++;
			continue;
		case DW_CFA_advance_loc1:
			if (end - p < 2)
				goto odd;
			delta = p[1];
			p += 2;
			goto advance;
		case DW_CFA_advance_loc2:
			if (end - p < 3)
				goto odd;
			delta = p[1] | (uint32_t)p[2] << 8;
			p += 3;
			goto advance;
		case DW_CFA_advance_loc4:
			if (end - p < 5)
				goto odd;
			memcpy(&delta, p + 1, 4);
			p += 5;
			goto advance;
		case DW_CFA_remember_state:
			if (depth == DEPTH_MAX)
				goto odd;
			saved[depth++] = state;
			p++;
			continue;
		case DW_CFA_restore_state:
			if (!depth)
				goto odd;
			state = saved[--depth];
			p++;
			continue;
		}
		if (readable - p >= 8)
			memcpy(&bytes, p, 8);
		else
			memcpy(&bytes, p, (size_t)(readable - p));
		step = &f->steps[slot_of(state, bytes)];
		size = step->to_size & 15;
		if (step->from == state + 1 && first_of(bytes, size) == step->bytes &&
		    (ptrdiff_t)size <= end - p) {
			p += size;
			state = step->to_size >> 4;
			continue;
		}
		state = new_step(f, state, &p, end, bytes);
		if (state == NO_STATE)
			goto odd;
		continue;
	advance:
		if (!delta)
			continue;
		if (state != placed) {
			if (!place(f, (uint32_t)unit, state))
				goto odd;
			placed = state;
		}
		unit += (uint64_t)delta * units;
		if (unit >= limit)
			return true;
	}
	if (state == placed || place(f, (uint32_t)unit, state))
		return true;
odd:
	/* Undo all rows of this FDE: uw_table_rows_put may have changed the last row before it, too. */
	rows->n_rows = n_rows;
	if (n_rows)
		rows->rows[n_rows - 1] = before;
	return false;
}

/* ---- CIEs and FDEs ------------------------------------------------------------------------- */

/*
 * Return the number of a shape in *out; a new shape gets the next one. False: there are too many.
 */
static bool shape_of(struct uw_fast *f, const struct shape *shape, uint8_t *out)
{
	unsigned int i = 0;

	for (; i < f->n_shapes; i++) {
		const struct shape *s = &f->shapes[i];

		if (s->data_align == shape->data_align && s->signal == shape->signal &&
		    !memcmp(&s->start.off, &shape->start.off, sizeof(s->start.off)))
			break;
	}
	if (i == SHAPES_MAX)
		return false;
	if (i == f->n_shapes)
		f->shapes[f->n_shapes++] = *shape;
	*out = (uint8_t)i;
	return true;
}

/* Execute a CIE's instructions. False: its FDEs are for the general decoder. */
static bool prepare(struct uw_fast *f, const struct uw_cie *from, struct uw_fast_cie *cie)
{
	const struct uw_arch *arch = f->arch;
	uint64_t align = from->code_align;
	const uint8_t *p = from->program.pos, *end = from->program.end;
	struct shape shape = { .signal = from->signal };
	struct state s = { .kind = TABLE_NONE };

	if (from->ra != arch->lr || from->segment_size || from->address_size != 8 ||
	    align % arch->code_align || align >> arch->unit_shift > 255 || from->data_align < -64 ||
	    from->data_align > 64 || (from->signal && arch->sigcontext_first) ||
	    end - p > INITIAL_MAX || f->n_shapes == SHAPES_MAX)
		return false;
	cie->units = (uint32_t)(align >> arch->unit_shift);
	for (unsigned int i = 0; i < TABLE_EXT_AARCH64; i++)
		s.off[i] = TABLE_SAME;
	/*
	 * Execute them with the next free shape. DW_CFA_restore then gives the state before them.
	 */
	shape.data_align = (int32_t)from->data_align;
	shape.start = s;
	f->shapes[f->n_shapes] = shape;
	s.shape = (uint8_t)f->n_shapes;
	while (p < end) {
		if (*p == DW_CFA_nop)
			p++;
		else if (!execute(f, &s, &p, end))
			return false;
	}
	shape.start = s;
	if (!shape_of(f, &shape, &s.shape))
		return false;
	cie->start = intern(f, &s);
	return cie->start != NO_STATE;
}

/* Return the CIE of an FDE, from the cache or read now. NULL: one of the two is damaged. */
static const struct uw_fast_cie *cie_of(struct uw_fast *f, const struct uw_cfi *cfi,
					uint64_t cie_off, uint64_t fde_off)
{
	uint64_t hash = (cie_off ^ (cfi->eh ? 0 : 3)) * 0x9e3779b97f4a7c15u;
	struct uw_fast_cie *cie = &f->cies[hash >> 58];
	struct uw_fde fde;

	if (cie->cfi != cfi || cie->off != cie_off + 1) {
		if (uw_cfi_entry(cfi, fde_off, &fde, NULL))
			return NULL;
		*cie = (struct uw_fast_cie){ .cfi = cfi,
					     .off = cie_off + 1,
					     .sized = fde.cie.sized,
					     .encoding = fde.cie.fde_encoding };
		cie->slow = !prepare(f, &fde.cie, cie);
	}
	f->last = cie;
	return cie;
}

/* Read only the two common forms of an FDE: addresses as pcrel sdata4, or absolute with 8 bytes. */
bool uw_fast_read(struct uw_fast *f, const struct uw_cfi *cfi, uint64_t off,
		  struct uw_fast_fde *out)
{
	const uint8_t *p = cfi->data + off;
	const struct uw_fast_cie *cie = f->last;
	uint32_t length, id;
	uint64_t cie_off;

	length = uw_cfi_usual_length(p, cfi->size - off);
	if (length < 12)
		return false;
	id = uw_bytes_little(p + 4);
	if (id == (cfi->eh ? 0 : UINT32_MAX) || (cfi->eh && id > off + 4))
		return false;
	cie_off = cfi->eh ? off + 4 - id : id;
	if (!cie || cie->cfi != cfi || cie->off != cie_off + 1)
		cie = cie_of(f, cfi, cie_off, off);
	if (!cie || cie->slow)
		return false;
	out->end = p + 4 + length;
	if (cie->encoding == (UW_PE_PCREL | UW_PE_SDATA4)) {
		int32_t start = (int32_t)uw_bytes_little(p + 8),
			size = (int32_t)uw_bytes_little(p + 12);

		if (size < 0)
			return false;
		out->start = cfi->vaddr + off + 8 + (uint64_t)(int64_t)start;
		out->size = (uint64_t)size;
		p += 16;
	} else if (cie->encoding == UW_PE_ABSPTR && length >= 20) {
		out->start = uw_bytes_little8(p + 8);
		out->size = uw_bytes_little8(p + 16);
		p += 24;
	} else {
		return false;
	}
	if (cie->sized) {
		if (p >= out->end || *p >= 0x80 || *p > out->end - p - 1)
			return false;
		p += 1 + *p;
	}
	if (p > out->end)
		return false;
	out->program = p;
	out->readable = cfi->data + cfi->size;
	out->cie = cie;
	return true;
}

/* ---- the whole ----------------------------------------------------------------------------- */

/*
 * slot maps a DWARF register to its place in a row. A register of the machine without a place makes
 * a rule that the fast decoder cannot express; unknown registers are ignored.
 */
int uw_fast_new(const struct uw_arch *arch, struct uw_table_rows *rows, struct uw_fast **out)
{
	struct uw_fast *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	f->arch = arch;
	f->rows = rows;
	for (unsigned int i = 0; i < sizeof(f->slot); i++)
		f->slot[i] = i < arch->n_regs ? SLOT_ODD : SLOT_IGNORE;
	for (unsigned int i = 0; i < arch->n_saved; i++)
		f->slot[arch->saved[i]] = (int8_t)i;
	f->slot[arch->fp] = (int8_t)slot_fp(arch);
	f->slot[arch->lr] = (int8_t)slot_ra(arch);
	*out = f;
	return 0;
}

void uw_fast_free(struct uw_fast *f)
{
	if (!f)
		return;
	free(f->states);
	free(f->rules);
	uw_hash_fini(&f->index);
	free(f);
}
