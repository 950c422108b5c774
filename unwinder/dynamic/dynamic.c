/*
 * unwinder/dynamic/dynamic.c: finds rules for generated code in what its process registered
 * (schema/dynamic_blob.h), which is region descriptors of libunwind-dynamic(3) or FDEs.
 */
#include "unwinder/dynamic/dynamic.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/search.h"
#include "unwinder/arch/arch.h"
#include "unwinder/cfi/cfi.h"

struct uw_dynamic {
	atomic_uint refs;
	const struct uw_arch *arch;
	const struct dynamic_header *header; /* start of the bytes, which are owned */
	const struct dynamic_proc *procs;
};

/* ---- the stored bytes ------------------------------------------------------------------ */

/* Return the checksum that the header must have: XXH64 with the checksum field as 0. */
static uint64_t checksum_of(const uint8_t *bytes, size_t size)
{
	struct dynamic_header header;

	memcpy(&header, bytes, sizeof(header));
	header.checksum = 0;
	return uw_checksum(bytes + sizeof(header), size - sizeof(header),
			   uw_checksum(&header, sizeof(header), 0));
}

/* Return whether [off, off + size) lies within [0, whole). */
static bool inside(uint64_t off, uint64_t size, uint64_t whole)
{
	return off <= whole && size <= whole - off;
}

/*
 * Check the header and every offset and count of the procedures. The contents of regions and
 * FDEs are checked when they are read.
 */
static int check(const uint8_t *bytes, size_t size)
{
	const struct dynamic_header *h = (const void *)bytes;
	const struct dynamic_proc *procs = (const void *)(h + 1);
	size_t names;

	if (size <= sizeof(*h) || size > DYNAMIC_SIZE_MAX || h->magic != DYNAMIC_MAGIC)
		return -EBADMSG;
	if (h->version != DYNAMIC_VERSION || !uw_arch_of(h->machine))
		return -ENOTSUP;
	if (h->size != size || bytes[size - 1] || h->checksum != checksum_of(bytes, size) ||
	    h->n_procs > (size - sizeof(*h)) / sizeof(*procs))
		return -EBADMSG;
	names = sizeof(*h) + h->n_procs * sizeof(*procs);
	for (size_t i = 0; i < h->n_procs; i++) {
		const struct dynamic_proc *p = &procs[i];

		if (p->start >= p->end || (i && p->start < procs[i - 1].end) ||
		    p->kind > DYNAMIC_FDE || !inside(p->data, p->size, size) ||
		    (p->name && (p->name < names || p->name >= size)) ||
		    (p->kind == DYNAMIC_FDE && p->entry >= p->size))
			return -EBADMSG;
	}
	return 0;
}

/*
 * Make an object with one reference of bytes that have been checked. It owns them unless this
 * fails (-ENOMEM).
 */
static int wrap(uint8_t *bytes, struct uw_dynamic **out)
{
	struct uw_dynamic *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	atomic_init(&d->refs, 1);
	d->header = (const void *)bytes;
	d->procs = (const void *)(d->header + 1);
	d->arch = uw_arch_of(d->header->machine);
	*out = d;
	return 0;
}

/* Copy and check the bytes. The copy is aligned; the caller's bytes may not be. */
int uw_dynamic_open(const void *bytes, size_t size, struct uw_dynamic **out)
{
	uint8_t *copy;
	int err;

	if (size <= sizeof(struct dynamic_header) || size > DYNAMIC_SIZE_MAX)
		return -EBADMSG;
	copy = malloc(size); /* aligned, unlike bytes */
	if (!copy)
		return -ENOMEM;
	memcpy(copy, bytes, size);
	err = check(copy, size);
	if (!err)
		err = wrap(copy, out);
	if (err)
		free(copy);
	return err;
}

int uw_dynamic_take(uint8_t *bytes, size_t size, struct uw_dynamic **out)
{
	struct dynamic_header *h = (void *)bytes;

	h->magic = DYNAMIC_MAGIC;
	h->version = DYNAMIC_VERSION;
	h->size = size;
	h->checksum = checksum_of(bytes, size);
	return wrap(bytes, out);
}

struct uw_dynamic *uw_dynamic_get(struct uw_dynamic *d)
{
	atomic_fetch_add_explicit(&d->refs, 1, memory_order_relaxed);
	return d;
}

