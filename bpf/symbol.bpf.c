// SPDX-License-Identifier: GPL-2.0-only
/*
 * bpf/symbol.bpf.c: a BPF program that looks up the kernel's symbol for an address. The program is
 * never attached: the agent runs it once for each address.
 */
#include "bpf/kernel.h"

/* "name+0xoffset/0xsize [module]" (KSYM_SYMBOL_LEN is about 600), or only the address. */
char text[640] = "";

/*
 * Write the symbol of the address in args[0] to text. Return the length of the text, or a negative
 * errno value.
 */
SEC("raw_tp")
int name_address(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 addr = ctx->args[0];

	return (int)BPF_SNPRINTF(text, sizeof(text), "%pS", addr);
}

char LICENSE[] SEC("license") = "GPL";
