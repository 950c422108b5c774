/* agent/runtime/ruby.c: finds Ruby in a process, and reads the stack of a thread. ruby_names.c has the names. */
#include "agent/runtime/ruby.h"

#include "agent/runtime/interpreter.h"
#include "base/bytes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The words below an ep, and the flags in the word at it (vm_core.h). */
enum { ENV_METHOD = -16, ENV_PREVIOUS = -8, ENV_SIZE = 24 };
enum { ENV_LOCAL = 2, FRAME_FINISH = 0x20, FRAME_KIND = 0x7fff0001, FRAME_CFUNC = 0x55550001 };

#define CF_MAX	   128
#define WORDS_MAX  (1u << 27)
#define SCOPES_MAX 32 /* blocks in blocks that are gone through to the method */

/* Offsets in the structures of Ruby's headers where pointers have 64 bits; those that are the same in these versions. */
#define STRUCTURES                                                                                 \
	.major = 3, .ec_stack = 0, .ec_stack_words = 8, .ec_cfp = 16, .ec_size = 24, .cf_pc = 0,   \
	.cf_iseq = 16, .cf_ep = 32, .iseq_body = 16, .iseq_n = 4, .iseq_code = 8, .iseq_path = 64, \
	.iseq_base_label = 72, .iseq_label = 80, .iseq_first_line = 88, .entry_size = 12,          \
	.entry_line = 0, .me_class = 8, .me_definition = 16, .definition_name = 32,                \
	.symbols_last = 0, .symbols_names = 16, .last_operator = 169
static const struct ruby_layout layouts[] = {
#include "agent/runtime/versions/ruby.h"
};

const struct ruby_layout *ruby_layout_of(unsigned int major, unsigned int minor)
{
	for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
		if (layouts[i].major == major && layouts[i].minor == minor)
			return &layouts[i];
	return NULL;
}

/* ---- the stack --------------------------------------------------------------------------------- */

/* An environment: which method it is of, or the environment around it; and flags. */
struct environment {
	uint64_t method, previous, flags;
};

static bool read_environment(struct runtime_memory *m, uint64_t ep, struct environment *out)
{
	uint8_t bytes[ENV_SIZE];

	if (!runtime_read(m, ep + (uint64_t)ENV_METHOD, bytes, sizeof(bytes)))
		return false;
	out->method = uw_bytes_little_n(bytes, 8);
	out->previous = uw_bytes_little_n(bytes + 8, 8) & ~UINT64_C(3);
	out->flags = uw_bytes_little_n(bytes + 16, 8);
	return true;
}

/*
 * Find what the environment of a method has for it. A block's environment leads to the one around it. Where
 * that was not captured, the method is not known.
 */
static uint64_t method_of(struct runtime_memory *m, struct environment e)
{
	for (unsigned int i = 0; i < SCOPES_MAX && !(e.flags & ENV_LOCAL); i++)
		if (!read_environment(m, e.previous, &e))
			return 0;
	return e.flags & ENV_LOCAL ? e.method : 0;
}

static bool add_frame(struct runtime_memory *m, const struct ruby_layout *l, const uint8_t *cf,
		      struct raw_stack *stack)
{
	uint64_t iseq = uw_bytes_little_n(cf + l->cf_iseq, 8),
		 pc = uw_bytes_little_n(cf + l->cf_pc, 8);
	struct raw_frame frame = { .code = iseq, .at = pc };
	struct environment e;
	bool known = read_environment(m, uw_bytes_little_n(cf + l->cf_ep, 8), &e);

	if (known)
		frame.entry = e.flags & FRAME_FINISH;
	if (iseq && pc) {
		frame.owner = known ? method_of(m, e) : 0;
	} else if (known && (e.flags & FRAME_KIND) == FRAME_CFUNC) {
		frame.code = e.method;
		frame.at = 0;
	} else { /* the dummy at the stack's start, or C code that stands for a block */
		return true;
	}
	return !frame.code || raw_add(stack, &frame);
}

