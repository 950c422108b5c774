/* agent/runtime/perl.c: reads the stack of a Perl interpreter, and the names of its frames. */
#include "agent/runtime/perl.h"

#include "agent/runtime/interpreter.h"
#include "base/bytes.h"

#include <errno.h>
#include <string.h>

/* Instead of the address of a CV, in raw_frame.code. */
enum { CODE_MAIN = 1, CODE_EVAL = 2, CODE_BEGIN = 3 /* of the CV in raw_frame.owner */ };

/* PERL_CONTEXT.blk_type (cop.h): the kind in four bits, flags above them. */
enum { CX_KIND = 0xf, CX_NULL = 0, CX_SUB = 9, CX_FORMAT = 10, CX_EVAL = 11 };
enum { CX_MULTICALL = 0x10, CX_SUB_RE_FAKE = 0x80, CX_EVAL_TEXT = 0x20 };
enum { SI_REQUIRE = 9 }; /* PERL_SI.si_type */

/* SV.sv_flags (sv.h), CvFLAGS (cv.h). */
enum { SV_KIND = 0xff, SV_CV = 13, SV_GV = 9, SV_HV = 12, SV_OOK = 0x2000000 };
enum { CV_NAMED = 0x8000 };
enum { OP_TYPE = 0x1ff }; /* op_type has nine bits */

/*
 * The contexts are copied in pieces of as many as fit. A context has CX_SIZE bytes: 64 + 32 + 8, which the plan
 * multiplies by.
 */
enum { CX_SIZE = 104, CX_PIECE = PLAN_PIECE_MAX / CX_SIZE * CX_SIZE };

#define CX_HEAD_MAX  128
#define CONTEXTS_MAX (1 << 24)

/*
 * Offsets in the structures of Perl's headers, as Debian builds it, which are the same in these versions. The interpreter's
 * size and the numbers of statements (opnames.h) are others.
 */
#define STRUCTURES                                                                            \
	.cur_cop = 208, .cur_stack_info = 224, .si_contexts = 8, .si_prev = 16, .si_top = 32, \
	.si_type = 44, .si_size = 48, .cx_size = CX_SIZE, .cx_old_cop = 16, .cx_cv = 72,      \
	.cx_retop = 48, .cx_top_env = 96, .cop_line = 36, .cop_file = 48, .op_type = 32,      \
	.sv_flags = 12, .cv_stash = 32, .cv_gv = 56, .cv_flags = 92, .gv_name = 32,           \
	.gv_stash = 40, .hv_name = 32, .hv_name_count = 60, .hek_length = 4, .hek_key = 8
static const struct perl_layout layouts[] = {
#include "agent/runtime/versions/perl.h"
};

const struct perl_layout *perl_layout_of(unsigned int version, unsigned int interpreter_size)
{
	for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
		if (layouts[i].version == version && layouts[i].interpreter == interpreter_size)
			return &layouts[i];
	return NULL;
}

/* ---- the stack --------------------------------------------------------------------------------- */

/* Add the frame of a context, if it has one. *cop is the statement that runs in it, and then its caller's. */
static bool add_context(const struct perl_layout *l, const uint8_t *cx, uint64_t *cop,
			struct raw_stack *stack)
{
	struct raw_frame frame = { .at = *cop, .entry = !uw_bytes_little_n(cx + l->cx_retop, 8) };
	unsigned int kind = cx[0] & CX_KIND;

