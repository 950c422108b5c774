/* agent/http/api_routes.c: leads a request to what answers it, and refuses arguments that nothing reads. */
#include "agent/http/api_internal.h"

#include "agent/http/openapi.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SECONDS_DEFAULT = 10 };

static void get_openapi(struct api *api, const struct http_request *r, struct http_reply *reply)
{
	(void)api;
	(void)r;
	reply->type = "application/yaml";
	for (size_t i = 0; i < sizeof(openapi_text) / sizeof(openapi_text[0]); i++)
		(void)fputs(openapi_text[i], reply->out);
}

#define RANGE  "from to "
#define STACKS RANGE "type focus ignore module KEY "
#define BASE   "base_from base_to base.KEY "
#define POINTS RANGE "type focus KEY "
#define EVENTS "off-cpu event uprobe alloc "

/* docs/openapi.yaml describes each of these; tests/live/daemon_api.mjs compares the two. */
static const struct {
	const char *method, *path; /* that ends with a slash: all paths below it, too */
	const char *arguments;	   /* words; KEY: any label, base.KEY: any label of the base */
	void (*answer)(struct api *api, const struct http_request *r, struct http_reply *reply);
	bool remote; /* a store of many hosts can answer, too */
} routes[] = {
	{ "GET", "/", "", api_page, true },
	{ "GET", "/debug/pprof/profile", STACKS "hide seconds format times", api_profile, false },
	{ "GET", "/api/v1/profile", STACKS "hide format times", api_profile, true },
	{ "GET", "/api/v1/flamegraph", STACKS BASE "hide by title cut", api_flamegraph, true },
	{ "GET", "/api/v1/top", STACKS BASE "hide by sort n", api_top, true },
	{ "GET", "/api/v1/labels", POINTS "key n", api_labels, true },
	{ "GET", "/api/v1/timeline", POINTS "step by n", api_timeline, true },
	{ "GET", "/api/v1/heatmap", POINTS "step rows", api_heatmap, true },
	{ "GET", "/api/v1/completeness", STACKS, api_completeness, true },
	{ "GET", "/api/v1/samples", STACKS "n", api_samples, false },
	{ "GET", "/api/v1/explain", "time_ns type focus ignore module KEY n", api_explain, false },
	{ "GET", "/api/v1/counters", RANGE, api_counters, true },
	{ "POST", "/api/v1/record", EVENTS "seconds freq format type KEY", api_record, false },
	{ "POST", "/api/v1/query", "format", api_query, false },
	{ "GET", "/api/v1/unwind/", "n", api_unwind, false },
	{ "GET", "/api/v1/openapi.yaml", "", get_openapi, true },
	{ "GET", "/metrics", "", api_metrics, false },
	{ "GET", "/healthz", "", api_health, true },
	{ "GET", "/readyz", "", api_ready, true },
};

enum { N_ROUTES = sizeof(routes) / sizeof(routes[0]) };

/* Return whether a word is one of those that blanks separate. */
static bool has_word(const char *words, const char *word)
{
	size_t size = strlen(word);

	for (const char *at = words + strspn(words, " "); *at; at += strspn(at, " ")) {
		size_t n = strcspn(at, " ");

		if (n == size && !strncmp(at, word, n))
			return true;
		at += n;
	}
	return false;
}

static bool is_label_key(const char *key)
{
	return *key && key[strspn(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				       "0123456789_.-")] == '\0';
}

const char *api_base_key(const struct http_argument *a)
{
	return strncmp(a->key, "base.", 5) != 0 ? NULL : a->key + 5;
}

bool api_is_label(const struct http_argument *a)
{
	if (api_base_key(a) || !is_label_key(a->key))
		return false;
	/* A label has the same name everywhere. */
	for (size_t i = 0; i < N_ROUTES; i++)
		if (has_word(routes[i].arguments, a->key))
			return false;
	return true;
}

/* Refuse an argument that would have no effect. */
static int check_arguments(const char *known, const struct http_request *r,
			   struct http_reply *reply)
{
	for (size_t i = 0; i < r->n_arguments; i++) {
		const struct http_argument *a = &r->arguments[i];
		const char *base = api_base_key(a);

		if (!*a->key && !*a->value) /* of "?" or "&&" */
			continue;
		if (base ? has_word(known, "base.KEY") && is_label_key(base)
			 : has_word(known, a->key) || (has_word(known, "KEY") && api_is_label(a)))
			continue;
		return http_fail(reply, 400, "%.100s takes no argument '%.40s'", r->path, a->key);
	}
	return 0;
}

uint32_t api_seconds(const struct http_request *r)
{
	struct http_reply ignored;
	uint64_t seconds = SECONDS_DEFAULT;

	/* What is wrong is said when the request is answered, at once. */
	if (strcmp(r->path, "/debug/pprof/profile") != 0 || strcmp(r->method, "GET") != 0 ||
	    http_argument(r, "from") || http_argument(r, "to") ||
	    api_number(r, &ignored, "seconds", 1, API_SECONDS_MAX, &seconds))
		return 0;
	return (uint32_t)seconds;
}

/* Return whether a path is that of a route, or below one that ends with a slash. */
static bool is_route(const char *route, const char *path)
{
	size_t n = strlen(route);

	return route[n - 1] == '/' && n > 1 ? !strncmp(path, route, n) : !strcmp(path, route);
}

/* Return whether a route answers a method. HEAD is answered as GET; what sends the reply leaves its content out. */
static bool takes(const char *route, const char *method)
{
	return !strcmp(method, route) || (!strcmp(method, "HEAD") && !strcmp(route, "GET"));
}

void api_answer(struct api *api, const struct http_request *r, struct http_reply *reply)
{
	bool there = false, elsewhere = false;

	reply->status = 200;
	reply->type = "application/json";
	for (size_t i = 0; i < N_ROUTES; i++) {
		if (!is_route(routes[i].path, r->path))
			continue;
		there = true;
		if (!takes(routes[i].method, r->method)) {
			reply->allow = *routes[i].method == 'G' ? "GET, HEAD" : routes[i].method;
			continue;
		}
		elsewhere = api->remote && !routes[i].remote;
		if (elsewhere)
			continue;
		if (!check_arguments(routes[i].arguments, r, reply))
			routes[i].answer(api, r, reply);
		return;
	}
	(void)http_fail(reply, there && !elsewhere ? 405 : 404,
			elsewhere ? "a fleet has no %.400s: ask the host itself"
			: there	  ? "%.400s takes another method"
				  : "there is no %.400s",
			r->path);
}
