/* Records as the capture programs write them, see schema/capture.h, and the events made of them. */
#include "agent/live/captured.h"

#include "tests/check.h"

#include <string.h>

enum { EVENTS = 3 };

/* A record, and how many bytes of it are filled. */
static union {
	struct capture_head head;
	uint8_t bytes[CAPTURE_HEAD_SIZE + 65536];
} record;
static uint32_t size;

static void append(const void *bytes, uint32_t n)
{
	memcpy(record.bytes + size, bytes, n);
	size = (size + n + 7) & ~7u;
}

/* Begin a record of a thread whose stack pointer is sp, with stack_len bytes of stack: 0, 1, 2, … */
static void begin(uint64_t sp, uint32_t stack_len, uint16_t flags)
{
	uint8_t stack[32768];

	memset(&record, 0, sizeof(record));
	record.head = (struct capture_head){ .magic = CAPTURE_MAGIC,
					     .event = EVENTS - 1,
					     .pid = 7,
					     .tid = 8,
					     .uid = 1000,
					     .time_ns = 1000,
					     .period = 5,
					     .flags = CAPTURE_HAS_USER | flags,
					     .stack_len = stack_len };
	record.head.regs[7] = sp;
	size = CAPTURE_HEAD_SIZE;
	for (uint32_t i = 0; i < stack_len; i++)
		stack[i] = (uint8_t)i;
	append(stack, stack_len);
}

static void test_a_sample(void)
{
	const uint64_t ips[] = { 0xffffffff81000010, 0xffffffff81000020 };
	struct uw_region regions[LIVE_REGIONS_MAX];
	struct event event;

	begin(0x7000 + CAPTURE_RED_ZONE, 203, 0);
	record.head.kernel_len = sizeof(ips);
	append(ips, sizeof(ips));
	CHECK(live_captured_sound(&record.head, size, EVENTS), "sound");
	live_captured_sample(&record.head, 1, NULL, regions, &event);
	CHECK(event.type == EVENT_SAMPLE && event.pid == 7 && event.tid == 8 &&
		      event.time_ns == 1000 && event.sample.period == 5 &&
		      event.sample.event == EVENTS - 1 && event.sample.has_uid &&
		      event.sample.uid == 1000,
	      "the head");
	CHECK(event.sample.n_regions == 1 && regions[0].addr == 0x7000 && regions[0].size == 203 &&
		      regions[0].bytes[202] == 202,
	      "the stack begins below the red zone");
	CHECK(event.sample.n_kernel_ips == 2 && !memcmp(event.sample.kernel_ips, ips, sizeof(ips)),
	      "the kernel's stack follows it, aligned");
}

static void test_unsound_records(void)
{
	begin(0x7000, 64, 0);
	CHECK(live_captured_sound(&record.head, size, EVENTS), "sound");
	CHECK(!live_captured_sound(&record.head, size, EVENTS - 1), "an event that is not there");
	CHECK(!live_captured_sound(&record.head, size - 8, EVENTS), "too short");
	CHECK(!live_captured_sound(&record.head, size + 8, EVENTS), "too long");
	CHECK(!live_captured_sound(&record.head, CAPTURE_HEAD_SIZE - 8, EVENTS), "half a head");
	record.head.flags |= CAPTURE_HOLES;
	CHECK(!live_captured_sound(&record.head, size, EVENTS), "without its holes");
	begin(0x7000, 64, 0);
	record.head.kernel_len = 4;
	CHECK(!live_captured_sound(&record.head, size + 4, EVENTS), "half an address");
	begin(0x7000, 64, 0);
	record.head.magic++;
	CHECK(!live_captured_sound(&record.head, size, EVENTS), "of another version");
	begin(0x7000, 64, 0);
	record.head.stack_len = CAPTURE_STACK_LIMIT + 8;
	CHECK(!live_captured_sound(&record.head, CAPTURE_HEAD_SIZE + CAPTURE_STACK_LIMIT + 8,
				   EVENTS),
	      "more stack than there can be");
}

/* Of five pages, the second and the third could not be read. */
static void test_holes_divide_the_stack(void)
{
	const uint64_t from = 0x7000 + 4000;
	struct capture_holes holes = { .pages = { 1 << 1 | 1 << 2 } };
	struct uw_region regions[LIVE_REGIONS_MAX];
	struct event event;

	begin(from + CAPTURE_RED_ZONE, 96 + 3 * CAPTURE_PAGE + 10, CAPTURE_HOLES);
	append(&holes, sizeof(holes));
	CHECK(live_captured_sound(&record.head, size, EVENTS), "sound");
	live_captured_sample(&record.head, 1, NULL, regions, &event);
	CHECK(event.sample.n_regions == 2, "two runs");
	CHECK(regions[0].addr == from && regions[0].size == 96, "up to the hole");
	CHECK(regions[1].addr == 0xa000 && regions[1].size == CAPTURE_PAGE + 10 &&
		      regions[1].bytes == regions[0].bytes + 96 + 2 * CAPTURE_PAGE,
	      "from behind it on");
}

