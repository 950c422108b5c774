/*
 * proto/pprof_read.h: reads a pprof profile, gzipped or plain, that anyone may
 * have written, and checks it.
 */
#ifndef PROTO_PPROF_READ_H
#define PROTO_PPROF_READ_H

#include "proto/profile.pb-c.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pprof_file;

enum { PPROF_ERROR_SIZE = 256 };

/*
 * Reads fd to its end; the caller keeps it.  max_bytes bounds the profile as it
 * is after gunzip; the memory in use stays within about eight times that.  What
 * is handed out has passed pprof_check (not strict), so that every index and
 * reference in it but the mappings' holds.
 *
 * -EBADMSG damaged, -EFBIG more than max_bytes, -ENOMEM, what read(2) says;
 * then error (PPROF_ERROR_SIZE) tells what and, where known, at which offset.
 */
int pprof_read(int fd, size_t max_bytes, struct pprof_file **out, char *error);
void pprof_file_free(struct pprof_file *file); /* NULL is fine */

/* Borrowed for the file's life. */
const Perftools__Profiles__Profile *pprof_profile(const struct pprof_file *file);

/* By id; NULL where there is none. */
const Perftools__Profiles__Mapping *pprof_find_mapping(const struct pprof_file *file, uint64_t id);
const Perftools__Profiles__Location *pprof_find_location(const struct pprof_file *file,
							 uint64_t id);
const Perftools__Profiles__Function *pprof_find_function(const struct pprof_file *file,
							 uint64_t id);
/* Where the one with that id stands in profile->location, …; SIZE_MAX: nowhere. */
size_t pprof_place_of_location(const struct pprof_file *file, uint64_t id);
size_t pprof_place_of_mapping(const struct pprof_file *file, uint64_t id);
size_t pprof_place_of_function(const struct pprof_file *file, uint64_t id);
/* "" where the index is outside. */
const char *pprof_text(const struct pprof_file *file, int64_t index);

typedef void (*pprof_fault_fn)(void *ctx, const char *text);

/*
 * Calls fault (may be NULL) for each rule that is broken, and gives their
 * number.  Always: string_table[0] is "", string indices are inside, as many
 * values as sample types, ids not 0 and not double, locations and functions
 * exist.  Strict adds what go tool pprof lets pass and other readers do not:
 * ids count from 1 in order, mappings exist, span something and hold their
 * locations' addresses, times are not negative, labels have a key and one
 * content, sample types differ, texts are UTF-8.
 */
size_t pprof_check(const Perftools__Profiles__Profile *profile, bool strict, pprof_fault_fn fault,
		   void *ctx);
/* Strictly, and what only the bytes that were read show: texts have no NUL inside. */
size_t pprof_check_file(const struct pprof_file *file, pprof_fault_fn fault, void *ctx);

#endif
