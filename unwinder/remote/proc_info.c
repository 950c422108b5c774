/*
 * unwinder/remote/proc_info.c: finds a procedure's information, in an object or by a search table
 * in the target's memory.
 */
#include "unwinder/remote/proc_info.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "unwinder/arch/arch.h"
#include "unwinder/cfi/cfi.h"
#include "unwinder/cfi/ehframe.h"
#include "unwinder/cfi/pointer.h"
#include "unwinder/rule/object.h"

/* What unwind_info points to, in one allocation. */
struct rules {
	uint64_t magic;
	struct uw_object *object; /* one reference; NULL: the entries are in cfi and bytes */
	uint64_t bias;
	struct uw_cfi cfi; /* the CIE, then the FDE */
	struct uw_fde fde;
	uint8_t bytes[];
};

#define MAGIC 0x6f66667775726c65u

/* The largest FDE on a Debian disk has 30 KiB. */
#define ENTRY_MAX ((uint64_t)1 << 20)

/* ---- exception handling data ------------------------------------------------------------ */

/*
 * Read the encoded pointer at pos, whose address follows from bases. 0: it is null, or cannot be
 * read.
 */
static uint64_t pointer_at(const struct uw_proc_query *query, const struct uw_bases *bases,
			   uint64_t bias, const uint8_t *pos, const uint8_t *end, uint8_t encoding)
{
	struct uw_bytes b = uw_bytes_of(pos, (size_t)(end - pos)), bare = b;
	uint64_t value;
	uint8_t word[8];

	if (encoding == UW_PE_OMIT ||
	    uw_pointer_number(&bare, encoding, bases->address_size, &value) || value == 0)
		return 0; /* a null pointer is null whatever its base is (LSB 5.0 §10.6.1) */
	if (uw_pointer_read(&b, bases, encoding & (uint8_t)~UW_PE_INDIRECT, &value))
		return 0;
	value += bias;
	if (!(encoding & UW_PE_INDIRECT))
		return value;
	if (!query->read || query->read(query->ctx, value, word, 8))
		return 0;
	b = uw_bytes_of(word, 8);
	return uw_bytes_u64(&b);
}

/* Set the handler and the LSDA from the FDE. cie is the CIE's first byte, cie_vaddr its address. */
static void take_handlers(const struct uw_proc_query *query, const struct uw_cfi *cfi,
			  const struct uw_fde *fde, const uint8_t *cie, uint64_t cie_vaddr,
			  uint64_t bias, struct uw_proc_info *out)
{
	struct uw_bases bases = { .start = cfi->data,
				  .vaddr = cfi->vaddr,
				  .text = cfi->text,
				  .data = cfi->got,
				  .func = fde->start,
				  .has_text = cfi->has_text,
				  .has_data = cfi->has_got,
				  .has_func = true,
				  .address_size = fde->cie.address_size };
	const struct uw_bytes *aug = &fde->augmentation;

	if (aug->pos && fde->cie.lsda_encoding != UW_PE_OMIT)
		out->lsda =
			pointer_at(query, &bases, bias, aug->pos, aug->end, fde->cie.lsda_encoding);
	if (!fde->cie.personality)
		return;
	bases.start = cie;
	bases.vaddr = cie_vaddr;
	out->handler = pointer_at(query, &bases, bias, fde->cie.personality, cfi->data + cfi->size,
				  fde->cie.personality_encoding);
}

/* ---- in an object -------------------------------------------------------------------------- */

int uw_proc_info_object(struct uw_object *object, uint64_t bias, const struct uw_proc_query *query,
			struct uw_proc_info *out)
{
	uint64_t vaddr = query->pc - bias;
	struct uw_proc_info info = { .format = UW_PROC_TABLE };
	struct uw_frames *frames;
	struct uw_rule rule;
	struct uw_fde fde;
	int err = -ENOENT;

