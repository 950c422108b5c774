/* agent/runtime/php.c: reads the stack of a PHP interpreter, and the names of its frames. */
#include "agent/runtime/php.h"

#include "agent/runtime/interpreter.h"
#include "agent/source/machine.h"
#include "base/bytes.h"

#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The kinds of functions (Zend/zend_compile.h). */
enum { INTERNAL_FUNCTION = 1, USER_FUNCTION = 2, EVAL_CODE = 4 };

#define HEAD_MAX      64
#define OPCODES_MAX   (1u << 26)
#define CONSTANTS_MAX (64u << 20) /* bytes of a segment in which the version is sought */

/* Offsets in the structures of PHP's headers where pointers have 64 bits; those that are the same in these versions. */
#define STRUCTURES                                                                               \
	.major = 4, .current = 488, .opline = 0, .func = 24, .info = 40, .prev = 48, .head = 56, \
	.info_top = 1u << 17, .type = 0, .name = 8, .scope = 16, .class_name = 8,                \
	.string_hash = 8, .string_length = 16, .string_value = 24, .op_size = 32, .op_line = 24
static const struct php_layout layouts[] = {
#include "agent/runtime/versions/php.h"
};

const struct php_layout *php_layout_of(unsigned int major, unsigned int minor)
{
	for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
		if (layouts[i].major == major && layouts[i].minor == minor)
			return &layouts[i];
	return NULL;
}

/*
 * Find what of a function is captured with the call: the hash of its name, or its kind if it has no name. Code of
 * eval soon makes room for other code, and so do functions of a request that has ended.
 */
static uint64_t owner_of(struct runtime_memory *m, const struct php_layout *l, uint64_t code)
{
	uint64_t name, hash;
	uint8_t type;

	if (!code || !runtime_read_u64(m, code + l->name, &name))
		return 0;
	if (!name)
		return runtime_read(m, code + l->type, &type, 1) ? type : 0;
	return runtime_read_u64(m, name + l->string_hash, &hash) ? hash : 0;
}

int php_stack(struct runtime_memory *m, const struct php_layout *l, uint64_t globals,
	      struct raw_stack *stack)
{
	struct raw_chain chain = { .next = 0 };
	uint8_t head[HEAD_MAX];
	uint64_t at;

	if (!runtime_read_u64(m, globals + l->current, &at))
		return -EFAULT;
	while (at) {
		struct raw_frame frame = { .code = 0 };

		if (!raw_chain_goes_on(&chain, at))
			return -ELOOP;
		if (!runtime_read(m, at, head, l->head))
			return -EFAULT;
		frame.code = uw_bytes_little_n(head + l->func, 8);
		frame.at = uw_bytes_little_n(head + l->opline, 8);
		frame.entry = uw_bytes_little_n(head + l->info, 4) & l->info_top;
		frame.owner = owner_of(m, l, frame.code);
		/* A frame without a function only links a generator to its caller. */
		if (frame.code && !raw_add(stack, &frame))
			return -E2BIG;
		at = uw_bytes_little_n(head + l->prev, 8);
	}
	return 0;
}

/*
 * Make the plan that copies what php_stack reads: of each call the head, and of each function the name's hash, or
 * the kind if it has no name. base is where the file with executor_globals is. Calls mostly lie one above the other,
 * functions of a file and their names beside each other.
 */
