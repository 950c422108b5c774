/* agent/http/api.c: answers the requests for the history. */
#include "agent/http/api.h"

#include "agent/cli/selection.h"
#include "agent/cli/when.h"
#include "agent/export/formats.h"
#include "agent/export/json.h"
#include "agent/export/profile/flame.h"
#include "agent/export/profile/ranking_json.h"
#include "agent/http/api_internal.h"
#include "agent/textbuf.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BASE_NAME = 512 };

const char *http_argument(const struct http_request *r, const char *key)
{
	for (size_t i = 0; i < r->n_arguments; i++)
		if (!strcmp(r->arguments[i].key, key))
			return r->arguments[i].value;
	return NULL;
}

int http_fail(struct http_reply *reply, unsigned int status, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	(void)vsnprintf(reply->error, sizeof(reply->error), format, args);
	va_end(args);
	reply->status = status;
	return -EINVAL;
}

int api_failed(struct http_reply *reply, int err)
{
	if (err == -EFBIG)
		return http_fail(reply, 413,
				 "this time has too many different stacks: choose a shorter one");
	return http_fail(reply, err == -ENOMEM ? 503 : 500, "the history cannot be read: %s",
			 strerror(-err));
}

/* ---- arguments --------------------------------------------------------------------------- */

int api_number(const struct http_request *r, struct http_reply *reply, const char *key,
	       uint64_t least, uint64_t most, uint64_t *value)
{
	const char *text = http_argument(r, key);
	char *end;
	unsigned long long number;

	if (!text)
		return 0;
	errno = 0;
	number = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || number < least || number > most)
		return http_fail(reply, 400,
				 "%s takes a number from %" PRIu64 " to %" PRIu64 ", not '%.40s'",
				 key, least, most, text);
	*value = number;
	return 0;
}

int api_range(const struct http_request *r, struct http_reply *reply, struct api_range *out)
{
	const char *from = http_argument(r, "from"), *to = http_argument(r, "to");

	if (when_parse(from ? from : "-5m", r->now_ns, &out->from_ns))
		return http_fail(reply, 400,
				 "from takes a time such as -10m or 1790000000.5, not '%.40s'",
				 from ? from : "");
	if (when_parse(to ? to : "now", r->now_ns, &out->to_ns))
		return http_fail(reply, 400,
				 "to takes a time such as -5m or 1790000000.5, not '%.40s'",
				 to ? to : "");
	if (out->to_ns <= out->from_ns)
		return http_fail(reply, 400, "to is not after from");
	return 0;
}

/* Read the range of the base: base_from and base_to, each by default that of the profile. */
static int base_range(const struct http_request *r, struct http_reply *reply,
		      const struct api_range *profile, struct api_range *out)
{
	const char *from = http_argument(r, "base_from"), *to = http_argument(r, "base_to");

	*out = *profile;
	if (from && when_parse(from, r->now_ns, &out->from_ns))
		return http_fail(reply, 400, "base_from takes a time, not '%.40s'", from);
	if (to && when_parse(to, r->now_ns, &out->to_ns))
		return http_fail(reply, 400, "base_to takes a time, not '%.40s'", to);
	if (out->to_ns <= out->from_ns)
		return http_fail(reply, 400, "base_to is not after base_from");
	return 0;
}

/* What a request asks of samples; not copied, as it is large. */
struct conditions {
	struct selection selection;
	char *texts[HTTP_ARGUMENTS]; /* that the selection refers to; owned */
};

static void conditions_free(struct conditions *c)
{
	for (size_t i = 0; c && i < HTTP_ARGUMENTS; i++)
		free(c->texts[i]);
	if (c)
		selection_fini(&c->selection);
	free(c);
}

/* Read the conditions on functions, and those on labels of the profile or of the base. */
static int take_conditions(const struct http_request *r, struct http_reply *reply, bool base,
			   struct conditions *c)
{
	struct selection *out = &c->selection;
	char **texts = c->texts, why[SELECTION_WHY] = "";
	int err = 0;

