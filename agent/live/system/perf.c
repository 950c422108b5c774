/* agent/live/system/perf.c: opens perf events, and reads the side-band from their ring buffers. */
#include "agent/live/system/perf.h"

#include "agent/live/system/feature.h"
#include "agent/live/system/hint.h"
#include "agent/live/system/mark.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define RING_BYTES (1u << 20) /* of one CPU; halved if the kernel refuses */
#define RING_LEAST (64u << 10)

int live_perf_open(const struct perf_event_attr *attr, int cpu)
{
	long fd = syscall(SYS_perf_event_open, attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -errno : (int)fd;
}

struct sideband_ring {
	int cpu;
	int fd;	     /* reports everything; mappings with build-ids */
	int file_fd; /* reports mappings with inode and generation, to the same ring; -1: none */
	uint64_t file_id; /* of file_fd, as in its records */
	/* Tells that a program was begun, and nothing of it: a ring of its own of one page. -1: it cannot be had. */
	int exec_fd;
	struct perf_event_mmap_page *exec_page;
	struct perf_event_mmap_page *page; /* followed by size bytes of records */
	uint64_t head;			   /* the end of what is being read */
	uint64_t looked;		   /* the end of what live_sideband_look has passed on */
	struct live_file file;		   /* of the last mapping record of file_id */
};

struct live_sideband {
	struct sideband_ring *rings;
	size_t n_rings;
	size_t page_size, size;
	bool build_ids, prompt;
	/* The size field of a record has 16 bits. Aligned, because records are decoded in place. */
	_Alignas(8) uint8_t record[UINT16_MAX + 1];
};

/* Return the attributes of a side-band event, with build-ids or with inodes in mapping records. */
static struct perf_event_attr sideband_attr(const struct live_sideband *s, bool build_ids)
{
	return (struct perf_event_attr){
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(struct perf_event_attr),
		.config = PERF_COUNT_SW_DUMMY,
		.sample_type =
			PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ID | PERF_SAMPLE_CPU,
		.sample_id_all = 1,
		.mmap = 1, /* executable mappings only */
		.mmap2 = 1,
		.build_id = build_ids,
		.comm = 1,
		.comm_exec = 1,
		.task = 1,
		.watermark = 1,
		.wakeup_watermark = s->prompt ? 1 : (uint32_t)s->size / 2,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC, /* as bpf_ktime_get_ns */
	};
}

/*
 * A mapping record has either the build-id or the inode. Open a second event, to the same ring,
 * which reports the inodes. Without that event, mappings have build-ids only.
 */
static void open_files(struct live_sideband *s, struct sideband_ring *ring)
{
	struct perf_event_attr attr = sideband_attr(s, false);
	int fd;

	if (!s->build_ids)
		return;
	attr.comm = attr.comm_exec = attr.task = 0;
	fd = live_perf_open(&attr, ring->cpu);
	if (fd < 0)
		return;
	if (ioctl(fd, PERF_EVENT_IOC_ID, &ring->file_id) ||
	    ioctl(fd, PERF_EVENT_IOC_SET_OUTPUT, ring->fd)) {
		(void)close(fd);
		return;
	}
	ring->file_fd = fd;
}

/* Without this event, programs are met when the rings are looked at. */
static void open_exec(const struct live_sideband *s, struct sideband_ring *ring)
{
	struct perf_event_attr attr = sideband_attr(s, false);
	void *page = MAP_FAILED;
	int fd;

	attr.mmap = attr.mmap2 = attr.task = 0;
	attr.wakeup_watermark = 1;
	fd = live_perf_open(&attr, ring->cpu);
	if (fd >= 0)
		page = mmap(NULL, 2 * s->page_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page != MAP_FAILED) {
		ring->exec_fd = fd;
		ring->exec_page = page;
	} else if (fd >= 0) {
		(void)close(fd);
	}
}

/*
 * Open the side-band ring of one CPU. Fall back to records without build-ids, and to smaller rings,
 * if the kernel requires it. -ENODEV: the CPU is offline.
 */
static int open_ring(struct live_sideband *s, int cpu, struct sideband_ring *ring)
{
	for (;;) {
		struct perf_event_attr attr = sideband_attr(s, s->build_ids);
		int fd = live_perf_open(&attr, cpu), err;
		void *page;

		if (fd == -EINVAL && s->build_ids) { /* before 5.12 */
			s->build_ids = false;
			continue;
		}
		if (fd < 0)
			return fd;
		page = mmap(NULL, s->page_size + s->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			    0);
		if (page != MAP_FAILED) {
			*ring = (struct sideband_ring){
				.cpu = cpu, .fd = fd, .file_fd = -1, .exec_fd = -1, .page = page
			};
			open_files(s, ring);
			return 0;
		}
		err = -errno;
		(void)close(fd);
		if (err != -EPERM && err != -ENOMEM)
			return err;
		/* The limit of locked memory is exceeded, for which perf returns EPERM. */
		if (s->n_rings || s->size <= RING_LEAST)
			return -ENOMEM;
		s->size /= 2;
	}
}

static void close_ring(const struct live_sideband *s, const struct sideband_ring *ring)
{
	if (ring->file_fd >= 0)
		(void)close(ring->file_fd);
	if (ring->exec_fd >= 0) {
		(void)munmap(ring->exec_page, 2 * s->page_size);
		(void)close(ring->exec_fd);
	}
	(void)munmap(ring->page, s->page_size + s->size);
	(void)close(ring->fd);
}

static bool has_ring(const struct live_sideband *s, int cpu)
{
	for (size_t i = 0; i < s->n_rings; i++)
		if (s->rings[i].cpu == cpu)
			return true;
	return false;
}

/* Move the rings that stay to the front of the array, and open the new ones behind them. */
int live_sideband_set_cpus(struct live_sideband *s, const int *cpus, size_t n)
{
	struct sideband_ring *bigger;
	size_t left = 0;

	for (size_t i = 0; i < s->n_rings; i++) {
		if (live_cpus_have(cpus, n, s->rings[i].cpu))
			s->rings[left++] = s->rings[i];
		else
			close_ring(s, &s->rings[i]);
	}
	s->n_rings = left;
	bigger = reallocarray(s->rings, left + n, sizeof(*bigger));
	if (!bigger)
		return -ENOMEM;
	s->rings = bigger;
	for (size_t i = 0; i < n; i++) {
		int err = has_ring(s, cpus[i]) ? -ENODEV
					       : open_ring(s, cpus[i], &s->rings[s->n_rings]);

		if (err == -ENODEV) /* or the CPU has gone offline since the list was read */
			continue;
		if (err)
			return err;
		s->n_rings++;
	}
	/* Last, because a limit of locked memory may leave no room for these. */
	for (size_t i = left; i < s->n_rings; i++)
		open_exec(s, &s->rings[i]);
	return s->n_rings ? 0 : -ENODEV;
}

int live_sideband_open(bool prompt, struct live_sideband **out, char *error)
{
	struct live_sideband *s = calloc(1, sizeof(*s));
	int *cpus = NULL, err = -ENOMEM;
	size_t n_cpus = 0;

	if (!s)
		goto out;
	s->page_size = (size_t)sysconf(_SC_PAGESIZE);
	s->size = RING_BYTES;
	s->prompt = prompt;
	s->build_ids = !live_bpf_without("mmap_build_id") && live_mark_build_ids_are_safe();
	err = live_cpus_online(&cpus, &n_cpus);
	if (!err)
		err = live_sideband_set_cpus(s, cpus, n_cpus);
out:
	free(cpus);
	if (err) {
		live_sideband_free(s);
		(void)snprintf(error, LIVE_ERROR_SIZE,
			       "perf events that report mappings and processes: %s%s",
			       strerror(-err), live_hint(err));
		return err;
	}
	*out = s;
	return 0;
}

void live_sideband_free(struct live_sideband *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n_rings; i++)
		close_ring(s, &s->rings[i]);
	free(s->rings);
	free(s);
}