void uw_dynamic_put(struct uw_dynamic *d)
{
	if (!d || atomic_fetch_sub_explicit(&d->refs, 1, memory_order_acq_rel) != 1)
		return;
	free((void *)d->header);
	free(d);
}

const void *uw_dynamic_bytes(const struct uw_dynamic *d, size_t *size)
{
	*size = (size_t)d->header->size;
	return d->header;
}

uint64_t uw_dynamic_mark(const struct uw_dynamic *d)
{
	return d->header->mark;
}

bool uw_dynamic_is_names(const struct uw_dynamic *d)
{
	return d->header->flags & DYNAMIC_NAMES;
}

/* Return a text for the most important flag only. */
const char *uw_dynamic_fault(const struct uw_dynamic *d)
{
	if (d->header->flags & DYNAMIC_CUT)
		return "there is more of it than is read";
	if (d->header->flags & DYNAMIC_TORN)
		return "it changed while it was read";
	if (d->header->flags & DYNAMIC_DAMAGED)
		return "some of it cannot be read or is not understood";
	return NULL;
}

/* ---- procedures ------------------------------------------------------------------------ */

/* Return the procedure that covers addr, or NULL. */
static const struct dynamic_proc *proc_at(const struct uw_dynamic *d, uint64_t addr)
{
	size_t low = UW_COUNT_WHILE(i, d->header->n_procs, d->procs[i].start <= addr);

	return low && addr < d->procs[low - 1].end ? &d->procs[low - 1] : NULL;
}

int uw_dynamic_proc(const struct uw_dynamic *d, uint64_t addr, struct uw_dynamic_proc *out)
{
	const struct dynamic_proc *p = proc_at(d, addr);

	if (!p)
		return -ENOENT;
	*out = (struct uw_dynamic_proc){
		.start = p->start,
		.end = p->end,
		.name = p->name ? (const char *)d->header + p->name : NULL,
		.walkable = p->kind != DYNAMIC_NAME,
	};
	return 0;
}

bool uw_dynamic_covers(const struct uw_dynamic *d, uint64_t lookup)
{
	const struct dynamic_proc *p = proc_at(d, lookup);

	return p && p->kind != DYNAMIC_NAME;
}

/* ---- regions ---------------------------------------------------------------------------- */

enum { /* libunwind-dynamic(3), "Operation tags", and libunwind-dynamic.h */
       OP_STOP,
       OP_SAVE_REG,
       OP_SPILL_FP_REL,
       OP_SPILL_SP_REL,
       OP_ADD,
       OP_POP_FRAMES,
       OP_LABEL_STATE,
       OP_COPY_STATE,
       OP_ALIAS
};

/* How many nested prologues and labels a procedure may have. */
#define PROLOGUES 32
#define LABELS	  16
#define NOWHERE	  0xff

struct place {	      /* where a register of the caller is saved */
	uint8_t kind; /* SAME, AT_CFA, REGISTER, AT_REG */
	uint8_t from;
	int64_t off; /* offset; AT_CFA: from the CFA; AT_REG: from the register */
};

/*
 * The frame state at one instruction. The CFA is computed from sp, or from the register that sp
 * was copied to (the base) once there is one. The base stays valid where sp changes without a
 * registered operation.
 */
struct state {
	int64_t cfa_sp;	  /* CFA - sp */
	int64_t cfa_base; /* CFA - base */
	uint8_t base;	  /* register number; NOWHERE: none */
	uint8_t prologue; /* index of the innermost one that has not been undone; NOWHERE: none */
	uint64_t alias;	  /* address of the code that the code at alias_at is a copy of */
	uint64_t alias_at;
	bool aliased;
	struct place places[UW_REGS_MAX];
};

/* The state of the interpreter of regions. */
struct run {
	const struct uw_arch *arch;
	struct state now;
	struct state prologues[PROLOGUES]; /* the state before each one; entries are not reused */
	unsigned int n_prologues;
	struct {
		uint64_t name;
		struct state state;
	} labels[LABELS];
	unsigned int n_labels;
	unsigned int n_ops;
};

