/*
 * unwinder/walk/steppers.c: groups of steppers: the user's steppers, their ranges, and the order of
 * all.
 */
#include "unwinder/walk/steppers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "unwinder/walk/stepper.h"

int uw_steppers_new(struct uw_steppers **out)
{
	struct uw_steppers *s = calloc(1, sizeof(*s));

	if (s)
		s->entries = malloc(sizeof(uw_built_in_steppers));
	if (!s || !s->entries) {
		free(s);
		return -ENOMEM;
	}
	memcpy(s->entries, uw_built_in_steppers, sizeof(uw_built_in_steppers));
	s->n = UW_BUILT_IN_STEPPERS;
	s->next_id = UW_STEPPER_N;
	*out = s;
	return 0;
}

void uw_steppers_free(struct uw_steppers *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n; i++) {
		if (s->entries[i].built_in)
			continue;
		free((char *)s->entries[i].info.name);
		free((struct uw_range *)s->entries[i].info.ranges);
	}
	free(s->entries);
	free(s);
}

int uw_steppers_add(struct uw_steppers *s, const struct uw_stepper_info *info, uint8_t *id)
{
	struct uw_stepper_entry new = { .info = *info,
					.id = s->next_id,
					.anywhere = !info->n_ranges };
	struct uw_stepper_entry *entries;
	struct uw_range *ranges = NULL;
	char *name;
	size_t i;

	if (!info->step || !info->name || (info->n_ranges && !info->ranges))
		return -EINVAL;
	for (i = 0; i < info->n_ranges; i++)
		if (info->ranges[i].start >= info->ranges[i].end)
			return -EINVAL;
	if (!s->next_id) /* the 8-bit number wrapped around: all have been given */
		return -ENOSPC;
	name = strdup(info->name);
	if (info->n_ranges)
		ranges = calloc(info->n_ranges, sizeof(*ranges));
	entries = realloc(s->entries, (s->n + 1) * sizeof(*entries));
	if (entries)
		s->entries = entries;
	if (!name || !entries || (info->n_ranges && !ranges)) {
		free(name);
		free(ranges);
		return -ENOMEM;
	}
	if (info->n_ranges)
		memcpy(ranges, info->ranges, info->n_ranges * sizeof(*ranges));
	new.info.name = name;
	new.info.ranges = ranges;
	for (i = s->n; i > 0 && entries[i - 1].info.priority > info->priority; i--)
		entries[i] = entries[i - 1];
	entries[i] = new;
	s->n++;
	s->n_users++;
	s->next_id++;
	if (id)
		*id = new.id;
	if (info->added)
		info->added(info->ctx, s, new.id);
	return 0;
}

/* ---- ranges -------------------------------------------------------------------------------- */

/* Return a user's stepper, or NULL. */
static struct uw_stepper_entry *user_of(struct uw_steppers *s, uint8_t id)
{
	for (size_t i = 0; i < s->n; i++)
		if (!s->entries[i].built_in && s->entries[i].id == id)
			return &s->entries[i];
	return NULL;
}

/* Return whether all ranges are valid, none of them empty. */
static bool are_ranges(const struct uw_range *ranges, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (ranges[i].start >= ranges[i].end)
			return false;
	return n == 0 || ranges;
}

int uw_steppers_add_ranges(struct uw_steppers *s, uint8_t id, const struct uw_range *ranges,
			   size_t n)
{
	struct uw_stepper_entry *e = user_of(s, id);
	struct uw_range *all;

	if (!e || !are_ranges(ranges, n))
		return e ? -EINVAL : -ENOENT;
	if (!n)
		return 0;
	all = n > SIZE_MAX / sizeof(*all) - e->info.n_ranges
		      ? NULL
		      : realloc((struct uw_range *)e->info.ranges,
				(e->info.n_ranges + n) * sizeof(*all));
	if (!all)
		return -ENOMEM;
	memcpy(all + e->info.n_ranges, ranges, n * sizeof(*all));
	e->info.ranges = all;
	e->info.n_ranges += n;
	e->anywhere = false;
	return 0;
}

