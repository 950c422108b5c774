#include "agent/process/hotspot_frames.h"

#include <stdbool.h>
#include <string.h>

/* Words that instructions push in the middle of a method: four at most in those looked at. */
#define PUSHES 6

/* Call frame instructions, after a CIE for code that a call has just entered. */
enum { CIE_SIZE = 24, FDE_HEAD = 24 };

static void put(struct hotspot_frames *f, const void *bytes, size_t size)
{
	if (size <= sizeof(f->bytes) - f->n) {
		memcpy(f->bytes + f->n, bytes, size);
		f->n += size;
	}
}

static void begin_frames(struct hotspot_frames *f, uint64_t size)
{
	static const uint8_t cie[CIE_SIZE] = {
		CIE_SIZE - 4,
		0,
		0,
		0,
		0,
		0,
		0,
		0, /* its length; 0: it is a CIE */
		1,
		0, /* version; no augmentation */
		1,
		0x78,
		16, /* units of code, of data (-8); the return address: rip */
		0x0c,
		7,
		8, /* DW_CFA_def_cfa: rsp + 8 */
		0x80 | 16,
		1, /* DW_CFA_offset: rip at CFA - 8 */
	};
	uint8_t head[FDE_HEAD] = { [4] = CIE_SIZE + 4 }; /* length; how far back the CIE is; 0 */

	for (unsigned int i = 0; i < 8; i++)
		head[16 + i] = (uint8_t)(size >> 8 * i);
	f->n = 0;
	f->at = 0;
	put(f, cie, sizeof(cie));
	put(f, head, sizeof(head));
}

static void end_frames(struct hotspot_frames *f)
{
	static const uint8_t nops[8];

	put(f, nops, 8 - f->n % 8); /* DW_CFA_nop */
	for (unsigned int i = 0; i < 4; i++)
		f->bytes[CIE_SIZE + i] = (uint8_t)((f->n - CIE_SIZE - 4) >> 8 * i);
}

static void advance(struct hotspot_frames *f, uint64_t at)
{
	uint64_t by = at - f->at;
	uint8_t op[5] = { 0x04 /* DW_CFA_advance_loc4 */ };

	for (unsigned int i = 0; i < 4; i++)
		op[1 + i] = (uint8_t)(by >> 8 * i);
	if (by)
		put(f, op, sizeof(op));
	f->at = at;
}

/* The CFA is at rsp + off. */
static void put_cfa(struct hotspot_frames *f, uint32_t off)
{
	uint8_t op[7] = { 0x0c /* DW_CFA_def_cfa */, 7 };
	size_t n = 2;

	for (; off > 127; off >>= 7)
		op[n++] = (uint8_t)(off & 127) | 128;
	op[n++] = (uint8_t)off;
	put(f, op, n);
}

/* A number of at most 28 bits in four bytes, as signed or unsigned. */
static void put_leb(uint8_t *to, uint32_t value)
{
	for (unsigned int i = 0; i < 4; i++)
		to[i] = (uint8_t)((value >> 7 * i & 127) | (i < 3 ? 128 : 0));
}

/*
 * The same of a whole frame.  Some instructions push up to PUSHES words for a while, which no table
 * tells.  But who calls compiled code is in the code cache himself: the return address is the first
 * word, from where it should be on, that points there.
 */
static void put_body_cfa(struct hotspot_frames *f, uint32_t off, const struct hotspot_cache *cache)
{
	/* DW_OP_breg7 off - 8, lit PUSHES: where it should be, words to go */
	uint8_t where[] = { 0x77, 0, 0, 0, 0, 0x30 + PUSHES };
	/* over, deref, const8u low, minus, const1u log2, shr, lit0, eq, bra: to the end if it is one */
	uint8_t look[] = { 0x14, 0x06, 0x0e, 0, 0,    0,    0,	  0,	0,  0,
			   0,	 0x1c, 0x08, 0, 0x25, 0x30, 0x29, 0x28, 15, 0 };
	/* lit1, minus, dup, lit0, eq, bra: to the end if none is; swap, plus_uconst 8, swap; skip: to over */
	static const uint8_t next[] = { 0x31, 0x1c, 0x12, 0x30, 0x29, 0x28, 7,	 0,
					0x16, 0x23, 8,	  0x16, 0x2f, 0xdd, 0xff };
	/* drop, plus_uconst 8: the CFA is behind it */
	static const uint8_t end[] = { 0x13, 0x23, 8 };
	const uint8_t op[] = { 0x0f, /* DW_CFA_def_cfa_expression */
			       sizeof(where) + sizeof(look) + sizeof(next) + sizeof(end) };

	put_leb(where + 1, off - 8);
	for (unsigned int i = 0; i < 8; i++)
		look[3 + i] = (uint8_t)(cache->low >> 8 * i);
	look[13] = cache->log2;
	put(f, op, sizeof(op));
	put(f, where, sizeof(where));
	put(f, look, sizeof(look));
	put(f, next, sizeof(next));
	put(f, end, sizeof(end));
}

