/* base/limits.c: the limits in force, and how often each was reached. */
#include "base/limits.h"

#include <errno.h>
#include <stddef.h>

/* uw_limits_set treats the limits as an array. */
#define N (sizeof(struct uw_limits) / sizeof(uint64_t))
_Static_assert(sizeof(struct uw_limits) == N * sizeof(uint64_t), "nothing but numbers");

struct uw_limits uw_limits_now = {
	.operations = 256,
	.instructions = 1u << 16,
	.functions = 4u << 20,
	.rows = 32u << 20,
	.rules = 1u << 20,
	.section_bytes = 256u << 20,
	.held_bytes = 384u << 20,
	.debug_bytes = UINT64_C(8) << 30,
	.symbols = 16u << 20,
	.lines = 16u << 20,
};

struct uw_limits uw_limits_counts;

static const struct uw_limits most = {
	.operations = 1u << 20,
	.instructions = 1u << 24,
	.functions = 64u << 20,
	.rows = 128u << 20,
	.rules = 16u << 20,
	.section_bytes = 1u << 30, /* offsets in it have 32 bits */
	.held_bytes = UINT64_C(64) << 30,
	.debug_bytes = UINT64_C(1) << 40,
	.symbols = 16u << 20, /* the number of an entry has 24 bits */
	.lines = 256u << 20,
};

void uw_limits_get(struct uw_limits *out)
{
	*out = uw_limits_now;
}

void uw_limits_most(struct uw_limits *out)
{
	*out = most;
}

int uw_limits_set(const struct uw_limits *limits)
{
	const uint64_t *value = (const uint64_t *)limits, *last = (const uint64_t *)&most;

	for (size_t i = 0; i < N; i++)
		if (!value[i] || value[i] > last[i])
			return -EINVAL;
	uw_limits_now = *limits;
	return 0;
}

void uw_limits_reached(struct uw_limits *out)
{
	const uint64_t *count = (const uint64_t *)&uw_limits_counts;
	uint64_t *to = (uint64_t *)out;

	for (size_t i = 0; i < N; i++)
		to[i] = __atomic_load_n(&count[i], __ATOMIC_RELAXED);
}
