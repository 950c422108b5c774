/* agent/cmd/exports.c: reads where windows are sent. */
#include "agent/cmd/exports.h"

#include "agent/cli/input.h"
#include "agent/http/curl.h"
#include "agent/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SECTION	   "export "
#define NAME_CHARS " abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"

enum { TIMEOUT_S = 30, TIMEOUT_MAX_S = 600, INTERVAL_MAX_S = 3600 };

bool exports_is_section(const char *section)
{
	return !strncmp(section, SECTION, sizeof(SECTION) - 1);
}

/* Find the kind that a name begins with: "otlp", or "otlp east". */
static const struct target_kind *kind_of(const char *name)
{
	char kind[SENDING_NAME], known[128];
	const struct target_kind *found;
	size_t n = strcspn(name, " ");

	if (strlen(name) >= SENDING_NAME || strspn(name, NAME_CHARS) != strlen(name)) {
		log_error("'%s' is no name of an export: letters, digits, '_', '.' and '-' are "
			  "expected, %d at most",
			  name, SENDING_NAME - 1);
		return NULL;
	}
	memcpy(kind, name, n);
	kind[n] = '\0';
	found = target_kind_find(kind);
	if (!found) {
		target_kind_names(known, sizeof(known));
		log_error("there is no kind of export '%s'; there are: %s", kind, known);
	}
	return found;
}

/* Find or add the export with a name. NULL after reporting why there cannot be one. */
static struct export *find(struct exports *e, const char *name, int line)
{
	const struct target_kind *kind;

	for (size_t i = 0; i < e->n; i++)
		if (!strcmp(e->all[i].target.name, name))
			return &e->all[i];
	kind = kind_of(name);
	if (!kind)
		return NULL;
	if (e->n == SENDING_TARGETS) {
		log_error("there are more than %d exports", SENDING_TARGETS);
		return NULL;
	}
	e->all[e->n] = (struct export){
		.line = line,
		.target = { .kind = kind, .timeout_s = TIMEOUT_S },
	};
	(void)strcpy(e->all[e->n].target.name, name); /* kind_of looked at its length */
	return &e->all[e->n++];
}

static int keep(char **to, const char *value)
{
	char *copy = strdup(value);

	if (!copy)
		return -ENOMEM;
	free(*to);
	*to = copy;
	return 0;
}

static int take_url(struct target *t, const char *value)
{
	const char *host = strstr(value, "://");
	char shown[CURL_SHOWN];

	if ((strncasecmp(value, "http://", 7) != 0 && strncasecmp(value, "https://", 8) != 0) ||
	    !host[3] || host[3] == '/' || strchr(value, ' ')) {
		log_error("'%s' is no URL: http://HOST:PORT or https://HOST:PORT is expected",
			  curl_shown(value, shown));
		return -EINVAL;
	}
	return keep(&t->url, value);
}

static int take_header(struct target *t, const char *value)
{
	const char *colon = strchr(value, ':');

	if (!colon || colon == value || strcspn(value, " \t") < (size_t)(colon - value)) {
		log_error("'%s' is no header: NAME: VALUE is expected", value);
		return -EINVAL;
	}
	if (t->n_headers == TARGET_HEADERS) {
		log_error("there are more than %d headers", TARGET_HEADERS);
		return -E2BIG;
	}
	return keep(&t->headers[t->n_headers++], value);
}

static int take_version(struct target *t, const char *value)
{
	if (!*value || strspn(value, "0123456789") != strlen(value)) {
		log_error("'%s' is no version: a number is expected", value);
		return -EINVAL;
	}
	return keep(&t->version, value);
}

static int take_timeout(struct target *t, const char *value)
{
	uint64_t ns;
	int err = input_duration("timeout", value, TIMEOUT_MAX_S * UINT64_C(1000000000), &ns);

	if (!err)
		t->timeout_s = ns < UINT64_C(1000000000) ? 1 : (uint32_t)(ns / 1000000000);
	return err;
}

static int take_yes(bool *to, const char *value)
{
	if (strcmp(value, "yes") != 0 && strcmp(value, "no") != 0) {
		log_error("'%s' is neither yes nor no", value);
		return -EINVAL;
	}
	*to = !strcmp(value, "yes");
	return 0;
}

static int take_names(struct target *t, const char *value)
{
	bool names = true;
	int err = take_yes(&names, value);

	t->no_names = !names;
	return err;
}

static int take_protocol(struct target *t, const char *value)
{
	bool grpc = !strcmp(value, "grpc");

	if (!grpc && strcmp(value, "http") != 0) {
		log_error("'%s' is no protocol: http or grpc is expected", value);
		return -EINVAL;
	}
	t->grpc = grpc;
	return 0;
}