	switch (kind) {
	case CX_SUB:
	case CX_FORMAT:
		/* Code in a regular expression runs in the context of the function that has it. */
		if (kind == CX_SUB && cx[0] & CX_SUB_RE_FAKE)
			return true;
		frame.code = uw_bytes_little_n(cx + l->cx_cv, 8);
		break;
	case CX_EVAL:
		frame.code = CODE_EVAL;
		frame.entry = false;
		frame.within = uw_bytes_little_n(cx + l->cx_top_env, 8);
		frame.short_lived = cx[0] & CX_EVAL_TEXT;
		break;
	case CX_NULL: /* a block that sort calls by an evaluation loop of its own */
		if (!(cx[0] & CX_MULTICALL))
			return true;
		frame.entry = frame.nameless = true;
		break;
	default: /* loops and blocks */
		return true;
	}
	*cop = uw_bytes_little_n(cx + l->cx_old_cop, 8);
	return raw_add(stack, &frame);
}

/*
 * If the contexts of a PERL_SI begin as those of a BEGIN block do, say so in the frame of its call. Perl frees such
 * a block as soon as it has run, before its name can be read: each `use` is one.
 */
static void find_begin(const struct perl_layout *l, const uint8_t *eval, const uint8_t *sub,
		       struct raw_frame *frame)
{
	if ((eval[0] & (CX_KIND | CX_EVAL_TEXT)) != CX_EVAL || (sub[0] & CX_KIND) != CX_SUB ||
	    uw_bytes_little_n(sub + l->cx_retop, 8) ||
	    frame->code != uw_bytes_little_n(sub + l->cx_cv, 8))
		return;
	frame->owner = frame->code;
	frame->code = CODE_BEGIN;
	frame->short_lived = true;
}

/* Add the frames of all contexts of a PERL_SI. */
static int add_contexts(struct runtime_memory *m, const struct perl_layout *l, uint64_t contexts,
			int32_t top, bool require, uint64_t *cop, struct raw_stack *stack)
{
	uint8_t cx[CX_HEAD_MAX], inner[CX_HEAD_MAX] = { 0 };

	if (top < -1 || top > CONTEXTS_MAX)
		return -EBADMSG;
	for (int32_t i = top; i >= 0; i--) {
		if (!runtime_read(m, contexts + (uint64_t)i * l->cx_size, cx, l->cx_size))
			return -EFAULT;
		if (!i && top && require && stack->n)
			find_begin(l, cx, inner, &stack->frames[stack->n - 1]);
		if (!add_context(l, cx, cop, stack))
			return -E2BIG;
		memcpy(inner, cx, l->cx_size);
	}
	return 0;
}

/*
 * What eval is to catch comes back to a JMPENV on the native stack (PL_top_env). Where there is none that may be
 * used, perl makes one and enters a loop for this eval (S_docatch in pp_ctl.c); evals inside of it have the same.
 * So only the outermost eval with a JMPENV has an entry.
 */
static void find_entries(struct raw_stack *stack)
{
	uint64_t outer = 0;

	for (size_t i = stack->n; i-- > 0;) {
		struct raw_frame *f = &stack->frames[i];

		if (!f->within)
			continue;
		if (f->within == outer)
			f->within = 0;
		else
			outer = f->within;
	}
}

int perl_stack(struct runtime_memory *m, const struct perl_layout *l, uint64_t interpreter,
	       struct raw_stack *stack)
{
	struct raw_frame main = { .code = CODE_MAIN, .entry = true };
	struct raw_chain chain = { .next = 0 };
	uint64_t cop, info;
	int err = 0;

	if (!runtime_read_u64(m, interpreter + l->cur_cop, &cop) ||
	    !runtime_read_u64(m, interpreter + l->cur_stack_info, &info))
		return -EFAULT;
	while (!err && info) {
		uint8_t si[64];

		if (!raw_chain_goes_on(&chain, info))
			return -ELOOP;
		if (!runtime_read(m, info, si, l->si_size))
			return -EFAULT;
		err = add_contexts(m, l, uw_bytes_little_n(si + l->si_contexts, 8),
				   (int32_t)uw_bytes_little_n(si + l->si_top, 4),
				   uw_bytes_little_n(si + l->si_type, 4) == SI_REQUIRE, &cop,
				   stack);
		info = uw_bytes_little_n(si + l->si_prev, 8);
	}
	find_entries(stack);
	main.at = cop;
	if (!err && cop && !raw_add(stack, &main))
		err = -E2BIG;
	return err;
}

