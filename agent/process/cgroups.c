/* agent/process/cgroups.c: stores the paths of cgroups and their labels, with a limit on their number. */
#include "agent/process/cgroups.h"

#include "agent/array.h"
#include "agent/container.h"
#include "agent/limits.h"
#include "symbolizer/symbolizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint32_t find(const struct cgroups *cgroups, uint64_t id)
{
	return UW_HASH_FIND(i, &cgroups->by_id, hash_u64(0, id), cgroups->cgroups[i].id == id);
}

/* Collect the labels that follow from the path of a cgroup. */
static void labels_of(const struct label_rules *rules, const char *path, struct labels *out)
{
	struct container_labels c;

	container_labels(path, &c);

	const struct {
		const char *key, *text;
	} texts[] = { { "cgroup", path },
		      { "container_id", c.id },
		      { "container_runtime", c.runtime },
		      { "pod", c.pod },
		      { "qos", c.qos },
		      { "slice", c.slice },
		      { "unit", c.unit },
		      { "user_unit", c.user_unit } };

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		(void)labels_add(out, rules, texts[i].key, texts[i].text);
}

/* Sanitise the path: users name their own cgroups. It goes into texts and labels. */
static int texts_of(struct cgroups *cgroups, const char *text, size_t length, struct cgroup *out)
{
	struct labels labels = { .n = 0 };
	char *path = sym_sanitize(text, length, length);
	size_t n = path ? strlen(path) : 0;

	if (!path)
		return -ENOMEM;
	labels_of(cgroups->rules, path, &labels);
	out->path = strings_keep(&cgroups->texts, path, n);
	out->labels = strings_keep(&cgroups->texts, labels.text, labels.n);
	free(path);
	return out->path && out->labels ? 0 : -ENOMEM;
}

int cgroups_event(struct cgroups *cgroups, const struct event_cgroup *event)
{
	struct cgroup cgroup = { .id = event->id, .used = ++cgroups->n_used };
	size_t most = (size_t)limits.cgroup_path_bytes, length = strnlen(event->path, most + 1);
	uint32_t at = find(cgroups, event->id);
	int err;

	if (length > most) {
		limits_reach(cgroup_path_bytes, 1);
		return 0;
	}
	err = texts_of(cgroups, event->path, length, &cgroup);
	if (!err && at == UW_HASH_NONE) {
		err = array_grow(cgroups->cgroups, cgroups->n, cgroups->room);
		if (!err)
			err = uw_hash_add(&cgroups->by_id, hash_u64(0, event->id),
					  (uint32_t)cgroups->n);
		if (!err)
			at = (uint32_t)cgroups->n++;
	}
	if (!err)
		cgroups->cgroups[at] = cgroup;
	return err;
}

const struct cgroup *cgroups_find(struct cgroups *cgroups, uint64_t id)
{
	uint32_t at = find(cgroups, id);

	if (at == UW_HASH_NONE)
		return NULL;
	cgroups->cgroups[at].used = ++cgroups->n_used;
	return &cgroups->cgroups[at];
}

bool cgroups_are_many(const struct cgroups *cgroups)
{
	return cgroups->n > limits.cgroups;
}

static int by_last_use(const void *a, const void *b)
{
	const struct cgroup *x = a, *y = b;

	return (x->used < y->used) - (x->used > y->used);
}

void cgroups_forget(struct cgroups *cgroups)
{
	size_t left = (size_t)limits.cgroups / 2;

	if (cgroups->n > left) {
		limits_reach(cgroups, cgroups->n - left);
		qsort(cgroups->cgroups, cgroups->n, sizeof(*cgroups->cgroups), by_last_use);
		cgroups->n = left;
	}
	/* The index has room for all that are left. */
	uw_hash_clear(&cgroups->by_id);
	for (size_t i = 0; i < cgroups->n; i++) {
		(void)uw_hash_add(&cgroups->by_id, hash_u64(0, cgroups->cgroups[i].id),
				  (uint32_t)i);
		strings_mark(cgroups->cgroups[i].path);
		strings_mark(cgroups->cgroups[i].labels);
	}
	strings_sweep(&cgroups->texts);
}

void cgroups_fini(struct cgroups *cgroups)
{
	free(cgroups->cgroups);
	uw_hash_fini(&cgroups->by_id);
	strings_fini(&cgroups->texts);
	*cgroups = (struct cgroups){ 0 };
}
