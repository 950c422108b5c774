/*
 * agent/process/generated.c: finds and reads JIT registrations, perf maps, jitdump files and
 * HotSpot's code.
 */
#include "agent/process/generated.h"

#include "agent/array.h"
#include "agent/clock.h"
#include "agent/errand.h"
#include "agent/limits.h"
#include "agent/log.h"
#include "agent/opener/opener.h"
#include "agent/process/hotspot.h"
#include "agent/process/modules.h"
#include "agent/process/v8.h"
#include "agent/source/machine.h"
#include "schema/dynamic_blob.h"
#include "symbolizer/symbolizer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LISTS_MAX      16
#define READ_NS	       8000000u /* CPU time for reading; building the result may take 2 ms more */
#define READ_LATEST_NS 50000000u
#define PATIENCE       20 /* times as long, where there is one sample of each thread */
/* How many reads are done between two checks of the clock. */
#define READS	 64
#define WATCHES	 256 /* a power of two; slots for processes that generate code, or run node */
#define NAMES_NS 500000000u /* between two readings of a perf map, for all names so far */
/* Between two attempts to open a file that does not exist; for a perf-PID.map this doubles up to LOOK_MAX_NS. */
#define LOOK_NS	    100000000u
#define LOOK_MAX_NS 1000000000u
/*
 * Pauses between two readings of a Java virtual machine's code: after something new, and at most.
 * Divided by HOTSPOT_SOON if code runs that is not known.
 */
#define HOTSPOT_NS     20000000u
#define HOTSPOT_MAX_NS 500000000u
#define HOTSPOT_SOON   10
#define CALLS_BURST_NS UINT64_C(2000000000) /* of the time in which frames may be looked at */
#define STACK_MAX      (1u << 20) /* of a stack that the recording has apart from its samples */
#define STACK_PAGE     4096u
#define REST	       9 /* after reading, pause for this many times the time that it took */
/*
 * All processes together are read for one part of ALL_REST + 1 of the time, of which ALL_AHEAD_NS can be used
 * ahead.
 */
#define ALL_REST     3
#define ALL_AHEAD_NS UINT64_C(1000000000)
/* While samples are later than this, no memory is read: a lost sample is worse than a lost name. */
#define LATE_NS UINT64_C(300000000)
/*
 * A user whose memory was waited for longer than SLOW_NS for one sample is not read for REST times that
 * time, of which SLOW_AHEAD_NS can be used ahead, nor while it has not answered; nobody is while SLOW_MAX
 * users have not. So a user has one of his processes waited for, and samples wait for SLOW_MAX times
 * OPENER_MEMORY_MS at most. Waits of less than SLOW_LEAST_NS do not count: on a busy machine, the
 * opener's process has to wait for a CPU.
 */
#define SLOW_NS	      50000000u
#define SLOW_LEAST_NS 1000000u
#define SLOW_AHEAD_NS UINT64_C(2000000000)
#define SLOW_MAX      4
/*
 * Reading a perf-PID.map or jitdump file of 20 MB takes 50 ms. A file that takes more CPU time than
 * this limit is left out.
 */
#define MAP_NS UINT64_C(200000000)
/* What was dropped because it took too much memory is not read again for this time. */
#define DROPPED_NS UINT64_C(60000000000)

struct watch { /* a process that generates code, or runs node */
	uint32_t pid;
	uint64_t files; /* thread.files when its lists were last looked up */
	struct uw_dynamic_list lists[LISTS_MAX];
	size_t n_lists;
	uint64_t mark; /* mark of the lists when read last; 0: not read */
	uint32_t ns_pid;
	struct opener_user user;
	int memory;		  /* its memory, see opener_memory; -1: not open */
	uint64_t memory_ns;	  /* CLOCK_MONOTONIC: do not try to open it before this time */
	int map_fd;		  /* the process's perf-PID.map; -1: not open */
	bool is_dump;		  /* map_fd is its jitdump file instead */
	off_t map_size;		  /* size of the map when names were last read */
	struct uw_dynamic *names; /* reported last */
	uint64_t start_ns;	  /* when the process began; 0: not reported */
	struct v8 *v8;		  /* NULL: it has no V8 */
	struct hotspot *hotspot;  /* NULL: not a Java virtual machine */
	uint64_t hotspot_pause;	  /* between two readings of HotSpot's code, ns */
	uint64_t hotspot_ns;	  /* CLOCK_MONOTONIC: no reading before this time, */
	uint64_t hotspot_soon_ns; /* or before this one, if code runs that is not in … */
	struct uw_dynamic *code;  /* … code, which was reported last */
	uint64_t calls_ns;	  /* CLOCK_MONOTONIC: frames are not looked at before this time */
	uint64_t runtime_bytes;	  /* that v8 and hotspot take */
	/* CLOCK_MONOTONIC times before which … */
	uint64_t read_ns;    /* … samples need no reading: the lists were looked at then */
	uint64_t rest_ns;    /* … the lists are not read */
	uint64_t look_ns;    /* … the perf-PID.map is not looked for, */
	uint64_t look_pause; /* which was this long after the attempt before */
	uint64_t names_ns;   /* … the map is not read again because of code without a name */
	uint64_t again_ns;   /* … what it has mapped is not looked at */
	bool gave_up;	     /* reading the map takes too long: do not read it again */
};

