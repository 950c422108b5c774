/* agent/history/samples.c: packs and reads the samples of a window. */
#include "agent/history/samples.h"

#include "agent/array.h"
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

static void put_sleb(struct history_bytes *b, int64_t value, int *err)
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
	const struct history_sample *x = a, *y = b;
	int by = compare_groups(x, y);

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

/* Pack a group whose sum is in *sum; its n samples are needed for their times. */
static void put_group(struct history_bytes *b, const struct history_sample *before,
		      const struct history_sample *sum, const struct history_sample *samples,
		      size_t n, enum history_level level, int *err)
{
	uint64_t last = 0;

	history_put_uleb(b, sum->labels - before->labels, err);
	put_sleb(b, (int64_t)sum->pid - before->pid, err);
	put_sleb(b, (int64_t)sum->tid - before->tid, err);
	put_sleb(b, (int64_t)(sum->node - before->node), err);
	history_put_uleb(b, sum->n_values, err);
	for (uint32_t i = 0; i < sum->n_values; i++) {
		history_put_uleb(b, sum->values[i].type, err);
		put_sleb(b, sum->values[i].value, err);
	}
	if (level != HISTORY_TIMES)
		return;
	history_put_uleb(b, n, err);
	for (size_t i = 0; i < n; i++) {
		uint64_t time = samples[i].time_ns / WINDOW_TIME_NS;

		history_put_uleb(b, time - last, err);
		last = time;
	}
}

int samples_pack(struct history_sample *samples, size_t n, enum history_level level,
		 struct history_bytes *out)
{
	struct history_sample before = { .labels = 0 };
	int err = 0;

	for (size_t i = 0; level == HISTORY_TOGETHER && i < n; i++)
		samples[i].pid = samples[i].tid = 0;
	if (n)
		qsort(samples, n, sizeof(*samples), compare);
	out->size = 0;
	history_put_uleb(out, WINDOW_BLOB_VERSION, &err);
	history_put_uleb(out, level, &err);
	for (size_t i = 0, end; i < n && !err; i = end) {
		struct history_sample sum = samples[i];

		for (end = i + 1; end < n && !compare_groups(&samples[i], &samples[end]); end++)
			if (!add_values(&sum, &samples[end]))
				break;
		put_group(out, &before, &sum, samples + i, end - i, level, &err);
		before = samples[i];
	}
	return err;
}

/* ---- reading ------------------------------------------------------------------------------ */

int samples_open(const void *blob, size_t size, struct samples_reader *out)
{
	struct samples_reader r = { .bytes = uw_bytes_of(blob, size) };

	if (uw_bytes_uleb(&r.bytes) != WINDOW_BLOB_VERSION)
		return r.bytes.err ? r.bytes.err : -ENOTSUP;
	r.level = uw_bytes_uleb(&r.bytes);
	if (r.bytes.err || r.level >= HISTORY_LEVELS)
		return -EBADMSG;
	*out = r;
	return 0;
}

int samples_next(struct samples_reader *r, struct history_group *out)
{
	struct history_sample *s = &r->last;
	uint64_t n_values;

	if (uw_bytes_done(&r->bytes))
		return r->bytes.err;
	s->labels += uw_bytes_uleb(&r->bytes);
	s->pid += (uint32_t)uw_bytes_sleb(&r->bytes);
	s->tid += (uint32_t)uw_bytes_sleb(&r->bytes);
	s->node += (uint64_t)uw_bytes_sleb(&r->bytes);
	n_values = uw_bytes_uleb(&r->bytes);
	if (n_values > HISTORY_VALUES)
		return -EBADMSG;
	s->n_values = (uint32_t)n_values;
	for (uint32_t i = 0; i < s->n_values; i++) {
		s->values[i].type = (uint32_t)uw_bytes_uleb(&r->bytes);
		s->values[i].value = uw_bytes_sleb(&r->bytes);
	}
	*out = (struct history_group){ .sample = *s };
	if (r->level == HISTORY_TIMES) {
		out->n_times = uw_bytes_uleb(&r->bytes);
		out->times = r->bytes;
		for (uint64_t i = 0; i < out->n_times && !r->bytes.err; i++)
			(void)uw_bytes_uleb(&r->bytes);
		out->times.end = r->bytes.pos;
	}
	return r->bytes.err ? r->bytes.err : 1;
}

bool samples_time(struct history_group *group, uint64_t *out)
{
	if (uw_bytes_done(&group->times))
		return false;
	group->time += uw_bytes_uleb(&group->times);
	*out = group->time * WINDOW_TIME_NS;
	return !group->times.err;
}
