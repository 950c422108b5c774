/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * bpf/alloc_probes.h: BPF programs that sample allocated memory; a part of capture.bpf.c.
 *
 * Probes are at the beginnings and at the returns of an allocator's functions. Of the bytes that a
 * thread allocates, single bytes are drawn, alloc_interval bytes apart on average. The drawing is a
 * Poisson process: the distance to the next drawn byte does not depend on what came before. An
 * allocation that contains a drawn byte is captured. So an allocation of n bytes is captured with
 * the probability 1 - exp(-n / alloc_interval), by which the agent divides. For all other
 * allocations only a counter is decreased.
 *
 * The address of a captured allocation is stored until it is freed. A call is captured when it
 * returns and has not failed, but the record shows the thread as it was when the call began. If one
 * of the allocator's functions calls another (realloc calls malloc, malloc calls mmap), only the
 * outer call counts.
 */
#ifndef BPF_ALLOC_PROBES_H
#define BPF_ALLOC_PROBES_H

#define PROT_NONE     0x0
#define MAP_ANONYMOUS 0x20

/* A nested call has its stack pointer below the outer call's, but not further below than this. */
#define CALLER_LIKELY (64ull << 20)

/* The state of a thread that allocates. */
struct alloc_thread {
	__u64 left;   /* bytes until the next drawn byte; 0: none was drawn yet */
	__u64 ip, sp; /* of the current call, at its beginning; sp 0: there is no current call */
	__u64 size;   /* bytes that the call asks for */
	__u64 out;    /* where the function stores the address; 0: the function returns it */
	__u64 freed;  /* address that the call frees if it succeeds; 0: none */
	__u64 space;
	struct capture_live freed_live;
	__u32 due; /* the current call is to be captured */
	__u32 reserved;
};

/*
 * The state of each thread, by pid and tid. A thread that is evicted starts again without a state;
 * the drawing remains correct, because it does not depend on what came before.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct alloc_thread);
} alloc_threads SEC(".maps");

/* Captured allocations that were not freed yet. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct capture_live_key);
	__type(value, struct capture_live);
} live SEC(".maps");

/* The number of captures on each CPU, from which the ids of allocations are made. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} allocs SEC(".maps");

__u32 alloc_stopped = 0; /* set by the agent: ignore all calls from now on */

/* Return the binary logarithm of 1 + x / 2^20, in units of 2^-20. x is below 2^20. */
static __always_inline __u64 log2_mantissa(__u64 x)
{
	/* One bit before the binary point and 31 after it. */
	__u64 y = (x + (1 << 20)) << 11, log = 0;

#pragma clang loop unroll(full)
	for (int bit = 19; bit >= 0; bit--) {
		y = y * y >> 31;
		if (y >> 32) {
			y >>= 1;
			log |= 1 << bit;
		}
	}
	return log;
}

/*
 * Draw the distance to the next captured byte: from an exponential distribution with the mean
 * alloc_interval, rounded up.
 */
static __always_inline __u64 draw(void)
{
	__u64 random = (__u64)bpf_get_prandom_u32() + 1, x = random, log = 0, far;

	/* log2(random), random from 1 to 2^32. */
	if (x >> 32) {
		return 1;
	}
#pragma clang loop unroll(full)
	for (int step = 16; step; step >>= 1) {
		if (x >> step) {
			x >>= step;
			log += step;
		}
	}
	x = (random << (32 - log) & 0xffffffff) >> 12; /* the bits after the first one */
	/* -ln(random / 2^32) = (32 - log2(random)) ln 2, in units of 2^-20, below 2^25. */
	far = (32ull << 20) - (log << 20) - log2_mantissa(x);
	far = far * 726817 >> 20;
	return (far * alloc_interval >> 20) + 1;
}

/*
 * Return a number for an address space: the address of its mm_struct, combined with its
 * start_stack, because the memory of an mm_struct may be used again for another process.
 */
static __always_inline __u64 space_of(struct task_struct *task)
{
	struct mm_struct *mm = BPF_CORE_READ(task, mm);

	return (__u64)mm ^ BPF_CORE_READ(mm, start_stack) >> 4;
}

