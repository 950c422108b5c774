/*
 * tests/unit/test_perfdata.c: tests the reader of perf.data: order, several events, samples with
 * all fields, damage.
 */
#include "agent/source/source.h"

#include "tests/check.h"

#include <elf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zstd.h>

#if defined(__SANITIZE_ADDRESS__)
#define UNDER_ASAN true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define UNDER_ASAN true
#endif
#endif
#ifndef UNDER_ASAN
#define UNDER_ASAN false
#endif

/* ---- making recordings ------------------------------------------------------------ */

/* perf's own record types, from tools/lib/perf/include/perf/event.h. */
enum {
	HEADER_ATTR = 64,
	TRACING_DATA = 66,
	FINISHED_ROUND = 68,
	AUXTRACE = 71,
	FEATURE = 80,
	COMPRESSED = 81,
	COMPRESSED2 = 83
};
enum { ARCH = 6, DIR_FORMAT = 24, CLOCK_DATA = 29 };

struct bytes {
	uint8_t *at;
	size_t size, room;
};

static void put(struct bytes *b, const void *bytes, size_t size)
{
	if (size > b->room - b->size) {
		b->room = (b->size + size) * 2;
		b->at = realloc(b->at, b->room);
		if (!b->at)
			abort();
	}
	if (size)
		memcpy(b->at + b->size, bytes, size);
	b->size += size;
}

static void put32(struct bytes *b, uint32_t value)
{
	put(b, &value, sizeof(value));
}

static void put64(struct bytes *b, uint64_t value)
{
	put(b, &value, sizeof(value));
}

static void put_string(struct bytes *b, const char *string) /* with its NUL, rounded up to 8 */
{
	size_t size = strlen(string) + 1;

	put(b, string, size);
	put(b, "\0\0\0\0\0\0\0", (8 - size % 8) % 8);
}

/* Begin a record; end_record writes its size. */
static size_t begin_record(struct bytes *b, uint32_t type, uint16_t misc)
{
	struct perf_event_header header = { .type = type, .misc = misc };

	put(b, &header, sizeof(header));
	return b->size - sizeof(header);
}

static void end_record(struct bytes *b, size_t start)
{
	uint16_t size = (uint16_t)(b->size - start);

	memcpy(b->at + start + 6, &size, sizeof(size));
}

static void put_round(struct bytes *b)
{
	end_record(b, begin_record(b, FINISHED_ROUND, 0));
}

/* The layout most tests use: samples are ip, pid/tid, time; others end in pid/tid, time. */
static const struct perf_event_attr plain = {
	.type = PERF_TYPE_SOFTWARE,
	.config = PERF_COUNT_SW_CPU_CLOCK,
	.size = sizeof(struct perf_event_attr),
	.sample_freq = 1000,
	.freq = 1,
	.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME,
	.sample_id_all = 1,
};

static void put_plain_sample(struct bytes *b, uint32_t tid, uint64_t time)
{
	size_t start = begin_record(b, PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER);

	put64(b, 0x401000);
	put32(b, 7);
	put32(b, tid);
	put64(b, time);
	end_record(b, start);
}

static void put_trailer(struct bytes *b, uint64_t time)
{
	put32(b, 7);
	put32(b, 7);
	put64(b, time);
}

static void put_comm(struct bytes *b, uint32_t pid, const char *comm, uint16_t misc, uint64_t time)
{
	size_t start = begin_record(b, PERF_RECORD_COMM, misc);

	put32(b, pid);
	put32(b, pid);
	put_string(b, comm);
	put_trailer(b, time);
	end_record(b, start);
}

static void put_fork(struct bytes *b, uint32_t pid, uint32_t parent, uint16_t misc, uint64_t time)
{
	size_t start = begin_record(b, PERF_RECORD_FORK, misc);

	put32(b, pid);
	put32(b, parent);
	put32(b, pid);
	put32(b, parent);
	put64(b, time);
	put_trailer(b, time);
	end_record(b, start);
}

static void put_mmap(struct bytes *b, uint32_t pid, uint64_t addr, uint64_t pgoff, const char *path,
		     uint16_t misc, uint64_t time)
{
	size_t start = begin_record(b, PERF_RECORD_MMAP, misc);

	put32(b, pid);
	put32(b, pid);
	put64(b, addr);
	put64(b, 0x1000);
	put64(b, pgoff);
	put_string(b, path);
	put_trailer(b, time);
	end_record(b, start);
}

struct feature {
	unsigned int number;
	struct bytes content;
};

/* A whole file: header, one attr with its ids after another, records, one feature. */
static struct bytes make_file(const struct perf_event_attr *attrs, size_t n_attrs,
			      const uint64_t (*ids)[2], const struct bytes *records,
			      const struct feature *feature)
{
	struct bytes b = { 0 };
	uint64_t ids_at = 104, attrs_at = ids_at + 16 * n_attrs;
	uint64_t data_at = attrs_at + n_attrs * (sizeof(*attrs) + 16);
	uint64_t bits[4] = { 0 };

	if (feature)
		bits[feature->number / 64] |= 1ull << feature->number % 64;
	put(&b, "PERFILE2", 8);
	put64(&b, 104);
	put64(&b, sizeof(*attrs) + 16);
	put64(&b, attrs_at);
	put64(&b, n_attrs * (sizeof(*attrs) + 16));
	put64(&b, data_at);
	put64(&b, records->size);
	put64(&b, 0);
	put64(&b, 0);
	put(&b, bits, sizeof(bits));
	for (size_t i = 0; i < n_attrs; i++)
		put(&b, ids ? ids[i] : (const uint64_t[2]){ i, i }, 16);
	for (size_t i = 0; i < n_attrs; i++) {
		put(&b, &attrs[i], sizeof(attrs[i]));
		put64(&b, ids_at + 16 * i);
		put64(&b, ids ? 16 : 0);
	}
	put(&b, records->at, records->size);
	if (feature) {
		put64(&b, b.size + 16);
		put64(&b, feature->content.size);
		put(&b, feature->content.at, feature->content.size);
	}
	return b;
}

static void put_pipe_header(struct bytes *b, const struct perf_event_attr *attr)
{
	size_t start;

	put(b, "PERFILE2", 8);
	put64(b, 16);
	start = begin_record(b, HEADER_ATTR, 0);
	put(b, attr, sizeof(*attr));
	put64(b, 1);
	end_record(b, start);
}

/* ---- reading them ------------------------------------------------------------------- */

#define MAX_SEEN 4096

static struct event seen[MAX_SEEN]; /* the data that their pointers point to is gone */
static char texts[MAX_SEEN][64];    /* but for paths and names */
static size_t n_seen;
static char error[512];
static struct source_info info;

static int as_file(const void *bytes, size_t size)
{
	int fd = memfd_create("perf.data", MFD_CLOEXEC);

	if (fd < 0 || write(fd, bytes, size) != (ssize_t)size)
		abort();
	return fd;
}

/* The end of a pipe into which a child writes. */
static int as_pipe(const void *bytes, size_t size)
{
	int ends[2];

	if (pipe(ends))
		abort();
	if (!fork()) {
		const uint8_t *at = bytes;

		(void)close(ends[0]);
		for (ssize_t n; size && (n = write(ends[1], at, size)) > 0; size -= (size_t)n)
			at += n;
		_exit(0);
	}
	(void)close(ends[1]);
	return ends[0];
}

