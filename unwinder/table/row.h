/*
 * unwinder/table/row.h: a rule as a packed word and the places of saved registers, the form that tables
 * (schema/table_blob.h) and the caches of a walk store.
 */
#ifndef UNWINDER_TABLE_ROW_H
#define UNWINDER_TABLE_ROW_H

#include <stdbool.h>
#include <stdint.h>

#include "schema/table_blob.h"
#include "unwinder/arch/arch.h"
#include "unwinder/rule.h"

struct uw_row {
	uint64_t word;
	int16_t ext[TABLE_EXT_AARCH64]; /* arch->ext_slots of them */
};

static inline unsigned int uw_word_kind(uint64_t word)
{
	return word & TABLE_RULE_KIND;
}

static inline int64_t uw_word_cfa(uint64_t word)
{
	return (int64_t)((int32_t)(uint32_t)word >> 8) * 8;
}

static inline int16_t uw_word_fp(uint64_t word)
{
	return (int16_t)(word >> 32);
}

static inline int16_t uw_word_ra(uint64_t word)
{
	return (int16_t)(word >> 48);
}

/* Return the offset in slow of a TABLE_SLOW word's record. */
static inline uint32_t uw_word_slow(uint64_t word)
{
	return (uint32_t)(word >> 32);
}

/*
 * Return a number of a TABLE_PLT word: CFA = sp + uw_word_cfa + (((pc & mask) >= least) << shift).
 */
static inline uint8_t uw_word_plt_mask(uint64_t word)
{
	return word >> 32 & 31;
}

static inline uint8_t uw_word_plt_least(uint64_t word)
{
	return word >> 37 & 31;
}

static inline uint8_t uw_word_plt_shift(uint64_t word)
{
	return word >> 42 & 31;
}

static inline uint64_t uw_plt_word(uint8_t mask, uint8_t least, uint8_t shift)
{
	return (uint64_t)(mask | (uint32_t)least << 5 | (uint32_t)shift << 10) << 32;
}

/*
 * Return whether the CFA is as a call leaves it, which it is where most procedures begin and end.
 */
static inline bool uw_word_is_entry(const struct uw_arch *arch, uint64_t word)
{
	return uw_word_kind(word) == TABLE_SP &&
	       uw_word_cfa(word) == (arch->lr == arch->pc ? 8 : 0);
}

/*
 * Return the index in ext of the CFA's register, of the set of based places, and of what DEREF adds
 * (× 8).
 */
static inline unsigned int uw_ext_reg(const struct uw_arch *arch)
{
	return arch->ext_slots - 1u;
}

static inline unsigned int uw_ext_based(const struct uw_arch *arch)
{
	return arch->ext_slots - 2u;
}

static inline unsigned int uw_ext_add(const struct uw_arch *arch)
{
	return arch->ext_slots - 3u;
}

/* Convert a rule to a row. -ENOTSUP: no word can express it. */
int uw_row_of(const struct uw_arch *arch, const struct uw_rule *rule, struct uw_row *out);

/* Convert a word, of any kind except NONE and SLOW, to a rule. ext has arch->ext_slots entries. */
void uw_row_rule(const struct uw_arch *arch, uint64_t word, const int16_t *ext,
		 struct uw_rule *out);

#endif
