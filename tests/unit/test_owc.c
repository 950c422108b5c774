/* tests/unit/test_owc.c: tests capture files: every event, pipes, torn and damaged files. */
#include "agent/owc/owc.h"
#include "agent/owc/owc_format.h"

#include "base/bytes.h"
#include "proto/capture.pb-c.h"
#include "tests/check.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

/* ---- generated events: event i is the same whenever it is asked for ------- */

static struct source_event kinds[] = {
	{ .name = "cpu-clock", .type = "cpu", .unit = "nanoseconds", .frequency_hz = 99 },
	{ .name = "cache-misses:u", .type = "cache-misses", .unit = "count", .period = 10007 },
};

static struct source_info info = {
	.machine = EM_AARCH64,
	.kind = "live",
	.host = "a host",
	.kernel = "6.1.0",
	.recorder = "offwind \xff test",
	.wall_start_ns = 1700000000123456789,
	.wall_first_ns = 98765432101234,
	.events = kinds,
	.n_events = 2,
	.kernel_build_id = { .size = 20, .bytes = { 1, 2, 3, [19] = 0xff } },
	.kernel_text = 0xffffffff81000000,
	.same_boot = true,
	.red_zone = true,
};

static uint64_t state;

static uint64_t any(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

/* Small and huge values, and values in between. */
static uint64_t number(void)
{
	return any() >> any() % 64;
}

static uint8_t memory[300000];
static uint8_t vdso[3][8192];
static char texts[2][300];
static struct uw_region regions[200];
static uint64_t kernel_ips[128];

static const char *some_text(char *to)
{
	size_t n = any() % 8 ? any() % 40 : any() % 299;

	for (size_t i = 0; i < n; i++)
		to[i] = (char)(any() % 255 + 1);
	to[n] = '\0';
	return to;
}

static void some_mapping(struct event_mapping *m)
{
	size_t image = any() % 4;

	*m = (struct event_mapping){ .start = number(),
				     .end = number(),
				     .off = number(),
				     .prot = (uint32_t)any() % 8,
				     .major = (uint32_t)number(),
				     .minor = (uint32_t)number(),
				     .inode = number(),
				     .inode_generation = number(),
				     .path = some_text(texts[0]),
				     .deleted = any() % 2 };
	m->build_id.size = (uint8_t)(any() % (UW_BUILD_ID_MAX + 1));
	for (size_t i = 0; i < m->build_id.size; i++)
		m->build_id.bytes[i] = (uint8_t)any();
	if (image < 3) {
		m->image = vdso[image];
		m->image_size = sizeof(vdso[image]) - image;
	}
}

static void some_sample(struct event_sample *s)
{
	uint64_t at = number() >> 1;
	const uint8_t *bytes = memory;

	*s = (struct event_sample){ .event = (uint16_t)(any() % 2),
				    .cpu = (uint32_t)number(),
				    .period = number() | 1,
				    .has_user_regs = any() % 2,
				    .compat = any() % 2,
				    .stack_cut = any() % 2,
				    .regions = regions,
				    .kernel_ips = kernel_ips,
				    .cgroup_id = number(),
				    .has_uid = true,
				    .uid = (uint32_t)number() % UINT32_MAX,
				    .ns_pid = (uint32_t)number(),
				    .process_start_ns = number() };
	if (any() % 4 == 0)
		s->wait = (struct event_wait){ .n = any() % 1000 + 1,
					       .runnable = number() % s->period,
					       .waker_pid = (uint32_t)number(),
					       .waker_tid = (uint32_t)number(),
					       .waker = any() % 2 ? EVENT_INTERRUPT : NULL,
					       .waker_stack = any() % EVENT_WAKER_N,
					       .id = any() % 3 };
	s->regs.known = any() & any() & (((uint64_t)1 << UW_REGS_MAX) - 1);
	for (size_t i = 0; i < UW_REGS_MAX; i++)
		s->regs.value[i] = s->regs.known >> i & 1 ? number() : 0;
	s->n_regions = (uint32_t)(any() % 16 ? any() % 4 : any() % 200);
	for (size_t i = 0; i < s->n_regions; i++) {
		size_t size = any() % 50 ? any() % 700 : any() % 30000;

		if (size > sizeof(memory) - (size_t)(bytes - memory))
			size = 0;
		regions[i] = (struct uw_region){ at, size, bytes };
		at += size + any() % 8192;
		bytes += size;
	}
	s->n_kernel_ips = (uint32_t)(any() % 3 ? 0 : any() % 128);
	for (size_t i = 0; i < s->n_kernel_ips; i++)
		kernel_ips[i] = 0xffffffff81000000 + any() % 5000;
}

static void some_event(uint64_t i, struct event *e)
{
	state = (i + 1) * 0x9e3779b97f4a7c15;
	(void)any();
	*e = (struct event){ .type = (enum event_type)(any() % (EVENT_LOST + 1)),
			     .pid = (uint32_t)number(),
			     .tid = (uint32_t)number(),
			     .time_ns = 1000 + i * 1000 };
	switch (e->type) {
	case EVENT_MAPPING:
		some_mapping(&e->mapping);
		break;
	case EVENT_FORK:
		e->fork = (struct event_fork){ (uint32_t)number(), (uint32_t)number() };
		break;
	case EVENT_COMM:
		e->comm.comm = some_text(texts[1]);
		break;
	case EVENT_SAMPLE:
		some_sample(&e->sample);
		break;
	case EVENT_WAKER:
		some_sample(&e->sample);
		e->sample.wait = (struct event_wait){ .id = 1 + any() % 9 };
		break;
	case EVENT_CGROUP:
		e->cgroup = (struct event_cgroup){ number(), some_text(texts[1]) };
		break;
	case EVENT_GENERATED:
		e->generated.bytes = some_text(texts[0]);
		e->generated.size = any() % 8;
		break;
	case EVENT_MEMORY:
		(void)some_text(texts[1]); /* an earlier event left something else */
		e->memory = (struct event_memory){ texts[1], any() % 8 };
		break;
	case EVENT_LOST:
		e->lost = (struct event_lost){ (enum event_lost_reason)(any() % EVENT_LOST_N),
					       number() >> 8, number() >> 8 };
		break;
	default:
		break;
	}
}

static bool same_mapping(const struct event_mapping *a, const struct event_mapping *b)
{
	return a->start == b->start && a->end == b->end && a->off == b->off && a->prot == b->prot &&
	       a->major == b->major && a->minor == b->minor && a->inode == b->inode &&
	       a->inode_generation == b->inode_generation && a->deleted == b->deleted &&
	       a->build_id.size == b->build_id.size &&
	       !memcmp(a->build_id.bytes, b->build_id.bytes, a->build_id.size) &&
	       !strcmp(a->path, b->path) && a->image_size == b->image_size &&
	       (!a->image || !memcmp(a->image, b->image, a->image_size)) && !a->image == !b->image;
}

static bool same_regions(const struct uw_region *a, const struct uw_region *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (a[i].addr != b[i].addr || a[i].size != b[i].size ||
		    (a[i].size && memcmp(a[i].bytes, b[i].bytes, a[i].size)))
			return false;
	return true;
}

static bool same_sample(const struct event_sample *a, const struct event_sample *b)
{
	if (a->event != b->event || a->cpu != b->cpu || a->period != b->period ||
	    a->has_user_regs != b->has_user_regs || a->compat != b->compat ||
	    a->stack_cut != b->stack_cut || a->regs.known != b->regs.known ||
	    memcmp(a->regs.value, b->regs.value, sizeof(a->regs.value)) ||
	    a->n_regions != b->n_regions || a->n_kernel_ips != b->n_kernel_ips ||
	    a->cgroup_id != b->cgroup_id || a->has_uid != b->has_uid || a->uid != b->uid ||
	    a->ns_pid != b->ns_pid || a->process_start_ns != b->process_start_ns)
		return false;
	if (a->wait.n != b->wait.n || a->wait.runnable != b->wait.runnable ||
	    a->wait.waker_pid != b->wait.waker_pid || a->wait.waker_tid != b->wait.waker_tid ||
	    !a->wait.waker != !b->wait.waker || a->wait.id != b->wait.id ||
	    a->wait.waker_stack != b->wait.waker_stack ||
	    (a->wait.waker && strcmp(a->wait.waker, b->wait.waker) != 0))
		return false;
	if (!same_regions(a->regions, b->regions, a->n_regions) || a->n_slices != b->n_slices ||
	    !same_regions(a->slices, b->slices, a->n_slices))
		return false;
	for (size_t i = 0; i < a->n_kernel_ips; i++)
		if (a->kernel_ips[i] != b->kernel_ips[i])
			return false;
	return true;
}

static bool same_event(const struct event *a, const struct event *b)
{
	if (a->type != b->type || a->pid != b->pid || a->tid != b->tid || a->time_ns != b->time_ns)
		return false;
	switch (a->type) {
	case EVENT_MAPPING:
		return same_mapping(&a->mapping, &b->mapping);
	case EVENT_FORK:
		return a->fork.parent_pid == b->fork.parent_pid &&
		       a->fork.parent_tid == b->fork.parent_tid;
	case EVENT_COMM:
		return !strcmp(a->comm.comm, b->comm.comm);
	case EVENT_SAMPLE:
	case EVENT_WAKER:
		return same_sample(&a->sample, &b->sample);
	case EVENT_CGROUP:
		return a->cgroup.id == b->cgroup.id && !strcmp(a->cgroup.path, b->cgroup.path);
	case EVENT_GENERATED:
		return a->generated.size == b->generated.size &&
		       (!a->generated.size ||
			!memcmp(a->generated.bytes, b->generated.bytes, a->generated.size));
	case EVENT_MEMORY:
		return a->memory.size == b->memory.size &&
		       (!a->memory.size ||
			!memcmp(a->memory.bytes, b->memory.bytes, a->memory.size));
	case EVENT_LOST:
		return a->lost.reason == b->lost.reason && a->lost.n_samples == b->lost.n_samples &&
		       a->lost.n_sideband == b->lost.n_sideband;
	default:
		return true;
	}
}

/* ---- writing and reading ---------------------------------------------------- */

static const struct source_kernel_symbol symbols[] = {
	{ 0xffffffff81000000, 0x40, "_text", "" },
	{ 0xffffffff81000040, 0, "do_syscall_64", "" },
	{ 0xffffffffc0000000, 9, "ext4_map_blocks", "ext4" },
};

/* Write a capture of n events, with a flush after every `flush` of them (0: none). */
static int capture(uint64_t n, uint64_t flush, bool with_symbols)
{
	int fd = memfd_create("owc", 0);
	struct owc_writer *w = NULL;

	CHECK(fd >= 0 && !owc_writer_open(fd, &info, &w), "opens");
	for (uint64_t i = 0; w && i < n; i++) {
		struct event e;

		some_event(i, &e);
		CHECK(!owc_writer_event(w, &e), "takes an event");
		if (flush && i % flush == flush - 1)
			CHECK(!owc_writer_flush(w), "flushes");
	}
	if (w && with_symbols)
		CHECK(!owc_writer_kernel_symbols(w, symbols, 3), "takes symbols");
	CHECK(!owc_writer_close(w), "closes");
	return fd;
}

static int fresh(int fd)
{
	int copy = dup(fd);

	(void)lseek(copy, 0, SEEK_SET);
	return copy;
}

static void check_info(const struct source_info *got)
{
	CHECK(!strcmp(got->kind, "capture"), "kind");
	CHECK(got->machine == info.machine && !strcmp(got->host, info.host) &&
		      !strcmp(got->kernel, info.kernel) && !strcmp(got->recorder, info.recorder) &&
		      got->wall_start_ns == info.wall_start_ns &&
		      got->wall_first_ns == info.wall_first_ns &&
		      got->kernel_text == info.kernel_text && got->same_boot && !got->other_host &&
		      got->red_zone &&
		      !memcmp(&got->kernel_build_id, &info.kernel_build_id,
			      sizeof(info.kernel_build_id)),
	      "info");
	CHECK(got->n_events == 2, "two kinds of events");
	for (size_t i = 0; i < got->n_events && i < 2; i++)
		CHECK(!memcmp(&got->events[i], &kinds[i], sizeof(kinds[i])), "kind of event");
}

/* Read to the end. Return how many events came as they were written, and the last result. */
static uint64_t read_all(struct source *source, int *last)
{
	uint64_t n = 0;
	struct event got, want;

	while ((*last = source_next(source, &got, -1)) == 1) {
		some_event(n, &want);
		if (!same_event(&want, &got))
			break;
		n++;
	}
	return n;
}

static void test_all_events_round_trip(void)
{
	int fd = capture(20000, 0, true);
	struct source *source = NULL;
	char error[512];
	int last = 1;

	CHECK(!source_owc_open(fresh(fd), "test.owc", &source, error), error);
	if (source) {
		check_info(&source->info);
		CHECK(source->info.n_kernel_symbols == 3, "symbols come before the events");
		CHECK(read_all(source, &last) == 20000, "all events, equal and in order");
		CHECK(last == 0, source->error);
		CHECK(source_next(source, &(struct event){ 0 }, -1) == 0, "the end stays the end");
		for (size_t i = 0; i < source->info.n_kernel_symbols && i < 3; i++) {
			const struct source_kernel_symbol *s = &source->info.kernel_symbols[i];

			CHECK(s->addr == symbols[i].addr && s->size == symbols[i].size &&
				      !strcmp(s->name, symbols[i].name) &&
				      !strcmp(s->module, symbols[i].module),
			      "symbol");
		}
	}
	source_close(source);
	(void)close(fd);
}

struct pumping {
	int from, to;
};

static void *pump(void *ctx)
{
	struct pumping *p = ctx;
	char bytes[1000];
	ssize_t n;

	while ((n = read(p->from, bytes, sizeof(bytes))) > 0)
		if (write(p->to, bytes, (size_t)n) != n)
			break;
	(void)close(p->to);
	return NULL;
}

static void test_pipes_are_read(void)
{
	int fd = capture(3000, 100, true), ends[2], last = 1;
	struct pumping p;
	struct source *source = NULL;
	pthread_t thread;
	char error[512];

	CHECK(!pipe(ends), "a pipe");
	p = (struct pumping){ fresh(fd), ends[1] };
	CHECK(!pthread_create(&thread, NULL, pump, &p), "a thread");
	CHECK(!source_owc_open(ends[0], "pipe", &source, error), error);
	if (source) {
		CHECK(source->info.n_kernel_symbols == 0, "symbols are still to come");
		CHECK(read_all(source, &last) == 3000 && last == 0, source->error);
		CHECK(source->info.n_kernel_symbols == 3, "and came, once");
	}
	(void)pthread_join(thread, NULL);
	source_close(source);
	(void)close(p.from);
	(void)close(fd);
}

static void test_equal_events_give_equal_bytes(void)
{
	int a = capture(300, 50, true), b = capture(300, 50, true);
	off_t size = lseek(a, 0, SEEK_END);
	uint8_t *x = malloc((size_t)size), *y = malloc((size_t)size);

	CHECK(size == lseek(b, 0, SEEK_END), "same size");
	CHECK(x && y && pread(a, x, (size_t)size, 0) == size &&
		      pread(b, y, (size_t)size, 0) == size && !memcmp(x, y, (size_t)size),
	      "same bytes");
	free(x);
	free(y);
	(void)close(a);
	(void)close(b);
}

/* ---- damage ----------------------------------------------------------------- */

static int file_of(const uint8_t *bytes, size_t size)
{
	int fd = memfd_create("owc", 0);

	CHECK(write(fd, bytes, size) == (ssize_t)size && !lseek(fd, 0, SEEK_SET), "a file");
	return fd;
}

static uint8_t *bytes_of(int fd, size_t *size)
{
	off_t n = lseek(fd, 0, SEEK_END);
	uint8_t *bytes = malloc((size_t)n);

	*size = (size_t)n;
	CHECK(bytes && pread(fd, bytes, *size, 0) == n, "read");
	(void)close(fd);
	return bytes;
}

static void test_torn_files_give_what_is_whole(void)
{
	enum { N = 120, FLUSH = 10 };
	size_t size, frame_ends[N / FLUSH + 1], n_frames = 0;
	uint8_t *bytes;
	uint64_t before = 0;

	bytes = bytes_of(capture(N, FLUSH, false), &size);
	/* The ends of frames, according to zstd. */
	for (size_t off = OWC_HEAD_SIZE; n_frames < N / FLUSH;) {
		off += ZSTD_findFrameCompressedSize(bytes + off, size - off);
		frame_ends[n_frames++] = off;
	}
	for (size_t cut = 0; cut < size; cut += cut < 2000 || cut + 300 > size ? 1 : 37) {
		struct source *source = NULL;
		char error[512] = "";
		uint64_t n = 0, whole = 0;
		int last;

		while (whole < n_frames && frame_ends[whole] <= cut)
			whole++;
		last = source_owc_open(file_of(bytes, cut), "torn.owc", &source, error);
		if (source) {
			n = read_all(source, &last);
			(void)snprintf(error, sizeof(error), "%s", source->error);
		}
		CHECK(last == -EBADMSG, "a cut is told");
		CHECK(!strncmp(error, "torn.owc: offset ", 17) && !strchr(error, '\n'), error);
		CHECK(n >= whole * FLUSH, "all whole frames were given");
		CHECK(n >= before, "more bytes never give less");
		before = n;
		source_close(source);
	}
	CHECK(before == N, "a cut in the index loses nothing");
	free(bytes);
}

/* In a frame of several zstd blocks, the whole records of the blocks that exist count. */
static void test_a_torn_frame_gives_its_whole_records(void)
{
	size_t size;
	uint8_t *bytes = bytes_of(capture(4000, 0, false), &size);
	size_t first = OWC_HEAD_SIZE +
		       ZSTD_findFrameCompressedSize(bytes + OWC_HEAD_SIZE, size - OWC_HEAD_SIZE);
	struct source *source = NULL;
	char error[512];
	int last = 0;

	CHECK(!source_owc_open(file_of(bytes, first - 10), "torn", &source, error), error);
	if (source) {
		CHECK(read_all(source, &last) > 500, "most of the first MiB");
		CHECK(last == -EBADMSG, "then the error");
		CHECK(source_next(source, &(struct event){ 0 }, -1) == -EBADMSG, "which stays");
	}
	source_close(source);
	free(bytes);
}

static void test_flipped_bits_are_found(void)
{
	size_t size;
	uint8_t *bytes = bytes_of(capture(60, 10, true), &size);
	uint32_t seed = 4711;
	int unseen = 0;

	for (int round = 0; round < 3000; round++) {
		struct source *source = NULL;
		char error[512];
		uint64_t n = 0;
		size_t at;
		int last;

		seed = seed * 1664525 + 1013904223;
		at = (seed >> 4) % size;
		bytes[at] ^= (uint8_t)(1u << (seed >> 28 & 7));
		last = source_owc_open(file_of(bytes, size), "bad", &source, error);
		if (source) {
			n = read_all(source, &last);
			/* read_all stops with 1 at an event that differs. */
			CHECK(last <= 0, "no event is wrong");
			unseen += last == 0;
		}
		/* Bytes 16 to 31 of the head have no meaning yet. */
		CHECK(last < 0 || (at >= 16 && at < 32) || n == 60, "found or harmless");
		source_close(source);
		bytes[at] ^= (uint8_t)(1u << (seed >> 28 & 7));
	}
	CHECK(unseen < 60, "nearly every flip is found");
	free(bytes);
}

static const uint8_t head[OWC_HEAD_SIZE] = {
	'O', 'F', 'F', 'W', 'I', 'N', 'D', '1', 1, 0, 0, 0, 32
};

static void refused(const char *what, const uint8_t *bytes, size_t size, int err)
{
	struct source *source = NULL;
	char error[512] = "";

	CHECK(source_owc_open(file_of(bytes, size), "x", &source, error) == err, what);
	CHECK(!source && !strncmp(error, "x: offset ", 10), error);
	source_close(source);
}

/* Open head + content as one frame. Return the result of the first source_next. */
static int first_result(const uint8_t *content, size_t n)
{
	uint8_t packed[4096];
	struct source *source = NULL;
	struct event event;
	char error[512];
	size_t size;
	int rc;

	memcpy(packed, head, sizeof(head));
	size = sizeof(head) +
	       ZSTD_compress(packed + sizeof(head), sizeof(packed) - sizeof(head), content, n, 1);
	rc = source_owc_open(file_of(packed, size), "x", &source, error);
	if (!rc)
		rc = source_next(source, &event, -1);
	source_close(source);
	return rc;
}

static void test_foreign_bytes_are_refused(void)
{
	uint8_t bytes[64];
	/* Record: header { machine 62 }, then something. */
	static const uint8_t header[] = { 4, 0x22, 2, 0x08, 62 };
	static const struct {
		const char *what;
		int result;
		size_t n;
		uint8_t bytes[24];
	} records[] = {
		{ "exec", 1, 3, { 2, 0x32 + 8, 0 } },
		{ "header twice", -EBADMSG, 5, { 4, 0x22, 2, 0x08, 61 } },
		{ "record runs over", -EBADMSG, 2, { 9, 0x3a } },
		{ "size runs on", -EBADMSG, 5, { 0xff, 0xff, 0xff, 0xff, 0xff } },
		{ "no message", -EBADMSG, 3, { 2, 0xff, 0xff } },
		{ "undeclared event", -EBADMSG, 5, { 4, 0x5a, 2, 0x18, 1 } },
		{ "lost for reason 99", -EBADMSG, 5, { 4, 0x62, 2, 0x08, 99 } },
		{ "image unknown", -EBADMSG, 5, { 4, 0x32, 2, 0x60, 1 } },
		{ "path with NUL", -EBADMSG, 8, { 7, 0x32, 5, 0x52, 3, 'a', 0, 'b' } },
		{ "comm with NUL", -EBADMSG, 8, { 7, 0x52, 5, 0x0a, 3, 'a', 0, 'b' } },
		{ "image 0", -EBADMSG, 6, { 5, 0x2a, 3, 0x12, 1, 'x' } },
		{ "unknown kind, then the end", -EBADMSG, 4, { 3, 0xa2, 0x06, 0 } },
	};
	uint8_t content[64];

	refused("empty", bytes, 0, -EBADMSG);
	refused("perf.data", (const uint8_t *)"PERFILE2xxxxxxxx", 16, -EBADMSG);
	memcpy(bytes, head, sizeof(head));
	refused("a head alone", bytes, sizeof(head), -EBADMSG);
	refused("half a head", bytes, 20, -EBADMSG);
	memset(bytes + 32, 0x55, 32);
	refused("no zstd behind the head", bytes, 64, -EBADMSG);
	bytes[8] = 2;
	refused("version 2", bytes, 64, -ENOTSUP);
	CHECK(first_result(header + 1, 4) == -EBADMSG, "no header");
	for (size_t i = 0; i < sizeof(records) / sizeof(records[0]); i++) {
		memcpy(content, header, sizeof(header));
		memcpy(content + sizeof(header), records[i].bytes, records[i].n);
		CHECK(first_result(content, sizeof(header) + records[i].n) == records[i].result,
		      records[i].what);
	}
}

/* Replace the index of a file by one in which the last frame is a byte shorter than it is. */
static uint8_t *with_wrong_index(uint8_t *bytes, size_t *size)
{
	uint8_t *footer = bytes + *size - OWC_FOOTER_SIZE, *at;
	size_t off = uw_bytes_little8(footer), n;
	Offwind__Capture__Index *index =
		offwind__capture__index__unpack(NULL, uw_bytes_little(footer + 8), bytes + off + 8);

	CHECK(index && index->n_frames, "an index");
	index->frames[index->n_frames - 1]->size--;
	n = offwind__capture__index__get_packed_size(index);
	at = realloc(bytes, off + 8 + n + OWC_FOOTER_SIZE);
	CHECK(at != NULL, "memory");
	owc_put_u32(at + off + 4, (uint32_t)(n + OWC_FOOTER_SIZE));
	(void)offwind__capture__index__pack(index, at + off + 8);
	footer = at + off + 8 + n;
	owc_put_u64(footer, off);
	owc_put_u32(footer + 8, (uint32_t)n);
	owc_put_u32(footer + 12, (uint32_t)crc32(0, at + off + 8, (uInt)n));
	memcpy(footer + 16, OWC_FOOTER_MAGIC, 8);
	offwind__capture__index__free_unpacked(index, NULL);
	*size = off + 8 + n + OWC_FOOTER_SIZE;
	return at;
}

/*
 * The names take more than half of the limit, 128 MiB. Those that were read by a wrong index must
 * not count once more when the stream delivers them.
 */
static void test_symbols_of_a_wrong_index_do_not_count(void)
{
	enum { N = 5, NAME = 14 << 20 };
	struct source_kernel_symbol one = { .size = 1, .module = "" };
	char *name = malloc(NAME + 1), error[512];
	int fd = memfd_create("owc", 0), last = 1;
	struct source *source = NULL;
	struct owc_writer *w = NULL;
	uint8_t *bytes;
	size_t size;

	CHECK(name && !owc_writer_open(fd, &info, &w), "opens");
	memset(name, 'a', NAME);
	name[NAME] = '\0';
	one.name = name;
	for (unsigned int i = 0; i < N; i++) {
		one.addr = UINT64_C(0xffffffff81000000) + i;
		CHECK(!owc_writer_kernel_symbols(w, &one, 1), "takes a symbol");
	}
	CHECK(!owc_writer_close(w), "closes");
	bytes = with_wrong_index(bytes_of(fd, &size), &size);
	CHECK(!source_owc_open(file_of(bytes, size), "test.owc", &source, error), error);
	if (source) {
		CHECK(!source->info.n_kernel_symbols, "a wrong index is not used");
		CHECK(!read_all(source, &last) && last == 0, source->error);
		CHECK(source->info.n_kernel_symbols == N, "the stream has them all");
	}
	source_close(source);
	free(bytes);
	free(name);
}

static void test_bombs_are_capped(void)
{
	size_t n = (size_t)OWC_CONTENT_MAX + 4096, size;
	uint8_t *content = calloc(1, n), *packed = malloc(ZSTD_compressBound(n) + OWC_HEAD_SIZE);

	if (content && packed) {
		memcpy(packed, head, sizeof(head));
		size = ZSTD_compress(packed + sizeof(head), ZSTD_compressBound(n), content, n, 1);
		refused("a frame of more than 64 MiB", packed, sizeof(head) + size, -EBADMSG);
	}
	free(content);
	free(packed);
}

/* ---- the writer -------------------------------------------------------------- */

static void test_full_disk_is_told_once(void)
{
	int fd = open("/dev/full", O_WRONLY);
	struct owc_writer *w = NULL;
	struct event e;

	CHECK(owc_writer_open(fd, &info, &w) == -ENOSPC && !w, "at once, where the head fails");
	(void)close(fd);

	/* A full pipe whose reader closes it: there is room for the head, then comes an error. */
	fd = memfd_create("owc", MFD_ALLOW_SEALING);
	CHECK(!owc_writer_open(fd, &info, &w), "opens");
	CHECK(!fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), "no more writes");
	some_event(1, &e);
	CHECK(!owc_writer_event(w, &e), "buffered");
	CHECK(owc_writer_flush(w) == -EPERM, "the failure");
	CHECK(!owc_writer_event(w, &e) && !owc_writer_flush(w), "is told once");
	CHECK(owc_writer_close(w) == -EPERM, "and at the end");
	(void)close(fd);
	CHECK(!owc_writer_close(NULL), "nothing to close");
}