struct found {				 /* what a module's file contains */
	uint64_t serial;		 /* of the module; 0: not searched */
	struct uw_dynamic_list lists[2]; /* addresses are vaddrs, also in hotspot */
	uint64_t hotspot[HOTSPOT_EXPORTS], v8[V8_VALUES];
};

struct slow { /* a user whose memory was slow to answer */
	uint32_t uid;
	uint64_t until_ns; /* CLOCK_MONOTONIC: not read before this time */
	bool unanswered;   /* nor before opener_is_late returns false for … */
	size_t late;	   /* … this number */
};

struct generated {
	struct processes *processes;
	struct opener *opener;
	bool live, patient;
	struct watch *watches[WATCHES]; /* by the low bits of the pid; NULL: free */
	struct found *found;		/* by module id */
	size_t n_found;
	struct slow slow[SLOW_MAX];
	uint64_t runtime_bytes;	    /* of all watches */
	struct uw_dynamic *dynamic; /* data of the last reported event; owned */
	uint64_t time_ns;	    /* time of the last sample */
	uint64_t all_ns;	    /* CLOCK_MONOTONIC: no process is read before this time */
	uint64_t last_ns; /* CLOCK_MONOTONIC: next time to read a file of an ending process */
};

int generated_new(struct processes *processes, struct opener *opener, bool live,
		  struct generated **out)
{
	struct generated *g = calloc(1, sizeof(*g));

	if (!g)
		return -ENOMEM;
	g->processes = processes;
	g->opener = opener;
	g->live = live;
	*out = g;
	return 0;
}

void generated_wait(struct generated *g)
{
	g->patient = true;
}

/* Free what was read of a runtime; it would be read again. */
static void drop_runtime(struct generated *g, struct watch *w)
{
	hotspot_free(w->hotspot);
	w->hotspot = NULL;
	v8_free(w->v8);
	w->v8 = NULL;
	uw_dynamic_put(w->code);
	w->code = NULL;
	g->runtime_bytes -= w->runtime_bytes;
	w->runtime_bytes = 0;
}

/*
 * Note what a watch's runtime takes now. If all together take too much, drop those that take most, and have them
 * rest: few virtual machines are large, but what a user forges can be.
 */
static void bound_runtimes(struct generated *g, struct watch *w)
{
	uint64_t bytes = (w->hotspot ? hotspot_memory_of(w->hotspot) : 0) +
			 (w->v8 ? v8_memory_of(w->v8) : 0);

	g->runtime_bytes += bytes - w->runtime_bytes;
	w->runtime_bytes = bytes;
	while (g->runtime_bytes > limits.generated_bytes) {
		struct watch *most = w;

		for (size_t i = 0; i < WATCHES; i++)
			if (g->watches[i] && g->watches[i]->runtime_bytes > most->runtime_bytes)
				most = g->watches[i];
		drop_runtime(g, most);
		most->files = 0; /* its exports are looked up again */
		most->again_ns = now_ns() + DROPPED_NS;
		limits_reach(generated_bytes, 1);
	}
}

static void watch_fini(struct generated *g, struct watch *w)
{
	if (w->map_fd >= 0)
		(void)close(w->map_fd);
	if (w->memory >= 0)
		(void)close(w->memory);
	uw_dynamic_put(w->names);
	drop_runtime(g, w);
}

void generated_free(struct generated *g)
{
	if (!g)
		return;
	for (size_t i = 0; i < WATCHES; i++) {
		if (g->watches[i])
			watch_fini(g, g->watches[i]);
		free(g->watches[i]);
	}
	uw_dynamic_put(g->dynamic);
	free(g->found);
	free(g);
}

/* ---- memory ------------------------------------------------------------------------------ */