	out->why = why;
	for (size_t i = 0; i < r->n_arguments && !err; i++) {
		const struct http_argument *a = &r->arguments[i];
		bool focus = !strcmp(a->key, "focus"), ignore = !strcmp(a->key, "ignore");
		bool module = !strcmp(a->key, "module");
		const char *key = base ? api_base_key(a) : api_is_label(a) ? a->key : NULL;

		if (!focus && !ignore && !module && !key)
			continue;
		if (focus || ignore || module)
			texts[i] = strdup(a->value);
		else if (asprintf(&texts[i], "%s=%s", key, a->value) < 0)
			texts[i] = NULL;
		if (!texts[i])
			return http_fail(reply, 503, "there is no memory");
		err = focus    ? selection_focus(out, a->key, texts[i])
		      : ignore ? selection_ignore(out, a->key, texts[i])
		      : module ? selection_module(out, a->key, texts[i])
			       : selection_any_label(out, a->key, texts[i]);
		if (err)
			return http_fail(reply, 400, "%s: '%.100s' is no valid condition%s%s",
					 a->key, a->value, *why ? ": " : "", why);
	}
	out->why = NULL;
	return 0;
}

/* ---- profiles ---------------------------------------------------------------------------- */

/* Return whether samples of different processes or threads must be told apart. */
static bool needs_threads(const char *key, const struct selection *conditions)
{
	const char *const keys[] = { "*", "pid", "tid", "thread" };

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		if (key && !strcmp(key, keys[i]))
			return true;
		for (size_t k = 0; k < conditions->n_labels; k++)
			if (!strcmp(conditions->labels[k].key, keys[i]))
				return true;
	}
	return false;
}

/* Add the samples of a range that meet the conditions to a profile. The reply says what goes wrong. */
static int load_range(struct api *api, const struct http_request *r, struct http_reply *reply,
		      const struct history_query *query, const struct api_wanted *wanted,
		      struct stacks *s, struct history_found *found)
{
	struct conditions *c;
	struct history_query asked = *query;
	int err;

	if (api->remote)
		return api->remote->read(api->remote->ctx, r, reply, query, wanted->key,
					 !wanted->no_frames, s, found);
	c = calloc(1, sizeof(*c));
	err = c ? take_conditions(r, reply, query->base, c)
		: http_fail(reply, 503, "there is no memory");
	if (!err) {
		asked.labels = asked.labels || c->selection.n_labels;
		asked.no_threads = !needs_threads(wanted->key, &c->selection);
		err = history_read(api->history, &asked, s, found);
		if (!err)
			err = selection_apply_to(&c->selection, s, query->base);
		if (err)
			(void)api_failed(reply, err);
	}
	conditions_free(c);
	return err;
}

int api_load(struct api *api, const struct http_request *r, struct http_reply *reply,
	     const struct api_wanted *wanted, struct api_profile *out)
{
	const char *type = http_argument(r, "type");
	int err;

	out->stacks = NULL;
	err = api_range(r, reply, &out->range);
	if (!err && stacks_new(&out->stacks))
		err = http_fail(reply, 503, "there is no memory");
	if (!err) {
		const struct history_query query = { .from_ns = out->range.from_ns,
						     .to_ns = out->range.to_ns,
						     .labels = wanted->key != NULL,
						     .times = wanted->times,
						     .parts = wanted->parts };

		err = load_range(api, r, reply, &query, wanted, out->stacks, &out->found);
	}
	if (!err) {
		out->type = type ? stacks_find_type(out->stacks, type) : out->stacks->default_type;
		if (!out->stacks->n_types)
			err = http_fail(reply, 404, "the history is empty");
		else if (out->type >= out->stacks->n_types)
			err = http_fail(reply, 400, "there is no sample type '%.40s'", type);
	}
	if (err) {
		stacks_free(out->stacks);
		out->stacks = NULL;
	}
	return err;
}

