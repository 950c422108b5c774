/*
 * agent/source/source.h: the common interface of all inputs: perf.data, capture files, core files,
 * snapshots, a stopped process and live recording.
 *
 * A source belongs to one thread at a time. source_next() returns the events one by one in time
 * order. If the input is damaged, all sound events before the damage are delivered first and the
 * error is returned after them.
 */
#ifndef AGENT_SOURCE_SOURCE_H
#define AGENT_SOURCE_SOURCE_H

#include "agent/event.h"
#include "schema/plan.h"

#include <stddef.h>
#include <stdint.h>

struct source_event {	 /* one kind of sample */
	char name[64];	 /* "cpu-clock", "cycles:u" */
	char type[32];	 /* pprof sample type next to "samples": "cpu", or the event's name */
	char unit[32];	 /* "nanoseconds" or "count": the unit of event_sample.period */
	uint64_t period; /* events between two samples if that is fixed; 0: not fixed */
	uint64_t frequency_hz;
};

struct source_kernel_symbol;

/*
 * Facts about the recording. Most of them are known when the source has been opened. The times are
 * known after the first event. Pipes and capture files can add or complete facts later, such as
 * event kinds. So read the facts again after the stream has ended.
 */
struct source_info {
	uint16_t machine; /* e_machine of its ELF files */
	char kind[16];	  /* "live", "perf.data", "capture", "core", "snapshot", "process" */
	char host[65], kernel[65], recorder[64]; /* "" if unknown */
	char command[512];			 /* command line of the recorder; "" if unknown */
	uint64_t wall_start_ns; /* CLOCK_REALTIME at the time of the first event; 0: unknown */
	uint64_t wall_first_ns; /* time_ns of the first event, on the clock of the source */
	struct source_event *events;
	size_t n_events;
	struct uw_build_id kernel_build_id;
	uint64_t kernel_text; /* run-time address of _text; 0: unknown */
	/*
	 * True if, as far as the source can tell, the recording was made on this machine since it
	 * was booted. /proc/kallsyms may then be used for it, if _text is at kernel_text there.
	 * The code that reads kallsyms must check that address.
	 */
	bool same_boot;
	/*
	 * True if, as far as the source can tell, the recording was made under the kernel that
	 * runs here. The vDSO of this machine then fits the recording.
	 */
	bool same_kernel;
	/*
	 * True if the recording names another host. Files of this machine are then not the
	 * recorded files, except where their build-ids are equal.
	 */
	bool other_host;
	bool red_zone; /* true: memory below the stack pointer was captured too */
	/*
	 * Rebuild the ELF file that is mapped from start on in process pid, from the process's
	 * captured memory. The caller frees *out. Return -ENOENT if the memory does not hold all
	 * of the file. The function is NULL if the source has no such memory.
	 */
	int (*image)(void *ctx, uint32_t pid, uint64_t start, uint8_t **out, size_t *size);
	void *image_ctx;
	/*
	 * Open the file of a mapping, which the mapping describes by device, inode and path. This
	 * works if the source has the file open or knows a process that can see it. The caller
	 * closes *fd. Return -ENOENT if the file cannot be reached in this way. The function is
	 * NULL if the source never can.
	 */
	int (*file)(void *ctx, uint32_t major, uint32_t minor, uint64_t inode, const char *path,
		    int *fd);
	void *file_ctx;
	/*
	 * Open the source's own copy of a file. If build_id->size is not 0, the file is looked up
	 * by build-id; otherwise by device, inode and path, and its build-id is stored in
	 * *build_id. The copy holds the parts that unwinding and symbolizing read, which may be
	 * less than the whole file, so the file itself is to be preferred. The caller closes *fd.
	 * If fd is NULL, only the build-id is returned. Return -ENOENT if the source has no copy.
	 * The function is NULL if the source has no copies at all.
	 */
	int (*embedded_file)(void *ctx, uint32_t major, uint32_t minor, uint64_t inode,
			     const char *path, struct uw_build_id *build_id, int *fd);
	void *embedded_file_ctx;
	/* Kernel symbols that are part of the input, sorted by addr; NULL: none. */
	const struct source_kernel_symbol *kernel_symbols;
	size_t n_kernel_symbols;
	/*
	 * Look up the symbol of the running kernel that contains addr. *out is valid until the
	 * next call. Return -ENOENT if no symbol contains addr. Any other error means that the
	 * kernel cannot be asked: read /proc/kallsyms instead. The function is NULL if the source
	 * cannot ask the kernel. Only one thread at a time may call it.
	 */
	int (*kernel_symbol)(void *ctx, uint64_t addr, struct source_kernel_symbol *out);
	/*
	 * Say which n addresses kernel_symbol will be asked for next: all together are found faster
	 * than one by one. NULL: it makes no difference.
	 */
	void (*kernel_symbols_ahead)(void *ctx, const uint64_t *addrs, size_t n);
	void *kernel_symbol_ctx;
	/*
	 * Let the samples of a process have slices of its memory (schema/plan.h); task has its start time and
	 * base. plan NULL: no more. -ENOSPC: too many plans are in use. The function is NULL if the source's
	 * samples cannot have any. Only one thread at a time may call it.
	 */
	int (*plan)(void *ctx, uint32_t pid, const struct plan_task *task, const struct plan *plan);
	void *plan_ctx;
};

