/*
 * compat/mapped_files.h: looks up procedures and names by address in the files that a process has mapped.
 * Only one thread at a time may use a struct compat_files.
 */
#ifndef COMPAT_MAPPED_FILES_H
#define COMPAT_MAPPED_FILES_H

#include <stdbool.h>

#include "compat/abi.h"

struct compat_files;

/*
 * Open the file that is mapped there. Return a descriptor, which the library closes, or a negative
 * code.
 */
typedef int (*compat_open_fn)(void *ctx, const char *path, const struct uw_mapping *mapping);

/*
 * Create an empty set of mappings. open, with ctx, is called when a mapped file is needed. Return
 * 0 or a negative code.
 */
int compat_files_new(uint16_t machine, compat_open_fn open, void *ctx, struct compat_files **out);
void compat_files_free(struct compat_files *files); /* NULL is fine */
void compat_files_clear(struct compat_files *files);

/*
 * Add a mapping. If image is not NULL, it has the bytes of a file that exists only in memory
 * (vDSO); it is copied.
 */
int compat_files_map(struct compat_files *files, const struct uw_mapping *mapping, const char *path,
		     const void *image, size_t size);
bool compat_files_has(const struct compat_files *files, uint64_t addr);

/* Read read-only memory from the mapped file. -EFAULT if the memory is writable or in no file. */
int compat_files_read(struct compat_files *files, uint64_t addr, void *out, size_t size);

/* Like libunwind's callbacks find_proc_info and get_proc_name. query->rules is need_unwind_info. */
int compat_files_proc_info(struct compat_files *files, const struct uw_proc_query *query,
			   struct unw_proc_info *info);
int compat_files_proc_name(struct compat_files *files, uint64_t addr, char *name, size_t size,
			   unw_word *off);

#endif