/* Wherever the disk is full inside the index, the file ends where the index would begin. */
static void test_a_full_disk_leaves_no_part_of_the_index(void)
{
	const struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };
	uint8_t footer[OWC_FOOTER_SIZE];
	uint64_t index = 0;
	off_t size = 0;

	(void)signal(SIGXFSZ, SIG_IGN);
	for (off_t room = 0; room <= size; room++) {
		struct rlimit limit = { (rlim_t)room, RLIM_INFINITY };
		int fd = memfd_create("owc", 0), err;
		struct owc_writer *w = NULL;
		struct event e;

		CHECK(!owc_writer_open(fd, &info, &w), "opens");
		some_event(1, &e);
		CHECK(!owc_writer_event(w, &e) && !owc_writer_flush(w), "a frame");
		/* The first file is whole, and says how large it is and where its index begins. */
		CHECK(!setrlimit(RLIMIT_FSIZE, size ? &limit : &unlimited), "room");
		err = owc_writer_close(w);
		CHECK(!setrlimit(RLIMIT_FSIZE, &unlimited), "no limit");
		if (!size) {
			size = lseek(fd, 0, SEEK_END);
			CHECK(!err && pread(fd, footer, sizeof(footer), size - OWC_FOOTER_SIZE) ==
					      OWC_FOOTER_SIZE,
			      "whole");
			index = uw_bytes_little8(footer);
			room = (off_t)index - 1;
		} else {
			bool whole = room == size;

			CHECK(err == (whole ? 0 : -EFBIG), "the failure");
			CHECK(lseek(fd, 0, SEEK_END) == (whole ? size : (off_t)index),
			      "no part of the index");
		}
		(void)close(fd);
	}
	(void)signal(SIGXFSZ, SIG_DFL);
}