struct source_kernel_symbol {
	uint64_t addr, size;
	const char *name;
	const char *module; /* "" for vmlinux itself */
};

struct source;

struct source_ops {
	int (*next)(struct source *source, struct event *event, int timeout_ms);
	/*
	 * Stop sampling (live recording only). Events that are already buffered are still
	 * delivered by next(), which then returns 0. NULL: there is nothing to stop.
	 */
	void (*stop)(struct source *source);
	void (*close)(struct source *source);
};

struct source { /* the first member of the struct of each source */
	const struct source_ops *ops;
	struct source_info info;
	char error[512]; /* set after a failure: one line with file, offset and reason */
};

/*
 * Return 1 if *event was filled, 0 at the end of the stream, and -EAGAIN if no event arrived
 * within timeout_ms. Only live sources return -EAGAIN; timeout_ms -1 waits without limit. Any
 * other negative code means that the input is damaged or cannot be read, and source->error then
 * says why. Pointers in *event are valid until the next call.
 */
int source_next(struct source *source, struct event *event, int timeout_ms);
void source_stop(struct source *source);
void source_close(struct source *source); /* NULL is fine */

/*
 * Open the file fd, which is read from its start. The source takes over fd and closes it, even if
 * opening fails. name is used in messages. On failure *out is not changed and error (512 bytes)
 * says why.
 */
int source_perfdata_open(int fd, const char *name, struct source **out, char *error);
int source_owc_open(int fd, const char *name, struct source **out, char *error);
int source_core_open(int fd, const char *name, struct source **out, char *error);
/* fd is the directory of one snapshot; otherwise as above. */
int source_snapshot_open(int fd, const char *name, struct source **out, char *error);
/*
 * Capture a running process: each of its threads becomes one sample. The process is stopped while
 * its registers and stacks are copied, and runs again before this function returns.
 */
int source_process_open(uint32_t pid, struct source **out, char *error);

enum source_format { SOURCE_PERFDATA, SOURCE_OWC, SOURCE_CORE, SOURCE_UNKNOWN };
#define SOURCE_HEAD 20
/*
 * Recognize a file format by the first bytes of the file. size may be less than SOURCE_HEAD for a
 * short file.
 */
enum source_format source_detect(const void *head, size_t size);

/*
 * source_event.type of the waiting times of threads. The period of such a sample is the time
 * waited, in nanoseconds. It is counted separately from CPU time.
 */
#define SOURCE_OFF_CPU "off_cpu"
/*
 * source_event.type of allocated memory, see struct event_alloc. The period of such a sample is
 * the number of bytes that it stands for.
 */
#define SOURCE_ALLOC "alloc_space"

/*
 * What a live recording samples, and which threads.
 *
 * There are five filters: processes and threads (pids, tids), comms, uids, cgroups (by path,
 * container, pod or unit), cpus. A thread must pass each filter that is given; it passes a filter if it matches any one of
 * its entries. All pointers are borrowed until the source is open.
 */
struct source_live_options {
	uint32_t frequency_hz;
	uint64_t count;		   /* take one sample every count events; 0: use frequency_hz */
	const char *const *events; /* names as perf writes them; none: the clock */
	size_t n_events;
	const char *const *probes; /* "FILE:FUNCTION" */
	size_t n_probes;
	bool off_cpu;		 /* also sample threads while they wait ... */
	uint64_t off_cpu_min_ns; /* ... if they wait at least this long */
	/*
	 * ... but of each CPU only about so many waits a second, if there are more; then a sample
	 * stands for several. 0: LIVE_WAIT_RATE.
	 */
	uint32_t wait_rate;
	/* ... each with the stack of the thread that ended the wait (EVENT_WAKER). */
	bool wakers;
	/*
	 * Also sample allocated memory: one sample for every alloc_interval bytes on average, at
	 * most CAPTURE_INTERVAL_MAX; 0: no.
	 */
	uint64_t alloc_interval;
	const char *program; /* a file that will run: its allocator is watched, too */
	int32_t *pids;	     /* processes, with their children */
	size_t n_pids;
	int32_t *tids; /* single threads */
	size_t n_tids;
	const char *const *comms; /* names of threads, at most 15 bytes each */
	size_t n_comms;
	uint32_t *uids; /* real user ids */
	size_t n_uids;
	const char *const *cgroups; /* in the cgroup2 hierarchy; with descendants */
	size_t n_cgroups;
	const char *const *containers; /* container ids, or prefixes of ids */
	size_t n_containers;
	const char *const *pods; /* uids of Kubernetes' pods, or prefixes of uids */
	size_t n_pods;
	const char *const *units; /* of systemd, also slices; with wildcards */
	size_t n_units;
	int *cpus; /* numbers of CPUs */
	size_t n_cpus;
	uint32_t stack_max;  /* limit for the copy of one stack, bytes */
	uint32_t ring_bytes; /* 0: default */
	const char *command; /* command line for source_info; NULL: unknown */
	/*
	 * The rate and the filters may change while recording goes on (agent/live/capture.h), but not
	 * tids and cpus. Then a cgroup need not exist yet, and recording does not end with the
	 * processes.
	 */
	bool changes;
};
#define LIVE_WAIT_RATE 1000u
int source_live_open(const struct source_live_options *options, struct source **out, char *error);

#endif