/* Return how many bytes of a control frame are wanted: ep is the last field of them. */
static uint16_t cf_used(const struct ruby_layout *l)
{
	return (uint16_t)(l->cf_ep + 8);
}

int ruby_stack(struct runtime_memory *m, const struct ruby_layout *l, uint64_t ec,
	       struct raw_stack *stack)
{
	uint8_t head[64], cf[CF_MAX];
	uint64_t start, words, end, at;

	if (!runtime_read(m, ec, head, l->ec_size))
		return -EFAULT;
	start = uw_bytes_little_n(head + l->ec_stack, 8);
	words = uw_bytes_little_n(head + l->ec_stack_words, 8);
	at = uw_bytes_little_n(head + l->ec_cfp, 8);
	if (words > WORDS_MAX || start > UINT64_MAX - 8 * words)
		return -EBADMSG;
	end = start + 8 * words;
	if (at < start || at > end || (end - at) % l->cf_size)
		return -EBADMSG;
	/* The outermost frame is only there to begin with. */
	for (; at < end && end - at > l->cf_size; at += l->cf_size) {
		if (!runtime_read(m, at, cf, cf_used(l)))
			return -EFAULT;
		if (!add_frame(m, l, cf, stack))
			return -E2BIG;
	}
	return 0;
}

/*
 * Find the thread's execution context as __tls_get_addr does it: thread-local storage of glibc for 64 bits has, in
 * a vector (dtv) of 16 bytes for each module, where the module's block is (tls_index in dl-tls.h; psABI, TLS).
 */
enum { THREAD_DTV = 8, DTV_LOG2 = 4 };

void ruby_plan(const struct ruby_layout *l, uint64_t index, uint64_t base, struct plan *out)
{
	enum {
		END = PLAN_R0,
		EC = PLAN_R1,
		UNUSED = PLAN_R1,
		FRAME = PLAN_R2,
		LAST = PLAN_R3,
		EP = PLAN_R4,
		EP2 = PLAN_R5
	};
	enum { PAIR = 11, STOP = 16 };
	enum { NEAR_FRAMES = 1, NEAR_ENVIRONMENTS };
	const int64_t env = ENV_METHOD, end = -(int64_t)l->cf_size;
	const struct plan_op ops[] = {
		{ .what = PLAN_LOAD, .src = PLAN_BASE, .imm = (int64_t)(index - base), .dst = END },
		{ .what = PLAN_LOAD, .src = PLAN_THREAD, .imm = THREAD_DTV, .dst = EC },
		{ .what = PLAN_ADD, .src = EC, .other = END, .size = DTV_LOG2, .dst = EC },
		{ .what = PLAN_LOAD, .src = EC, .dst = EC },
		{ .what = PLAN_LOAD,
		  .src = PLAN_BASE,
		  .imm = (int64_t)(index - base) + 8,
		  .dst = END },
		{ .what = PLAN_ADD, .src = EC, .other = END, .dst = EC },
		{ .what = PLAN_LOAD,
		  .src = EC,
		  .dst = EC,
		  .when = PLAN_ZERO,
		  .reg = EC,
		  .jump = STOP },
		{ .what = PLAN_COPY,
		  .src = EC,
		  .size = l->ec_size,
		  .dst = FRAME,
		  .at = (uint8_t)(l->ec_cfp / 8),
		  .dst2 = LAST,
		  .at2 = (uint8_t)(l->ec_stack_words / 8) },
		{ .what = PLAN_LOAD, .src = EC, .imm = l->ec_stack, .dst = END },
		{ .what = PLAN_ADD, .src = END, .other = LAST, .size = 3, .dst = END },
		{ .what = PLAN_ADD,
		  .src = END,
		  .imm = end,
		  .size = 64,
		  .dst = LAST,
		  .when = PLAN_EQUAL,
		  .reg = LAST,
		  .other = FRAME,
		  .jump = STOP },
		/*
		 * PAIR: two frames and their environments; the second one may be the outermost frame, which is not
		 * read.
		 */
		{ .what = PLAN_COPY,
		  .near = NEAR_FRAMES,
		  .src = FRAME,
		  .size = cf_used(l),
		  .dst = EP,
		  .at = (uint8_t)(l->cf_ep / 8),
		  .dst2 = UNUSED },
		{ .what = PLAN_COPY,
		  .near = NEAR_FRAMES,
		  .src = FRAME,
		  .imm = l->cf_size,
		  .size = cf_used(l),
		  .dst = EP2,
		  .at = (uint8_t)(l->cf_ep / 8),
		  .dst2 = UNUSED },
		{ .what = PLAN_ADD,
		  .src = FRAME,
		  .imm = 2 * (int64_t)l->cf_size,
		  .size = 64,
		  .dst = FRAME },
		{ .what = PLAN_COPY,
		  .near = NEAR_ENVIRONMENTS,
		  .src = EP,
		  .imm = env,
		  .size = ENV_SIZE,
		  .dst = UNUSED,
		  .dst2 = UNUSED,
		  .when = PLAN_EQUAL,
		  .reg = FRAME,
		  .other = END,
		  .jump = STOP },
		{ .what = PLAN_COPY,
		  .near = NEAR_ENVIRONMENTS,
		  .src = EP2,
		  .imm = env,
		  .size = ENV_SIZE,
		  .dst = UNUSED,
		  .dst2 = UNUSED,
		  .when = PLAN_DIFFER,
		  .reg = FRAME,
		  .other = LAST,
		  .jump = PAIR },
		{ .what = PLAN_STOP },
	};

	raw_plan(out, ops, sizeof(ops) / sizeof(ops[0]));
}

