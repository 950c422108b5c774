/* tests/unit/test_recording.c: tests what the daemon's server can ask the supervisor to record. */
#include "agent/cmd/on_demand.h"
#include "agent/http/recording.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/clock.h"
#include "agent/role/channel.h"
#include "tests/check.h"

static struct on_demand_settings settings;

static void give_settings(void *ctx, struct on_demand_settings *out)
{
	(void)ctx;
	*out = settings;
}

/*
 * Ask as the server does, in a process of its own. Return the code, and what was said. 1: the other process
 * found something wrong.
 */
static int ask(const struct recording_wish *wish, char text[RECORDING_ERROR], uint64_t *n_refused)
{
	static struct recordings counts;
	struct on_demand o = { .settings = give_settings, .counts = &counts, .poll = -1 };
	int reply[2], status = 0, code = 1;
	pid_t pid;

	counts = (struct recordings){ .running = 0 };
	if (on_demand_begin(&o) || pipe(reply) || (pid = fork()) < 0)
		abort();
	if (!pid) {
		struct channels *channels = on_demand_serve(&o);
		struct recording r = RECORDING_NONE;

		code = channels ? recording_begin(channels, wish, &r) : 1;
		if (!code) /* it would record */
			recording_end(&r);
		if (write(reply[1], &code, sizeof(code)) != sizeof(code) ||
		    write(reply[1], r.text, sizeof(r.text)) != sizeof(r.text))
			_exit(1);
		_exit(0);
	}
	on_demand_began(&o);
	while (!waitpid(pid, &status, WNOHANG))
		on_demand_act(&o);
	CHECK(!status && read(reply[0], &code, sizeof(code)) == sizeof(code) &&
		      read(reply[0], text, RECORDING_ERROR) == RECORDING_ERROR,
	      "the server's process");
	on_demand_act(&o);
	*n_refused = counts.n[RECORDING_REFUSED];
	on_demand_end(&o);
	on_demand_leave(&o);
	free(o.all);
	(void)close(reply[0]);
	(void)close(reply[1]);
	return code;
}

static char unit_word[] = "--unit=a.service", comm_word[] = "--comm=x",
	    rotate_word[] = "--rotate=2";
static char *words[] = { rotate_word, unit_word, comm_word };

static const struct {
	const char *what, *said;
	enum on_demand_mode mode;
	struct recording_word word;
	size_t n_words; /* of the daemon's */
	int err;
} refused[] = {
	{ "nothing is allowed", "allow no recordings", ON_DEMAND_NO, { "pid", "1" }, 0, -EPERM },
	{ "events", "not of event", ON_DEMAND_TIME, { "event", "page-faults" }, 0, -EPERM },
	{ "probes", "not of uprobe", ON_DEMAND_TIME, { "uprobe", "/bin/a:b" }, 0, -EPERM },
	{ "another option",
	  "asked for with output",
	  ON_DEMAND_ANY,
	  { "output", "/etc/x" },
	  0,
	  -EINVAL },
	{ "an option in a name",
	  "asked for with pid=1",
	  ON_DEMAND_ANY,
	  { "pid=1", "2" },
	  0,
	  -EINVAL },
	{ "the same kind", "by --unit=a.service", ON_DEMAND_ANY, { "unit", "b" }, 2, -EPERM },
	{ "another name of a group",
	  "by --unit=a.service",
	  ON_DEMAND_ANY,
	  { "cgroup", "/" },
	  2,
	  -EPERM },
	{ "a name", "by --comm=x", ON_DEMAND_ANY, { "comm", "y" }, 3, -EPERM },
};

static void test_what_settings_forbid_is_refused(void)
{
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		struct recording_wish wish = {
			.seconds = 1, .hz = 1, .words = { refused[i].word }, .n_words = 1
		};
		char text[RECORDING_ERROR] = "";
		uint64_t n = 0;

		settings = (struct on_demand_settings){ .mode = refused[i].mode,
							.db = "/nowhere",
							.words = words,
							.n_words = refused[i].n_words };
		CHECK(ask(&wish, text, &n) == refused[i].err, refused[i].what);
		CHECK(strstr(text, refused[i].said) && n == 1, text);
	}
}

static void test_bounds_hold_for_whoever_asks(void)
{
	const struct {
		const char *what;
		uint32_t seconds, hz;
	} cases[] = { { "no time", 0, 1 },
		      { "too long", RECORDING_SECONDS_MAX + 1, 1 },
		      { "no rate", 1, 0 },
		      { "too often", 1, RECORDING_HZ_MAX + 1 } };

	settings = (struct on_demand_settings){ .mode = ON_DEMAND_ANY, .db = "/nowhere" };
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct recording_wish wish = { .seconds = cases[i].seconds, .hz = cases[i].hz };
		char text[RECORDING_ERROR] = "";
		uint64_t n = 0;

		CHECK(ask(&wish, text, &n) == -EBADMSG && n == 1, cases[i].what);
	}
}

/* Whatever bytes a server that was taken over sends, they are read within their bounds. */
static void test_damaged_requests_are_refused(void)
{
	static struct message m;
	struct recording_wish wish;

	for (size_t i = 0; i < 20000; i++) {
		message_init(&m);
		message_number(&m, 1 + i % 600);
		message_number(&m, 1 + i % 999);
		message_number(&m, i % (RECORDING_WORDS + 2));
		m.size = i % 3 ? m.size : i % (m.size + 1);
		for (size_t j = 0; j < i % 200; j++)
			m.bytes[m.size++] = (uint8_t)(i * 31 + j * j * 7);
		if (recording_take(&m, &wish))
			continue;
		for (size_t j = 0; j < wish.n_words; j++)
			CHECK(wish.words[j].name, "each word has a name");
	}
	message_init(&m);
	message_number(&m, 1);
	message_number(&m, 1);
	message_number(&m, 1);
	message_text(&m, "pid");
	message_text(&m, NULL);
	CHECK(!recording_take(&m, &wish) && wish.n_words == 1 && !wish.words[0].value,
	      "a word without a value");
	m.at = 0;
	m.size -= 3;
	CHECK(recording_take(&m, &wish) == -EBADMSG, "one that is cut short");
}

static void test_an_end_is_heard_of_once(void)
{
	struct recording r = RECORDING_NONE;
	int ends[2];

	CHECK(recording_is_over(&r, 0), "there is none");
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends))
		abort();
	r.end = ends[0];
	r.until_ns = 1000;
	CHECK(!recording_is_over(&r, 999), "it goes on");
	recording_say_end(ends[1], 2, "no such unit");
	(void)close(ends[1]);
	CHECK(recording_is_over(&r, 999) && r.code == 2 && !strcmp(r.text, "no such unit"),
	      "it ended, and why");
	recording_end(&r);

	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends))
		abort();
	r = (struct recording){ .profile = -1, .end = ends[0], .until_ns = 1000 };
	(void)close(ends[1]);
	CHECK(recording_is_over(&r, 0) && r.code == -1, "the supervisor is gone");
	recording_end(&r);

	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends))
		abort();
	r = (struct recording){ .profile = -1, .end = ends[0], .until_ns = 1000 };
	CHECK(recording_is_over(&r, 1000) && r.code == -1, "it took too long");
	recording_end(&r);
	(void)close(ends[1]);
}

int main(void)
{
	test_what_settings_forbid_is_refused();
	test_bounds_hold_for_whoever_asks();
	test_damaged_requests_are_refused();
	test_an_end_is_heard_of_once();
	return check_done();
}
