/*
 * unwinder/table/table.c: opens compiled tables (schema/table_blob.h), checks them, and looks up rows and
 * rules in them.
 */
#include "unwinder/table/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#include "unwinder/table/row.h"
#include "unwinder/table/table_build.h"

#define KEYS_AT_ONCE 32u

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tables are read in place");

/* ---- checking an untrusted blob --------------------------------------------------- */

/* Check the header's fields against each other. -ENOTSUP: another version or machine. */
static int check_header(const struct table_header *h, const struct uw_arch **arch)
{
	if (h->blob.version != TABLE_VERSION || h->blob.header_size != TABLE_HEADER_SIZE)
		return -ENOTSUP;
	*arch = uw_arch_of(h->blob.machine);
	if (!*arch || h->flags & ~(uint32_t)TABLE_WIDE_INDEX)
		return -ENOTSUP;
	if (h->unit_shift != (*arch)->unit_shift || h->ext_slots != (*arch)->ext_slots ||
	    h->build_id_size > sizeof(h->build_id))
		return -EBADMSG;
	if (h->n_superblocks !=
	    h->span / TABLE_SUPERBLOCK_UNITS + (h->span % TABLE_SUPERBLOCK_UNITS != 0))
		return -EBADMSG;
	return (uint64_t)h->span << h->unit_shift <= UINT64_MAX - h->base ? 0 : -EBADMSG;
}

/*
 * Return the address of count entries of width bytes at off, or NULL if they do not fit before
 * limit.
 */
static const void *part(const struct table_header *h, uint64_t limit, uint32_t off, uint64_t count,
			uint64_t width)
{
	if (off % TABLE_ALIGN || off < TABLE_HEADER_SIZE || off > limit ||
	    count * width > limit - off)
		return NULL;
	return (const uint8_t *)h + off;
}

/* Set the table's pointers and check that every part lies inside the blob. */
static int find_parts(struct uw_table *t)
{
	const struct table_header *h = t->header;
	uint64_t front = h->blob.front, size = h->blob.size;
	bool wide = h->flags & TABLE_WIDE_INDEX;
	const void *rule_index = part(h, size, h->rule_index, h->n_rows, wide ? 4 : 2);

	t->superblock = part(h, front, h->superblock, (uint64_t)h->n_superblocks + 1,
			     sizeof(struct table_superblock));
	t->block = part(h, size, h->block, h->n_blocks, 2);
	t->key = part(h, size, h->key, (uint64_t)h->n_rows + TABLE_KEY_PAD, 1);
	t->rule_index = wide ? NULL : rule_index;
	t->wide_rule_index = wide ? rule_index : NULL;
	t->rule = part(h, front, h->rule, h->n_rules, 8);
	t->ext = part(h, front, h->ext, (uint64_t)h->n_rules * h->ext_slots, 2);
	t->slow = part(h, front, h->slow, h->slow_size, 1);
	t->expr = part(h, front, h->expr, h->expr_size, 1);
	t->base = h->base;
	t->size = (uint64_t)h->span << h->unit_shift;
	t->unit_shift = h->unit_shift;
	t->quick = h->unit_shift || wide ? 0 : t->size;
	if (!t->superblock || !t->block || !t->key || !rule_index || !t->rule || !t->ext ||
	    !t->slow || !t->expr || !part(h, front, h->seg, h->n_segs, sizeof(struct table_seg)))
		return -EBADMSG;
	return 0;
}

/* Check that every block and row that the sups lead to exists. */
static int check_superblocks(const struct uw_table *t)
{
	const struct table_header *h = t->header;

	for (uint32_t s = 0; s < h->n_superblocks; s++) {
		uint32_t row = t->superblock[s].row, next = t->superblock[s + 1].row,
			 block = t->superblock[s].block;

		if (row > next || (block == TABLE_NO_BLOCK && row != next))
			return -EBADMSG;
		if (block != TABLE_NO_BLOCK && (h->n_blocks < TABLE_SUPERBLOCK_BLOCKS ||
						block > h->n_blocks - TABLE_SUPERBLOCK_BLOCKS))
			return -EBADMSG;
	}
	return t->superblock[h->n_superblocks].row == h->n_rows ? 0 : -EBADMSG;
}