/* Start with the frame state that a call leaves (psABI x86_64 §3.2.2, AAPCS64 §6.2). */
static void enter(struct run *run)
{
	const struct uw_arch *arch = run->arch;

	run->now = (struct state){ .base = NOWHERE, .prologue = NOWHERE };
	for (unsigned int i = 0; i < UW_REGS_MAX; i++)
		run->now.places[i].kind = UW_RULE_SAME;
	if (arch->lr == arch->pc) {
		run->now.cfa_sp = 8;
		run->now.places[arch->pc] = (struct place){ .kind = UW_RULE_AT_CFA, .off = -8 };
	}
}

/*
 * sp has moved. If the slot in which the base register's old value is saved is below sp now,
 * the function has restored that register, so the base is not valid any more.
 */
static void sp_moved(struct run *run)
{
	struct state *now = &run->now;
	const struct place *saved = now->base == NOWHERE ? NULL : &now->places[now->base];

	if (saved && saved->kind == UW_RULE_AT_CFA && saved->off < -now->cfa_sp)
		now->base = NOWHERE;
}

/* OP_ADD: value is added to sp or to the base. -ENOTSUP for any other register. */
static int add(struct run *run, unsigned int reg, uint64_t value)
{
	struct state *now = &run->now;

	if (reg == run->arch->sp) {
		now->cfa_sp = (int64_t)((uint64_t)now->cfa_sp - value);
		sp_moved(run);
		return 0;
	}
	if (reg != now->base)
		return -ENOTSUP;
	now->cfa_base = (int64_t)((uint64_t)now->cfa_base - value);
	return 0;
}

/*
 * OP_SAVE_REG: reg is copied to register to. A copy of sp becomes the base, and a copy of the
 * base to sp restores sp. -ENOTSUP if another register is copied to sp.
 */
static int save(struct run *run, unsigned int reg, uint64_t to)
{
	struct state *now = &run->now;

	if (to >= run->arch->n_regs)
		return -EBADMSG;
	if (reg == run->arch->sp) {
		now->base = (uint8_t)to;
		now->cfa_base = now->cfa_sp;
	} else if (to == run->arch->sp) {
		if (reg != now->base)
			return -ENOTSUP;
		now->cfa_sp = now->cfa_base;
		sp_moved(run);
	} else {
		now->places[reg] = (struct place){ .kind = UW_RULE_REGISTER, .from = (uint8_t)to };
	}
	return 0;
}

/*
 * OP_SPILL_SP_REL, OP_SPILL_FP_REL: reg is stored at offset off from sp, or from the frame
 * pointer.
 */
static void spill(struct run *run, unsigned int reg, bool from_sp, uint64_t off)
{
	struct state *now = &run->now;
	struct place *place = &now->places[reg];
	uint8_t fp = run->arch->fp;

	if (from_sp)
		*place = (struct place){ .kind = UW_RULE_AT_CFA,
					 .off = (int64_t)(off - (uint64_t)now->cfa_sp) };
	else if (now->base != NOWHERE)
		*place = (struct place){ .kind = UW_RULE_AT_CFA,
					 .off = (int64_t)(off - (uint64_t)now->cfa_base) };
	else
		*place = (struct place){ .kind = UW_RULE_AT_REG, .from = fp, .off = (int64_t)off };
}

/* OP_POP_FRAMES: undo n prologues. Registers that were saved in other registers are still there. */
static int pop(struct run *run, uint64_t n)
{
	struct state *now = &run->now;
	struct state before;

	for (; n; n--) {
		if (now->prologue == NOWHERE)
			return -EBADMSG;
		before = *now;
		*now = run->prologues[now->prologue];
		for (unsigned int i = 0; i < UW_REGS_MAX; i++)
			if (before.places[i].kind == UW_RULE_REGISTER)
				now->places[i] = before.places[i];
	}
	return 0;
}

/* OP_LABEL_STATE: store the current state under a name. */
static int label(struct run *run, uint64_t name)
{
	unsigned int i = 0;

	while (i < run->n_labels && run->labels[i].name != name)
		i++;
	if (i == LABELS)
		return -ENOTSUP;
	if (i == run->n_labels)
		run->n_labels++;
	run->labels[i].name = name;
	run->labels[i].state = run->now;
	return 0;
}

