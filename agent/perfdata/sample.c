/*
 * agent/perfdata/sample.c: decodes sample records: addresses, call chains, registers,
 * stack.
 */
#include "agent/perfdata/sample.h"

#include "agent/array.h"
#include "agent/perfdata/format.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Bytes to load at a time, as more may not be needed. This covers most of what precedes a stack. */
#define LOAD_AHEAD 2048u

/*
 * Reads the body from front to back. The first error is stored in err, and every later read
 * returns 0.
 */
struct reader {
	struct perfdata_body *body;
	uint32_t pos;
	int err;
};

static uint32_t left(const struct reader *r)
{
	return r->err ? 0 : r->body->size - r->pos;
}

/* Return the next size bytes, and load them first if they are not in memory. NULL on error. */
static const uint8_t *take(struct reader *r, uint64_t size)
{
	struct perfdata_body *body = r->body;
	const uint8_t *start = body->bytes + r->pos;
	uint32_t end;

	if (r->err)
		return NULL;
	if (size > left(r)) {
		r->err = -EBADMSG;
		return NULL;
	}
	end = r->pos + (uint32_t)size;
	if (end > body->have && body->load) {
		uint32_t to = end + LOAD_AHEAD < body->size ? end + LOAD_AHEAD : body->size;

		r->err = body->load(body->ctx, body->have, to);
		if (r->err)
			return NULL;
		body->have = to;
	}
	r->pos = end;
	return start;
}

/* Skip bytes without loading them. */
static void skip(struct reader *r, uint64_t size)
{
	if (!r->err && size > left(r))
		r->err = -EBADMSG;
	if (r->err)
		return;
	r->pos += (uint32_t)size;
	if (r->pos > r->body->have)
		r->body->have = r->pos;
}

static uint64_t u64(struct reader *r)
{
	const uint8_t *p = take(r, 8);

	return p ? uw_bytes_little8(p) : 0;
}

/* Skip n entries of size bytes each. */
static void skip_array(struct reader *r, uint64_t n, uint32_t size)
{
	if (!r->err && n > left(r) / size)
		r->err = -EBADMSG;
	skip(r, n * size);
}

/* ---- the parts of a sample ----------------------------------------------------- */

/* Add the value of a counter. */
static void add_value(struct reader *r, struct perfdata_sample *sample, const uint8_t *entry)
{
	if (array_grow(sample->values, sample->n_values, sample->room_values)) {
		r->err = -ENOMEM;
		return;
	}
	sample->values[sample->n_values++] =
		(struct perfdata_value){ .value = uw_bytes_little8(entry),
					 .id = uw_bytes_little8(entry + 8) };
}

/* Read the counter values of PERF_SAMPLE_READ. Those of a single event say nothing that its period does not. */
static void read_values(struct reader *r, struct perfdata_sample *sample, uint64_t format)
{
	bool group = format & PERF_FORMAT_GROUP;
	uint64_t n = group ? u64(r) : 1;
	uint32_t entry = 8;

	if (format & PERF_FORMAT_TOTAL_TIME_ENABLED)
		skip(r, 8);
	if (format & PERF_FORMAT_TOTAL_TIME_RUNNING)
		skip(r, 8);
	if (format & PERF_FORMAT_ID)
		entry += 8;
	if (format & PERFDATA_FORMAT_LOST)
		entry += 8;
	if (!group || !(format & PERF_FORMAT_ID)) {
		skip_array(r, n, entry);
		return;
	}
	while (n-- && !r->err) {
		const uint8_t *bytes = take(r, entry);

		if (bytes)
			add_value(r, sample, bytes);
	}
}

/* Make room for n addresses; the old ones are lost if the array grows. */
static int ips_reserve(struct perfdata_sample *sample, uint32_t n)
{
	uint64_t *ips;

	if (n <= sample->kernel_ips_room)
		return 0;
	ips = reallocarray(NULL, n, sizeof(*ips)); /* n is limited by a record's size */
	if (!ips)
		return -ENOMEM;
	free(sample->kernel_ips);
	sample->kernel_ips = ips;
	sample->kernel_ips_room = n;
	return 0;
}

/* Return the addresses of the user's part of a chain that was taken later, and their number; NULL: there is none. */
static const uint8_t *find_deferred(const struct perfdata_deferred *deferred, const uint8_t *ips,
				    uint64_t n, uint32_t *n_deferred)
{
	for (uint64_t i = 0; i + 1 < n; i++)
		if (uw_bytes_little8(ips + 8 * i) == PERFDATA_CONTEXT_DEFERRED)
			return perfdata_deferred_find(deferred, uw_bytes_little8(ips + 8 * i + 8),
						      n_deferred);
	return NULL;
}

/*
 * Take the addresses of a call chain, with PERF_CONTEXT_* markers that say to which context (kernel,
 * user, guest) the following addresses belong.
 */