/* Report to the agent that so many bytes of allocation id were freed. */
static __always_inline void tell_freed(__u64 id, __u64 bytes, struct capture_counters *count)
{
	struct capture_free record = { .magic = CAPTURE_FREE_MAGIC,
				       .pid = bpf_get_current_pid_tgid() >> 32,
				       .id = id,
				       .bytes = bytes,
				       .time_ns = bpf_ktime_get_ns() };

	if (put(&record, sizeof(record), 0))
		add(&count->frees_lost, 1);
	else
		add(&count->frees, 1);
}

/*
 * Return the state of the current thread, whose pid and tid are id. If there is none, create it
 * (create) or return NULL.
 */
static __always_inline struct alloc_thread *thread_of(__u64 id, __u64 space, bool create)
{
	struct alloc_thread *thread = bpf_map_lookup_elem(&alloc_threads, &id), fresh = {};

	/* The thread has executed another program, or it is a new thread with an old number. */
	if (thread && thread->space != space)
		*thread = (struct alloc_thread){ .space = space };
	if (thread || !create)
		return thread;
	fresh.space = space;
	(void)bpf_map_update_elem(&alloc_threads, &id, &fresh, BPF_ANY);
	return bpf_map_lookup_elem(&alloc_threads, &id);
}

/* Return whether the current call comes from within another allocator function. */
static __always_inline bool nested(const struct alloc_thread *thread, const struct pt_regs *ctx)
{
	/* A tail call into another function has the same stack pointer, but another ip. */
	return thread->sp &&
	       (ctx->rsp < thread->sp ? thread->sp - ctx->rsp < CALLER_LIKELY
				      : ctx->rsp == thread->sp && ctx->rip != thread->ip);
}

/*
 * Handle the beginning of a function that allocates size bytes, and frees the memory at old (0:
 * none). This runs before the function does anything. out is where the function stores the address
 * (0: it returns the address).
 */
static __always_inline int begins(struct pt_regs *ctx, __u64 size, __u64 out, __u64 old)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct capture_counters *count = counters_here();
	__u64 id = bpf_get_current_pid_tgid(), bytes = size ? size : 1, space;
	struct capture_live_key key = {};
	struct alloc_thread *thread;
	struct capture_live *was;
	bool wanted;

	if (!count || alloc_stopped)
		return 0;
	space = space_of(task);
	thread = thread_of(id, space, true);
	if (!thread) {
		add(&count->fired, 1);
		add(&count->unreadable, 1);
		return 0;
	}
	if (nested(thread, ctx))
		return 0;
	thread->sp = 0;
	wanted = passes(id, task, bpf_get_smp_processor_id(), count);
	if (!wanted) {
		add(&count->fired, 1);
		/* What it frees may have been captured: then a thread that passes allocated it. */
		if (!old)
			return 0;
	}
	if (wanted && !thread->left && alloc_interval > 1)
		thread->left = draw();
	thread->due = wanted && (alloc_interval <= 1 || thread->left <= bytes);
	if (thread->due) {
		thread->left = 0;
	} else if (wanted) {
		thread->left -= bytes;
		add(&count->fired, 1);
		add(&count->filtered_period, 1);
	}
	thread->ip = ctx->rip;
	thread->size = size;
	thread->out = out;
	thread->freed = 0;
	if (old) {
		key.space = space;
		key.addr = old;
		was = bpf_map_lookup_elem(&live, &key);
		if (was) {
			/* Another thread may get this memory before the function returns. */
			thread->freed_live = *was;
			thread->freed = old;
			(void)bpf_map_delete_elem(&live, &key);
		}
	}
	thread->sp = ctx->rsp;
	return 0;
}

/*
 * Capture the current call, which has returned addr, and store the allocation in the table of live
 * memory.
 */