/* Leave out the interpreters' own frames, if the request says so. */
static int hide_frames(const struct http_request *r, struct http_reply *reply,
		       struct stacks *stacks)
{
	const char *hide = http_argument(r, "hide");
	int err;

	if (!hide)
		return 0;
	if (strcmp(hide, "interpreters") != 0)
		return http_fail(reply, 400, "hide is interpreters, not '%.40s'", hide);
	err = stacks_hide_interpreters(stacks);
	if (err)
		(void)api_failed(reply, err);
	return err;
}

/* Read into how many parts the whole is cut, of which functions that have less are not told apart; 0: it is not cut. */
static int read_cut(struct api *api, const struct http_request *r, struct http_reply *reply,
		    uint32_t *out)
{
	uint64_t parts = 0;

	if (api_number(r, reply, "cut", 2, 1000000, &parts))
		return -EINVAL;
	/* What is left after that would have other parts, or is not one whole. */
	for (size_t i = 0; parts && i < r->n_arguments; i++) {
		const char *key = r->arguments[i].key;

		if (api->remote || api_is_label(&r->arguments[i]) || !strncmp(key, "base", 4) ||
		    !strcmp(key, "focus") || !strcmp(key, "ignore") || !strcmp(key, "module") ||
		    !strcmp(key, "hide"))
			return http_fail(reply, 400, "cut is not possible with %.40s",
					 api->remote ? "a store of many hosts" : key);
	}
	*out = (uint32_t)parts;
	return 0;
}

/* Append a time to a text. */
static void add_time(char *text, size_t size, uint64_t time_ns)
{
	time_t when = (time_t)(time_ns / 1000000000);
	char words[32];
	struct tm tm;

	if (gmtime_r(&when, &tm) && strftime(words, sizeof(words), "%FT%TZ", &tm))
		textbuf_add(text, size, "%s", words);
}

/*
 * Do what api_load does, and add the base to compare with, if the request has one. Its description is
 * written into name: "" if there is none. Frames are hidden when all samples are there.
 */
static int load_both(struct api *api, const struct http_request *r, struct http_reply *reply,
		     const struct api_wanted *wanted_samples, struct api_profile *p,
		     char name[BASE_NAME])
{
	bool wanted = http_argument(r, "base_from") || http_argument(r, "base_to");
	struct history_query query = { .labels = wanted_samples->key != NULL, .base = true };
	struct history_found found;
	struct api_range range;
	int err = api_load(api, r, reply, wanted_samples, p);

	*name = '\0';
	for (size_t i = 0; i < r->n_arguments; i++)
		wanted = wanted || api_base_key(&r->arguments[i]);
	if (err)
		return err;
	if (wanted)
		err = base_range(r, reply, &p->range, &range);
	if (wanted && !err) {
		query.from_ns = range.from_ns;
		query.to_ns = range.to_ns;
		err = load_range(api, r, reply, &query, wanted_samples, p->stacks, &found);
	}
	if (!err)
		err = hide_frames(r, reply, p->stacks);
	if (err) {
		stacks_free(p->stacks);
		return err;
	}
	if (!wanted)
		return 0;
	add_time(name, BASE_NAME, range.from_ns);
	textbuf_add(name, BASE_NAME, " to ");
	add_time(name, BASE_NAME, range.to_ns);
	for (size_t i = 0; i < r->n_arguments; i++)
		if (api_base_key(&r->arguments[i]))
			textbuf_add(name, BASE_NAME, ", %s=%s", api_base_key(&r->arguments[i]),
				    r->arguments[i].value);
	return 0;
}

const char *api_type_of(enum format format)
{
	return format == FORMAT_PPROF	  ? "application/octet-stream"
	       : format == FORMAT_FOLDED  ? "text/plain; charset=utf-8"
	       : format == FORMAT_TEXT	  ? "text/plain; charset=utf-8"
	       : format == FORMAT_TSV	  ? "text/tab-separated-values; charset=utf-8"
	       : format == FORMAT_JSONL	  ? "application/x-ndjson"
	       : format == FORMAT_PARQUET ? "application/vnd.apache.parquet"
					  : "application/json";
}

