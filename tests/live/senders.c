/*
 * tests/live/senders.c: sends a recorded history as many hosts would, for tests/live/fleet.sh and tests/bench/fleet.sh.
 *   usage: senders DIRECTORY HISTORY HOSTS SLOT_S URL[,URL…]
 *
 * Each host has a history of its own in the directory and a sender as the daemon's, a process. Windows of the recorded
 * history are added to all of them, one second each, again and again, with the times of a clock that begins at a slot
 * about half an hour ago. Commands are lines of standard input; each is answered by a line:
 *
 *   add N       add N windows to each host
 *   delete I    let the history of host I delete all but the newest windows
 *   restart     kill the senders, and begin them again
 *   wait S      wait until all complete slots are settled, S seconds at most
 *   accounts    a line for each host: name, samples added in complete slots, sent, deleted; then "end"
 */
#include "agent/clock.h"
#include "agent/hash.h"
#include "agent/history/history.h"
#include "agent/send/sender.h"
#include "agent/send/sent.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECOND UINT64_C(1000000000)

enum { HOSTS_MAX = 100, WINDOWS_MAX = 128, COUNTERS_MAX = 256 };

struct window { /* of the recorded history */
	uint64_t start_ns;
	struct history_counter counters[COUNTERS_MAX];
	size_t n_counters;
	int64_t id, unwound;
};

struct host {
	struct sender sender;
	char *path;
	struct history *history;
	uint64_t added, complete; /* samples: in all windows, in those of complete slots */
	pid_t pid;
};

static struct host hosts[HOSTS_MAX];
static struct window windows[WINDOWS_MAX];
static struct strings texts;
static size_t n_hosts, n_windows, n_added;
static uint64_t base_ns, slot_ns;

static _Noreturn void fail(const char *what, int err)
{
	(void)fprintf(stderr, "senders: %s: %s\n", what, strerror(-err));
	_exit(1);
}

static void take_counter(void *ctx, const struct history_counter *c)
{
	struct window *w = ctx;

	if (!strcmp(c->what, "unwound"))
		w->unwound += c->n;
	if (w->n_counters < COUNTERS_MAX)
		w->counters[w->n_counters++] = (struct history_counter){
			strings_keep(&texts, c->what, strlen(c->what)),
			strings_keep(&texts, c->reason, strlen(c->reason)), c->n
		};
}

static void read_windows(struct history *recorded)
{
	struct history_place place = { .id = 0 };
	struct history_entry entry;

	while (n_windows < WINDOWS_MAX && !history_next(recorded, &place, &entry)) {
		struct window *w = &windows[n_windows++];
		int err;

		w->id = entry.id;
		w->start_ns = entry.start_ns;
		err = history_window_counters(recorded, entry.id, take_counter, w);
		if (err)
			fail("counters", err);
		history_take(&place, &entry);
	}
	if (!n_windows)
		fail("the recorded history", -ENOENT);
}

/* ---- hosts -------------------------------------------------------------------------------- */

static void begin(struct host *h)
{
	h->pid = fork();
	if (h->pid < 0)
		fail("fork", -errno);
	if (h->pid)
		return;
	(void)close(STDIN_FILENO);
	_exit(sender_run(&h->sender) ? 1 : 0);
}

/* Let a sender begin with the first window, whenever it gets to open the history. */
static int note_beginning(const struct host *h, const struct target *t)
{
	const struct history_place begin_at = { .id = 0 };
	struct history_place place;
	uint64_t busy = 0;
	int fd, err = sent_open(h->path, &fd);

	if (err)
		return err;
	err = sent_find(fd, t->kind->name, t->url, &begin_at, &busy, &place);
	(void)close(fd);
	return err < 0 ? err : 0;
}

static void make_host(struct host *h, size_t i, const char *directory, const char *urls)
{
	struct target *t = &h->sender.targets[0];
	int err;

	if (asprintf(&h->path, "%s/host-%zu-history.db", directory, i) < 0 ||
	    asprintf(&t->host, "host-%zu", i) < 0 || !(t->url = strdup(urls)))
		fail("memory", -ENOMEM);
	(void)strcpy(t->name, "clickhouse");
	t->kind = target_kind_find("clickhouse");
	t->timeout_s = 10;
	t->slot_s = (uint32_t)(slot_ns / SECOND);
	h->sender.n_targets = 1;
	h->sender.history = h->path;
	err = history_open(h->path, true, &h->history);
	if (!err)
		err = sender_prepare(&h->sender);
	if (!err)
		err = note_beginning(h, t);
	if (err)
		fail(h->path, err);
	/* A sender opens the history for itself: this process closes it before the fork. */
	history_close(h->history);
	begin(h);
}

