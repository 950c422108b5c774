// SPDX-License-Identifier: GPL-2.0-only
/*
 * bpf/symbol.bpf.c: what the kernel calls an address in itself.  It is never attached: the agent
 * runs it for one address after another.
 */
#include "bpf/kernel.h"

/* "name+0xoffset/0xsize [module]" (KSYM_SYMBOL_LEN is some 600), or the address alone. */
char text[640] = "";

SEC("raw_tp")
int name_address(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 addr = ctx->args[0];

	return (int)BPF_SNPRINTF(text, sizeof(text), "%pS", addr);
}

char LICENSE[] SEC("license") = "GPL";
