/* agent/send/series.c: divides samples into series, and writes these as pprof. */
#include "agent/send/series.h"

#include "agent/array.h"
#include "agent/export/formats.h"
#include "agent/sanitize.h"
#include "agent/send/attributes.h"
#include "proto/gzip.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GZIP_LEVEL = 6 };

/* Labels that make a series; so do those that a program gives itself. The others are of processes and threads, which come and go. */
static const char *const making[] = {
	"host", "exe", "container_id", "container_runtime", "pod", "unit", "user_unit",
};

/* Return the series label that a label makes; NULL: none. out: for names that are put together. */
static const char *name_of(const struct send_window *w, const char *label, char out[SERIES_NAME])
{
	size_t n = 0;

	for (size_t i = 0; i < sizeof(making) / sizeof(making[0]); i++)
		if (!strcmp(making[i], label))
			return making[i];
	if (!strchr(label, '.') || !attribute_is_of_process(label, w->of_threads) ||
	    !strcmp(label, "service.name"))
		return NULL;
	/* Names have letters, digits and "_", and do not begin with a digit. */
	if (isdigit((unsigned char)*label))
		out[n++] = '_';
	for (; *label && n + 1 < SERIES_NAME; label++)
		out[n++] = isalnum((unsigned char)*label) ? *label : '_';
	out[n] = '\0';
	return out;
}

bool series_is_made_by(const struct send_window *w, const char *label)
{
	char name[SERIES_NAME];

	return name_of(w, label, name) || !strcmp(label, "service.name") || !strcmp(label, "comm");
}

static void put_label(struct series *s, const char *name, const char *value)
{
	size_t at = 0;

	while (at < s->n_labels && strcmp(s->labels[at].name, name) < 0)
		at++;
	if (!*value || s->n_labels == SERIES_LABELS ||
	    (at < s->n_labels && !strcmp(s->labels[at].name, name)))
		return;
	memmove(&s->labels[at + 1], &s->labels[at], (s->n_labels - at) * sizeof(s->labels[0]));
	(void)snprintf(s->labels[at].name, SERIES_NAME, "%s", name);
	s->labels[at].value = value;
	s->n_labels++;
}

/* Give a series its labels, by its first sample. */
static void name_series(const struct send_window *w, const struct stacks_sample *sample,
			struct series *s)
{
	char service[256], name[SERIES_NAME];
	bool has_host = false;

	/* What a program says of itself can be longer. It is cut between characters: receivers refuse what is no UTF-8. */
	(void)sanitize_text(attribute_service(w->stacks, sample, service), "", '?', s->service,
			    sizeof(s->service));
	put_label(s, "__name__", "process_cpu");
	put_label(s, "service_name", s->service);
	for (size_t i = 0; i < s->n_key; i++) {
		const struct stacks_label *l = &w->stacks->labels[s->key[i]];
		const char *as = name_of(w, l->key, name);

		has_host |= !strcmp(l->key, "host");
		if (as && l->text)
			put_label(s, as, l->text);
	}
	if (!has_host)
		put_label(s, "host", w->host);
}

static bool has_key(const struct series *s, const uint32_t *key, size_t n)
{
	return s->n_key == n && (!n || !memcmp(s->key, key, n * sizeof(*key)));
}

/*
 * Find the series of a sample, or add it. A program's name is part of what makes it where nothing else
 * names its service: threads of one program have one, processes without executable file their own.
 */
static int find(struct series_set *set, const struct send_window *w, size_t number, uint32_t *key,
		struct series **out)
{
	const struct stacks *stacks = w->stacks;
	const struct stacks_sample *sample = &stacks->samples[number];
	bool has_exe = stacks_label(stacks, sample, "exe") != NULL;
	struct series new = { .n = 0 };
	uint64_t hash;
	uint32_t at;
	int err;