/* A thread may put any number into sp: the bytes below it begin at the end of the address space. */
static void test_a_stack_may_wrap(void)
{
	const struct capture_holes none = { .pages = { 0 } };
	struct uw_region regions[LIVE_REGIONS_MAX];
	struct event event;

	begin(64, 0, CAPTURE_HOLES);
	append(&none, sizeof(none));
	CHECK(live_captured_sound(&record.head, size, EVENTS), "sound");
	live_captured_sample(&record.head, 1, NULL, regions, &event);
	CHECK(event.sample.n_regions == 0, "nothing was copied");
	begin(64, 100, CAPTURE_HOLES);
	append(&none, sizeof(none));
	live_captured_sample(&record.head, 1, NULL, regions, &event);
	CHECK(event.sample.n_regions == 1 && regions[0].size == 100 &&
		      regions[0].bytes == record.bytes + CAPTURE_HEAD_SIZE,
	      "as much as was copied");
}

static void second_stack(uint64_t from, uint32_t n)
{
	uint8_t bytes[4096] = { 99 };

	append(&from, sizeof(from));
	append(bytes, n);
	record.head.interrupted_len = n;
}

static void test_a_second_stack(void)
{
	struct uw_region regions[LIVE_REGIONS_MAX];
	struct event event;

	begin(0x7000 + CAPTURE_RED_ZONE, 100, 0);
	second_stack(0x9000, 50);
	CHECK(live_captured_sound(&record.head, size, EVENTS), "sound");
	live_captured_sample(&record.head, 1, NULL, regions, &event);
	CHECK(event.sample.n_regions == 2 && regions[1].addr == 0x9000 && regions[1].size == 50 &&
		      regions[1].bytes[0] == 99,
	      "it is a region of its own");
	begin(0x7000 + CAPTURE_RED_ZONE, 100, 0);
	second_stack(0x6f00, 1024);
	live_captured_sample(&record.head, 1, NULL, regions, &event);
	CHECK(event.sample.n_regions == 1 && regions[0].addr == 0x6f00 && regions[0].size == 1024,
	      "it replaces a stack that lies within it");
	begin(0x7000 + CAPTURE_RED_ZONE, 100, 0);
	second_stack(0x7050, 1024);
	live_captured_sample(&record.head, 1, NULL, regions, &event);
	CHECK(event.sample.n_regions == 1 && regions[0].addr == 0x7000,
	      "it is left out if it covers the first in part");
}

static void test_an_allocation_stands_for_others(void)
{
	struct capture_alloc alloc = { .id = 3, .size = 64, .addr = 1 };
	struct uw_region regions[LIVE_REGIONS_MAX];
	struct event event;

	begin(0x7000, 64, CAPTURE_ALLOC);
	append(&alloc, sizeof(alloc));
	CHECK(live_captured_sound(&record.head, size, EVENTS), "sound");
	live_captured_sample(&record.head, 1, NULL, regions, &event);
	CHECK(event.sample.alloc.objects == EVENT_OBJECT && event.sample.period == 64 &&
		      event.sample.alloc.tracked,
	      "all are captured: for itself");
	/* 1 / (1 - exp(-64 / 6400)) = 100.5008 */
	live_captured_sample(&record.head, 6400, NULL, regions, &event);
	CHECK(event.sample.alloc.objects / EVENT_OBJECT == 100 && event.sample.period == 6432,
	      "one in a hundred is captured");
}

