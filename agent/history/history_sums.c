/* agent/history/history_sums.c: counts samples together, some at a time. */
#include "agent/history/history_reading.h"

#include "agent/array.h"
#include "agent/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_sum(const struct sum_key *s, const struct sum_key *key)
{
	return s->labels == key->labels && s->node == key->node && s->cut == key->cut &&
	       s->pid == key->pid && s->tid == key->tid && s->time_ns == key->time_ns;
}

static uint64_t hash_sum(const struct sum_key *s)
{
	return hash_u64(hash_u64(hash_u64(s->node, s->labels), s->time_ns),
			(uint64_t)s->pid << 32 | s->tid);
}

static int new_sum(struct reading *r, const struct sum_key *key, uint32_t *out)
{
	struct sum *sum;
	int err;

	if (r->n_sums >= r->h->sums_max)
		return -EFBIG;
	err = uw_array_reserve(&r->sums, r->n_sums + 1, &r->room_sums, r->sum_size, SIZE_MAX);
	if (err)
		return err;
	*out = (uint32_t)r->n_sums++;
	sum = history_sum_at(r, *out);
	sum->key = *key;
	for (size_t i = 0; i < r->s->n_types; i++)
		sum->values[i] = 0;
	return 0;
}

/* Find where the sum of samples of which only the stacks matter has its index, and read the page of the node. */
static int place_of_sum(struct reading *r, int64_t node, uint32_t **out)
{
	size_t index;
	int err = 0;

	if (!node) {
		*out = &r->sum_without_frames;
		return 0;
	}
	/* Whether the node itself is there is seen when the sums are done, and all are looked up. */
	if (!history_node_place(r->h, node, &index))
		err = history_node(r->h, node, &index);
	if (!err)
		err = history_reserve_known(&r->stack_sums, &r->n_stack_sums, index);
	if (!err)
		*out = &r->stack_sums[index];
	return err;
}

/* Find or add the sum of samples of which only the stacks matter. */
static int sum_of_stack(struct reading *r, const struct sum_key *key, uint32_t *out)
{
	uint32_t *sum;
	int err = place_of_sum(r, (int64_t)key->node, &sum);

	if (!err && !*sum) {
		err = new_sum(r, key, out);
		*sum = err ? 0 : *out + 1;
	}
	if (!err)
		*out = *sum - 1;
	return err;
}

static int sum_of_all(struct reading *r, const struct pending *p, uint32_t *out)
{
	int err;

	*out = UW_HASH_FIND(i, &r->by_sum, p->hash, is_sum(&history_sum_at(r, i)->key, &p->key));
	if (*out != UW_HASH_NONE)
		return 0;
	err = new_sum(r, &p->key, out);
	return err ? err : uw_hash_add(&r->by_sum, p->hash, *out);
}

/* Return whether only the stacks of samples matter. */
static bool is_by_stack(const struct reading *r)
{
	return !r->q->labels && !r->q->times;
}

/* Let the CPU fetch what the sum of a stack is found by. */
static void fetch_place(struct reading *r, struct pending *p)
{
	const struct sum_key *key = &p->key;

	if (key->node && history_node_place(r->h, (int64_t)key->node, &p->place) &&
	    p->place < r->n_stack_sums)
		__builtin_prefetch(&r->stack_sums[p->place]);
	else
		p->place = SIZE_MAX;
}

/* Find the sum that is probably the one, and let the CPU fetch it. */
static void fetch_sum(const struct reading *r, struct pending *p)
{
	struct uw_hash_search search;

	p->at = UW_HASH_NONE;
	if (!is_by_stack(r))
		p->at = uw_hash_first(&r->by_sum, p->hash, &search);
	else if (p->place != SIZE_MAX)
		p->at = r->stack_sums[p->place] - 1; /* UW_HASH_NONE if there is none */
	if (p->at != UW_HASH_NONE)
		__builtin_prefetch(history_sum_at(r, p->at));
}

/* Find or add the sum of samples that are pending. */
static int find_sum(struct reading *r, const struct pending *p, uint32_t *out)
{
	*out = p->at;
	if (is_by_stack(r))
		return p->at != UW_HASH_NONE ? 0 : sum_of_stack(r, &p->key, out);
	if (p->at != UW_HASH_NONE && is_sum(&history_sum_at(r, p->at)->key, &p->key))
		return 0;
	return sum_of_all(r, p, out);
}

