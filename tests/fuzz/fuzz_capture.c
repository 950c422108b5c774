/*
 * tests/fuzz/fuzz_capture.c: fuzzes the capture process with what a worker that was taken over
 * could do. The input is a row of steps, each of a byte and what belongs to it: a request (its length
 * in a byte, in units of 8 if the first byte says so, and the bytes), an event that is given to the
 * worker, or a word that the worker writes into the memory that both share. The live source is
 * replaced by a small one. Only files that can be code are given out, the ring once, and nothing is written
 * beyond the shared memory.
 */
#include "agent/live/capture.c"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FEED_SIZE ((size_t)1 << 16)
#define EVENTS	  2
#define PAGE	  ((uintptr_t)4096)

static struct feed *feed;
static uint64_t *shared;
static int elf = -1, text = -1, ring = -1;
static struct message request, reply;
static const _Alignas(8) uint8_t bytes[4096]; /* some of them are lent */

/* ---- the live source ------------------------------------------------------------------------ */

static int open_mapped(void *ctx, uint32_t major, uint32_t minor, uint64_t inode, const char *path,
		       int *fd)
{
	(void)ctx;
	(void)minor;
	if (inode > 100 || strlen(path) > 1000)
		return -ENOENT;
	*fd = dup(major & 1 ? elf : text);
	return *fd < 0 ? -errno : 0;
}

static int name_symbol(void *ctx, uint64_t addr, struct source_kernel_symbol *out)
{
	static char name[3000];

	(void)ctx;
	if (addr % 3 == 0)
		return -ENOENT;
	memset(name, 'n', sizeof(name));
	name[addr % sizeof(name)] = '\0';
	*out = (struct source_kernel_symbol){ .addr = addr, .size = 1, .name = name, .module = "" };
	return 0;
}

/* Whatever the plan is, all of it was sent. */
static int take_plan(void *ctx, uint32_t pid, const struct plan_task *task, const struct plan *plan)
{
	(void)ctx;
	if (!task || (plan && plan->n > PLAN_OPS_MAX))
		return -EINVAL;
	return pid % 2 ? -ENOSPC : 0;
}

static int no_event(struct source *source, struct event *event, int timeout_ms)
{
	(void)source;
	(void)event;
	(void)timeout_ms;
	return -EAGAIN;
}

static struct source_event kinds[EVENTS];
static struct source live;

int source_live_open(const struct source_live_options *options, struct source **out, char *error)
{
	(void)options;
	(void)error;
	live = (struct source){ .info = { .kind = "live",
					  .events = kinds,
					  .n_events = EVENTS,
					  .file = open_mapped,
					  .plan = take_plan,
					  .kernel_symbol = name_symbol } };
	*out = &live;
	return 0;
}

int source_live_counters(struct source *source, int cpu, struct live_counters *counters)
{
	(void)source;
	(void)counters;
	return cpu < -1 || cpu > 3 ? -EINVAL : 0;
}

int source_live_totals(struct source *source, struct live_totals *totals)
{
	(void)source;
	(void)totals;
	return 0;
}

int source_live_n_cpus(struct source *source)
{
	(void)source;
	return 4;
}

int source_live_counted(struct source *source, size_t event, uint64_t *counted)
{
	if (event >= source->info.n_events)
		abort();
	*counted = event;
	return 0;
}

int source_live_alloc_cost(struct source *source, struct live_alloc_cost *cost)
{
	(void)source;
	(void)cost;
	return 0;
}

void source_live_own(struct source *source, const pid_t *pids, size_t n)
{
	(void)source;
	(void)pids;
	(void)n;
}

int source_live_again(struct source *source)
{
	(void)source;
	return 0;
}

int source_live_watch(struct source *source, int fd)
{
	(void)source;
	(void)fd;
	return 0;
}

struct live_memory source_live_memory(struct source *source)
{
	(void)source;
	return (struct live_memory){ .fd = ring, .data = bytes + 100, .size = 2000 };
}

void source_live_lend_to(struct source *source, uint64_t (*number)(void *ctx), void *ctx)
{
	(void)source;
	(void)number(ctx);
}

void source_live_lend(struct source *source, uint64_t until)
{
	(void)source;
	(void)until;
}

void source_live_leave_records(struct source *source, bool leave)
{
	(void)source;
	(void)leave;
}

int source_live_keep_up(struct source *source)
{
	(void)source;
	return 0;
}

