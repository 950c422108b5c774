/* agent/fleet/question.c: which questions there are to a fleet: profiles, sums by time, how long a slot is. */
#include "agent/fleet/asking.h"
#include "agent/fleet/reading.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_NS UINT64_C(1000000000)

/* ---- types -------------------------------------------------------------------------------- */

/*
 * Find the sample type that the request asks for; none: cpu, or else the first by its name. -EINVAL: the reply says
 * why not.
 */
static int find_type(struct fleet *f, const struct http_request *r, struct http_reply *reply,
		     struct fleet_type *out)
{
	const char *wanted = http_argument(r, "type");
	bool any = false, found = false;
	struct uw_bytes b = { .err = 0 };
	struct sql q;
	char *text = NULL;
	int err = sql_begin(&q);

	if (err)
		return http_fail(reply, 503, "there is no memory");
	query_types(q.out);
	err = sql_ask(&q, f, reply, NULL, &text, &b);
	while (!err && !uw_bytes_done(&b) && !found) {
		struct fleet_type t = { .id = uw_bytes_u32(&b) };

		sql_take_short(&b, t.name, sizeof(t.name));
		sql_take_short(&b, t.unit, sizeof(t.unit));
		sql_take_short(&b, t.counts, sizeof(t.counts));
		t.counted = wanted && !strcmp(wanted, t.counts);
		found = wanted ? t.counted || !strcmp(wanted, t.name) : !strcmp(t.name, "cpu");
		if (!b.err && (found || (!wanted && !any)))
			*out = t;
		any = true;
	}
	free(text);
	if (!err && b.err)
		err = sql_unreachable(reply, b.err);
	else if (!err && !any)
		err = http_fail(reply, 404, "the fleet is empty");
	else if (!err && wanted && !found)
		err = http_fail(reply, 400, "there is no sample type '%.40s'", wanted);
	if (!err) {
		(void)snprintf(f->type, sizeof(f->type), "%s",
			       out->counted ? out->counts : out->name);
		(void)snprintf(f->unit, sizeof(f->unit), "%s", out->counted ? "count" : out->unit);
	}
	return err;
}
/* ---- batches ------------------------------------------------------------------------------ */

struct batches { /* that a range of time has */
	uint64_t n, slot_s, first_s, last_s;
	uint64_t ends; /* the sum of the times when they ended; not if some are there twice */
	bool twice;    /* some are: rows must be merged before they are added up */
};

static int find_batches(struct fleet *f, struct http_reply *reply, const struct api_range *range,
			struct batches *out)
{
	struct uw_bytes b = { .err = 0 };
	struct sql q;
	char *text = NULL;
	int err = sql_begin(&q);

	if (err)
		return http_fail(reply, 503, "there is no memory");
	err = query_batches(
		q.out, reply,
		&(struct condition_range){ range->from_ns, range->to_ns, .base = false });
	if (err)
		sql_drop(&q);
	else
		err = sql_ask(&q, f, reply, NULL, &text, &b);
	if (!err) {
		*out = (struct batches){ .n = uw_bytes_u64(&b),
					 .slot_s = uw_bytes_u64(&b),
					 .first_s = uw_bytes_u64(&b),
					 .last_s = uw_bytes_u64(&b) };
		out->twice = uw_bytes_u64(&b) > out->n;
		out->ends = uw_bytes_u64(&b);
		/* A slot is at most a day; times have 32 bits. */
		if (b.err || out->slot_s > 86400 || out->first_s > UINT32_MAX ||
		    out->last_s > UINT32_MAX)
			err = sql_unreachable(reply, -EBADMSG);
	}
	free(text);
	return err;
}

/* Ask for n numbers. A negative code: the reply says why there are none. */
static int ask_numbers(struct fleet *f, struct http_reply *reply, struct sql *q, uint64_t *out,
		       size_t n)
{
	struct uw_bytes b = { .err = 0 };
	char *text = NULL;
	int err = sql_ask(q, f, reply, NULL, &text, &b);

	for (size_t i = 0; !err && i < n; i++)
		out[i] = uw_bytes_u64(&b);
	free(text);
	return err ? err : b.err ? sql_unreachable(reply, b.err) : 0;
}

/*
 * Find out whether a table of sums has the very batches of a range that samples has. Tables of an older version do not have it,
 * or only for later times; and a batch that came twice is twice in it.
 */