static int take_interval(struct target *t, const char *value)
{
	uint64_t ns;
	int err = input_duration("interval", value, INTERVAL_MAX_S * UINT64_C(1000000000), &ns);

	if (!err &&
	    (ns < UINT64_C(1000000000) || INTERVAL_MAX_S % (ns / UINT64_C(1000000000)) != 0)) {
		log_error("interval is a part of an hour: 10s, 1m, 5m, 1h, not '%s'", value);
		err = -EINVAL;
	}
	if (!err)
		t->slot_s = (uint32_t)(ns / UINT64_C(1000000000));
	return err;
}

int exports_take(struct exports *e, const char *section, const char *name, const char *value,
		 int line)
{
	struct export *x = find(e, section + sizeof(SECTION) - 1, line);
	struct target *t = x ? &x->target : NULL;

	if (!x)
		return -EINVAL;
	if (!strcmp(name, "url"))
		return take_url(t, value);
	if (!strcmp(name, "header"))
		return take_header(t, value);
	if (!strcmp(name, "ca-file"))
		return keep(&t->ca_file, value);
	if (!strcmp(name, "timeout"))
		return take_timeout(t, value);
	if (t->kind->has_grpc && !strcmp(name, "protocol"))
		return take_protocol(t, value);
	if (!strcmp(name, "host"))
		return keep(&t->host, value);
	if (t->kind->has_batches && !strcmp(name, "interval"))
		return take_interval(t, value);
	if (t->kind->has_batches && !strcmp(name, "names"))
		return take_names(t, value);
	if (t->kind->has_version && !strcmp(name, "development-version"))
		return take_version(t, value);
	if (t->kind->has_times && !strcmp(name, "times"))
		return take_yes(&t->times, value);
	if (t->kind->has_debuginfo && !strcmp(name, "debuginfo"))
		return take_yes(&t->debuginfo, value);
	if (t->kind->has_htlhash && !strcmp(name, "htlhash"))
		return take_yes(&t->htlhash, value);
	if (!strcmp(name, "token-file")) {
		x->token_line = line;
		return keep(&x->token_file, value);
	}
	log_error("there is no setting '%s' in [%s]", name, section);
	return -EINVAL;
}

int exports_add(struct exports *e, const char *text)
{
	char name[SENDING_NAME];
	size_t n = strcspn(text, "=");
	struct export *x;

	if (!text[n] || !n || n >= sizeof(name)) {
		log_error("--export takes KIND=URL, not '%s'", text);
		return -EINVAL;
	}
	memcpy(name, text, n);
	name[n] = '\0';
	x = find(e, name, 0);
	return x ? take_url(&x->target, text + n + 1) : -EINVAL;
}

int exports_check(const struct export *e)
{
	if (e->target.url)
		return 0;
	log_error("[export %s] has no url", e->target.name);
	return -EINVAL;
}

static void export_fini(struct export *e)
{
	target_fini(&e->target);
	free(e->token_file);
}

void exports_move(struct exports *e, struct exports *file)
{
	for (size_t i = 0; i < file->n; i++) {
		bool has = e->n == SENDING_TARGETS;

		for (size_t j = 0; j < e->n; j++)
			has |= !strcmp(e->all[j].target.name, file->all[i].target.name);
		if (has)
			export_fini(&file->all[i]);
		else
			e->all[e->n++] = file->all[i];
	}
	file->n = 0;
}

static bool is_same_text(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

static bool is_same(const struct export *x, const struct export *y)
{
	const struct target *a = &x->target, *b = &y->target;
	bool same = !strcmp(a->name, b->name) && is_same_text(a->url, b->url) &&
		    is_same_text(a->ca_file, b->ca_file) && is_same_text(a->version, b->version) &&
		    is_same_text(a->host, b->host) && a->slot_s == b->slot_s &&
		    is_same_text(x->token_file, y->token_file) && a->timeout_s == b->timeout_s &&
		    a->grpc == b->grpc && a->debuginfo == b->debuginfo &&
		    a->no_names == b->no_names && a->times == b->times &&
		    a->htlhash == b->htlhash && a->n_headers == b->n_headers;

	for (size_t i = 0; same && i < a->n_headers; i++)
		same = !strcmp(a->headers[i], b->headers[i]);
	return same;
}

bool exports_are_same(const struct exports *a, const struct exports *b)
{
	bool same = a->n == b->n;

	for (size_t i = 0; same && i < a->n; i++)
		same = is_same(&a->all[i], &b->all[i]);
	return same;
}

void exports_fini(struct exports *e)
{
	for (size_t i = 0; i < e->n; i++)
		export_fini(&e->all[i]);
	e->n = 0;
}
