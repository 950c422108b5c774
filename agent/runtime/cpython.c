/*
 * agent/runtime/cpython.c: decodes the frames of Python code in a sample.
 *
 * A thread's frames are a linked chain. The plan (cpython_layout.c) has copied it: each frame, and of its
 * code object the words that tell which one it is. What the code object says is read once. Which call of
 * the interpreter's loop ran which frames is seen by addresses: each call has a struct of its own on the
 * native stack (from 3.11 on), so the native frame around it is the call, whatever it is named.
 */
#include "agent/runtime/cpython.h"

#include "agent/array.h"
#include "agent/hash.h"
#include "agent/runtime/cpython_code.h"
#include "agent/runtime/cpython_layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MODULE "[cpython]"

#define CODES_MAX  16384 /* code objects of a process; then all are read again */
#define PLACES_MAX 65536 /* addresses in them */

enum { RUNTIME, VERSION, LOOP, CODE_TYPE }; /* of ops.exports */

struct place { /* an instruction of a code object, and the frame that it is */
	uint32_t code;
	int64_t off;
	uint64_t address;
};

struct cpython {
	struct cpython_layout layout;
	uint64_t runtime;	       /* address of _PyRuntime */
	uint64_t loop_start, loop_end; /* the interpreter's loop (CPYTHON_EACH) */
	struct cpython_code *codes;
	size_t n_codes, room_codes;
	struct uw_hash_index by_addr;
	struct place *places;
	size_t n_places, room_places;
	struct uw_hash_index by_off;
};

static bool is_named(const char *base)
{
	return !strncmp(base, "python3", 7) || !strncmp(base, "libpython3.", 11);
}

/* ---- which version it is --------------------------------------------------------------------- */

/* Return the version of a name: "python3.9", "libpython3.10.so.1.0"; 0: it has none. */
static uint16_t named_version(const char *path)
{
	const char *at = strrchr(path, '/');
	unsigned long minor;
	char *end;

	at = strstr(at ? at : path, "python3.");
	if (!at)
		return 0;
	minor = strtoul(at + 8, &end, 10);
	return end > at + 8 && minor < 256 ? (uint16_t)(0x0300 | minor) : 0;
}

static uint16_t version_of(const struct runtime_file *file)
{
	const uint8_t *version = file->exports[VERSION]
					 ? runtime_piece(file->memory, file->exports[VERSION], 4)
					 : NULL;

	if (version)
		return (uint16_t)(version[3] << 8 | version[2]);
	return named_version(file->module->path);
}

static int find_layout(const struct runtime_file *file, struct cpython_layout *out)
{
	uint16_t version = version_of(file);
	const struct cpython_layout *row = cpython_layout_of(version);
	const uint8_t *offsets;

	if (!file->exports[RUNTIME] || !row)
		return -ENOTSUP;
	*out = *row;
	if (!cpython_has_offsets(version))
		return 0;
	offsets = runtime_piece(file->memory, file->exports[RUNTIME], CPYTHON_OFFSETS_MAX);
	return offsets ? cpython_layout_read(offsets, CPYTHON_OFFSETS_MAX, out) : -EAGAIN;
}

static int attach(const struct runtime_file *file, void **state, struct plan *plan)
{
	struct cpython_layout layout;
	int err = find_layout(file, &layout);
	struct cpython *c;
	uint64_t vaddr;

	if (err)
		return err;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->layout = layout;
	c->layout.code_type = file->exports[CODE_TYPE];
	c->runtime = file->exports[RUNTIME];
	vaddr = file->exports[LOOP] - file->bias;
	if (layout.entry == CPYTHON_EACH && file->exports[LOOP] &&
	    !uw_object_function(file->object, vaddr, &c->loop_start, &c->loop_end)) {
		c->loop_start += file->bias;
		c->loop_end += file->bias;
	}
	cpython_plan(&c->layout, c->runtime - file->bias, plan);
	*state = c;
	return 0;
}

static void forget_code(struct cpython *c)
{
	for (size_t i = 0; i < c->n_codes; i++)
		cpython_code_fini(&c->codes[i]);
	c->n_codes = c->n_places = 0;
	uw_hash_clear(&c->by_addr);
	uw_hash_clear(&c->by_off);
}

static void detach(void *state)
{
	struct cpython *c = state;

	forget_code(c);
	free(c->codes);
	free(c->places);
	uw_hash_fini(&c->by_addr);
	uw_hash_fini(&c->by_off);
	free(c);
}

/* ---- code objects ------------------------------------------------------------------------------ */