static void test_what_no_reader_takes_is_left_out(void)
{
	size_t n = (size_t)OWC_RECORD_MAX + 1;
	uint8_t *big = calloc(1, n);
	struct uw_region region = { 0x1000, n, big };
	struct event e = { .type = EVENT_SAMPLE,
			   .sample = { .period = 1, .regions = &region, .n_regions = 1 } };
	int fd = memfd_create("owc", 0), last = 1;
	struct owc_writer *w = NULL;
	struct source *source = NULL;
	char error[512];

	CHECK(!owc_writer_open(fd, &info, &w), "opens");
	CHECK(owc_writer_event(w, &e) == -E2BIG, "too large");
	some_event(0, &e);
	CHECK(!owc_writer_event(w, &e) && !owc_writer_close(w), "goes on");
	CHECK(!source_owc_open(fresh(fd), "x", &source, error), error);
	if (source)
		CHECK(read_all(source, &last) == 1 && last == 0, source->error);
	source_close(source);
	(void)close(fd);
	free(big);
}

static void test_a_header_that_grows_is_written_again(void)
{
	struct source_info growing = info;
	struct event e = { .type = EVENT_SAMPLE, .sample = { .period = 1, .event = 1 } }, got;
	int fd = memfd_create("owc", 0);
	struct owc_writer *w = NULL;
	struct source *source = NULL;
	char error[512];

	growing.n_events = 1;
	growing.same_boot = false;
	CHECK(!owc_writer_open(fd, &growing, &w), "opens");
	growing.n_events = 2;
	CHECK(!owc_writer_event(w, &e), "takes the second kind");
	(void)snprintf(growing.host, sizeof(growing.host), "told late");
	CHECK(!owc_writer_close(w), "closes");
	CHECK(!source_owc_open(fresh(fd), "x", &source, error), error);
	if (source) {
		CHECK(source->info.n_events == 1 && !source->info.same_boot, "as it was known");
		CHECK(source_next(source, &got, -1) == 1 && got.sample.event == 1, "sample");
		CHECK(source->info.n_events == 2, "the kind came before it");
		CHECK(source_next(source, &got, -1) == 0, source->error);
		CHECK(!strcmp(source->info.host, "told late") && source->info.other_host,
		      "another host: its files are not this one's");
	}
	source_close(source);
	(void)close(fd);
}

