/*
 * agent/pipeline/kernel_names.c: finds the symbol of a kernel address.
 */
#include "agent/pipeline/kernel_names.h"

#include "agent/log.h"
#include "base/search.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Return whether a kernel symbol list has _text at the address that the recording states. */
static bool fits(const struct kernel_names *names, const struct sym_kernel *kernel)
{
	uint64_t text;

	return !sym_kernel_lookup(kernel, "_text", &text) && text == names->info->kernel_text;
}

/*
 * Open a stored copy of kallsyms. The same kernel build at the same address has the same symbols,
 * whichever boot the copy is from. Reading a file takes a tenth of the time that the kernel needs
 * to write its list. (Addresses of kernel modules differ; find_in_kernel does not use them from the
 * copy.)
 */
static void open_stored(struct kernel_names *names)
{
	unsigned int next = 0;
	int fd;

	names->stored_tried = true;
	while (names->info->kernel_text && !names->stored &&
	       !opener_stored_kallsyms(names->opener, &names->info->kernel_build_id, &next, &fd)) {
		if (!sym_kernel_open(fd, &names->stored) && !fits(names, names->stored)) {
			sym_kernel_free(names->stored);
			names->stored = NULL;
		}
		(void)close(fd);
	}
}

/*
 * Open /proc/kallsyms, and store a copy for later runs. The running kernel's symbols fit a
 * recording of the same boot. If the source states the address of _text, the symbols must agree
 * with it.
 */
static void open_kernel(struct kernel_names *names)
{
	const struct source_info *info = names->info;
	bool keep = info->kernel_text && info->kernel_build_id.size && !names->stored;
	int fd, err;

	names->kernel_tried = true;
	if (!info->same_boot)
		return;
	if (keep && opener_copy_kallsyms(names->opener, &fd))
		keep = false;
	err = keep ? 0 : opener_kallsyms(names->opener, &fd);
	if (!err) {
		err = sym_kernel_open(fd, &names->kernel);
		if (!err && keep && fits(names, names->kernel))
			opener_keep_kallsyms(names->opener, &info->kernel_build_id, fd);
		(void)close(fd);
	}
	if (err) {
		log_warning("/proc/kallsyms: %s; kernel frames have no names%s", strerror(-err),
			    err == -EPERM ? " (kernel.kptr_restrict hides them)" : "");
		return;
	}
	if (names->info->kernel_text && !fits(names, names->kernel)) {
		log_warning("kernel frames have no names: recorded with another kernel or boot");
		sym_kernel_free(names->kernel);
		names->kernel = NULL;
	}
}

/*
 * Look up a kernel address in the stored copy, except for kernel modules, then in /proc/kallsyms.
 */
static int find_in_kernel(struct kernel_names *names, uint64_t addr, struct sym_symbol *symbol,
			  const char **module)
{
	if (!names->stored_tried)
		open_stored(names);
	if (names->stored && !sym_kernel_find(names->stored, addr, symbol, module) && !**module)
		return 0;
	*module = "";
	if (!names->kernel_tried)
		open_kernel(names);
	return names->kernel ? sym_kernel_find(names->kernel, addr, symbol, module) : -ENOENT;
}

/*
 * Look up a kernel address among the symbols that the recording itself contains, sorted by address.
 */
static int find_carried(const struct source_info *info, uint64_t addr, struct sym_symbol *symbol,
			const char **module)
{
	size_t low =
		UW_COUNT_WHILE(i, info->n_kernel_symbols, info->kernel_symbols[i].addr <= addr);

	if (!low)
		return -ENOENT;
	const struct source_kernel_symbol *s = &info->kernel_symbols[low - 1];

	if (s->size && addr - s->addr >= s->size)
		return -ENOENT;
	*symbol = (struct sym_symbol){ .addr = s->addr, .size = s->size, .name = s->name };
	*module = s->module;
	return 0;
}

/*
 * Ask the running kernel for the symbol at addr through the source. For some hundred addresses this
 * is faster than reading the kernel's whole list.
 */
static int ask_kernel(const struct source_info *info, uint64_t addr, struct sym_symbol *symbol,
		      const char **module)
{
	struct source_kernel_symbol s;
	int err = info->kernel_symbol ? info->kernel_symbol(info->kernel_symbol_ctx, addr, &s)
				      : -ENOTSUP;

	if (err)
		return err;
	*symbol = (struct sym_symbol){ .addr = s.addr, .size = s.size, .name = s.name };
	*module = s.module;
	return 0;
}

int kernel_names_find(struct kernel_names *names, uint64_t addr, struct sym_symbol *symbol,
		      const char **module)
{
	int err;

	*module = "";
	if (names->info->n_kernel_symbols)
		return find_carried(names->info, addr, symbol, module);
	err = ask_kernel(names->info, addr, symbol, module);
	if (err && err != -ENOENT)
		err = find_in_kernel(names, addr, symbol, module);
	return err;
}

void kernel_names_ahead(const struct kernel_names *names, const uint64_t *addrs, size_t n)
{
	if (n && names->info->kernel_symbols_ahead)
		names->info->kernel_symbols_ahead(names->info->kernel_symbol_ctx, addrs, n);
}

void kernel_names_fini(struct kernel_names *names)
{
	sym_kernel_free(names->stored);
	sym_kernel_free(names->kernel);
}
