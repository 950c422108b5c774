#include "agent/export/clean.h"
#include "agent/export/export.h"

#include "agent/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct line {
	const char *comm;
	const char **frames; /* outermost first; in one of the blocks */
	size_t n_frames;
	uint64_t count;
};

/*
 * Lines are compared by the texts they will have, not by location, so that each
 * appears once; a text is made and kept once, and equal texts are one pointer.
 */
struct export_folded {
	struct strings texts;
	struct line *lines;
	size_t n_lines;
	const char ***blocks; /* of frames, one a profile */
	size_t n_blocks;
};

struct folding { /* while one profile is added */
	struct export_folded *e;
	const struct profile *profile;
	struct names *names;
	const char **user, **kernel; /* by location: its text as a user and as a kernel frame */
};

static const char *keep(struct folding *f, const char *text, const char *suffix)
{
	char clean[CLEAN_MAX];
	size_t n = clean_text(text, ";", ':', clean, sizeof(clean) - 4);

	if (!n)
		clean[n++] = '-'; /* an empty frame would vanish */
	memcpy(clean + n, suffix, strlen(suffix) + 1);
	return strings_keep(&f->e->texts, clean, n + strlen(suffix));
}

static const char *frame_text(struct folding *f, uint32_t id, bool kernel)
{
	const char **slot = kernel ? &f->kernel[id] : &f->user[id];
	char place[CLEAN_MAX];
	struct name name;

	if (*slot)
		return *slot;
	names_find(f->names, &f->profile->locations[id], &name);
	if (!name.function || !name.function[0]) {
		export_place(&name, place, sizeof(place));
		name.function = place;
	}
	*slot = keep(f, name.function, kernel ? "_[k]" : "");
	return *slot;
}

static int compare_text(const char *a, const char *b)
{
	return a == b ? 0 : strcmp(a, b);
}

static int by_text(const void *a, const void *b)
{
	const struct line *x = a, *y = b;
	int order = compare_text(x->comm, y->comm);

	for (size_t i = 0; !order && i < x->n_frames && i < y->n_frames; i++)
		order = compare_text(x->frames[i], y->frames[i]);
	return order ? order : (x->n_frames > y->n_frames) - (x->n_frames < y->n_frames);
}

static int make_lines(struct folding *f, struct line *lines, const char **frames)
{
	const struct profile *p = f->profile;

	for (size_t i = 0; i < p->n_entries; i++) {
		const struct profile_entry *e = &p->entries[i];

		lines[i] = (struct line){ .comm = keep(f, e->comm, ""),
					  .frames = frames,
					  .n_frames = e->n_locations,
					  .count = e->n_samples };
		if (!lines[i].comm)
			return -ENOMEM;
		for (uint32_t j = e->n_locations; j-- > 0;) {
			*frames = frame_text(f, p->location_ids[e->first_location + j],
					     j < e->n_kernel);
			if (!*frames++)
				return -ENOMEM;
		}
	}
	return 0;
}

static void print_lines(struct line *lines, size_t n, FILE *out)
{
	uint64_t count = 0;

	if (n)
		qsort(lines, n, sizeof(*lines), by_text);
	for (size_t i = 0; i < n; i++) {
		count += lines[i].count;
		if (i + 1 < n && !by_text(&lines[i], &lines[i + 1]))
			continue;
		(void)fputs(lines[i].comm, out);
		for (size_t j = 0; j < lines[i].n_frames; j++) {
			(void)fputc(';', out);
			(void)fputs(lines[i].frames[j], out);
		}
		(void)fprintf(out, " %llu\n", (unsigned long long)count);
		count = 0;
	}
}

int export_folded_new(struct export_folded **out)
{
	struct export_folded *e = calloc(1, sizeof(*e));

	if (!e)
		return -ENOMEM;
	*out = e;
	return 0;
}

void export_folded_free(struct export_folded *e)
{
	if (!e)
		return;
	for (size_t i = 0; i < e->n_blocks; i++)
		free(e->blocks[i]);
	free(e->blocks);
	free(e->lines);
	strings_fini(&e->texts);
	free(e);
}

/* Room for a profile's lines and a block for their frames. */
static int make_room(struct export_folded *e, const struct profile *profile, const char ***frames)
{
	size_t n = 1;
	struct line *lines =
		reallocarray(e->lines, e->n_lines + profile->n_entries + 1, sizeof(*lines));
	const char ***blocks;

	if (!lines)
		return -ENOMEM;
	e->lines = lines;
	blocks = reallocarray(e->blocks, e->n_blocks + 1, sizeof(*blocks));
	if (!blocks)
		return -ENOMEM;
	e->blocks = blocks;
	for (size_t i = 0; i < profile->n_entries; i++)
		n += profile->entries[i].n_locations;
	*frames = calloc(n, sizeof(**frames));
	if (!*frames)
		return -ENOMEM;
	e->blocks[e->n_blocks++] = *frames;
	return 0;
}

int export_folded_add(struct export_folded *e, const struct profile *profile, struct names *names)
{
	struct folding f = { .e = e, .profile = profile, .names = names };
	const char **frames;
	int err = make_room(e, profile, &frames);

	if (err)
		return err;
	f.user = calloc(profile->n_locations + 1, sizeof(*f.user));
	f.kernel = calloc(profile->n_locations + 1, sizeof(*f.kernel));
	err = f.user && f.kernel ? make_lines(&f, e->lines + e->n_lines, frames) : -ENOMEM;
	if (!err)
		e->n_lines += profile->n_entries;
	free(f.user);
	free(f.kernel);
	return err;
}

int export_folded_write(struct export_folded *e, FILE *out)
{
	print_lines(e->lines, e->n_lines, out);
	return export_flush(out);
}

int export_folded(const struct profile *profile, struct names *names, FILE *out)
{
	struct export_folded *e;
	int err = export_folded_new(&e);

	if (err)
		return err;
	err = export_folded_add(e, profile, names);
	if (!err)
		err = export_folded_write(e, out);
	export_folded_free(e);
	return err;
}