	for (unsigned int i = 0; err == -ENOENT && (frames = uw_object_frames(object, i)); i++) {
		err = uw_frames_find(frames, vaddr, &fde);
		if (err)
			continue;
		info.start = fde.start + bias;
		info.end = fde.end + bias;
		info.flags = i != UW_FRAMES_EH ? UW_PROC_DEBUG_FRAME : 0;
		take_handlers(query, &frames->cfi, &fde, frames->cfi.data, frames->cfi.vaddr, bias,
			      &info);
	}
	if (err == -ENOENT) { /* a stub, or the padding after a procedure */
		err = uw_object_rule(object, vaddr, true, &rule);
		info.start = query->pc;
		info.end = query->pc + 1;
		if (!err && rule.start < rule.end) {
			info.start = rule.start + bias;
			info.end = rule.end + bias;
		}
	}
	if (err)
		return err;
	if (query->rules) {
		struct rules *rules = calloc(1, sizeof(*rules));

		if (!rules)
			return -ENOMEM;
		rules->magic = MAGIC;
		rules->object = uw_object_get(object);
		rules->bias = bias;
		info.unwind_info = rules;
		info.unwind_info_size = sizeof(*rules);
	}
	*out = info;
	return 0;
}

/* ---- by a search table --------------------------------------------------------------------- */

/* Read a little-endian number from the target's memory. */
static int read_u32(const struct uw_proc_query *query, uint64_t addr, uint32_t *out)
{
	uint8_t bytes[4];
	struct uw_bytes b = uw_bytes_of(bytes, 4);
	int err = query->read(query->ctx, addr, bytes, 4);

	if (!err)
		*out = uw_bytes_u32(&b);
	return err;
}

/*
 * Find the last entry that starts at or below pc, and return the address of its FDE. -ENOENT: there
 * is none.
 */
static int search(const struct uw_search_table *table, const struct uw_proc_query *query,
		  uint64_t *fde)
{
	uint64_t low = 0, high = table->n;
	uint32_t word;
	int err;

	if (table->n > UINT32_MAX)
		return -EBADMSG;
	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		err = read_u32(query, table->entries + middle * 8, &word);
		if (err)
			return err;
		if ((int64_t)(int32_t)word <= (int64_t)(query->pc - table->start))
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0)
		return -ENOENT;
	err = read_u32(query, table->entries + (low - 1) * 8 + 4, &word);
	if (!err)
		*fde = table->base + (uint64_t)(int64_t)(int32_t)word;
	return err;
}

/*
 * Return the size of the entry at addr, and the offset of its id. -ENOTSUP: it is too large.
 * -EBADMSG: it has no id; a terminator has none either.
 */
static int measure(const struct uw_proc_query *query, uint64_t addr, uint64_t *size, uint64_t *id)
{
	uint32_t length, high = 0;
	int err = read_u32(query, addr, &length);

	*size = (uint64_t)length + 4;
	*id = 4;
	if (!err && length == UINT32_MAX) {
		err = read_u32(query, addr + 4, &length);
		if (!err)
			err = read_u32(query, addr + 8, &high);
		*size = (uint64_t)length + 12;
		*id = 12;
	}
	if (err)
		return err;
	if (high || *size > ENTRY_MAX)
		return -ENOTSUP;
	return *size < *id + 4 ? -EBADMSG : 0; /* a terminator among them */
}

/*
 * Read an FDE and its CIE and put them side by side. The FDE keeps its address, so that pc-relative
 * pointers in it are right. Its CIE pointer is rewritten to lead to the copy. The caller frees
 * *out.
 */