/* OP_COPY_STATE: restore the state that was stored under a name. */
static int copy(struct run *run, uint64_t name)
{
	for (unsigned int i = 0; i < run->n_labels; i++)
		if (run->labels[i].name == name) {
			run->now = run->labels[i].state;
			return 0;
		}
	return -EBADMSG;
}

/*
 * The first operation of a region that changes the frame begins a prologue: save the state
 * before it.
 */
static int begin_prologue(struct run *run, bool *begun)
{
	if (*begun)
		return 0;
	if (run->n_prologues == PROLOGUES)
		return -ENOTSUP;
	run->prologues[run->n_prologues] = run->now;
	run->now.prologue = (uint8_t)run->n_prologues++;
	*begun = true;
	return 0;
}

/* Execute one operation; at is the address at which it takes effect. -EBADMSG, -ENOTSUP. */
static int operate(struct run *run, const struct dynamic_op *op, uint64_t at, bool *begun)
{
	unsigned int reg = (uint16_t)op->reg;
	int err;

	switch (op->tag) {
	case OP_SAVE_REG:
	case OP_SPILL_FP_REL:
	case OP_SPILL_SP_REL:
	case OP_ADD:
		if (reg >= run->arch->n_regs)
			return -EBADMSG;
		err = begin_prologue(run, begun);
		if (err)
			return err;
		if (op->tag == OP_SAVE_REG)
			return save(run, reg, op->val);
		if (op->tag == OP_ADD)
			return add(run, reg, op->val);
		spill(run, reg, op->tag == OP_SPILL_SP_REL, op->val);
		return 0;
	case OP_POP_FRAMES:
		*begun = false; /* the next change of the frame begins a new prologue */
		return pop(run, op->val);
	case OP_LABEL_STATE:
		return label(run, op->val);
	case OP_COPY_STATE:
		return copy(run, op->val);
	case OP_ALIAS:
		run->now.aliased = true;
		run->now.alias = op->val;
		run->now.alias_at = at;
		return 0;
	default:
		return -EBADMSG;
	}
}

/*
 * Execute the operations of one region that have taken effect: all of them in an empty region,
 * otherwise those of the first n instructions. n counts in units of code, which are bytes on
 * x86_64. -EBADMSG, -ENOTSUP.
 */
static int run_region(struct run *run, struct uw_bytes *b, const struct dynamic_region *region,
		      uint64_t start, int64_t n)
{
	bool begun = false;
	int err = 0;

	run->now.aliased = false; /* the frame state outlives its region, an alias does not */
	for (uint32_t i = 0; i < region->op_count && !err; i++) {
		struct dynamic_op op = { .tag = (int8_t)uw_bytes_u8(b),
					 .qp = (int8_t)uw_bytes_u8(b),
					 .reg = (int16_t)uw_bytes_u16(b),
					 .when = (int32_t)uw_bytes_u32(b),
					 .val = uw_bytes_u64(b) };

		if (b->err || ++run->n_ops > UW_DYNAMIC_OPS)
			return -EBADMSG;
		if (op.tag == OP_STOP) {
			uw_bytes_skip(b, (uint64_t)(region->op_count - i - 1) * sizeof(op));
			break;
		}
		if (!region->insn_count || op.when < n)
			err = operate(run, &op,
				      start + ((uint64_t)(op.when < 0 ? 0 : op.when)
					       << run->arch->unit_shift),
				      &begun);
	}
	return err ? err : b->err;
}

/*
 * Set *past to the region's end, and *start to its beginning if it counts from end, the
 * procedure's end. -EBADMSG if the region does not fit into the procedure.
 */
static int region_end(const struct uw_arch *arch, int32_t count, uint64_t *start, uint64_t end,
		      uint64_t *past)
{
	uint64_t size = (uint64_t)(count < 0 ? -(int64_t)count : count) << arch->unit_shift;

	if (size > end - *start)
		return -EBADMSG;
	if (count < 0) { /* the last region; the code before it has the state so far */
		*start = end - size;
		*past = end;
	} else {
		*past = *start + size;
	}
	return 0;
}