struct decoding {
	struct cpython *c;
	const struct cpython_layout *l;
	struct runtime_stack *stack;
	struct runtime_memory *m;
	/* The frames whose native frame is not known yet: of the same call of the loop, innermost first. */
	uint64_t frames[RUNTIME_PUT_MAX];
	size_t n;
	size_t native; /* the native frame that is looked at next */
	/* Code objects that could not be read for this sample: only addr, why and gone are set. */
	struct cpython_code failed[CPYTHON_CODES_MAX];
	size_t n_failed;
	const char *missing;
};

/* Forget a code object that has changed; its places are not found any more. */
static void drop_code(struct cpython *c, uint32_t id)
{
	uw_hash_remove(&c->by_addr, hash_u64(0, c->codes[id].addr), id);
}

/* Find a code object that is known to be the one with these words. */
static uint32_t find_code(struct cpython *c, uint64_t addr, const uint8_t *check)
{
	uint32_t id = UW_HASH_FIND(i, &c->by_addr, hash_u64(0, addr), c->codes[i].addr == addr);

	if (id == UW_HASH_NONE || !memcmp(c->codes[id].check, check, c->layout.c_check_size))
		return id;
	drop_code(c, id);
	return UW_HASH_NONE;
}

static void add_code(struct cpython *c, struct cpython_code *code)
{
	if (c->n_codes >= CODES_MAX)
		forget_code(c);
	if (array_grow(c->codes, c->n_codes, c->room_codes) ||
	    uw_hash_add(&c->by_addr, hash_u64(0, code->addr), (uint32_t)c->n_codes))
		cpython_code_fini(code);
	else
		c->codes[c->n_codes++] = *code;
}

/* Read the words that tell which code object it is; they were copied with the sample. */
static bool read_check(const struct decoding *d, uint64_t addr, uint8_t *check)
{
	return runtime_read(d->m, addr + d->l->c_check, check, d->l->c_check_size);
}

/* Return the address of the frame that runs the instruction at off of a code object; 0: no memory. */
static uint64_t place_of(struct decoding *d, uint32_t code, int64_t off)
{
	struct cpython *c = d->c;
	uint64_t hash = hash_u64(code, (uint64_t)off);
	uint32_t id = UW_HASH_FIND(i, &c->by_off, hash,
				   c->places[i].code == code && c->places[i].off == off);
	const struct cpython_code *of = &c->codes[code];
	struct runtime_name name = { .function = of->function, .file = of->file };
	uint64_t address;

	if (id != UW_HASH_NONE && runtime_frames_use(d->stack->frames, c->places[id].address))
		return c->places[id].address;
	name.line = cpython_line(d->l, of, off);
	name.start_line = of->first_line;
	address = runtime_frames_add(d->stack->frames, MODULE, &name);
	if (id != UW_HASH_NONE || !address)
		return address;
	if (c->n_places >= PLACES_MAX) {
		c->n_places = 0;
		uw_hash_clear(&c->by_off);
	}
	if (!array_grow(c->places, c->n_places, c->room_places) &&
	    !uw_hash_add(&c->by_off, hash, (uint32_t)c->n_places))
		c->places[c->n_places++] =
			(struct place){ .code = code, .off = off, .address = address };
	return address;
}

/* A frame whose code is not known still stands where it ran. */
static uint64_t nameless(const struct decoding *d, const char *function)
{
	const struct runtime_name name = { .function = function };

	return runtime_frames_add(d->stack->frames, MODULE, &name);
}

/* ---- where frames stand ------------------------------------------------------------------------ */

/* Find the native frame that has an address of the stack between its stack pointer and its caller's. */
static size_t native_at(struct decoding *d, uint64_t addr)
{
	const struct runtime_stack *s = d->stack;

	for (size_t i = d->native; i < s->n_native; i++) {
		const struct uw_frame *f = s->native[i];
		uint64_t end = f->cfa ? f->cfa
			       : i + 1 < s->n_native && s->native[i + 1]->sp > f->sp
				       ? s->native[i + 1]->sp
				       : f->sp;

		if (addr >= f->sp && addr < end)
			return i;
	}
	return s->n_native;
}

/* Find the next native frame that is a call of the loop. */
static size_t next_call(struct decoding *d)
{
	const struct runtime_stack *s = d->stack;
	size_t i = d->native;

	while (i < s->n_native &&
	       (s->native[i]->lookup < d->c->loop_start || s->native[i]->lookup >= d->c->loop_end))
		i++;
	return i;
}