static int take_callchain(const uint8_t *ips, uint32_t n, unsigned int mode,
			  const struct perfdata_deferred *deferred, struct perfdata_sample *sample,
			  struct event_sample *out)
{
	uint64_t whose = (uint64_t)PERF_CONTEXT_GUEST, *user;
	uint32_t n_deferred = 0;
	const uint8_t *later = find_deferred(deferred, ips, n, &n_deferred);
	int err;

	if (mode == PERF_RECORD_MISC_KERNEL)
		whose = (uint64_t)PERF_CONTEXT_KERNEL;
	else if (mode == PERF_RECORD_MISC_USER)
		whose = (uint64_t)PERF_CONTEXT_USER;
	err = ips_reserve(sample, 2 * n + n_deferred);
	if (err)
		return err;
	user = sample->kernel_ips + n;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t ip = uw_bytes_little8(ips + 8 * (size_t)i);

		if (ip >= (uint64_t)PERF_CONTEXT_MAX)
			whose = ip;
		else if (whose == (uint64_t)PERF_CONTEXT_KERNEL)
			sample->kernel_ips[out->n_kernel_ips++] = ip;
		else if (whose == (uint64_t)PERF_CONTEXT_USER)
			user[out->n_user_ips++] = ip;
	}
	for (uint32_t i = 0; i < n_deferred; i++) {
		uint64_t ip = uw_bytes_little8(later + 8 * (size_t)i);

		if (ip < (uint64_t)PERF_CONTEXT_MAX)
			user[out->n_user_ips++] = ip;
	}
	out->kernel_ips = sample->kernel_ips;
	out->user_ips = user;
	return 0;
}

static void read_callchain(struct reader *r, struct perfdata_sample *sample,
			   const struct perfdata_deferred *deferred, unsigned int mode,
			   struct event_sample *out)
{
	uint64_t n = u64(r);
	const uint8_t *ips;

	if (!r->err && n > left(r) / 8)
		r->err = -EBADMSG;
	ips = take(r, n * 8);
	if (ips && n)
		r->err = take_callchain(ips, (uint32_t)n, mode, deferred, sample, out);
}

/*
 * Take what perf's BPF program says of a wait instead of what the event says, which came when the wait had ended: u32 pid,
 * tid; u64 ns, then a call chain: u64 n, addresses; u64 cgroup.
 */
static int take_off_cpu(const uint8_t *raw, uint32_t size, const struct perfdata_deferred *deferred,
			struct perfdata_sample *sample, struct event *event)
{
	struct event_sample *out = &event->sample;
	uint64_t n = size >= 24 ? uw_bytes_little8(raw + 16) : 0;

	if (size < 32 || n > (size - 32) / 8)
		return -EBADMSG;
	event->pid = uw_bytes_little(raw);
	event->tid = uw_bytes_little(raw + 4);
	out->period = uw_bytes_little8(raw + 8);
	out->cgroup_id = uw_bytes_little8(raw + 24 + 8 * n);
	out->n_kernel_ips = out->n_user_ips = 0;
	return take_callchain(raw + 24, (uint32_t)n, PERF_RECORD_MISC_USER, deferred, sample, out);
}

#define BRANCH_SIZE 24u /* bytes: u64 from, to, flags */

/*
 * Use the open calls as user frames, for CPUs that record those instead of all branches (perf
 * record --call-graph lbr).
 *
 * The first entry is the innermost call. The kernel also walks the frame pointers; only the first
 * address of that walk is used, as perf does.
 */
static void read_open_calls(const uint8_t *calls, uint64_t n, struct reader *r,
			    struct perfdata_sample *sample, struct event_sample *out)
{
	uint64_t innermost = out->n_user_ips ? out->user_ips[0] : uw_bytes_little8(calls + 8);
	uint32_t n_kernel = out->n_kernel_ips, n_all = n_kernel + 2 + (uint32_t)n;
	uint64_t *ips =
		reallocarray(NULL, n_all, sizeof(*ips)); /* n is limited by a record's size */
	uint64_t *user = ips + n_kernel + 1;		 /* one slot stays free for use_ip() */

	if (!ips) {
		r->err = -ENOMEM;
		return;
	}
	if (n_kernel)
		memcpy(ips, sample->kernel_ips, n_kernel * sizeof(*ips));
	*user = innermost;
	/*
	 * An entry has the address of the call instruction, but callers are given by return
	 * addresses.
	 */
	for (uint64_t i = 0; i < n; i++)
		user[1 + i] = uw_bytes_little8(calls + BRANCH_SIZE * i) + 1;
	free(sample->kernel_ips);
	sample->kernel_ips = ips;
	sample->kernel_ips_room = n_all;
	out->kernel_ips = ips;
	out->user_ips = user;
	out->n_user_ips = 1 + (uint32_t)n;
}