	for (uint32_t i = 0; i < sample->n_labels; i++) {
		uint32_t id = stacks->label_ids[sample->first_label + i];
		const struct stacks_label *l = &stacks->labels[id];

		if (series_is_made_by(w, l->key) && (!has_exe || strcmp(l->key, "comm") != 0))
			key[new.n_key++] = id;
	}
	hash = hash_bytes(new.n_key, key, new.n_key * sizeof(*key));
	at = UW_HASH_FIND(i, &set->by_key, hash, has_key(&set->all[i], key, new.n_key));
	if (at != UW_HASH_NONE) {
		*out = &set->all[at];
		return 0;
	}
	err = array_grow(set->all, set->n, set->room);
	if (!err)
		err = uw_hash_add(&set->by_key, hash, (uint32_t)set->n);
	if (err)
		return err;
	new.key = calloc(new.n_key + 1, sizeof(*new.key));
	if (!new.key)
		return -ENOMEM;
	if (new.n_key)
		memcpy(new.key, key, new.n_key * sizeof(*key));
	set->all[set->n] = new;
	*out = &set->all[set->n++];
	name_series(w, sample, *out);
	return 0;
}

int series_make(const struct send_window *w, size_t from, size_t to, struct series_set *out)
{
	uint32_t *key = NULL, room = 0;
	int err = 0;

	*out = (struct series_set){ .n = 0 };
	for (size_t i = from; i < to; i++)
		if (w->stacks->samples[i].n_labels > room)
			room = w->stacks->samples[i].n_labels;
	key = calloc((size_t)room + 1, sizeof(*key));
	if (!key)
		err = -ENOMEM;
	for (size_t i = from; i < to && !err; i++) {
		struct series *s = NULL;

		err = find(out, w, i, key, &s);
		if (!err)
			err = array_grow(s->samples, s->n, s->room);
		if (!err)
			s->samples[s->n++] = i;
	}
	/* The array moved while it grew. */
	for (size_t i = 0; i < out->n; i++)
		for (size_t j = 0; j < out->all[i].n_labels; j++)
			if (!strcmp(out->all[i].labels[j].name, "service_name"))
				out->all[i].labels[j].value = out->all[i].service;
	free(key);
	return err;
}

void series_fini(struct series_set *set)
{
	for (size_t i = 0; i < set->n; i++) {
		free(set->all[i].samples);
		free(set->all[i].key);
	}
	free(set->all);
	uw_hash_fini(&set->by_key);
}

/* ---- pprof ------------------------------------------------------------------------------- */

/* Read all of a file that was written from its beginning. */
static int read_all(int fd, uint8_t **bytes, size_t *size)
{
	struct stat st;
	uint8_t *all;

	if (fstat(fd, &st))
		return -errno;
	all = malloc((size_t)st.st_size + 1);
	if (!all)
		return -ENOMEM;
	for (size_t at = 0; at < (size_t)st.st_size;) {
		ssize_t n = pread(fd, all + at, (size_t)st.st_size - at, (off_t)at);

		if (n <= 0) {
			free(all);
			return n ? -errno : -EIO;
		}
		at += (size_t)n;
	}
	*bytes = all;
	*size = (size_t)st.st_size;
	return 0;
}

/* Return how much of the default type a sample stands for, on average: the period of the clock. */
static int64_t period_of(const struct stacks *s, const struct series *series)
{
	size_t counted = stacks_find_type(s, "samples");
	int64_t n = 0, value = 0;

	if (counted == SIZE_MAX)
		return 0;
	for (size_t i = 0; i < series->n; i++) {
		n = stacks_sum(n, stacks_value(s, series->samples[i], counted));
		value = stacks_sum(value, stacks_value(s, series->samples[i], s->default_type));
	}
	return n > 0 && value > 0 ? value / n : 0;
}

int series_pprof(const struct send_window *w, const struct series *series,
		 const struct series_form *form, uint8_t **bytes, size_t *size)
{
	const struct stacks *s = w->stacks;
	const struct pprof_part part = { .samples = series->samples,
					 .n = series->n,
					 .has_label = form->has_label,
					 .ctx = w,
					 .depth = form->depth,
					 .time_ns = (int64_t)w->start_ns,
					 .duration_ns = (int64_t)(w->end_ns - w->start_ns),
					 .period = period_of(s, series) };
	int fd = memfd_create("pprof", MFD_CLOEXEC), err = fd < 0 ? -errno : 0;
	uint8_t *all = NULL;
	size_t n = 0;

	if (!err)
		err = format_pprof_part(s, &part, s->default_type, 0, fd);
	if (!err)
		err = read_all(fd, &all, &n);
	if (fd >= 0)
		(void)close(fd);
	if (!err && n > form->bytes_max)
		err = -EFBIG;
	if (!err)
		err = gzip_replace(&all, &n, GZIP_LEVEL);
	if (err) {
		free(all);
		return err;
	}
	*bytes = all;
	*size = n;
	return 0;
}