bool live_sideband_build_ids(const struct live_sideband *s)
{
	return s->build_ids;
}

size_t live_sideband_n_fds(const struct live_sideband *s)
{
	return s->n_rings;
}

int live_sideband_fd(const struct live_sideband *s, size_t i)
{
	return s->rings[i].fd;
}

/* Copy n bytes from position pos of a ring. They may wrap around the ring's end. */
static void copy_out(const struct live_sideband *s, const struct sideband_ring *ring, uint64_t pos,
		     void *out, size_t n)
{
	const uint8_t *data = (const uint8_t *)ring->page + s->page_size;
	size_t at = (size_t)(pos & (s->size - 1)), first = s->size - at < n ? s->size - at : n;

	memcpy(out, data + at, first);
	memcpy((uint8_t *)out + first, data, n - first);
}

/* Return the position up to which the kernel has written. The bytes before it may be read then. */
static uint64_t head_of(const struct perf_event_mmap_page *page)
{
	return __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE);
}

int live_sideband_exec_fd(const struct live_sideband *s, size_t i)
{
	const struct sideband_ring *ring = &s->rings[i];

	if (ring->exec_fd >= 0)
		__atomic_store_n(&ring->exec_page->data_tail, head_of(ring->exec_page),
				 __ATOMIC_RELEASE);
	return ring->exec_fd;
}

/* Read the header of the record at tail. Return false if there is no record before head. */
static bool next_header(const struct live_sideband *s, const struct sideband_ring *ring,
			uint64_t tail, uint64_t head, struct perf_event_header *header)
{
	if (head - tail < sizeof(*header))
		return false;
	copy_out(s, ring, tail, header, sizeof(*header));
	/*
	 * The test never fails for records of the kernel; it keeps a damaged ring from causing
	 * harm.
	 */
	return header->size >= sizeof(*header) && header->size <= head - tail;
}

