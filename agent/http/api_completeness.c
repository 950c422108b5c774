/* agent/http/api_completeness.c: where stacks end that are not whole. */
#include "agent/http/api_internal.h"

#include "agent/array.h"
#include "agent/export/json.h"
#include "agent/export/profile/ranking.h"
#include "agent/hash.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Where stacks end: the outermost frame's module, and the reason; "" if they are whole. */
struct ending {
	const char *module, *stop;
	int64_t value;
};

struct endings {
	struct ending *rows;
	size_t n, room;
	struct uw_hash_index index;
	int64_t all;
};

static int count_ending(struct endings *e, const char *module, const char *stop, int64_t value)
{
	/* Equal texts of one profile are one pointer. */
	uint64_t hash = hash_u64((uint64_t)(uintptr_t)module, (uint64_t)(uintptr_t)stop);
	uint32_t i = UW_HASH_FIND(at, &e->index, hash,
				  e->rows[at].module == module && e->rows[at].stop == stop);
	int err = 0;

	e->all = stacks_sum(e->all, value);
	if (i == UW_HASH_NONE) {
		err = array_grow(e->rows, e->n, e->room);
		if (!err)
			err = uw_hash_add(&e->index, hash, (uint32_t)e->n);
		if (err)
			return err;
		i = (uint32_t)e->n++;
		e->rows[i] = (struct ending){ .module = module, .stop = stop };
	}
	e->rows[i].value = stacks_sum(e->rows[i].value, value);
	return 0;
}

static int count_endings(struct endings *e, const struct stacks *s, size_t type)
{
	int err = 0;

	for (size_t i = 0; i < s->n_samples && !err; i++) {
		const struct stacks_sample *sample = &s->samples[i];
		const struct stacks_label *stop = stacks_label(s, sample, "stop");
		bool whole = !stop || !stop->text || !strcmp(stop->text, "no_user_state");
		size_t last = sample->first_location + sample->n_locations;
		const char *module = s->empty;

		if (!whole && sample->n_locations)
			module = s->modules[s->locations[s->location_ids[last - 1]].module].path;
		err = count_ending(e, module, whole ? s->empty : stop->text,
				   stacks_value(s, i, type));
	}
	return err;
}

static int compare_endings(const void *a, const void *b) /* for qsort */
{
	const struct ending *x = a, *y = b;
	bool x_whole = !*x->stop, y_whole = !*y->stop;

	return x_whole != y_whole     ? (x_whole ? -1 : 1)
	       : x->value != y->value ? (x->value < y->value ? 1 : -1)
				      : strcmp(x->module, y->module);
}

static void put_endings(const struct endings *e, const char *type, FILE *out)
{
	(void)fputc('[', out);
	for (size_t i = 0; i < e->n; i++) {
		bool whole = !*e->rows[i].stop;

		(void)fputs(i ? ",\n{\"module\":" : "\n{\"module\":", out);
		json_text(out, whole		    ? "(whole)"
			       : *e->rows[i].module ? e->rows[i].module
						    : "(none)");
		(void)fputs(",\"stop\":", out);
		json_text(out, e->rows[i].stop);
		(void)fputc(',', out);
		json_text(out, type);
		(void)fprintf(out, ":%" PRId64 ",\"share\":\"%.2f%%\"}", e->rows[i].value,
			      ranking_percent(e->rows[i].value, e->all));
	}
	(void)fputs("\n]\n", out);
}

void api_completeness(struct api *api, const struct http_request *r, struct http_reply *reply)
{
	struct endings endings = { .n = 0 };
	struct api_profile p;
	int err;

	if (api_load(api, r, reply, &(struct api_wanted){ .key = "stop" }, &p))
		return;
	err = count_endings(&endings, p.stacks, p.type);
	if (err)
		(void)api_failed(reply, err);
	if (!err && endings.n)
		qsort(endings.rows, endings.n, sizeof(*endings.rows), compare_endings);
	if (!err)
		put_endings(&endings, p.stacks->types[p.type].type, reply->out);
	free(endings.rows);
	uw_hash_fini(&endings.index);
	stacks_free(p.stacks);
}
