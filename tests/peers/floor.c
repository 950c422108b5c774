/*
 * tests/peers/floor.c: measures the lowest cost of a walk when every rule is at hand.
 *
 * Each file has a direct index: pc / 128 gives the first row of its block; the row, and with it the
 * rule, is found a few steps later. A rule is: CFA from sp or fp, where fp is saved, and the return
 * address below the CFA. The rules are those of the tables, unpacked. Only pc, sp and fp are
 * followed, one check guards each word that is read, and nothing but the pc of a frame is reported.
 * A row that cannot say this takes the general step, and code without rules takes the frame
 * pointer. x86_64 only.
 */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/peers/peer.h"
#include "unwinder/rule/object.h"
#include "unwinder/walk/step.h"

#define BLOCK_SHIFT 7

enum kind { KIND_SP, KIND_FP, KIND_END, KIND_NONE, KIND_OTHER };

struct rule {
	uint8_t kind;
	bool fp_saved;
	int32_t cfa, fp; /* offset from the register; offset from the CFA */
};

struct index {
	struct uw_object *object; /* borrowed */
	uint64_t base, span;
	uint32_t *block; /* first row of each block, or the row before if none begins in it */
	uint32_t *start; /* of each row, from base; ascending */
	uint16_t *which; /* rule of each row */
	uint32_t n_rows;
	struct rule *rules;
};

struct range { /* executable mapping */
	uint64_t start, end, bias;
	const struct index *index; /* NULL: none */
};

struct ranges { /* of one life, ascending */
	struct range *all;
	size_t n;
};

struct walker {
	struct recording *recording;
	struct index **indexes;
	size_t n_indexes;
	struct ranges *lives;
	uint64_t own[PEER_FRAMES];
};

/* ---- the index ---------------------------------------------------------------------------- */

static struct rule rule_of(uint64_t word)
{
	struct rule rule = { .kind = KIND_OTHER };
	int16_t fp = uw_packed_fp(word);

	if (uw_packed_kind(word) == TABLE_NONE)
		rule.kind = KIND_NONE;
	if ((uw_packed_kind(word) != TABLE_SP && uw_packed_kind(word) != TABLE_FP) ||
	    word & (TABLE_RULE_SIGNAL | TABLE_RULE_BASED))
		return rule;
	if (uw_packed_ra(word) == TABLE_UNDEFINED)
		rule.kind = KIND_END;
	if (uw_packed_ra(word) != -1)
		return rule;
	rule.kind = uw_packed_kind(word) == TABLE_SP ? KIND_SP : KIND_FP;
	rule.cfa = (int32_t)uw_packed_cfa(word);
	rule.fp_saved = fp != TABLE_SAME;
	rule.fp = rule.fp_saved ? fp * 8 : 0;
	return rule;
}

static void index_free(struct index *index)
{
	if (!index)
		return;
	free(index->block);
	free(index->start);
	free(index->which);
	free(index->rules);
	free(index);
}

static int index_fill(struct index *index, const struct uw_table *t)
{
	const struct table_header *h = t->header;
	size_t n_blocks = (h->span >> BLOCK_SHIFT) + 1;
	uint32_t row = 0, at = 0;

	if (t->wide_rule_index) /* no file in Debian has so many rules */
		return -ENOTSUP;
	index->base = h->base;
	index->span = h->span;
	index->n_rows = h->n_rows;
	index->block = calloc(n_blocks, sizeof(*index->block));
	index->start = calloc((size_t)h->n_rows + 1, sizeof(*index->start));
	index->which = calloc((size_t)h->n_rows + 1, sizeof(*index->which));
	index->rules = calloc((size_t)h->n_rules + 1, sizeof(*index->rules));
	if (!index->block || !index->start || !index->which || !index->rules)
		return -ENOMEM;
	for (uint32_t i = 0; i < h->n_rules; i++)
		index->rules[i] = rule_of(t->rule[i]);
	for (uint32_t s = 0; s < h->n_superblocks; s++)
		for (uint32_t i = 0; i < 256 && t->superblock[s].block != TABLE_NO_BLOCK; i++)
			for (uint32_t end = t->superblock[s].row +
					    t->block[t->superblock[s].block + i + 1];
			     row < end; row++) {
				index->start[row] = s * TABLE_SUPERBLOCK_UNITS +
						    i * TABLE_BLOCK_UNITS + t->key[row];
				index->which[row] = t->rule_index[row];
			}
	index->start[h->n_rows] = UINT32_MAX;
	for (size_t b = 0; b < n_blocks; b++) {
		while (at + 1 < h->n_rows && index->start[at + 1] <= b << BLOCK_SHIFT)
			at++;
		index->block[b] = at;
	}
	return 0;
}