void php_plan(const struct php_layout *l, uint64_t globals, uint64_t base, struct plan *out)
{
	enum { CALL = PLAN_R0, FUNC = PLAN_R1, NAME = PLAN_R2, UNUSED = PLAN_R3 };
	enum { NEXT_CALL = 1, STOP = 4, NAMELESS = 5, GO_ON = 6 };
	enum { NEAR_CALLS = 1, NEAR_FUNCTIONS, NEAR_NAMES };
	const struct plan_op ops[] = {
		{ .what = PLAN_COPY,
		  .src = PLAN_BASE,
		  .imm = (int64_t)(globals - base + l->current),
		  .size = 8,
		  .dst = CALL,
		  .dst2 = UNUSED,
		  .when = PLAN_ZERO,
		  .reg = CALL,
		  .jump = STOP },
		/* NEXT_CALL */
		{ .what = PLAN_COPY,
		  .near = NEAR_CALLS,
		  .src = CALL,
		  .size = l->head,
		  .dst = FUNC,
		  .at = (uint8_t)(l->func / 8),
		  .dst2 = CALL,
		  .at2 = (uint8_t)(l->prev / 8),
		  .when = PLAN_SEEN,
		  .reg = FUNC,
		  .jump = GO_ON },
		{ .what = PLAN_COPY,
		  .near = NEAR_FUNCTIONS,
		  .src = FUNC,
		  .imm = l->name,
		  .size = 8,
		  .dst = NAME,
		  .dst2 = UNUSED,
		  .when = PLAN_ZERO,
		  .reg = NAME,
		  .jump = NAMELESS },
		{ .what = PLAN_COPY,
		  .near = NEAR_NAMES,
		  .src = NAME,
		  .imm = l->string_hash,
		  .size = 8,
		  .dst = UNUSED,
		  .dst2 = UNUSED,
		  .when = PLAN_NONZERO,
		  .reg = CALL,
		  .jump = NEXT_CALL },
		/* STOP */
		{ .what = PLAN_STOP },
		/* NAMELESS */
		{ .what = PLAN_COPY,
		  .near = NEAR_FUNCTIONS,
		  .src = FUNC,
		  .imm = l->type,
		  .size = 8,
		  .dst = UNUSED,
		  .dst2 = UNUSED },
		/* GO_ON */
		{ .what = PLAN_ADD,
		  .dst = UNUSED,
		  .size = 64,
		  .when = PLAN_NONZERO,
		  .reg = CALL,
		  .jump = NEXT_CALL },
		{ .what = PLAN_STOP },
	};

	raw_plan(out, ops, sizeof(ops) / sizeof(ops[0]));
}

/* Add a zend_string. False: it cannot be read. */
static bool add_string(struct raw_reader *r, const struct php_layout *l, uint64_t string,
		       struct raw_text *text)
{
	uint64_t size;

	return string && raw_get_number(r, string + l->string_length, 8, &size) &&
	       raw_text_get(text, r, string + l->string_value, size);
}

/* Add "Class::name". */
static bool add_name(struct raw_reader *r, const struct php_layout *l, uint64_t name,
		     uint64_t scope, struct raw_text *text)
{
	uint64_t class;

	if (scope && raw_get_number(r, scope + l->class_name, 8, &class) &&
	    add_string(r, l, class, text))
		raw_text_word(text, "::");
	return add_string(r, l, name, text);
}

/* Return whether an operation is one of a function's. */
static bool has_operation(struct raw_reader *r, const struct php_layout *l, uint64_t code,
			  uint64_t op)
{
	uint64_t opcodes, n;

	return raw_get_number(r, code + l->opcodes, 8, &opcodes) &&
	       raw_get_number(r, code + l->n_opcodes, 4, &n) && n <= OPCODES_MAX && op >= opcodes &&
	       op - opcodes < n * l->op_size;
}

/* Add the file and the lines of a function that is written in PHP. */
static int add_place(struct raw_reader *r, const struct php_layout *l,
		     const struct raw_frame *frame, struct raw_name *out)
{
	uint64_t file, start, line;

	if (!raw_get_number(r, frame->code + l->filename, 8, &file) ||
	    !raw_get_number(r, frame->code + l->line_start, 4, &start) ||
	    !add_string(r, l, file, &out->file))
		return -EFAULT;
	out->line = out->start_line = (uint32_t)start;
	/* While an exception is handled, the operation is one of the interpreter's own. */
	if (has_operation(r, l, frame->code, frame->at) &&
	    raw_get_number(r, frame->at + l->op_line, 4, &line))
		out->line = (uint32_t)line;
	return 0;
}