static int read_entries(const struct uw_search_table *table, const struct uw_proc_query *query,
			uint64_t fde_addr, struct rules **out, uint64_t *cie_vaddr)
{
	uint64_t fde_size, cie_size, id, cie_id, cie_addr;
	struct rules *rules;
	uint32_t back;
	uint8_t *at;
	int err = measure(query, fde_addr, &fde_size, &id);

	if (!err)
		err = read_u32(query, fde_addr + id, &back);
	if (err)
		return err;
	cie_addr = fde_addr + id - back;
	err = measure(query, cie_addr, &cie_size, &cie_id);
	if (err)
		return err;
	rules = malloc(sizeof(*rules) + cie_size + fde_size);
	if (!rules)
		return -ENOMEM;
	*rules = (struct rules){ .magic = MAGIC };
	rules->cfi = (struct uw_cfi){ .data = rules->bytes,
				      .size = cie_size + fde_size,
				      .vaddr = fde_addr - cie_size,
				      .got = table->gp,
				      .has_got = table->gp != 0,
				      .eh = true };
	at = rules->bytes + cie_size + id;
	err = query->read(query->ctx, cie_addr, rules->bytes, cie_size);
	if (!err)
		err = query->read(query->ctx, fde_addr, rules->bytes + cie_size, fde_size);
	back = (uint32_t)(cie_size + id);
	for (unsigned int i = 0; i < 4; i++)
		at[i] = (uint8_t)(back >> (8 * i));
	if (!err)
		err = uw_cfi_entry(&rules->cfi, cie_size, &rules->fde, NULL);
	if (err) {
		free(rules);
		return err == -ENOENT ? -EBADMSG : err;
	}
	*cie_vaddr = cie_addr;
	*out = rules;
	return 0;
}

int uw_proc_info_search(const struct uw_search_table *table, const struct uw_proc_query *query,
			struct uw_proc_info *out)
{
	struct uw_proc_info info = { .format = UW_PROC_TABLE, .gp = table->gp };
	struct rules *rules;
	uint64_t fde, cie_vaddr;
	int err;

	if (!query->read || !uw_arch_of(query->machine))
		return -EINVAL;
	err = search(table, query, &fde);
	if (!err)
		err = read_entries(table, query, fde, &rules, &cie_vaddr);
	if (err)
		return err;
	info.start = rules->fde.start;
	info.end = rules->fde.end;
	if (query->pc < info.start || query->pc >= info.end) {
		free(rules);
		return -ENOENT;
	}
	take_handlers(query, &rules->cfi, &rules->fde, rules->bytes, cie_vaddr, 0, &info);
	if (query->rules) {
		info.unwind_info = rules;
		info.unwind_info_size = sizeof(*rules) + rules->cfi.size;
	} else {
		free(rules);
	}
	*out = info;
	return 0;
}

/* ---- use ----------------------------------------------------------------------------------- */

/* Return what unwind_info points to, or NULL if this library did not make it. */
static struct rules *rules_of(const struct uw_proc_info *info)
{
	struct rules *rules = info->format == UW_PROC_TABLE ? info->unwind_info : NULL;

	return rules && info->unwind_info_size >= sizeof(*rules) && rules->magic == MAGIC ? rules
											  : NULL;
}

int uw_proc_info_rule(const struct uw_proc_info *info, uint64_t lookup, bool exact,
		      struct uw_rule *rule, uint64_t *bias)
{
	struct rules *rules = rules_of(info);
	int err;

	if (!rules)
		return -EINVAL;
	*bias = rules->bias;
	if (rules->object)
		return uw_object_rule(rules->object, lookup - rules->bias, exact, rule);
	if (lookup < rules->fde.start || lookup >= rules->fde.end)
		return -ENOENT;
	err = uw_cfi_rule(&rules->cfi, &rules->fde, lookup, rule);
	if (!err) { /* uw_cfi_rule sets these to the same values */
		rule->start = rules->fde.start;
		rule->end = rules->fde.end;
		rule->stepper = UW_STEPPER_CFI;
	}
	return err;
}

void uw_proc_info_free(struct uw_proc_info *info)
{
	struct rules *rules = rules_of(info);

	if (!rules)
		return;
	uw_object_put(rules->object);
	rules->magic = 0;
	free(rules);
	info->unwind_info = NULL;
	info->unwind_info_size = 0;
}