static int index_of(struct walker *w, struct uw_object *object, const struct index **out)
{
	struct index *index;
	int err;

	for (size_t i = 0; i < w->n_indexes; i++)
		if (w->indexes[i]->object == object) {
			*out = w->indexes[i];
			return 0;
		}
	index = calloc(1, sizeof(*index));
	if (!index)
		return -ENOMEM;
	index->object = object;
	w->indexes[w->n_indexes++] = index;
	*out = index;
	err = uw_object_compile(object);
	return uw_object_table(object) ? index_fill(index, uw_object_table(object))
				       : (err == -ENOMEM ? err : 0);
}

static void floor_free(void *self)
{
	struct walker *w = self;

	for (size_t i = 0; w && i < w->n_indexes; i++)
		index_free(w->indexes[i]);
	for (size_t i = 0; w && w->lives && i < w->recording->n_lives; i++)
		free(w->lives[i].all);
	if (w) {
		free(w->lives);
		free(w->indexes);
	}
	free(w);
}

static int ranges_of(struct walker *w, const struct uw_space *space, struct ranges *out)
{
	int err = 0;

	out->all = calloc(uw_space_n_mappings(space) + 1, sizeof(*out->all));
	if (!out->all)
		return -ENOMEM;
	for (const struct uw_mapping *m = uw_space_above(space, 0); m && !err;
	     m = uw_space_above(space, m->end)) {
		struct range range = { .start = m->start, .end = m->end, .bias = m->bias };

		if (!(m->prot & PROT_EXEC))
			continue;
		if (m->object)
			err = index_of(w, m->object, &range.index);
		out->all[out->n++] = range;
	}
	return err;
}

static int floor_new(struct recording *recording, size_t life, void **self)
{
	struct walker *w = calloc(1, sizeof(*w));
	size_t n = 0;
	int err = w ? 0 : -ENOMEM;

	if (!err) {
		w->recording = recording;
		recording_resolve(recording);
		for (size_t i = 0; i < recording->n_lives; i++)
			n += uw_space_n_mappings(recording->lives[i].space);
		w->lives = calloc(recording->n_lives, sizeof(*w->lives));
		w->indexes = calloc(n + 1, sizeof(struct index *));
		err = w->lives && w->indexes ? 0 : -ENOMEM;
	}
	for (size_t i = 0; !err && i < recording->n_lives; i++)
		if (life == SIZE_MAX || life == i)
			err = ranges_of(w, recording->lives[i].space, &w->lives[i]);
	if (err) {
		floor_free(w);
		return err;
	}
	*self = w;
	return 0;
}

/* ---- the loop ------------------------------------------------------------------------------ */

struct at {
	uint64_t pc, sp, fp;
	const uint8_t *bytes;
	uint64_t low, room; /* words begin in [low, low + room) */
};

static inline bool word_at(const struct at *at, uint64_t addr, uint64_t *out)
{
	if (__builtin_expect(addr - at->low >= at->room, 0))
		return false;
	memcpy(out, at->bytes + (addr - at->low), 8);
	return true;
}

static inline const struct range *range_of(const struct ranges *ranges, uint64_t pc)
{
	const struct range *at = ranges->all;
	size_t n = ranges->n;

	while (n > 1) {
		at = at[n / 2].start <= pc ? at + n / 2 : at;
		n -= n / 2;
	}
	return n && pc - at->start < at->end - at->start ? at : NULL;
}

