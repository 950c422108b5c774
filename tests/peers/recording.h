/*
 * tests/peers/recording.h: holds a recording in memory, so that every walker gets the same
 * registers, the same stack bytes and the same mappings, as often as needed.
 */
#ifndef TESTS_PEERS_RECORDING_H
#define TESTS_PEERS_RECORDING_H

#include <stddef.h>
#include <stdint.h>

#include "agent/process/process.h"
#include "agent/source/source.h"
#include "tests/peers/image.h"

struct sample {
	struct uw_regs regs;
	struct uw_region stack; /* one region, from sp on; its contents are at bytes */
	size_t space;		/* the mappings of its process at this time */
	size_t life;
	uint32_t tid;
};

/* An executable mapping in a life. */
struct code {
	uint64_t start, end, bias;
	const struct image *image; /* NULL: none to use */
};

/* A file that is mapped in a life. */
struct loaded {
	uint64_t start, end; /* run-time addresses of all loaded segments */
	uint64_t bias;
	const struct image *image;
};

/*
 * A process from one exec to the next: the other unwinders get the mappings that it had at the end.
 */
struct life {
	uint32_t pid;
	const struct uw_space *space; /* its last */
	struct code *codes;	      /* ascending */
	size_t n_codes;
	struct loaded *loaded; /* ascending */
	size_t n_loaded;
};

struct recording {
	struct source *source;
	struct opener *opener;
	struct modules *modules;
	struct processes *processes;
	struct sample *samples;
	size_t n_samples, room_samples;
	struct uw_space **spaces;
	size_t n_spaces, room_spaces;
	struct life *lives;
	size_t n_lives, room_lives;
	struct images images;
};

/*
 * Read the samples with user registers of a perf.data file, at most max from all over it (0: all).
 * The mapped files are not opened.
 */
int recording_read(const char *file, size_t max, struct recording *out);
void recording_free(struct recording *recording);

/* Open the files that lives have mapped, for unwinding by the library under test. */
void recording_resolve(struct recording *recording);
/* The same for the other unwinders: fill codes and loaded. Only one life, unless it is SIZE_MAX. */
int recording_load(struct recording *recording, size_t life);

/* NULL if no code is mapped, or nothing was loaded. */
const struct code *life_code(const struct life *life, uint64_t pc);
const struct loaded *life_loaded(const struct life *life, uint64_t addr);

/*
 * Return whether a walk that ends in this frame is complete: the first instructions of a program,
 * or of a new thread.
 */
bool life_is_root(const struct life *life, uint64_t lookup);

#endif