struct memory {
	const struct event *sample;
	struct generated *generated;
	const struct watch *watch; /* of the living process; NULL: read only what was recorded */
	struct uw_space *space;	   /* of the process; NULL: not known yet */
	bool over;		   /* the time for reading is over */
	bool slow;		   /* the memory was slow to answer */
	uint64_t waited_ns;	   /* for answers that were slow, together */
	uint64_t until_ns;	   /* limit on this thread's CPU time; 0: none */
	uint64_t latest_ns;	   /* limit on elapsed time, for a busy CPU or swapped pages */
	unsigned int reads;
};

/* Start the time limits for reading a process's memory. */
static void begin_reading(struct memory *m)
{
	const uint64_t times = m->generated->patient ? PATIENCE : 1;

	m->over = false;
	m->until_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) + times * READ_NS;
	m->latest_ns = now_ns() + times * READ_LATEST_NS;
}

/* Return whether the memory of a user's processes may be read now. */
static bool may_read(struct generated *g, uint32_t uid)
{
	size_t n_unanswered = 0;
	bool rests = false;

	for (size_t i = 0; i < SLOW_MAX; i++) {
		struct slow *s = &g->slow[i];

		if (s->unanswered)
			s->unanswered = opener_is_late(s->late);
		n_unanswered += s->unanswered;
		rests |= s->uid == uid && (s->unanswered || now_ns() < s->until_ns);
	}
	return !rests && n_unanswered < SLOW_MAX;
}

/*
 * Note that a user's memory was slow to answer, in the user's place, or in the one whose time is over
 * first of those that nobody waits in: may_read has shown that there is one.
 */
static void note_slow(struct generated *g, const struct slow *slow, uint64_t waited_ns)
{
	uint64_t begun = now_ns() - SLOW_AHEAD_NS;
	struct slow *place = NULL;

	for (size_t i = 0; i < SLOW_MAX; i++) {
		struct slow *s = &g->slow[i];

		if (!s->unanswered && (!place || s->uid == slow->uid ||
				       (place->uid != slow->uid && s->until_ns < place->until_ns)))
			place = s;
	}
	if (!place)
		return;
	if (place->uid == slow->uid && place->until_ns > begun)
		begun = place->until_ns;
	*place = *slow;
	place->until_ns = begun + REST * waited_ns;
}

/* Read memory of a living process. -ETIME: it was slow to answer, so read no more of it now. */
static int read_live(struct memory *m, uint64_t addr, void *out, size_t size)
{
	const struct watch *w = m->watch;
	struct slow slow = { .uid = w->user.uid };
	struct opener_wait wait;
	int err = opener_read_memory(m->generated->opener, w->memory, addr, out, size, &wait);

	if (wait.ns >= SLOW_LEAST_NS)
		m->waited_ns += wait.ns;
	if (m->waited_ns < (m->generated->patient ? PATIENCE : 1) * (uint64_t)SLOW_NS &&
	    err != -ETIMEDOUT)
		return err;
	slow.late = wait.late;
	slow.unanswered = err == -ETIMEDOUT;
	if (slow.unanswered)
		log_warning("process %" PRIu32 ": its memory does not answer: generated code of "
			    "user %" PRIu32 " is not read for some time",
			    w->pid, slow.uid);
	note_slow(m->generated, &slow, m->waited_ns);
	m->slow = true;
	return err == -ETIMEDOUT ? -ETIME : err;
}

/*
 * Read memory of the sample's process, live or from the recording; a uw_read_fn. -ETIME: the time
 * is over; no bytes: only see whether it is.
 */
static int read_memory(void *ctx, uint64_t addr, void *out, size_t size)
{
	struct memory *m = ctx;
	const struct event_sample *s = &m->sample->sample;
	int err;

	if ((!size || ++m->reads % READS == 0) && m->until_ns)
		m->over |=
			clock_ns(CLOCK_THREAD_CPUTIME_ID) > m->until_ns || now_ns() > m->latest_ns;
	if (m->over || m->slow)
		return -ETIME;
	if (!size)
		return 0;
	if (m->watch)
		return read_live(m, addr, out, size);
	err = s->read(s->read_ctx, addr, out, size);
	/* A core lacks what is in the files that were mapped. */
	return err && m->space ? module_read(m->space, addr, out, size) : err;
}

/* ---- lists -------------------------------------------------------------------------------- */

static bool is_libjvm(const struct module *module)
{
	const char *slash = strrchr(module->path, '/');

	return slash && !strcmp(slash, "/libjvm.so");
}