static int read_fd(int fd, void (*look)(const struct event *event))
{
	struct source *source = NULL;
	struct event event;
	int rc;

	n_seen = 0;
	error[0] = 0;
	rc = source_perfdata_open(fd, "x", &source, error);
	if (rc)
		return rc;
	while ((rc = source_next(source, &event, -1)) == 1) {
		const char *text = event.type == EVENT_MAPPING ? event.mapping.path
				   : event.type == EVENT_COMM  ? event.comm.comm
							       : "";

		if (look)
			look(&event);
		if (n_seen == MAX_SEEN)
			continue;
		(void)snprintf(texts[n_seen], sizeof(texts[0]), "%s", text);
		seen[n_seen++] = event;
	}
	info = source->info;
	info.events = NULL;
	(void)snprintf(error, sizeof(error), "%s", source->error);
	CHECK(source_next(source, &event, -1) == rc, "the end stays the end");
	source_close(source);
	return rc;
}

static int read_records(const struct perf_event_attr *attr, struct bytes *records)
{
	struct bytes file = make_file(attr, 1, NULL, records, NULL);
	int rc = read_fd(as_file(file.at, file.size), NULL);

	free(file.at);
	free(records->at);
	*records = (struct bytes){ 0 };
	return rc;
}

/* ---- order -------------------------------------------------------------------------- */

static void test_rounds_put_records_in_order(void)
{
	struct bytes b = { 0 };

	/* The buffers of two CPUs, written one after the other, twice. */
	put_plain_sample(&b, 1, 100);
	put_plain_sample(&b, 2, 300);
	put_plain_sample(&b, 3, 200);
	put_plain_sample(&b, 4, 400);
	put_round(&b);
	put_plain_sample(&b, 5, 500);
	put_plain_sample(&b, 6, 350);
	put_plain_sample(&b, 7, 500);
	put_round(&b);
	put_comm(&b, 9, "early", 0, 0); /* no time: now */
	put_plain_sample(&b, 8, 450);
	CHECK(read_records(&plain, &b) == 0, error);
	CHECK(n_seen == 9, "all are there");
	/*
	 * The end of the second round releases what was there at the end of the first: up to 400.
	 */
	static const uint32_t order[] = { 1, 3, 2, 6, 4, 9, 8, 5, 7 };

	for (size_t i = 0; i < n_seen && i < 9; i++)
		CHECK(seen[i].tid == order[i], "in time order, equal times as they came");
	CHECK(info.wall_first_ns == 100 && info.wall_start_ns == 0, "the first time");
}

static uint64_t n_looked, last_time, n_disorder;

static void look_at_order(const struct event *event)
{
	n_looked++;
	n_disorder += event->time_ns < last_time;
	last_time = event->time_ns;
}

enum { MANY = 1500000 };

/* A child writes more records than the queue takes, and no round ever ends. */
static int many_records(bool piped)
{
	int ends[2] = { -1, -1 };

	if (piped ? pipe(ends) : (ends[0] = ends[1] = memfd_create("many", MFD_CLOEXEC)) < 0)
		abort();
	if (!fork()) {
		struct bytes b = { 0 };

		put_pipe_header(&b, &plain);
		for (uint64_t i = 1; i <= MANY; i++) {
			put_plain_sample(&b, 1, i ^ 1); /* neighbours change places */
			if (b.size < 65536 && i < MANY)
				continue;
			if (write(ends[1], b.at, b.size) != (ssize_t)b.size)
				abort();
			b.size = 0;
		}
		_exit(0);
	}
	if (piped)
		(void)close(ends[1]);
	else
		(void)wait(NULL);
	return ends[0];
}

static void test_memory_is_bounded_without_rounds(void)
{
	for (int piped = 0; piped < 2; piped++) {
		struct rusage usage;

		n_looked = last_time = n_disorder = 0;
		CHECK(read_fd(many_records(piped), look_at_order) == 0, error);
		CHECK(n_looked == MANY && n_disorder == 0, "all of them, in order");
		(void)getrusage(RUSAGE_SELF, &usage);
		/* ASan delays the release of freed memory. */
		CHECK(UNDER_ASAN || usage.ru_maxrss < 100 << 10, "in less than 100 MiB");
	}
	(void)wait(NULL);
}

/* ---- several events ------------------------------------------------------------------- */

static void test_events_are_told_apart_by_identifier(void)
{
	struct perf_event_attr attrs[2] = { plain, plain };
	static const uint64_t ids[2][2] = { { 11, 12 }, { 21, 22 } };
	struct bytes b = { 0 }, file;
	size_t start;

	attrs[0].sample_type |= PERF_SAMPLE_IDENTIFIER;
	attrs[1].sample_type =
		PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_PERIOD;
	attrs[1].config = PERF_COUNT_SW_PAGE_FAULTS;
	start = begin_record(&b, PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER);
	put64(&b, 22);
	put32(&b, 5);
	put32(&b, 6);
	put64(&b, 1000);
	put64(&b, 77);
	end_record(&b, start);
	start = begin_record(&b, PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER);
	put64(&b, 11);
	put64(&b, 0x1234);
	put32(&b, 5);
	put32(&b, 8);
	put64(&b, 2000);
	end_record(&b, start);
	start = begin_record(&b, PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER);
	put64(&b, 99); /* nobody's */
	put64(&b, 0);
	put64(&b, 0);
	put64(&b, 0);
	end_record(&b, start);
	file = make_file(attrs, 2, ids, &b, NULL);
	CHECK(read_fd(as_file(file.at, file.size), NULL) == -EBADMSG, "an unknown id is damage");
	CHECK(strstr(error, "x: offset 0x"), error);
	CHECK(n_seen == 3 && info.n_events == 2, "all three are told");
	CHECK(seen[0].type == EVENT_LOST && seen[0].lost.reason == EVENT_LOST_DAMAGED,
	      "the unknown one");
	CHECK(seen[1].sample.event == 1 && seen[1].sample.period == 77, "the second event");
	CHECK(seen[1].pid == 5 && seen[1].tid == 6 && seen[1].time_ns == 1000,
	      "has its own layout");
	CHECK(seen[2].sample.event == 0 && seen[2].tid == 8, "the first event");
	CHECK(seen[2].sample.period == 1000000, "cpu-clock at 1000 Hz: 1 ms");
	CHECK(seen[2].sample.regs.value[UW_X86_64_RIP] == 0x1234, "its ip");
	free(b.at);
	free(file.at);

	/* Without an id, layouts cannot be distinguished. */
	attrs[0].sample_type &= ~(uint64_t)PERF_SAMPLE_IDENTIFIER;
	attrs[1].sample_type &= ~(uint64_t)PERF_SAMPLE_IDENTIFIER;
	b = (struct bytes){ 0 };
	put_round(&b);
	file = make_file(attrs, 2, ids, &b, NULL);
	CHECK(read_fd(as_file(file.at, file.size), NULL) == -EBADMSG,
	      "layouts that cannot be told apart");
	free(b.at);
	free(file.at);
}

/* Begin a sample of the leader of a group, which says that it has n values. */
static size_t begin_group_sample(struct bytes *b, uint32_t tid, uint64_t n)
{
	size_t start = begin_record(b, PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER);

	put64(b, 11);
	put64(b, 0x401000);
	put32(b, 7);
	put32(b, tid);
	put64(b, 1000 + b->size);
	put64(b, n);
	return start;
}

