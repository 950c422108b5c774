/* agent/history/samples.c: packs, reads and merges the samples of windows. */
#include "agent/history/samples.h"

#include "agent/array.h"
#include "agent/clock.h"
#include "schema/window_blob.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LEB128_MAX = 10 };

void history_put_uleb(struct history_bytes *b, uint64_t value, int *err)
{
	if (*err || (*err = array_reserve(b->bytes, b->size + LEB128_MAX, b->room)))
		return;
	for (; value >= 0x80; value >>= 7)
		b->bytes[b->size++] = (uint8_t)(value | 0x80);
	b->bytes[b->size++] = (uint8_t)value;
}

void history_put_sleb(struct history_bytes *b, int64_t value, int *err)
{
	bool more = true;

	if (*err || (*err = array_reserve(b->bytes, b->size + LEB128_MAX, b->room)))
		return;
	while (more) {
		uint8_t byte = value & 0x7f;

		value >>= 7;
		more = !((value == 0 && !(byte & 0x40)) || (value == -1 && byte & 0x40));
		b->bytes[b->size++] = byte | (more ? 0x80 : 0);
	}
}

/* ---- packing ------------------------------------------------------------------------------ */

static int order(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

/* Compare what samples of one group have in common. */
static int compare_groups(const struct history_sample *a, const struct history_sample *b)
{
	int by = order(a->labels, b->labels);

	by = by ? by : order(a->pid, b->pid);
	by = by ? by : order(a->tid, b->tid);
	return by ? by : order(a->node, b->node);
}

static int compare(const void *a, const void *b) /* for qsort */
{
	return compare_groups(a, b);
}

static int compare_values(const struct history_sample *a, const struct history_sample *b)
{
	int by = order(a->n_values, b->n_values);

	for (uint32_t i = 0; i < a->n_values && !by; i++) {
		by = order(a->values[i].type, b->values[i].type);
		by = by ? by : order((uint64_t)a->values[i].value, (uint64_t)b->values[i].value);
	}
	return by;
}

/*
 * Compare samples that have times. Each has its own values, such as the length of a wait: those of one group
 * have equal ones.
 */
static int compare_times(const void *a, const void *b) /* for qsort */
{
	const struct history_sample *x = a, *y = b;
	int by = compare_groups(x, y);

	by = by ? by : compare_values(x, y);
	return by ? by : order(x->time_ns, y->time_ns);
}

/* Add the values of one sample to those of another. Return whether there was room for all. */
static bool add_values(struct history_sample *to, const struct history_sample *from)
{
	struct history_sample sum = *to;

	for (uint32_t i = 0; i < from->n_values; i++) {
		uint32_t at = 0;

		while (at < sum.n_values && sum.values[at].type != from->values[i].type)
			at++;
		if (at == HISTORY_VALUES)
			return false;
		if (at == sum.n_values)
			sum.values[sum.n_values++] =
				(struct history_value){ .type = from->values[i].type };
		if (__builtin_add_overflow(sum.values[at].value, from->values[i].value,
					   &sum.values[at].value))
			return false;
	}
	*to = sum;
	return true;
}

/* Return whether two samples have values of the same types, in the same order. */
static bool same_types(const struct history_sample *a, const struct history_sample *b)
{
	if (a->n_values != b->n_values)
		return false;
	for (uint32_t i = 0; i < a->n_values; i++)
		if (a->values[i].type != b->values[i].type)
			return false;
	return true;
}

/* Note of the values of a group how many times the first one each is; 0: it is no multiple. */
static void take_units(struct samples_last *last)
{
	const struct history_sample *s = &last->sample;
	const int64_t first = s->n_values ? s->values[0].value : 0;

	for (uint32_t i = 1; i < s->n_values; i++) {
		const int64_t value = s->values[i].value;
		const bool divides =
			first && !(first == -1 && value == INT64_MIN) && value % first == 0;

		last->units[i] = divides ? value / first : 0;
	}
}

/* Return a multiple of a value. It may overflow, as it does again when it is read. */
static int64_t multiple(int64_t value, int64_t unit)
{
	return (int64_t)((uint64_t)value * (uint64_t)unit);
}

static bool are_multiples(const struct samples_last *before, const struct history_sample *sum)
{
	if (!same_types(&before->sample, sum))
		return false;
	for (uint32_t i = 1; i < sum->n_values; i++)
		if (sum->values[i].value != multiple(sum->values[0].value, before->units[i]))
			return false;
	return true;
}

static void put_values(struct history_bytes *b, const struct history_sample *before,
		       const struct history_sample *sum, int *err)
{
	bool same = same_types(before, sum);

	history_put_uleb(b, same ? 0 : sum->n_values + 1, err);
	for (uint32_t i = 0; i < sum->n_values && !same; i++)
		history_put_uleb(b, sum->values[i].type, err);
	/* Differences may overflow; they do again when they are read. */
	for (uint32_t i = 0; i < sum->n_values; i++) {
		const struct history_value *v = &sum->values[i];
		uint64_t last = i < before->n_values && before->values[i].type == v->type
					? (uint64_t)before->values[i].value
					: 0;

		history_put_sleb(b, (int64_t)((uint64_t)v->value - last), err);
	}
}

static void put_times(struct history_bytes *b, const struct history_sample *samples, size_t n,
		      int *err)
{
	uint64_t last = 0;

	history_put_uleb(b, n, err);
	for (size_t i = 0; i < n; i++) {
		uint64_t time = samples[i].time_ns / WINDOW_TIME_NS;

		history_put_uleb(b, time - last, err);
		last = time;
	}
}

/* Pack a group whose sum is in *sum, which the next one comes after; its n samples are needed for their times. */
static void put_group(struct history_bytes *b, struct samples_last *before,
		      const struct history_sample *sum, const struct history_sample *samples,
		      size_t n, enum history_level level, int *err)
{
	const struct history_sample *last = &before->sample;
	const bool multiples = are_multiples(before, sum);
	const bool same = sum->labels == last->labels && sum->pid == last->pid &&
			  sum->tid == last->tid && sum->node >= last->node &&
			  sum->node - last->node <= UINT64_MAX >> WINDOW_HEAD_BITS;

	history_put_uleb(
		b,
		(same ? (sum->node - last->node) << WINDOW_HEAD_BITS : WINDOW_OTHER_THREAD) |
			(multiples ? 0 : WINDOW_OTHER_VALUES),
		err);
	if (!same) {
		history_put_uleb(b, sum->labels - last->labels, err);
		history_put_sleb(b, (int64_t)sum->pid - last->pid, err);
		history_put_sleb(b, (int64_t)sum->tid - last->tid, err);
		history_put_sleb(b, (int64_t)(sum->node - last->node), err);
	}
	if (!multiples)
		put_values(b, last, sum, err);
	else if (sum->n_values)
		history_put_sleb(b, sum->values[0].value, err);
	if (level == HISTORY_TIMES)
		put_times(b, samples, n, err);
	before->sample = *sum;
	if (!multiples)
		take_units(before);
}

static void put_header(struct history_bytes *out, enum history_level level, int *err)
{
	out->size = 0;
	history_put_uleb(out, WINDOW_BLOB_VERSION, err);
	history_put_uleb(out, level, err);
}

int samples_pack(struct history_sample *samples, size_t n, enum history_level level,
		 struct history_bytes *out)
{
	struct samples_last before = { .sample = { .labels = 0 } };
	int err = 0;

	for (size_t i = 0; level == HISTORY_TOGETHER && i < n; i++)
		samples[i].pid = samples[i].tid = 0;
	if (n)
		qsort(samples, n, sizeof(*samples),
		      level == HISTORY_TIMES ? compare_times : compare);
	put_header(out, level, &err);
	for (size_t i = 0, end; i < n && !err; i = end) {
		struct history_sample sum = samples[i];

		for (end = i + 1; end < n && !compare_groups(&samples[i], &samples[end]); end++)
			if ((level == HISTORY_TIMES &&
			     compare_values(&samples[i], &samples[end])) ||
			    !add_values(&sum, &samples[end]))
				break;
		put_group(out, &before, &sum, samples + i, end - i, level, &err);
	}
	return err;
}

/* ---- reading ------------------------------------------------------------------------------ */

int samples_open(const void *blob, size_t size, struct samples_reader *out)
{
	struct samples_reader r = { .bytes = uw_bytes_of(blob, size) };

	r.version = uw_bytes_uleb(&r.bytes);
	if (r.bytes.err || r.version < 1 || r.version > WINDOW_BLOB_VERSION)
		return r.bytes.err ? r.bytes.err : -ENOTSUP;
	r.level = uw_bytes_uleb(&r.bytes);
	if (r.bytes.err || r.level >= HISTORY_LEVELS)
		return -EBADMSG;
	*out = r;
	return 0;
}

/* Add a difference to a number of 32 bits. Return whether the sum is one, too. */
static bool add_difference(uint32_t *to, int64_t difference)
{
	int64_t sum;

	if (__builtin_add_overflow((int64_t)*to, difference, &sum) || sum < 0 || sum > UINT32_MAX)
		return false;
	*to = (uint32_t)sum;
	return true;
}

/* Read what the samples of a group have in common. False: it is not the identity of a later group. */
static inline bool next_identity(struct uw_bytes *b, struct history_sample *s)
{
	uint64_t labels = uw_bytes_uleb(b);
	int64_t pid = uw_bytes_sleb(b), tid = uw_bytes_sleb(b);
	int64_t node = uw_bytes_sleb(b);

	if (!labels && (pid < 0 || (!pid && (tid < 0 || (!tid && node < 0)))))
		return false;
	s->node += (uint64_t)node;
	return !__builtin_add_overflow(s->labels, labels, &s->labels) && s->labels <= INT64_MAX &&
	       s->node <= INT64_MAX && add_difference(&s->pid, pid) && add_difference(&s->tid, tid);
}

/* Read the values of a group. False: there are too many, or a type is too large. */
static inline bool next_values(struct uw_bytes *b, struct history_sample *s)
{
	uint64_t n = uw_bytes_uleb(b);

	if (n > HISTORY_VALUES + 1)
		return false;
	for (uint32_t i = 0; n && i < n - 1; i++) {
		uint64_t type = uw_bytes_uleb(b);

		if (type > UINT32_MAX)
			return false;
		if (i >= s->n_values || s->values[i].type != type)
			s->values[i] = (struct history_value){ .type = (uint32_t)type };
	}
	s->n_values = n ? (uint32_t)n - 1 : s->n_values;
	for (uint32_t i = 0; i < s->n_values; i++)
		s->values[i].value =
			(int64_t)((uint64_t)s->values[i].value + (uint64_t)uw_bytes_sleb(b));
	return true;
}

/* Read a group without its times. False: it is damaged. */
static inline bool next_group(struct samples_reader *r, struct uw_bytes *b)
{
	struct history_sample *s = &r->last.sample;
	const uint64_t head =
		r->version == 1 ? WINDOW_OTHER_THREAD | WINDOW_OTHER_VALUES : uw_bytes_uleb(b);

	if (head & WINDOW_OTHER_THREAD) {
		if (head >> WINDOW_HEAD_BITS || !next_identity(b, s))
			return false;
	} else {
		s->node += head >> WINDOW_HEAD_BITS;
		if (s->node > INT64_MAX)
			return false;
	}
	if (head & WINDOW_OTHER_VALUES) {
		if (!next_values(b, s))
			return false;
		if (r->version > 1)
			take_units(&r->last);
	} else if (s->n_values) {
		s->values[0].value = uw_bytes_sleb(b);
		for (uint32_t i = 1; i < s->n_values; i++)
			s->values[i].value = multiple(s->values[0].value, r->last.units[i]);
	}
	return true;
}

int samples_next(struct samples_reader *r, struct history_group *out)
{
	/* A copy, which stays in registers: through memory, each number would wait for the one before. */
	struct uw_bytes b = r->bytes;

	if (uw_bytes_done(&b))
		return b.err;
	if (!next_group(r, &b))
		return -EBADMSG;
	out->sample = &r->last.sample;
	out->n_times = out->time = 0;
	out->times = uw_bytes_of(NULL, 0);
	if (r->level == HISTORY_TIMES) {
		out->n_times = uw_bytes_uleb(&b);
		out->times = b;
		for (uint64_t i = 0; i < out->n_times && !b.err; i++)
			(void)uw_bytes_uleb(&b);
		out->times.end = b.pos;
	}
	r->bytes = b;
	return b.err ? b.err : 1;
}

bool samples_time(struct history_group *group, uint64_t *out)
{
	if (uw_bytes_done(&group->times))
		return false;
	group->time += uw_bytes_uleb(&group->times);
	*out = group->time * WINDOW_TIME_NS;
	return !group->times.err;
}

/* ---- merging ------------------------------------------------------------------------------ */

enum { GROUPS_AT_ONCE = 64 }; /* between two looks at the clock */

struct samples_merging {
	const struct uw_bytes *blobs;
	size_t n_blobs, n_open;
	enum history_level level;
	struct samples_reader *readers; /* of each blob */
	struct history_bytes *repacked; /* blobs that had to be sorted again */
	struct samples_reader *
		*heap; /* those that are not at their ends: that of the first group on top */
	size_t n;
	struct samples_last before; /* the last group that was packed */
	struct history_bytes out;
};

static bool is_before(const struct samples_reader *a, const struct samples_reader *b)
{
	return compare_groups(&a->last.sample, &b->last.sample) < 0;
}

/* Move the reader at position i of the heap down to where it belongs. */
static void sink(struct samples_merging *m, size_t i)
{
	struct samples_reader *moved = m->heap[i];

	for (size_t child; (child = 2 * i + 1) < m->n; i = child) {
		if (child + 1 < m->n && is_before(m->heap[child + 1], m->heap[child]))
			child++;
		if (!is_before(m->heap[child], moved))
			break;
		m->heap[i] = m->heap[child];
	}
	m->heap[i] = moved;
}

static int compare_nodes(const void *a, const void *b) /* for qsort */
{
	const struct history_sample *x = a, *y = b;

	return order(x->node, y->node);
}

/* Pack samples that have the same labels, without threads. */
static void put_together(struct history_bytes *out, struct history_sample *samples, size_t n,
			 struct samples_last *before, int *err)
{
	if (n)
		qsort(samples, n, sizeof(*samples), compare_nodes);
	for (size_t i = 0, end; i < n && !*err; i = end) {
		struct history_sample sum = samples[i];

		for (end = i + 1; end < n && samples[end].node == sum.node; end++)
			if (!add_values(&sum, &samples[end]))
				break;
		put_group(out, before, &sum, NULL, 0, HISTORY_TOGETHER, err);
	}
}

/*
 * Pack the samples of a blob again, without threads; they are in another order then, but only among those
 * with the same labels.
 */
static int repack(const struct uw_bytes *blob, struct history_bytes *out)
{
	struct samples_reader r;
	struct history_sample *samples = NULL;
	struct samples_last before = { .sample = { .labels = 0 } };
	struct history_group group;
	size_t n = 0, room = 0;
	int err = samples_open(blob->pos, uw_bytes_left(blob), &r);

	put_header(out, HISTORY_TOGETHER, &err);
	while (!err && (err = samples_next(&r, &group)) == 1) {
		err = 0;
		if (n && samples[0].labels != group.sample->labels) {
			put_together(out, samples, n, &before, &err);
			n = 0;
		}
		if (!err)
			err = array_grow(samples, n, room);
		if (err)
			break;
		samples[n] = *group.sample;
		samples[n].pid = samples[n].tid = 0;
		n++;
	}
	put_together(out, samples, n, &before, &err);
	free(samples);
	return err;
}

/* Open the next blob, and read its first group. */
static int open_next(struct samples_merging *m)
{
	const struct uw_bytes *blob = &m->blobs[m->n_open];
	struct history_bytes *repacked = &m->repacked[m->n_open];
	struct samples_reader *r = &m->readers[m->n_open++];
	struct history_group group;
	int err = samples_open(blob->pos, uw_bytes_left(blob), r);

	if (!err && m->level == HISTORY_TOGETHER && r->level != HISTORY_TOGETHER) {
		err = repack(blob, repacked);
		if (!err)
			err = samples_open(repacked->bytes, repacked->size, r);
	}
	if (!err)
		err = samples_next(r, &group);
	if (err == 1)
		m->heap[m->n++] = r;
	if (err >= 0 && m->n_open == m->n_blobs)
		for (size_t i = m->n / 2; i--;)
			sink(m, i);
	return err < 0 ? err : 0;
}

/* Merge the samples of the first identity. */
static int merge_group(struct samples_merging *m)
{
	struct history_sample sum = m->heap[0]->last.sample;
	struct history_group group;
	bool added = true;
	int err = 0;

	while (m->n && added) {
		err = samples_next(m->heap[0], &group);
		if (err < 0)
			return err;
		if (!err)
			m->heap[0] = m->heap[--m->n];
		sink(m, 0);
		added = m->n && !compare_groups(&m->heap[0]->last.sample, &sum) &&
			add_values(&sum, &m->heap[0]->last.sample);
	}
	err = 0;
	put_group(&m->out, &m->before, &sum, NULL, 0, m->level, &err);
	return err;
}

int samples_merging_new(const struct uw_bytes *blobs, size_t n, enum history_level level,
			struct samples_merging **out)
{
	struct samples_merging *m = calloc(1, sizeof(*m));
	int err = 0;

	if (!m)
		return -ENOMEM;
	*m = (struct samples_merging){ .blobs = blobs, .n_blobs = n, .level = level };
	m->readers = calloc(n + 1, sizeof(*m->readers));
	m->repacked = calloc(n + 1, sizeof(*m->repacked));
	m->heap = calloc(n + 1, sizeof(struct samples_reader *));
	if (!m->readers || !m->repacked || !m->heap)
		err = -ENOMEM;
	put_header(&m->out, level, &err);
	if (err)
		samples_merging_free(m);
	else
		*out = m;
	return err;
}

int samples_merging_go(struct samples_merging *m, uint64_t until_ns)
{
	int err = 0;

	while (!err && m->n_open < m->n_blobs) {
		err = open_next(m);
		if (!err && now_ns() >= until_ns)
			return 1;
	}
	while (!err && m->n) {
		for (int i = 0; !err && m->n && i < GROUPS_AT_ONCE; i++)
			err = merge_group(m);
		if (!err && m->n && now_ns() >= until_ns)
			return 1;
	}
	return err;
}

const struct history_bytes *samples_merged(const struct samples_merging *m)
{
	return &m->out;
}

void samples_merging_free(struct samples_merging *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < m->n_blobs && m->repacked; i++)
		free(m->repacked[i].bytes);
	free(m->readers);
	free(m->repacked);
	free(m->heap);
	free(m->out.bytes);
	free(m);
}

int samples_merge(const struct uw_bytes *blobs, size_t n, enum history_level level,
		  struct history_bytes *out)
{
	struct samples_merging *m = NULL;
	int err = samples_merging_new(blobs, n, level, &m);

	if (!err)
		err = samples_merging_go(m, UINT64_MAX);
	if (!err) {
		free(out->bytes);
		*out = m->out;
		m->out.bytes = NULL;
	}
	samples_merging_free(m);
	return err;
}