/*
 * Look up the registration lists, and the exports of HotSpot and V8, in a module's file. The result is cached by
 * module.
 */
static const struct found *find_in(struct generated *g, const struct module *module,
				   const struct uw_object *object)
{
	if (module->id >= g->n_found) {
		size_t n = (size_t)module->id + 64;
		struct found *more = reallocarray(g->found, n, sizeof(*more));

		if (!more)
			return NULL;
		memset(more + g->n_found, 0, (n - g->n_found) * sizeof(*more));
		g->found = more;
		g->n_found = n;
	}
	if (g->found[module->id].serial != module->serial) {
		g->found[module->id] = (struct found){ .serial = module->serial };
		uw_object_lists(object, g->found[module->id].lists);
		if (is_libjvm(module))
			uw_object_exports(object, hotspot_exports, HOTSPOT_EXPORTS,
					  g->found[module->id].hotspot);
		if (opener_is_v8(module->path))
			uw_object_exports(object, v8_exports, V8_VALUES, g->found[module->id].v8);
	}
	return &g->found[module->id];
}

/* ---- perf-PID.map and jitdump files -------------------------------------------------------- */

/*
 * Return the unwind information of entry i of a jitdump file. NULL: there is none, or it cannot be
 * read. The caller frees it.
 */
static uint8_t *frames_of(int fd, const struct sym_jit *jit, size_t i, size_t *size)
{
	uint64_t off;
	uint32_t n;
	uint8_t *bytes;

	sym_jit_frames(jit, i, &off, &n);
	bytes = n && n <= DYNAMIC_SIZE_MAX ? malloc(n) : NULL;
	if (bytes && pread(fd, bytes, n, (off_t)off) != (ssize_t)n) {
		free(bytes);
		bytes = NULL;
	}
	*size = bytes ? n : 0;
	return bytes;
}

/*
 * Read a perf map or jitdump file. names: only names, because walks use registered code of the
 * process.
 */
static int read_map(int fd, uint16_t machine, bool names, struct uw_dynamic **out)
{
	struct uw_dynamic_code *codes = NULL;
	size_t n = 0, room = 0, left = DYNAMIC_SIZE_MAX;
	struct sym_symbol symbol;
	struct sym_jit *jit;
	int err = sym_jit_open(fd, &jit);

	if (err)
		return err;
	for (; !err && !sym_jit_at(jit, n, &symbol); n++) {
		struct uw_dynamic_code code = { .start = symbol.addr,
						.end = symbol.addr + symbol.size,
						.name = symbol.name };

		err = array_grow(codes, n, room);
		if (err)
			break;
		if (!names && left)
			code.frames = frames_of(fd, jit, n, &code.frames_size);
		left -= code.frames_size < left ? code.frames_size : left;
		codes[n] = code;
	}
	if (!err && !n)
		err = -ENOENT;
	if (!err)
		err = uw_dynamic_make(machine, codes, n, names, out);
	for (size_t i = 0; i < n; i++)
		free((void *)codes[i].frames);
	sym_jit_free(jit);
	free(codes);
	return err;
}

/* Input and result of reading a map in an errand. */
struct map_reading {
	int fd, err;
	uint16_t machine;
	bool names;
	struct uw_dynamic *dynamic;
};

static void free_map_reading(void *ctx)
{
	struct map_reading *r = ctx;

	uw_dynamic_put(r->dynamic);
	(void)close(r->fd);
	free(r);
}

static void run_map_reading(void *ctx)
{
	struct map_reading *r = ctx;

	r->err = read_map(r->fd, r->machine, r->names, &r->dynamic);
}

/*
 * Read the file of a watched process with a time limit. A file that takes too long is not read
 * again.
 */
static int read_watched(struct watch *w, uint16_t machine, struct uw_dynamic **out)
{
	struct map_reading *r = calloc(1, sizeof(*r));
	const struct errand errand = { .run = run_map_reading, .drop = free_map_reading, .ctx = r };
	int err;

	if (!r)
		return -ENOMEM;
	*r = (struct map_reading){ .fd = dup(w->map_fd),
				   .machine = machine,
				   .names = w->mark != 0 };
	err = errand_run(&errand, MAP_NS);
	if (err == -ETIMEDOUT) {
		w->gave_up = true;
		log_warning("process %" PRIu32 ": names of generated code are left out: reading "
			    "them takes too long",
			    w->pid);
		return err;
	}
	if (!err)
		err = r->err;
	if (!err) {
		*out = r->dynamic;
		r->dynamic = NULL;
	}
	free_map_reading(r);
	return err;
}