/* Add the window with that number to a host. */
static void add_window(struct host *h, struct stacks *s, const struct window *w, size_t number)
{
	const struct history_window to = { .start_ns = base_ns + number * SECOND,
					   .end_ns = base_ns + (number + 1) * SECOND,
					   .counters = w->counters,
					   .n_counters = w->n_counters };
	int err = history_add(h->history, s, &to);

	if (err)
		fail("adding a window", err);
	h->added += (uint64_t)w->unwound;
}

/* Add a copy of a sample, some ns later, with a share of its values. */
static void add_share(struct stacks *s, size_t index, uint64_t later_ns, const int64_t *share)
{
	const struct stacks_sample from = s->samples[index];
	const struct stacks_sample copy = { .n_locations = from.n_locations,
					    .n_labels = from.n_labels };
	uint32_t *ids = malloc((size_t)(from.n_locations + from.n_labels + 1) * sizeof(*ids));
	int err = ids ? 0 : -ENOMEM;

	if (ids && from.n_locations)
		memcpy(ids, s->location_ids + from.first_location, from.n_locations * sizeof(*ids));
	for (uint32_t i = 0; !err && i < from.n_labels; i++) {
		uint32_t id = s->label_ids[from.first_label + i];
		struct stacks_label label = s->labels[id];

		if (!strcmp(label.key, HISTORY_TIME_LABEL)) {
			label.number += (int64_t)later_ns;
			id = stacks_keep_label(s, &label);
		}
		err = id == UW_HASH_NONE ? -ENOMEM : 0;
		ids[from.n_locations + i] = id;
	}
	if (!err)
		err = stacks_add(s, &copy, ids, ids + from.n_locations, share);
	free(ids);
	if (err)
		fail("adding a sample", err);
}

/*
 * Divide the samples that are one because they are of one time: those from just before a window, whose time became its
 * beginning, when the recorder came late. A sender counts each sample that was added.
 */
static void divide(struct stacks *s)
{
	enum { TYPES_MAX = 16 };
	const size_t n_types = s->n_types;
	int64_t share[TYPES_MAX];
	size_t count = 0;

	while (count < n_types && strcmp(s->types[count].type, "samples") != 0)
		count++;
	if (count == n_types)
		return;
	if (n_types > TYPES_MAX)
		fail("sample types", -E2BIG);
	for (size_t i = 0, n = s->n_samples; i < n; i++) {
		int64_t times = stacks_value(s, i, count);

		if (times < 2)
			continue;
		for (size_t t = 0; t < n_types; t++) {
			share[t] = stacks_value(s, i, t) / times;
			s->values[i * n_types + t] -= share[t] * (times - 1);
		}
		for (int64_t k = 1; k < times; k++)
			add_share(s, i, (uint64_t)k, share);
	}
}

/* Read a window of the recorded history, with its times moved to where it is added. */
static struct stacks *read_window(struct history *recorded, const struct window *w, size_t number)
{
	const struct history_query query = {
		.from_ns = 1, .to_ns = INT64_MAX, .labels = true, .times = true, .window = w->id
	};
	struct history_found found;
	struct stacks *s = NULL;
	int err = stacks_new(&s);

	if (!err)
		err = history_read(recorded, &query, s, &found);
	if (err)
		fail("reading a window", err);
	divide(s);
	for (size_t i = 0; i < s->n_labels; i++)
		if (!strcmp(s->labels[i].key, HISTORY_TIME_LABEL))
			s->labels[i].number += (int64_t)(base_ns + number * SECOND - w->start_ns);
	return s;
}

