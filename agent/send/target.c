/* agent/send/target.c: the list of kinds of targets. */
#include "agent/send/target.h"

#include "agent/send/kinds.h"
#include "agent/textbuf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct target_kind *const kinds[] = { &target_otlp, &target_pyroscope, &target_parca,
						   &target_clickhouse };

#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

const struct target_kind *target_kind_find(const char *name)
{
	for (size_t i = 0; i < N_KINDS; i++)
		if (!strcmp(kinds[i]->name, name))
			return kinds[i];
	return NULL;
}

void target_kind_names(char *out, size_t size)
{
	*out = '\0';
	for (size_t i = 0; i < N_KINDS; i++)
		textbuf_add(out, size, "%s%s", i ? ", " : "", kinds[i]->name);
}

/* Copy a text; NULL has none. Return false if there is no memory. */
static bool copy(const char *from, char **to)
{
	*to = from ? strdup(from) : NULL;
	return *to || !from;
}

int target_copy(const struct target *from, struct target *to)
{
	bool copied;

	*to = *from;
	to->url = to->token = to->ca_file = to->version = to->host = NULL;
	to->n_headers = 0;
	copied = copy(from->url, &to->url) && copy(from->token, &to->token) &&
		 copy(from->ca_file, &to->ca_file) && copy(from->version, &to->version) &&
		 copy(from->host, &to->host);
	while (copied && to->n_headers < from->n_headers) {
		copied = copy(from->headers[to->n_headers], &to->headers[to->n_headers]);
		to->n_headers += copied;
	}
	return copied ? 0 : -ENOMEM;
}

void target_fini(struct target *t)
{
	for (size_t i = 0; i < t->n_headers; i++)
		free(t->headers[i]);
	free(t->url);
	free(t->token);
	free(t->ca_file);
	free(t->version);
	free(t->host);
	*t = (struct target){ .kind = NULL };
}