/* A sample with the values of both events. */
static void put_group_sample(struct bytes *b, uint32_t tid, uint64_t leader, uint64_t member,
			     uint64_t n)
{
	size_t start = begin_group_sample(b, tid, n);

	put64(b, leader);
	put64(b, 11);
	put64(b, member);
	put64(b, 21);
	end_record(b, start);
}

/* A sample that has the same event many times, as no kernel writes it. */
static void put_repeated_values(struct bytes *b, uint64_t n)
{
	size_t start = begin_group_sample(b, 8, n);

	for (uint64_t i = 1; i <= n; i++) {
		put64(b, i);
		put64(b, 21);
	}
	end_record(b, start);
}

/* Read records of a group of two events, and free them. */
static int read_group(const struct perf_event_attr *attrs, struct bytes *records)
{
	static const uint64_t ids[2][2] = { { 11, 12 }, { 21, 22 } };
	struct bytes file = make_file(attrs, 2, ids, records, NULL);
	int rc = read_fd(as_file(file.at, file.size), NULL);

	free(file.at);
	free(records->at);
	*records = (struct bytes){ 0 };
	return rc;
}

/* Read samples of a group's leader: of each its thread and the values of both events. */
static void read_samples(const struct perf_event_attr *attrs, const uint64_t (*values)[3], size_t n)
{
	struct bytes b = { 0 };

	for (size_t i = 0; i < n; i++)
		put_group_sample(&b, (uint32_t)values[i][0], values[i][1], values[i][2], 2);
	CHECK(!read_group(attrs, &b), error);
}

static bool is_sample(size_t i, uint16_t event, uint64_t period)
{
	return i < n_seen && seen[i].type == EVENT_SAMPLE && seen[i].sample.event == event &&
	       seen[i].sample.period == period && seen[i].pid == 7;
}

static void test_events_of_a_group(void)
{
	static const uint64_t values[][3] = {
		{ 8, 1000, 40 }, { 9, 2500, 40 }, { 8, 3000, 41 }, { 8, 3100, 10 }
	};
	struct perf_event_attr attrs[2] = { plain, plain };
	struct bytes b = { 0 };

	attrs[0].sample_type |= PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_READ;
	attrs[0].read_format = PERF_FORMAT_GROUP | PERF_FORMAT_ID;
	attrs[1] = attrs[0];
	attrs[1].config = PERF_COUNT_SW_PAGE_FAULTS;
	attrs[1].freq = 0;
	attrs[1].sample_freq = 0;
	read_samples(attrs, values, 4);
	CHECK(n_seen == 6 && is_sample(0, 0, 1000) && is_sample(1, 1, 40), "since they began");
	CHECK(seen[0].time_ns == seen[1].time_ns && seen[1].tid == 8 &&
		      seen[1].sample.regs.value[UW_X86_64_RIP] == 0x401000,
	      "the same sample");
	CHECK(is_sample(2, 0, 1500) && is_sample(3, 0, 500), "what did not occur has no sample");
	CHECK(is_sample(4, 1, 1) && is_sample(5, 0, 100), "nor what went back");

	attrs[0].inherit = attrs[1].inherit = 1;
	read_samples(attrs, values, 3);
	CHECK(n_seen == 6 && is_sample(2, 0, 2500) && is_sample(3, 1, 40) &&
		      is_sample(4, 0, 2000) && is_sample(5, 1, 1),
	      "each thread has its own counters");
	attrs[1].sample_period = 1;
	read_samples(attrs, values, 1);
	CHECK(n_seen == 1 && is_sample(0, 0, 1000), "an event that samples by itself");

	attrs[1].sample_period = 0;
	put_repeated_values(&b, 1000);
	CHECK(!read_group(attrs, &b) && n_seen == 65, "not without end");
	put_group_sample(&b, 8, 1, 1, 3);
	CHECK(read_group(attrs, &b) == -EBADMSG && n_seen == 1 && seen[0].type == EVENT_LOST,
	      "more values than there are");
}

/* ---- one sample with everything ---------------------------------------------------------- */

/* The order and shapes of the comment at PERF_RECORD_SAMPLE in <linux/perf_event.h>. */
static void test_every_field_has_its_place(void)
{
	struct perf_event_attr attr = plain;
	struct bytes b = { 0 };
	const char stack[16] = "0123456789abcdef";
	size_t start;

	attr.sample_type = PERF_SAMPLE_MAX - 1;
	attr.sample_type &= ~(uint64_t)PERF_SAMPLE_WEIGHT_STRUCT; /* WEIGHT's form; never both */
	attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING |
			   PERF_FORMAT_ID | PERF_FORMAT_GROUP;
	attr.branch_sample_type = PERF_SAMPLE_BRANCH_HW_INDEX;
	attr.sample_regs_user = 0xff0fff;
	attr.sample_regs_intr = 3;

	start = begin_record(&b, PERF_RECORD_SAMPLE, PERF_RECORD_MISC_KERNEL);
	put64(&b, 1);		       /* identifier */
	put64(&b, 0xffffffff81000100); /* ip */
	put32(&b, 7);
	put32(&b, 8);
	put64(&b, 1234);
	put64(&b, 0xadd4); /* addr */
	put64(&b, 1);	   /* id */
	put64(&b, 2);	   /* stream id */
	put32(&b, 3);	   /* cpu */
	put32(&b, 0);
	put64(&b, 55); /* period */
	put64(&b, 2);  /* read: group of two, times, then value and id each */
	for (int i = 0; i < 6; i++)
		put64(&b, 0);
	put64(&b, 6); /* call chain */
	put64(&b, (uint64_t)PERF_CONTEXT_KERNEL);
	put64(&b, 0xffffffff81000100);
	put64(&b, 0xffffffff81000200);
	put64(&b, (uint64_t)PERF_CONTEXT_USER);
	put64(&b, 0x401000);
	put64(&b, 0x402000);
	put32(&b, 12); /* raw */
	put(&b, "raw raw raw ", 12);
	put64(&b, 1); /* branches, index of the first */
	put64(&b, 9);
	put64(&b, 0x1);
	put64(&b, 0x2);
	put64(&b, 0x3);
	put64(&b, PERF_SAMPLE_REGS_ABI_64);
	for (uint64_t i = 0; i < 20; i++)
		put64(&b, 100 + i);
	put64(&b, sizeof(stack));
	put(&b, stack, sizeof(stack));
	put64(&b, 8);
	put64(&b, 0); /* weight */
	put64(&b, 0); /* data source */
	put64(&b, 0); /* transaction */
	put64(&b, PERF_SAMPLE_REGS_ABI_64);
	put64(&b, 0);
	put64(&b, 0);
	put64(&b, 0);	   /* physical address */
	put64(&b, 0xc9);   /* cgroup */
	put64(&b, 0x1000); /* page sizes */
	put64(&b, 0x1000);
	put64(&b, 8); /* aux */
	put64(&b, 0);
	end_record(&b, start);
	CHECK(read_records(&attr, &b) == 0, error);
	CHECK(n_seen == 1 && seen[0].type == EVENT_SAMPLE, "one sample");

	const struct event_sample *s = &seen[0].sample;

	CHECK(seen[0].pid == 7 && seen[0].tid == 8 && seen[0].time_ns == 1234, "who and when");
	CHECK(s->cpu == 3 && s->period == 55 && s->cgroup_id == 0xc9, "where");
	CHECK(s->n_kernel_ips == 2 && s->n_user_ips == 2, "both parts of the chain, apart");
	CHECK(s->has_user_regs && !s->compat && !s->stack_cut, "user state");
	/*
	 * perf_regs.h counts ax bx cx dx si di bp sp ip flags cs ss, then r8 … r15
	 * (ds, es, fs and gs are not in the mask); the psABI (figure 3.36) has
	 * rax rdx rcx rbx rsi rdi rbp rsp r8 … r15 and the return address.
	 */
	static const uint64_t want[] = { 100, 103, 102, 101, 104, 105, 106, 107, 112,
					 113, 114, 115, 116, 117, 118, 119, 108 };

	for (unsigned int i = 0; i < UW_X86_64_REGS; i++)
		CHECK(s->regs.value[i] == want[i], "registers in DWARF order");
	CHECK(s->regs.known == 0x1ffff, "all of them");
	CHECK(s->n_regions == 1, "the stack");
}

