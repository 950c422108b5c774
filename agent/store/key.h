/* agent/store/key.h: hashes that tie a stored row or blob to the file it was made from. */
#ifndef AGENT_STORE_KEY_H
#define AGENT_STORE_KEY_H

#include "agent/store/store.h"

/*
 * Return a hash of what is known of a file and of its contents, for rows and blobs to carry. The
 * hash only detects damaged rows: which file may use a row is decided by all of the row's columns
 * (find_table.c, store_symbols.c).
 */
uint64_t key_of_file(const struct store_file *file, const struct uw_build_id *id, uint16_t machine,
		     const struct uw_identity *identity);
uint64_t key_of_symbols(const struct store_file *file, const struct uw_build_id *id);

#endif