int php_name(struct raw_reader *r, const struct php_layout *l, const struct raw_frame *frame,
	     struct raw_name *out)
{
	bool nameless = frame->owner && frame->owner <= EVAL_CODE;
	uint64_t type = 0, name = 0, scope, hash;

	raw_text_clear(&out->function);
	raw_text_clear(&out->file);
	out->line = out->start_line = 0;
	if ((!raw_get_number(r, frame->code + l->type, 1, &type) ||
	     !raw_get_number(r, frame->code + l->name, 8, &name) ||
	     !raw_get_number(r, frame->code + l->scope, 8, &scope)) &&
	    !nameless)
		return -EFAULT;
	if (nameless) {
		raw_text_word(&out->function, frame->owner == EVAL_CODE ? "eval" : "{main}");
		/* If other code is there already, it is not known where the code was written. */
		if (type == frame->owner && !name)
			(void)add_place(r, l, frame, out);
		return 0;
	}
	if (type != INTERNAL_FUNCTION && type != USER_FUNCTION && type != EVAL_CODE)
		return -EBADMSG;
	/* Another function is there now. */
	if (frame->owner &&
	    (!name || !raw_get_number(r, name + l->string_hash, 8, &hash) || hash != frame->owner))
		return -EBADMSG;
	if (!name)
		raw_text_word(&out->function, type == EVAL_CODE ? "eval" : "{main}");
	else if (!add_name(r, l, name, scope, &out->function))
		return -EFAULT;
	return type == INTERNAL_FUNCTION ? 0 : add_place(r, l, frame, out);
}

/* ---- the runtime -------------------------------------------------------------------------------- */

enum { EXPORT_GLOBALS, EXPORT_LOOP };

struct state {
	const struct php_layout *layout;
	uint64_t globals;
};

/* php8.4, php-fpm8.4, php-cgi, libphp8.4.so */
static bool is_named(const char *base)
{
	return !strncmp(base, "php", 3) || !strncmp(base, "libphp", 6);
}

static const char engine[] = "Zend Engine v";

#define VERSION_MAX 32 /* bytes of a text that has the engine's name and version */

/* Find the text with the engine's version in a segment. */
static bool version_in(const struct uw_object *object, const struct uw_segment *segment,
		       char out[VERSION_MAX])
{
	size_t size = (size_t)segment->file_size, left;
	uint8_t *bytes;
	const char *at = NULL;

	if (segment->file_size > CONSTANTS_MAX)
		return false;
	bytes = malloc(size + 1);
	if (bytes && !uw_object_read(object, segment->vaddr, bytes, size))
		at = memmem(bytes, size, engine, sizeof(engine) - 1);
	if (at) {
		left = size - (size_t)(at - (const char *)bytes);
		memset(out, 0, VERSION_MAX);
		memcpy(out, at, left < VERSION_MAX ? left : VERSION_MAX);
	}
	free(bytes);
	return at != NULL;
}

/* Find the text in the file: constants mostly have a segment of their own, which is smaller than the code's. */
static bool find_version(const struct uw_object *object, char out[VERSION_MAX])
{
	const struct uw_segment *segments;
	bool found = false;
	size_t n;

	segments = uw_object_segments(object, &n);
	for (uint32_t code = 0; code <= PF_X && !found; code += PF_X)
		for (size_t i = 0; i < n && !found; i++)
			if ((segments[i].flags & (PF_X | PF_W)) == code)
				found = version_in(object, &segments[i], out);
	return found;
}