/*
 * Eight numbers at a time: vectors wider than the machine's would be handled one element at a time.
 */
typedef uint16_t numbers8 __attribute__((vector_size(16)));

/* Return whether n + 1 numbers never decrease. */
static bool is_rising(const uint16_t *number, uint32_t n)
{
	numbers8 falls = { 0 }, a, b;
	uint16_t any = 0;
	uint32_t i = 0;

	for (; n - i >= 8; i += 8) {
		memcpy(&a, number + i, sizeof(a));
		memcpy(&b, number + i + 1, sizeof(b));
		falls |= (numbers8)(a > b);
	}
	for (; i < n; i++)
		any |= number[i] > number[i + 1];
	for (unsigned int k = 0; k < 8; k++)
		any |= falls[k];
	return !any;
}

/* Return whether n numbers are all below limit, which must not be 0. */
static bool are_below(const uint16_t *number, uint32_t n, uint32_t limit)
{
	numbers8 above = { 0 }, last = { 0 }, a;
	uint16_t any = 0;
	uint32_t i = 0;

	if (limit > UINT16_MAX)
		return true;
	last += (uint16_t)(limit - 1);
	for (; n - i >= 8; i += 8) {
		memcpy(&a, number + i, sizeof(a));
		above |= (numbers8)(a > last);
	}
	for (; i < n; i++)
		any |= number[i] >= limit;
	for (unsigned int k = 0; k < 8; k++)
		any |= above[k];
	return !any;
}

/*
 * Return how many rows lookups in one superblock can use, and the first of them. These are its own
 * rows, the one before them and the one after each of them.
 */
static uint32_t rows_of(const struct uw_table *t, const struct table_superblock *superblock,
			uint32_t *first)
{
	*first = superblock->row ? superblock->row - 1 : 0;
	return (superblock[1].row < t->header->n_rows ? superblock[1].row + 1 : superblock[1].row) -
	       *first;
}

/* Check a superblock's blocks and the rule numbers of its rows. */
static int check_superblock(const struct uw_table *t, const struct table_superblock *superblock)
{
	uint32_t row = superblock->row, next = superblock[1].row, first,
		 n = rows_of(t, superblock, &first);
	const uint16_t *block = t->block + superblock->block;

	if (superblock->block != TABLE_NO_BLOCK &&
	    (block[0] || block[TABLE_SUPERBLOCK_BLOCKS - 1] != next - row ||
	     !is_rising(block, TABLE_SUPERBLOCK_BLOCKS - 1)))
		return -EBADMSG;
	if (n && !t->header->n_rules)
		return -EBADMSG;
	if (t->rule_index)
		return are_below(t->rule_index + first, n, t->header->n_rules) ? 0 : -EBADMSG;
	for (uint32_t i = first; i < first + n; i++)
		if (t->wide_rule_index[i] >= t->header->n_rules)
			return -EBADMSG;
	return 0;
}

/* Return whether an expression lies inside the expr part. */
static bool expr_fits(const struct table_header *h, int64_t off, uint32_t size)
{
	return off >= 0 && off <= h->expr_size && size <= h->expr_size - off;
}

/* Check the record at off, with its registers and expressions. */
static int check_slow(const struct uw_table *t, uint32_t off)
{
	const struct table_header *h = t->header;
	struct table_slow slow;
	struct table_reg reg;
	int last = -1;

	if (off % 8 || off > h->slow_size || h->slow_size - off < sizeof(slow))
		return -EBADMSG;
	memcpy(&slow, t->slow + off, sizeof(slow));
	off += sizeof(slow);
	if (slow.cfa_reg >= UW_REGS_MAX || slow.ra >= UW_REGS_MAX || slow.n_regs > UW_REGS_MAX ||
	    slow.n_regs * sizeof(reg) > h->slow_size - off ||
	    (slow.cfa_size && !expr_fits(h, slow.cfa_off, slow.cfa_size)))
		return -EBADMSG;
	for (unsigned int i = 0; i < slow.n_regs; i++) {
		memcpy(&reg, t->slow + off + i * sizeof(reg), sizeof(reg));
		if (reg.reg >= UW_REGS_MAX || reg.reg <= last || reg.from >= UW_REGS_MAX ||
		    reg.kind >= TABLE_REG_KINDS)
			return -EBADMSG;
		if (reg.kind >= TABLE_REG_AT_EXPR && !expr_fits(h, reg.off, reg.size))
			return -EBADMSG;
		last = reg.reg;
	}
	return 0;
}