/*
 * Return whether a mapped file is a jitdump file, DIR/jit-PID.dump. The process maps a page of it
 * so that profilers find it.
 */
static bool is_dump(const struct module *module)
{
	const char *slash = strrchr(module->path, '/');
	size_t size = slash ? strlen(slash) : 0;

	return size > 10 && !strncmp(slash, "/jit-", 5) && !strcmp(slash + size - 5, ".dump");
}

/* Open a jitdump file that the process has mapped. It is used instead of the perf map. */
static void open_dump(struct generated *g, struct watch *w, const struct uw_mapping *m)
{
	const struct module *module = m->user;
	struct opener_file file = { .pid = w->pid,
				    .start = m->start,
				    .end = m->end,
				    .path = module->path,
				    .named = true,
				    .user = &w->user };
	unsigned int next = 0;
	int fd;

	if (!g->live || w->is_dump || opener_open(g->opener, &file, &next, &fd))
		return;
	if (w->map_fd >= 0)
		(void)close(w->map_fd);
	w->map_fd = fd;
	w->map_size = 0;
	w->is_dump = true;
}

/* Fill in an event with the bytes of dynamic, and take ownership of dynamic. Return 1. */
static int tell(struct generated *g, uint32_t pid, struct uw_dynamic *dynamic, struct event *out)
{
	uw_dynamic_put(g->dynamic);
	g->dynamic = dynamic;
	*out = (struct event){
		.type = EVENT_GENERATED, .pid = pid, .tid = pid, .time_ns = g->time_ns
	};
	out->generated.bytes = uw_dynamic_bytes(dynamic, &out->generated.size);
	return 1;
}

/* Read the perf map or jitdump file, if its size has changed. Return 1 with *out, or 0. */
static int names_of(struct generated *g, struct watch *w, struct event *out)
{
	struct uw_dynamic *dynamic;
	uint64_t began = now_ns();
	struct stat st;
	int err;

	if (!g->live || w->gave_up ||
	    (w->map_fd < 0 && opener_perf_map(g->opener, w->pid, w->ns_pid, &w->user, &w->map_fd)))
		return 0;
	if (fstat(w->map_fd, &st) || st.st_size == w->map_size)
		return 0;
	w->map_size = st.st_size;
	err = read_watched(w, processes_machine(g->processes), &dynamic);
	w->names_ns = now_ns() + NAMES_NS + REST * (now_ns() - began);
	if (err)
		return 0;
	uw_dynamic_put(w->names);
	w->names = uw_dynamic_get(dynamic);
	return tell(g, w->pid, dynamic, out);
}

/*
 * Return whether the sample runs code without a name although the process has a map: the code may
 * have been generated after the map was read.
 */
static bool is_nameless(const struct watch *w, const struct event *sample, uint16_t machine)
{
	unsigned int pc = machine_of(machine)->pc;
	struct uw_dynamic_proc proc;

	return w->map_fd >= 0 && now_ns() >= w->names_ns &&
	       (!w->names || uw_dynamic_proc(w->names, sample->sample.regs.value[pc], &proc));
}

int generated_names(struct generated *g, uint32_t pid, struct event *out)
{
	struct watch *w = g->watches[pid & (WATCHES - 1)];
	uint64_t began = now_ns();
	int err;

	/* If many processes with large maps end one after the other, not all maps are read. */
	if (!w || w->pid != pid || began < g->last_ns)
		return 0;
	err = names_of(g, w, out);
	g->last_ns = now_ns();
	g->last_ns += REST * (g->last_ns - began > READ_NS ? g->last_ns - began : 0);
	return err;
}

void generated_ended(struct generated *g, uint32_t pid)
{
	struct watch *w = g->watches[pid & (WATCHES - 1)];

	if (!w || w->pid != pid)
		return;
	drop_runtime(g, w);
	if (w->memory >= 0)
		(void)close(w->memory);
	w->memory = -1;
	w->files = 0;
}

int generated_all_names(struct generated *g, size_t *at, struct event *out)
{
	while (*at < WATCHES) {
		struct watch *w = g->watches[(*at)++];

		if (w && names_of(g, w, out) == 1)
			return 1;
	}
	return 0;
}

/*
 * Prepare reading HotSpot's code. A process can become another program by exec, with other exports.
 */
static void watch_hotspot(struct watch *w, const uint64_t exports[HOTSPOT_EXPORTS])
{
	if (w->hotspot && hotspot_is_of(w->hotspot, exports))
		return;
	hotspot_free(w->hotspot);
	w->hotspot = NULL;
	(void)hotspot_new(exports, &w->hotspot);
}

