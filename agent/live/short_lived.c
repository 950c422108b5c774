/* agent/live/short_lived.c: counts what the queue has of each process. */
#include "agent/live/short_lived.h"

#include "agent/array.h"

#include <errno.h>
#include <stdlib.h>

struct live_short_process {
	uint32_t pid, parent;
	uint32_t n; /* items in the queue: of the process, and the beginnings of its children */
	uint32_t n_begins, n_ends; /* of these: the process was forked, and ended */
	uint32_t n_needs;	   /* all samples, threads, and children that are needed */
	uint64_t begun_ns, ended_ns;
	uint64_t unneeded_ns; /* its events until then are left out; 0: none is */
	bool deferred;	      /* see live_short_lived_defer */
};

/* Return the index of a process, or UW_HASH_NONE. */
static uint32_t find(const struct live_short_lived *s, uint32_t pid)
{
	return UW_HASH_FIND(i, &s->by_pid, hash_u64(0, pid), s->processes[i].pid == pid);
}

/* Return a process, which is added if it is new. NULL: no memory. */
static struct live_short_process *need(struct live_short_lived *s, uint32_t pid)
{
	uint32_t i = find(s, pid);

	if (i != UW_HASH_NONE)
		return &s->processes[i];
	if (array_grow(s->processes, s->n, s->room) ||
	    uw_hash_add(&s->by_pid, hash_u64(0, pid), (uint32_t)s->n))
		return NULL;
	s->processes[s->n] = (struct live_short_process){ .pid = pid };
	return &s->processes[s->n++];
}

/* Count one item less; a process without items is removed, and the last one moves to its place. */
static void leave(struct live_short_lived *s, uint32_t i)
{
	uint32_t last = (uint32_t)s->n - 1;

	if (--s->processes[i].n)
		return;
	uw_hash_remove(&s->by_pid, hash_u64(0, s->processes[i].pid), i);
	s->n--;
	if (i != last) {
		s->processes[i] = s->processes[last];
		uw_hash_renumber(&s->by_pid, hash_u64(0, s->processes[i].pid), last, i);
	}
}

/* Return whether an event says that a process was made, by another one. */
static bool is_beginning(const struct event *event)
{
	return event->type == EVENT_FORK && event->pid == event->tid &&
	       event->pid != event->fork.parent_pid;
}

static bool is_end(const struct event *event)
{
	return event->type == EVENT_EXIT && event->pid == event->tid;
}

/* Return whether an event alone makes its process one that is needed. */
static bool needs(const struct event *event)
{
	switch (event->type) {
	case EVENT_FORK: /* of a thread */
		return !is_beginning(event);
	case EVENT_MAPPING:
	case EVENT_EXEC:
	case EVENT_EXIT:
	case EVENT_COMM:
		return false;
	default:
		return true;
	}
}

int live_short_lived_put(struct live_short_lived *s, uint32_t pid, const struct event *event)
{
	struct live_short_process *p = need(s, pid), *parent;

	if (!p)
		return -ENOMEM;
	p->n++;
	if (event && is_beginning(event)) {
		parent = need(s, event->fork.parent_pid);
		if (!parent) {
			leave(s, find(s, pid)); /* nothing else is counted yet */
			return -ENOMEM;
		}
		parent->n++;
		parent->n_needs++;
		p = &s->processes[find(s, pid)]; /* the array may have moved */
		p->n_begins++;
		p->begun_ns = event->time_ns;
		p->parent = event->fork.parent_pid;
	}
	p->n_needs += !event || needs(event);
	if (event && is_end(event)) {
		p->n_ends++;
		p->ended_ns = event->time_ns;
		s->any_ended = true;
	}
	return 0;
}

void live_short_lived_defer(struct live_short_lived *s, uint32_t pid)
{
	uint32_t i = find(s, pid);

	if (i != UW_HASH_NONE)
		s->processes[i].deferred = true;
}

bool live_short_lived_deferred(struct live_short_lived *s, uint32_t pid)
{
	uint32_t i = find(s, pid);
	bool deferred = i != UW_HASH_NONE && s->processes[i].deferred;

	if (deferred)
		s->processes[i].deferred = false;
	return deferred;
}

/* Return whether a process's events of this time are left out. */
static bool leaves_out(const struct live_short_process *p, uint64_t time_ns)
{
	return time_ns >= p->begun_ns && time_ns <= p->unneeded_ns;
}

bool live_short_lived_leaves_out(const struct live_short_lived *s, uint32_t pid, uint64_t time_ns)
{
	uint32_t i = find(s, pid);

	return i != UW_HASH_NONE && leaves_out(&s->processes[i], time_ns);
}

/* Return whether a process is left out, all of which until time_ns is in the queue. */
static bool is_unneeded(const struct live_short_process *p, uint64_t time_ns)
{
	return p->n_begins == 1 && p->n_ends == 1 && !p->n_needs && p->ended_ns <= time_ns &&
	       p->begun_ns <= p->ended_ns; /* not the end of one whose number it has now */
}

void live_short_lived_settle(struct live_short_lived *s, uint64_t time_ns)
{
	if (!s->any_ended)
		return;
	s->any_ended = false;
	for (size_t i = 0; i < s->n; i++) {
		uint32_t at = (uint32_t)i;

		/* If it was the last child that its parent is needed for, the parent is not needed, either. */
		while (at != UW_HASH_NONE && !s->processes[at].unneeded_ns &&
		       is_unneeded(&s->processes[at], time_ns)) {
			s->processes[at].unneeded_ns = s->processes[at].ended_ns;
			at = find(s, s->processes[at].parent);
			if (at != UW_HASH_NONE)
				s->processes[at].n_needs--;
		}
		s->any_ended |= s->processes[i].n_ends && s->processes[i].ended_ns > time_ns;
	}
}

bool live_short_lived_take(struct live_short_lived *s, uint32_t pid, const struct event *event)
{
	uint32_t i = find(s, pid), parent;
	bool unneeded;

	if (i == UW_HASH_NONE)
		return false;
	unneeded = event && leaves_out(&s->processes[i], event->time_ns);
	if (event && is_end(event))
		s->processes[i].n_ends--;
	if (event && is_beginning(event)) {
		s->processes[i].n_begins--;
		parent = find(s, event->fork.parent_pid);
		if (parent != UW_HASH_NONE)
			leave(s, parent);
		i = find(s, pid); /* it may have moved */
	}
	leave(s, i);
	return unneeded;
}

void live_short_lived_fini(struct live_short_lived *s)
{
	free(s->processes);
	uw_hash_fini(&s->by_pid);
	*s = (struct live_short_lived){ 0 };
}
