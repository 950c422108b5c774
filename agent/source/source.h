/*
 * agent/source/source.h: what gives events: perf.data, a capture file, the live system.
 *
 * One thread uses a source.  source_next hands out one event after another in
 * time order; a damaged input gives what was sound before the damage, then the
 * error.
 */
#ifndef AGENT_SOURCE_SOURCE_H
#define AGENT_SOURCE_SOURCE_H

#include "agent/event.h"

#include <stddef.h>
#include <stdint.h>

struct source_event {	 /* one kind of sample */
	char name[64];	 /* "cpu-clock", "cycles:u" */
	char type[32];	 /* pprof sample type beside "samples": "cpu", else the event's name */
	char unit[32];	 /* "nanoseconds" or "count": the unit of event_sample.period */
	uint64_t period; /* fixed period, or 0 */
	uint64_t frequency_hz;
};

struct source_kernel_symbol;

/* Known when the source is open, but for what a pipe tells later; read it when the stream ended. */
struct source_info {
	uint16_t machine;			 /* EM_X86_64, EM_AARCH64 */
	char kind[16];				 /* "live", "perf.data", "capture" */
	char host[65], kernel[65], recorder[64]; /* "" where not told */
	char command[512];			 /* the recorder's command line; "" where not told */
	uint64_t wall_start_ns; /* CLOCK_REALTIME of the first event's time; 0: not told */
	uint64_t wall_first_ns; /* that first event's time_ns on the source's clock */
	struct source_event *events;
	size_t n_events;
	struct uw_build_id kernel_build_id;
	uint64_t kernel_text; /* run-time address of _text; 0: not told */
	/* As far as the source can tell, this machine since it started: its kallsyms fit where
	   their _text is at kernel_text, which is for their reader to check. */
	bool same_boot;
	/* As far as the source can tell, recorded under the kernel that runs here: its vDSO fits. */
	bool same_kernel;
	/* Recorded on a machine of another name: its files are not this one's. */
	bool other_host;
	bool red_zone; /* bytes below sp were captured */
	/*
	 * The ELF file mapped from start on in process pid, put together again from its memory;
	 * -ENOENT where that does not hold all of it.  NULL: the source keeps no such memory.
	 */
	int (*image)(void *ctx, uint32_t pid, uint64_t start, uint8_t **out, size_t *size);
	void *image_ctx;
	/*
	 * A descriptor, the caller's, of the file that a mapping was told of by device and
	 * inode and path, where the source holds it open or knows who sees it; -ENOENT.  NULL: it never does.
	 */
	int (*file)(void *ctx, uint32_t major, uint32_t minor, uint64_t inode, const char *path,
		    int *fd);
	void *file_ctx;
	/*
	 * Give a descriptor, the caller's, of what the source kept of a file: by its build-id or, where
	 * build_id has size 0, by device, inode and path; the file's own goes into build_id then.  It
	 * holds what naming and walking read, possibly not all, so the file itself is better.  fd NULL:
	 * only the build-id is wanted.  -ENOENT: nothing was kept.  NULL: never.
	 */
	int (*kept_file)(void *ctx, uint32_t major, uint32_t minor, uint64_t inode,
			 const char *path, struct uw_build_id *build_id, int *fd);
	void *kept_file_ctx;
	/* Kernel symbols the source carries itself: sorted by addr; NULL: none. */
	const struct source_kernel_symbol *kernel_symbols;
	size_t n_kernel_symbols;
	/*
	 * One of the running kernel, borrowed until the next call; -ENOENT: it has none there; any
	 * other error: its list has to tell.  NULL: the source cannot ask.  One thread at a time may.
	 */
	int (*kernel_symbol)(void *ctx, uint64_t addr, struct source_kernel_symbol *out);
	void *kernel_symbol_ctx;
};

struct source_kernel_symbol {
	uint64_t addr, size;
	const char *name;
	const char *module; /* "" for vmlinux */
};

struct source;

struct source_ops {
	int (*next)(struct source *source, struct event *event, int timeout_ms);
	/* Live: no new samples after this; what is buffered still comes, then 0.  NULL: nothing to stop. */
	void (*stop)(struct source *source);
	void (*close)(struct source *source);
};

struct source { /* first member of each source's own struct */
	const struct source_ops *ops;
	struct source_info info;
	char error[512]; /* after a failure: one line that names file, offset and reason */
};

/*
 * 1: *event is filled; 0: the end; -EAGAIN: nothing came within timeout_ms
 * (live only; -1 waits); else the input is damaged or failed and error is set.
 */
int source_next(struct source *source, struct event *event, int timeout_ms);
void source_stop(struct source *source);
void source_close(struct source *source); /* NULL is fine */

/*
 * fd is read from its start and taken over (also on failure); name is for
 * messages.  On failure *out is untouched and error (size 512) says why.
 */
int source_perfdata_open(int fd, const char *name, struct source **out, char *error);
int source_owc_open(int fd, const char *name, struct source **out, char *error);
int source_core_open(int fd, const char *name, struct source **out, char *error);
/* fd: the folder of one snapshot. */
int source_snapshot_open(int fd, const char *name, struct source **out, char *error);
/* A running process, each of its threads once; it goes on before this returns. */
int source_process_open(uint32_t pid, struct source **out, char *error);

enum source_format { SOURCE_PERFDATA, SOURCE_OWC, SOURCE_CORE, SOURCE_UNKNOWN };
#define SOURCE_HEAD 20
/* By the first bytes; size may be less than SOURCE_HEAD at the end of a short file. */
enum source_format source_detect(const void *head, size_t size);

/* source_event.type of waiting threads: their period is how long, beside the CPU's time. */
#define SOURCE_OFF_CPU "off_cpu"
/* … of allocated memory: see event_alloc; their period is the bytes that one stands for. */
#define SOURCE_ALLOC "alloc_space"

/*
 * What to sample and whom.  Of one kind of whom any one will do, but each kind
 * that is given must fit; processes and threads are one kind.  All borrowed
 * until the source is open.
 */
struct source_live_options {
	uint32_t frequency_hz;
	uint64_t count;		   /* one sample every so many events; 0: by frequency */
	const char *const *events; /* perf's words, see live_event.h; none: the clock */
	size_t n_events;
	const char *const *probes; /* "FILE:FUNCTION" */
	size_t n_probes;
	bool off_cpu;		 /* waiting threads too … */
	uint64_t off_cpu_min_ns; /* … if for so long */
	/* Allocated memory too, one of so many bytes, at most CAPTURE_INTERVAL_MAX; 0: not. */
	uint64_t alloc_interval;
	const char *program; /* a file that will run: its allocator; NULL: none */
	int32_t *pids;	     /* these processes and their children */
	size_t n_pids;
	int32_t *tids; /* these threads */
	size_t n_tids;
	const char *const *comms; /* threads of this name, of at most 15 bytes */
	size_t n_comms;
	uint32_t *uids; /* of this real user */
	size_t n_uids;
	const char *const *cgroups; /* paths in the cgroup2 hierarchy, with all below them */
	size_t n_cgroups;
	const char *const *containers; /* ids, or beginnings of ids */
	size_t n_containers;
	int *cpus; /* on these CPUs */
	size_t n_cpus;
	uint32_t stack_max;  /* most bytes copied of one stack */
	uint32_t ring_bytes; /* 0: default */
	const char *command; /* the command line, for source_info; NULL: not told */
};
int source_live_open(const struct source_live_options *options, struct source **out, char *error);

#endif
