/*
 * agent/cmd/record/recorder.h: the private state of a recording: record_setup.c prepares all its parts,
 * and record.c runs it and releases them.
 */
#ifndef AGENT_CMD_RECORD_RECORDER_H
#define AGENT_CMD_RECORD_RECORDER_H

#include "agent/cli/stats.h"
#include "agent/cmd/record/command.h"
#include "agent/cmd/record/outcome.h"
#include "agent/cmd/record/raw.h"
#include "agent/cmd/record/record_history.h"
#include "agent/cmd/record/record_options.h"
#include "agent/cmd/runtime.h"
#include "agent/export/writer.h"
#include "agent/opener/opener.h"
#include "agent/pipeline/pipeline.h"
#include "agent/role/cost.h"
#include "agent/store/store.h"

#include <stdbool.h>
#include <stdint.h>

struct recorder {
	const struct record_options *options;
	struct source_live_options live; /* the options', with the command's child */
	char *program;			 /* the command's file; owned */
	struct walking walking;		 /* the options', with the store */
	struct source *source;
	struct pipeline *pipeline; /* NULL: only a capture file is wanted */
	struct writer *writer;
	struct raw *raw;       /* NULL: none wanted */
	struct opener *opener; /* for the names of kernel functions in the capture file */
	struct store *store;
	struct command command;
	struct cost *cost; /* of the processes, shared by them; NULL: it is not measured */
	uint64_t began_ns, window_start_ns;
	struct record_history history; /* for --history */
	bool stopped;
	uint64_t stopped_ns, ended_ns;
	struct accounting raw_accounting; /* used only without a pipeline */
	int raw_err;			  /* error for which recording was stopped; 0: none */
	struct stats *stats;		  /* NULL until the source is open */
	struct runtime runtime;
	struct unnamed unnamed;		 /* the writer fills it until it is finished */
	uint64_t values[OUTCOME_EVENTS]; /* sums of the samples' periods, by event */
};

/*
 * Begin with what the process does that the user started: check that the result can be written, and
 * start the command's child. Return 0, or a negative code after reporting it.
 */
int record_prepare(struct recorder *r);
/*
 * Prepare everything else that recording needs: the source, the capture file, the store, the pipeline
 * and the writer. A worker gives up its rights. Return 0, or a negative code after reporting it;
 * record releases what was made, in both cases.
 */
int record_set_up(struct recorder *r);

#endif
