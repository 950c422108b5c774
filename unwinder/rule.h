/*
 * unwinder/rule.h: how the caller's registers follow from the callee's.
 *
 * One row of the table that call-frame information describes (DWARF 5 §6.4.1),
 * whoever found it: the CFI interpreter, a recognised stub, a signal
 * trampoline.  A rule depends on (object, vaddr) alone, so it can be kept.
 */
#ifndef UNWINDER_RULE_H
#define UNWINDER_RULE_H

#include <stdbool.h>
#include <stdint.h>

#include "unwinder/unwinder.h"

enum uw_rule_kind {		       /* DWARF 5 §6.4.1; N, the CFA and R are its letters */
		    UW_RULE_SAME,      /* as it is in the callee, said in so many words */
		    UW_RULE_UNDEFINED, /* not recoverable; of the return address: outermost */
		    UW_RULE_AT_CFA,    /* offset(N): stored at CFA + N */
		    UW_RULE_CFA_PLUS,  /* val_offset(N): is CFA + N */
		    UW_RULE_REGISTER,  /* register(R): is in R */
		    UW_RULE_AT_EXPR,   /* expression(E): stored at E */
		    UW_RULE_EXPR,      /* val_expression(E): is E */
		    UW_RULE_AT_REG, /* stored at R + N: the expression that tables have a word for */
};

/* Expressions for the CFA that tables have a word for; cfa_reg + cfa_off is written R + N. */
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
	uint8_t reg;   /* whose rule this is, by DWARF number */
	uint8_t kind;  /* enum uw_rule_kind */
	uint8_t from;  /* REGISTER, AT_REG: R */
};

/* A register that is not mentioned is the same in the caller, caller-saved ones too. */
struct uw_rule {
	uint64_t start, end; /* vaddr range of the FDE or stub */
	union {
		int64_t cfa_off;	 /* CFA = cfa_reg + cfa_off */
		const uint8_t *cfa_expr; /* or an expression, where cfa_size > 0 */
	};
	uint32_t cfa_size;
	int32_t cfa_add;
	uint8_t cfa_kind; /* enum uw_cfa_kind */
	struct {
		uint8_t mask, least, shift; /* below 32 */
	} plt;
	uint8_t cfa_reg;
	uint8_t ra;	 /* the column that holds the return address */
	uint8_t stepper; /* enum uw_stepper: who says so */
	bool signal;	 /* the caller was interrupted: its pc is exact */
	bool compiled;	 /* it comes from the object's table */
	bool ra_signed;	 /* aarch64: the stored return address carries a PAC */
	uint8_t n_regs;
	struct uw_reg_rule regs[UW_REGS_MAX]; /* sorted by reg; those mentioned */
};

/* The rule of one register, NULL where none is mentioned. */
static inline const struct uw_reg_rule *uw_rule_reg(const struct uw_rule *rule, unsigned int reg)
{
	for (unsigned int i = 0; i < rule->n_regs; i++)
		if (rule->regs[i].reg == reg)
			return &rule->regs[i];
	return NULL;
}

#endif