/* Prepare reading V8's functions, likewise. exports: vaddrs. */
static void watch_v8(struct watch *w, const uint64_t exports[V8_VALUES], uint64_t bias)
{
	uint64_t addrs[V8_VALUES];

	for (size_t i = 0; i < V8_VALUES; i++)
		addrs[i] = exports[i] ? exports[i] + bias : 0;
	if (w->v8 && v8_is_of(w->v8, addrs))
		return;
	v8_free(w->v8);
	w->v8 = NULL;
	(void)v8_new(addrs, &w->v8);
}

/*
 * Look up the registration lists, HotSpot's exports and jitdump files among the process's mappings.
 */
static void seek_lists(struct generated *g, struct watch *w, struct uw_space *space)
{
	uint64_t v8_size = 0, v8_bias = 0;
	const struct found *v8 = NULL;

	w->n_lists = 0;
	for (const struct uw_mapping *m = uw_space_above(space, 0);
	     m && w->n_lists + 2 <= LISTS_MAX; m = uw_space_above(space, m->end)) {
		const struct module *module = m->user;
		const struct found *found;

		if (!module || module->kind != MODULE_FILE || !(m->prot & PROT_EXEC))
			continue;
		if (is_dump(module)) {
			open_dump(g, w, m);
			continue;
		}
		(void)uw_space_resolved(space, m->start);
		found = m->object ? find_in(g, module, m->object) : NULL;
		for (size_t k = 0; found && k < 2; k++)
			if (found->lists[k].addr)
				w->lists[w->n_lists++] = (struct uw_dynamic_list){
					.kind = found->lists[k].kind,
					.addr = found->lists[k].addr + m->bias,
				};
		if (found && found->hotspot[0] && found->hotspot[1])
			watch_hotspot(w, (uint64_t[]){ found->hotspot[0] + m->bias,
						       found->hotspot[1] + m->bias });
		if (found && found->v8[0] && m->end - m->start > v8_size) {
			v8_size = m->end - m->start;
			v8_bias = m->bias;
			v8 = found;
		}
	}
	/* V8 maps a part of its own code once more, near the code that it generates: the largest is itself. */
	if (v8)
		watch_v8(w, v8->v8, v8_bias);
}

/* ---- all processes together ------------------------------------------------------------------ */

/* Return whether there is time to read a process now: for all together it was not too long, and no sample is late. */
static bool has_turn(const struct generated *g)
{
	uint64_t now = now_ns();

	return !g->live || g->patient || (now >= g->all_ns && now < g->time_ns + LATE_NS);
}

/* Note since when a process was read. A worker that waits for a CPU reads less in that time, and walks more. */
static void charge(struct generated *g, uint64_t since_ns)
{
	uint64_t now = now_ns();

	if (g->all_ns < now - ALL_AHEAD_NS)
		g->all_ns = now - ALL_AHEAD_NS;
	g->all_ns += ALL_REST * (now - since_ns);
}

/* ---- processes that generate code ------------------------------------------------------------ */

/*
 * Return the watch of the sample's process. It replaces the one that used the slot before. NULL
 * when out of memory.
 */
static struct watch *watch_of(struct generated *g, const struct event *sample)
{
	struct watch **w = &g->watches[sample->pid & (WATCHES - 1)];
	uint64_t rest_ns = 0, names_ns = 0;

	/* A pid can be reused: compare the start time, too. */
	if (*w && (*w)->pid == sample->pid && (*w)->start_ns == sample->sample.process_start_ns)
		return *w;
	/* Processes that share a slot also share its pauses. */
	if (*w) {
		rest_ns = (*w)->rest_ns;
		names_ns = (*w)->names_ns;
		watch_fini(g, *w);
	} else {
		*w = calloc(1, sizeof(**w));
	}
	if (!*w)
		return NULL;
	**w = (struct watch){ .pid = sample->pid,
			      .ns_pid = sample->sample.ns_pid,
			      .start_ns = sample->sample.process_start_ns,
			      .rest_ns = rest_ns,
			      .names_ns = names_ns,
			      .memory = -1,
			      .map_fd = -1 };
	if (g->opener)
		opener_user_of(g->opener, sample->pid, &(*w)->user);
	return *w;
}