static uint64_t kernel_seen, user_seen;

static void look_at_chain(const struct event *event)
{
	const struct event_sample *s = &event->sample;

	if (event->type != EVENT_SAMPLE)
		return;
	kernel_seen = s->n_kernel_ips == 1 ? s->kernel_ips[0] : 0;
	user_seen = s->n_user_ips == 1 ? s->user_ips[0] : 0;
}

/* Such a sample is forged: a chain that was taken in user mode has no addresses of the kernel. */
static void test_the_sampled_address_replaces_none_of_the_chain(void)
{
	struct perf_event_attr attr = plain;
	struct bytes b = { 0 }, file;
	size_t start;

	attr.sample_type =
		PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CALLCHAIN;
	start = begin_record(&b, PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER);
	put64(&b, 0x401000); /* ip */
	put32(&b, 7);
	put32(&b, 8);
	put64(&b, 1234);
	put64(&b, 2); /* call chain */
	put64(&b, (uint64_t)PERF_CONTEXT_KERNEL);
	put64(&b, 0xffffffff81000100);
	end_record(&b, start);
	file = make_file(&attr, 1, NULL, &b, NULL);
	CHECK(read_fd(as_file(file.at, file.size), look_at_chain) == 0, error);
	CHECK(kernel_seen == 0xffffffff81000100, "the kernel's part");
	CHECK(user_seen == 0x401000, "the sampled address");
	free(file.at);
	free(b.at);
}

static uint64_t chain_seen[4][8]; /* of each sample, the user's part */
static uint32_t n_chain_seen[4], n_chains;

static void look_at_chains(const struct event *event)
{
	const struct event_sample *s = &event->sample;

	if (event->type != EVENT_SAMPLE || n_chains == 4)
		return;
	n_chain_seen[n_chains] = s->n_user_ips;
	for (uint32_t i = 0; i < s->n_user_ips && i < 8; i++)
		chain_seen[n_chains][i] = s->user_ips[i];
	n_chains++;
}

/* A sample in the kernel whose user frames come later, under a cookie. */
static void put_deferred_sample(struct bytes *b, uint64_t cookie, uint64_t time)
{
	size_t start = begin_record(b, PERF_RECORD_SAMPLE, PERF_RECORD_MISC_KERNEL);

	put64(b, 0xffffffff81000100);
	put32(b, 7);
	put32(b, 7);
	put64(b, time);
	put64(b, 4);
	put64(b, (uint64_t)PERF_CONTEXT_KERNEL);
	put64(b, 0xffffffff81000100);
	put64(b, (uint64_t)-640); /* PERF_CONTEXT_USER_DEFERRED */
	put64(b, cookie);
	end_record(b, start);
}

static void put_deferred_chain(struct bytes *b, uint64_t cookie, uint64_t ip, uint64_t time)
{
	size_t start =
		begin_record(b, 22, PERF_RECORD_MISC_USER); /* PERF_RECORD_CALLCHAIN_DEFERRED */

	put64(b, cookie);
	put64(b, 3);
	put64(b, (uint64_t)PERF_CONTEXT_USER);
	put64(b, ip);
	put64(b, ip + 1);
	put_trailer(b, time);
	end_record(b, start);
}

static void test_user_frames_that_come_later(void)
{
	struct perf_event_attr attr = plain;
	struct bytes b = { 0 }, file;

	attr.sample_type |= PERF_SAMPLE_CALLCHAIN;
	put_deferred_sample(&b, 5, 100);
	put_deferred_sample(&b, 6, 110);
	put_deferred_sample(&b, 5, 120); /* the thread had not returned yet */
	put_deferred_chain(&b, 5, 0x401000, 130);
	put_deferred_sample(&b, 5, 140); /* a number is not used again so soon: its chain is lost */
	put_deferred_chain(&b, 6, 0x402000, 150);
	file = make_file(&attr, 1, NULL, &b, NULL);
	n_chains = 0;
	CHECK(read_fd(as_file(file.at, file.size), look_at_chains) == 0, error);
	CHECK(n_seen == 4 && n_chains == 4, "four samples, and nothing else");
	CHECK(n_chain_seen[0] == 2 && chain_seen[0][0] == 0x401000 && chain_seen[0][1] == 0x401001,
	      "the frames of its cookie");
	CHECK(n_chain_seen[1] == 2 && chain_seen[1][0] == 0x402000, "of the other one");
	CHECK(n_chain_seen[2] == 2 && chain_seen[2][0] == 0x401000, "two samples have the same");
	CHECK(n_chain_seen[3] == 0, "no frames of others");
	CHECK(seen[0].sample.n_kernel_ips == 1, "the cookie is no address");
	free(file.at);
	free(b.at);

	b = (struct bytes){ 0 };
	put_deferred_chain(&b, 5, 0x401000, 130);
	b.at[16] = 0xff; /* more addresses than the record has */
	put_deferred_sample(&b, 5, 140);
	CHECK(read_records(&attr, &b) == -EBADMSG && n_seen == 1, "damage");
	CHECK(strstr(error, "type 22 contradicts itself"), error);
}

/*
 * perf record --off-cpu: the BPF program says in the raw data who waited, how long and where. Samples that
 * perf writes at the end have no time.
 */
