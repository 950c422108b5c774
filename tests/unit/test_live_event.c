/*
 * tests/unit/test_live_event.c: tests how event names, rates and probes on the command line are
 * read.
 */
#include "agent/live/system/decode.h"

#include "tests/check.h"

#include <string.h>

static int events_of(const char *word, uint64_t count, struct live_events *out)
{
	const struct source_live_options options = {
		.frequency_hz = 99, .count = count, .events = &word, .n_events = 1
	};
	char error[512] = "";
	int err = live_events_of(&options, out, error);

	CHECK(!err == !error[0], word);
	return err;
}

/* Numbers from perf_event_open(2). */
static const struct {
	const char *word;
	uint32_t type;
	uint64_t config;
	bool no_user, no_kernel;
	uint32_t precise;
} words[] = {
	{ "cycles", 0, 0, false, false, 0 },
	{ "cpu-cycles:u", 0, 0, false, true, 0 },
	{ "instructions:k", 0, 1, true, false, 0 },
	{ "branches:upp", 0, 4, false, true, 2 },
	{ "ref-cycles", 0, 9, false, false, 0 },
	{ "cpu-clock", 1, 0, false, false, 0 },
	{ "task-clock", 1, 1, false, false, 0 },
	{ "faults", 1, 2, false, false, 0 },
	{ "cs", 1, 3, false, false, 0 },
	{ "migrations", 1, 4, false, false, 0 },
	{ "major-faults:uk", 1, 6, false, false, 0 },
	{ "L1-dcache-loads", 3, 0, false, false, 0 },
	{ "L1-icache-load-misses", 3, 1 | 1 << 16, false, false, 0 },
	{ "LLC-stores", 3, 2 | 1 << 8, false, false, 0 },
	{ "dTLB-prefetches", 3, 3 | 2 << 8, false, false, 0 },
	{ "node-prefetch-misses:k", 3, 6 | 2 << 8 | 1 << 16, true, false, 0 },
	{ "r1a8", 4, 0x1a8, false, false, 0 },
};

static void test_words_are_perfs(void)
{
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		struct live_events events = { 0 };
		const struct perf_event_attr *attr;

		if (events_of(words[i].word, 0, &events) || events.n != 1) {
			CHECK(false, words[i].word);
			continue;
		}
		attr = &events.events[0].attr;
		CHECK(attr->type == words[i].type && attr->config == words[i].config,
		      words[i].word);
		CHECK(attr->exclude_user == words[i].no_user &&
			      attr->exclude_kernel == words[i].no_kernel &&
			      attr->precise_ip == words[i].precise,
		      words[i].word);
		CHECK(!strcmp(events.events[0].info.name, words[i].word), words[i].word);
		live_events_fini(&events);
	}
}

static void test_other_words_are_refused(void)
{
	static const char *const bad[] = { "",
					   "cycle",
					   "cycles:",
					   "cycles:x",
					   "r",
					   "rxyz",
					   "r11112222333344445",
					   "cycles,,faults",
					   ":sched",
					   "sched:",
					   "cycles:pppp",
					   "sched/../x:id",
					   "no_such_system:no_such_event" };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct live_events events = { 0 };

		CHECK(events_of(bad[i], 0, &events) < 0 && !events.n, bad[i]);
	}
}

static void test_rates(void)
{
	struct live_events events = { 0 };

	CHECK(!events_of("cpu-clock,faults", 0, &events) && events.n == 2, "two");
	CHECK(!events.events[0].attr.freq && events.events[0].attr.sample_period == 10101010 &&
		      !strcmp(events.events[0].info.unit, "nanoseconds"),
	      "a clock ticks");
	CHECK(!events.events[1].attr.freq && events.events[1].attr.sample_period == 1 &&
		      events.events[1].paced && !events.events[1].info.period &&
		      events.events[1].info.frequency_hz == 99 &&
		      !strcmp(events.events[1].info.unit, "count"),
	      "each count of the kernel's own is seen");
	live_events_fini(&events);
	CHECK(!events_of("cache-misses", 0, &events) && events.events[0].attr.freq &&
		      events.events[0].attr.sample_freq == 99 && !events.events[0].paced,
	      "the kernel finds the period of the machine's counters");
	live_events_fini(&events);
	CHECK(!events_of("faults", 5, &events) && !events.events[0].attr.freq &&
		      events.events[0].attr.sample_period == 5 &&
		      events.events[0].info.period == 5 && !events.events[0].paced,
	      "every fifth");
	live_events_fini(&events);
}

static void test_probes(void)
{
	static const struct {
		const char *text, *file, *symbol;
		uint64_t off;
	} good[] = {
		{ "/bin/a:main", "/bin/a", "main", 0 },
		{ "libc.so.6:malloc+0x10", "libc.so.6", "malloc", 16 },
		{ "/a:b:c", "/a:b", "c", 0 },
		{ "/a:0x1234", "/a", NULL, 0x1234 },
	};
	static const char *const bad[] = { "", "a", "a:", ":a", "/a:main+", "/a:main+x", "/a:0xg" };
	struct live_events events;
	char error[512];

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		const struct source_live_options options = {
			.frequency_hz = 99, .probes = &good[i].text, .n_probes = 1, .off_cpu = true
		};
		const struct live_event *e;

		events = (struct live_events){ 0 };
		CHECK(!live_events_of(&options, &events, error) && events.n == 2, good[i].text);
		if (!events.n)
			continue;
		e = &events.events[0];
		CHECK(e->kind == LIVE_EVENT_PROBE && !strcmp(e->file, good[i].file) &&
			      e->off == good[i].off && !e->symbol == !good[i].symbol &&
			      (!e->symbol || !strcmp(e->symbol, good[i].symbol)),
		      good[i].text);
		CHECK(events.events[1].kind == LIVE_EVENT_OFF_CPU, "waiting comes last");
		live_events_fini(&events);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const struct source_live_options options = { .frequency_hz = 99,
							     .probes = &bad[i],
							     .n_probes = 1 };

		error[0] = '\0';
		CHECK(live_events_of(&options, &events, error) && error[0], bad[i]);
	}
}

int main(void)
{
	test_words_are_perfs();
	test_other_words_are_refused();
	test_rates();
	test_probes();
	return check_done();
}