static const uint8_t rbp_saved[] = { 0x80 | 6, 2 }; /* DW_CFA_offset: at CFA - 16 */

/* sub (0xec) or add (0xc4) of exactly imm and rsp at code; how long it is, 0: it is not. */
static size_t moves_sp(const uint8_t *code, size_t size, uint8_t how, uint32_t imm)
{
	if (size >= 4 && code[0] == 0x48 && code[1] == 0x83 && code[2] == how && imm < 128 &&
	    code[3] == imm)
		return 4;
	if (size >= 7 && code[0] == 0x48 && code[1] == 0x81 && code[2] == how &&
	    (code[3] | (uint32_t)code[4] << 8 | (uint32_t)code[5] << 16 |
	     (uint32_t)code[6] << 24) == imm)
		return 7;
	return 0;
}

/*
 * The frame is built by "push %rbp; [mov %rsp,%rbp;] sub $n,%rsp", or "sub; mov %rbp,n(%rsp)", somewhere
 * before complete; from there on it is words long, with rbp under the return address.
 */
static void put_prologue(struct hotspot_frames *f, const struct hotspot_code *c,
			 const struct hotspot_cache *cache)
{
	static const uint8_t copies[] = { 0x48, 0x8b, 0xec }, also[] = { 0x48, 0x89, 0xe5 };
	const uint8_t *code = c->bytes;
	size_t complete = c->complete;
	uint32_t words = c->words, locals = 8 * words - 16;

	for (size_t i = 0; i < complete; i++) {
		size_t left = complete - i, skip = 1, sub;

		if (code[i] == 0x55) {
			if (left >= 4 && (!memcmp(code + i + 1, copies, sizeof(copies)) ||
					  !memcmp(code + i + 1, also, sizeof(also))))
				skip = 4;
			sub = moves_sp(code + i + skip, left - skip, 0xec, locals);
			if (!sub && locals)
				continue;
			advance(f, i + 1);
			put_cfa(f, 16);
			put(f, rbp_saved, sizeof(rbp_saved));
			if (sub) {
				advance(f, i + skip + sub);
				put_body_cfa(f, 8 * words, cache);
			}
			return;
		}
		sub = moves_sp(code + i, left, 0xec, locals + 8);
		if (sub && left - sub >= 5 && code[i + sub] == 0x48 && code[i + sub + 1] == 0x89) {
			advance(f, i + sub);
			put_body_cfa(f, 8 * words, cache);
			advance(f, complete);
			put(f, rbp_saved, sizeof(rbp_saved));
			return;
		}
	}
	advance(f, complete);
	put_body_cfa(f, 8 * words, cache);
	put(f, rbp_saved, sizeof(rbp_saved));
}

/* The frame is left by "add $n,%rsp; pop %rbp", a look whether the thread is to stop, and "ret". */
static void put_epilogues(struct hotspot_frames *f, const struct hotspot_code *c)
{
	const uint8_t *code = c->bytes;
	size_t size = c->n_bytes;
	uint32_t locals = 8 * c->words - 16;

	for (size_t i = c->complete; i + 2 <= size && f->n < sizeof(f->bytes) - 64; i++) {
		size_t add = moves_sp(code + i, size - i, 0xc4, locals), pop = i + add, ret;

		if ((!add && locals) || pop + 2 > size || code[pop] != 0x5d)
			continue;
		for (ret = pop + 1; ret < size && ret < pop + 32 && code[ret] != 0xc3; ret++)
			;
		if (ret == size || code[ret] != 0xc3)
			continue;
		put(f, "\x0a", 1); /* DW_CFA_remember_state */
		advance(f, pop);
		put_cfa(f, 16);
		advance(f, pop + 1);
		put_cfa(f, 8);
		put(f, "\xc6", 1); /* DW_CFA_restore: rbp */
		advance(f, ret + 1);
		put(f, "\x0b", 1); /* DW_CFA_restore_state */
		i = ret;
	}
}

void hotspot_frames_compiled(struct hotspot_frames *f, const struct hotspot_code *code,
			     const struct hotspot_cache *cache)
{
	begin_frames(f, code->size);
	if (code->words > 1) {
		put_prologue(f, code, cache);
		put_epilogues(f, code);
	}
	end_frames(f);
}

/*
 * The interpreter's frames hang on rbp.  Its caller's rsp was what it keeps at rbp - 8: compiled
 * callers pass less than it makes room for.
 */
void hotspot_frames_interpreted(struct hotspot_frames *f, uint64_t size)
{
	static const uint8_t ops[] = {
		0x0c, 6,    16, /* DW_CFA_def_cfa: rbp + 16 */
		0x16, 7,    3,
		0x76, 0x78, 0x06, /* DW_CFA_val_expression: rsp; DW_OP_breg6 -8, deref */
	};

	begin_frames(f, size);
	put(f, ops, sizeof(ops));
	put(f, rbp_saved, sizeof(rbp_saved));
	end_frames(f);
}