/*
 * The key of PL_thr_key leads to the interpreter of a thread: struct pthread of glibc for 64 bits has the values of
 * the first 32 keys, each behind a number (specific_1stblock in nptl/descr.h).
 */
enum { PTHREAD_VALUES = 0x310, PTHREAD_VALUE_LOG2 = 4, PTHREAD_VALUE = 8 };

void perl_plan(const struct perl_layout *l, uint64_t key, uint64_t base, struct plan *out)
{
	enum {
		N = PLAN_R0,
		INFO = PLAN_R1,
		CONTEXT = PLAN_R2,
		END = PLAN_R3,
		PREV = PLAN_R4,
		UNUSED = PLAN_R5
	};
	enum { NEXT_INFO = 5, RANGE = 12, DONE_INFO = 13, STOP = 14 };
	const struct plan_op ops[] = {
		{ .what = PLAN_LOAD, .src = PLAN_BASE, .imm = (int64_t)(key - base), .dst = N },
		{ .what = PLAN_AND, .src = N, .imm = 0xffffffff, .dst = N },
		{ .what = PLAN_ADD,
		  .src = PLAN_THREAD,
		  .imm = PTHREAD_VALUES + PTHREAD_VALUE,
		  .other = N,
		  .size = PTHREAD_VALUE_LOG2,
		  .dst = INFO },
		{ .what = PLAN_LOAD,
		  .src = INFO,
		  .dst = INFO,
		  .when = PLAN_ZERO,
		  .reg = INFO,
		  .jump = STOP },
		{ .what = PLAN_COPY,
		  .src = INFO,
		  .imm = l->cur_cop,
		  .size = (uint16_t)(l->cur_stack_info + 8 - l->cur_cop),
		  .dst = INFO,
		  .at = (uint8_t)((l->cur_stack_info - l->cur_cop) / 8),
		  .dst2 = UNUSED,
		  .when = PLAN_ZERO,
		  .reg = INFO,
		  .jump = STOP },
		/* NEXT_INFO */
		{ .what = PLAN_COPY,
		  .src = INFO,
		  .size = l->si_size,
		  .dst = CONTEXT,
		  .at = (uint8_t)(l->si_contexts / 8),
		  .dst2 = N,
		  .at2 = (uint8_t)(l->si_top / 8) },
		{ .what = PLAN_LOAD, .src = INFO, .imm = l->si_prev, .dst = PREV },
		/* The number of the top one is in 32 bits, -1 if there is none. */
		{ .what = PLAN_ADD, .src = N, .imm = 1, .size = 64, .dst = N },
		{ .what = PLAN_AND,
		  .src = N,
		  .imm = 0xffffffff,
		  .dst = N,
		  .when = PLAN_ZERO,
		  .reg = N,
		  .jump = DONE_INFO },
		{ .what = PLAN_ADD, .src = CONTEXT, .other = N, .size = 6, .dst = END },
		{ .what = PLAN_ADD, .src = END, .other = N, .size = 5, .dst = END },
		{ .what = PLAN_ADD, .src = END, .other = N, .size = 3, .dst = END },
		/* RANGE */
		{ .what = PLAN_RANGE,
		  .src = CONTEXT,
		  .other = END,
		  .size = CX_PIECE,
		  .dst = CONTEXT,
		  .when = PLAN_DIFFER,
		  .reg = CONTEXT,
		  .jump = RANGE },
		/* DONE_INFO */
		{ .what = PLAN_ADD,
		  .src = PREV,
		  .size = 64,
		  .dst = INFO,
		  .when = PLAN_NONZERO,
		  .reg = INFO,
		  .jump = NEXT_INFO },
		{ .what = PLAN_STOP },
	};

	raw_plan(out, ops, sizeof(ops) / sizeof(ops[0]));
}

