/*
 * agent/perfdata/reader_state.h: the private state of the reader of perf.data. header.c reads what
 * stands before the records, scan.c reads the records and queues them, deliver.c turns them into
 * events, and perfdata.c is the source that calls them.
 */
#ifndef AGENT_PERFDATA_READER_STATE_H
#define AGENT_PERFDATA_READER_STATE_H

#include "agent/perfdata/attrs.h"
#include "agent/perfdata/counts.h"
#include "agent/perfdata/deferred.h"
#include "agent/perfdata/facts.h"
#include "agent/perfdata/record_queue.h"
#include "agent/perfdata/records.h"
#include "agent/perfdata/sample.h"
#include "agent/perfdata/stream.h"
#include "agent/source/source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zstd.h>

/* A sample is one of so many further events at most: else a file of some megabytes could ask for millions of walks. */
#define PERFDATA_MEMBERS_MAX 64u

struct perfdata_member { /* an event of a sample's group that does not sample by itself */
	uint16_t event;
	uint64_t period; /* how often it occurred since the last sample of the group */
};

struct perfdata {
	struct source source;
	int fd;
	char *name;
	const struct machine *machine; /* on which it was recorded; NULL: not supported */
	bool seekable;
	bool closed;	       /* perf completed the header when it ended */
	uint64_t file_size;    /* seekable */
	uint64_t off;	       /* of the next record, in the file or stream */
	uint64_t end;	       /* end of the records that are in the file */
	uint64_t end_declared; /* end of the records as the header says */

	struct perfdata_attrs attrs;
	struct perfdata_facts facts;
	struct perfdata_queue queue;
	uint64_t n_records;

	struct perfdata_window window; /* seekable */
	uint8_t *scratch;	       /* buffer for one record that is not in the window */
	struct perfdata_pool pool;
	struct perfdata_stream pipe; /* used unless seekable */
	bool pipe_ended;

	ZSTD_DCtx *zstd;
	struct perfdata_stream inflated;
	ZSTD_inBuffer deflated; /* borrowed from window or pipe */
	bool inflating;		/* deflated or zstd still holds data */
	uint64_t deflated_off;
	uint64_t n_deflated, n_inflated; /* bytes */

	struct perfdata_entry direct; /* a record without a time: delivered at once */
	bool has_direct;
	const uint8_t *held; /* bytes in the block of the record being delivered, or NULL */
	struct event next[2];
	int n_next, at_next;
	/* After the sample next[0]: the same once more for each of these events. */
	struct perfdata_member members[PERFDATA_MEMBERS_MAX];
	size_t n_members, at_member;
	struct perfdata_counts counts;
	char path[PERFDATA_PATH_MAX];
	struct perfdata_sample sample;
	struct perfdata_deferred deferred; /* chains whose records were scanned and not delivered */
	uint64_t record_off; /* file offset of the record that load() and view() read */

	bool scanned;	       /* everything was scanned */
	bool torn_sample;      /* the input ends inside a sample */
	uint64_t lost;	       /* samples, as reported by the kernel */
	uint64_t lost_counted; /* as counted by perf at the end; includes lost */
	bool reported_lost;
	uint64_t n_samples; /* sample records, damaged ones included */
	bool has_trace;	    /* hardware trace of all branches (ETM, Intel PT) */
	int err;	    /* error code of the first damage */
	uint64_t n_damaged;
	char damage[400];
	uint64_t damage_off;
};

/* Flags and size of a record in perfdata_entry.order; scan_kernel() sets them. */
#define PERFDATA_ENTRY_COPIED	   1u
#define PERFDATA_ENTRY_SIZE(order) ((uint32_t)((order) >> 1 & 0xffff))

/* Record damage at file offset off. Only the first damage is stored, the others are counted. */
__attribute__((format(printf, 4, 5))) void perfdata_damage(struct perfdata *p, int err,
							   uint64_t off, const char *format, ...);

/* Record damage after which nothing can be decoded: scanning ends. */
#define PERFDATA_STOP(p, err, off, ...)                          \
	do {                                                     \
		perfdata_damage((p), (err), (off), __VA_ARGS__); \
		(p)->scanned = true;                             \
	} while (0)

/*
 * Read the header of a file or stream. Return false if nothing can be read; damage then says why.
 */
bool perfdata_read_header(struct perfdata *p);

/*
 * Return up to size bytes from p->off on without consuming them. *got is less than size only at
 * the end of the input. *out is valid until the next call. A pipe is waited for.
 */
int perfdata_peek(struct perfdata *p, size_t size, const uint8_t **out, size_t *got);

/*
 * Add the description of one event (a perf_event_attr with its ids) that was found at file offset
 * off.
 */
void perfdata_take_attr(struct perfdata *p, uint64_t off, const uint8_t *attr, size_t size,
			const uint8_t *ids, size_t n_ids);

/*
 * Do one step of the scan: first consume records that are already decompressed, then decompress
 * more, then read on.
 */
void perfdata_scan(struct perfdata *p);

/*
 * Prefetch the next record into the CPU cache while this one is processed: a cache miss takes as
 * long as a walk.
 */
void perfdata_prefetch(const struct perfdata *p);

/*
 * Fill p->next with the events of a queued record. A damaged record is recorded as damage; if it
 * is a sample, one lost sample is delivered.
 */
void perfdata_deliver(struct perfdata *p, const struct perfdata_entry *entry);

/*
 * Deliver, once and at the end, the lost samples that no record with a time reported. Return
 * whether there is an event.
 */
bool perfdata_deliver_lost(struct perfdata *p);

#endif