static void test_a_wait_has_two_parts(void)
{
	static struct live_waited wait = { .wake = { .began_ns = 1005, .time_ns = 3005, .n = 4 } };
	struct uw_region regions[LIVE_REGIONS_MAX];
	const struct event_sample *s;
	struct event event;

	begin(0x7000, 64, CAPTURE_OFF_CPU);
	wait.head = record.head;
	wait.head.stack_len = 0;
	s = &event.sample;
	live_captured_sample(&wait.head, 1, NULL, regions, &event);
	live_captured_wait(&wait, false, &event);
	CHECK(event.time_ns == 3005 && s->period == 8000 && s->wait.n == 4, "for four");
	CHECK(!s->wait.runnable && !s->wait.waker, "who woke it was not seen");
	wait.wake.woken_ns = 2505;
	live_captured_wait(&wait, false, &event);
	CHECK(s->period == 8000 && s->wait.runnable == 2000, "a quarter is ready to run");
	CHECK(!strcmp(s->wait.waker, EVENT_INTERRUPT) && !s->wait.waker_tid, "woken by none");
	wait.wake.waker_pid = 5;
	wait.wake.waker_tid = 6;
	memcpy(wait.wake.waker, "sh", 3);
	wait.wake.others = 2;
	wait.wake.others_blocked_ns = 100;
	wait.wake.others_runnable_ns = 10;
	live_captured_wait(&wait, false, &event);
	CHECK(!strcmp(s->wait.waker, "sh") && s->wait.waker_pid == 5 && s->wait.waker_tid == 6,
	      "woken by a thread");
	CHECK(s->wait.n == 6 && s->period == 8110 && s->wait.runnable == 2010, "with two others");
	wait.wake.woken_ns = 900;
	live_captured_wait(&wait, false, &event);
	CHECK(s->wait.runnable == 10, "woken before it waited");
	wait.wake.time_ns = UINT64_MAX / 2;
	live_captured_wait(&wait, false, &event);
	CHECK(s->period >= INT64_MAX && s->wait.runnable <= s->period, "very long");
}

/* Return what is said of the waker's stack of a wait. */
static int waker_of(uint32_t stack, uint64_t id, bool wakers)
{
	static struct live_waited wait = { .wake = { .began_ns = 5, .time_ns = 3005, .n = 1 } };
	struct uw_region regions[LIVE_REGIONS_MAX];
	struct event event;

	begin(0x7000, 0, CAPTURE_OFF_CPU);
	wait.head = record.head;
	wait.wake.waker_stack = stack;
	wait.id = id;
	live_captured_sample(&wait.head, 1, NULL, regions, &event);
	live_captured_wait(&wait, wakers, &event);
	CHECK(event.type == EVENT_SAMPLE && event.sample.wait.id == id, "a wait");
	return event.sample.wait.waker_stack;
}

static void test_a_wait_says_why_it_has_no_waker(void)
{
	CHECK(waker_of(CAPTURE_WAKER_NONE, 0, false) == EVENT_WAKER_NOT_ASKED, "not asked for");
	CHECK(waker_of(CAPTURE_WAKER_SENT, 7, true) == EVENT_WAKER_SENT, "it is there");
	CHECK(waker_of(CAPTURE_WAKER_SENT, 0, true) == EVENT_WAKER_LOST, "it did not arrive");
	CHECK(waker_of(CAPTURE_WAKER_NONE, 0, true) == EVENT_WAKER_INTERRUPT, "an interrupt");
	CHECK(waker_of(CAPTURE_WAKER_OTHER, 0, true) == EVENT_WAKER_NOT_SELECTED, "another one's");
	CHECK(waker_of(CAPTURE_WAKER_SHORT, 0, true) == EVENT_WAKER_TOO_SHORT, "too short");
	CHECK(waker_of(CAPTURE_WAKER_FULL, 0, true) == EVENT_WAKER_LOST, "no room");
	CHECK(waker_of(CAPTURE_WAKER_UNREADABLE, 0, true) == EVENT_WAKER_UNREADABLE,
	      "no registers");
	CHECK(waker_of(99, 0, true) == EVENT_WAKER_UNSEEN, "unknown");
}

static void test_a_waker_names_its_wait(void)
{
	const struct capture_woken woken = { .tid = 5, .since_ns = 77 };
	static struct live_waited waker;
	struct uw_region regions[LIVE_REGIONS_MAX];
	struct event event;

	begin(0x7000, 64, CAPTURE_WAKER | CAPTURE_HAS_USER);
	CHECK(!live_captured_sound(&record.head, CAPTURE_HEAD_SIZE + 64, EVENTS),
	      "it lacks its wait");
	memcpy((uint8_t *)&record.head + CAPTURE_HEAD_SIZE + 64, &woken, sizeof(woken));
	CHECK(live_captured_sound(&record.head, CAPTURE_HEAD_SIZE + 64 + sizeof(woken), EVENTS),
	      "sound");
	CHECK(live_captured_woken(&record.head).tid == 5 &&
		      live_captured_woken(&record.head).since_ns == 77,
	      "which wait it ended");
	waker.head = record.head;
	waker.id = 9;
	live_captured_sample(&record.head, 1, NULL, regions, &event);
	live_captured_wait(&waker, true, &event);
	CHECK(event.type == EVENT_WAKER && event.time_ns == record.head.time_ns &&
		      event.sample.wait.id == 9 && event.sample.n_regions == 1,
	      "an event of its own");
}