/* ---- the runtime -------------------------------------------------------------------------------- */

enum { EXPORT_VERSION, EXPORT_EXEC, EXPORT_ID, EXPORT_EC_USER, EXPORT_EVAL };

#define LOOP_CALLEE 8192 /* bytes that vm_exec_core has at least, which vm_exec calls */

struct state {
	const struct ruby_layout *layout;
	uint8_t code[128]; /* where ruby_global_symbols is sought; its address */
	uint64_t code_at;
	struct ruby_known known;
};

/* libruby-3.3.so.3.3.8, libruby.so.3.3, ruby3.3 */
static bool is_named(const char *base)
{
	return !strncmp(base, "libruby", 7) || !strncmp(base, "ruby", 4);
}

static const struct ruby_layout *find_layout(const struct runtime_file *file)
{
	unsigned int major, minor;
	char version[8];

	if (!runtime_constant(file, file->exports[EXPORT_VERSION], version, sizeof(version)))
		return NULL;
	version[sizeof(version) - 1] = '\0';
	return sscanf(version, "%2u.%2u", &major, &minor) == 2 ? ruby_layout_of(major, minor)
							       : NULL;
}

/* Return where a jump (e9, and the distance from its end) at an address leads to. */
static uint64_t jump_of(const uint8_t code[5], uint64_t at)
{
	return at + 5 + (uint64_t)(int64_t)(int32_t)uw_bytes_little_n(code + 1, 4);
}

/*
 * Read the code that uses ruby_global_symbols: rb_id2str ends with a jump to it. Without the jump it is
 * rb_id2str itself.
 */
static void read_code(struct state *s, const struct runtime_file *file)
{
	uint64_t at = file->exports[EXPORT_ID];

	if (!at || !runtime_constant(file, at, s->code, sizeof(s->code)))
		return;
	for (size_t i = 0; i < 48; i++) {
		uint8_t code[sizeof(s->code)];
		uint64_t to = jump_of(s->code + i, at + i);

		if (s->code[i] == 0xe9 && runtime_constant(file, to, code, sizeof(code))) {
			memcpy(s->code, code, sizeof(code));
			at = to;
			break;
		}
	}
	s->code_at = at;
}

/*
 * Find vm_exec, which calls the loop. It is exported as rb_vm_exec, or else rb_iseq_eval_main ends with a jump to it.
 */