/* ---- names ------------------------------------------------------------------------------------- */

/* Return whether an SV is of a kind, and its body and flags. */
static bool body_of(struct raw_reader *r, const struct perl_layout *l, uint64_t sv,
		    unsigned int kind, uint64_t *body, uint64_t *flags)
{
	return sv && raw_get_number(r, sv + l->sv_flags, 4, flags) && (*flags & SV_KIND) == kind &&
	       raw_get_number(r, sv, 8, body);
}

static bool add_hek(struct raw_reader *r, const struct perl_layout *l, uint64_t hek,
		    struct raw_text *text)
{
	uint64_t size;

	return hek && raw_get_number(r, hek + l->hek_length, 4, &size) && size < INT32_MAX &&
	       raw_text_get(text, r, hek + l->hek_key, size);
}

/* Add the name of a package and "::". A package that has several names has an array of them. */
static bool add_stash(struct raw_reader *r, const struct perl_layout *l, uint64_t stash,
		      struct raw_text *text)
{
	uint64_t body, flags, name, count;

	if (!body_of(r, l, stash, SV_HV, &body, &flags) || !(flags & SV_OOK) ||
	    !raw_get_number(r, body + l->hv_name_count, 4, &count) ||
	    !raw_get_number(r, body + l->hv_name, 8, &name) || !name ||
	    (count && !raw_get_number(r, name, 8, &name)) || !add_hek(r, l, name, text))
		return false;
	raw_text_word(text, "::");
	return true;
}

static int function_name(struct raw_reader *r, const struct perl_layout *l, uint64_t cv,
			 struct raw_name *out)
{
	uint64_t body, flags, cv_flags, gv, stash, name;

	if (!body_of(r, l, cv, SV_CV, &body, &flags))
		return -EBADMSG;
	if (!raw_get_number(r, body + l->cv_flags, 4, &cv_flags) ||
	    !raw_get_number(r, body + l->cv_gv, 8, &gv))
		return -EFAULT;
	if (cv_flags & CV_NAMED) {
		name = gv; /* the name itself */
		if (!raw_get_number(r, body + l->cv_stash, 8, &stash))
			return -EFAULT;
	} else {
		if (!body_of(r, l, gv, SV_GV, &body, &flags) ||
		    !raw_get_number(r, body + l->gv_name, 8, &name) ||
		    !raw_get_number(r, body + l->gv_stash, 8, &stash))
			return -EFAULT;
	}
	(void)add_stash(r, l, stash, &out->function);
	return add_hek(r, l, name, &out->function) ? 0 : -EFAULT;
}

/* Add the name of a BEGIN block: with its package, if perl has not freed it yet. */
static void begin_name(struct raw_reader *r, const struct perl_layout *l, uint64_t cv,
		       struct raw_name *out)
{
	static const char word[] = "BEGIN";
	const size_t n = sizeof(word) - 1;
	const struct raw_text *found = &out->function;

	if (!function_name(r, l, cv, out) && found->n >= n &&
	    !memcmp(found->bytes + found->n - n, word, n))
		return;
	raw_text_clear(&out->function);
	raw_text_word(&out->function, word);
}

/*
 * Add file and line of a statement. If it is no statement any more (code of eval, which is gone), nothing is
 * added. PL_compiling, which stands for statements that are being compiled, has no type.
 */
static bool add_place(struct raw_reader *r, const struct perl_layout *l, uint64_t cop,
		      struct raw_name *out)
{
	uint64_t type, file, line;

	if (!raw_get_number(r, cop + l->op_type, 2, &type) ||
	    !raw_get_number(r, cop + l->cop_line, 4, &line) ||
	    !raw_get_number(r, cop + l->cop_file, 8, &file))
		return false;
	type &= OP_TYPE;
	if (line && (type == l->type_nextstate || type == l->type_dbstate || !type)) {
		out->line = (uint32_t)line;
		(void)raw_text_string(&out->file, r, file);
	}
	return true;
}