/* Return whether the sample runs generated code that was not reported yet. */
static bool is_news(const struct watch *w, const struct event *sample, struct uw_space *space)
{
	uint64_t pc = sample->sample.regs.value[UW_X86_64_RIP];
	struct uw_dynamic_proc proc;

	return module_is_generated(uw_space_find(space, pc)) &&
	       (!w->code || uw_dynamic_proc(w->code, pc, &proc));
}

/* Return whether the memory of the process is open; open it if that was not tried just now. */
static bool has_memory(struct generated *g, struct watch *w)
{
	if (w->memory < 0 && now_ns() >= w->memory_ns &&
	    opener_memory(g->opener, w->pid, &w->memory)) {
		w->memory = -1;
		w->memory_ns = now_ns() + LOOK_NS;
	}
	return w->memory >= 0;
}

/*
 * Read the code of a Java virtual machine. While it continues to compile, read it again soon;
 * later, less often.
 */
static int hotspot_look(struct generated *g, struct watch *w, struct memory *memory,
			struct uw_space *space, struct event *out)
{
	uint64_t began = now_ns(), spent = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	struct uw_dynamic *dynamic;
	bool news;
	int err;

	if (!w->hotspot || !machine_of(uw_space_machine(space))->hotspot ||
	    began < w->hotspot_soon_ns)
		return 0;
	news = is_news(w, memory->sample, space) || hotspot_misses(w->hotspot);
	if (!news && began < w->hotspot_ns)
		return 0;
	begin_reading(memory);
	err = hotspot_read(w->hotspot, read_memory, memory, news, w->mark != 0, &dynamic);
	memory->until_ns = 0;
	memory->over = false;
	spent = clock_ns(CLOCK_THREAD_CPUTIME_ID) - spent;
	charge(g, began);
	w->hotspot_pause = err ? 2 * w->hotspot_pause : HOTSPOT_NS;
	if (w->hotspot_pause < HOTSPOT_NS)
		w->hotspot_pause = HOTSPOT_NS;
	if (w->hotspot_pause > HOTSPOT_MAX_NS)
		w->hotspot_pause = HOTSPOT_MAX_NS;
	w->hotspot_ns = began + w->hotspot_pause;
	w->hotspot_soon_ns = began + w->hotspot_pause / HOTSPOT_SOON;
	if (w->hotspot_soon_ns < began + REST * spent)
		w->hotspot_soon_ns = began + REST * spent;
	if (err)
		return 0;
	uw_dynamic_put(w->code);
	w->code = uw_dynamic_get(dynamic);
	return tell(g, w->pid, dynamic, out);
}

/*
 * Give the sample's stack, from its stack pointer on: as it was captured, or read from the recording into
 * *room, which the caller frees. False: there is none.
 */
static bool stack_of(const struct event_sample *s, struct uw_space *space, struct calls_sample *out,
		     uint8_t **room)
{
	uint64_t sp = s->regs.value[UW_X86_64_RSP];
	const struct uw_mapping *m;
	size_t max;

	for (uint32_t i = 0; i < s->n_regions; i++) {
		const struct uw_region *r = &s->regions[i];

		if (sp >= r->addr && sp - r->addr < r->size) {
			out->addr = sp;
			out->stack = (const uint8_t *)r->bytes + (sp - r->addr);
			out->size = r->size - (sp - r->addr);
			return true;
		}
	}
	if (!s->read)
		return false;
	/* A core says of its stacks only that they can be read. */
	m = uw_space_find(space, sp);
	max = m && m->end - sp < STACK_MAX ? m->end - sp : STACK_MAX;
	out->addr = sp;
	out->size = 0;
	out->stack = *room = malloc(max);
	while (*room && out->size < max) {
		uint64_t at = sp + out->size, piece = STACK_PAGE - at % STACK_PAGE;

		if (piece > max - out->size)
			piece = max - out->size;
		if (s->read(s->read_ctx, at, *room + out->size, piece))
			break;
		out->size += piece;
	}
	return out->size > 0;
}

/*
 * Read what the frames of Java methods, or of JavaScript functions, on the sample's stack execute, as far as it is
 * not known. This is for every sample of such a process, but reads its memory only for frames that are new.
 */
static int calls_look(struct generated *g, struct watch *w, struct memory *memory,
		      struct uw_space *space, struct event *out)
{
	const struct event_sample *s = &memory->sample->sample;
	struct calls_sample sample = { .regs = &s->regs, .now = now_ns(), .space = space };
	uint8_t *room = NULL;
	const void *bytes;
	uint64_t spent;
	size_t size;
	int err = -ENOENT;