static uint64_t find_loop(const struct runtime_file *file)
{
	uint64_t at = file->exports[EXPORT_EVAL], start, end, to_start, to_end;
	uint8_t code[256];

	if (file->exports[EXPORT_EXEC])
		return file->exports[EXPORT_EXEC];
	if (!at || uw_object_function(file->object, at - file->bias, &start, &end) ||
	    !runtime_constant(file, at, code, sizeof(code)))
		return 0;
	for (size_t i = 0; i + 5 <= sizeof(code) && at - file->bias + i < end; i++) {
		uint64_t to = jump_of(code + i, at - file->bias + i);

		if (code[i] == 0xe9 && (to < start || to >= end) &&
		    !uw_object_function(file->object, to, &to_start, &to_end) && to == to_start)
			return to + file->bias;
	}
	return 0;
}

/*
 * Find where the file has the module and the offset of ruby_current_ec, which is in thread-local storage. rb_errinfo
 * begins to use them: data16 lea INDEX(%rip), %rdi; then it calls __tls_get_addr. Return 0 if it does not.
 */
static uint64_t find_index(const struct runtime_file *file)
{
	static const uint8_t lea[] = { 0x66, 0x48, 0x8d, 0x3d };
	uint64_t at = file->exports[EXPORT_EC_USER];
	uint8_t code[48];

	if (!at || !runtime_constant(file, at, code, sizeof(code)))
		return 0;
	for (size_t i = 0; i + 8 <= sizeof(code); i++)
		if (!memcmp(code + i, lea, sizeof(lea)))
			return at + i + 8 +
			       (uint64_t)(int64_t)(int32_t)uw_bytes_little_n(code + i + sizeof(lea),
									     4);
	return 0;
}

static int begin(struct interpreter *in, const struct runtime_file *file, struct plan *plan)
{
	struct state *s = interpreter_own(in);
	uint64_t index = find_index(file);

	if (!file->exports[EXPORT_VERSION] || !index)
		return -ENOTSUP;
	s->layout = find_layout(file);
	if (!s->layout)
		return -ENOTSUP;
	read_code(s, file);
	ruby_plan(s->layout, index, file->bias, plan);
	return 0;
}

/* The first slice is the beginning of the thread's execution context (ruby_plan). */
static int find_stack(struct interpreter *in, const struct runtime_stack *stack,
		      struct raw_stack *raw)
{
	const struct state *s = interpreter_own(in);
	uint64_t ec;
	int err = interpreter_first_slice(stack, &ec);

	return err ? err : ruby_stack(stack->memory, s->layout, ec, raw);
}

static int find_name(struct interpreter *in, struct raw_reader *r, const struct raw_frame *frame,
		     struct raw_name *out)
{
	struct state *s = interpreter_own(in);

	if (!s->known.symbols && s->code_at)
		s->known.symbols = ruby_symbols(r, s->layout, s->code, sizeof(s->code), s->code_at);
	return ruby_name(r, s->layout, &s->known, frame, out);
}

static const struct interpreter_kind kind = { .module = "[ruby]",
					      .own_size = sizeof(struct state),
					      .loop = find_loop,
					      .callee_size = LOOP_CALLEE,
					      .attach = begin,
					      .stack = find_stack,
					      .name = find_name };

static int attach(const struct runtime_file *file, void **state, struct plan *plan)
{
	return interpreter_attach(&kind, file, state, plan);
}

const struct runtime_ops runtime_ruby = { .module = "[ruby]",
					  .exports = { [EXPORT_VERSION] = "ruby_version",
						       [EXPORT_EXEC] = "rb_vm_exec",
						       [EXPORT_ID] = "rb_id2str",
						       [EXPORT_EC_USER] = "rb_errinfo",
						       [EXPORT_EVAL] = "rb_iseq_eval_main" },
					  .is_named = is_named,
					  .attach = attach,
					  .detach = interpreter_detach,
					  .decode = interpreter_decode };