static inline const struct rule *rule_at(const struct index *index, uint64_t vaddr)
{
	static const struct rule none = { .kind = KIND_NONE };
	uint64_t at = vaddr - index->base;
	uint32_t row;

	if (at >= index->span)
		return &none;
	row = index->block[at >> BLOCK_SHIFT];
	while (index->start[row + 1] <= at)
		row++;
	return &index->rules[index->which[row]];
}

static int read_sample(void *ctx, uint64_t addr, void *out, size_t size)
{
	const struct sample *sample = ctx;
	struct uw_memory memory = { .regions = &sample->stack, .n_regions = 1 };

	return uw_memory_read(&memory, addr, out, size);
}

/* Take the general step for signal frames, PLT entries and other rare rules. */
static __attribute__((noinline)) bool general_step(const struct sample *sample,
						   const struct range *range,
						   const struct rule *known, struct at *at,
						   bool *exact)
{
	struct uw_machine machine = { .arch = uw_arch_of(EM_X86_64),
				      .regs = sample->regs,
				      .read = read_sample,
				      .ctx = (void *)(uintptr_t)sample,
				      .bias = range->bias };
	uint64_t lookup = at->pc - !*exact - range->bias, cfa;
	struct uw_rule rule;

	if (known->kind == KIND_NONE
		    ? !*exact || !uw_object_stub(range->index->object, lookup, &rule)
		    : uw_object_rule(range->index->object, lookup, *exact, &rule) != 0)
		return false;
	machine.regs.value[UW_X86_64_RIP] = at->pc;
	machine.regs.value[UW_X86_64_RSP] = at->sp;
	machine.regs.value[UW_X86_64_RBP] = at->fp;
	if (uw_step(&machine, &rule, &cfa) <= 0)
		return false;
	at->pc = machine.regs.value[UW_X86_64_RIP];
	at->sp = machine.regs.value[UW_X86_64_RSP];
	at->fp = machine.regs.value[UW_X86_64_RBP];
	*exact = rule.signal;
	return at->pc != 0;
}

static size_t floor_walk(void *self, const struct sample *sample, uint64_t *pcs)
{
	struct walker *w = self;
	const struct ranges *ranges = &w->lives[sample->life];
	const struct range *range = NULL;
	const uint64_t *value = sample->regs.value;
	struct at at = { .pc = value[UW_X86_64_RIP],
			 .sp = value[UW_X86_64_RSP],
			 .fp = value[UW_X86_64_RBP],
			 .bytes = sample->stack.bytes,
			 .low = sample->stack.addr,
			 .room = sample->stack.size > 7 ? sample->stack.size - 7 : 0 };
	/* push %rbp; mov %rsp, %rbp: the assumption about generated code. */
	static const struct rule chained = {
		.kind = KIND_FP, .cfa = 16, .fp_saved = true, .fp = -16
	};
	bool exact = true;
	size_t n = 0;

	if (!pcs)
		pcs = w->own;
	while (n < PEER_FRAMES) {
		uint64_t lookup = at.pc - !exact, cfa, ra, fp = at.fp;
		const struct rule *rule;

		pcs[n++] = at.pc;
		if (!range || lookup - range->start >= range->end - range->start)
			range = range_of(ranges, lookup);
		rule = range && range->index ? rule_at(range->index, lookup - range->bias)
					     : &chained;
		if (__builtin_expect(rule->kind > KIND_FP, 0)) {
			if (rule->kind == KIND_END)
				break;
			if (range && general_step(sample, range, rule, &at, &exact))
				continue;
			if (rule->kind == KIND_OTHER)
				break;
			rule = &chained;
		}
		cfa = (rule->kind == KIND_FP ? at.fp : at.sp) + (uint64_t)(int64_t)rule->cfa;
		if (cfa <= at.sp || !word_at(&at, cfa - 8, &ra) || !ra)
			break;
		/* A slot below sp was popped already. */
		if (rule->fp_saved && cfa + (uint64_t)(int64_t)rule->fp >= at.sp &&
		    !word_at(&at, cfa + (uint64_t)(int64_t)rule->fp, &fp))
			break;
		at.pc = ra;
		at.sp = cfa;
		at.fp = fp;
		exact = false;
	}
	return n;
}

const struct peer peer_floor = {
	.name = "floor", .new = floor_new, .free = floor_free, .walk = floor_walk
};
