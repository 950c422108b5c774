/* agent/source/frozen.c: delivers one process at one moment as events. */
#include "agent/source/frozen.h"

#include "agent/array.h"
#include "base/search.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void frozen_init(struct frozen *f, const struct source_ops *ops, const char *kind, uint16_t machine)
{
	*f = (struct frozen){ .source = { .ops = ops }, .pid = 1 };
	f->source.info.machine = machine;
	(void)snprintf(f->source.info.kind, sizeof(f->source.info.kind), "%s", kind);
	f->event = (struct source_event){
		.name = "threads", .type = "threads", .unit = "count", .period = 1
	};
	f->source.info.events = &f->event;
	f->source.info.n_events = 1;
	/* Whole pages were captured, not only the memory above sp. */
	f->source.info.red_zone = true;
}

static void thread_fini(const struct frozen_thread *thread)
{
	free(thread->name);
	free(thread->comm);
	free((void *)(uintptr_t)thread->regions);
}

void frozen_fini(struct frozen *f)
{
	for (size_t i = 0; i < f->n_mappings; i++)
		free((void *)(uintptr_t)f->mappings[i].path);
	for (size_t i = 0; i < f->n_threads; i++)
		thread_fini(&f->threads[i]);
	free(f->mappings);
	free(f->threads);
}

int frozen_add_mapping(struct frozen *f, const struct event_mapping *mapping)
{
	int err = array_grow(f->mappings, f->n_mappings, f->room_mappings);
	char *path = err ? NULL : strdup(mapping->path);

	if (!path)
		return -ENOMEM;
	f->mappings[f->n_mappings] = *mapping;
	f->mappings[f->n_mappings++].path = path;
	return 0;
}

int frozen_add_thread(struct frozen *f, const struct frozen_thread *thread)
{
	int err = array_grow(f->threads, f->n_threads, f->room_threads);

	if (err)
		thread_fini(thread);
	else
		f->threads[f->n_threads++] = *thread;
	return err;
}

UW_ORDER_2(by_start, struct event_mapping, start, end)

void frozen_sort(struct frozen *f)
{
	size_t n = 0;

	if (f->n_mappings)
		qsort(f->mappings, f->n_mappings, sizeof(*f->mappings), by_start);
	for (size_t i = 0; i < f->n_mappings; i++) {
		if (n && f->mappings[i].start < f->mappings[n - 1].end)
			free((void *)(uintptr_t)f->mappings[i].path);
		else
			f->mappings[n++] = f->mappings[i];
	}
	f->n_mappings = n;
}

struct event_mapping *frozen_mapping_at(const struct frozen *f, uint64_t addr)
{
	size_t low = UW_COUNT_WHILE(i, f->n_mappings, f->mappings[i].end <= addr);

	return low < f->n_mappings && f->mappings[low].start <= addr ? &f->mappings[low] : NULL;
}

/* Make *event the sample of a thread. */
static void give_thread(const struct frozen *f, const struct frozen_thread *t, struct event *event)
{
	event->type = EVENT_SAMPLE;
	event->tid = t->tid;
	event->sample = (struct event_sample){
		.period = 1,
		.has_user_regs = true,
		.regs = t->regs,
		.code_mask = t->code_mask,
		.thread_pointer = t->thread_pointer,
		.regions = t->regions,
		.n_regions = t->n_regions,
		.read = f->read,
		.read_ctx = f->read_ctx,
		.name = t->name,
	};
}

/*
 * f->at counts the calls. At the end it is taken back, so that each further call gives the same
 * result.
 */
int frozen_next(struct source *source, struct event *event, int timeout_ms)
{
	struct frozen *f = (struct frozen *)source;
	size_t at = f->at++;

	(void)timeout_ms;
	*event = (struct event){ .pid = f->pid, .tid = f->pid, .time_ns = f->time_ns };
	if (at == 0) {
		event->type = EVENT_COMM;
		event->comm.comm = f->comm;
		return 1;
	}
	at -= 1;
	if (at < f->n_mappings) {
		event->type = EVENT_MAPPING;
		event->mapping = f->mappings[at];
		return 1;
	}
	at -= f->n_mappings;
	if (at < f->n_threads) {
		event->type = EVENT_COMM;
		event->tid = f->threads[at].tid;
		event->comm.comm = f->threads[at].comm ? f->threads[at].comm : f->comm;
		return 1;
	}
	at -= f->n_threads;
	if (at < f->n_threads) {
		give_thread(f, &f->threads[at], event);
		return 1;
	}
	at -= f->n_threads;
	if (at == 0 && f->n_lost) {
		event->type = EVENT_LOST;
		event->lost = (struct event_lost){ .reason = EVENT_LOST_UNREADABLE,
						   .n_samples = f->n_lost };
		return 1;
	}
	f->at--;
	return f->err;
}

void frozen_damage(struct frozen *f, int err, const char *format, ...)
{
	va_list args;

	if (f->err)
		return;
	f->err = err;
	va_start(args, format);
	(void)vsnprintf(f->source.error, sizeof(f->source.error), format, args);
	va_end(args);
}
