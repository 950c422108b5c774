/* agent/process/hotspot_calls.c: finds out what the frames of HotSpot's code execute. */
#include "agent/process/hotspot_internal.h"

#include "agent/clock.h"
#include "agent/process/hotspot_scopes.h"
#include "base/bytes.h"
#include "schema/calls_blob.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Frames that are remembered; when there are more, all are read again. */
#define SEEN_MAX 131072u
/* A frame that cannot be read is tried again after AGAIN_NS, twice of it, and so on up to AGAIN_MAX_NS. */
#define AGAIN_NS     UINT64_C(20000000)
#define AGAIN_MAX_NS UINT64_C(1000000000)

/*
 * The slots of an interpreted frame, in words from the address in rbp (frame_x86.hpp). The caller's stack
 * pointer lies above the frame, by at most what the locals of a method take.
 */
enum { SLOT_RETURN = 1, SLOT_SENDER_SP = -1, SLOT_METHOD = -3, SLOT_BCP = -8 };
#define LOCALS_MAX (UINT64_C(8) << 16)

#define NOWHERE SIZE_MAX /* not an offset of the stack */

/* The state of looking at one sample. */
struct look {
	struct hotspot *h;
	const struct calls_sample *sample;
	int err; /* of the writer */
};

/* Note that a frame cannot be read, unless only the time is over. */
static void not_now(const struct look *look, struct calls_seen_frame *f)
{
	f->known = false;
	if (look->h->memory.over) {
		f->again_ns = 0;
		return;
	}
	f->pause_ns = longer_pause(f->pause_ns, AGAIN_NS, AGAIN_MAX_NS);
	f->again_ns = look->sample->now + f->pause_ns;
}

/* Write one call of the frame that was begun last. */
static void write_call(struct look *look, const struct hotspot_method *m, uint32_t bci)
{
	struct hotspot *h = look->h;
	struct call call = { .function = h->methods.texts + m->name,
			     .file = m->file ? h->methods.texts + m->file : NULL,
			     .line = bci == HOTSPOT_NO_BCI
					     ? 0
					     : hotspot_methods_line(&h->methods, m, bci),
			     .start_line = hotspot_methods_line(&h->methods, m, 0) };

	/* The lines were looked at twice. */
	(void)hotspot_has_time(&h->memory, m->n_lines / 2);
	if (!look->err)
		look->err = calls_add(&h->writer, &call);
}

/*
 * Look at an interpreted frame: its method, and where in its bytecode it is; 0: at its entry. Return whether
 * what it executes is known.
 */
static bool look_interpreted(struct look *look, uint64_t method, uint64_t bcp)
{
	struct hotspot *h = look->h;
	const uint64_t key[2] = { method, bcp };
	struct calls_seen_frame *f;
	const struct hotspot_method *m;

	if (method < HOTSPOT_PAGE || method % 8)
		return false;
	f = calls_seen_of(&h->seen, key);
	if (!f || (!f->known && look->sample->now < f->again_ns))
		return false;
	m = hotspot_methods_get(&h->methods, &h->memory, &h->layout, method, look->sample->now);
	/* A native method has no bytecode, but a place where it would begin. */
	if (!m || (bcp && bcp != m->code && (bcp < m->code || bcp - m->code >= m->size))) {
		not_now(look, f);
		return false;
	}
	if (f->known && f->serial == m->serial)
		return true;
	look->err = calls_frame(&h->writer, method, bcp);
	write_call(look, m, bcp ? (uint32_t)(bcp - m->code) : 0);
	f->known = !look->err;
	f->serial = m->serial;
	return f->known;
}

static void look_saved(struct look *look, const struct hotspot_blob *b, uint32_t saved, size_t at);

/*
 * Look at a frame of compiled code, whose return address is at this offset of the stack. Where the virtual machine
 * knows of no call, a return address is none, and an interrupted pc is in the method itself. A wrapper of a native
 * method has no scopes at all, and those of some versions cannot be read.
 */
static void look_compiled(struct look *look, const struct hotspot_blob *b, uint64_t pc, bool exact,
			  size_t at)
{
	struct hotspot *h = look->h;
	const struct hotspot_nmethod nmethod = { .at = b->block + h->layout.block_size,
						 .start = b->start,
						 .end = b->end };
	const uint64_t key[2] = { pc, exact };
	struct hotspot_call calls[HOTSPOT_CALLS_MAX];
	const struct hotspot_method *m;
	struct calls_seen_frame *f = calls_seen_of(&h->seen, key);
	uint32_t saved;
	size_t n;

	if (!f || (!f->known && look->sample->now < f->again_ns))
		return;
	if (f->known && f->serial == b->id) {
		look_saved(look, b, f->saved, at);
		return;
	}
	f->saved = 0;
	n = b->native ? 0 : hotspot_scopes_read(&h->memory, &h->layout, &nmethod, pc, exact, calls);
	if (!n && !exact && !b->native &&
	    hotspot_scopes_saved(&h->memory, &h->layout, &nmethod, pc, &saved)) {
		look->err = calls_saved(&h->writer, pc, saved);
		f->known = !look->err;
		f->serial = b->id;
		f->saved = saved;
		look_saved(look, b, saved, at);
		return;
	}
	if (!n && (exact || b->native || !h->layout.has_scopes)) {
		calls[0] = (struct hotspot_call){ .method = b->method, .bci = HOTSPOT_NO_BCI };
		n = 1;
	}
	/* A call whose method cannot be read makes all of them doubtful. */
	for (size_t i = 0; i < n; i++)
		if (!hotspot_methods_get(&h->methods, &h->memory, &h->layout, calls[i].method,
					 look->sample->now))
			n = 0;
	if (!n) {
		not_now(look, f);
		return;
	}
	look->err = calls_frame(&h->writer, pc, exact);
	for (size_t i = 0; i < n; i++) {
		m = hotspot_methods_get(&h->methods, &h->memory, &h->layout, calls[i].method,
					look->sample->now);
		if (m)
			write_call(look, m, calls[i].bci);
	}
	f->known = !look->err;
	f->serial = b->id;
}