/* Check all rule words, so that lookups need not check them. */
static int check_rules(const struct uw_table *t)
{
	const struct table_header *h = t->header;

	for (uint32_t i = 0; i < h->n_rules; i++) {
		unsigned int kind = uw_packed_kind(t->rule[i]);
		int16_t reg = t->ext[(uint64_t)i * h->ext_slots + uw_ext_reg(t->arch)];

		if (kind >= TABLE_KINDS)
			return -EBADMSG;
		if ((kind == TABLE_REG || kind == TABLE_DEREF) &&
		    (reg < 0 || reg >= t->arch->n_regs))
			return -EBADMSG;
		if (kind == TABLE_SLOW && check_slow(t, uw_packed_slow(t->rule[i])))
			return -EBADMSG;
	}
	return 0;
}

/* Open and check the front part, which has been read. */
static int open_front(struct uw_table *t, const void *blob)
{
	int err;

	*t = (struct uw_table){ .header = blob };
	if (t->header->blob.magic != TABLE_MAGIC)
		return -EBADMSG;
	err = check_header(t->header, &t->arch);
	if (!err)
		err = find_parts(t);
	if (!err)
		err = check_superblocks(t);
	return err ? err : check_rules(t);
}

int uw_table_open(struct uw_table *table, const void *blob, size_t size)
{
	struct uw_table t;
	int err;

	if (size < TABLE_HEADER_SIZE)
		return -EBADMSG;
	err = uw_blob_check(blob, size);
	if (!err)
		err = open_front(&t, blob);
	for (uint32_t s = 0; !err && s < t.header->n_superblocks; s++)
		err = check_superblock(&t, &t.superblock[s]);
	if (!err)
		*table = t;
	return err;
}

void uw_table_trust(struct uw_table *table, const void *blob)
{
	*table = (struct uw_table){ .header = blob };
	table->arch = uw_arch_of(table->header->blob.machine);
	(void)find_parts(table);
}

/* ---- tables that are read while they are needed -------------------------------------- */

/*
 * Make a copy of the superblocks in which all blocks are absent. uw_table_bring reads and checks a
 * superblock when it is first needed, and then takes its true block from t.kept.
 */
int uw_table_open_stored(struct uw_table *table, struct uw_blob *blob)
{
	const struct table_header *h = uw_blob_bytes(blob);
	struct table_superblock *own;
	struct uw_table t;
	int err = h->blob.header_size < TABLE_HEADER_SIZE ? -ENOTSUP : open_front(&t, h);

	if (err)
		return err;
	own = malloc(((size_t)h->n_superblocks + 1) * sizeof(*own));
	if (!own)
		return -ENOMEM;
	for (uint32_t s = 0; s <= h->n_superblocks; s++)
		own[s] = (struct table_superblock){ .row = t.superblock[s].row,
						    .block = UW_TABLE_ABSENT };
	t.blob = blob;
	t.stored = t.superblock;
	t.superblock = own;
	t.own = own;
	*table = t;
	return 0;
}

void uw_table_fini(struct uw_table *table)
{
	free(table->own);
}

_Static_assert(KEYS_AT_ONCE <= TABLE_KEY_PAD, "keys are read from any row on");