int perl_name(struct raw_reader *r, const struct perl_layout *l, const struct raw_frame *frame,
	      struct raw_name *out)
{
	int err = 0;

	raw_text_clear(&out->function);
	raw_text_clear(&out->file);
	out->line = out->start_line = 0;
	if (frame->code == CODE_MAIN)
		raw_text_word(&out->function, "(main)");
	else if (frame->code == CODE_EVAL)
		raw_text_word(&out->function, "(eval)");
	else if (frame->code == CODE_BEGIN)
		begin_name(r, l, frame->owner, out);
	else
		err = function_name(r, l, frame->code, out);
	if (err)
		return err;
	return add_place(r, l, frame->at, out) || frame->short_lived ? 0 : -EFAULT;
}

/* ---- the runtime -------------------------------------------------------------------------------- */

enum { EXPORT_KEY, EXPORT_VERSION, EXPORT_SIZE, EXPORT_LOOP };

struct state {
	const struct perl_layout *layout;
};

/* perl, perl5.40-x86_64-linux-gnu, libperl.so.5.40.1 */
static bool is_named(const char *base)
{
	return !strncmp(base, "perl", 4) || !strncmp(base, "libperl", 7);
}

static const struct perl_layout *find_layout(const struct runtime_file *file)
{
	uint8_t version, size[2];

	if (!runtime_constant(file, file->exports[EXPORT_VERSION], &version, sizeof(version)) ||
	    !runtime_constant(file, file->exports[EXPORT_SIZE], size, sizeof(size)))
		return NULL;
	return perl_layout_of(version, (unsigned int)uw_bytes_little_n(size, sizeof(size)));
}

static int begin(struct interpreter *in, const struct runtime_file *file, struct plan *plan)
{
	struct state *s = interpreter_own(in);

	/* Builds without threads have no key. */
	if (!file->exports[EXPORT_KEY] || !file->exports[EXPORT_VERSION] ||
	    !file->exports[EXPORT_SIZE])
		return -ENOTSUP;
	s->layout = find_layout(file);
	if (!s->layout)
		return -ENOTSUP;
	perl_plan(s->layout, file->exports[EXPORT_KEY], file->bias, plan);
	return 0;
}

/* The first slice is a part of the interpreter (perl_plan). */
static int find_stack(struct interpreter *in, const struct runtime_stack *stack,
		      struct raw_stack *raw)
{
	const struct state *s = interpreter_own(in);
	uint64_t addr;
	int err = interpreter_first_slice(stack, &addr);

	return err ? err : perl_stack(stack->memory, s->layout, addr - s->layout->cur_cop, raw);
}

static int find_name(struct interpreter *in, struct raw_reader *r, const struct raw_frame *frame,
		     struct raw_name *out)
{
	const struct state *s = interpreter_own(in);

	return perl_name(r, s->layout, frame, out);
}

static uint64_t find_loop(const struct runtime_file *file)
{
	return file->exports[EXPORT_LOOP];
}

static const struct interpreter_kind kind = { .module = "[perl]",
					      .own_size = sizeof(struct state),
					      .loop = find_loop,
					      .attach = begin,
					      .stack = find_stack,
					      .name = find_name };

static int attach(const struct runtime_file *file, void **state, struct plan *plan)
{
	return interpreter_attach(&kind, file, state, plan);
}

const struct runtime_ops runtime_perl = { .module = "[perl]",
					  .exports = { [EXPORT_KEY] = "PL_thr_key",
						       [EXPORT_VERSION] = "PL_version",
						       [EXPORT_SIZE] = "PL_interp_size",
						       [EXPORT_LOOP] = "Perl_runops_standard" },
					  .is_named = is_named,
					  .attach = attach,
					  .detach = interpreter_detach,
					  .decode = interpreter_decode };
