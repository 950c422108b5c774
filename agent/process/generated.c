#include "agent/process/generated.h"

#include "agent/array.h"
#include "agent/opener/opener.h"
#include "agent/process/modules.h"
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

#define LISTS_MAX 16
#define READ_NS	  8000000u /* what is read is put together in the rest of 10 ms */
/* Reads between two looks at the clock. */
#define READS	 64
#define WATCHES	 256	    /* a power of two: processes that generate code, others take turns */
#define NAMES_NS 500000000u /* between two tellings of all names so far */
#define LOOK_NS	 100000000u /* between two looks for a file that is not there */
#define DUMP_MAX ((off_t)64 << 20) /* bytes of a jitdump file; of larger ones names alone */
#define REST	 9		   /* times as long as reading took, nobody reads again */

struct watch { /* a process that generates code */
	uint32_t pid;
	uint64_t files; /* as thread.files when its lists were sought */
	struct uw_dynamic_list lists[LISTS_MAX];
	size_t n_lists;
	uint64_t mark; /* of what was read last; 0: nothing */
	uint32_t ns_pid, uid;
	int map_fd;		  /* of its perf-PID.map; -1: not open */
	bool is_dump;		  /* … of its jitdump file instead */
	off_t map_size;		  /* of which names were told */
	struct uw_dynamic *names; /* told last */
	uint64_t start_ns;	  /* when the process began; 0: not told */
	/* Until then nobody … */
	uint64_t rest_ns;  /* reads its lists */
	uint64_t look_ns;  /* looks for its perf-PID.map */
	uint64_t names_ns; /* reads that because code has no name */
};

struct found { /* in a module's file */
	bool sought;
	struct uw_dynamic_list lists[2]; /* vaddrs */
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

static uint64_t now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- memory ------------------------------------------------------------------------------ */

struct memory {
	const struct event *sample;
	bool live;
	uint64_t until_ns;
	unsigned int reads;
};

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

	if (++m->reads % READS == 0 && now_ns() > m->until_ns)
		m->until_ns = 0;
	if (!m->until_ns)
		return -ETIME;
	if (m->live)
		return read_live(m->sample->pid, addr, out, size);
	return s->read(s->read_ctx, addr, out, size);
}

/* ---- lists -------------------------------------------------------------------------------- */

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
		g->found[module->id].sought = true;
	}
	return &g->found[module->id];
}

/* ---- names out of perf-PID.map -------------------------------------------------------------- */

static int names_in(const struct watch *w, uint16_t machine, struct uw_dynamic **out)
{
	struct uw_dynamic_code *codes = NULL;
	size_t n = 0, room = 0;
	struct sym_symbol symbol;
	struct sym_jit *jit;
	int err = sym_jit_open(w->map_fd, &jit);

	if (err)
		return err;
	for (; !err && !sym_jit_at(jit, n, &symbol); n++) {
		err = array_make_room((void **)&codes, n, &room, sizeof(*codes));
		if (!err)
			codes[n] = (struct uw_dynamic_code){ .start = symbol.addr,
							     .end = symbol.addr + symbol.size,
							     .name = symbol.name };
	}
	if (!err && !n)
		err = -ENOENT;
	if (!err)
		err = uw_dynamic_make(machine, codes, n, true, out);
	sym_jit_free(jit);
	free(codes);
	return err;
}

/* ---- … and out of jitdump files ------------------------------------------------------------- */

/* The kernel's tools/perf/Documentation/jitdump-specification.txt. */
#define DUMP_MAGIC 0x4a695444u
enum { DUMP_LOAD = 0, DUMP_MOVE = 1, DUMP_UNWINDING = 4 };
enum {
	DUMP_HEADER = 40,		/* of the file */
	RECORD_HEADER = 16,		/* id, size of it all, time */
	LOAD_ADDR = RECORD_HEADER + 16, /* pid, tid, vma, then these */
	LOAD_SIZE = LOAD_ADDR + 8,
	LOAD_NAME = LOAD_SIZE + 16,
	MOVE_FROM = RECORD_HEADER + 16,
	MOVE_TO = MOVE_FROM + 8,
	MOVE_SIZE = MOVE_TO + 8,
	MOVE_END = MOVE_SIZE + 16,
	UNWINDING_SIZE = RECORD_HEADER, /* size, of it .eh_frame_hdr, how much is mapped */
	UNWINDING_DATA = RECORD_HEADER + 24
};

static uint64_t number_at(const char *bytes, unsigned int size)
{
	uint64_t value = 0;

	for (unsigned int i = 0; i < size; i++)
		value |= (uint64_t)(uint8_t)bytes[i] << 8 * i;
	return value;
}

/* Unwinding information comes before the code that it is for. */
static void parse_unwinding(const char *record, size_t size, struct uw_dynamic_code *next)
{
	uint64_t all, header;

	if (size < UNWINDING_DATA)
		return;
	all = number_at(record + UNWINDING_SIZE, 8);
	header = number_at(record + UNWINDING_SIZE + 8, 8);
	if (all > size - UNWINDING_DATA || header >= all)
		return;
	next->frames = (const uint8_t *)record + UNWINDING_DATA;
	next->frames_size = (size_t)(all - header);
}

/* With what came before it. */
static bool parse_load(const char *record, size_t size, const struct uw_dynamic_code *before,
		       struct uw_dynamic_code *next)
{
	uint64_t length;

	if (size <= LOAD_NAME || !memchr(record + LOAD_NAME, '\0', size - LOAD_NAME))
		return false;
	*next = *before;
	next->start = number_at(record + LOAD_ADDR, 8);
	length = number_at(record + LOAD_SIZE, 8);
	if (!length || length > UINT64_MAX - next->start)
		return false;
	next->end = next->start + length;
	next->name = record + LOAD_NAME;
	return true;
}