/* Read and check what lookups in this superblock use. */
static int need_superblock(const struct uw_table *t, const struct table_superblock *superblock)
{
	const struct table_header *h = t->header;
	uint32_t first, n = rows_of(t, superblock, &first);
	uint64_t width = t->rule_index ? 2 : 4;
	int err = 0;

	if (superblock->block != TABLE_NO_BLOCK) {
		err = uw_blob_need(t->blob, h->block + (uint64_t)superblock->block * 2,
				   (uint64_t)TABLE_SUPERBLOCK_BLOCKS * 2);
		if (!err)
			err = uw_blob_need(t->blob, (uint64_t)h->key + superblock->row,
					   (uint64_t)(superblock[1].row - superblock->row) +
						   KEYS_AT_ONCE);
	}
	if (!err)
		err = uw_blob_need(t->blob, h->rule_index + first * width, n * width);
	return err ? err : check_superblock(t, superblock);
}

uint32_t uw_table_bring(const struct uw_table *table, uint32_t superblock)
{
	uint32_t block = __atomic_load_n(&table->superblock[superblock].block, __ATOMIC_ACQUIRE);

	if (!table->blob || block != UW_TABLE_ABSENT)
		return block;
	/* Threads that do this at the same time get the same result. */
	block = need_superblock(table, &table->stored[superblock])
			? UW_TABLE_BAD
			: table->stored[superblock].block;
	__atomic_store_n(&table->own[superblock].block, block, __ATOMIC_RELEASE);
	return block;
}

/* ---- looking up --------------------------------------------------------------------- */

/*
 * Count how many of a block's n keys, which ascend, are not above unit. Up to KEYS_AT_ONCE keys are
 * compared together and without a branch. Half the blocks of a large program have no key at all,
 * and no CPU can predict which. Bytes after the n keys are compared, too, but do not count.
 */
typedef uint32_t (*count_fn)(const uint8_t *key, uint32_t n, uint8_t unit);

/* Count one key at a time, without vectors. Tests compare both ways. */
static inline uint32_t count_portable(const uint8_t *key, uint32_t n, uint8_t unit)
{
	uint32_t i = 0;

	while (i < n && key[i] <= unit)
		i++;
	return i;
}

#if defined(__SSE2__)
/* Return a bit for each of 16 keys: set if the key is not above its unit. */
static inline uint64_t not_above(const uint8_t *key, __m128i units)
{
	__m128i above = _mm_subs_epu8(_mm_loadu_si128((const __m128i *)key), units);

	return (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(above, _mm_setzero_si128()));
}

static inline uint32_t count_few(const uint8_t *key, uint32_t n, uint8_t unit)
{
	__m128i units = _mm_set1_epi8((char)unit);
	uint64_t bits = not_above(key, units) + (not_above(key + 16, units) << 16);

	/*
	 * Adding 1 clears the bits below the first key that is above unit, and sets that key's bit.
	 */
	return (uint32_t)__builtin_ctzll((bits + 1) | UINT64_C(1) << n);
}
#elif defined(__ARM_NEON)
/* Return four bits for each of 16 keys, set if the key is above its unit. NEON has no movemask. */
static inline uint64_t above(const uint8_t *key, uint8x16_t units)
{
	uint8x16_t above = vcgtq_u8(vld1q_u8(key), units);

	return vget_lane_u64(vreinterpret_u64_u8(vshrn_n_u16(vreinterpretq_u16_u8(above), 4)), 0);
}

static inline uint32_t count_few(const uint8_t *key, uint32_t n, uint8_t unit)
{
	uint8x16_t units = vdupq_n_u8(unit);
	uint64_t low = above(key, units), high = above(key + 16, units);
	uint32_t first = low	? (uint32_t)__builtin_ctzll(low) / 4
			 : high ? (uint32_t)__builtin_ctzll(high) / 4 + 16
				: KEYS_AT_ONCE;

	return first < n ? first : n;
}
#else
#define count_few count_portable
#endif

/* Count keys KEYS_AT_ONCE at a time. */
static inline uint32_t count_fast(const uint8_t *key, uint32_t n, uint8_t unit)
{
	uint32_t i = 0, more;

	do {
		more = n - i < KEYS_AT_ONCE ? n - i : KEYS_AT_ONCE;
		more = count_few(key + i, more, unit);
		i += more;
	} while (more == KEYS_AT_ONCE && i < n);
	return i;
}

