/*
 * unwinder/table/row.h: a packed rule and the places of saved registers, the form that tables
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
	uint64_t packed;
	int16_t ext[TABLE_EXT_AARCH64]; /* arch->ext_slots of them */
};

static inline unsigned int uw_packed_kind(uint64_t packed)
{
	return packed & TABLE_RULE_KIND;
}

static inline int64_t uw_packed_cfa(uint64_t packed)
{
	return (int64_t)((int32_t)(uint32_t)packed >> 8) * 8;
}

static inline int16_t uw_packed_fp(uint64_t packed)
{
	return (int16_t)(packed >> 32);
}

static inline int16_t uw_packed_ra(uint64_t packed)
{
	return (int16_t)(packed >> 48);
}

/* Return the offset in slow of a TABLE_SLOW rule's record. */
static inline uint32_t uw_packed_slow(uint64_t packed)
{
	return (uint32_t)(packed >> 32);
}

/*
 * Return a number of a TABLE_PLT rule: CFA = sp + uw_packed_cfa + (((pc & mask) >= least) <<
 * shift).
 */
static inline uint8_t uw_packed_plt_mask(uint64_t packed)
{
	return packed >> 32 & 31;
}

static inline uint8_t uw_packed_plt_least(uint64_t packed)
{
	return packed >> 37 & 31;
}

static inline uint8_t uw_packed_plt_shift(uint64_t packed)
{
	return packed >> 42 & 31;
}

static inline uint64_t uw_packed_plt(uint8_t mask, uint8_t least, uint8_t shift)
{
	return (uint64_t)(mask | (uint32_t)least << 5 | (uint32_t)shift << 10) << 32;
}

/*
 * Return whether the CFA is as a call leaves it, which it is where most procedures begin and end.
 */
static inline bool uw_packed_is_entry(const struct uw_arch *arch, uint64_t packed)
{
	return uw_packed_kind(packed) == TABLE_SP &&
	       uw_packed_cfa(packed) == (arch->lr == arch->pc ? 8 : 0);
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

/* Convert a rule to a row. -ENOTSUP: no packed rule can express it. */
int uw_row_of(const struct uw_arch *arch, const struct uw_rule *rule, struct uw_row *out);

/*
 * Convert a packed rule, of any kind except NONE and SLOW, to a rule. ext has arch->ext_slots
 * entries.
 */
void uw_row_rule(const struct uw_arch *arch, uint64_t packed, const int16_t *ext,
		 struct uw_rule *out);

#endif
