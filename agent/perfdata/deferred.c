/* agent/perfdata/deferred.c: keeps user call chains by their cookies until their samples were delivered. */
#include "agent/perfdata/deferred.h"

#include "agent/array.h"
#include "base/bytes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct perfdata_chain {
	uint64_t cookie;
	uint32_t n;
	uint8_t ips[]; /* 8 bytes each, little-endian */
};

static uint32_t find(const struct perfdata_deferred *d, uint64_t cookie)
{
	return UW_HASH_FIND(i, &d->by_cookie, hash_u64(0, cookie), d->chains[i]->cookie == cookie);
}

static size_t size_of(const struct perfdata_chain *chain)
{
	return sizeof(*chain) + 8 * (size_t)chain->n;
}

int perfdata_deferred_add(struct perfdata_deferred *d, const uint8_t *body, size_t size)
{
	struct perfdata_chain *chain;
	uint64_t n;

	if (size < 16)
		return -EBADMSG;
	n = uw_bytes_little8(body + 8);
	if (n > (size - 16) / 8)
		return -EBADMSG;
	perfdata_deferred_drop(d, uw_bytes_little8(body));
	if (d->bytes + sizeof(*chain) + 8 * n > PERFDATA_DEFERRED_MAX)
		return 0;
	chain = malloc(sizeof(*chain) + 8 * n);
	if (!chain || array_grow(d->chains, d->n, d->room))
		goto no_memory;
	chain->cookie = uw_bytes_little8(body);
	chain->n = (uint32_t)n;
	if (n)
		memcpy(chain->ips, body + 16, 8 * n);
	if (uw_hash_add(&d->by_cookie, hash_u64(0, chain->cookie), (uint32_t)d->n))
		goto no_memory;
	d->chains[d->n++] = chain;
	d->bytes += size_of(chain);
	return 0;

no_memory:
	free(chain);
	return -ENOMEM;
}

void perfdata_deferred_drop(struct perfdata_deferred *d, uint64_t cookie)
{
	uint32_t i = find(d, cookie), last = (uint32_t)d->n - 1;

	if (i == UW_HASH_NONE)
		return;
	uw_hash_remove(&d->by_cookie, hash_u64(0, cookie), i);
	d->bytes -= size_of(d->chains[i]);
	free(d->chains[i]);
	d->n--;
	if (i == last)
		return;
	/* The last one moves to its place. */
	d->chains[i] = d->chains[last];
	uw_hash_renumber(&d->by_cookie, hash_u64(0, d->chains[i]->cookie), last, i);
}

const uint8_t *perfdata_deferred_find(const struct perfdata_deferred *d, uint64_t cookie,
				      uint32_t *n)
{
	uint32_t i = find(d, cookie);

	if (i == UW_HASH_NONE)
		return NULL;
	*n = d->chains[i]->n;
	return d->chains[i]->ips;
}

void perfdata_deferred_fini(struct perfdata_deferred *d)
{
	for (size_t i = 0; i < d->n; i++)
		free(d->chains[i]);
	free(d->chains);
	uw_hash_fini(&d->by_cookie);
	*d = (struct perfdata_deferred){ 0 };
}
