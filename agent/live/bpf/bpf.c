/* agent/live/bpf/bpf.c: reads and writes the maps of the BPF programs: filters, tables, counters. */
#include "agent/clock.h"
#include "agent/live/bpf/bpf_internal.h"
#include "agent/source/procfs.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Between two counts of the plans that processes have. */
#define PLANS_COUNT_NS UINT64_C(1000000000)

int live_bpf_want(struct live_bpf *bpf, uint32_t pid)
{
	const struct capture_process process = { .start_ns = 0 };
	int err = bpf_map_update_elem(bpf_map__fd(bpf->skeleton->maps.processes), &pid, &process,
				      BPF_NOEXIST);

	return err == -EEXIST ? 0 : err;
}

/* Add a key to the map of a filter. */
static int want(struct bpf_map *map, const void *key)
{
	const uint8_t one = 1;

	return bpf_map_update_elem(bpf_map__fd(map), key, &one, BPF_ANY);
}

int live_bpf_want_thread(struct live_bpf *bpf, uint32_t tid)
{
	bpf->any_thread = true;
	return want(bpf->skeleton->maps.threads, &tid);
}

int live_bpf_want_comm(struct live_bpf *bpf, const char *comm)
{
	char key[CAPTURE_COMM] = "";

	if (strlen(comm) >= sizeof(key))
		return -ENAMETOOLONG;
	strcpy(key, comm);
	return want(bpf->skeleton->maps.comms, key);
}

int live_bpf_want_uid(struct live_bpf *bpf, uint32_t uid)
{
	return want(bpf->skeleton->maps.uids, &uid);
}

/* Remove the keys that keep does not want from the map of a filter, which has at most n. */
static void only(struct bpf_map *map, size_t n, live_keep_fn keep, const void *ctx)
{
	size_t size = bpf_map__key_size(map), n_gone = 0;
	uint8_t key[CAPTURE_COMM], next[CAPTURE_COMM], *gone = NULL;
	size_t room = 0;
	int fd = bpf_map__fd(map);

	/* Entries come and go meanwhile, so the number of steps is bounded. */
	for (size_t i = 0; i < 2 * n && !bpf_map_get_next_key(fd, i ? key : NULL, next); i++) {
		memcpy(key, next, size);
		if (keep(ctx, key))
			continue;
		if (n_gone == room) {
			uint8_t *bigger = reallocarray(gone, room + 64, size);

			if (!bigger)
				break;
			gone = bigger;
			room += 64;
		}
		memcpy(gone + n_gone++ * size, key, size);
	}
	for (size_t i = 0; i < n_gone; i++)
		(void)bpf_map_delete_elem(fd, gone + i * size);
	free(gone);
}

void live_bpf_only_processes(struct live_bpf *bpf, live_keep_fn keep, const void *ctx)
{
	only(bpf->skeleton->maps.processes, LIVE_PROCESSES_MAX, keep, ctx);
}

void live_bpf_only_comms(struct live_bpf *bpf, live_keep_fn keep, const void *ctx)
{
	only(bpf->skeleton->maps.comms, LIVE_WANTED_MAX, keep, ctx);
}

void live_bpf_only_uids(struct live_bpf *bpf, live_keep_fn keep, const void *ctx)
{
	only(bpf->skeleton->maps.uids, LIVE_WANTED_MAX, keep, ctx);
}

void live_bpf_filter(struct live_bpf *bpf, uint32_t filters)
{
	__atomic_store_n(&bpf->skeleton->bss->filters, filters, __ATOMIC_SEQ_CST);
}

int live_bpf_tell_cgroup(struct live_bpf *bpf, uint64_t id, enum capture_cgroup answer)
{
	const uint32_t value = answer;

	return bpf_map_update_elem(bpf_map__fd(bpf->skeleton->maps.cgroups), &id, &value, BPF_ANY);
}

void live_bpf_forget_cgroup(struct live_bpf *bpf, uint64_t id)
{
	(void)bpf_map_delete_elem(bpf_map__fd(bpf->skeleton->maps.cgroups), &id);
}

bool live_bpf_wants(struct live_bpf *bpf, uint32_t pid)
{
	struct capture_process process;

	if (!(bpf->skeleton->bss->filters & CAPTURE_FILTER_TASK))
		return true;
	/* A selected thread may belong to any process. */
	if (bpf->any_thread)
		return true;
	return !bpf_map_lookup_elem(bpf_map__fd(bpf->skeleton->maps.processes), &pid, &process);
}

