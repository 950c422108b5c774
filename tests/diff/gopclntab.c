/*
 * tests/diff/gopclntab.c: compares the unwind information made from .gopclntab with the same file's
 * .debug_frame: every function's bounds and every row.
 * Go's linker makes both from the same data. Ours may know more: that a function has no caller
 * ("nobody"), that a function has one ("caller"), or that the frame pointer gives the caller
 * ("fp"). The program prints the start of each function with such a row and the kind of the row,
 * then a line of counts. Exit code 1: there is any other difference.
 *   usage: gopclntab FILE
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "unwinder/cfi/ehframe.h"
#include "unwinder/rule/object.h"

static struct {
	const struct uw_cfi *debug;
	struct uw_fde fde; /* theirs */
	uint64_t told;	   /* the function last printed */
	unsigned long functions, rows, differing;
} now;

static bool same_ra(const struct uw_reg_rule *a, const struct uw_reg_rule *b)
{
	/* A register that has the same value is either not mentioned or mentioned as the same. */
	bool a_same = !a || a->kind == UW_RULE_SAME, b_same = !b || b->kind == UW_RULE_SAME;

	return a_same || b_same ? a_same == b_same : a->kind == b->kind && a->off == b->off;
}

static bool is_undefined(const struct uw_reg_rule *rule)
{
	return rule && rule->kind == UW_RULE_UNDEFINED;
}

static int compare(void *ctx, uint64_t start, uint64_t end, const struct uw_rule *ours)
{
	/* The padding after a function belongs to it here. */
	const uint64_t places[] = { start, (end < now.fde.end ? end : now.fde.end) - 1 };

	(void)ctx;
	if (start >= now.fde.end)
		return 0;
	now.rows++;
	for (unsigned int i = 0; i < 2; i++) {
		const struct uw_reg_rule *ra = uw_rule_reg(ours, ours->ra), *their_ra;
		bool by_fp = ours->cfa_size > 0; /* there are no other expressions */
		struct uw_rule theirs;
		int err = uw_cfi_rule(now.debug, &now.fde, places[i], &theirs);

		their_ra = err ? NULL : uw_rule_reg(&theirs, theirs.ra);
		if (!err && !theirs.cfa_size && ours->ra == theirs.ra &&
		    (by_fp ||
		     (ours->cfa_reg == theirs.cfa_reg && ours->cfa_off == theirs.cfa_off))) {
			const char *how = by_fp			   ? "fp"
					  : is_undefined(ra)	   ? "nobody"
					  : is_undefined(their_ra) ? "caller"
								   : NULL;

			if (how && now.told != now.fde.start)
				(void)printf("%" PRIx64 " %s\n", now.told = now.fde.start, how);
			if (how || same_ra(ra, their_ra))
				continue;
		}
		now.differing++;
		(void)fprintf(stderr, "%" PRIx64 ": %s, CFA %d%+" PRId64 " and %d%+" PRId64 "\n",
			      places[i], err ? strerror(-err) : "otherwise", ours->cfa_reg,
			      ours->cfa_off, theirs.cfa_reg, theirs.cfa_off);
	}
	return 0;
}

int main(int argc, char **argv)
{
	int fd = argc == 2 ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1;
	struct uw_frames *go, *debug;
	const struct uw_fde_key *keys;
	struct uw_object *object;
	size_t n, n_debug;

	if (fd < 0 || uw_object_open(fd, 0, &object)) {
		(void)fputs("usage: gopclntab FILE\n", stderr);
		return 2;
	}
	go = uw_object_frames(object, UW_FRAMES_GO);
	debug = uw_object_frames(object, UW_FRAMES_DEBUG);
	now.debug = &debug->cfi;
	if (uw_frames_keys(debug, &keys, &n_debug) || uw_frames_keys(go, &keys, &n)) {
		(void)fprintf(stderr, "%s: no rows\n", argv[1]);
		return 1;
	}
	for (size_t i = 0; i < n; i++) {
		struct uw_fde ours;

		if (uw_frames_find(debug, keys[i].start, &now.fde) ||
		    uw_cfi_entry(&go->cfi, keys[i].off, &ours, NULL) ||
		    ours.start != now.fde.start || ours.end < now.fde.end) {
			(void)fprintf(stderr, "%" PRIx64 ": other bounds\n", keys[i].start);
			now.differing++;
			continue;
		}
		now.functions++;
		(void)uw_cfi_rows(&go->cfi, &ours, compare, NULL);
	}
	(void)printf("%lu of %zu functions, %lu rows, %lu differing\n", now.functions, n_debug,
		     now.rows, now.differing);
	uw_object_put(object);
	close(fd);
	return now.differing != 0;
}