static void test_waits(void)
{
	struct perf_event_attr attr = plain;
	struct bytes b = { 0 }, file;
	struct feature feature = { .number = 12 /* HEADER_EVENT_DESC */ };
	size_t start;

	attr.config = PERF_COUNT_SW_BPF_OUTPUT;
	attr.sample_type |= PERF_SAMPLE_RAW | PERF_SAMPLE_PERIOD | PERF_SAMPLE_CALLCHAIN;
	put_plain_sample(&b, 1, 50); /* too short: damaged */
	for (uint64_t i = 0; i < 2; i++) {
		start = begin_record(&b, PERF_RECORD_SAMPLE, PERF_RECORD_MISC_KERNEL);
		put64(&b, 0);
		put32(&b, 0);
		put32(&b, 0);
		put64(&b, i ? UINT64_MAX << 32 | i : 100);
		put64(&b, 1); /* period */
		put64(&b, 0); /* call chain */
		put32(&b, 8 * 7);
		put32(&b, 30);
		put32(&b, 31);
		put64(&b, 7000000);
		put64(&b, 3);
		put64(&b, (uint64_t)PERF_CONTEXT_USER);
		put64(&b, 0x401000);
		put64(&b, 0x402000);
		put64(&b, 0xc9);
		put32(&b, 0);
		end_record(&b, start);
	}
	put32(&feature.content, 1);
	put32(&feature.content, sizeof(attr));
	put(&feature.content, &attr, sizeof(attr));
	put32(&feature.content, 0);
	put32(&feature.content, 16);
	put(&feature.content, "offcpu-time\0\0\0\0\0", 16);
	file = make_file(&attr, 1, NULL, &b, &feature);
	n_chains = 0;
	CHECK(read_fd(as_file(file.at, file.size), look_at_chains) == -EBADMSG && n_seen == 3,
	      error);
	CHECK(seen[1].type == EVENT_SAMPLE && seen[2].type == EVENT_SAMPLE, "two waits");
	for (int i = 1; i < 3; i++)
		CHECK(seen[i].pid == 30 && seen[i].tid == 31 && seen[i].sample.period == 7000000 &&
			      seen[i].sample.cgroup_id == 0xc9 && seen[i].sample.n_user_ips == 2 &&
			      !seen[i].sample.n_kernel_ips,
		      "who waited, and how long");
	CHECK(n_chains == 2 && chain_seen[0][0] == 0x401000 && chain_seen[1][1] == 0x402000,
	      "where");
	CHECK(seen[1].time_ns == 100 && seen[2].time_ns == 100, "the end of the recording");
	free(file.at);
	free(feature.content.at);
	free(b.at);
}

static struct uw_region stack_seen;
static uint8_t stack_bytes[64];

static void look_at_stack(const struct event *event)
{
	if (event->type != EVENT_SAMPLE || !event->sample.n_regions)
		return;
	stack_seen = event->sample.regions[0];
	memcpy(stack_bytes, stack_seen.bytes, stack_seen.size < 64 ? stack_seen.size : 64);
}

static size_t begin_stack_sample(struct bytes *b, uint64_t abi, uint64_t sp, unsigned int n_regs,
				 unsigned int sp_index)
{
	size_t start = begin_record(b, PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER);

	put32(b, 7);
	put32(b, 7);
	put64(b, 1);
	put64(b, abi);
	for (unsigned int i = 0; abi && i < n_regs; i++)
		put64(b, i == sp_index ? sp : i);
	return start;
}

static struct perf_event_attr stack_attr(uint64_t regs)
{
	struct perf_event_attr attr = plain;

	attr.sample_type =
		PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
	attr.sample_regs_user = regs;
	attr.sample_stack_user = 24;
	return attr;
}

static void test_stacks(void)
{
	struct perf_event_attr attr = stack_attr(0xff0fff);
	struct bytes b = { 0 }, file;
	size_t start = begin_stack_sample(&b, PERF_SAMPLE_REGS_ABI_64, 0x7000, 20, 7);

	put64(&b, 24);
	put(&b, "stack stack stack stack ", 24);
	put64(&b, 24);
	end_record(&b, start);
	file = make_file(&attr, 1, NULL, &b, NULL);
	CHECK(read_fd(as_file(file.at, file.size), look_at_stack) == 0, error);
	CHECK(stack_seen.addr == 0x7000 && stack_seen.size == 24, "it begins at sp");
	CHECK(!memcmp(stack_bytes, "stack stack stack stack ", 24), "its bytes");
	CHECK(seen[0].sample.stack_cut, "all that was asked for is in use: there may be more");
	free(b.at);
	free(file.at);

	/* A kernel thread: neither registers nor stack. */
	b = (struct bytes){ 0 };
	start = begin_stack_sample(&b, PERF_SAMPLE_REGS_ABI_NONE, 0, 0, 0);
	put64(&b, 0);
	end_record(&b, start);
	/* A 32-bit task. */
	start = begin_stack_sample(&b, PERF_SAMPLE_REGS_ABI_32, 0x7000, 20, 7);
	put64(&b, 0);
	end_record(&b, start);
	CHECK(read_records(&attr, &b) == 0 && n_seen == 2, error);
	CHECK(!seen[0].sample.has_user_regs && !seen[0].sample.n_regions, "nothing to walk");
	CHECK(seen[1].sample.has_user_regs && seen[1].sample.compat, "32 bits");

	/* More stack is used than exists; then a sound sample. */
	start = begin_stack_sample(&b, PERF_SAMPLE_REGS_ABI_64, 0x7000, 20, 7);
	put64(&b, 8);
	put64(&b, 0);
	put64(&b, 16);
	end_record(&b, start);
	start = begin_stack_sample(&b, PERF_SAMPLE_REGS_ABI_64, UINT64_MAX - 3, 20, 7);
	put64(&b, 8);
	put64(&b, 0);
	put64(&b, 8);
	end_record(&b, start);
	CHECK(read_records(&attr, &b) == -EBADMSG && n_seen == 2, "told as damage in the end");
	CHECK(seen[0].type == EVENT_LOST && seen[0].lost.n_samples == 1, "one sample is lost");
	CHECK(seen[1].type == EVENT_SAMPLE, "but not the next");
	CHECK(!strstr(error, "\n") && strstr(error, "x: offset 0x"), error);
}

/* perf writes registers by number only: x0 … x30, sp, pc; AADWARF64 has the same numbers. */
static void test_aarch64_registers(void)
{
	struct perf_event_attr attr = stack_attr(0x1ffffffff);
	struct bytes b = { 0 };
	size_t start = begin_stack_sample(&b, PERF_SAMPLE_REGS_ABI_64, 0x7000, 33, 31);

	put64(&b, 8);
	put64(&b, 0);
	put64(&b, 8);
	end_record(&b, start);
	CHECK(read_records(&attr, &b) == 0 && n_seen == 1, error);
	CHECK(info.machine == EM_AARCH64, "33 registers are no x86");
	for (unsigned int i = 0; i < UW_AARCH64_REGS; i++)
		CHECK(seen[0].sample.regs.value[i] == (i == 31 ? 0x7000 : i),
		      "registers in DWARF order");
	CHECK(seen[0].sample.n_regions == 1, "sp is number 31");
}

/* ---- tasks and mappings -------------------------------------------------------------------- */

static void test_tasks(void)
{
	struct bytes b = { 0 };

	put_fork(&b, 20, 10, 0, 0);			       /* found running by perf */
	put_fork(&b, 21, 10, PERF_RECORD_MISC_FORK_EXEC, 100); /* the same, with a time */
	put_fork(&b, 30, 10, 0, 200);			       /* forked */
	put_comm(&b, 30, "name", 0, 300);
	put_comm(&b, 30, "image", PERF_RECORD_MISC_COMM_EXEC, 400);
	CHECK(read_records(&plain, &b) == 0 && n_seen == 8, error);
	CHECK(seen[0].type == EVENT_FORK && seen[0].pid == 20 && seen[0].fork.parent_pid == 10,
	      "fork");
	CHECK(seen[1].type == EVENT_EXEC && seen[1].pid == 20, "what perf found inherits nothing");
	CHECK(seen[2].type == EVENT_FORK && seen[3].type == EVENT_EXEC && seen[3].pid == 21,
	      "nor here");
	CHECK(seen[4].type == EVENT_FORK && seen[4].pid == 30, "what forked does");
	CHECK(seen[5].type == EVENT_COMM && !strcmp(texts[5], "name"), "a name");
	CHECK(seen[6].type == EVENT_EXEC && seen[6].time_ns == 400,
	      "an exec, told before its name");
	CHECK(seen[7].type == EVENT_COMM && !strcmp(texts[7], "image"), "its name");
}

