/*
 * proto/pprof_builder.h: the private parts of a pprof profile that is being built; pprof.c adds to
 * them and pprof_write.c writes them.
 */
#ifndef PROTO_PPROF_BUILDER_H
#define PROTO_PPROF_BUILDER_H

#include "base/hash.h"
#include "proto/arena.h"

#include <stddef.h>
#include <stdint.h>

/*
 * Messages are encoded at once when they are added, because a profile can have hundreds of
 * thousands. Each repeated field of the profile has a buffer of its own; the buffers are joined
 * when the profile is written.
 */
struct pprof_buffer {
	uint8_t *bytes;
	size_t n, room;
};

/* An object that is identified by up to four numbers. Its id is its index + 1. */
struct pprof_key {
	uint64_t part[4];
};

struct pprof_keys {
	struct pprof_key *items;
	size_t n, room;
	struct uw_hash_index index;
};

struct pprof_text {
	const char *bytes; /* in the arena, NUL-terminated */
	size_t size;
};

struct pprof {
	int err;
	struct arena arena;
	struct pprof_buffer types, samples, mappings, locations, functions, strings;
	struct pprof_buffer period_type,
		comments; /* comments: packed, without the field's header */
	size_t n_types, n_samples;
	struct pprof_keys mapping_keys, location_keys, function_keys, label_keys;
	struct pprof_text *texts;
	size_t n_texts, room_texts;
	struct uw_hash_index text_index;
	int64_t default_sample_type, period, time_ns, duration_ns;
};

#endif
