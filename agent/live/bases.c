/* agent/live/bases.c: a copy of the last base of each CPU. */
#include "agent/live/bases.h"

#include "agent/array.h"
#include "schema/capture.h"

#include <stdlib.h>
#include <string.h>

/* Return where a CPU's base is kept; NULL: there is no memory. */
static struct live_base *place_of(struct live_bases *bases, uint32_t cpu)
{
	if (cpu >= CAPTURE_CPUS_MAX)
		return NULL;
	if (cpu >= bases->n) {
		if (array_reserve(bases->cpus, (size_t)cpu + 1, bases->room))
			return NULL;
		memset(bases->cpus + bases->n, 0, (cpu + 1 - bases->n) * sizeof(*bases->cpus));
		bases->n = cpu + 1;
	}
	if (!bases->cpus[cpu].bytes)
		bases->cpus[cpu].bytes = malloc(PLAN_BYTES_MAX);
	return &bases->cpus[cpu];
}

/* Keep a base. Without memory for it, what refers to it is lost. */
static void keep(struct live_bases *bases, uint32_t cpu, uint32_t number, const uint8_t *bytes,
		 uint32_t size)
{
	struct live_base *base = place_of(bases, cpu);

	if (!base || !base->bytes)
		return;
	memcpy(base->bytes, bytes, size);
	base->number = number;
	base->size = size;
}

bool live_bases_follow(struct live_bases *bases, uint32_t cpu,
		       const struct plan_reference *reference, const uint8_t **bytes,
		       uint32_t *size)
{
	const struct live_base *base = bases && cpu < bases->n ? &bases->cpus[cpu] : NULL;
	uint32_t more = reference->size;

	if (!more) {
		if (bases)
			keep(bases, cpu, reference->base, *bytes, *size);
		return true;
	}
	if (!base || base->number != reference->base || more > base->size ||
	    *size + more > PLAN_BYTES_MAX)
		return false;
	memcpy(bases->whole, *bytes, *size);
	memcpy(bases->whole + *size, base->bytes + base->size - more, more);
	*bytes = bases->whole;
	*size += more;
	return true;
}

void live_bases_fini(struct live_bases *bases)
{
	for (size_t i = 0; i < bases->n; i++)
		free(bases->cpus[i].bytes);
	free(bases->cpus);
	bases->cpus = NULL;
	bases->n = bases->room = 0;
}
