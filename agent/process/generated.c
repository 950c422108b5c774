#include "agent/process/generated.h"

#include "agent/array.h"
#include "agent/process/modules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>

#define LISTS_MAX 16
#define READ_NS	  10000000u
/* Reads between two looks at the clock. */
#define READS	64
#define WATCHES 256 /* a power of two: processes that generate code, others take turns */
#define REST	9   /* times as long as reading took, nobody reads again */

struct watch { /* a process that generates code */
	uint32_t pid;
	uint64_t files; /* as thread.files when its lists were sought */
	struct uw_dynamic_list lists[LISTS_MAX];
	size_t n_lists;
	uint64_t mark;	  /* of what was read last; 0: nothing */
	uint64_t rest_ns; /* until then */
};

struct found { /* in a module's file */
	bool sought;
	struct uw_dynamic_list lists[2]; /* vaddrs */
};

struct generated {
	struct processes *processes;
	bool live;
	struct watch *watches[WATCHES]; /* by pid; NULL: none yet */
	struct found *found;		/* by module's id */
	size_t n_found;
	struct uw_dynamic *dynamic; /* of the last event */
};

int generated_new(struct processes *processes, bool live, struct generated **out)
{
	struct generated *g = calloc(1, sizeof(*g));

	if (!g)
		return -ENOMEM;
	g->processes = processes;
	g->live = live;
	*out = g;
	return 0;
}

void generated_free(struct generated *g)
{
	if (!g)
		return;
	for (size_t i = 0; i < WATCHES; i++)
		free(g->watches[i]);
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

static struct watch *watch_of(struct generated *g, uint32_t pid)
{
	struct watch **w = &g->watches[pid & (WATCHES - 1)];

	if (!*w)
		*w = calloc(1, sizeof(**w));
	if (*w && (*w)->pid != pid)
		**w = (struct watch){ .pid = pid };
	return *w;
}

int generated_look(struct generated *g, const struct event *sample, struct event *out)
{
	struct memory memory = { .sample = sample, .live = g->live, .until_ns = UINT64_MAX };
	struct uw_dynamic *dynamic;
	struct thread thread;
	struct watch *w;
	uint64_t began, mark;

	if ((!g->live && !sample->sample.read) || !sample->sample.has_user_regs ||
	    sample->sample.compat ||
	    processes_thread(g->processes, sample->pid, sample->tid, &thread) || !thread.generates)
		return 0;
	w = watch_of(g, sample->pid);
	if (!w)
		return 0;
	if (w->files != thread.files) {
		seek_lists(g, w, thread.space);
		w->files = thread.files;
		w->mark = 0;
	}
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
	uw_dynamic_put(g->dynamic);
	g->dynamic = dynamic;
	*out = (struct event){ .type = EVENT_GENERATED,
			       .pid = sample->pid,
			       .tid = sample->tid,
			       .time_ns = sample->time_ns };
	out->generated.bytes = uw_dynamic_bytes(dynamic, &out->generated.size);
	return 1;
}
