#include "agent/process/generated.h"

#include "agent/array.h"
#include "agent/errand.h"
#include "agent/log.h"
#include "agent/opener/opener.h"
#include "agent/process/hotspot.h"
#include "agent/process/modules.h"
#include "schema/dynamic.h"
#include "symbolizer/symbolizer.h"

#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define LISTS_MAX      16
#define READ_NS	       8000000u /* what is read is put together in the rest of 10 ms */
#define READ_LATEST_NS 50000000u
/* Reads between two looks at the clock. */
#define READS	 64
#define WATCHES	 256	    /* a power of two: processes that generate code, others take turns */
#define NAMES_NS 500000000u /* between two tellings of all names so far */
#define LOOK_NS	 100000000u /* between two looks for a file that is not there */
/* Between two looks into a virtual machine's code: after something new, and at most; so many times
   sooner where something new is seen to run. */
#define HOTSPOT_NS     20000000u
#define HOTSPOT_MAX_NS 500000000u
#define HOTSPOT_SOON   10
#define REST	       9 /* times as long as reading took, nobody reads again */
/* A perf-PID.map or jitdump file of 20 MB takes 50 ms; what takes longer than this is left out. */
#define MAP_NS UINT64_C(300000000)

struct watch { /* a process that generates code */
	uint32_t pid;
	uint64_t files; /* as thread.files when its lists were sought */
	struct uw_dynamic_list lists[LISTS_MAX];
	size_t n_lists;
	uint64_t mark; /* of what was read last; 0: nothing */
	uint32_t ns_pid;
	struct opener_user user;
	int map_fd;		  /* of its perf-PID.map; -1: not open */
	bool is_dump;		  /* … of its jitdump file instead */
	off_t map_size;		  /* of which names were told */
	struct uw_dynamic *names; /* told last */
	uint64_t start_ns;	  /* when the process began; 0: not told */
	struct hotspot *hotspot;  /* NULL: it is no Java virtual machine */
	uint64_t hotspot_pause;	  /* between two looks at what that compiled, */
	uint64_t hotspot_ns;	  /* until then there is none; */
	uint64_t hotspot_soon_ns; /* sooner where code runs that is not in … */
	struct uw_dynamic *code;  /* … this, told last */
	/* Until then nobody … */
	uint64_t rest_ns;  /* reads its lists */
	uint64_t look_ns;  /* looks for its perf-PID.map */
	uint64_t names_ns; /* reads that because code has no name */
	bool gave_up;	   /* reading that takes too long */
};

struct found { /* in a module's file */
	bool sought;
	struct uw_dynamic_list lists[2]; /* vaddrs, as */
	uint64_t hotspot[HOTSPOT_EXPORTS];
};

struct generated {
	struct processes *processes;
	struct opener *opener;
	bool live;
	struct watch *watches[WATCHES]; /* by pid; NULL: none yet */
	struct found *found;		/* by module's id */
	size_t n_found;
	struct uw_dynamic *dynamic; /* of the last event */
	uint64_t time_ns;	    /* of the last sample */
	uint64_t last_ns;	    /* until then nobody reads what an ending process leaves */
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

static void watch_fini(struct watch *w)
{
	if (w->map_fd >= 0)
		(void)close(w->map_fd);
	uw_dynamic_put(w->names);
	uw_dynamic_put(w->code);
	hotspot_free(w->hotspot);
}

void generated_free(struct generated *g)
{
	if (!g)
		return;
	for (size_t i = 0; i < WATCHES; i++) {
		if (g->watches[i])
			watch_fini(g->watches[i]);
		free(g->watches[i]);
	}
	uw_dynamic_put(g->dynamic);
	free(g->found);
	free(g);
}

static uint64_t ns_of(clockid_t clock)
{
	struct timespec now;

	(void)clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t now_ns(void)
{
	return ns_of(CLOCK_MONOTONIC);
}

/* ---- memory ------------------------------------------------------------------------------ */

struct memory {
	const struct event *sample;
	bool live;
	bool over;
	uint64_t until_ns; /* of this thread's CPU time, … */
	uint64_t
		latest_ns; /* … and by the clock, where others take the CPU or pages are to be fetched */
	unsigned int reads;
};

static void begin_reading(struct memory *m)
{
	m->over = false;
	m->until_ns = ns_of(CLOCK_THREAD_CPUTIME_ID) + READ_NS;
	m->latest_ns = now_ns() + READ_LATEST_NS;
}

static int read_live(uint32_t pid, uint64_t addr, void *out, size_t size)
{
	struct iovec local = { .iov_base = out, .iov_len = size };
	struct iovec remote = { .iov_base = (void *)(uintptr_t)addr, .iov_len = size };

	return process_vm_readv((pid_t)pid, &local, 1, &remote, 1, 0) == (ssize_t)size ? 0
										       : -EFAULT;
}

static int read_memory(void *ctx, uint64_t addr, void *out, size_t size)
{
	struct memory *m = ctx;
	const struct event_sample *s = &m->sample->sample;

	if (++m->reads % READS == 0 && m->until_ns)
		m->over |= ns_of(CLOCK_THREAD_CPUTIME_ID) > m->until_ns || now_ns() > m->latest_ns;
	if (m->over)
		return -ETIME;
	if (m->live)
		return read_live(m->sample->pid, addr, out, size);
	return s->read(s->read_ctx, addr, out, size);
}

/* ---- lists -------------------------------------------------------------------------------- */

static bool is_libjvm(const struct module *module)
{
	const char *slash = strrchr(module->path, '/');

	return slash && !strcmp(slash, "/libjvm.so");
}

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
	if (!g->found[module->id].sought) {
		uw_object_lists(object, g->found[module->id].lists);
		if (is_libjvm(module))
			uw_object_exports(object, hotspot_exports, HOTSPOT_EXPORTS,
					  g->found[module->id].hotspot);
		g->found[module->id].sought = true;
	}
	return &g->found[module->id];
}

/* ---- perf-PID.map and jitdump files -------------------------------------------------------- */

/* NULL: there are none, or they cannot be had. */
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

/* names: something is registered, which walks go by. */
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