static int find_sums(struct fleet *f, struct http_reply *reply, const struct condition_range *range,
		     const struct batches *batches, enum query_table table, bool *out)
{
	const struct condition_range all = { range->from_ns, range->to_ns, .base = false };
	uint64_t there = 0, summed[2] = { 0, 0 };
	struct sql q;
	int err = sql_begin(&q);

	if (err)
		return err;
	query_has_sums(q.out, table);
	err = ask_numbers(f, reply, &q, &there, 1);
	if (err || !there)
		return err;
	err = sql_begin(&q);
	if (err)
		return err;
	err = query_summed_batches(q.out, reply, &all, table);
	if (err)
		sql_drop(&q);
	else
		err = ask_numbers(f, reply, &q, summed, 2);
	*out = !err && summed[0] == batches->n && summed[1] == batches->ends;
	return err;
}

/* Return whether a table has all that is asked for. */
static bool can_answer(enum query_table table, const struct query_sums *asked)
{
	const struct condition_range *range = &asked->range;
	enum condition_labels labels = condition_labels(asked->request, range->base);
	bool by_host = asked->key && !strcmp(asked->key, "host");
	bool all_hosts = !asked->key && labels == CONDITION_NO_LABELS;
	bool hosts = (!asked->key || by_host) && labels != CONDITION_LABELS;
	uint64_t hours = !asked->times && range->to_ns > range->from_ns
				 ? (range->to_ns - range->from_ns) / (3600 * SECOND_NS)
				 : 0;

	switch (table) {
	case QUERY_HOST_TOTALS:
		return hosts && !asked->stacks && !condition_has_frames(asked->request);
	case QUERY_HOUR_SUMS: /* of a shorter range, it may have nothing, and sums has few rows */
		return all_hosts && hours >= 2;
	case QUERY_SUMS:
		return all_hosts;
	case QUERY_HOST_SUMS:
		return hosts && hours >= 1;
	case QUERY_SAMPLES:
	case QUERY_MERGED:
		break;
	}
	return true;
}

/* Find the smallest table that has what is asked for, with these batches. */
static int find_table(struct fleet *f, const struct query_sums *asked,
		      const struct batches *batches, enum query_table *out)
{
	enum query_table table = QUERY_HOST_TOTALS;
	bool summed = false;
	int err = 0;

	for (; table < QUERY_SAMPLES && !err; table++) {
		if (can_answer(table, asked))
			err = find_sums(f, asked->reply, &asked->range, batches, table, &summed);
		if (summed)
			break;
	}
	*out = table;
	return err;
}

/* Return whether a table of sums can answer, if it has the batches. */
static bool can_be_summed(const struct query_sums *asked)
{
	enum query_table table = QUERY_HOST_TOTALS;

	while (table < QUERY_SAMPLES && !can_answer(table, asked))
		table++;
	return table < QUERY_SAMPLES;
}

/* Find the batches of the range, and the table that is asked. */
static int find_source(struct fleet *f, struct query_sums *asked, struct batches *batches)
{
	const struct api_range range = { asked->range.from_ns, asked->range.to_ns };
	bool look = can_be_summed(asked);
	int err = find_batches(f, asked->reply, &range, batches);

	asked->table = QUERY_SAMPLES;
	/* A batch that arrives meanwhile is in the sums, and not in the batches: look once more if there are others now. */
	for (int again = 0; look && !err && batches->n && !batches->twice && again < 3; again++) {
		uint64_t n = batches->n;

		err = find_table(f, asked, batches, &asked->table);
		if (err || asked->table != QUERY_SAMPLES)
			return err;
		err = find_batches(f, asked->reply, &range, batches);
		look = batches->n != n;
	}
	if (batches->twice)
		asked->table = QUERY_MERGED;
	return err;
}

/* Find out whether at least half of all stacks meet the conditions. */
static int find_share(struct fleet *f, const struct query_sums *asked, bool *most)
{
	uint64_t n[2] = { 0, 0 }; /* of all stacks, and of those */
	struct sql q;
	int err = sql_begin(&q);

	if (err)
		return err;
	err = query_share(q.out, asked);
	if (err)
		sql_drop(&q);
	else
		err = ask_numbers(f, asked->reply, &q, n, 2);
	*most = !err && n[1] && n[1] >= n[0] - n[1];
	return err;
}

/*
 * Find out whether sums by host are found faster by subtracting those of the other stacks from all, because these are fewer.
 * All tables must have the batches.
 */