/* perf record --no-timestamp: only the records themselves have times. */
static void test_tasks_without_times(void)
{
	struct perf_event_attr attr = plain;
	struct bytes b = { 0 };

	attr.sample_type &= ~(uint64_t)PERF_SAMPLE_TIME;
	for (uint32_t pid = 20; pid < 22; pid++) {
		size_t start = begin_record(&b, PERF_RECORD_FORK, 0);

		for (int i = 0; i < 4; i++)
			put32(&b, i % 2 ? 10 : pid);
		put64(&b, pid == 21 ? 100 : 0); /* perf found the first one running */
		put32(&b, 7);
		put32(&b, 7);
		end_record(&b, start);
	}
	CHECK(read_records(&attr, &b) == 0 && n_seen == 3, error);
	CHECK(seen[0].type == EVENT_FORK && seen[1].type == EVENT_EXEC && seen[1].pid == 20,
	      "what perf found inherits nothing");
	CHECK(seen[2].type == EVENT_FORK && seen[2].pid == 21, "what forked does");
}

static size_t begin_mmap2(struct bytes *b, uint64_t addr, uint16_t misc)
{
	size_t start = begin_record(b, PERF_RECORD_MMAP2, PERF_RECORD_MISC_USER | misc);

	put32(b, 7);
	put32(b, 7);
	put64(b, addr);
	put64(b, 0x3000);
	put64(b, 0x1000);
	return start; /* 24 bytes of device, inode and generation or of a build-id follow */
}

static void end_mmap2(struct bytes *b, size_t start, const char *path, uint64_t time)
{
	put32(b, PROT_READ | PROT_EXEC);
	put32(b, MAP_PRIVATE);
	put_string(b, path);
	put_trailer(b, time);
	end_record(b, start);
}

static void test_mappings(void)
{
	struct bytes b = { 0 };
	size_t start;

	put_mmap(&b, UINT32_MAX, 0xffffffff81000000, 0xffffffff81000000, "[kernel.kallsyms]_text",
		 PERF_RECORD_MISC_KERNEL, 0);
	put_mmap(&b, 7, 0x400000, 0x2000, "/bin/gone (deleted)", PERF_RECORD_MISC_USER, 10);
	put_mmap(&b, 7, 0x500000, 0, "//anon", PERF_RECORD_MISC_USER | PERF_RECORD_MISC_MMAP_DATA,
		 20);
	put_mmap(&b, 0, 0x600000, 0, "[guest.kernel.kallsyms]", PERF_RECORD_MISC_GUEST_KERNEL, 30);
	put_mmap(&b, 7, UINT64_MAX - 0xff, 0, "/top", PERF_RECORD_MISC_USER, 40);
	start = begin_mmap2(&b, 0x700000, PERF_RECORD_MISC_MMAP_BUILD_ID);
	put32(&b, 20);
	put(&b, "01234567890123456789", 20);
	end_mmap2(&b, start, "/bin/known", 50);
	/* The kernel may set the bit although it wrote a device: 254:0, 8:1. */
	start = begin_mmap2(&b, 0x800000, PERF_RECORD_MISC_MMAP_BUILD_ID);
	put32(&b, 254);
	put32(&b, 0);
	put64(&b, 1234);
	put64(&b, 5);
	end_mmap2(&b, start, "/bin/vda", 60);
	start = begin_mmap2(&b, 0x900000, PERF_RECORD_MISC_MMAP_BUILD_ID);
	put32(&b, 8);
	put32(&b, 1);
	put64(&b, 1234);
	put64(&b, 5);
	end_mmap2(&b, start, "/bin/sda1", 70);
	CHECK(read_records(&plain, &b) == 0 && n_seen == 7, error);
	CHECK(seen[0].pid == EVENT_PID_KERNEL && info.kernel_text == 0xffffffff81000000, "kernel");
	CHECK(seen[1].mapping.deleted && !strcmp(texts[1], "/bin/gone"), "deleted");
	CHECK(seen[1].mapping.start == 0x400000 && seen[1].mapping.end == 0x401000, "range");
	CHECK(seen[1].mapping.off == 0x2000 && seen[1].mapping.prot == (PROT_READ | PROT_EXEC),
	      "executable");
	CHECK(!(seen[2].mapping.prot & PROT_EXEC) && !strcmp(texts[2], "//anon"), "data");
	CHECK(seen[3].mapping.end == UINT64_MAX, "no range wraps");
	CHECK(seen[4].mapping.build_id.size == 20, "build-id");
	CHECK(!memcmp(seen[4].mapping.build_id.bytes, "01234567890123456789", 20), "its bytes");
	CHECK(seen[4].mapping.inode == 0 && seen[4].mapping.prot == (PROT_READ | PROT_EXEC),
	      "MMAP2");
	CHECK(seen[5].mapping.major == 254 && seen[5].mapping.inode == 1234, "a device");
	CHECK(seen[5].mapping.inode_generation == 5 && !seen[5].mapping.build_id.size,
	      "no build-id");
	CHECK(seen[6].mapping.major == 8 && seen[6].mapping.minor == 1, "another");

	/* A path that does not end at the record's end. */
	start = begin_record(&b, PERF_RECORD_MMAP, PERF_RECORD_MISC_USER);
	for (int i = 0; i < 4; i++)
		put64(&b, 0x1000);
	put(&b, "/endless", 8);
	put_trailer(&b, 60);
	end_record(&b, start);
	CHECK(read_records(&plain, &b) == -EBADMSG && n_seen == 0, "no path without its end");
}

/* ---- losses ------------------------------------------------------------------------------- */

static void test_losses_are_counted_once(void)
{
	struct bytes b = { 0 };
	size_t start;

	start = begin_record(&b, PERF_RECORD_LOST, 0);
	put64(&b, 1);
	put64(&b, 5);
	put_trailer(&b, 100);
	end_record(&b, start);
	start = begin_record(&b, PERF_RECORD_LOST_SAMPLES, 0);
	put64(&b, 2);
	put_trailer(&b, 200);
	end_record(&b, start);
	/* perf's own count at its end, without a time: one more than the kernel could report. */
	start = begin_record(&b, PERF_RECORD_LOST_SAMPLES, 0);
	put64(&b, 8);
	put_trailer(&b, 0);
	end_record(&b, start);
	CHECK(read_records(&plain, &b) == 0 && n_seen == 3, error);
	CHECK(seen[0].lost.n_samples == 5 && seen[1].lost.n_samples == 2 &&
		      seen[2].lost.n_samples == 1,
	      "8 in all");
	CHECK(seen[0].lost.reason == EVENT_LOST_RING_FULL, "the ring was full");
	/* What a filter of perf's left out (perf record --filter) is not lost. */
	start = begin_record(&b, PERF_RECORD_LOST_SAMPLES, 1 << 15);
	put64(&b, 1000);
	put_trailer(&b, 0);
	end_record(&b, start);
	CHECK(read_records(&plain, &b) == 0 && n_seen == 0, error);
}

/* ---- streams, payload, compression ---------------------------------------------------------- */

