/* agent/live/cgroups.c: decides by their paths which cgroups are recorded. */
#include "agent/live/cgroups.h"

#include "agent/container.h"
#include "agent/live/bpf/bpf.h"
#include "agent/live/system/cgroup.h"
#include "agent/live/system/hint.h"

#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 64 /* what is named deeper is not found: users can make cgroups, too */

static const char *const kinds[] = { [LIVE_CGROUP_PATH] = "cgroup",
				     [LIVE_CGROUP_CONTAINER] = "container",
				     [LIVE_CGROUP_POD] = "pod",
				     [LIVE_CGROUP_UNIT] = "unit" };

/* Return the text to compare with. NULL: errno says why not. */
static char *text_of(enum live_cgroup_kind kind, const char *asked)
{
	char name[PATH_MAX], *text = NULL;
	int err;

	errno = EINVAL;
	if (!*asked)
		return NULL;
	switch (kind) {
	case LIVE_CGROUP_PATH:
		err = live_cgroup_name(asked, name, sizeof(name));
		errno = -err;
		return err ? NULL : strdup(name);
	case LIVE_CGROUP_UNIT:
		/* As systemctl(1) takes it: without a suffix, it is a service. */
		if (!strchr(asked, '.'))
			return asprintf(&text, "%s.service", asked) < 0 ? NULL : text;
		return strdup(asked);
	case LIVE_CGROUP_CONTAINER:
	case LIVE_CGROUP_POD:
		break;
	}
	return strdup(asked);
}

int live_cgroups_init(struct live_cgroups *out, const struct source_live_options *options,
		      char *error)
{
	const struct {
		enum live_cgroup_kind kind;
		const char *const *names;
		size_t n;
	} given[] = { { LIVE_CGROUP_PATH, options->cgroups, options->n_cgroups },
		      { LIVE_CGROUP_CONTAINER, options->containers, options->n_containers },
		      { LIVE_CGROUP_POD, options->pods, options->n_pods },
		      { LIVE_CGROUP_UNIT, options->units, options->n_units } };
	size_t n = 0;

	*out = (struct live_cgroups){ .n = 0 };
	for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); i++)
		n += given[i].n;
	if (!n)
		return 0;
	out->choices = calloc(n, sizeof(*out->choices));
	if (!out->choices) {
		(void)snprintf(error, LIVE_ERROR_SIZE, "%s", strerror(ENOMEM));
		return -ENOMEM;
	}
	for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); i++) {
		for (size_t j = 0; j < given[i].n; j++) {
			struct live_cgroup_choice *c = &out->choices[out->n++];
			int err;

			c->kind = given[i].kind;
			c->asked = given[i].names[j];
			c->text = text_of(c->kind, c->asked);
			if (c->text)
				continue;
			err = -errno;
			(void)snprintf(
				error, LIVE_ERROR_SIZE, "%s %.200s: %s", kinds[c->kind], c->asked,
				err == -ENOENT ? "there is no cgroup2 hierarchy" : strerror(-err));
			return err == -ENOENT ? -EINVAL : err;
		}
	}
	return 0;
}

void live_cgroups_fini(struct live_cgroups *c)
{
	for (size_t i = 0; i < c->n; i++)
		free(c->choices[i].text);
	free(c->choices);
	*c = (struct live_cgroups){ .n = 0 };
}

static bool begins_with(const char *text, const char *prefix)
{
	return *text && !strncmp(text, prefix, strlen(prefix));
}

static bool is_unit(const char *unit, const char *pattern)
{
	return *unit && !fnmatch(pattern, unit, 0);
}

/* Return whether a cgroup itself is what is named. What is above it is not considered. */
static bool matches(const struct live_cgroup_choice *c, const char *path,
		    const struct container_labels *labels)
{
	switch (c->kind) {
	case LIVE_CGROUP_PATH:
		return !strcmp(path, c->text);
	case LIVE_CGROUP_CONTAINER:
		return begins_with(labels->id, c->text);
	case LIVE_CGROUP_POD:
		return begins_with(labels->pod, c->text);
	case LIVE_CGROUP_UNIT:
		return is_unit(labels->unit, c->text) || is_unit(labels->user_unit, c->text) ||
		       is_unit(labels->slice, c->text);
	}
	return false;
}

/*
 * A cgroup is recorded if it, or one above it, is named. The labels of a path are those of its
 * innermost container, and a container may run in another one, so each part of the path is tried.
 */
bool live_cgroups_match(const struct live_cgroups *c, const char *path)
{
	bool found = false;
	size_t size = 1; /* of "/", the root */

	for (int depth = 0; depth < DEPTH_MAX; depth++) {
		struct container_labels labels;
		char part[PATH_MAX];
		size_t next;

		(void)snprintf(part, sizeof(part), "%.*s", (int)size, path);
		container_labels(part, &labels);
		for (size_t i = 0; i < c->n; i++)
			if (matches(&c->choices[i], part, &labels))
				found = c->choices[i].found = true;
		if (!path[0] || !path[size])
			break;
		next = size + (size > 1);
		size = next + strcspn(path + next, "/");
	}
	return found;
}

/* ---- telling the BPF programs ------------------------------------------------------------ */

struct telling {
	const struct live_cgroups *cgroups;
	struct live_bpf *bpf;
};

/* If the table has no room, a cgroup that is not in it is not recorded: only a wanted one is missed. */
static int tell(const struct live_cgroups *c, struct live_bpf *bpf, uint64_t id, const char *path)
{
	bool wanted = live_cgroups_match(c, path);
	int err = live_bpf_tell_cgroup(bpf, id,
				       wanted ? CAPTURE_CGROUP_WANTED : CAPTURE_CGROUP_OTHER);

	return err == -E2BIG && !wanted ? 0 : err;
}

/* Callback of live_cgroup_each. */
static int tell_one(void *ctx, uint64_t id, const char *path)
{
	const struct telling *t = ctx;

	return tell(t->cgroups, t->bpf, id, path);
}

int live_cgroups_tell_all(const struct live_cgroups *c, struct live_bpf *bpf, bool must_exist,
			  char *error)
{
	struct telling telling = { c, bpf };
	int err = live_cgroup_each(tell_one, &telling);

	if (err) {
		(void)snprintf(error, LIVE_ERROR_SIZE, "cgroups: %s",
			       err == -ENOENT  ? "there is no cgroup2 hierarchy"
			       : err == -E2BIG ? "there are too many"
					       : strerror(-err));
		return err == -ENOENT ? -EINVAL : err;
	}
	for (size_t i = 0; must_exist && i < c->n; i++) {
		if (c->choices[i].found)
			continue;
		(void)snprintf(error, LIVE_ERROR_SIZE, "%s %.200s: is not in the cgroup2 hierarchy",
			       kinds[c->choices[i].kind], c->choices[i].asked);
		return -EINVAL;
	}
	return 0;
}

int live_cgroups_tell(const struct live_cgroups *c, struct live_bpf *bpf,
		      const struct live_cgroup_paths *paths, uint64_t id)
{
	char path[PATH_MAX];
	int err = paths ? live_cgroup_path(paths, id, path, sizeof(path)) : -ENOENT;

	if (!err) {
		err = tell(c, bpf, id, path);
		return err == -E2BIG ? 0 : err; /* it is gone already */
	}
	/* One that is only being made gets another question with its first event. */
	if (err == -ESTALE)
		live_bpf_forget_cgroup(bpf, id);
	else
		(void)live_bpf_tell_cgroup(bpf, id, CAPTURE_CGROUP_OTHER);
	return 0;
}