static int find_way(struct fleet *f, struct query_sums *asked, const struct batches *batches)
{
	static const enum query_table needed[] = { QUERY_HOST_TOTALS, QUERY_HOUR_SUMS };
	bool can = false;
	int err;

	if (asked->table != QUERY_HOST_SUMS || !asked->key || !condition_has_frames(asked->request))
		return 0;
	err = find_share(f, asked, &can);
	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]) && !err && can; i++) {
		can = false;
		err = find_sums(f, asked->reply, &asked->range, batches, needed[i], &can);
	}
	asked->subtracts = !err && can;
	return err;
}

static int slot(void *ctx, struct http_reply *reply, const struct api_range *range, uint64_t *ns)
{
	struct batches batches;
	int err = find_batches(ctx, reply, range, &batches);

	if (!err)
		*ns = batches.slot_s * SECOND_NS;
	return err;
}
/* ---- questions ---------------------------------------------------------------------------- */

/* Find the type and the batches of a question, and how it is asked. A negative code is in the reply. */
static int prepare(struct fleet *f, struct query_sums *asked, struct fleet_type *type,
		   struct batches *batches)
{
	const char *key = asked->key;
	int err;

	if (key && (!strcmp(key, "pid") || !strcmp(key, "tid")))
		return condition_no_processes(asked->reply, key);
	err = find_type(f, asked->request, asked->reply, type);
	if (!err)
		err = find_source(f, asked, batches);
	asked->type = type->id;
	asked->counted = type->counted;
	asked->n_rows = f->n_rows;
	return err;
}

/* Say in the reply that something went wrong, if it does not yet. */
static int fail(struct http_reply *reply, int err)
{
	if (err && reply->status == 200)
		(void)sql_unreachable(reply, err);
	return err;
}

static int read_profile(void *ctx, const struct http_request *r, struct http_reply *reply,
			const struct history_query *query, const char *key, bool frames,
			struct stacks *s, struct history_found *found)
{
	struct query_sums asked = { .request = r,
				    .reply = reply,
				    .range = { query->from_ns, query->to_ns, .base = query->base },
				    .key = key,
				    .stacks = frames };
	struct batches batches = { .n = 0 };
	struct fleet_type type = { .id = 0 };
	int err = prepare(ctx, &asked, &type, &batches);

	*found = (struct history_found){ .n_windows = 0 };
	if (!err)
		err = reading_do(ctx, &asked, &type, batches.n, s, found);
	if (!err) {
		found->n_windows = batches.n;
		found->start_ns = batches.first_s * SECOND_NS;
		found->end_ns = (batches.last_s + batches.slot_s) * SECOND_NS;
		if (batches.n && !query->base)
			stacks_add_time(s, (int64_t)found->start_ns,
					(int64_t)(found->end_ns - found->start_ns), 0);
	}
	return fail(reply, err);
}

static int ask_points(struct fleet *f, const struct query_sums *asked, char **text,
		      struct uw_bytes *b)
{
	struct sql q;
	int err = sql_begin(&q);

	if (err)
		return err;
	err = query_points(q.out, asked);
	if (!err)
		return sql_ask(&q, f, asked->reply, NULL, text, b);
	sql_drop(&q);
	return err;
}

/* Ask for the sums. The caller frees *text, to which *b refers. */
static int read_points(struct fleet *f, struct query_sums *asked, const struct batches *batches,
		       char **text, struct uw_bytes *b)
{
	const struct api_range range = { asked->range.from_ns, asked->range.to_ns };
	struct batches now = *batches;
	int err = find_way(f, asked, batches);

	if (!err)
		err = ask_points(f, asked, text, b);
	if (err || !asked->subtracts)
		return err;
	/* A batch that arrived meanwhile may be in one table alone, and then the difference is none. */
	err = find_batches(f, asked->reply, &range, &now);
	if (err || (now.n == batches->n && now.ends == batches->ends))
		return err;
	free(*text);
	*text = NULL;
	asked->subtracts = false;
	return ask_points(f, asked, text, b);
}

