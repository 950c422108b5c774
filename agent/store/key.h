/*
 * agent/store/key.h: by what a store knows files and their symbols.
 */
#ifndef AGENT_STORE_KEY_H
#define AGENT_STORE_KEY_H

#include "agent/store/store.h"

/* Of a file, and of what is said of its contents: rows and blobs carry it. */
uint64_t key_of_file(const struct store_file *file, const struct uw_build_id *id, uint16_t machine,
		     const struct uw_identity *identity);
uint64_t key_of_symbols(const struct store_file *file, const struct uw_build_id *id);

#endif