/* Count at most PENDING samples. */
static int sum_some(struct reading *r, struct pending *pending, size_t n)
{
	int err = 0;

	for (size_t i = 0; i < n && !is_by_stack(r); i++) {
		pending[i].hash = hash_sum(&pending[i].key);
		uw_hash_prefetch(&r->by_sum, pending[i].hash);
	}
	for (size_t i = 0; i < n; i++)
		fetch_sum(r, &pending[i]);
	for (size_t i = 0; i < n && !err; i++) {
		const struct pending *p = &pending[i];
		uint32_t at;

		err = find_sum(r, p, &at);
		for (uint32_t j = 0; j < p->n_values && !err; j++) {
			int64_t *to = &history_sum_at(r, at)->values[p->values[j].type];

			*to = stacks_sum(*to, p->values[j].value);
		}
	}
	return err;
}

int history_sum_these(struct reading *r, struct pending *pending, size_t n)
{
	int err = 0;

	for (size_t i = 0; i < n && !err; i += PENDING)
		err = sum_some(r, &pending[i], n - i < PENDING ? n - i : PENDING);
	return err;
}

/* Count the samples that are pending, or let the thread do it. */
static int sum_batch(struct reading *r)
{
	size_t n = r->n_pending;
	int err;

	if (r->counting)
		return history_count_give(r);
	r->n_pending = 0;
	r->n_counted += n;
	err = history_sum_these(r, r->pending, n);
	/* Where only stacks matter, nodes are read from the database meanwhile: that is for one thread. */
	if (!err && !is_by_stack(r) && r->n_counted >= r->h->thread_after) {
		r->n_counted = 0;
		history_count_begin(r);
	}
	return err;
}

int history_sum_pending(struct reading *r)
{
	int err = r->n_pending ? sum_batch(r) : 0;
	int ended = history_count_end(r);

	return err ? err : ended;
}

int history_sum_add(struct reading *r, const struct history_sample *g, const struct sum_part *share)
{
	struct pending *p = &r->pending[r->n_pending];

	p->key = (struct sum_key){ .node = g->node & INT64_MAX, .time_ns = share->time_ns };
	if (r->q->labels)
		p->key.labels = g->labels;
	if (r->q->labels && !r->q->no_threads) {
		p->key.pid = g->pid;
		p->key.tid = g->tid;
	}
	p->n_values = g->n_values;
	for (uint32_t i = 0; i < g->n_values; i++) {
		const struct history_value *v = &g->values[i];

		if (v->type >= r->n_types || !r->type_of[v->type])
			return -EBADMSG;
		p->values[i].type = (size_t)r->type_of[v->type] - 1;
		p->values[i].value = history_share(v->value, share->from, share->to, share->n);
	}
	if (is_by_stack(r))
		fetch_place(r, p);
	return ++r->n_pending < r->most_pending ? 0 : sum_batch(r);
}

int history_sums_merge(struct reading *r)
{
	const size_t n = r->n_sums;
	int err = 0;

	uw_hash_clear(&r->by_sum);
	r->n_sums = 0;
	for (size_t i = 0; i < n && !err; i++) {
		const struct sum *from = history_sum_at(r, i);
		const uint64_t hash = hash_sum(&from->key);
		uint32_t at = UW_HASH_FIND(k, &r->by_sum, hash,
					   is_sum(&history_sum_at(r, k)->key, &from->key));
		struct sum *to = history_sum_at(r, at != UW_HASH_NONE ? at : r->n_sums);

		if (at != UW_HASH_NONE) {
			for (size_t t = 0; t < r->s->n_types; t++)
				to->values[t] = stacks_sum(to->values[t], from->values[t]);
			continue;
		}
		memmove(to, from, r->sum_size);
		err = uw_hash_add(&r->by_sum, hash, (uint32_t)r->n_sums++);
	}
	return err;
}

void history_sums_forget(struct reading *r)
{
	r->n_pending = 0;
	(void)history_count_end(r);
	r->n_sums = 0;
	r->sum_without_frames = 0;
	if (r->n_stack_sums)
		memset(r->stack_sums, 0, r->n_stack_sums * sizeof(*r->stack_sums));
	uw_hash_clear(&r->by_sum);
	history_forget_nodes(r);
	*r->found = (struct history_found){ .n_windows = 0 };
}

void history_sums_fini(struct reading *r)
{
	r->n_pending = 0;
	(void)history_count_end(r);
	free(r->sums);
	uw_hash_fini(&r->by_sum);
	free(r->stack_sums);
}
