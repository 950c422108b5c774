/*
 * agent/live/bpf/symbol.h: looks up symbols of the running kernel, by asking the kernel.
 *
 * /proc/kallsyms lists all 200,000 symbols in 60 ms, but a recording needs some hundred of them.
 * Since Linux 5.13 a BPF program can look up one symbol, which takes two microseconds.
 */
#ifndef AGENT_LIVE_BPF_SYMBOL_H
#define AGENT_LIVE_BPF_SYMBOL_H

#include "agent/source/source.h"

#include <stdint.h>

struct live_symbols;

/* Load the BPF program. -ENOTSUP if that fails, for any reason. */
int live_symbols_new(struct live_symbols **out);
void live_symbols_free(struct live_symbols *symbols); /* NULL is fine */

/*
 * Look up the symbol at addr. If an address has several symbols, it is the one that the kernel
 * prints. *out is borrowed until the next call. A module's name is in brackets, as in kallsyms.
 * -ENOENT: there is no symbol; -ENOTSUP: the program failed.
 */
int live_symbols_find(struct live_symbols *symbols, uint64_t addr,
		      struct source_kernel_symbol *out);

/*
 * Parse the kernel's text for addr: "name+0xoffset/0xsize [module]". *out points into text, which
 * is changed. -ENOENT: the text has no symbol.
 */
int live_symbol_parse(char *text, uint64_t addr, struct source_kernel_symbol *out);

#endif