int api_format(const struct http_request *r, struct http_reply *reply, enum format *out)
{
	const char *name = http_argument(r, "format");

	*out = FORMAT_PPROF;
	return name && format_find(name, out)
		       ? http_fail(reply, 400, "format is one of " FORMAT_NAMES ", not '%.40s'",
				   name)
		       : 0;
}

void api_profile(struct api *api, const struct http_request *r, struct http_reply *reply)
{
	enum format format;
	struct api_profile p;
	uint64_t seconds;
	int err;

	if (api_number(r, reply, "seconds", 1, API_SECONDS_MAX, &seconds) ||
	    api_format(r, reply, &format))
		return;
	if (api_load(api, r, reply,
		     &(struct api_wanted){ .key = "*", .times = http_argument(r, "times") != NULL },
		     &p))
		return;
	if (!hide_frames(r, reply, p.stacks)) {
		reply->type = api_type_of(format);
		reply->file = format_file(format);
		err = format_write(format, p.stacks, p.type, reply->out);
		if (err)
			(void)api_failed(reply, err);
	}
	stacks_free(p.stacks);
}

void api_flamegraph(struct api *api, const struct http_request *r, struct http_reply *reply)
{
	const char *by = http_argument(r, "by"), *title = http_argument(r, "title");
	struct api_wanted wanted = { .key = by && *by ? by : NULL };
	struct flame *flame = NULL;
	char base[BASE_NAME];
	struct api_profile p;
	int err;

	if (read_cut(api, r, reply, &wanted.parts) || load_both(api, r, reply, &wanted, &p, base))
		return;
	err = flame_new(p.stacks, p.type, by && *by ? by : NULL, &flame);
	if (!err) {
		const struct flame_page page = { .title = title ? title : "offwind",
						 .against = base };

		reply->type = "text/html; charset=utf-8";
		err = flame_write(flame, &page, reply->out);
	}
	if (err == -E2BIG)
		(void)http_fail(reply, 413,
				"the graph would have more than %d frames: choose a shorter time",
				FLAME_NODES);
	else if (err)
		(void)api_failed(reply, err);
	flame_free(flame);
	stacks_free(p.stacks);
}

static const char *const ranking_words[] = {
	[RANKING_SYMBOL] = "symbol",
	[RANKING_MODULE] = "module",
	[RANKING_SOURCE] = "source",
	[RANKING_PID] = "pid",
	[RANKING_COMM] = "comm",
	[RANKING_THREAD] = "thread",
	[RANKING_CONTAINER] = "container",
	[RANKING_STOP] = "stop",
	[RANKING_UNIT] = "unit",
	[RANKING_SERVICE] = "service",
	[RANKING_EXE] = "exe",
	[RANKING_USER] = "user",
	[RANKING_HOST] = "host",
	[RANKING_WAKER] = "waker",
};