/* Begin a record with slices of 24 words at 0x1000, 0x2000, …, whose words are first, first + 1, …; of them, only so many bytes. */
static void begin_slices(unsigned int n, uint64_t first, uint32_t bytes)
{
	uint64_t words[4 * 25];

	for (unsigned int i = 0; i < n * 25; i++)
		words[i] =
			i % 25 ? first + i : (uint64_t)24 << PLAN_ADDR_BITS | 0x1000 * (1 + i / 25);
	begin(0x7000 + CAPTURE_RED_ZONE, 16, 0);
	record.head.slices_len = (uint16_t)bytes;
	record.head.slices_end = PLAN_STEPS;
	append(words, bytes);
}

/* Let the record refer to a base, or be one. */
static void refer(uint32_t base, uint32_t n)
{
	const struct plan_reference reference = { base, n };

	record.head.slices_refer = 1;
	record.head.slices_len += (uint16_t)sizeof(reference);
	append(&reference, sizeof(reference));
}

/* Return whether slice i has its words. */
static bool has_slice(const struct event *event, uint32_t i, uint64_t first)
{
	const struct uw_region *slice = &event->sample.slices[i];
	uint64_t words[24];

	if (i >= event->sample.n_slices || slice->addr != 0x1000 * (1 + i) ||
	    slice->size != sizeof(words))
		return false;
	memcpy(words, slice->bytes, sizeof(words));
	return words[0] == first + 25 * i + 1 && words[23] == first + 25 * i + 24;
}

static void test_slices_of_an_earlier_record(void)
{
	static struct live_bases bases;
	struct uw_region regions[LIVE_REGIONS_MAX];
	struct event event;

	begin_slices(4, 0, 800);
	CHECK(live_captured_sound(&record.head, size, EVENTS), "sound");
	live_captured_sample(&record.head, 1, &bases, regions, &event);
	CHECK(has_slice(&event, 3, 0) && event.sample.n_slices == 4, "it has all itself");
	refer(9, 0);
	CHECK(live_captured_sound(&record.head, size, EVENTS) &&
		      live_captured_size(&record.head) == size,
	      "sound");
	live_captured_sample(&record.head, 1, NULL, regions, &event);
	CHECK(has_slice(&event, 3, 0) && event.sample.n_slices == 4, "a base that nobody keeps");
	live_captured_sample(&record.head, 1, &bases, regions, &event);
	CHECK(has_slice(&event, 3, 0) && event.sample.n_slices == 4, "a base");

	/* 144 bytes are its own: the last slice of them is cut. Of the base, 656 follow: what is not its own is as there. */
	begin_slices(1, 100, 144);
	refer(9, 656);
	live_captured_sample(&record.head, 1, &bases, regions, &event);
	CHECK(event.sample.n_slices == 4 && event.sample.slices_end == PLAN_STEPS &&
		      has_slice(&event, 1, 0) && has_slice(&event, 3, 0),
	      "those of the base");
	CHECK(*(const uint64_t *)(const void *)event.sample.slices[0].bytes == 101, "its own");
	live_captured_sample(&record.head, 1, NULL, regions, &event);
	CHECK(event.sample.n_slices == 0 && event.sample.slices_end == PLAN_LOST, "not known");
	record.head.cpu = 1;
	live_captured_sample(&record.head, 1, &bases, regions, &event);
	CHECK(event.sample.n_slices == 0 && event.sample.slices_end == PLAN_LOST, "another CPU's");
	live_bases_fini(&bases);

	begin_slices(1, 0, 0);
	record.head.slices_refer = 1;
	CHECK(!live_captured_sound(&record.head, size, EVENTS), "without a reference");
	refer(9, 0);
	record.head.slices_refer = 2;
	CHECK(!live_captured_sound(&record.head, size, EVENTS), "unknown");
	record.head.slices_refer = 1;
	record.head.slices_end = PLAN_LOST;
	CHECK(!live_captured_sound(&record.head, size, EVENTS), "not the kernel's to say");
}

int main(void)
{
	test_a_wait_says_why_it_has_no_waker();
	test_a_waker_names_its_wait();
	test_a_sample();
	test_unsound_records();
	test_holes_divide_the_stack();
	test_a_stack_may_wrap();
	test_a_second_stack();
	test_an_allocation_stands_for_others();
	test_a_wait_has_two_parts();
	test_slices_of_an_earlier_record();
	return check_done();
}
