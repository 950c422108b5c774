/* How the rate follows the CPU time that is used. */
#include "agent/cli/cpu_budget.h"

#include "tests/check.h"

#define SECOND	    UINT64_C(1000000000)
#define ONE_PERCENT 10000u

/* Let time pass, in seconds, of which samples take some ns each and other work some ns a second. */
struct machine {
	struct cpu_budget budget;
	uint64_t now_ns, cpu_ns, sample_ns, other_ns;
	uint32_t lowest, highest, n_changes;
};

static void run(struct machine *m, int seconds)
{
	m->lowest = m->highest = m->budget.hz;
	m->n_changes = 0;
	for (int i = 0; i < seconds; i++) {
		m->now_ns += SECOND;
		m->cpu_ns += m->budget.hz * m->sample_ns + m->other_ns;
		m->n_changes += cpu_budget_look(&m->budget, m->now_ns, m->cpu_ns);
		m->lowest = m->budget.hz < m->lowest ? m->budget.hz : m->lowest;
		m->highest = m->budget.hz > m->highest ? m->budget.hz : m->highest;
	}
}

static struct machine begin(uint32_t share, uint32_t hz)
{
	struct machine m = { .now_ns = 5 * SECOND };

	cpu_budget_init(&m.budget, share, hz);
	return m;
}

static void test_without_budget_nothing_changes(void)
{
	struct machine m = begin(0, 99);

	m.sample_ns = SECOND;
	run(&m, 600);
	CHECK(m.budget.hz == 99 && !m.n_changes, "however much is used");
}

static void test_within_budget_nothing_changes(void)
{
	struct machine m = begin(ONE_PERCENT, 99);

	m.sample_ns = 90000; /* 0.89 % */
	run(&m, 600);
	CHECK(m.budget.hz == 99 && !m.n_changes, "within");
}

static void test_above_budget_the_rate_falls_until_it_fits(void)
{
	struct machine m = begin(ONE_PERCENT, 99);

	m.sample_ns = 300000; /* 2.97 % at 99 Hz, 0.72 % at 24 Hz */
	run(&m, 600);
	CHECK(m.budget.hz == 24 && m.n_changes == 2, "two steps, and no way back");
}

static void test_budget_that_is_used_up_is_noticed_before_the_minute_ends(void)
{
	struct machine m = begin(ONE_PERCENT, 99);

	m.other_ns = SECOND; /* 0.6 s are used up at once */
	run(&m, 2);
	CHECK(m.budget.hz == 49, "after the first second");
}

static void test_rate_comes_back_when_there_is_room(void)
{
	struct machine m = begin(ONE_PERCENT, 99);

	m.sample_ns = 3000000;
	run(&m, 120);
	CHECK(m.budget.hz == 3 || m.budget.hz == 1, "much lower");
	m.sample_ns = 30000;
	run(&m, 420);
	CHECK(m.budget.hz == 99 && m.highest == 99, "the configured rate, and not more");
	run(&m, 600);
	CHECK(!m.n_changes, "where it stays");
}

static void test_rate_does_not_swing(void)
{
	struct machine m = begin(ONE_PERCENT, 100);

	/* 1.1 % at 100 Hz, 0.55 % at 50 Hz: there is never room for 100. */
	m.sample_ns = 110000;
	run(&m, 3600);
	CHECK(m.budget.hz == 50 && m.n_changes == 1, "one step in an hour");
}

static void test_lowest_rate_is_one(void)
{
	struct machine m = begin(1, 99);

	m.other_ns = SECOND / 2;
	run(&m, 300);
	CHECK(m.budget.hz == 1 && m.budget.spent && m.lowest == 1, "1 Hz, and it is known");
	m.other_ns = 0;
	m.sample_ns = 1;
	run(&m, 900);
	CHECK(m.budget.hz == 99 && !m.budget.spent, "and back");
}

static void test_pause_is_no_use(void)
{
	struct machine m = begin(ONE_PERCENT, 99);

	m.sample_ns = 90000;
	run(&m, 30);
	/* Nobody looked for ten minutes, in which the same was used as before. */
	m.now_ns += 600 * SECOND;
	m.cpu_ns += 600 * 99 * m.sample_ns;
	run(&m, 60);
	CHECK(m.budget.hz == 99 && !m.n_changes, "the share of the time counts");
}

static void test_change_that_failed_is_tried_again(void)
{
	struct machine m = begin(ONE_PERCENT, 99);

	m.other_ns = SECOND;
	run(&m, 2);
	cpu_budget_keep(&m.budget, 99);
	run(&m, 1);
	CHECK(m.budget.hz == 49 && m.n_changes == 1, "once more");
}

int main(void)
{
	test_without_budget_nothing_changes();
	test_within_budget_nothing_changes();
	test_above_budget_the_rate_falls_until_it_fits();
	test_budget_that_is_used_up_is_noticed_before_the_minute_ends();
	test_rate_comes_back_when_there_is_room();
	test_rate_does_not_swing();
	test_lowest_rate_is_one();
	test_pause_is_no_use();
	test_change_that_failed_is_tried_again();
	return check_done();
}
