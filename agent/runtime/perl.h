/*
 * agent/runtime/perl.h: reads the stack of a Perl interpreter, and the names of its frames.
 *
 * Each interpreter has a chain of PERL_SI (PL_curstackinfo), one for each time that C code called Perl code
 * again, and each PERL_SI has an array of PERL_CONTEXT: calls, evals, loops (cop.h). A call's context has the
 * function (CV) and the statement (COP) that made the call; PL_curcop is the statement that runs. Only
 * interpreters that are built with threads have these in a structure; Debian's is.
 */
#ifndef AGENT_RUNTIME_PERL_H
#define AGENT_RUNTIME_PERL_H

#include "agent/runtime/raw.h"

/* Where things are in the structures of a version: bytes from their start. */
struct perl_layout {
	unsigned int version;	  /* PL_version: 36 is Perl 5.36 */
	unsigned int interpreter; /* PL_interp_size, which depends on how Perl was built, too */
	uint16_t cur_cop, cur_stack_info; /* PerlInterpreter */
	/* PERL_SI */
	uint16_t si_contexts, si_prev, si_top, si_type, si_size;
	/* PERL_CONTEXT */
	uint16_t cx_size, cx_old_cop, cx_cv, cx_retop, cx_top_env;
	/* COP, which begins as an OP, and the types of it that are statements */
	uint16_t cop_line, cop_file, op_type, type_nextstate, type_dbstate;
	/* CV and its body, GV and its body, HV and its body, HEK */
	uint16_t sv_flags, cv_stash, cv_gv, cv_flags;
	uint16_t gv_name, gv_stash;
	uint16_t hv_name, hv_name_count;
	uint16_t hek_length, hek_key;
};

/* Return the layout of a version. NULL: it is not known. */
const struct perl_layout *perl_layout_of(unsigned int version, unsigned int interpreter_size);

/*
 * Find the frames of an interpreter. Frames that were found are in the stack, whatever is returned: 0;
 * -EFAULT: memory was not captured; -ELOOP: the chain is a cycle; -E2BIG: there are more frames than there is
 * room; -EBADMSG: a count is impossible.
 */
int perl_stack(struct runtime_memory *m, const struct perl_layout *layout, uint64_t interpreter,
	       struct raw_stack *stack);

/*
 * Make the plan that copies what perl_stack reads; the first slice begins at the interpreter's cur_cop. key is the
 * address of PL_thr_key, base where its file is.
 */
void perl_plan(const struct perl_layout *layout, uint64_t key, uint64_t base, struct plan *out);

/*
 * Find a frame's name: "Package::function", "Package::__ANON__", "(eval)", "(main)" for code outside
 * functions; file and line are those of the statement that runs.
 * Return 0; -EFAULT: memory cannot be read; -EBADMSG: what is there is no function.
 */
int perl_name(struct raw_reader *reader, const struct perl_layout *layout,
	      const struct raw_frame *frame, struct raw_name *out);

struct runtime_ops;
extern const struct runtime_ops runtime_perl;

#endif