static void test_kernel_addresses_are_remembered_for_naming(void)
{
	uint64_t ips[] = { 100, 200, 201 }, again[] = { 200, 200 };
	struct event e = { .type = EVENT_SAMPLE,
			   .sample = { .period = 1, .kernel_ips = ips, .n_kernel_ips = 3 } };
	int fd = memfd_create("owc", 0);
	struct owc_writer *w = NULL;
	const uint64_t *lookups;
	size_t n;

	CHECK(!owc_writer_open(fd, &info, &w) && !owc_writer_event(w, &e), "one stack");
	e.sample.kernel_ips = again;
	e.sample.n_kernel_ips = 2;
	CHECK(!owc_writer_event(w, &e), "another");
	lookups = owc_writer_kernel_lookups(w, &n);
	CHECK(n == 3 && lookups[0] == 100 && lookups[1] == 199 && lookups[2] == 200,
	      "return addresses moved back, each once");
	CHECK(!owc_writer_close(w), "closes");
	(void)close(fd);
}

static void test_old_frames_go_out(void)
{
	int fd = memfd_create("owc", 0);
	struct owc_writer *w = NULL;
	struct event e;
	off_t size;

	some_event(0, &e);
	CHECK(!owc_writer_open(fd, &info, &w) && !owc_writer_event(w, &e), "one event");
	size = lseek(fd, 0, SEEK_END);
	CHECK(size == OWC_HEAD_SIZE, "is buffered");
	(void)usleep(1100000);
	CHECK(!owc_writer_event(w, &e) && lseek(fd, 0, SEEK_END) > size,
	      "a second later it is out");
	(void)owc_writer_close(w);
	(void)close(fd);
}

