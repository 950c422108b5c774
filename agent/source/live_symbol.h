/*
 * agent/source/live_symbol.h: names of addresses in the running kernel, from the kernel itself.
 *
 * It writes a list of all 200,000 names in 60 ms, of which a recording needs some hundred; and
 * since Linux 5.13 a program can ask for one of them, within two microseconds.
 */
#ifndef AGENT_SOURCE_LIVE_SYMBOL_H
#define AGENT_SOURCE_LIVE_SYMBOL_H

#include "agent/source/source.h"

#include <stdint.h>

struct live_symbols;

/* -ENOTSUP where the kernel cannot be asked, for whatever reason. */
int live_symbols_new(struct live_symbols **out);
void live_symbols_free(struct live_symbols *symbols); /* NULL is fine */

/*
 * Of several names of one address the one that the kernel shows itself.  *out is borrowed until
 * the next call; modules stand in brackets, as in kallsyms.  -ENOENT: nothing is there.
 */
int live_symbols_find(struct live_symbols *symbols, uint64_t addr,
		      struct source_kernel_symbol *out);

/* What the kernel writes for addr, taken apart in place. */
int live_symbol_parse(char *text, uint64_t addr, struct source_kernel_symbol *out);

#endif
