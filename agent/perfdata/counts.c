/* agent/perfdata/counts.c: remembers the last value of each counter, by its id. */
#include "agent/perfdata/counts.h"

#include "agent/array.h"

#include <errno.h>
#include <stdlib.h>

static bool has_key(const struct perfdata_count *count, uint64_t id, uint32_t tid)
{
	return count->id == id && count->tid == tid;
}

int perfdata_counts_since(struct perfdata_counts *counts, uint64_t id, uint32_t tid, uint64_t value,
			  uint64_t *since)
{
	uint64_t hash = hash_u64(id, tid), last;
	uint32_t i = UW_HASH_FIND(at, &counts->by_key, hash, has_key(&counts->counts[at], id, tid));

	*since = 0;
	if (i == UW_HASH_NONE) {
		if (counts->n == PERFDATA_COUNTS_MAX)
			return 0;
		if (array_grow(counts->counts, counts->n, counts->room) ||
		    uw_hash_add(&counts->by_key, hash, (uint32_t)counts->n))
			return -ENOMEM;
		i = (uint32_t)counts->n++;
		counts->counts[i] = (struct perfdata_count){ .id = id, .tid = tid };
	}
	last = counts->counts[i].value;
	counts->counts[i].value = value;
	if (value > last)
		*since = value - last;
	return 0;
}

void perfdata_counts_fini(struct perfdata_counts *counts)
{
	free(counts->counts);
	uw_hash_fini(&counts->by_key);
	*counts = (struct perfdata_counts){ 0 };
}
