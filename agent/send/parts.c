/* agent/send/parts.c: sends a window in parts. */
#include "agent/send/parts.h"

#include <string.h>

/* Return whether a sample type is a number of samples: "samples", or "page-faults.samples" and the like. */
static bool counts_samples(const struct stacks_type *t)
{
	size_t n = strlen(t->type);

	return !strcmp(t->unit, "count") && n >= 7 && !strcmp(t->type + n - 7, "samples");
}

uint64_t parts_count(const struct stacks *s, size_t from, size_t to)
{
	uint64_t sum = 0;

	for (size_t i = from; i < to; i++) {
		uint64_t one = 0;

		for (size_t t = 0; t < s->n_types; t++)
			if (counts_samples(&s->types[t]) && stacks_value(s, i, t) > 0)
				one += (uint64_t)stacks_value(s, i, t);
		sum += one ? one : 1;
	}
	return sum;
}

/* Take over what became of a part. */
static void settle(struct parts *p, const struct send_window *w, size_t to, int outcome,
		   const struct send_report *part)
{
	if (outcome == SEND_REFUSED)
		p->dropped[SENDING_DROP_REFUSED] += parts_count(w->stacks, p->done, to);
	else if (outcome == PART_TOO_LARGE)
		p->dropped[SENDING_DROP_LARGE] += parts_count(w->stacks, p->done, to);
	for (size_t i = 0; outcome == SEND_DONE && i < SENDING_DROP_N; i++)
		p->dropped[i] += part->dropped[i];
	p->n_bytes += outcome == SEND_DONE ? part->n_bytes : 0;
	p->done = to;
}

enum send_outcome parts_send(struct parts *p, const struct send_window *w, size_t most,
			     parts_send_fn send, void *ctx, struct send_report *report)
{
	size_t n = w->stacks->n_samples;

	if (p->window != w->id)
		*p = (struct parts){ .window = w->id, .step = most };
	while (p->done < n) {
		size_t to = p->step < n - p->done ? p->done + p->step : n;
		struct send_report part = { .text = "" };
		int outcome = send(ctx, w, p->done, to, &part);

		if (*part.text)
			memcpy(report->text, part.text, sizeof(report->text));
		if (outcome == PART_TOO_LARGE && to - p->done > 1) {
			p->step = (to - p->done + 1) / 2;
			continue;
		}
		if (outcome == SEND_AGAIN) {
			report->fault = part.fault;
			report->after_ns = part.after_ns;
			return SEND_AGAIN;
		}
		settle(p, w, to, outcome, &part);
	}
	report->n_bytes = p->n_bytes;
	memcpy(report->dropped, p->dropped, sizeof(report->dropped));
	p->window = 0;
	return n && p->dropped[SENDING_DROP_REFUSED] >= parts_count(w->stacks, 0, n) ? SEND_REFUSED
										     : SEND_DONE;
}
