/* agent/opener/symfs.c: lists the files below a directory by base name. */
#include "agent/opener/symfs.h"

#include "agent/array.h"
#include "base/search.h"

#include <errno.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>

enum { FILES_MAX = 200000 };

struct symfs {
	char **paths; /* relative to root; owned; sorted by base name, then by path */
	size_t n, room;
};

static const char *base_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static int by_base(const void *a, const void *b)
{
	const char *x = *(const char *const *)a, *y = *(const char *const *)b;
	int order = strcmp(base_of(x), base_of(y));

	return order ? order : strcmp(x, y);
}

static int add(struct symfs *symfs, const char *path)
{
	char *copy = strdup(path);

	if (!copy || array_grow(symfs->paths, symfs->n, symfs->room)) {
		free(copy);
		return -ENOMEM;
	}
	symfs->paths[symfs->n++] = copy;
	return 0;
}

int symfs_new(const char *root, struct symfs **out)
{
	char *const roots[] = { (char *)(size_t)root, NULL };
	struct symfs *symfs = calloc(1, sizeof(*symfs));
	FTS *tree = symfs ? fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_NOSTAT, NULL) : NULL;
	size_t skip = strlen(root);
	FTSENT *entry;
	int err = symfs ? 0 : -ENOMEM;

	/* A directory that cannot be read counts as empty. */
	while (!err && tree && symfs->n < FILES_MAX && (entry = fts_read(tree)))
		if (entry->fts_info == FTS_F || entry->fts_info == FTS_NSOK ||
		    entry->fts_info == FTS_SL)
			err = add(symfs, entry->fts_path + skip);
	if (tree)
		(void)fts_close(tree);
	if (err) {
		symfs_free(symfs);
		return err;
	}
	if (symfs->n)
		qsort(symfs->paths, symfs->n, sizeof(*symfs->paths), by_base);
	*out = symfs;
	return 0;
}

void symfs_free(struct symfs *symfs)
{
	if (!symfs)
		return;
	for (size_t i = 0; i < symfs->n; i++)
		free(symfs->paths[i]);
	free(symfs->paths);
	free(symfs);
}

const char *symfs_find(const struct symfs *symfs, const char *path, size_t i)
{
	const char *base = base_of(path);
	size_t low = UW_COUNT_WHILE(k, symfs->n, strcmp(base_of(symfs->paths[k]), base) < 0);

	if (i >= symfs->n - low || strcmp(base_of(symfs->paths[low + i]), base) != 0)
		return NULL;
	return symfs->paths[low + i];
}