/* perf ends the features of a stream with an empty one, numbered after the last that it knows. */
static void test_the_end_of_features_is_none(void)
{
	static const uint64_t numbers[] = { DIR_FORMAT, CLOCK_DATA, ARCH, 40 };

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		struct bytes b = { 0 };
		size_t start;

		put_pipe_header(&b, &plain);
		start = begin_record(&b, FEATURE, 0);
		put64(&b, numbers[i]);
		end_record(&b, start);
		put_plain_sample(&b, 1, 100);
		CHECK(read_fd(as_pipe(b.at, b.size), NULL) == 0 && n_seen == 1, error);
		(void)wait(NULL);
		free(b.at);
	}
}

static void test_payload_is_passed_by(void)
{
	struct bytes b = { 0 };
	size_t start;

	put_pipe_header(&b, &plain);
	start = begin_record(&b, TRACING_DATA, 0);
	put32(&b, 200000);
	put32(&b, 0);
	end_record(&b, start);
	for (int i = 0; i < 25000; i++)
		put64(&b, 0x4444444444444444);
	put_plain_sample(&b, 1, 100);
	start = begin_record(&b, AUXTRACE, 0);
	put64(&b, 16); /* size, offset, reference, index, tid, cpu */
	for (int i = 0; i < 4; i++)
		put64(&b, 0);
	end_record(&b, start);
	put(&b, "0123456789abcdef", 16);
	put_plain_sample(&b, 2, 200);
	for (int piped = 0; piped < 2; piped++) {
		CHECK(read_fd(piped ? as_pipe(b.at, b.size) : as_file(b.at, b.size), NULL) == 0,
		      error);
		CHECK(n_seen == 2 && seen[0].tid == 1 && seen[1].tid == 2, "both samples");
	}
	(void)wait(NULL);

	/* The payload ends early. */
	CHECK(read_fd(as_file(b.at, 100000), NULL) == -EBADMSG && n_seen == 0, error);
	CHECK(strstr(error, "ends inside a record"), error);
	free(b.at);
}

static void put_compressed(struct bytes *b, const void *bytes, size_t size, bool second)
{
	size_t start = begin_record(b, second ? COMPRESSED2 : COMPRESSED, 0);

	if (second)
		put64(b, size);
	put(b, bytes, size);
	if (second)
		put(b, "\0\0\0\0\0\0\0", (8 - size % 8) % 8);
	end_record(b, start);
}

static void test_compressed_records_may_be_cut_anywhere(void)
{
	enum { SAMPLES = 3000, STEP = 13 };
	struct bytes records = { 0 }, b = { 0 };
	uint8_t *packed;
	size_t size;

	for (uint64_t i = 1; i <= SAMPLES; i++)
		put_plain_sample(&records, (uint32_t)i, i);
	size = ZSTD_compressBound(records.size);
	packed = malloc(size);
	size = ZSTD_compress(packed, size, records.at, records.size, 3);
	put_pipe_header(&b, &plain);
	for (size_t at = 0; at < size; at += STEP)
		put_compressed(&b, packed + at, size - at < STEP ? size - at : STEP, at / STEP % 2);
	for (int piped = 0; piped < 2; piped++) {
		CHECK(read_fd(piped ? as_pipe(b.at, b.size) : as_file(b.at, b.size), NULL) == 0,
		      error);
		CHECK(n_seen == SAMPLES && seen[SAMPLES - 1].tid == SAMPLES, "every sample");
	}
	(void)wait(NULL);

	/* The last compressed record is gone: what came before it is still there. */
	CHECK(read_fd(as_file(b.at, b.size - 40), NULL) == -EBADMSG, "cut");
	CHECK(n_seen < SAMPLES, "something is missing");
	for (size_t i = 0; i < n_seen; i++)
		CHECK(seen[i].type == EVENT_LOST || seen[i].tid == i + 1, "nothing else is");
	free(b.at);
	free(packed);
	free(records.at);
}

/* A few KiB can unpack to gigabytes; no recording packs like that. */
static void test_compressed_data_do_not_grow_without_end(void)
{
	enum { NOTHINGS = 1 << 22 }; /* 8 bytes each: records that give no event */
	struct bytes b = { 0 };
	uint64_t *nothings = malloc(NOTHINGS * sizeof(*nothings));
	size_t bound = ZSTD_compressBound(NOTHINGS * sizeof(*nothings)), size;
	uint8_t *packed = malloc(bound);

	if (!nothings || !packed)
		abort();
	for (size_t i = 0; i < NOTHINGS; i++)
		nothings[i] = (uint64_t)8 << 48 | FINISHED_ROUND;
	size = ZSTD_compress(packed, bound, nothings, NOTHINGS * sizeof(*nothings), 1);
	CHECK(size && !ZSTD_isError(size) && size < 60000, "32 MiB fit in one record");
	put_pipe_header(&b, &plain);
	for (int i = 0; i < 10; i++)
		put_compressed(&b, packed, size, false);
	CHECK(read_fd(as_file(b.at, b.size), NULL) == -EBADMSG, "320 MiB do not");
	CHECK(strstr(error, "grow more than"), error);
	free(b.at);
	free(nothings);
	free(packed);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void refuse(const void *bytes, size_t size, int err, const char *why)
{
	CHECK(read_fd(as_file(bytes, size), NULL) == err, why);
	CHECK(!strncmp(error, "x: offset 0x", 12) && strstr(error, why) && !strchr(error, '\n'),
	      error);
}

static void test_refusals_say_why(void)
{
	struct bytes records = { 0 }, file;
	struct feature feature = { .number = ARCH };
	uint8_t *at;

	refuse("", 0, -EBADMSG, "not a recording");
	refuse("PERFILE2", 8, -EBADMSG, "not a recording");
	refuse("\177ELF\2\1\1\0\0\0\0\0\0\0\0\0", 16, -EBADMSG, "not a recording");
	refuse("2ELIFREP\0\0\0\0\0\0\0\20", 16, -ENOTSUP, "big-endian");
	refuse("PERFFILE\20\0\0\0\0\0\0\0", 16, -ENOTSUP, "before Linux 3.2");
	refuse("PERFILE2\20\0\0\0\0\0\0\0", 16, -EBADMSG, "no event is described");
	refuse("PERFILE2\150\0\0\0\0\0\0\0", 16, -EBADMSG, "inside its header");
	refuse("PERFILE2\151\0\0\0\0\0\0\0________________________________________________"
	       "________________________________________",
	       104, -EBADMSG, "a header cannot have 105 bytes");

	put_plain_sample(&records, 1, 100);
	put32(&feature.content, 8);
	put(&feature.content, "ppc64le", 8);
	file = make_file(&plain, 1, NULL, &records, &feature);
	refuse(file.at, file.size, -ENOTSUP, "recorded on ppc64le");
	CHECK(read_fd(as_pipe(file.at, file.size), NULL) == -ENOTSUP, "a file through a pipe");
	CHECK(strstr(error, "cannot be read from a pipe"), error);
	(void)wait(NULL);

	/* Impossible sizes: no memory is allocated for them. */
	at = malloc(file.size);
	for (size_t field = 16; field < 56; field += 8) {
		static const uint64_t values[] = { 0, 1, 1ull << 32, 1ull << 62, UINT64_MAX };

		for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
			int rc;

			memcpy(at, file.at, file.size);
			memcpy(at + field, &values[i], 8);
			rc = read_fd(as_file(at, file.size), NULL);
			CHECK(rc == -EBADMSG || rc == -ENOTSUP, "damage in the header");
			CHECK(!strncmp(error, "x: offset 0x", 12), error);
		}
	}
	free(at);
	free(file.at);

	feature.number = DIR_FORMAT;
	file = make_file(&plain, 1, NULL, &records, &feature);
	refuse(file.at, file.size, -ENOTSUP, "--threads");
	free(file.at);
	free(feature.content.at);
	free(records.at);
}

