/*
 * compat/files.h: the files that a process has mapped, by address: procedures and names.
 * One thread at a time.
 */
#ifndef COMPAT_FILES_H
#define COMPAT_FILES_H

#include <stdbool.h>

#include "compat/abi.h"

struct compat_files;

/* A descriptor of the file that is mapped there, the callee's from now on; or a negative code. */
typedef int (*compat_open_fn)(void *ctx, const char *path, const struct uw_mapping *mapping);

int compat_files_new(uint16_t machine, compat_open_fn open, void *ctx, struct compat_files **out);
void compat_files_free(struct compat_files *files); /* NULL is fine */
void compat_files_clear(struct compat_files *files);

/* image, unless NULL: the file's bytes, for where no file has them; copied. */
int compat_files_map(struct compat_files *files, const struct uw_mapping *mapping, const char *path,
		     const void *image, size_t size);
bool compat_files_has(const struct compat_files *files, uint64_t addr);

/* What files say of memory that cannot have been written; -EFAULT. */
int compat_files_read(struct compat_files *files, uint64_t addr, void *out, size_t size);

/* As libunwind's call-backs of these names; query->rules: need_unwind_info. */
int compat_files_proc_info(struct compat_files *files, const struct uw_proc_query *query,
			   struct unw_proc_info *info);
int compat_files_proc_name(struct compat_files *files, uint64_t addr, char *name, size_t size,
			   unw_word *off);

#endif