/* Find the layout of the engine's version, which the file says, or else the capture file. */
static const struct php_layout *find_layout(const struct runtime_file *file)
{
	char text[VERSION_MAX + 1] = "";
	unsigned int major, minor;

	if (runtime_noted(file->memory, file->note) == VERSION_MAX)
		memcpy(text, runtime_piece(file->memory, file->note, VERSION_MAX), VERSION_MAX);
	else if (find_version(file->object, text))
		runtime_note(file->memory, file->note, text, VERSION_MAX);
	return !strncmp(text, engine, sizeof(engine) - 1) &&
			       sscanf(text + sizeof(engine) - 1, "%2u.%2u", &major, &minor) == 2
		       ? php_layout_of(major, minor)
		       : NULL;
}

static int begin(struct interpreter *in, const struct runtime_file *file, struct plan *plan)
{
	struct state *s = interpreter_own(in);

	/* Builds with thread safety have no such variable. */
	if (!file->exports[EXPORT_GLOBALS])
		return -ENOTSUP;
	s->globals = file->exports[EXPORT_GLOBALS];
	s->layout = find_layout(file);
	if (!s->layout)
		return -ENOTSUP;
	php_plan(s->layout, s->globals, file->bias, plan);
	return 0;
}

/* Find the value of a register by its name. False: the machine has no such register, or it is not known. */
static bool reg_value(const struct machine *machine, const struct uw_regs *regs, const char *name,
		      uint64_t *out)
{
	int reg = machine_reg(machine, name);

	if (reg == MACHINE_NO_REG || !(regs->known >> reg & 1))
		return false;
	*out = regs->value[reg];
	return true;
}

/*
 * Let the innermost frame have the operation that runs. execute_ex has it in a register, as gcc compiles it, and
 * stores it in the frame only before something that needs it there.
 */
static void use_registers(struct interpreter *in, const struct runtime_stack *stack,
			  struct raw_frame *frame)
{
	/* ZEND_VM_FP_GLOBAL_REG and ZEND_VM_IP_GLOBAL_REG in Zend/zend_execute.c, of each machine */
	static const char *const names[][2] = { { "r14", "r15" }, { "x27", "x28" } };
	const struct uw_regs *regs = &stack->event->sample.regs;
	const struct machine *machine = machine_of(uw_space_machine(stack->space));
	const struct state *s = interpreter_own(in);
	uint64_t current, call, op;

	if (!machine || !interpreter_is_in_loop(in, regs->value[machine->pc]) ||
	    !runtime_read_u64(stack->memory, s->globals + s->layout->current, &current))
		return;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (reg_value(machine, regs, names[i][0], &call) &&
		    reg_value(machine, regs, names[i][1], &op) && call == current)
			frame->at = op;
}

static int find_stack(struct interpreter *in, const struct runtime_stack *stack,
		      struct raw_stack *raw)
{
	const struct state *s = interpreter_own(in);
	int err = php_stack(stack->memory, s->layout, s->globals, raw);

	if (raw->n)
		use_registers(in, stack, &raw->frames[0]);
	return err;
}

static int find_name(struct interpreter *in, struct raw_reader *r, const struct raw_frame *frame,
		     struct raw_name *out)
{
	const struct state *s = interpreter_own(in);

	return php_name(r, s->layout, frame, out);
}

static uint64_t find_loop(const struct runtime_file *file)
{
	return file->exports[EXPORT_LOOP];
}

static const struct interpreter_kind kind = { .module = "[php]",
					      .own_size = sizeof(struct state),
					      .loop = find_loop,
					      .attach = begin,
					      .stack = find_stack,
					      .name = find_name };

static int attach(const struct runtime_file *file, void **state, struct plan *plan)
{
	return interpreter_attach(&kind, file, state, plan);
}

const struct runtime_ops runtime_php = {
	.module = "[php]",
	.exports = { [EXPORT_GLOBALS] = "executor_globals", [EXPORT_LOOP] = "execute_ex" },
	.is_named = is_named,
	.attach = attach,
	.detach = interpreter_detach,
	.decode = interpreter_decode
};