int main(int argc, char **argv)
{
	for (size_t i = 0; i < sizeof(memory); i++)
		memory[i] = (uint8_t)(i * i >> 3);
	for (size_t i = 0; i < 3; i++)
		memset(vdso[i], (int)i + 'a', sizeof(vdso[i]));
	if (argc == 3) { /* a capture of this many events, for other programs to read */
		int to = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0666);
		uint64_t n = strtoull(argv[2], NULL, 10);
		size_t size;
		uint8_t *bytes = bytes_of(capture(n, n / 5, true), &size);

		CHECK(to >= 0 && write(to, bytes, size) == (ssize_t)size, "written");
		free(bytes);
		return check_done();
	}
	test_all_events_round_trip();
	test_pipes_are_read();
	test_equal_events_give_equal_bytes();
	test_torn_files_give_what_is_whole();
	test_a_torn_frame_gives_its_whole_records();
	test_flipped_bits_are_found();
	test_foreign_bytes_are_refused();
	test_symbols_of_a_wrong_index_do_not_count();
	test_bombs_are_capped();
	test_full_disk_is_told_once();
	test_a_full_disk_leaves_no_part_of_the_index();
	test_what_no_reader_takes_is_left_out();
	test_a_header_that_grows_is_written_again();
	test_kernel_addresses_are_remembered_for_naming();
	test_old_frames_go_out();
	return check_done();
}