static void add(struct history *recorded, size_t n)
{
	for (size_t i = 0; i < n; i++, n_added++) {
		const struct window *w = &windows[n_added % n_windows];
		struct stacks *s = read_window(recorded, w, n_added);
		bool first = n_added * SECOND % slot_ns == 0;

		for (size_t j = 0; j < n_hosts; j++) {
			struct host *h = &hosts[j];
			int err = history_open(h->path, true, &h->history);

			if (err)
				fail(h->path, err);
			if (first) /* what came before this one is complete */
				h->complete = h->added;
			add_window(h, s, w, n_added);
			history_close(h->history);
		}
		stacks_free(s);
	}
}

/* Delete all windows that ended more than two seconds before the last one. */
static void delete_most(struct host *h)
{
	const struct history_limits limits = { .times_ns = 2 * SECOND,
					       .threads_ns = 2 * SECOND,
					       .age_ns = 2 * SECOND,
					       .bytes = UINT64_C(1) << 40 };
	int err = history_open(h->path, true, &h->history);

	while (!err && (err = history_keep(h->history, &limits, base_ns + n_added * SECOND)) == 1)
		err = 0;
	if (err)
		fail("deleting windows", err);
	history_close(h->history);
}

static uint64_t dropped_of(const struct host *h)
{
	uint64_t n = 0;

	for (size_t i = 0; i < SENDING_DROP_N; i++)
		n += h->sender.sending->targets[0].dropped[i];
	return n;
}

/* Return whether all samples of complete slots were sent or given up. */
static bool is_settled(const struct host *h)
{
	return h->sender.sending->targets[0].samples + dropped_of(h) >= h->complete;
}

static bool wait_for_all(long seconds)
{
	const struct timespec moment = { .tv_nsec = 50000000 };

	for (long i = 0; i < seconds * 20; i++, (void)nanosleep(&moment, NULL)) {
		size_t n = 0;

		while (n < n_hosts && is_settled(&hosts[n]))
			n++;
		if (n == n_hosts)
			return true;
	}
	return false;
}

static void restart(void)
{
	for (size_t i = 0; i < n_hosts; i++) {
		(void)kill(hosts[i].pid, SIGKILL);
		(void)waitpid(hosts[i].pid, NULL, 0);
		begin(&hosts[i]);
	}
}

static void put_accounts(void)
{
	for (size_t i = 0; i < n_hosts; i++) {
		struct sending_target *t = &hosts[i].sender.sending->targets[0];

		(void)printf("%s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
			     hosts[i].sender.targets[0].host, hosts[i].complete,
			     (uint64_t)t->samples, dropped_of(&hosts[i]), (uint64_t)t->bytes);
	}
	(void)puts("end");
}

static bool run(struct history *recorded, char *line)
{
	char *word = strtok(line, " \n"), *argument = strtok(NULL, " \n");
	unsigned long n = argument ? strtoul(argument, NULL, 10) : 0;

	if (!word)
		return true;
	if (!strcmp(word, "add"))
		add(recorded, n);
	else if (!strcmp(word, "delete") && n < n_hosts)
		delete_most(&hosts[n]);
	else if (!strcmp(word, "restart"))
		restart();
	else if (!strcmp(word, "wait") && !wait_for_all((long)n))
		return (void)puts("late"), true;
	else if (!strcmp(word, "accounts"))
		return put_accounts(), true;
	else if (strcmp(word, "wait") != 0)
		return false;
	(void)puts("done");
	return true;
}

int main(int argc, char **argv)
{
	struct history *recorded = NULL;
	char line[256];
	int err, rc = 0;

	if (argc != 6)
		return 2;
	hash_randomize();
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	n_hosts = strtoul(argv[3], NULL, 10);
	slot_ns = strtoul(argv[4], NULL, 10) * SECOND;
	if (!n_hosts || n_hosts > HOSTS_MAX || !slot_ns)
		return 2;
	base_ns = clock_ns(CLOCK_REALTIME) - 1800 * SECOND;
	base_ns -= base_ns % slot_ns;
	err = history_open(argv[2], false, &recorded);
	if (err)
		return 1;
	read_windows(recorded);
	for (size_t i = 0; i < n_hosts; i++)
		make_host(&hosts[i], i, argv[1], argv[5]);
	while (!rc && fgets(line, sizeof(line), stdin))
		rc = !run(recorded, line);
	for (size_t i = 0; i < n_hosts; i++)
		(void)kill(hosts[i].pid, SIGKILL);
	return rc;
}