/* Return the row that covers vaddr, with the given way to count keys. */
static inline __attribute__((always_inline)) uint32_t row_at(const struct uw_table *t,
							     uint64_t vaddr, count_fn count)
{
	uint64_t off = vaddr - t->base, unit = off >> t->unit_shift;
	const struct table_superblock *superblock;
	const uint16_t *block;
	uint32_t low, at;

	if (off >= t->size)
		return UW_TABLE_NO_ROW;
	superblock = &t->superblock[unit / TABLE_SUPERBLOCK_UNITS];
	at = __atomic_load_n(&superblock->block, __ATOMIC_ACQUIRE);
	if (at == UW_TABLE_ABSENT)
		at = uw_table_bring(t, (uint32_t)(unit / TABLE_SUPERBLOCK_UNITS));
	if (at == TABLE_NO_BLOCK)
		return superblock->row - 1; /* before the first row this is NO_ROW */
	if (at == UW_TABLE_BAD)
		return UW_TABLE_NO_ROW;
	block = &t->block[at + unit / TABLE_BLOCK_UNITS % 256];
	low = superblock->row + block[0];
	return low + count(t->key + low, (uint32_t)block[1] - block[0], (uint8_t)unit) - 1;
}

/* Look up a row in any table, with any number of keys in its block. */
static __attribute__((noinline)) uint32_t row_anywhere(const struct uw_table *t, uint64_t vaddr)
{
	return row_at(t, vaddr, count_fast);
}

/*
 * Look up a row the short way, which nearly all lookups take: it calls nothing, and its branches go
 * the same way each time. False: call row_anywhere().
 */
static inline bool row_quickly(const struct uw_table *t, uint64_t vaddr, uint32_t *row)
{
	uint64_t unit = vaddr - t->base;
	const struct table_superblock *superblock;
	const uint16_t *block;
	uint32_t low, n, at;

	if (__builtin_expect(unit >= t->quick, 0))
		return false;
	superblock = &t->superblock[unit / TABLE_SUPERBLOCK_UNITS];
	at = __atomic_load_n(&superblock->block, __ATOMIC_ACQUIRE);
	if (__builtin_expect(at >= UW_TABLE_ABSENT, 0))
		return false;
	block = &t->block[at + unit / TABLE_BLOCK_UNITS % 256];
	low = superblock->row + block[0];
	n = (uint32_t)block[1] - block[0];
	/* The rule number comes from another page: prefetch it while the keys are compared. */
	__builtin_prefetch(t->rule_index + low);
	if (__builtin_expect(n > KEYS_AT_ONCE, 0))
		return false;
	*row = low + count_few(t->key + low, n, (uint8_t)unit) - 1;
	return __builtin_expect(*row != UW_TABLE_NO_ROW, 1);
}

uint32_t uw_table_row(const struct uw_table *table, uint64_t vaddr)
{
	uint32_t row;

	return row_quickly(table, vaddr, &row) ? row : row_anywhere(table, vaddr);
}

uint32_t uw_table_row_portable(const struct uw_table *table, uint64_t vaddr)
{
	return row_at(table, vaddr, count_portable);
}

static inline uint32_t rule_of(const struct uw_table *t, uint32_t row)
{
	return t->rule_index ? t->rule_index[row] : t->wide_rule_index[row];
}

/* Do the same as uw_table_packed for lookups that row_quickly cannot do. */
static __attribute__((noinline)) uint64_t packed_anywhere(const struct uw_table *t, uint64_t vaddr,
							  uint32_t *rule)
{
	uint32_t row = row_anywhere(t, vaddr);

	if (row == UW_TABLE_NO_ROW)
		return TABLE_NONE;
	*rule = rule_of(t, row);
	return t->rule[*rule];
}

uint64_t uw_table_packed(const struct uw_table *table, uint64_t vaddr, uint32_t *rule)
{
	uint32_t row;

	if (!row_quickly(table, vaddr, &row))
		return packed_anywhere(table, vaddr, rule);
	*rule = table->rule_index[row];
	return table->rule[*rule];
}

