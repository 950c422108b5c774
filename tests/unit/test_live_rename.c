/* tests/unit/test_live_rename.c: tests that of many names of a thread the last one is kept. */
#include "agent/live/rename.h"

#include <string.h>

#include "tests/check.h"

static struct event name(uint32_t tid, uint64_t time_ns, const char *comm)
{
	return (struct event){
		.type = EVENT_COMM, .pid = 1, .tid = tid, .time_ns = time_ns, .comm = { comm }
	};
}

static bool is(const struct event *event, uint32_t tid, uint64_t time_ns, const char *comm)
{
	return event && event->type == EVENT_COMM && event->tid == tid &&
	       event->time_ns == time_ns && !strcmp(event->comm.comm, comm);
}

static void test_the_last_name_counts(void)
{
	struct live_rename rename = { 0 };
	char comm[] = "one";
	struct event next = name(7, 1000, comm);

	CHECK(!live_rename_take(&rename) && !live_rename_replace(&rename, &next), "none is held");
	live_rename_hold(&rename, &next);
	memset(comm, 'x', sizeof(comm) - 1);
	CHECK(is(live_rename_take(&rename), 7, 1000, "one"), "a copy");
	CHECK(!live_rename_take(&rename) && !live_rename_replace(&rename, &next), "it was taken");

	live_rename_hold(&rename, &next);
	for (uint64_t i = 0; i <= LIVE_RENAME_NS; i += LIVE_RENAME_NS / 10) {
		next = name(7, 1000 + i, i == LIVE_RENAME_NS ? "last" : "between");
		CHECK(live_rename_replace(&rename, &next), "replaced");
	}
	next = name(7, 1001 + LIVE_RENAME_NS, "later");
	CHECK(!live_rename_replace(&rename, &next), "a later name is another event");
	CHECK(is(live_rename_take(&rename), 7, 1000, "last"), "from the time of the first on");
}

static void test_other_events_do_not_replace_a_name(void)
{
	const struct event exit = { .type = EVENT_EXIT, .pid = 1, .tid = 7, .time_ns = 1001 };
	struct live_rename rename = { 0 };
	struct event first = name(7, 1000, "one"), next = name(8, 1001, "of another thread");

	live_rename_hold(&rename, &first);
	CHECK(!live_rename_replace(&rename, &next), "another thread");
	CHECK(!live_rename_replace(&rename, &exit), "another kind");
	next = name(7, 999, "from the ring of another CPU");
	CHECK(!live_rename_replace(&rename, &next), "an earlier one");
	CHECK(is(live_rename_take(&rename), 7, 1000, "one"), "it is unchanged");
}

int main(void)
{
	test_the_last_name_counts();
	test_other_events_do_not_replace_a_name();
	return check_done();
}