/* Pass all births in a ring to forks, without consuming the records. */
static void tell_forks(const struct live_sideband *s, const struct sideband_ring *ring,
		       live_fork_fn forks, void *ctx)
{
	uint64_t head = head_of(ring->page), tail = ring->page->data_tail;
	struct perf_event_header header;
	struct live_task_record fork;

	for (; next_header(s, ring, tail, head, &header); tail += header.size) {
		if (header.type != PERF_RECORD_FORK || header.size < sizeof(fork))
			continue;
		copy_out(s, ring, tail, &fork, sizeof(fork));
		if (fork.pid != fork.ppid)
			forks(ctx, fork.pid, fork.ppid);
	}
}

/*
 * Pass a record to fn, a mapping together with its file. The kernel reports a mapping first to the
 * event that was opened last, and to all events of a CPU without interruption. So the record with
 * the inode comes directly before the record with the build-id.
 */
static int hand_over(struct sideband_ring *ring, struct perf_event_header *record,
		     live_record_fn fn, void *ctx)
{
	const struct live_mmap2_record *r = (const void *)record;
	const struct live_file *file = NULL;
	bool mapping = record->type == PERF_RECORD_MMAP2;
	struct live_sample_id id = { 0 };

	if (record->size >= sizeof(*record) + sizeof(id))
		memcpy(&id, (const uint8_t *)record + record->size - sizeof(id), sizeof(id));
	mapping = mapping && record->size >= sizeof(*r) + sizeof(id);
	/* Lost records are reported by whichever event next finds room in the ring. */
	if (ring->file_fd >= 0 && id.id == ring->file_id && record->type != PERF_RECORD_LOST) {
		/*
		 * This event did not ask for forks and exits, but gets them. Drop them, because the
		 * other event reports them, too.
		 */
		if (!mapping)
			return 0;
		/* The flag for build-ids may be set, but applies to the other event. */
		ring->file = (struct live_file){ .pid = r->pid,
						 .start = r->addr,
						 .size = r->len,
						 .major = r->maj,
						 .minor = r->min,
						 .inode = r->ino,
						 .generation = r->ino_generation };
		return 0;
	}
	if (mapping && ring->file.pid == r->pid && ring->file.start == r->addr &&
	    ring->file.size == r->len)
		file = &ring->file;
	return fn(ctx, record, file);
}

/*
 * Copy a record to s->record. If any listener asked for build-ids, Linux sets the flag of build-ids in the records of all
 * listeners.
 */
static struct perf_event_header *
copy_record(struct live_sideband *s, const struct sideband_ring *ring, uint64_t tail, size_t size)
{
	struct perf_event_header *record = (void *)s->record;

	copy_out(s, ring, tail, record, size);
	if (!s->build_ids)
		record->misc &= (uint16_t)~PERF_RECORD_MISC_MMAP_BUILD_ID;
	return record;
}

int live_sideband_look(struct live_sideband *s, live_record_fn fn, void *ctx)
{
	int err = 0;

	for (size_t i = 0; !err && i < s->n_rings; i++) {
		struct sideband_ring *ring = &s->rings[i];
		uint64_t head = head_of(ring->page), tail = ring->page->data_tail;
		struct perf_event_header header;

		if (ring->looked - tail <= head - tail) /* not drained since then */
			tail = ring->looked;
		for (; !err && next_header(s, ring, tail, head, &header); tail += header.size)
			if (header.type == PERF_RECORD_MMAP2 || header.type == PERF_RECORD_FORK)
				err = fn(ctx, copy_record(s, ring, tail, header.size), NULL);
		ring->looked = tail;
	}
	return err;
}

int live_sideband_drain(struct live_sideband *s, live_fork_fn forks, live_record_fn fn, void *ctx)
{
	/*
	 * Read all heads first. For each record before these heads, the birth of its process came
	 * earlier, so the birth is in some ring when the rings are searched for births.
	 */
	for (size_t i = 0; i < s->n_rings; i++)
		s->rings[i].head = head_of(s->rings[i].page);
	for (size_t i = 0; forks && i < s->n_rings; i++)
		tell_forks(s, &s->rings[i], forks, ctx);
	for (size_t i = 0; i < s->n_rings; i++) {
		struct sideband_ring *ring = &s->rings[i];
		uint64_t tail = ring->page->data_tail;
		struct perf_event_header header;
		int err = 0;

		while (!err && next_header(s, ring, tail, ring->head, &header)) {
			err = hand_over(ring, copy_record(s, ring, tail, header.size), fn, ctx);
			tail += header.size;
		}
		if (!err) /* the rest after a record with a bad size is skipped */
			tail = ring->head;
		__atomic_store_n(&ring->page->data_tail, tail, __ATOMIC_RELEASE);
		if (err)
			return err;
	}
	return 0;
}