static __always_inline void captured(struct pt_regs *ctx, const struct alloc_thread *thread,
				     __u64 addr, struct capture_counters *count, bool fallback)
{
	struct capture_alloc alloc = { .size = thread->size, .addr = addr };
	struct capture_live_key key = {};
	struct capture_live value = {}, *was;
	struct tick tick = { .event = alloc_event,
			     .kind = CAPTURE_SCRATCH_PROBE,
			     .user = true,
			     .period = 1,
			     .called_ip = thread->ip,
			     .called_sp = thread->sp,
			     .return_ip = ctx->rip,
			     .alloc = &alloc };
	__u32 zero = 0, *busy = probe_begins(count);
	__u64 *n = bpf_map_lookup_elem(&allocs, &zero);

	if (!busy || !n)
		return;
	alloc.id = ++*n << 12 | (bpf_get_smp_processor_id() & 0xfff);
	alloc.space = key.space = thread->space;
	key.addr = addr;
	/* There was an allocation at this address, whose free was not seen. */
	was = bpf_map_lookup_elem(&live, &key);
	if (was)
		tell_freed(was->id, was->size, count);
	value.id = alloc.id;
	value.size = alloc.size;
	value.pid = bpf_get_current_pid_tgid() >> 32;
	/* The thread cannot free the memory before this program ends. */
	if (bpf_map_update_elem(&live, &key, &value, BPF_ANY)) {
		add(&count->untracked, 1);
		alloc.space = alloc.addr = 0;
	}
	if (!capture(ctx, &tick, count, fallback) && alloc.addr)
		(void)bpf_map_delete_elem(&live, &key);
	probe_ends(busy);
}

/* Handle the return of an allocator's function, with its result. */
static __always_inline int returns(struct pt_regs *ctx, __u64 result, bool fallback)
{
	struct capture_counters *count = counters_here();
	struct capture_live_key key = {};
	struct alloc_thread *thread;
	__u64 addr = result;
	bool failed;

	if (!count || alloc_stopped)
		return 0;
	thread = thread_of(bpf_get_current_pid_tgid(), space_of((void *)bpf_get_current_task()),
			   false);
	if (!thread || !thread->sp || ctx->rsp != thread->sp + 8)
		return 0;
	if (thread->out) {
		addr = 0;
		if (!(__u32)result)
			(void)bpf_probe_read_user(&addr, sizeof(addr), (void *)thread->out);
	}
	/* mmap returns -1 on failure. malloc of 0 bytes may return NULL. */
	failed = !addr || addr == ~0ull;
	if (thread->freed) {
		if (!failed || !thread->size) {
			tell_freed(thread->freed_live.id, thread->freed_live.size, count);
		} else {
			key.space = thread->space;
			key.addr = thread->freed;
			(void)bpf_map_update_elem(&live, &key, &thread->freed_live, BPF_ANY);
		}
	}
	if (thread->due) {
		add(&count->fired, 1);
		if (failed)
			add(&count->filtered_failed, 1);
		else
			captured(ctx, thread, addr, count, fallback);
	}
	thread->sp = 0;
	return 0;
}

/*
 * Handle a free: up to bytes bytes from addr on (0: the whole allocation) are given back. If a part
 * of the allocation remains, it is stored at its new address.
 */
static __always_inline int gives_back(__u64 addr, __u64 bytes)
{
	struct capture_counters *count = counters_here();
	struct capture_live_key key = {};
	struct capture_live value, *was;

	if (!addr || !count || alloc_stopped)
		return 0;
	key.space = space_of((void *)bpf_get_current_task());
	key.addr = addr;
	was = bpf_map_lookup_elem(&live, &key);
	if (!was)
		return 0;
	value = *was;
	/*
	 * Two threads may have seen the allocation; only the one that deletes it reports the free.
	 */
	if (bpf_map_delete_elem(&live, &key))
		return 0;
	if (!bytes || bytes >= value.size)
		bytes = value.size;
	tell_freed(value.id, bytes, count);
	if (bytes == value.size)
		return 0;
	value.size -= bytes;
	key.addr += bytes;
	if (bpf_map_update_elem(&live, &key, &value, BPF_ANY))
		add(&count->untracked, 1);
	return 0;
}

/* Return bytes rounded up to whole pages; a number that is too large stays as it is. */
static __always_inline __u64 whole_pages(__u64 bytes)
{
	return bytes > ~0ull - CAPTURE_PAGE
		       ? bytes
		       : (bytes + CAPTURE_PAGE - 1) & ~(__u64)(CAPTURE_PAGE - 1);
}

/* malloc(size), valloc(size), pvalloc(size) */
SEC("uprobe")
int alloc_malloc(struct pt_regs *ctx)
{
	return begins(ctx, ctx->rdi, 0, 0);
}

