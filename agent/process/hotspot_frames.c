/*
 * agent/process/hotspot_frames.c: makes CFI for HotSpot's compiled and interpreted code (x86_64).
 */
#include "agent/process/hotspot_frames.h"

#include <stdbool.h>
#include <string.h>

/*
 * How many words an instruction sequence can push in the middle of a method; at most four were
 * observed.
 */
#define PUSHES 6

/* The sizes of the CIE, which holds the rules at a function's entry, and of the FDE's header. */
enum { CIE_SIZE = 24, FDE_HEAD = 24 };

/* Append bytes, if there is room for all of them. */
static void put(struct hotspot_frames *f, const void *bytes, size_t size)
{
	if (size <= sizeof(f->bytes) - f->n) {
		memcpy(f->bytes + f->n, bytes, size);
		f->n += size;
	}
}

/* Write the CIE and the header of an FDE for size bytes of code. */
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
		0, /* CIE length, without this field; CIE id 0 */
		1,
		0, /* version 1; no augmentation */
		1,
		0x78,
		16, /* code unit 1, data unit -8; the return address is rip */
		0x0c,
		7,
		8, /* DW_CFA_def_cfa: rsp + 8 */
		0x80 | 16,
		1, /* DW_CFA_offset: rip at CFA - 8 */
	};
	uint8_t head[FDE_HEAD] = { [4] = CIE_SIZE + 4 }; /* length (set later); CIE distance; 0 */

	for (unsigned int i = 0; i < 8; i++)
		head[16 + i] = (uint8_t)(size >> 8 * i);
	f->n = 0;
	f->at = 0;
	put(f, cie, sizeof(cie));
	put(f, head, sizeof(head));
}

/* Pad the FDE with nops and fill in its length. */
static void end_frames(struct hotspot_frames *f)
{
	static const uint8_t nops[8];

	put(f, nops, 8 - f->n % 8); /* DW_CFA_nop */
	for (unsigned int i = 0; i < 4; i++)
		f->bytes[CIE_SIZE + i] = (uint8_t)((f->n - CIE_SIZE - 4) >> 8 * i);
}

/* Set the location of the following instructions to offset at in the code. */
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

/* Set the CFA to rsp + off. */
static void put_cfa(struct hotspot_frames *f, uint32_t off)
{
	uint8_t op[7] = { 0x0c /* DW_CFA_def_cfa */, 7 };
	size_t n = 2;

	for (; off > 127; off >>= 7)
		op[n++] = (uint8_t)(off & 127) | 128;
	op[n++] = (uint8_t)off;
	put(f, op, n);
}

/* Write a number of at most 28 bits as an LEB128 of four bytes, valid as signed and as unsigned. */
static void put_leb(uint8_t *to, uint32_t value)
{
	for (unsigned int i = 0; i < 4; i++)
		to[i] = (uint8_t)((value >> 7 * i & 127) | (i < 3 ? 128 : 0));
}

/*
 * Set the CFA for the part of a method where its frame is complete: rsp + off, or up to PUSHES
 * words more. Some instruction sequences push up to PUSHES words for a while, and no table
 * describes these. But the caller of compiled code is in the code cache, too. So the return address
 * is the first word, beginning at its expected place, that points into the code cache.
 */
static void put_body_cfa(struct hotspot_frames *f, uint32_t off, const struct hotspot_cache *cache)
{
	/* DW_OP_breg7 off - 8, lit PUSHES: the expected place, words to try */
	uint8_t where[] = { 0x77, 0, 0, 0, 0, 0x30 + PUSHES };
	/*
	 * over, deref, const8u low, minus, const1u log2, shr, lit0, eq, bra: to end if in the cache
	 */
	uint8_t look[] = { 0x14, 0x06, 0x0e, 0, 0,    0,    0,	  0,	0,  0,
			   0,	 0x1c, 0x08, 0, 0x25, 0x30, 0x29, 0x28, 15, 0 };
	/*
	 * lit1, minus, dup, lit0, eq, bra: to end if no words are left; swap, plus_uconst 8, swap;
	 * skip: to over
	 */
	static const uint8_t next[] = { 0x31, 0x1c, 0x12, 0x30, 0x29, 0x28, 7,	 0,
					0x16, 0x23, 8,	  0x16, 0x2f, 0xdd, 0xff };
	/* drop, plus_uconst 8: the CFA is the address after the word */
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

/*
 * Return the length of "sub imm,%rsp" (how is 0xec) or "add imm,%rsp" (0xc4) at code; 0 if code is
 * not exactly this instruction.
 */
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
 * Describe the method's entry. The frame is built by "push %rbp; [mov %rsp,%rbp;] sub $n,%rsp", or
 * by "sub; mov %rbp,n(%rsp)", before offset complete. After that the frame is c->words words long,
 * with rbp saved below the return address.
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

/*
 * Describe the method's exits. The frame is left by "add $n,%rsp; pop %rbp", a check whether the
 * thread must stop, and "ret".
 */
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
 * The interpreter's frames are based on rbp. The caller's rsp is the value stored at rbp - 8,
 * because the interpreter makes room for more than a compiled caller passes.
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

/*
 * Native code calls Java by a stub, whose frame is based on rbp. The stub has saved the native code's other
 * registers at places that depend on the version.
 */
void hotspot_frames_call_stub(struct hotspot_frames *f)
{
	static const uint8_t ops[] = {
		0x0c, 6,  16,		      /* DW_CFA_def_cfa: rbp + 16 */
		0x07, 3,  0x07, 12, 0x07, 13, /* DW_CFA_undefined: rbx, r12, r13 … */
		0x07, 14, 0x07, 15,
	};

	begin_frames(f, HOTSPOT_CALL_SIZE);
	put(f, ops, sizeof(ops));
	put(f, rbp_saved, sizeof(rbp_saved));
	end_frames(f);
}