/* Return whether a process is in the table and was not seen to end. */
static bool is_marked_alive(int fd, uint32_t pid)
{
	struct capture_process process;

	return !bpf_map_lookup_elem(fd, &pid, &process) && !process.dead;
}

/*
 * Return whether a process is alive. A process that ended before it was in the table is not marked
 * as dead, so /proc is asked, too.
 */
static bool is_alive(int fd, uint32_t pid)
{
	return is_marked_alive(fd, pid) && !procfs_ended(pid);
}

bool live_bpf_any_alive(struct live_bpf *bpf)
{
	int fd = bpf_map__fd(bpf->skeleton->maps.processes);
	uint32_t pid, next;

	/*
	 * The kernel takes half a millisecond to find the next key in a large table that is almost
	 * empty. So check first the process that was alive at the last call: it is marked when it
	 * ends.
	 */
	if (bpf->alive && is_marked_alive(fd, bpf->alive))
		return true;
	/* Deleting a key may start the iteration again, so the number of steps is bounded. */
	for (size_t i = 0; i < 2 * LIVE_PROCESSES_MAX; i++) {
		if (bpf_map_get_next_key(fd, i ? &pid : NULL, &next))
			return false;
		pid = next;
		if (is_alive(fd, pid)) {
			bpf->alive = pid;
			return true;
		}
	}
	return true;
}

bool live_bpf_is_off_cpu(const struct live_bpf *bpf, uint32_t tid, uint64_t since_ns,
			 uint64_t now_ns, struct capture_wake *wake)
{
	struct capture_waiting waiting;

	if (bpf_map_lookup_elem(bpf_map__fd(bpf->skeleton->maps.off_cpu), &tid, &waiting) ||
	    waiting.wake.since_ns != since_ns)
		return false;
	*wake = waiting.wake;
	wake->time_ns = now_ns;
	if (waiting.limit_us && (now_ns - wake->began_ns) >> 10 >= waiting.limit_us)
		wake->n = 1;
	return true;
}

void live_bpf_sweep(struct live_bpf *bpf)
{
	int fd = bpf_map__fd(bpf->skeleton->maps.live);
	struct capture_live_key key, next;
	struct capture_live value;
	uint32_t known = 0;
	bool ended = false, any = false;

	/* Deleting a key may start the iteration again, so the number of steps is bounded. */
	for (size_t i = 0; i < 2 * (size_t)CAPTURE_LIVE_MAX; i++) {
		if (bpf_map_get_next_key(fd, any ? &key : NULL, &next))
			return;
		any = true;
		if (!bpf_map_lookup_elem(fd, &next, &value)) {
			if (value.pid != known)
				ended = procfs_ended(value.pid);
			known = value.pid;
			if (ended) {
				/*
				 * key stays at the previous key, from which the iteration goes on.
				 */
				(void)bpf_map_delete_elem(fd, &next);
				continue;
			}
		}
		key = next;
	}
}

/* ---- reading ------------------------------------------------------------------------------ */

void live_bpf_reading(struct live_bpf *bpf, uint64_t until)
{
	__atomic_store_n(&bpf->skeleton->bss->read_until, until, __ATOMIC_SEQ_CST);
	__atomic_store_n(&bpf->skeleton->bss->wake_asked, 0, __ATOMIC_SEQ_CST);
}

void live_bpf_own(struct live_bpf *bpf, const pid_t *pids, size_t n)
{
	for (size_t i = 0; i < CAPTURE_SELF_MAX; i++)
		__atomic_store_n(&bpf->skeleton->bss->self_pids[i],
				 (uint32_t)(i < n ? pids[i] : getpid()), __ATOMIC_SEQ_CST);
}

bool live_bpf_is_fallback(const struct live_bpf *bpf)
{
	return bpf->fallback;
}

int live_bpf_ring_fd(const struct live_bpf *bpf)
{
	return bpf_map__fd(bpf->skeleton->maps.ring);
}

size_t live_bpf_ring_size(const struct live_bpf *bpf)
{
	return bpf->ring_size;
}