/* Return whether the rows around vaddr rule out a signal trampoline there; see uw_table_inside. */
static inline bool is_inside(const struct uw_table *t, uint64_t vaddr, bool exact, uint32_t row,
			     uint64_t packed)
{
	uint64_t next;

	/*
	 * If the row has the CFA as a call leaves it, a procedure without a row of its own may
	 * begin close after it.
	 */
	if (row >= t->header->n_rows - 1 || uw_packed_kind(packed) <= TABLE_SLOW ||
	    packed & TABLE_RULE_SIGNAL || (!exact && uw_packed_is_entry(t->arch, packed)))
		return false;
	next = t->rule[rule_of(t, row + 1)];
	return (uw_packed_kind(next) != TABLE_NONE && !(next & TABLE_RULE_BEGINS)) ||
	       (vaddr <= UINT64_MAX - UW_PADDING_MAX &&
		uw_table_row(t, vaddr + UW_PADDING_MAX) == row);
}

uint64_t uw_table_look(const struct uw_table *table, uint64_t vaddr, bool exact, bool *inside)
{
	uint32_t row = uw_table_row(table, vaddr);
	uint64_t packed = row == UW_TABLE_NO_ROW ? TABLE_NONE : table->rule[rule_of(table, row)];

	*inside = is_inside(table, vaddr, exact, row, packed);
	return packed;
}

bool uw_table_inside(const struct uw_table *table, uint64_t vaddr, bool exact)
{
	bool inside;

	(void)uw_table_look(table, vaddr, exact, &inside);
	return inside;
}

/* ---- records ------------------------------------------------------------------------- */

/* Decode the record at off, which was checked when the table was opened. */
static void slow_rule(const struct uw_table *t, uint32_t off, struct uw_rule *out)
{
	static const uint8_t kinds[TABLE_REG_KINDS] = {
		[TABLE_REG_SAME] = UW_RULE_SAME,	 [TABLE_REG_UNDEFINED] = UW_RULE_UNDEFINED,
		[TABLE_REG_AT_CFA] = UW_RULE_AT_CFA,	 [TABLE_REG_CFA_PLUS] = UW_RULE_CFA_PLUS,
		[TABLE_REG_REGISTER] = UW_RULE_REGISTER, [TABLE_REG_AT_EXPR] = UW_RULE_AT_EXPR,
		[TABLE_REG_EXPR] = UW_RULE_EXPR,
	};
	struct table_slow slow;
	struct table_reg reg;

	memcpy(&slow, t->slow + off, sizeof(slow));
	out->start = out->end = 0;
	out->cfa_size = slow.cfa_size;
	if (slow.cfa_size)
		out->cfa_expr = t->expr + slow.cfa_off;
	else
		out->cfa_off = slow.cfa_off;
	out->cfa_kind = UW_CFA_PLAIN;
	out->cfa_reg = slow.cfa_reg;
	out->ra = slow.ra;
	out->stepper = UW_STEPPER_CFI;
	out->signal = slow.flags & TABLE_RULE_SIGNAL;
	out->ra_signed = slow.flags & TABLE_RULE_SIGNED;
	out->n_regs = slow.n_regs;
	for (unsigned int i = 0; i < slow.n_regs; i++) {
		struct uw_reg_rule *r = &out->regs[i];

		memcpy(&reg, t->slow + off + sizeof(slow) + i * sizeof(reg), sizeof(reg));
		*r = (struct uw_reg_rule){
			.reg = reg.reg, .kind = kinds[reg.kind], .from = reg.from, .off = reg.off
		};
		if (reg.kind >= TABLE_REG_AT_EXPR) {
			r->expr = t->expr + reg.off;
			r->size = reg.size;
		}
	}
}

int uw_table_rule(const struct uw_table *table, uint64_t vaddr, struct uw_rule *out)
{
	uint32_t n = 0;
	uint64_t packed = uw_table_packed(table, vaddr, &n);

	switch (uw_packed_kind(packed)) {
	case TABLE_NONE:
		return -ENOENT;
	case TABLE_SLOW:
		slow_rule(table, uw_packed_slow(packed), out);
		return 0;
	default:
		uw_row_rule(table->arch, packed, uw_table_ext(table, n), out);
		return 0;
	}
}
