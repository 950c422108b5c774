#include "agent/export/clean.h"
#include "agent/export/export.h"

#include "agent/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * Lines are compared by the texts they will have, not by location, so that each
 * appears once; a text is made and kept once, and equal texts are one pointer.
 */
struct folding {
	const struct profile *profile;
	struct names *names;
	struct strings texts;
	const char **user, **kernel; /* by location: its text as a user and as a kernel frame */
};

struct line {
	const char *comm;
	const char **frames; /* outermost first; in the block of all lines */
	size_t n_frames;
	uint64_t count;
};

static const char *keep(struct folding *f, const char *text, const char *suffix)
{
	char clean[CLEAN_MAX];
	size_t n = clean_text(text, ";", ':', clean, sizeof(clean) - 4);

	if (!n)
		clean[n++] = '-'; /* an empty frame would vanish */
	memcpy(clean + n, suffix, strlen(suffix) + 1);
	return strings_keep(&f->texts, clean, n + strlen(suffix));
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

int export_folded(const struct profile *profile, struct names *names, FILE *out)
{
	struct folding f = { .profile = profile, .names = names };
	struct line *lines = calloc(profile->n_entries + 1, sizeof(*lines));
	const char **frames = NULL;
	size_t n = 0;
	int err = -ENOMEM;

	for (size_t i = 0; i < profile->n_entries; i++)
		n += profile->entries[i].n_locations;
	frames = calloc(n + 1, sizeof(*frames));
	f.user = calloc(profile->n_locations + 1, sizeof(*f.user));
	f.kernel = calloc(profile->n_locations + 1, sizeof(*f.kernel));
	if (lines && frames && f.user && f.kernel)
		err = make_lines(&f, lines, frames);
	if (!err) {
		print_lines(lines, profile->n_entries, out);
		err = export_flush(out);
	}
	free(lines);
	free(frames);
	free(f.user);
	free(f.kernel);
	strings_fini(&f.texts);
	return err;
}