/* Return n * size, or the largest number if the product overflows: such a call fails. */
static __always_inline __u64 product(__u64 n, __u64 size)
{
	__u64 most = size ? ~0ull / size : ~0ull;

	barrier_var(most); /* otherwise the compiler multiplies 128 bits, which BPF cannot do */
	return n > most ? ~0ull : n * size;
}

/* calloc(n, size) */
SEC("uprobe")
int alloc_calloc(struct pt_regs *ctx)
{
	return begins(ctx, product(ctx->rdi, ctx->rsi), 0, 0);
}

/* realloc(old, size) */
SEC("uprobe")
int alloc_realloc(struct pt_regs *ctx)
{
	return begins(ctx, ctx->rsi, 0, ctx->rdi);
}

/* memalign(alignment, size), aligned_alloc(alignment, size) */
SEC("uprobe")
int alloc_memalign(struct pt_regs *ctx)
{
	return begins(ctx, ctx->rsi, 0, 0);
}

/* posix_memalign(out, alignment, size) */
SEC("uprobe")
int alloc_posix_memalign(struct pt_regs *ctx)
{
	return begins(ctx, ctx->rdx, ctx->rdi, 0);
}

/*
 * Return whether an mmap allocates memory: not a mapping of a file, and not reserved address space
 * alone.
 */
static __always_inline bool is_memory(const struct pt_regs *ctx)
{
	return ctx->rcx & MAP_ANONYMOUS && (__u32)ctx->rdx != PROT_NONE;
}

/* mmap(addr, size, protection, flags, …) */
SEC("uprobe")
int alloc_mmap(struct pt_regs *ctx)
{
	if (!is_memory(ctx))
		return 0;
	return begins(ctx, whole_pages(ctx->rsi), 0, 0);
}

/* mremap(old, old_size, size, …) */
SEC("uprobe")
int alloc_mremap(struct pt_regs *ctx)
{
	return begins(ctx, whole_pages(ctx->rdx), 0, ctx->rdi);
}

SEC("uretprobe")
int alloc_returns(struct pt_regs *ctx)
{
	return returns(ctx, ctx->rax, false);
}

SEC("uretprobe")
int fallback_returns(struct pt_regs *ctx)
{
	return returns(ctx, ctx->rax, true);
}

/* free(addr), cfree(addr) */
SEC("uprobe")
int alloc_free(struct pt_regs *ctx)
{
	return gives_back(ctx->rdi, 0);
}

/* munmap(addr, size) */
SEC("uprobe")
int alloc_munmap(struct pt_regs *ctx)
{
	return gives_back(ctx->rdi, whole_pages(ctx->rsi));
}

/*
 * Handle the beginning of any of these functions. With uprobe-multi, one link has all probes of a
 * file, and the cookie of a probe is its function (enum capture_alloc_function).
 */
SEC("uprobe")
int alloc_any(struct pt_regs *ctx)
{
	__u64 function = bpf_get_attach_cookie(ctx), out = 0, old = 0, size;

	switch (function) {
	case CAPTURE_ALLOC_FREE:
		return gives_back(ctx->rdi, 0);
	case CAPTURE_ALLOC_MUNMAP:
		return gives_back(ctx->rdi, whole_pages(ctx->rsi));
	case CAPTURE_ALLOC_CALLOC:
		size = product(ctx->rdi, ctx->rsi);
		break;
	case CAPTURE_ALLOC_REALLOC:
		size = ctx->rsi;
		old = ctx->rdi;
		break;
	case CAPTURE_ALLOC_MEMALIGN:
		size = ctx->rsi;
		break;
	case CAPTURE_ALLOC_POSIX_MEMALIGN:
		size = ctx->rdx;
		out = ctx->rdi;
		break;
	case CAPTURE_ALLOC_MMAP:
		if (!is_memory(ctx))
			return 0;
		size = whole_pages(ctx->rsi);
		break;
	case CAPTURE_ALLOC_MREMAP:
		size = whole_pages(ctx->rdx);
		old = ctx->rdi;
		break;
	default:
		size = ctx->rdi;
	}
	return begins(ctx, size, out, old);
}

#endif
