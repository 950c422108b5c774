/*
 * agent/store/key.h: by what a store knows files and their symbols.
 */
#ifndef AGENT_STORE_KEY_H
#define AGENT_STORE_KEY_H

#include "agent/store/store.h"

/*
 * Return a hash of what is known of a file and of its contents, which rows and blobs carry.  It tells
 * a damaged row from a sound one; who may use a row is decided by all of its columns (store.c).
 */
uint64_t key_of_file(const struct store_file *file, const struct uw_build_id *id, uint16_t machine,
		     const struct uw_identity *identity);
uint64_t key_of_symbols(const struct store_file *file, const struct uw_build_id *id);

#endif