static uint64_t word_at(const struct calls_sample *s, size_t at)
{
	return uw_bytes_little_n(s->stack + at, 8);
}

/* Return the word in a slot of the frame whose rbp points to this offset of the stack. */
static uint64_t slot_of(const struct calls_sample *s, size_t at, int slot)
{
	return word_at(s, at - 8 * (size_t)-slot);
}

/* Look at a frame whose return address is not the word at this offset, but saved where its stack pointer says. */
static void look_at_saved(struct look *look, const struct hotspot_blob *b, uint32_t saved,
			  uint64_t sp)
{
	const struct calls_sample *s = look->sample;
	uint64_t at = sp - s->addr + saved, pc;

	if (at >= s->size || s->size - at < 8)
		return;
	pc = word_at(s, (size_t)at);
	if (pc >= b->start && pc < b->end)
		look_compiled(look, b, pc, false, NOWHERE);
}

/* Return whether the word at this offset of the stack can be where rbp of an interpreted frame points. */
static bool is_interpreted(const struct look *look, size_t at)
{
	const struct calls_sample *s = look->sample;
	uint64_t fp = s->addr + at, sp;

	if (at < 8 * (size_t)-SLOT_BCP || s->size - at < 8 * SLOT_RETURN + 8 ||
	    !hotspot_in_cache(&look->h->cache, word_at(s, at + 8 * SLOT_RETURN)))
		return false;
	sp = slot_of(s, at, SLOT_SENDER_SP);
	return sp > fp + 8 && sp - fp <= LOCALS_MAX && sp % 8 == 0;
}

/*
 * The stack pointer of a frame is behind the return address to it, or where an interpreted frame says that its caller
 * had it. saved 0: the return address is the frame's own.
 */
static void look_saved(struct look *look, const struct hotspot_blob *b, uint32_t saved, size_t at)
{
	const struct calls_sample *s = look->sample;

	if (!saved || at == NOWHERE)
		return;
	look_at_saved(look, b, saved, s->addr + at + 8);
	if (at >= 8 * SLOT_RETURN && is_interpreted(look, at - 8 * SLOT_RETURN))
		look_at_saved(look, b, saved, slot_of(s, at - 8 * SLOT_RETURN, SLOT_SENDER_SP));
}

/*
 * Look at the innermost frame. The interpreter has the place in the bytecode in r13 as long as it runs. Where
 * it is not in either place, the method has just been entered.
 */
static void look_at_regs(struct look *look)
{
	const struct calls_sample *s = look->sample;
	struct hotspot *h = look->h;
	uint64_t pc = s->regs->value[UW_X86_64_RIP], at = s->regs->value[UW_X86_64_RBP] - s->addr;
	const struct hotspot_blob *b;

	if (pc >= h->interpreter && pc < h->interpreter_end) {
		uint64_t method;

		if (at >= s->size || at % 8 || !is_interpreted(look, (size_t)at))
			return;
		method = slot_of(s, (size_t)at, SLOT_METHOD);
		if (!look_interpreted(look, method, s->regs->value[UW_X86_64_R13]) &&
		    !look_interpreted(look, method, slot_of(s, (size_t)at, SLOT_BCP)))
			(void)look_interpreted(look, method, 0);
		return;
	}
	b = hotspot_in_cache(&h->cache, pc) ? hotspot_blob_at(h, pc) : NULL;
	if (b && b->compiled)
		look_compiled(look, b, pc, true, NOWHERE);
}

int hotspot_calls(struct hotspot *h, uw_read_fn read, void *ctx, const struct calls_sample *s,
		  const void **bytes, size_t *size)
{
	const struct calls_interpreter interpreter = { .runtime = CALLS_JVM,
						       .slots = { SLOT_METHOD, SLOT_BCP },
						       .reg = UW_X86_64_R13,
						       .start = h->interpreter,
						       .end = h->interpreter_end };
	struct look look = { .h = h, .sample = s };
	size_t at = (size_t)(-s->addr & 7);

	if (!h->turn || !h->layout.has_lines)
		return -ENOENT;
	hotspot_memory_begin(&h->memory, read, ctx);
	calls_begin(&h->writer);
	calls_seen_bound(&h->seen, SEEN_MAX);
	look_at_regs(&look);
	for (; !look.err && !h->memory.over && at < s->size && s->size - at >= 8; at += 8) {
		uint64_t word = word_at(s, at);

		if (hotspot_in_cache(&h->cache, word)) {
			const struct hotspot_blob *b = hotspot_blob_at(h, word);

			if (b && b->compiled)
				look_compiled(&look, b, word, false, at);
		}
		if (is_interpreted(&look, at))
			(void)look_interpreted(&look, slot_of(s, at, SLOT_METHOD),
					       slot_of(s, at, SLOT_BCP));
	}
	if (look.err == -ENOMEM)
		return look.err;
	*bytes = calls_finish(&h->writer, &interpreter, h->seen.forgot, size);
	if (!*bytes)
		return -EAGAIN;
	h->seen.forgot = false;
	return 0;
}
