/*
 * agent/pipeline/kernel_names.h: names addresses of the kernel: by the recording's own symbols, by
 * the running kernel, or by a copy of its list.
 */
#ifndef AGENT_PIPELINE_KERNEL_NAMES_H
#define AGENT_PIPELINE_KERNEL_NAMES_H

#include "agent/opener/opener.h"
#include "agent/source/source.h"
#include "symbolizer/symbolizer.h"

struct kernel_names { /* the first two are set by the caller and borrowed; all others start as 0 */
	struct opener *opener;
	const struct source_info *info;
	bool stored_tried, kernel_tried;
	struct sym_kernel *stored; /* from a stored copy of kallsyms; NULL: none fits */
	struct sym_kernel *kernel; /* the running kernel's; NULL: do not fit */
};

/*
 * Return the symbol at a kernel address, and the kernel module that it belongs to; *module is "" for
 * the kernel itself. The strings are borrowed until the next call. -ENOENT: no symbol is known.
 */
int kernel_names_find(struct kernel_names *names, uint64_t addr, struct sym_symbol *symbol,
		      const char **module);
/* Say which addresses will be looked up next. */
void kernel_names_ahead(const struct kernel_names *names, const uint64_t *addrs, size_t n);
void kernel_names_fini(struct kernel_names *names);

#endif
