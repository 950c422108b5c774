/*
 * agent/perfdata/deferred.h: call chains of user frames that the kernel took later than their samples, when the
 * thread returned to user mode (PERF_RECORD_CALLCHAIN_DEFERRED, perf record --call-graph fp,defer).
 */
#ifndef AGENT_PERFDATA_DEFERRED_H
#define AGENT_PERFDATA_DEFERRED_H

#include "agent/hash.h"

#include <stddef.h>
#include <stdint.h>

/* Chains of which no sample can come any more are dropped; if there are more bytes, new ones are not stored. */
#define PERFDATA_DEFERRED_MAX ((size_t)64 << 20)

struct perfdata_chain;

struct perfdata_deferred { /* all zero: empty */
	struct perfdata_chain **chains;
	size_t n, room, bytes;
	struct uw_hash_index by_cookie;
};

/*
 * Store a chain when its record is scanned: that is before its samples are delivered, as records wait to be sorted. body is
 * what follows the record's header: u64 cookie, n, addresses. -EBADMSG: it is too short; -ENOMEM.
 */
int perfdata_deferred_add(struct perfdata_deferred *d, const uint8_t *body, size_t size);
/* Drop the chain when its record is delivered: all its samples were before it. */
void perfdata_deferred_drop(struct perfdata_deferred *d, uint64_t cookie);
/* Find the addresses of a chain, as they are in its record, and their number. NULL: there is none. */
const uint8_t *perfdata_deferred_find(const struct perfdata_deferred *d, uint64_t cookie,
				      uint32_t *n);
void perfdata_deferred_fini(struct perfdata_deferred *d);

#endif