	if ((!w->hotspot && !w->v8) || !machine_of(uw_space_machine(space))->hotspot ||
	    sample.now < w->calls_ns)
		return 0;
	spent = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	begin_reading(memory);
	if (stack_of(s, space, &sample, &room))
		err = w->hotspot ? hotspot_calls(w->hotspot, read_memory, memory, &sample, &bytes,
						 &size)
				 : v8_calls(w->v8, read_memory, memory, &sample, &bytes, &size);
	memory->until_ns = 0;
	memory->over = false;
	free(room);
	/* A program that begins has many frames that are new: it may take CALLS_BURST_NS ahead. */
	if (w->calls_ns + CALLS_BURST_NS < sample.now)
		w->calls_ns = sample.now - CALLS_BURST_NS;
	spent = clock_ns(CLOCK_THREAD_CPUTIME_ID) - spent;
	charge(g, sample.now);
	w->calls_ns += REST * spent;
	if (err)
		return 0;
	*out = (struct event){
		.type = EVENT_GENERATED, .pid = w->pid, .tid = w->pid, .time_ns = g->time_ns
	};
	out->generated.bytes = bytes;
	out->generated.size = size;
	return 1;
}

/*
 * Make the cheap checks first: this function is called for each sample. A reading that took some
 * time is followed by REST times that time without one, which bounds the share of all readings.
 */
int generated_look(struct generated *g, const struct event *sample, struct event *out)
{
	struct memory memory = { .sample = sample, .generated = g };
	struct uw_dynamic *dynamic;
	struct thread thread;
	struct watch *w;
	uint64_t began, mark;
	int err;

	g->time_ns = sample->time_ns;
	if ((!g->live && !sample->sample.read) || !sample->sample.has_user_regs ||
	    sample->sample.compat ||
	    processes_thread(g->processes, sample->pid, sample->tid, &thread) || !thread.generates)
		return 0;
	memory.space = thread.space;
	w = watch_of(g, sample);
	if (!w)
		return 0;
	if (w->hotspot || w->v8)
		bound_runtimes(g, w);
	began = now_ns();
	if (w->files != thread.files && began >= w->again_ns) {
		seek_lists(g, w, thread.space);
		/* A process can have thousands of files mapped, and map one more before each sample. */
		if (g->live && !g->patient)
			w->again_ns = now_ns() + REST * (now_ns() - began);
		w->files = thread.files;
		w->mark = 0;
		w->read_ns = 0;
		/* It may be another program's by now. */
		if (w->memory >= 0)
			(void)close(w->memory);
		w->memory = -1;
	}
	/* Open the map while the process is alive and its files can be found. It is read later. */
	if (g->live && w->map_fd < 0 && now_ns() >= w->look_ns) {
		if (opener_perf_map(g->opener, w->pid, w->ns_pid, &w->user, &w->map_fd)) {
			w->look_pause = longer_pause(w->look_pause, LOOK_NS, LOOK_MAX_NS);
			w->look_ns = now_ns() + w->look_pause;
		}
	}
	if (is_nameless(w, sample, uw_space_machine(thread.space)) && names_of(g, w, out) == 1)
		return 1;
	if (!has_turn(g))
		return 0;
	if (g->live && (w->n_lists || w->hotspot || w->v8)) {
		if (!may_read(g, w->user.uid) || !has_memory(g, w))
			return 0;
		memory.watch = w;
	}
	/* The look at the callers may find that they run code that is not known. */
	if (hotspot_look(g, w, &memory, thread.space, out) == 1 ||
	    calls_look(g, w, &memory, thread.space, out) == 1 ||
	    hotspot_look(g, w, &memory, thread.space, out) == 1)
		return 1;
	/* What had been registered when the sample was taken was seen by a later look. */
	began = now_ns();
	if (!w->n_lists || (g->live && sample->time_ns < w->read_ns))
		return 0;
	err = uw_dynamic_marks(w->lists, w->n_lists, read_memory, &memory, &mark);
	if (memory.slow)
		return 0;
	if (err || mark == w->mark) {
		w->read_ns = began;
		return 0;
	}
	if (began < w->rest_ns)
		return 0;
	begin_reading(&memory);
	err = uw_dynamic_read(uw_space_machine(thread.space), w->lists, w->n_lists, read_memory,
			      &memory, &dynamic);
	charge(g, began);
	if (err)
		return 0;
	w->rest_ns = now_ns() + REST * (now_ns() - began);
	w->mark = uw_dynamic_mark(dynamic);
	(void)tell(g, sample->pid, dynamic, out);
	out->tid = sample->tid;
	return 1;
}