void api_top(struct api *api, const struct http_request *r, struct http_reply *reply)
{
	const char *by = http_argument(r, "by"), *sort = http_argument(r, "sort");
	struct ranking_json options = { .sort = sort ? sort : "self" };
	struct ranking ranking = { .by = RANKING_SYMBOL };
	size_t n_words = sizeof(ranking_words) / sizeof(ranking_words[0]), i = 0;
	uint64_t n = 30;
	bool by_total = !strcmp(options.sort, "total"), by_change = !strcmp(options.sort, "change");
	char base[BASE_NAME];
	struct api_profile p;
	int err;

	while (by && i < n_words && strcmp(by, ranking_words[i]) != 0)
		i++;
	if (i == n_words) {
		(void)http_fail(reply, 400,
				"by is one of symbol, module, source, pid, comm, thread, "
				"container, stop, unit, service, exe, user, host and waker");
		return;
	}
	if (strcmp(options.sort, "self") != 0 && !by_total && !by_change) {
		(void)http_fail(reply, 400, "sort is self, total or change, not '%.40s'", sort);
		return;
	}
	if (api_number(r, reply, "n", 0, 1000000, &n) ||
	    load_both(api, r, reply,
		      &(struct api_wanted){ .key = ranking_label((enum ranking_by)i),
					    .no_frames = i > RANKING_SOURCE },
		      &p, base))
		return;
	options.base = *base ? base : NULL;
	ranking.by = (enum ranking_by)i;
	ranking.outside = true;
	options.n = (size_t)n;
	err = ranking_add(&ranking, p.stacks, p.type);
	if (err) {
		(void)api_failed(reply, err);
	} else {
		ranking_sort(&ranking, by_change  ? RANKING_BY_CHANGE
				       : by_total ? RANKING_BY_TOTAL
						  : RANKING_BY_SELF);
		ranking_json_print(p.stacks, p.type, &ranking, &options, reply->out);
	}
	ranking_fini(&ranking);
	stacks_free(p.stacks);
}

/* ---- counters ---------------------------------------------------------------------------- */

struct counters {
	FILE *out;
	char what[32];
};

static void put_counter(void *ctx, const struct history_counter *c)
{
	struct counters *to = ctx;
	bool grouped = *c->reason != '\0';

	if (strcmp(to->what, c->what) != 0) {
		(void)fputs(*to->what ? "},\n" : "", to->out);
		(void)snprintf(to->what, sizeof(to->what), "%s", c->what);
		json_text(to->out, c->what);
		(void)fputs(":{", to->out);
	} else {
		(void)fputc(',', to->out);
	}
	json_text(to->out, grouped ? c->reason : "all");
	(void)fprintf(to->out, ":%" PRId64, c->n);
}

void api_counters(struct api *api, const struct http_request *r, struct http_reply *reply)
{
	struct counters counters = { .out = reply->out };
	struct api_range range;
	int err;

	if (api_range(r, reply, &range))
		return;
	(void)fputc('{', reply->out);
	err = api->remote ? api->remote->counters(api->remote->ctx, reply, &range, put_counter,
						  &counters)
			  : history_counters(api->history, range.from_ns, range.to_ns, put_counter,
					     &counters);
	(void)fputs(*counters.what ? "}}\n" : "}\n", reply->out);
	if (err && reply->status == 200)
		(void)api_failed(reply, err);
}

/* ---- health ------------------------------------------------------------------------------ */

void api_health(struct api *api, const struct http_request *r, struct http_reply *reply)
{
	(void)api;
	(void)r;
	reply->type = "text/plain; charset=utf-8";
	(void)fputs("ok\n", reply->out);
}

/* Ready: what is recorded arrives, or the store of many hosts answers. */
void api_ready(struct api *api, const struct http_request *r, struct http_reply *reply)
{
	const struct api_range last = { r->now_ns - API_LATE_NS, r->now_ns };
	uint64_t newest = r->now_ns, slot_ns;

	if (!api->remote)
		newest = history_newest(api->history);
	else if (api->remote->slot(api->remote->ctx, reply, &last, &slot_ns))
		return;
	if (newest > r->now_ns + API_LATE_NS) {
		(void)http_fail(reply, 503,
				"the newest window ends in %" PRIu64
				" s: it was recorded when the clock was ahead",
				(newest - r->now_ns) / 1000000000);
		return;
	}
	if (newest + API_LATE_NS < r->now_ns) {
		(void)http_fail(reply, 503,
				newest ? "the newest window ended %" PRIu64 " s ago"
				       : "there is no window yet",
				(r->now_ns - newest) / 1000000000);
		return;
	}
	reply->type = "text/plain; charset=utf-8";
	(void)fputs("ready\n", reply->out);
}