/* Read the branch stack. Only open calls are used, and only if no copy of the stack follows. */
static void read_branches(struct reader *r, const struct perf_event_attr *attr, uint16_t misc,
			  struct perfdata_sample *sample, struct event_sample *out)
{
	uint64_t type = attr->branch_sample_type, n = u64(r);
	bool calls = type & PERF_SAMPLE_BRANCH_CALL_STACK &&
		     !(attr->sample_type & PERF_SAMPLE_STACK_USER);
	const uint8_t *entries = NULL;

	if (type & PERF_SAMPLE_BRANCH_HW_INDEX)
		skip(r, 8);
	if (!r->err && n > left(r) / BRANCH_SIZE)
		r->err = -EBADMSG;
	if (calls && n)
		entries = take(r, n * BRANCH_SIZE);
	else
		skip(r, n * BRANCH_SIZE);
	if (entries && (misc & PERF_RECORD_MISC_CPUMODE_MASK) <= PERF_RECORD_MISC_USER)
		read_open_calls(entries, n, r, sample, out);
	if (type & PERFDATA_BRANCH_COUNTERS)
		skip_array(r, n, 8);
}

/* Read the user registers. ABI_NONE: the sample has none, as for kernel threads. */
static void read_user_regs(struct reader *r, const struct perf_event_attr *attr,
			   const struct machine *machine, struct event_sample *out)
{
	uint64_t abi = u64(r), mask = attr->sample_regs_user;
	const uint8_t *values;

	if (r->err || abi == PERF_SAMPLE_REGS_ABI_NONE)
		return;
	values = take(r, 8 * (uint64_t)__builtin_popcountll(mask));
	if (!values)
		return;
	for (; mask; mask &= mask - 1, values += 8) {
		size_t i = (size_t)__builtin_ctzll(mask);
		int reg = i < machine->n_perf_regs ? machine->perf_regs[i] : MACHINE_NO_REG;

		if (reg < 0)
			continue;
		out->regs.value[reg] = uw_bytes_little8(values);
		out->regs.known |= 1ull << reg;
	}
	out->has_user_regs = true;
	out->compat = abi == PERF_SAMPLE_REGS_ABI_32;
}

/* Read the copy of the stack. Only its used part, dyn_size bytes, is loaded. */
static void read_user_stack(struct reader *r, const struct machine *machine,
			    struct perfdata_sample *sample, struct event_sample *out)
{
	unsigned int sp = machine->sp;
	uint64_t size = u64(r), dyn_size;
	struct perfdata_body *body = r->body;
	uint32_t start = r->pos, had = body->have;
	const uint8_t *bytes = NULL;

	if (!size)
		return;
	skip(r, size);
	dyn_size = u64(r);
	if (!r->err && dyn_size > size)
		r->err = -EBADMSG;
	if (r->err)
		return;
	if (body->view)
		bytes = body->view(body->ctx, start, start + (uint32_t)dyn_size);
	if (!bytes && body->load && had < start + dyn_size) {
		uint32_t from = had > start ? had : start;

		r->err = body->load(body->ctx, from, start + (uint32_t)dyn_size);
		if (r->err)
			return;
	}
	if (!dyn_size || !out->has_user_regs || !(out->regs.known & 1ull << sp))
		return;
	sample->stack = (struct uw_region){ .addr = out->regs.value[sp],
					    .size = dyn_size,
					    .bytes = bytes ? bytes : body->bytes + start };
	/* A stack cannot wrap around the end of the address space. */
	if (sample->stack.size > UINT64_MAX - sample->stack.addr)
		sample->stack.size = UINT64_MAX - sample->stack.addr;
	out->regions = &sample->stack;
	out->n_regions = 1;
	out->stack_cut = dyn_size == size;
}

/* ---- the sample ---------------------------------------------------------------- */

void perfdata_sample_fini(struct perfdata_sample *sample)
{
	free(sample->kernel_ips);
	free(sample->values);
	*sample = (struct perfdata_sample){ .kernel_ips = NULL };
}

/* Use the sampled address as the innermost frame if registers or call chain do not give one. */
static void use_ip(struct perfdata_sample *sample, const struct machine *machine, uint16_t misc,
		   uint64_t ip, uint64_t type, struct event_sample *out)
{
	unsigned int pc = machine->pc;
	unsigned int mode = misc & PERF_RECORD_MISC_CPUMODE_MASK;

	if (mode == PERF_RECORD_MISC_KERNEL && !out->n_kernel_ips && !ips_reserve(sample, 1)) {
		sample->kernel_ips[0] = ip;
		out->kernel_ips = sample->kernel_ips;
		out->n_kernel_ips = 1;
	}
	if (mode == PERF_RECORD_MISC_USER && !(type & PERF_SAMPLE_REGS_USER)) {
		out->regs.value[pc] = ip;
		out->regs.known = 1ull << pc;
		out->has_user_regs = true;
		/*
		 * The address goes behind the kernel's. If the chain has any, it also left room:
		 * read_callchain() reserves two for each entry.
		 */
		if (!out->n_user_ips && !ips_reserve(sample, out->n_kernel_ips + 1)) {
			sample->kernel_ips[out->n_kernel_ips] = ip;
			out->user_ips = sample->kernel_ips + out->n_kernel_ips;
			out->n_user_ips = 1;
		}
	}
}

