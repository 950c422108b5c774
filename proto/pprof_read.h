/* proto/pprof_read.h: reads and checks a pprof profile, gzipped or plain, from any writer. */
#ifndef PROTO_PPROF_READ_H
#define PROTO_PPROF_READ_H

#include "proto/profile.pb-c.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pprof_file;

enum { PPROF_ERROR_SIZE = 256 };

/*
 * Read a profile from fd, up to its end. fd stays open. max_bytes limits the size of the
 * uncompressed profile; the memory in use stays within about eight times that. A profile that is
 * returned has passed pprof_check() (not strict), so all indices and references in it are valid,
 * except references to mappings.
 *
 * Return -EBADMSG for a damaged profile, -EFBIG for one that is larger than max_bytes, -ENOMEM, or
 * the error of read(2). error (PPROF_ERROR_SIZE bytes) then has a message, with the file offset if
 * it is known.
 */
int pprof_read(int fd, size_t max_bytes, struct pprof_file **out, char *error);
/*
 * Read a profile likewise, but without its samples: pprof_profile() has none. They stay packed, which takes a fraction of the
 * memory, and pprof_next_sample() unpacks and checks one after the other.
 */
int pprof_read_apart(int fd, size_t max_bytes, struct pprof_file **out, char *error);
/*
 * Give the next sample of a profile that was read so; it is borrowed until the next call. Return 1, 0 at the end, or
 * -EBADMSG, also if there is no memory to unpack it; error is set as by pprof_read().
 */
int pprof_next_sample(struct pprof_file *file, const Perftools__Profiles__Sample **out,
		      char *error);
void pprof_file_free(struct pprof_file *file); /* NULL is fine */

/* The profile is borrowed until pprof_file_free(). */
const Perftools__Profiles__Profile *pprof_profile(const struct pprof_file *file);

/*
 * Return the index of the object with this id in profile->location, profile->mapping or
 * profile->function; SIZE_MAX: there is none.
 */
size_t pprof_place_of_location(const struct pprof_file *file, uint64_t id);
size_t pprof_place_of_mapping(const struct pprof_file *file, uint64_t id);
size_t pprof_place_of_function(const struct pprof_file *file, uint64_t id);
/* Return a text of the string table; "" if the index is out of range. */
const char *pprof_text(const struct pprof_file *file, int64_t index);

typedef void (*pprof_fault_fn)(void *ctx, const char *text);

/*
 * Check a profile. Call fault, which may be NULL, for each broken rule, and return the number of
 * broken rules.
 *
 * These rules are always checked: string_table[0] is "", string indices are in range, each sample
 * has as many values as there are sample types, ids are unique and not 0, and the locations of
 * samples and the functions of lines exist.
 *
 * strict adds rules that go tool pprof does not check but other readers need: ids count from 1 in
 * order, mappings exist, are not empty and contain the addresses of their locations, times are not
 * negative, labels have a key and only one content, sample types differ, and texts are UTF-8.
 */
size_t pprof_check(const Perftools__Profiles__Profile *profile, bool strict, pprof_fault_fn fault,
		   void *ctx);
/*
 * Check strictly, and also that no text has a NUL inside, which can only be seen in the encoded
 * bytes.
 */
size_t pprof_check_file(const struct pprof_file *file, pprof_fault_fn fault, void *ctx);

#endif
