/* agent/cmd/record/record_options.h: what the command line of offwind record asks for. */
#ifndef AGENT_CMD_RECORD_RECORD_OPTIONS_H
#define AGENT_CMD_RECORD_RECORD_OPTIONS_H

#include "agent/cli/walking.h"
#include "agent/export/formats.h"
#include "agent/live/live.h"

#include <stdbool.h>
#include <stdint.h>

struct sender;
struct server;
struct supervisor_service;

struct record_options {
	struct source_live_options live;
	struct walking walking;
	/* duration_ns 0: until it is stopped; rotate_ns 0: one profile */
	uint64_t duration_ns, rotate_ns;
	uint32_t keep;
	int realtime;	     /* SCHED_FIFO priority; 0: normal scheduling */
	uint32_t cpu_budget; /* of all processes, in millionths of a CPU; 0: none */
	/*
	 * Of the profile (a directory with --rotate), of the capture file, of the statistics. If
	 * path and raw_path are the same pointer, only the capture file is wanted.
	 */
	const char *path, *raw_path, *stats_path;
	const char *history;   /* the database that windows of rotate_ns are added to; NULL: none */
	struct server *server; /* which serves the history; NULL: none */
	struct sender *sender; /* which sends it elsewhere; NULL: none */
	const struct supervisor_service *service; /* NULL: none */
	enum format format;	 /* FORMAT_N before record_options_parse: not given */
	const char *sample_type; /* NULL: the default */
	bool raw, with_files, all, has_rate;
	struct label_rules *rules; /* owned; NULL: none */
	char **command;		   /* NULL: none */
};

#define RECORD_OPTIONS_DEFAULT                                                              \
	{                                                                                   \
		.live = { .frequency_hz = 99, .stack_max = 256 << 10 }, .format = FORMAT_N, \
		.walking = {                                                                \
			.pipeline = { .live = true, .fold = true },                         \
			.frames_limit = 1 << 20                                             \
		}                                                                           \
	}

/*
 * Read the command line into *o. Return 0; 1 after --help was printed; or a negative code after
 * reporting what is wrong. record_options_fini releases *o in each case.
 */
int record_options_parse(int argc, char **argv, struct record_options *o);
void record_options_fini(struct record_options *o);

/* Record as options says, until the end. Return the exit code. */
int record_run(const struct record_options *options);

#endif
