/*
 * unwinder/row.h: a rule as a word and the places of saved registers, as tables
 * (schema/table.h) and the caches of a walk hold it.
 */
#ifndef UNWINDER_ROW_H
#define UNWINDER_ROW_H

#include <stdint.h>

#include "schema/table.h"
#include "unwinder/arch.h"
#include "unwinder/rule.h"

struct uw_row {
	uint64_t word;
	int16_t ext[TABLE_EXT_AARCH64]; /* arch->ext_slots of them */
};

static inline unsigned int uw_word_kind(uint64_t word)
{
	return word & TABLE_WORD_KIND;
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

/* Of TABLE_SLOW: where its record is. */
static inline uint32_t uw_word_slow(uint64_t word)
{
	return (uint32_t)(word >> 32);
}

/* -ENOTSUP where no word can say it. */
int uw_row_of(const struct uw_arch *arch, const struct uw_rule *rule, struct uw_row *out);

/* What a word of any kind but NONE and SLOW says; ext has arch->ext_slots. */
void uw_row_rule(const struct uw_arch *arch, uint64_t word, const int16_t *ext,
		 struct uw_rule *out);

#endif
