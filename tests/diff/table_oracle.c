/*
 * tests/diff/table_oracle.c: compares a compiled table with the interpreter that it was compiled
 * with.
 * It compares them at every row's start, one byte before and one after it, in the middle of the
 * row, and all along gaps, and it compares the vector look-up with the portable one. If the table
 * has a packed rule where the file has an expression, both step from many made-up machine states,
 * and every register of the caller must be the same. It prints one line per file:
 *     file  rows  bytes of unwind sections  bytes of table  unanswered/asked  reworded
 *   usage: table_oracle [-b BLOB] FILE…     exit 1 if anything differs
 * -b writes the last file's table to BLOB.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "unwinder/rule/object.h"
#include "unwinder/table/table.h"
#include "unwinder/walk/step.h"

#define SHOWN_MAX 20

static struct uw_object *object;
static const struct uw_arch *arch;
static const struct uw_table *table;
static const char *file, *blob_file;
static unsigned long rows, asked, unanswered, stepped, differing;

/*
 * Differences in form that the table may have: registers that do not matter, slots that were
 * already popped, "same".
 */
static void settle(struct uw_rule *rule)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < rule->n_regs; i++) {
		const struct uw_reg_rule *r = &rule->regs[i];
		bool ra = r->reg == rule->ra;

		if (r->reg >= arch->n_regs && r->kind <= UW_RULE_AT_CFA)
			continue;
		if (!ra && !rule->cfa_size && rule->cfa_reg == arch->sp &&
		    r->kind == UW_RULE_AT_CFA && r->off < -rule->cfa_off)
			continue;
		if (r->kind == UW_RULE_SAME && r->reg != arch->pc && r->reg != arch->sp)
			continue;
		rule->regs[n++] = *r;
	}
	rule->n_regs = (uint8_t)n;
}

static bool same_bytes(const uint8_t *a, uint32_t a_size, const uint8_t *b, uint32_t b_size)
{
	return a_size == b_size && !memcmp(a, b, a_size);
}

static bool same(const struct uw_rule *a, const struct uw_rule *b)
{
	if (a->n_regs != b->n_regs || a->ra != b->ra || a->signal != b->signal ||
	    a->ra_signed != b->ra_signed || a->stepper != b->stepper || a->cfa_size != b->cfa_size)
		return false;
	if (a->cfa_size ? !same_bytes(a->cfa_expr, a->cfa_size, b->cfa_expr, b->cfa_size)
			: a->cfa_off != b->cfa_off || a->cfa_reg != b->cfa_reg)
		return false;
	for (int i = 0; i < a->n_regs; i++) {
		const struct uw_reg_rule *x = &a->regs[i], *y = &b->regs[i];

		if (x->reg != y->reg || x->kind != y->kind)
			return false;
		if (x->kind == UW_RULE_REGISTER && x->from != y->from)
			return false;
		if ((x->kind == UW_RULE_AT_CFA || x->kind == UW_RULE_CFA_PLUS) && x->off != y->off)
			return false;
		if ((x->kind == UW_RULE_AT_EXPR || x->kind == UW_RULE_EXPR) &&
		    !same_bytes(x->expr, x->size, y->expr, y->size))
			return false;
	}
	return true;
}

/* Return whether a packed rule replaces an expression. */
static bool reworded(const struct uw_rule *told)
{
	bool is = told->cfa_kind != UW_CFA_PLAIN;

	for (unsigned int i = 0; i < told->n_regs; i++)
		is |= told->regs[i].kind == UW_RULE_AT_REG;
	return is;
}

static uint64_t scramble(uint64_t x)
{
	x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
	return x ^ x >> 32;
}

/* Memory with different contents everywhere; one of every 2^n words is missing, n < 64. */
static int made_up(void *ctx, uint64_t addr, void *out, size_t size)
{
	const unsigned int *n = ctx;
	uint64_t value = scramble(addr);

	if (size > 8 || (*n && !(scramble(value + *n) & (((uint64_t)1 << *n) - 1))))
		return -EFAULT;
	memcpy(out, &value, size);
	return 0;
}

static struct uw_machine machine_of(unsigned int n, unsigned int *missing)
{
	struct uw_machine m = { .arch = arch, .read = made_up, .ctx = missing };

	for (unsigned int i = 0; i < arch->n_regs; i++)
		m.regs.value[i] = scramble(n * 64 + i) & 0x7ffffffffff8;
	m.regs.value[arch->pc] = 0x7f0000001000 + n;
	/* Slots lie on both sides of sp. */
	m.regs.value[arch->sp] = m.regs.value[arch->fp] + (uint64_t)(((int64_t)n - 32) * 8);
	m.regs.known = ((uint64_t)1 << arch->n_regs) - 1;
	*missing = n % 4;
	if (n % 8 == 5)
		m.regs.known &= scramble(n);
	return m;
}

