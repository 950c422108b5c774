/*
 * unwinder/arch/arch.h: describes what the unwinder must know of a machine.
 *
 * Each build contains every machine, so that a sample of one machine can be unwound on any
 * other.
 */
#ifndef UNWINDER_ARCH_ARCH_H
#define UNWINDER_ARCH_ARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unwinder/rule.h"
#include "unwinder/unwinder.h"

/* The code around an address, for functions that recognise it. */
struct uw_code {
	const uint8_t *at; /* before bytes below it and after bytes from it can be read; borrowed */
	size_t before, after;
};

enum uw_call_kind { UW_CALL_NONE, UW_CALL_INDIRECT, UW_CALL_DIRECT };

struct uw_call {
	uint8_t kind;	/* enum uw_call_kind */
	int32_t target; /* DIRECT: relative to code->at */
};

#define UW_SAVED_MAX 10

enum uw_built { /* how much of its frame a function without rules has built */
		UW_BUILT_UNKNOWN,
		UW_BUILT_NONE,	/* the return address is in lr, the frame pointer is the caller's */
		UW_BUILT_FRAME, /* lr has been saved; fp is the function's own if it keeps one */
};

/* The system call that has just created a thread. */
enum uw_made_by { UW_MADE_BY_NONE, UW_MADE_BY_CLONE, UW_MADE_BY_CLONE3 };

#define UW_CODE_BEFORE 16
#define UW_CODE_AFTER  16

/* How many bytes of code below an address are read to decide whether a function begins there. */
#define UW_BEGINS_BACK 96

struct uw_arch {
	uint16_t machine; /* EM_… */
	uint8_t n_regs;	  /* columns in struct uw_regs, including the pc */
	uint8_t sp, fp, pc;
	uint8_t lr;	    /* link register; equal to pc if calls push the return address */
	uint8_t code_align; /* alignment of instructions, in bytes */
	uint8_t unit_shift; /* the same as a power of two */
	uint8_t result;	    /* the register with a system call's result */
	uint8_t second;	    /* the register with its second argument, which the call preserves */
	/*
	 * The registers besides fp and lr whose places a table's rows can express
	 * (schema/table_blob.h).
	 */
	uint8_t ext_slots, n_saved;
	uint8_t saved[UW_SAVED_MAX];
	bool sigcontext_first; /* prefer the saved registers of a signal frame to its CFI */

	/*
	 * The instruction that every signal trampoline contains, and the minimum size of a
	 * trampoline.
	 */
	uint8_t syscall[4], syscall_size, trampoline_size;
	/*
	 * The code of the trampoline in the vDSO, the only code there that is returned to;
	 * NULL: the trampoline is elsewhere.
	 */
	const uint8_t *vdso_trampoline;

	/* Return the call that ends at code->at. Only the bytes before code->at are read. */
	struct uw_call (*after_call)(const struct uw_code *code);
	/*
	 * Return whether code->at is the start of a signal trampoline or, if exact, within one,
	 * and its rule.
	 */
	bool (*signal)(const struct uw_code *code, bool exact, struct uw_rule *rule);
	/*
	 * At which offsets within 16 bytes of a PLT instructions begin, one bit each; 0: no
	 * other code looks like a stub, so the bytes alone decide.
	 */
	uint16_t plt_places;
	/* Return whether code->at is within a PLT entry or a similar stub, and its rule. */
	bool (*stub)(const struct uw_code *code, struct uw_rule *rule);
	/* Find the rule of _init or _fini, whose code begins at start; at is off bytes into it. */
	bool (*init)(const struct uw_code *start, const struct uw_code *at, uint64_t off,
		     struct uw_rule *rule);
	/*
	 * Return whether another function ends before at, with or without padding behind it.
	 * code is the first readable byte. NULL: the start of a function cannot be recognised
	 * in this way.
	 */
	bool (*begins)(const uint8_t *code, const uint8_t *at);
	/* The same for the address behind the entry point's function, which begins at code. */
	bool (*begins_behind_entry)(const uint8_t *code, const uint8_t *at);
	/*
	 * Find the rule for a function of which code has the first size bytes, those before the
	 * pc. Return false if its prologue is not understood.
	 */
	bool (*prologue)(const uint8_t *code, size_t size, struct uw_rule *rule);
	/*
	 * Return what the code has built; its size bytes are those below the pc. NULL: this
	 * cannot be told from the code.
	 */
	enum uw_built (*built)(const uint8_t *code, size_t size);
	/*
	 * Return which system call that creates threads lies before code->at, with only the
	 * test of its result in between.
	 */
	enum uw_made_by (*made_by)(const struct uw_code *code);
	/*
	 * Return the address that the function at address at returns, or 0 if the function does
	 * anything else. code is its first 16 bytes.
	 */
	uint64_t (*returned)(const uint8_t *code, uint64_t at);
	/*
	 * Remove authentication bits and tags from a code address. mask says which bits those
	 * are; 0: they follow from top, the end of the highest mapping.
	 */
	uint64_t (*strip)(uint64_t pc, uint64_t mask, uint64_t top);
};

extern const struct uw_arch uw_arch_x86_64;
extern const struct uw_arch uw_arch_aarch64;

const struct uw_arch *uw_arch_of(uint16_t machine); /* NULL: unknown machine */

#endif
