/*
 * tests/diff/rule_at.c: prints the rule at each address of standard input: "addr reg+off ra-slot",
 * in which ra-slot is an offset from the CFA, or the reason why there is no rule.
 *   usage: rule_at FILE < ADDRESSES
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "unwinder/rule/object.h"

int main(int argc, char **argv)
{
	int fd = argc == 2 ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1;
	struct uw_object *object;
	uint64_t vaddr;

	if (fd < 0 || uw_object_open(fd, 0, &object)) {
		(void)fputs("usage: rule_at FILE < ADDRESSES\n", stderr);
		return 2;
	}
	while (scanf("%" SCNx64, &vaddr) == 1) {
		struct uw_rule rule;
		const struct uw_reg_rule *ra = NULL;
		int err = uw_object_rule(object, vaddr, true, &rule);

		if (!err)
			ra = uw_rule_reg(&rule, rule.ra);
		if (err)
			(void)printf("%" PRIx64 " %s\n", vaddr, strerror(-err));
		else if (rule.cfa_size || !ra || ra->kind != UW_RULE_AT_CFA)
			(void)printf("%" PRIx64 " another rule\n", vaddr);
		else
			(void)printf("%" PRIx64 " %d%+" PRId64 " %+" PRId64 "\n", vaddr,
				     rule.cfa_reg, rule.cfa_off, ra->off);
	}
	uw_object_put(object);
	close(fd);
	return 0;
}