int perfdata_sample_read(struct perfdata_sample *sample, const struct perfdata_attr *attr,
			 const struct machine *machine, const struct perfdata_deferred *deferred,
			 uint16_t misc, struct perfdata_body *body, struct event *event)
{
	struct reader reader = { .body = body }, *r = &reader;
	const uint8_t *raw = NULL;
	uint32_t raw_size = 0;
	struct event_sample *out = &event->sample;
	uint64_t type = attr->attr.sample_type, ip = 0;

	event->type = EVENT_SAMPLE;
	event->pid = event->tid = 0;
	sample->n_values = 0;
	*out = (struct event_sample){ .event = (uint16_t)attr->event,
				      .period = attr->default_period };

	/*
	 * The fields are in the order of the comment at PERF_RECORD_SAMPLE in
	 * <linux/perf_event.h>.
	 */
	if (type & PERF_SAMPLE_IDENTIFIER)
		skip(r, 8);
	if (type & PERF_SAMPLE_IP)
		ip = u64(r);
	if (type & PERF_SAMPLE_TID) {
		uint64_t ids = u64(r);

		event->pid = (uint32_t)ids;
		event->tid = (uint32_t)(ids >> 32);
	}
	if (type & PERF_SAMPLE_TIME)
		skip(r, 8);
	if (type & PERF_SAMPLE_ADDR)
		skip(r, 8);
	if (type & PERF_SAMPLE_ID)
		skip(r, 8);
	if (type & PERF_SAMPLE_STREAM_ID)
		skip(r, 8);
	if (type & PERF_SAMPLE_CPU)
		out->cpu = (uint32_t)u64(r);
	if (type & PERF_SAMPLE_PERIOD)
		out->period = u64(r);
	if (type & PERF_SAMPLE_READ)
		read_values(r, sample, attr->attr.read_format);
	if (type & PERF_SAMPLE_CALLCHAIN)
		read_callchain(r, sample, deferred, misc & PERF_RECORD_MISC_CPUMODE_MASK, out);
	if (type & PERF_SAMPLE_RAW) {
		const uint8_t *size = take(r, 4);

		raw_size = size ? uw_bytes_little(size) : 0;
		if (attr->off_cpu)
			raw = take(r, raw_size);
		else
			skip(r, raw_size);
	}
	if (type & PERF_SAMPLE_BRANCH_STACK)
		read_branches(r, &attr->attr, misc, sample, out);
	if (type & PERF_SAMPLE_REGS_USER)
		read_user_regs(r, &attr->attr, machine, out);
	if (type & PERF_SAMPLE_STACK_USER)
		read_user_stack(r, machine, sample, out);
	if (type & (PERF_SAMPLE_WEIGHT | PERF_SAMPLE_WEIGHT_STRUCT))
		skip(r, 8);
	if (type & PERF_SAMPLE_DATA_SRC)
		skip(r, 8);
	if (type & PERF_SAMPLE_TRANSACTION)
		skip(r, 8);
	if (type & PERF_SAMPLE_REGS_INTR) {
		uint64_t abi = u64(r);

		if (abi != PERF_SAMPLE_REGS_ABI_NONE)
			skip(r, 8 * (uint64_t)__builtin_popcountll(attr->attr.sample_regs_intr));
	}
	if (type & PERF_SAMPLE_PHYS_ADDR)
		skip(r, 8);
	if (type & PERF_SAMPLE_CGROUP)
		out->cgroup_id = u64(r);
	if (type & PERF_SAMPLE_DATA_PAGE_SIZE)
		skip(r, 8);
	if (type & PERF_SAMPLE_CODE_PAGE_SIZE)
		skip(r, 8);
	if (type & PERF_SAMPLE_AUX)
		skip(r, u64(r));

	if (raw && !r->err) {
		r->err = take_off_cpu(raw, raw_size, deferred, sample, event);
		misc = PERF_RECORD_MISC_USER;
		ip = out->n_user_ips ? out->user_ips[0] : 0;
	}
	if (!out->period)
		out->period = 1;
	if (type & PERF_SAMPLE_IP && (!attr->off_cpu || ip))
		use_ip(sample, machine, misc, ip, type, out);
	return r->err;
}
