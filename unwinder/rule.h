/*
 * unwinder/rule.h: a rule says how the caller's registers follow from the callee's.
 *
 * It is one row of the table that call-frame information describes (DWARF 5 §6.4.1), no matter what
 * it was made from: call-frame information, a recognized stub or a signal trampoline. A rule
 * depends only on (object, vaddr), so it can be cached.
 */
#ifndef UNWINDER_RULE_H
#define UNWINDER_RULE_H

#include <stdbool.h>
#include <stdint.h>

#include "unwinder/unwinder.h"

/* DWARF 5 §6.4.1; N, the CFA and R are its letters. */
enum uw_rule_kind {
	UW_RULE_SAME, /* unchanged from the callee, and the information says so */
	/* not recoverable; for the return address: this frame is the outermost */
	UW_RULE_UNDEFINED,
	UW_RULE_AT_CFA,	  /* offset(N): stored at CFA + N */
	UW_RULE_CFA_PLUS, /* val_offset(N): is CFA + N */
	UW_RULE_REGISTER, /* register(R): is in R */
	UW_RULE_AT_EXPR,  /* expression(E): stored at E */
	UW_RULE_EXPR,	  /* val_expression(E): is E */
	/* stored at R + N: an expression that tables have a word for */
	UW_RULE_AT_REG,
};

/* Expressions for the CFA that tables have a word for. R + N stands for cfa_reg + cfa_off. */
enum uw_cfa_kind {
	UW_CFA_PLAIN, /* R + N, or another expression */
	UW_CFA_DEREF, /* *(R + N) + cfa_add */
	UW_CFA_PLT,   /* R + N + (((pc & plt.mask) >= plt.least) << plt.shift) */
};

struct uw_reg_rule {
	union {
		int64_t off;
		const uint8_t *expr; /* borrowed from the object, or static */
	};
	uint32_t size; /* of expr */
	uint8_t reg;   /* the register that this rule is for, by DWARF number */
	uint8_t kind;  /* enum uw_rule_kind */
	uint8_t from;  /* REGISTER, AT_REG: R */
};

/* A register without a rule is unchanged in the caller, even a caller-saved one. */
struct uw_rule {
	uint64_t start, end; /* vaddr range of the FDE or stub */
	union {
		int64_t cfa_off;	 /* CFA = cfa_reg + cfa_off */
		const uint8_t *cfa_expr; /* or an expression, if cfa_size > 0 */
	};
	uint32_t cfa_size;
	int32_t cfa_add;
	uint8_t cfa_kind; /* enum uw_cfa_kind */
	struct {
		uint8_t mask, least, shift; /* each below 32 */
	} plt;
	uint8_t cfa_reg;
	uint8_t ra;	 /* the column that holds the return address */
	uint8_t stepper; /* enum uw_stepper: what found the rule */
	bool signal;	 /* the caller was interrupted: its pc is exact */
	bool compiled;	 /* from the object's compiled table */
	bool ra_signed;	 /* aarch64: the stored return address carries a PAC */
	uint8_t n_regs;
	struct uw_reg_rule regs[UW_REGS_MAX]; /* registers with a rule, sorted by reg */
};

/* Return the rule of one register, or NULL if there is none. */
static inline const struct uw_reg_rule *uw_rule_reg(const struct uw_rule *rule, unsigned int reg)
{
	for (unsigned int i = 0; i < rule->n_regs; i++)
		if (rule->regs[i].reg == reg)
			return &rule->regs[i];
	return NULL;
}

#endif