/* How far back the code that moved is looked for. */
#define MOVE_BACK 65536

/* Code that moved is as it was. */
static bool parse_move(const char *record, size_t size, const struct uw_dynamic_code *codes,
		       size_t n, struct uw_dynamic_code *moved)
{
	uint64_t from, length;

	if (size < MOVE_END)
		return false;
	from = number_at(record + MOVE_FROM, 8);
	length = number_at(record + MOVE_SIZE, 8);
	for (size_t i = n; i-- > 0 && n - i < MOVE_BACK;) {
		if (codes[i].start != from)
			continue;
		*moved = codes[i];
		moved->start = number_at(record + MOVE_TO, 8);
		moved->end = moved->start + length;
		return length && length <= UINT64_MAX - moved->start;
	}
	return false;
}

static int parse_dump(const char *bytes, size_t size, uint16_t machine, bool names,
		      struct uw_dynamic **out)
{
	struct uw_dynamic_code *codes = NULL, next = { .start = 0 };
	size_t n = 0, room = 0, at = size < DUMP_HEADER ? size : number_at(bytes + 8, 4), length;
	int err = 0;

	for (; !err && at <= size && size - at >= RECORD_HEADER; at += length) {
		uint64_t id = number_at(bytes + at, 4);

		length = number_at(bytes + at + 4, 4);
		if (length < RECORD_HEADER || length > size - at)
			break;
		if (id == DUMP_UNWINDING)
			parse_unwinding(bytes + at, length, &next);
		if (id != DUMP_LOAD && id != DUMP_MOVE)
			continue;
		err = array_make_room((void **)&codes, n, &room, sizeof(*codes));
		if (!err && (id == DUMP_LOAD ? parse_load(bytes + at, length, &next, &codes[n])
					     : parse_move(bytes + at, length, codes, n, &codes[n])))
			n++;
		next = (struct uw_dynamic_code){ .start = 0 };
	}
	if (!err && !n)
		err = -ENOENT;
	if (!err)
		err = uw_dynamic_make(machine, codes, n, names, out);
	free(codes);
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
	struct opener_file file = {
		.pid = w->pid, .start = m->start, .end = m->end, .path = module->path
	};
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

static int read_map(const struct watch *w, off_t size, uint16_t machine, struct uw_dynamic **out)
{
	char *bytes;
	size_t n = 0;
	int err;

	if (!w->is_dump || size > DUMP_MAX)
		return names_in(w, machine, out);
	bytes = malloc((size_t)size + 1);
	if (!bytes)
		return -ENOMEM;
	while (n < (size_t)size) {
		ssize_t got = pread(w->map_fd, bytes + n, (size_t)size - n, (off_t)n);

		if (got <= 0)
			break;
		n += (size_t)got;
	}
	err = n >= 4 && number_at(bytes, 4) == DUMP_MAGIC
		      ? parse_dump(bytes, n, machine, w->mark != 0, out)
		      : -EBADMSG;
	free(bytes);
	return err;
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

	if (!g->live ||
	    (w->map_fd < 0 && opener_perf_map(g->opener, w->pid, w->ns_pid, w->uid, &w->map_fd)))
		return 0;
	if (fstat(w->map_fd, &st) || st.st_size == w->map_size)
		return 0;
	w->map_size = st.st_size;
	err = read_map(w, st.st_size, processes_machine(g->processes), &dynamic);
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

	return w && w->pid == pid ? names_of(g, w, out) : 0;
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
	}
}

/* ---- processes that generate code ------------------------------------------------------------ */

static struct watch *watch_of(struct generated *g, const struct event *sample)
{
	struct watch **w = &g->watches[sample->pid & (WATCHES - 1)];
	char path[32];
	struct stat st;

	/* A number comes again. */
	if (*w && (*w)->pid == sample->pid && (*w)->start_ns == sample->sample.process_start_ns)
		return *w;
	if (!*w)
		*w = calloc(1, sizeof(**w));
	else
		watch_fini(*w);
	if (!*w)
		return NULL;
	(void)snprintf(path, sizeof(path), "/proc/%" PRIu32, sample->pid);
	**w = (struct watch){ .pid = sample->pid,
			      .ns_pid = sample->sample.ns_pid,
			      .start_ns = sample->sample.process_start_ns,
			      .uid = g->live && !stat(path, &st) ? st.st_uid : 0,
			      .map_fd = -1 };
	return *w;
}

int generated_look(struct generated *g, const struct event *sample, struct event *out)
{
	struct memory memory = { .sample = sample, .live = g->live, .until_ns = UINT64_MAX };
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
		if (opener_perf_map(g->opener, w->pid, w->ns_pid, w->uid, &w->map_fd))
			w->look_ns = now_ns() + LOOK_NS;
	}
	if (is_nameless(w, sample, uw_space_machine(thread.space)) && names_of(g, w, out) == 1)
		return 1;
	if (!w->n_lists || uw_dynamic_marks(w->lists, w->n_lists, read_memory, &memory, &mark) ||
	    mark == w->mark)
		return 0;
	began = now_ns();
	if (began < w->rest_ns)
		return 0;
	memory.until_ns = began + READ_NS;
	if (uw_dynamic_read(uw_space_machine(thread.space), w->lists, w->n_lists, read_memory,
			    &memory, &dynamic))
		return 0;
	w->rest_ns = now_ns() + REST * (now_ns() - began);
	w->mark = uw_dynamic_mark(dynamic);
	(void)tell(g, sample->pid, dynamic, out);
	out->tid = sample->tid;
	return 1;
}
