/* Copies of what of a recording can change, and messages with it. */
#include "agent/live/choice.h"

#include "tests/check.h"

#include <errno.h>
#include <string.h>

static int32_t pids[] = { 1, 4711, INT32_MAX };
static uint32_t uids[] = { 0, UINT32_MAX };
static const char *const comms[] = { "java", "", "kworker/0:1" }, *const units[] = { "nginx" };
static const struct source_live_options given = { .frequency_hz = 49,
						  .pids = pids,
						  .n_pids = 3,
						  .uids = uids,
						  .n_uids = 2,
						  .comms = comms,
						  .n_comms = 3,
						  .units = units,
						  .n_units = 1,
						  .stack_max = 7 };

static bool is_as_given(const struct source_live_options *o)
{
	return o->frequency_hz == 49 && o->n_pids == 3 && !memcmp(o->pids, pids, sizeof(pids)) &&
	       o->n_uids == 2 && !memcmp(o->uids, uids, sizeof(uids)) && o->n_comms == 3 &&
	       !strcmp(o->comms[0], "java") && !*o->comms[1] &&
	       !strcmp(o->comms[2], "kworker/0:1") && o->n_units == 1 &&
	       !strcmp(o->units[0], "nginx") && !o->n_cgroups && !o->n_containers && !o->n_pods &&
	       !o->stack_max;
}

static void test_copy_is_its_own(void)
{
	struct live_choice choice;

	CHECK(!live_choice_copy(&given, &choice), "copied");
	CHECK(is_as_given(&choice.options), "all that can change, and nothing else");
	CHECK(choice.options.pids != pids && choice.options.units[0] != units[0],
	      "borrows nothing");
	live_choice_fini(&choice);
	live_choice_fini(&choice);
}

static void test_message_has_it(void)
{
	static struct message m;
	struct live_choice choice;

	message_init(&m);
	live_choice_put(&m, &given);
	CHECK(!m.err && !live_choice_take(&m, &choice) && is_as_given(&choice.options), "taken");
	live_choice_fini(&choice);
}

/* Whatever a message is cut to, it is refused, and nothing is left. */
static void test_cut_message_is_refused(void)
{
	static struct message whole, m;
	struct live_choice choice;
	int wrong = 0;

	message_init(&whole);
	live_choice_put(&whole, &given);
	for (size_t size = 0; size < whole.size; size++) {
		m = whole;
		m.size = size;
		wrong += live_choice_take(&m, &choice) != -EBADMSG;
		live_choice_fini(&choice);
	}
	CHECK(!wrong, "cut anywhere");
	message_init(&m);
	message_number(&m, 1);
	message_number(&m, UINT64_MAX);
	CHECK(live_choice_take(&m, &choice) == -EBADMSG, "a list without end");
	live_choice_fini(&choice);
}

static void test_too_much_does_not_fit(void)
{
	static char text[1000];
	static const char *many[100];
	struct source_live_options options = { .comms = many, .n_comms = 100 };
	static struct message m;

	memset(text, 'x', sizeof(text) - 1);
	for (size_t i = 0; i < 100; i++)
		many[i] = text;
	message_init(&m);
	live_choice_put(&m, &options);
	CHECK(m.err == -E2BIG, "100 KB of names");
}

int main(void)
{
	test_copy_is_its_own();
	test_message_has_it();
	test_cut_message_is_refused();
	test_too_much_does_not_fit();
	return check_done();
}