		err = array_make_room((void **)&codes, n, &room, sizeof(*codes));
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

/* Read the watched process's file; a file that takes too long is not read again. */
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

/* A file of which a page is mapped, for those who look for it: DIR/jit-PID.dump. */
static bool is_dump(const struct module *module)
{
	const char *slash = strrchr(module->path, '/');
	size_t size = slash ? strlen(slash) : 0;

	return size > 10 && !strncmp(slash, "/jit-", 5) && !strcmp(slash + size - 5, ".dump");
}

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

/* Code that was generated since the names were told has none, and runs. */
static bool is_nameless(const struct watch *w, const struct event *sample, uint16_t machine)
{
	unsigned int pc = machine == EM_AARCH64 ? UW_AARCH64_PC : UW_X86_64_RIP;
	struct uw_dynamic_proc proc;

	return w->map_fd >= 0 && now_ns() >= w->names_ns &&
	       (!w->names || uw_dynamic_proc(w->names, sample->sample.regs.value[pc], &proc));
}

int generated_names(struct generated *g, uint32_t pid, struct event *out)
{
	struct watch *w = g->watches[pid & (WATCHES - 1)];
	uint64_t began = now_ns();
	int told;

	/* Many that end one after the other, each with a large file, are not all read. */
	if (!w || w->pid != pid || began < g->last_ns)
		return 0;
	told = names_of(g, w, out);
	g->last_ns = now_ns();
	g->last_ns += REST * (g->last_ns - began > READ_NS ? g->last_ns - began : 0);
	return told;
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

/* A process may become another program. */
static void watch_hotspot(struct watch *w, const uint64_t exports[HOTSPOT_EXPORTS])
{
	if (w->hotspot && hotspot_is_of(w->hotspot, exports))
		return;
	hotspot_free(w->hotspot);
	w->hotspot = NULL;
	(void)hotspot_new(exports, &w->hotspot);
}

static void seek_lists(struct generated *g, struct watch *w, struct uw_space *space)
{
	size_t n;
	const struct uw_mapping *mappings = uw_space_mappings(space, &n);

	w->n_lists = 0;
	for (size_t i = 0; i < n && w->n_lists + 2 <= LISTS_MAX; i++) {
		const struct module *module = mappings[i].user;
		const struct uw_mapping *m;
		const struct found *found;

		if (!module || module->kind != MODULE_FILE || !(mappings[i].prot & PROT_EXEC))
			continue;
		if (is_dump(module)) {
			open_dump(g, w, &mappings[i]);
			continue;
		}
		m = uw_space_resolved(space, mappings[i].start);
		found = m && m->object ? find_in(g, module, m->object) : NULL;
		for (size_t k = 0; found && k < 2; k++)
			if (found->lists[k].addr)
				w->lists[w->n_lists++] = (struct uw_dynamic_list){
					.kind = found->lists[k].kind,
					.addr = found->lists[k].addr + m->bias,
				};
		if (found && found->hotspot[0] && found->hotspot[1])
			watch_hotspot(w, (uint64_t[]){ found->hotspot[0] + m->bias,
						       found->hotspot[1] + m->bias });
	}
}

/* ---- processes that generate code ------------------------------------------------------------ */

static struct watch *watch_of(struct generated *g, const struct event *sample)
{
	struct watch **w = &g->watches[sample->pid & (WATCHES - 1)];
	uint64_t rest_ns = 0, names_ns = 0;

	/* A number comes again. */
	if (*w && (*w)->pid == sample->pid && (*w)->start_ns == sample->sample.process_start_ns)
		return *w;
	/* Who takes turns here takes turns in resting, too. */
	if (*w) {
		rest_ns = (*w)->rest_ns;
		names_ns = (*w)->names_ns;
		watch_fini(*w);
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
			      .map_fd = -1 };
	if (g->opener)
		opener_user_of(g->opener, sample->pid, &(*w)->user);
	return *w;
}

/* Whether it runs code that is no file's and was not told of. */
static bool is_news(const struct watch *w, const struct event *sample, struct uw_space *space)
{
	uint64_t pc = sample->sample.regs.value[UW_X86_64_RIP];
	const struct uw_mapping *m = uw_space_find(space, pc);
	const struct module *module = m ? m->user : NULL;
	struct uw_dynamic_proc proc;

	return module && module->kind == MODULE_JIT &&
	       (!w->code || uw_dynamic_proc(w->code, pc, &proc));
}

/* While it goes on compiling it is looked at soon again, later less often. */
static int hotspot_look(struct generated *g, struct watch *w, struct memory *memory,
			struct uw_space *space, struct event *out)
{
	uint64_t began = now_ns(), spent = ns_of(CLOCK_THREAD_CPUTIME_ID);
	struct uw_dynamic *dynamic;
	bool news;
	int err;

	if (!w->hotspot || uw_space_machine(space) != EM_X86_64 || began < w->hotspot_soon_ns)
		return 0;
	news = is_news(w, memory->sample, space);
	if (!news && began < w->hotspot_ns)
		return 0;
	begin_reading(memory);
	err = hotspot_read(w->hotspot, read_memory, memory, news, w->mark != 0, &dynamic);
	*memory = (struct memory){ .sample = memory->sample, .live = memory->live };
	spent = ns_of(CLOCK_THREAD_CPUTIME_ID) - spent;
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

int generated_look(struct generated *g, const struct event *sample, struct event *out)
{
	struct memory memory = { .sample = sample, .live = g->live };
	struct uw_dynamic *dynamic;
	struct thread thread;
	struct watch *w;
	uint64_t began, mark;

	g->time_ns = sample->time_ns;
	if ((!g->live && !sample->sample.read) || !sample->sample.has_user_regs ||
	    sample->sample.compat ||
	    processes_thread(g->processes, sample->pid, sample->tid, &thread) || !thread.generates)
		return 0;
	w = watch_of(g, sample);
	if (!w)
		return 0;
	if (w->files != thread.files) {
		seek_lists(g, w, thread.space);
		w->files = thread.files;
		w->mark = 0;
	}
	/* While it lives its files can be found; they are read later. */
	if (g->live && w->map_fd < 0 && now_ns() >= w->look_ns) {
		if (opener_perf_map(g->opener, w->pid, w->ns_pid, &w->user, &w->map_fd))
			w->look_ns = now_ns() + LOOK_NS;
	}
	if (is_nameless(w, sample, uw_space_machine(thread.space)) && names_of(g, w, out) == 1)
		return 1;
	if (hotspot_look(g, w, &memory, thread.space, out) == 1)
		return 1;
	if (!w->n_lists || uw_dynamic_marks(w->lists, w->n_lists, read_memory, &memory, &mark) ||
	    mark == w->mark)
		return 0;
	began = now_ns();
	if (began < w->rest_ns)
		return 0;
	begin_reading(&memory);
	if (uw_dynamic_read(uw_space_machine(thread.space), w->lists, w->n_lists, read_memory,
			    &memory, &dynamic))
		return 0;
	w->rest_ns = now_ns() + REST * (now_ns() - began);
	w->mark = uw_dynamic_mark(dynamic);
	(void)tell(g, sample->pid, dynamic, out);
	out->tid = sample->tid;
	return 1;
}