/* Put the frames that one call of the loop ran inside of its native frame. */
static void put_all(struct decoding *d, size_t native)
{
	for (size_t i = 0; i < d->n; i++)
		if (!runtime_put(d->stack, native, d->frames[i], false))
			d->missing = "there are too many";
	d->n = 0;
	if (native < d->stack->n_native)
		d->native = native + 1;
}

/* ---- the chain --------------------------------------------------------------------------------- */

struct frame {
	uint64_t addr, code, previous, instr;
	uint8_t owner, entry;
};

static bool read_byte(const struct decoding *d, uint64_t addr, uint16_t off, uint8_t *out)
{
	return off == CPYTHON_NONE || runtime_read(d->m, addr + off, out, 1);
}

static bool read_frame(const struct decoding *d, uint64_t addr, struct frame *f)
{
	const struct cpython_layout *l = d->l;

	*f = (struct frame){ .addr = addr };
	if (!runtime_read(d->m, addr + l->f_instr, &f->instr, l->entry == CPYTHON_EACH ? 4 : 8) ||
	    !runtime_read_u64(d->m, addr + l->f_code, &f->code) ||
	    !runtime_read_u64(d->m, addr + l->f_previous, &f->previous))
		return false;
	f->code &= ~(uint64_t)l->code_tags;
	return read_byte(d, addr, l->f_owner, &f->owner) &&
	       read_byte(d, addr, l->f_entry, &f->entry);
}

/* Return the offset of a frame's instruction in its code, in bytes; negative: it has not begun. */
static int64_t offset_of(const struct decoding *d, const struct frame *f)
{
	if (d->l->entry == CPYTHON_EACH)
		return (int64_t)(int32_t)f->instr * d->l->lasti_unit;
	return (int64_t)(f->instr - f->code - d->l->c_code);
}

/* From 3.12 on: the owner of a frame that is no Python frame but marks a call of the loop. */
#define OWNED_BY_CALL 3

/* Return whether it only marks a call of the loop. */
static bool is_mark(const struct decoding *d, const struct frame *f)
{
	return d->l->entry == CPYTHON_SHIM && f->owner >= OWNED_BY_CALL;
}

/* Add the code of a frame, if it is not known and not among them. */
static void want_code(struct decoding *d, uint64_t addr, struct cpython_code *codes, size_t *n)
{
	struct cpython_code code = { .addr = addr };

	for (size_t i = 0; i < *n; i++)
		if (codes[i].addr == addr)
			return;
	if (read_check(d, addr, code.check) && find_code(d->c, addr, code.check) == UW_HASH_NONE)
		codes[(*n)++] = code;
}

/* Read the code of a frame, and with it all code of the frames outside of it that is not known. */
static void learn(struct decoding *d, const struct frame *first)
{
	struct cpython_code codes[CPYTHON_CODES_MAX];
	struct frame f = *first;
	size_t n = 0, seen = 0;

	do {
		if (!is_mark(d, &f))
			want_code(d, f.code, codes, &n);
	} while (n < CPYTHON_CODES_MAX && ++seen < RUNTIME_PUT_MAX && f.previous &&
		 read_frame(d, f.previous, &f));
	cpython_codes_read(d->l, d->m, codes, n);
	d->n_failed = 0;
	for (size_t i = 0; i < n; i++)
		if (!codes[i].why)
			add_code(d->c, &codes[i]);
		else
			d->failed[d->n_failed++] = codes[i];
}

/* Return the code object that could not be read; NULL: it was not tried. */
static const struct cpython_code *failed_code(const struct decoding *d, uint64_t addr)
{
	for (size_t i = 0; i < d->n_failed; i++)
		if (d->failed[i].addr == addr)
			return &d->failed[i];
	return NULL;
}

/* Find the code object of a frame, if it is known. */
static uint32_t known_code(const struct decoding *d, const struct frame *f)
{
	uint8_t check[CPYTHON_CHECK_MAX] = { 0 };

	return read_check(d, f->code, check) ? find_code(d->c, f->code, check) : UW_HASH_NONE;
}

/* Find the code object of a frame; read it if it is not known. */
static uint32_t code_of(struct decoding *d, const struct frame *f)
{
	uint32_t id = known_code(d, f);
	uint8_t check[CPYTHON_CHECK_MAX];

	if (id != UW_HASH_NONE || failed_code(d, f->code) || !read_check(d, f->code, check))
		return id;
	learn(d, f);
	return known_code(d, f);
}

/*
 * Return whether a frame whose code was freed is the body of a module that is imported: the import system runs it by this
 * function, and CPython frees its code when it has run. What else this function calls is never freed.
 */
