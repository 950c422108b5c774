/*
 * tests/diff/cfi_dump.c: prints every row of a file's call frame information, in the form that
 * cfi_readelf.py makes from readelf's output: "FDE off start end", then "loc cfa reg=rule …" in
 * hex.
 * Each row is also looked up through the object, by its first and last address. If an answer
 * differs from the row, the program ends with exit code 1.
 *   usage: cfi_dump FILE
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "unwinder/cfi/ehframe.h"
#include "unwinder/rule/object.h"

static struct uw_object *object;
static unsigned long looked_up, differing;

static void print_rule(const struct uw_reg_rule *r, bool print_undefined)
{
	switch (r->kind) {
	case UW_RULE_SAME:
		(void)printf(" %d=s", r->reg);
		break;
	case UW_RULE_UNDEFINED: /* readelf prints the same for a register that is not mentioned */
		if (print_undefined)
			(void)printf(" %d=u", r->reg);
		break;
	case UW_RULE_AT_CFA:
		(void)printf(" %d=c%+" PRId64, r->reg, r->off);
		break;
	case UW_RULE_CFA_PLUS:
		(void)printf(" %d=v%+" PRId64, r->reg, r->off);
		break;
	case UW_RULE_REGISTER:
		(void)printf(" %d=%d", r->reg, r->from);
		break;
	case UW_RULE_AT_EXPR:
		(void)printf(" %d=exp", r->reg);
		break;
	default:
		(void)printf(" %d=vexp", r->reg);
		break;
	}
}

static bool same(const struct uw_rule *a, const struct uw_rule *b)
{
	if (a->cfa_size != b->cfa_size || a->n_regs != b->n_regs || a->ra != b->ra ||
	    a->signal != b->signal)
		return false;
	if (a->cfa_size ? a->cfa_expr != b->cfa_expr
			: a->cfa_off != b->cfa_off || a->cfa_reg != b->cfa_reg)
		return false;
	for (int i = 0; i < a->n_regs; i++) {
		const struct uw_reg_rule *x = &a->regs[i], *y = &b->regs[i];

		if (x->reg != y->reg || x->kind != y->kind || x->size != y->size ||
		    x->from != y->from || x->off != y->off)
			return false;
	}
	return true;
}

static void look_up(uint64_t lookup, const struct uw_rule *row)
{
	struct uw_rule rule;
	int err = uw_object_rule(object, lookup, true, &rule);

	looked_up++;
	/* Another FDE may cover the address as well; this row does not matter there. */
	if (!err && (rule.start != row->start || rule.end != row->end))
		return;
	/* Signal frames of aarch64 use the saved registers. */
	if (!err && rule.stepper == UW_STEPPER_SIGNAL)
		return;
	if (!err && same(&rule, row))
		return;
	differing++;
	(void)fprintf(stderr, "%" PRIx64 ": looked up %s\n", lookup,
		      err ? strerror(-err) : "otherwise");
}

static int print_row(void *ctx, uint64_t start, uint64_t end, const struct uw_rule *row)
{
	(void)ctx;
	(void)printf("%" PRIx64, start);
	if (row->cfa_size)
		(void)printf(" exp");
	else
		(void)printf(" %d%+" PRId64, row->cfa_reg, row->cfa_off);
	for (int i = 0; i < row->n_regs; i++)
		print_rule(&row->regs[i], row->ra == UW_X86_64_RIP && row->regs[i].reg == row->ra);
	(void)putchar('\n');
	look_up(start, row);
	if (end - 1 != start)
		look_up(end - 1, row);
	return 0;
}

static void print_section(const struct uw_cfi *cfi)
{
	uint64_t off = 0, next = 0;

	for (; off < cfi->size; off = next) {
		struct uw_fde fde;
		int err;

		next = off;
		err = uw_cfi_entry(cfi, off, &fde, &next);
		if (next <= off)
			break;
		if (err == -ENOENT)
			continue;
		if (!err) {
			(void)printf("FDE %" PRIx64 " %" PRIx64 " %" PRIx64 "\n", off, fde.start,
				     fde.end);
			err = uw_cfi_rows(cfi, &fde, print_row, NULL);
		}
		if (err)
			(void)printf("bad %" PRIx64 " %s\n", off, strerror(-err));
	}
}

int main(int argc, char **argv)
{
	int fd = argc == 2 ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1;
	int err = fd < 0 ? -errno : uw_object_open(fd, 0, &object);

	if (err) {
		(void)fprintf(stderr, "%s: %s\n", argc > 1 ? argv[1] : "cfi_dump", strerror(-err));
		return 1;
	}
	close(fd);
	for (unsigned int i = UW_FRAMES_EH; i <= UW_FRAMES_DEBUG; i++) {
		const struct uw_cfi *cfi = &uw_object_frames(object, i)->cfi;

		if (i == UW_FRAMES_GO)
			continue;
		if (cfi->size)
			(void)printf("section %s\n",
				     i == UW_FRAMES_DEBUG ? ".debug_frame" : ".eh_frame");
		print_section(cfi);
	}
	uw_object_put(object);
	(void)fprintf(stderr, "%lu looked up, %lu differing\n", looked_up, differing);
	return differing != 0;
}