int source_next(struct source *source, struct event *event, int timeout_ms)
{
	return no_event(source, event, timeout_ms);
}

void source_stop(struct source *source)
{
	(void)source;
}

void source_close(struct source *source)
{
	(void)source;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Behind the memory that both processes share is a page that nobody can touch. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	uintptr_t end;

	(void)argc;
	(void)argv;
	elf = memfd_create("elf", MFD_CLOEXEC);
	text = memfd_create("text", MFD_CLOEXEC);
	ring = memfd_create("ring", MFD_CLOEXEC);
	if (elf < 0 || text < 0 || ring < 0 || write(elf, "\177ELF", 4) != 4 ||
	    write(text, "secret", 6) != 6 || write(ring, "ring", 4) != 4 ||
	    feed_new(FEED_SIZE, &feed))
		abort();
	/* The beginning of struct feed points there. */
	memcpy(&shared, feed, sizeof(shared));
	end = ((uintptr_t)shared + FEED_SIZE + PAGE) & ~(PAGE - 1);
	if (mmap((void *)end, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
		 -1, 0) == MAP_FAILED &&
	    errno != EEXIST)
		abort();
	feed_giver(feed);
	return 0;
}

/* Ask, and count how often the reply has the ring. */
static unsigned int ask(struct serving *s, const uint8_t *data, size_t size)
{
	unsigned int n_rings = 0;

	message_init(&request);
	message_bytes(&request, data, size);
	message_init(&reply);
	answer(s, &request, &reply);
	if (reply.size > MESSAGE_MAX || reply.err)
		abort();
	for (size_t i = 0; i < reply.n_fds; i++) {
		char head[4];

		if (pread(reply.fds[i], head, 4, 0) != 4)
			abort();
		if (!memcmp(head, "ring", 4))
			n_rings++;
		else if (memcmp(head, "\177ELF", 4) != 0)
			abort();
		(void)close(reply.fds[i]);
	}
	return n_rings;
}

/* Give an event whose parts have sizes that the input chooses. */
static void give(uint8_t kind, uint8_t size)
{
	static const uint64_t ips[256];
	struct uw_region regions[] = { { 1, size * 16u, bytes }, { 5, size, bytes + 100 } };
	struct event event = { .type = (enum event_type)(kind % (EVENT_LOST + 1)) };
	char name[256];

	memset(name, 'x', sizeof(name));
	name[size] = '\0';
	if (event.type == EVENT_SAMPLE || event.type == EVENT_WAKER)
		event.sample = (struct event_sample){ .record = size == 255 ? bytes : NULL,
						      .regions = regions,
						      .n_regions = size % 3,
						      .slices = regions,
						      .n_slices = size / 3 % 3,
						      .kernel_ips = ips,
						      .n_kernel_ips = size };
	else if (event.type == EVENT_MAPPING)
		event.mapping.path = name;
	else if (event.type == EVENT_COMM)
		event.comm.comm = name;
	else if (event.type == EVENT_CGROUP)
		event.cgroup.path = size ? name : NULL;
	else if (event.type == EVENT_MEMORY)
		event.memory = (struct event_memory){ .bytes = bytes, .size = (size_t)size * 16 };
	else if (event.type == EVENT_GENERATED)
		event.generated =
			(struct event_generated){ .bytes = bytes, .size = (size_t)size * 16 };
	for (unsigned int i = 0; i < 1 + kind / 16u; i++)
		(void)feed_put(feed, &event);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static _Atomic uint64_t n_workers = 1;
	struct serving s = { .feed = feed, .n_workers = &n_workers };
	const uint8_t *end = data + size;
	unsigned int n_rings = 0;

	feed_empty(feed);
	feed_lend(feed, NULL, 0);
	while (end - data >= 3) {
		size_t n = data[1] * (data[0] & 4 ? 8u : 1u), left = (size_t)(end - data) - 2;
		uint64_t word = 0;

		n = n < left ? n : left;
		switch (data[0] % 4) {
		case 0:
			n_rings += ask(&s, data + 2, n);
			if (n_rings > 1)
				abort();
			data += 2 + n;
			break;
		case 1:
			give(data[1], data[2]);
			data += 3;
			break;
		default: /* the positions, which matter most, begin the first cache lines */
			memcpy(&word, data + 2, left < 8 ? left : 8);
			shared[data[0] & 4 ? data[1] % 8u * 8u : data[1] * 32u] = word;
			data += 2 + (left < 8 ? left : 8);
			break;
		}
	}
	return 0;
}
