/* agent/live/choice.c: copies the rate and the filters of a recording. */
#include "agent/live/choice.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The lists: where their pointers and numbers are, and the size of an element (0: texts). */
#define LIST(name, size)                                                     \
	{                                                                    \
		offsetof(struct source_live_options, name),                  \
			offsetof(struct source_live_options, n_##name), size \
	}
static const struct list {
	size_t at, n_at, size;
} lists[] = { LIST(pids, sizeof(int32_t)),
	      LIST(uids, sizeof(uint32_t)),
	      LIST(comms, 0),
	      LIST(cgroups, 0),
	      LIST(containers, 0),
	      LIST(pods, 0),
	      LIST(units, 0) };
#define LISTS (sizeof(lists) / sizeof(lists[0]))

static const void *list_of(const struct source_live_options *o, const struct list *list, size_t *n)
{
	const void *elements;

	memcpy(&elements, (const char *)o + list->at, sizeof(elements));
	memcpy(n, (const char *)o + list->n_at, sizeof(*n));
	return elements;
}

static void set_list(struct source_live_options *o, const struct list *list, const void *elements,
		     size_t n)
{
	memcpy((char *)o + list->at, &elements, sizeof(elements));
	memcpy((char *)o + list->n_at, &n, sizeof(n));
}

static const char *text_at(const void *texts, size_t i)
{
	return ((const char *const *)texts)[i];
}

void live_choice_put(struct message *m, const struct source_live_options *options)
{
	message_number(m, options->frequency_hz);
	for (size_t i = 0; i < LISTS; i++) {
		size_t n;
		const void *elements = list_of(options, &lists[i], &n);

		message_number(m, n);
		if (lists[i].size)
			message_bytes(m, elements, n * lists[i].size);
		for (size_t j = 0; !lists[i].size && j < n; j++)
			message_text(m, text_at(elements, j));
	}
}

/* Make room for a list. -ENOMEM. */
static int new_list(struct live_choice *choice, const struct list *list, size_t n, void **out)
{
	void *elements = calloc(n ? n : 1, list->size ? list->size : sizeof(char *));

	*out = elements;
	if (elements)
		set_list(&choice->options, list, elements, n);
	return elements ? 0 : -ENOMEM;
}

int live_choice_take(struct message *m, struct live_choice *out)
{
	*out = (struct live_choice){ .options.frequency_hz = (uint32_t)message_take_number(m) };
	for (size_t i = 0; i < LISTS; i++) {
		uint64_t n = message_take_number(m);
		void *elements;

		/* Each element takes a byte at least. */
		if (m->err || n > MESSAGE_MAX)
			return -EBADMSG;
		if (new_list(out, &lists[i], n, &elements))
			return -ENOMEM;
		if (lists[i].size)
			message_take_bytes(m, elements, n * lists[i].size);
		for (size_t j = 0; !lists[i].size && j < n; j++) {
			const char *text = message_take_text(m);

			if (!text)
				return -EBADMSG;
			((char **)elements)[j] = strdup(text);
			if (!((char **)elements)[j])
				return -ENOMEM;
		}
	}
	return m->err ? -EBADMSG : 0;
}

int live_choice_copy(const struct source_live_options *options, struct live_choice *out)
{
	*out = (struct live_choice){ .options.frequency_hz = options->frequency_hz };
	for (size_t i = 0; i < LISTS; i++) {
		size_t n;
		const void *from = list_of(options, &lists[i], &n);
		void *to;

		if (new_list(out, &lists[i], n, &to))
			return -ENOMEM;
		if (lists[i].size && n)
			memcpy(to, from, n * lists[i].size);
		for (size_t j = 0; !lists[i].size && j < n; j++) {
			((char **)to)[j] = strdup(text_at(from, j));
			if (!((char **)to)[j])
				return -ENOMEM;
		}
	}
	return 0;
}

void live_choice_fini(struct live_choice *choice)
{
	for (size_t i = 0; i < LISTS; i++) {
		size_t n;
		void *elements = (void *)(uintptr_t)list_of(&choice->options, &lists[i], &n);

		for (size_t j = 0; elements && !lists[i].size && j < n; j++)
			free(((char **)elements)[j]);
		free(elements);
	}
	*choice = (struct live_choice){ .options.frequency_hz = 0 };
}