static void test_wall_clock(void)
{
	struct bytes records = { 0 }, file;
	struct feature feature = { .number = CLOCK_DATA };

	put_plain_sample(&records, 1, 5000);
	put32(&feature.content, 1);
	put32(&feature.content, 1);
	put64(&feature.content, 1700000000000000000);
	put64(&feature.content, 4000);
	file = make_file(&plain, 1, NULL, &records, &feature);
	CHECK(read_fd(as_file(file.at, file.size), NULL) == 0, error);
	CHECK(info.wall_first_ns == 5000 && info.wall_start_ns == 1700000000000001000,
	      "1 µs later");
	free(file.at);
	free(feature.content.at);
	free(records.at);
}

/* ---- damage ----------------------------------------------------------------------------------- */

static void put_mixture(struct bytes *b)
{
	put_mmap(b, 7, 0x400000, 0, "/bin/true", PERF_RECORD_MISC_USER, 10);
	put_comm(b, 7, "true", 0, 20);
	for (uint64_t i = 0; i < 10; i++)
		put_plain_sample(b, 1, 30 + i);
	put_round(b);
	put_fork(b, 8, 7, 0, 50);
	put_plain_sample(b, 2, 60);
}

static void test_a_file_may_end_anywhere(void)
{
	struct bytes records = { 0 }, file;
	struct event all[32];
	size_t n_all, data_at, end, last = 0;

	put_mixture(&records);
	file = make_file(&plain, 1, NULL, &records, NULL);
	data_at = file.size - records.size;
	CHECK(read_fd(as_file(file.at, file.size), NULL) == 0, error);
	n_all = n_seen;
	CHECK(n_all == 14, "all");
	memcpy(all, seen, n_all * sizeof(all[0]));
	for (end = 0; end < file.size; end++) {
		int rc = read_fd(as_file(file.at, end), NULL);
		size_t n_lost = 0;

		CHECK(rc == -EBADMSG, "a part is not the whole");
		CHECK(!strncmp(error, "x: offset 0x", 12) && !strchr(error, '\n'), error);
		CHECK(end >= data_at || !n_seen, "no events without a header");
		for (size_t i = 0; i < n_seen; i++) {
			bool lost = seen[i].type == EVENT_LOST;

			n_lost += lost;
			CHECK(lost ? i == n_seen - 1
				   : seen[i].type == all[i].type &&
					      seen[i].time_ns == all[i].time_ns,
			      "what came before is there, in order");
		}
		CHECK(n_seen - n_lost >= last && n_lost <= 1, "longer parts have no less");
		last = n_seen - n_lost;
	}
	CHECK(last == n_all - 1, "the last one was cut");
	free(file.at);
	free(records.at);
}

static void test_a_file_may_lack_its_end(void)
{
	struct bytes records = { 0 }, file;

	put_mixture(&records);
	file = make_file(&plain, 1, NULL, &records, NULL);
	memset(file.at + 48, 0, 8); /* the size of the data, which perf writes last */
	CHECK(read_fd(as_file(file.at, file.size), NULL) == -EBADMSG, "told");
	CHECK(n_seen == 14 && strstr(error, "did not close the file"), error);
	CHECK(read_fd(as_file(file.at, file.size - 3), NULL) == -EBADMSG, "told");
	CHECK(n_seen == 14 && seen[13].type == EVENT_LOST &&
		      strstr(error, "did not close the file"),
	      error);
	free(file.at);
	free(records.at);
}

static uint64_t random_state = 42;

static uint64_t random64(void) /* xorshift64 */
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	return random_state ^= random_state << 17;
}

static void test_any_bytes_may_be_wrong(void)
{
	struct bytes records = { 0 }, b = { 0 }, file;
	uint8_t *at;

	put_mixture(&records);
	file = make_file(&plain, 1, NULL, &records, NULL);
	put_pipe_header(&b, &plain);
	put(&b, records.at, records.size);
	at = malloc(file.size + b.size);
	for (int i = 0; i < 4000; i++) {
		const struct bytes *from = i % 2 ? &file : &b;
		int rc;

		memcpy(at, from->at, from->size);
		for (uint64_t n = random64() % 4 + 1; n; n--)
			at[random64() % from->size] ^= (uint8_t)(1 << random64() % 8);
		rc = read_fd(as_file(at, from->size), NULL);
		CHECK(rc <= 0 && (!rc || !strncmp(error, "x: offset 0x", 12)), error);
	}
	for (int i = 0; i < 500; i++) {
		memcpy(at, "PERFILE2\20\0\0\0\0\0\0\0", 16);
		for (size_t j = 16; j < b.size; j++)
			at[j] = (uint8_t)random64();
		CHECK(read_fd(as_file(at, b.size), NULL) == -EBADMSG, "noise");
	}
	free(at);
	free(b.at);
	free(file.at);
	free(records.at);
}

/* When the end is removed, records may be queued already, and stacks may be about to be read. */
static void test_a_file_may_be_cut_while_it_is_read(void)
{
	enum { N = 3000 };

	for (size_t left = 0; left < 3; left++) {
		struct source *source = NULL;
		struct bytes b = { 0 }, file;
		struct event event;
		uint64_t n = 0;
		size_t size;
		int fd, kept, rc;

		for (uint32_t i = 0; i < N; i++)
			put_plain_sample(&b, i, 100 + i);
		file = make_file(&plain, 1, NULL, &b, NULL);
		size = file.size;
		fd = as_file(file.at, size);
		kept = dup(fd);
		CHECK(!source_perfdata_open(fd, "cut", &source, error), error);
		rc = source ? source_next(source, &event, -1) : -1;
		CHECK(rc == 1, "the first");
		/* Nothing is left, or half of it, or all but a byte. */
		CHECK(!ftruncate(kept, (off_t)(left == 2 ? size - 1 : left * size / 2)), "cut");
		for (; rc == 1; n++)
			rc = source_next(source, &event, -1);
		CHECK(rc == -EBADMSG && n <= N + 2, "told at the end");
		CHECK(source && (strstr(source->error, "cut short") ||
				 strstr(source->error, "no record where one must be") ||
				 strstr(source->error, "changed while it was read")),
		      source ? source->error : "open");
		source_close(source);
		(void)close(kept);
		free(file.at);
		free(b.at);
	}
}

int main(void)
{
	test_memory_is_bounded_without_rounds(); /* first, while memory is small */
	test_rounds_put_records_in_order();
	test_events_are_told_apart_by_identifier();
	test_events_of_a_group();
	test_every_field_has_its_place();
	test_the_sampled_address_replaces_none_of_the_chain();
	test_user_frames_that_come_later();
	test_waits();
	test_stacks();
	test_aarch64_registers();
	test_tasks();
	test_tasks_without_times();
	test_mappings();
	test_losses_are_counted_once();
	test_the_end_of_features_is_none();
	test_payload_is_passed_by();
	test_compressed_records_may_be_cut_anywhere();
	test_compressed_data_do_not_grow_without_end();
	test_refusals_say_why();
	test_wall_clock();
	test_a_file_may_end_anywhere();
	test_a_file_may_lack_its_end();
	test_any_bytes_may_be_wrong();
	test_a_file_may_be_cut_while_it_is_read();
	return check_done();
}
