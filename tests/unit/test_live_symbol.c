/* tests/unit/test_live_symbol.c: tests how names that the kernel prints with %pS are read. */
#include "agent/live/bpf/symbol.h"

#include "tests/check.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The form of %pS: Documentation/core-api/printk-formats.rst, "Symbols/Function Pointers". */
static const struct {
	const char *text;
	int err;
	uint64_t start, size;
	const char *name, *module;
} cases[] = {
	{ "versatile_init+0x0/0x110", 0, 0x100000, 0x110, "versatile_init", "" },
	{ "ext4_readdir+0xa2/0xb0a [ext4]", 0, 0xfff5e, 0xb0a, "ext4_readdir", "[ext4]" },
	{ "a.constprop.0+0x100000/0x100001", 0, 0, 0x100001, "a.constprop.0", "" },
	/* Symbols that /proc/kallsyms shows in [bpf]. */
	{ "bpf_prog_6deef7357e7b4530_sd_fw_egress+0x8/0x40", 0, 0xffff8, 0x40,
	  "bpf_prog_6deef7357e7b4530_sd_fw_egress", "[bpf]" },
	{ "bpf_prog_6deef7357e7b4530+0x8/0x40", 0, 0xffff8, 0x40, "bpf_prog_6deef7357e7b4530",
	  "[bpf]" },
	{ "bpf_trampoline_6442532025+0x3b/0x1000", 0, 0xfffc5, 0x1000, "bpf_trampoline_6442532025",
	  "[bpf]" },
	/* Functions of the kernel. */
	{ "bpf_prog_load+0x8/0x40", 0, 0xffff8, 0x40, "bpf_prog_load", "" },
	{ "bpf_trampoline_enter+0x8/0x40", 0, 0xffff8, 0x40, "bpf_trampoline_enter", "" },
	{ "0xffffffff81000000", -ENOENT, 0, 0, "", "" },
	{ "", -ENOENT, 0, 0, "", "" },
	{ "+0x1/0x2", -ENOENT, 0, 0, "", "" },
	{ "a+0x100001/0x200000", -ENOENT, 0, 0, "", "" }, /* it would begin below 0 */
	{ "a+0x1", -ENOENT, 0, 0, "", "" },
	{ "a+0x1/0x2 [b", -ENOENT, 0, 0, "", "" },
};

int main(void)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct source_kernel_symbol s = { .name = "", .module = "" };
		char text[128];

		(void)snprintf(text, sizeof(text), "%s", cases[i].text);
		CHECK(live_symbol_parse(text, 0x100000, &s) == cases[i].err, cases[i].text);
		CHECK(s.addr == cases[i].start && s.size == cases[i].size, cases[i].text);
		CHECK(!strcmp(s.name, cases[i].name), cases[i].text);
		CHECK(!strcmp(s.module, cases[i].module), cases[i].text);
	}
	return check_done();
}