int live_bpf_program_fd(const struct live_bpf *bpf)
{
	const struct capture *s = bpf->skeleton;
	struct bpf_program *programs[] = {
		s->progs.capture_sample,     s->progs.fallback_sample,
		s->progs.capture_switch,     s->progs.fallback_switch,
		s->progs.capture_tracepoint, s->progs.fallback_tracepoints,
		s->progs.capture_probe,	     s->progs.fallback_probes,
		s->progs.alloc_returns,	     s->progs.fallback_returns
	};

	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++)
		if (bpf_program__fd(programs[i]) >= 0)
			return bpf_program__fd(programs[i]);
	return -ENOENT;
}

int live_bpf_n_cpus(const struct live_bpf *bpf)
{
	return bpf->n_cpus;
}

/*
 * Add the counters as an array. The assertion ensures that they are all 64-bit numbers, so that a
 * new counter needs no change here.
 */
int live_bpf_counters(const struct live_bpf *bpf, enum capture_counts counts,
		      const struct capture_counters **per_cpu, struct capture_counters *sum)
{
	_Static_assert(sizeof(struct capture_counters) % sizeof(uint64_t) == 0, "only u64");
	uint64_t total[sizeof(*sum) / sizeof(uint64_t)] = { 0 };
	uint64_t one[sizeof(*sum) / sizeof(uint64_t)];
	const uint32_t key = counts;
	int err =
		bpf_map_lookup_elem(bpf_map__fd(bpf->skeleton->maps.counters), &key, bpf->per_cpu);

	if (err)
		return err;
	for (int cpu = 0; cpu < bpf->n_cpus; cpu++) {
		memcpy(one, &bpf->per_cpu[cpu], sizeof(one));
		for (size_t i = 0; i < sizeof(one) / sizeof(one[0]); i++)
			total[i] += one[i];
	}
	memcpy(sum, total, sizeof(total));
	if (per_cpu)
		*per_cpu = bpf->per_cpu;
	return 0;
}

int live_bpf_counted(const struct live_bpf *bpf, size_t i, uint64_t *counted)
{
	struct capture_pace *paces;
	uint32_t key = (uint32_t)i;
	uint64_t sum = 0;
	int err;

	if (i >= bpf->events->n || !bpf->events->events[i].paced)
		return -ENOENT;
	paces = calloc((size_t)bpf->n_cpus, sizeof(*paces));
	if (!paces)
		return -ENOMEM;
	err = bpf_map_lookup_elem(bpf_map__fd(bpf->skeleton->maps.paces), &key, paces);
	for (int cpu = 0; !err && cpu < bpf->n_cpus; cpu++)
		sum += paces[cpu].counted;
	free(paces);
	if (!err)
		*counted = sum;
	return err;
}

/* Return whether all operations exist, and stay within the plan. */
static bool plan_is_sound(const struct plan *plan)
{
	if (!plan->n || plan->n > PLAN_OPS_MAX)
		return false;
	for (uint32_t i = 0; i < plan->n; i++) {
		const struct plan_op *op = &plan->ops[i];

		if (op->what >= PLAN_WHATS || op->when >= PLAN_WHENS || op->src >= PLAN_REGS ||
		    op->dst >= PLAN_REGS || op->dst2 >= PLAN_REGS || op->reg >= PLAN_REGS ||
		    op->other >= PLAN_REGS || op->jump >= plan->n || op->otherwise >= plan->n)
			return false;
		if (op->what == PLAN_LOAD && op->size > 8)
			return false;
		if ((op->what == PLAN_COPY || op->what == PLAN_RANGE) &&
		    (!op->size || op->size > PLAN_PIECE_MAX || op->size % 8))
			return false;
		if (op->what == PLAN_COPY && (op->at >= op->size / 8 || op->at2 >= op->size / 8))
			return false;
	}
	/* What follows the last operation is PLAN_STOP. */
	return plan->ops[plan->n - 1].what == PLAN_STOP;
}

/* Note whether a process has a plan. live_bpf_has_plan asks at each fork: here that costs no system call. */
static void note_plan(struct live_bpf *bpf, uint32_t pid, bool has)
{
	uint8_t bit = (uint8_t)(1u << pid % 8);

	if (pid >= LIVE_PIDS)
		return;
	if (has)
		bpf->planned[pid / 8] |= bit;
	else
		bpf->planned[pid / 8] &= (uint8_t)~bit;
}