static int scan(void *ctx, const struct http_request *r, struct http_reply *reply,
		const struct api_range *range, const char *key, bool by_slot, api_sum_fn fn,
		void *to, const char **type_name, const char **unit)
{
	struct query_sums asked = { .request = r,
				    .reply = reply,
				    .range = { range->from_ns, range->to_ns, .base = false },
				    .key = key,
				    .times = by_slot };
	struct fleet *f = ctx;
	struct batches batches = { .n = 0 };
	struct uw_bytes b = { .err = 0 };
	struct fleet_type type = { .id = 0 };
	char *text = NULL, value[4096];
	int err = prepare(f, &asked, &type, &batches);

	if (err)
		return fail(reply, err);
	*type_name = f->type;
	*unit = f->unit;
	err = read_points(f, &asked, &batches, &text, &b);
	while (!err && !uw_bytes_done(&b)) {
		struct history_point sum = { .start_ns = uw_bytes_u64(&b) * SECOND_NS };
		int64_t n;

		sql_take_short(&b, value, sizeof(value));
		n = (int64_t)uw_bytes_u64(&b);
		sum.value = (int64_t)uw_bytes_u64(&b);
		sum.n = (uint64_t)n;
		sum.value = type.counted ? n : sum.value;
		sum.end_ns = sum.start_ns + batches.slot_s * SECOND_NS;
		if (!by_slot) {
			sum.start_ns = range->from_ns;
			sum.end_ns = range->to_ns;
		}
		if (b.err || sum.start_ns < range->from_ns || sum.start_ns >= range->to_ns)
			err = -EBADMSG;
		else
			err = fn(to, &sum, key && !strcmp(key, "stop") && !*value ? "root" : value);
	}
	free(text);
	return fail(reply, err ? err : b.err);
}

/* ---- what there is ------------------------------------------------------------------------ */

static int keys(void *ctx, struct http_reply *reply, history_key_fn fn, void *to)
{
	struct uw_bytes b = { .err = 0 };
	char *text = NULL, key[256];
	struct sql q;
	int err = sql_begin(&q);

	if (err)
		return fail(reply, err);
	query_keys(q.out);
	err = sql_ask(&q, ctx, reply, NULL, &text, &b);
	if (!err)
		fn(to, "host"); /* a column of its own */
	while (!err && !uw_bytes_done(&b)) {
		sql_take_short(&b, key, sizeof(key));
		if (!b.err && *key && strcmp(key, "host") != 0)
			fn(to, key);
	}
	free(text);
	return fail(reply, err ? err : b.err);
}

static int types(void *ctx, struct http_reply *reply, history_key_fn fn, void *to)
{
	struct uw_bytes b = { .err = 0 };
	char *text = NULL, type[256], unit[256], counts[256];
	struct sql q;
	int err = sql_begin(&q);

	if (err)
		return fail(reply, err);
	query_types(q.out);
	err = sql_ask(&q, ctx, reply, NULL, &text, &b);
	while (!err && !uw_bytes_done(&b)) {
		(void)uw_bytes_u32(&b);
		sql_take_short(&b, type, sizeof(type));
		sql_take_short(&b, unit, sizeof(unit));
		sql_take_short(&b, counts, sizeof(counts));
		if (!b.err && *counts)
			fn(to, counts);
		if (!b.err)
			fn(to, type);
	}
	free(text);
	return fail(reply, err ? err : b.err);
}

static int counters(void *ctx, struct http_reply *reply, const struct api_range *range,
		    history_counter_fn fn, void *to)
{
	struct uw_bytes b = { .err = 0 };
	char *text = NULL, what[64], reason[256];
	struct sql q;
	int err = sql_begin(&q);

	if (err)
		return fail(reply, err);
	query_counters(q.out,
		       &(struct condition_range){ range->from_ns, range->to_ns, .base = false });
	err = sql_ask(&q, ctx, reply, NULL, &text, &b);
	while (!err && !uw_bytes_done(&b)) {
		struct history_counter one = { .what = what, .reason = reason };

		sql_take_short(&b, what, sizeof(what));
		sql_take_short(&b, reason, sizeof(reason));
		one.n = (int64_t)uw_bytes_u64(&b);
		if (!b.err)
			fn(to, &one);
	}
	free(text);
	return fail(reply, err ? err : b.err);
}

struct api_remote fleet_remote(struct fleet *f)
{
	if (!f->n_rows)
		f->n_rows = FLEET_ROWS;
	return (struct api_remote){ .ctx = f,
				    .read = read_profile,
				    .scan = scan,
				    .keys = keys,
				    .types = types,
				    .counters = counters,
				    .slot = slot };
}