/* Execute the regions of a procedure up to lookup. */
static int regions_run(struct run *run, const struct dynamic_proc *p, struct uw_bytes b,
		       uint64_t lookup)
{
	uint64_t start = p->start, past;
	unsigned int n = 0;
	int err = 0;

	enter(run);
	while (!uw_bytes_done(&b) && !err) {
		struct dynamic_region region = { .insn_count = (int32_t)uw_bytes_u32(&b),
						 .op_count = uw_bytes_u32(&b) };

		if (++n > UW_DYNAMIC_REGIONS || b.err)
			return -EBADMSG;
		err = region_end(run->arch, region.insn_count, &start, p->end, &past);
		if (err)
			return err;
		if (lookup < start)
			return 0;
		if (region.insn_count && lookup < past)
			return run_region(run, &b, &region, start,
					  (int64_t)((lookup - start) >> run->arch->unit_shift));
		err = run_region(run, &b, &region, start, INT64_MAX);
		start = past;
	}
	run->now.aliased = false; /* behind the last region */
	return err ? err : b.err;
}

/* ---- rules ------------------------------------------------------------------------------ */

/* Convert the current frame state to a rule. */
static void state_rule(const struct run *run, const struct dynamic_proc *p, struct uw_rule *rule)
{
	const struct uw_arch *arch = run->arch;
	const struct state *now = &run->now;

	memset(rule, 0, offsetof(struct uw_rule, regs));
	rule->start = p->start;
	rule->end = p->end;
	rule->cfa_kind = UW_CFA_PLAIN;
	rule->cfa_reg = now->base == NOWHERE ? arch->sp : now->base;
	rule->cfa_off = now->base == NOWHERE ? now->cfa_sp : now->cfa_base;
	rule->ra = arch->lr;
	rule->stepper = UW_STEPPER_DYNAMIC;
	for (unsigned int i = 0; i < arch->n_regs; i++) {
		const struct place *place = &now->places[i];

		if (place->kind != UW_RULE_SAME)
			rule->regs[rule->n_regs++] = (struct uw_reg_rule){ .off = place->off,
									   .reg = (uint8_t)i,
									   .kind = place->kind,
									   .from = place->from };
	}
}

/*
 * Find the rule at lookup by the procedure's regions. Return 0, 1 for an alias, -EBADMSG,
 * -ENOTSUP.
 */
static int by_regions(const struct uw_dynamic *d, const struct dynamic_proc *p, uint64_t lookup,
		      struct uw_rule *rule, uint64_t *alias)
{
	struct run run; /* not cleared: the arrays are written before they are read */
	const uint8_t *data = (const uint8_t *)d->header + p->data;
	int err;

	run.arch = d->arch;
	run.n_prologues = run.n_labels = run.n_ops = 0;
	err = regions_run(&run, p, uw_bytes_of(data, p->size), lookup);
	if (err)
		return err;
	if (run.now.aliased) {
		*alias = run.now.alias + (lookup - run.now.alias_at);
		return 1;
	}
	state_rule(&run, p, rule);
	return 0;
}

/* Find the rule at lookup by the procedure's FDE. -ENOENT if the FDE does not cover it. */
static int by_fde(const struct uw_dynamic *d, const struct dynamic_proc *p, uint64_t lookup,
		  struct uw_rule *rule)
{
	struct uw_cfi cfi = { .data = (const uint8_t *)d->header + p->data,
			      .size = p->size,
			      .vaddr = p->base,
			      .eh = true };
	struct uw_fde fde;
	int err = uw_cfi_entry(&cfi, p->entry, &fde, NULL);

	if (err)
		return err == -ENOENT ? -EBADMSG : err;
	lookup -= p->bias;
	if (lookup < fde.start || lookup >= fde.end)
		return -ENOENT;
	err = uw_cfi_rule(&cfi, &fde, lookup, rule);
	if (err)
		return err;
	rule->start += p->bias;
	rule->end += p->bias;
	rule->stepper = UW_STEPPER_DYNAMIC;
	return 0;
}

/* Find the rule at lookup (dynamic.h). A procedure of which only the name is known has no rules. */
int uw_dynamic_rule(const struct uw_dynamic *d, uint64_t lookup, struct uw_rule *rule,
		    uint64_t *alias)
{
	const struct dynamic_proc *p = proc_at(d, lookup);

	if (!p || p->kind == DYNAMIC_NAME)
		return -ENOENT;
	return p->kind == DYNAMIC_FDE ? by_fde(d, p, lookup, rule)
				      : by_regions(d, p, lookup, rule, alias);
}