/* Count for the programs that a process has a plan now (more is 1), or none any more (-1). */
static void count_plan(struct live_bpf *bpf, uint32_t pid, int more)
{
	struct capture__bss *bss = bpf->skeleton->bss;
	uint16_t *planned = &bss->planned[pid % PLAN_PIDS];

	*planned = (uint16_t)(*planned + more);
	bss->plans_in_use += (uint32_t)more;
}

/* Let a process have no plan any more. */
static int drop_plan(struct live_bpf *bpf, uint32_t pid)
{
	int err = bpf_map_delete_elem(bpf_map__fd(bpf->skeleton->maps.plan_tasks), &pid);

	note_plan(bpf, pid, false);
	if (!err)
		count_plan(bpf, pid, -1);
	return err == -ENOENT ? 0 : err;
}

/* Drop the plans of processes that have ended, and return one that no process has; PLAN_PLANS_MAX: all are in use. */
static uint32_t unused_plan(struct live_bpf *bpf)
{
	int fd = bpf_map__fd(bpf->skeleton->maps.plan_tasks);
	bool used[PLAN_PLANS_MAX] = { false }, any = false;
	struct plan_task task;
	uint32_t pid, next, i = 0;

	/* Deleting a key may start the iteration again, so the number of steps is bounded. */
	for (size_t n = 0; n < 2 * (size_t)PLAN_TASKS_MAX; n++) {
		if (bpf_map_get_next_key(fd, any ? &pid : NULL, &next))
			break;
		if (!bpf_map_lookup_elem(fd, &next, &task)) {
			if (procfs_ended(next)) {
				(void)drop_plan(bpf, next);
				continue; /* from the key before */
			}
			if (task.plan < PLAN_PLANS_MAX)
				used[task.plan] = true;
		}
		pid = next;
		any = true;
	}
	while (i < PLAN_PLANS_MAX && used[i])
		i++;
	return i;
}

/* Return the number of a plan in the kernel's table; add it if it is new. */
static int plan_number(struct live_bpf *bpf, const struct plan *plan, uint32_t *out)
{
	struct plan installed = *plan;
	uint64_t now = now_ns();
	uint32_t i = 0;
	int err;

	while (i < bpf->n_plans && memcmp(&bpf->plans[i], plan, sizeof(*plan)) != 0)
		i++;
	*out = i;
	if (i < bpf->n_plans)
		return 0;
	if (i == PLAN_PLANS_MAX) {
		/* All processes are looked at, so not for each one that wants another plan. */
		if (now < bpf->plans_counted_ns)
			return -ENOSPC;
		bpf->plans_counted_ns = now + PLANS_COUNT_NS;
		i = *out = unused_plan(bpf);
		if (i == PLAN_PLANS_MAX)
			return -ENOSPC;
	}
	plan_install(&installed);
	err = bpf_map_update_elem(bpf_map__fd(bpf->skeleton->maps.plans), &i, &installed, BPF_ANY);
	if (err)
		return err;
	bpf->plans[i] = *plan;
	bpf->n_plans += i == bpf->n_plans;
	return 0;
}

int live_bpf_plan(struct live_bpf *bpf, uint32_t pid, const struct plan_task *task,
		  const struct plan *plan)
{
	int fd = bpf_map__fd(bpf->skeleton->maps.plan_tasks), err;
	struct plan_task entry = *task;
	bool is_new;

	if (!plan)
		return drop_plan(bpf, pid);
	if (!plan_is_sound(plan))
		return -EINVAL;
	entry.reserved = 0;
	err = plan_number(bpf, plan, &entry.plan);
	if (err)
		return err;
	err = bpf_map_update_elem(fd, &pid, &entry, BPF_NOEXIST);
	is_new = !err;
	if (err == -EEXIST)
		err = bpf_map_update_elem(fd, &pid, &entry, BPF_ANY);
	if (is_new)
		count_plan(bpf, pid, 1);
	if (!err)
		note_plan(bpf, pid, true);
	return err;
}

void live_bpf_refer(struct live_bpf *bpf, bool refer)
{
	if (refer)
		bpf->n_rounds++;
	bpf->skeleton->bss->slices_round = refer ? bpf->n_rounds : 0;
}

bool live_bpf_has_plan(const struct live_bpf *bpf, uint32_t pid)
{
	return pid < LIVE_PIDS && bpf->planned[pid / 8] & 1u << pid % 8;
}
