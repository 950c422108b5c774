/* agent/process/cgroups.c: stores the paths of cgroups, with a limit on their number. */
#include "agent/process/cgroups.h"

#include "agent/array.h"
#include "symbolizer/symbolizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PATH_LENGTH_MAX 4096
#define CGROUPS_MAX	((size_t)1 << 20) /* only a forged recording has more */

static uint32_t find(const struct cgroups *cgroups, uint64_t id)
{
	return UW_HASH_FIND(i, &cgroups->by_id, hash_u64(0, id), cgroups->cgroups[i].id == id);
}

/* Sanitise the path: users name their own cgroups. It goes into texts and labels. */
int cgroups_event(struct cgroups *cgroups, const struct event_cgroup *event)
{
	size_t length = strnlen(event->path, PATH_LENGTH_MAX);
	char *sanitized = sym_sanitize(event->path, length, PATH_LENGTH_MAX);
	const char *path =
		sanitized ? strings_keep(&cgroups->paths, sanitized, strlen(sanitized)) : NULL;
	uint32_t at = find(cgroups, event->id);

	free(sanitized);
	if (!path)
		return -ENOMEM;
	if (at != UW_HASH_NONE) {
		cgroups->cgroups[at].path = path;
		return 0;
	}
	if (cgroups->n == CGROUPS_MAX)
		return 0; /* its samples only have the id */
	if (array_grow(cgroups->cgroups, cgroups->n, cgroups->room))
		return -ENOMEM;
	if (uw_hash_add(&cgroups->by_id, hash_u64(0, event->id), (uint32_t)cgroups->n))
		return -ENOMEM;
	cgroups->cgroups[cgroups->n++] = (struct cgroup){ event->id, path };
	return 0;
}

const char *cgroups_path(const struct cgroups *cgroups, uint64_t id)
{
	uint32_t at = find(cgroups, id);

	return at == UW_HASH_NONE ? NULL : cgroups->cgroups[at].path;
}

void cgroups_fini(struct cgroups *cgroups)
{
	free(cgroups->cgroups);
	uw_hash_fini(&cgroups->by_id);
	strings_fini(&cgroups->paths);
	*cgroups = (struct cgroups){ 0 };
}