/* Remove one range. Each of the stepper's ranges may become two. */
static int remove_range(struct uw_stepper_entry *e, const struct uw_range *gone)
{
	const struct uw_range everywhere = { 0, UINT64_MAX };
	const struct uw_range *old = e->anywhere ? &everywhere : e->info.ranges;
	size_t n_old = e->anywhere ? 1 : e->info.n_ranges, n = 0;
	struct uw_range *left = calloc(n_old + 1, 2 * sizeof(*left));

	if (!left)
		return -ENOMEM;
	for (size_t i = 0; i < n_old; i++) {
		uint64_t before = old[i].end < gone->start ? old[i].end : gone->start;
		uint64_t after = old[i].start > gone->end ? old[i].start : gone->end;

		if (old[i].start < before)
			left[n++] = (struct uw_range){ old[i].start, before };
		if (after < old[i].end)
			left[n++] = (struct uw_range){ after, old[i].end };
	}
	free((struct uw_range *)e->info.ranges);
	e->info.ranges = left;
	e->info.n_ranges = n;
	e->anywhere = false;
	return 0;
}

int uw_steppers_remove_ranges(struct uw_steppers *s, uint8_t id, const struct uw_range *ranges,
			      size_t n)
{
	struct uw_stepper_entry *e = user_of(s, id);
	int err = 0;

	if (!e || !are_ranges(ranges, n))
		return e ? -EINVAL : -ENOENT;
	for (size_t i = 0; i < n && !err; i++)
		err = remove_range(e, &ranges[i]);
	return err;
}

void uw_steppers_choose(struct uw_steppers *s, uw_choose_fn choose, void *ctx)
{
	s->choose = choose;
	s->choose_ctx = ctx;
}

int uw_steppers_enable(struct uw_steppers *s, const char *name, bool on)
{
	int err = -ENOENT;

	for (size_t i = 0; i < s->n; i++) {
		if (strcmp(s->entries[i].info.name, name) != 0)
			continue;
		s->entries[i].off = !on;
		err = 0;
	}
	return err;
}

int uw_steppers_at(const struct uw_steppers *s, size_t i, struct uw_stepper_info *info, uint8_t *id,
		   bool *on)
{
	const struct uw_stepper_entry *e = s ? s->entries : uw_built_in_steppers;

	if (i >= (s ? s->n : UW_BUILT_IN_STEPPERS))
		return -ENOENT;
	*info = e[i].info;
	*id = e[i].id;
	*on = !e[i].off;
	return 0;
}

const char *uw_steppers_name(const struct uw_steppers *s, uint8_t id)
{
	if (id < UW_STEPPER_N)
		return uw_stepper_name((enum uw_stepper)id);
	for (size_t i = 0; s && i < s->n; i++)
		if (s->entries[i].id == id)
			return s->entries[i].info.name;
	return "unknown";
}

/* ---- which stepper comes next -------------------------------------------------------------- */

size_t uw_steppers_find(const struct uw_steppers *s, uint64_t lookup, size_t last)
{
	const struct uw_stepper_entry *e = s ? s->entries : uw_built_in_steppers;

	for (size_t i = last + 1; i < (s ? s->n : UW_BUILT_IN_STEPPERS);
	     i++) /* SIZE_MAX + 1 is 0 */
		if (uw_stepper_covers(&e[i], lookup))
			return i;
	return SIZE_MAX;
}

bool uw_stepper_before(const struct uw_steppers *s, uint64_t lookup, uint32_t priority)
{
	if (s && s->choose)
		return true;
	for (size_t i = 0; s && i < s->n && s->entries[i].info.priority <= priority; i++) {
		const struct uw_stepper_entry *e = &s->entries[i];

		/*
		 * A built-in stepper was there first, so a user's of the same priority comes after
		 * it.
		 */
		if (e->built_in ? e->off
				: e->info.priority < priority && uw_stepper_covers(e, lookup))
			return true;
	}
	return false;
}

bool uw_stepper_is_on(const struct uw_steppers *s, enum uw_stepper stepper)
{
	const struct uw_stepper_entry *e = s ? s->entries : uw_built_in_steppers;

	for (size_t i = 0; i < (s ? s->n : UW_BUILT_IN_STEPPERS); i++)
		if (e[i].id == (uint8_t)stepper && !e[i].off)
			return true;
	return false;
}

enum uw_answer uw_stepper_ask(const struct uw_steppers *s, uint8_t id, struct uw_query *query)
{
	for (size_t i = 0; s && i < s->n; i++)
		if (!s->entries[i].built_in && s->entries[i].id == id)
			return s->entries[i].info.step(s->entries[i].info.ctx, query);
	return UW_ANSWER_NOT_ME;
}