static bool is_module_body(const struct decoding *d, const struct frame *f)
{
	const struct cpython_code *code = failed_code(d, f->code);
	struct frame caller = *f;
	uint32_t id;

	if (!code || !code->gone)
		return false;
	do
		if (!caller.previous || !read_frame(d, caller.previous, &caller))
			return false;
	while (is_mark(d, &caller) && caller.previous != caller.addr);
	id = known_code(d, &caller);
	code = id == UW_HASH_NONE ? NULL : &d->c->codes[id];
	return code && code->file && !strcmp(code->function, "_call_with_frames_removed") &&
	       !strcmp(code->file, "<frozen importlib._bootstrap>");
}

/* Return the address of a frame whose code is not known. */
static uint64_t without_code(struct decoding *d, const struct frame *f)
{
	const struct cpython_code *code = failed_code(d, f->code);

	if (is_module_body(d, f))
		return nameless(d, "<module>");
	d->missing = code ? code->why : "their code was not copied";
	return nameless(d, "[unknown]");
}

static void add_frame(struct decoding *d, const struct frame *f)
{
	uint32_t code = code_of(d, f);
	int64_t off = offset_of(d, f);
	uint64_t address;

	/* No code object is that large; the line of another one is not wanted. */
	if (off > INT32_MAX || off < INT32_MIN)
		off = -1;
	address = code == UW_HASH_NONE ? without_code(d, f) : place_of(d, code, off);
	if (d->n < RUNTIME_PUT_MAX)
		d->frames[d->n++] = address;
}

/* Return the address of the innermost frame of the sampled thread, and its _PyCFrame; 0: there is none. */
static uint64_t first_frame(struct decoding *d, uint64_t *cframe)
{
	uint64_t thread, frame;

	*cframe = 0;
	if (!runtime_read_u64(d->m, CPYTHON_MARK, &thread))
		return 0;
	if (!runtime_read_u64(d->m, thread + d->l->frame, &frame)) {
		d->missing = "the thread's state was not copied";
		return 0;
	}
	if (d->l->cframe_frame == CPYTHON_NONE)
		return frame;
	*cframe = frame;
	if (!runtime_read_u64(d->m, *cframe + d->l->cframe_frame, &frame)) {
		d->missing = "the thread's state was not copied";
		return 0;
	}
	return frame;
}

/* Why a frame of the chain was not copied. */
static const char *why_not(const struct decoding *d)
{
	switch (d->stack->event->sample.slices_end) {
	case PLAN_STEPS:
		return "the chain has more frames than the plan has steps";
	case PLAN_ROOM:
		return "the chain has more frames than slice-bytes allows";
	case PLAN_FAULT:
		return "a frame of the chain cannot be read";
	case PLAN_LOST:
		return "the sample that has the rest of the chain was lost";
	default:
		return "a frame of the chain was not copied";
	}
}

static void follow(struct decoding *d)
{
	uint64_t cframe, addr = first_frame(d, &cframe);
	size_t n = 0;

	for (; addr && n < RUNTIME_PUT_MAX; n++) {
		struct frame f;

		if (!read_frame(d, addr, &f)) {
			d->missing = why_not(d);
			break;
		}
		if (is_mark(d, &f)) {
			put_all(d, native_at(d, f.addr));
		} else {
			add_frame(d, &f);
			if (d->l->entry == CPYTHON_EACH)
				put_all(d, next_call(d));
		}
		if (d->l->entry == CPYTHON_CFRAME && f.entry) {
			put_all(d, native_at(d, cframe));
			/* struct _PyCFrame: its last word leads to the one outside of it. */
			if (!runtime_read_u64(d->m, cframe + d->l->cframe_frame + 8, &cframe))
				cframe = 0;
		}
		addr = f.previous;
	}
	if (n == RUNTIME_PUT_MAX)
		d->missing = "there are too many, or the chain has no end";
	/* What is left belongs to a call that the walk did not come to. */
	put_all(d, d->stack->n_native);
}

static void decode(void *state, struct runtime_stack *stack)
{
	struct cpython *c = state;
	struct decoding d = { .c = c, .l = &c->layout, .stack = stack, .m = stack->memory };

	follow(&d);
	if (d.missing)
		stack->missing = d.missing;
}

const struct runtime_ops runtime_cpython = {
	.module = MODULE,
	.exports = { [RUNTIME] = "_PyRuntime",
		     [VERSION] = "Py_Version",
		     [LOOP] = "_PyEval_EvalFrameDefault",
		     [CODE_TYPE] = "PyCode_Type" },
	.is_named = is_named,
	.attach = attach,
	.detach = detach,
	.decode = decode,
};
