/*
 * tests/unit/test_mappings.c: tests the sorted mappings of a space: many of them, in any order.
 */
#include "unwinder/walk/mappings.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"

#define N_MAX 8000

/* The same mappings in one plain array. */
static struct uw_mapping model[N_MAX];
static size_t n_model;
static uint32_t seed = 1;

static uint32_t any(uint32_t below)
{
	seed = seed * 1664525 + 1013904223;
	return (uint32_t)((uint64_t)seed * below >> 32);
}

/* Remove [start, end) from the model, and set a mapping of that range in its place if off is not 0. */
static void model_set(uint64_t start, uint64_t end, uint64_t off)
{
	struct uw_mapping right = { 0 };
	size_t i = 0, last, n_new = 0;
	struct uw_mapping new[3];

	while (i < n_model && model[i].end <= start)
		i++;
	for (last = i; last < n_model && model[last].start < end; last++)
		right = model[last];
	if (last > i && model[i].start < start) {
		new[n_new] = model[i];
		new[n_new++].end = start;
	}
	if (off)
		new[n_new++] = (struct uw_mapping){ .start = start, .end = end, .off = off };
	if (last > i && right.end > end) {
		new[n_new] = right;
		new[n_new].start = end;
		new[n_new++].off += end - right.start;
	}
	memmove(&model[i + n_new], &model[last], (n_model - last) * sizeof(*model));
	memcpy(&model[i], new, n_new * sizeof(*new));
	n_model += n_new - (last - i);
}

static void set(struct uw_mappings *all, uint64_t start, uint64_t end, uint64_t off)
{
	const struct uw_mapping mapping = { .start = start, .end = end, .off = off };
	const struct uw_mapping *first = uw_mappings_above(all, start);

	if (off)
		CHECK(!uw_mappings_set(all, &mapping), "set");
	else if (first && first->start < end)
		CHECK(!uw_mappings_remove(all, start, end), "remove");
	model_set(start, end, off);
}

static bool same(const struct uw_mapping *x, const struct uw_mapping *y)
{
	return x->start == y->start && x->end == y->end && x->off == y->off;
}

/* Return whether the mappings are those of the model. */
static bool is_as_model(const struct uw_mappings *all)
{
	const struct uw_mapping *m = uw_mappings_above(all, 0);

	for (size_t i = 0; i < n_model; i++) {
		if (!m || !same(m, &model[i]))
			return false;
		m = uw_mappings_above(all, m->end);
	}
	return !m && all->n == n_model;
}

/* Return whether no chunk is empty or too large, and there are few chunks for so many mappings. */
static bool is_tidy(const struct uw_mappings *all)
{
	size_t n = 0;

	for (size_t c = 0; c < all->n_chunks; c++) {
		if (!all->chunks[c].n || all->chunks[c].n > all->room)
			return false;
		n += all->chunks[c].n;
	}
	return n == all->n && all->room <= UW_CHUNK_MAX &&
	       (all->n_chunks < 2 || all->room == UW_CHUNK_MAX) &&
	       all->n_chunks <= 1 + 3 * n / UW_CHUNK_MAX;
}

/* Look up some addresses: what is there, and where nothing is, how far. */
static bool finds(const struct uw_mappings *all)
{
	for (int i = 0; i < 100; i++) {
		uint64_t addr = any(1u << 30), start, end;
		const struct uw_mapping *m = uw_mappings_above(all, addr);
		size_t k = 0;

		while (k < n_model && model[k].end <= addr)
			k++;
		if (k == n_model ? m != NULL : !m || !same(m, &model[k]))
			return false;
		if (m && m->start <= addr)
			continue;
		uw_mappings_gap(all, addr, &start, &end);
		if (start != (k ? model[k - 1].end : 0) ||
		    end != (k < n_model ? model[k].start : UINT64_MAX))
			return false;
	}
	return true;
}

/* Map and unmap anywhere, mostly small ranges, and at times large ones. */
static void test_any_change_is_as_in_a_plain_array(void)
{
	struct uw_mappings all = { 0 }, copy;
	size_t most = 0;

	for (uint32_t i = 1; i <= 30000; i++) {
		uint64_t start = any(1u << 30), size = 1 + any(1u << 15);
		/* In turns more is mapped, and more is unmapped. */
		bool unmaps = any(8) < (i / 10000 % 2 ? 6 : 1);

		if (any(2000) == 0)
			size = any(1u << 29);
		if (n_model + 2 > N_MAX) {
			unmaps = true;
			start = 0; /* without a hole, which would make one more */
			size = 1u << 29;
		}
		set(&all, start, start + size, unmaps ? 0 : (uint64_t)i << 32);
		if (all.n > most)
			most = all.n;
		CHECK(is_tidy(&all), "tidy after each change");
		if (i % 1000)
			continue;
		CHECK(is_as_model(&all) && finds(&all), "as the plain array");
		CHECK(!uw_mappings_copy(&all, &copy) && is_as_model(&copy) && is_tidy(&copy),
		      "a copy is equal");
		uw_mappings_fini(&copy);
	}
	CHECK(most > 10 * (size_t)UW_CHUNK_MAX, "there were many chunks");
	set(&all, 0, UINT64_MAX, 0);
	CHECK(!all.n && !all.n_chunks && is_as_model(&all), "all of it");
	set(&all, 0x1000, 0x2000, 1);
	CHECK(is_as_model(&all), "one again");
	uw_mappings_fini(&all);
	n_model = 0;
}

/* Upwards, downwards, and from the middle to both sides; then one in n of them stays. */
static void test_orders_of_hostile_programs(void)
{
	enum { UP, DOWN, MIDDLE, N_ORDERS };

	for (int order = 0; order < N_ORDERS; order++) {
		struct uw_mappings all = { 0 };

		for (uint64_t i = 0; i < N_MAX / 2; i++) {
			uint64_t page = order == UP	? i
					: order == DOWN ? N_MAX - i
					: i & 1		? N_MAX / 2 + i
							: N_MAX / 2 - i;

			set(&all, page * 0x2000, page * 0x2000 + 0x1000, (page + 1) << 32);
		}
		CHECK(all.n == N_MAX / 2 && is_as_model(&all) && is_tidy(&all), "all of them");
		for (uint64_t page = 0; page < 2 * N_MAX; page++)
			if (page % 100)
				set(&all, page * 0x2000, page * 0x2000 + 0x1000, 0);
		CHECK(all.n && is_as_model(&all) && is_tidy(&all), "a few stay, in few chunks");
		uw_mappings_fini(&all);
		n_model = 0;
	}
}

int main(void)
{
	test_any_change_is_as_in_a_plain_array();
	test_orders_of_hostile_programs();
	return check_done();
}
