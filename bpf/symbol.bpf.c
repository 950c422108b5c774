// SPDX-License-Identifier: GPL-2.0-only
/*
 * bpf/symbol.bpf.c: a BPF program that looks up the kernel's symbol for an address. The program is
 * never attached: the agent runs it once for each address.
 */
#include "bpf/kernel.h"
#include "schema/capture.h"

/*
 * "name+0xoffset/0xsize [module]" (KSYM_SYMBOL_LEN is about 600), or only the address. It is a map and
 * not a variable, because without any map libbpf 1.1 goes on, and crashes, when memory ends while it
 * reads this file.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, char[CAPTURE_SYMBOL_TEXT]);
} texts SEC(".maps");

/*
 * Write the symbol of the address in args[0] to the text. Return the length of the text, or a negative
 * errno value.
 */
SEC("raw_tp")
int name_address(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 addr = ctx->args[0];
	__u32 zero = 0;
	char *text = bpf_map_lookup_elem(&texts, &zero);

	return text ? (int)BPF_SNPRINTF(text, CAPTURE_SYMBOL_TEXT, "%pS", addr) : -1;
}

char LICENSE[] SEC("license") = "GPL";