static bool same_steps(const struct uw_rule *told, const struct uw_rule *rule)
{
	for (unsigned int n = 0; n < 64; n++) {
		unsigned int missing;
		struct uw_machine a = machine_of(n, &missing), b = a;
		uint64_t cfa_a = 0, cfa_b = 0, regs = ((uint64_t)1 << arch->n_regs) - 1;

		if (uw_step(&a, told, &cfa_a) != uw_step(&b, rule, &cfa_b) || cfa_a != cfa_b ||
		    (a.regs.known ^ b.regs.known) & regs || a.missing != b.missing)
			return false;
		for (unsigned int i = 0; i < arch->n_regs; i++)
			if (a.regs.known >> i & 1 && a.regs.value[i] != b.regs.value[i])
				return false;
	}
	return told->ra == rule->ra && told->signal == rule->signal &&
	       told->ra_signed == rule->ra_signed && told->stepper == rule->stepper;
}

static void ask(uint64_t lookup)
{
	struct uw_rule told, rule;
	bool by_step;

	asked++;
	if (uw_table_row(table, lookup) != uw_table_row_portable(table, lookup)) {
		differing++;
		(void)printf("%s: %" PRIx64 ": vectors find another row\n", file, lookup);
	}
	if (uw_table_rule(table, lookup, &told)) {
		unanswered++;
		return;
	}
	by_step = reworded(&told);
	stepped += by_step;
	if (!by_step)
		settle(&told);
	for (int exact = 0; exact < 2; exact++) {
		int err = uw_object_rule(object, lookup, exact, &rule);

		if (!err && !rule.compiled) { /* code that is recognised by its bytes */
			unanswered++;
			continue;
		}
		err = uw_object_interpret(object, lookup, exact, &rule);
		if (!err && !by_step)
			settle(&rule);
		if (!err && (by_step ? same_steps(&told, &rule) : same(&told, &rule)))
			continue;
		if (differing++ < SHOWN_MAX)
			(void)printf("%s: %" PRIx64 ": %s\n", file, lookup,
				     err ? strerror(-err) : "another rule");
	}
}

static int one_row(void *ctx, uint64_t start, uint64_t end, const struct uw_rule *rule)
{
	(void)ctx;
	(void)rule;
	rows++;
	ask(start);
	if (end - start > 1)
		ask(end - 1);
	if (end - start > 2)
		ask(start + 1);
	return 0;
}

/*
 * At the ends of procedures, and before their starts, there may be a trampoline that is not in the
 * table.
 */
static void see_edge(uint64_t lookup)
{
	if (uw_table_inside(table, lookup, false) && differing++ < SHOWN_MAX)
		(void)printf("%s: %" PRIx64 ": taken to be inside a procedure\n", file, lookup);
}

static void one_section(const struct uw_cfi *cfi)
{
	uint64_t off = 0, next;

	for (; off < cfi->size; off = next) {
		struct uw_fde fde;

		next = off;
		if (!uw_cfi_entry(cfi, off, &fde, &next)) {
			(void)uw_cfi_rows(cfi, &fde, one_row, NULL);
			if (cfi == &uw_object_frames(object, 0)->cfi) { /* it has the last word */
				see_edge(fde.end - 1);
				see_edge(fde.start - 1);
			}
			for (uint64_t at = fde.end; at - fde.end < 24; at++)
				ask(at);
			for (uint64_t at = fde.start - 9; at < fde.start; at++)
				ask(at);
		}
		if (next <= off)
			break;
	}
}

static int write_blob(const void *blob, size_t size)
{
	FILE *out = fopen(blob_file, "w");
	bool ok = out && fwrite(blob, 1, size, out) == size;

	if (out && fclose(out))
		ok = false;
	return ok ? 0 : -EIO;
}

static int one_file(void)
{
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	int err = fd < 0 ? -errno : uw_object_open(fd, 0, &object);
	const void *blob;
	size_t size;

	if (fd >= 0)
		close(fd);
	if (err)
		return err;
	arch = uw_arch_of(uw_object_machine(object));
	err = uw_object_compile(object);
	if (!err) {
		table = uw_object_table(object);
		blob = uw_object_compiled(object, &size);
		if (blob_file)
			err = write_blob(blob, size);
		rows = asked = unanswered = stepped = 0;
		for (unsigned int i = 0; i < UW_FRAMES_N; i++)
			one_section(&uw_object_frames(object, i)->cfi);
		(void)printf("%s\t%lu\t%" PRIu64 "\t%zu\t%lu/%lu\t%lu\n", file, rows,
			     (uint64_t)table->header->src_size, size, unanswered, asked, stepped);
	} else if (err == -ENOENT) {
		err = 0;
	}
	uw_object_put(object);
	return err;
}

int main(int argc, char **argv)
{
	int first = argc > 2 && !strcmp(argv[1], "-b") ? 3 : 1;

	if (first == 3)
		blob_file = argv[2];
	for (int i = first; i < argc; i++) {
		int err;

		file = argv[i];
		err = one_file();
		if (err && err != -ENOTSUP) {
			differing++;
			(void)printf("%s: %s\n", file, strerror(-err));
		}
	}
	return differing != 0;
}
