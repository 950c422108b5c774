/*
 * tests/unit/test_walk.c: tests walks of a copy of this process's own stack against libgcc's: from
 * a plain call chain, and from a signal handler through the trampoline into the interrupted
 * function.
 */
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include "tests/check.h"
#include "unwinder/unwinder.h"

#if defined(__x86_64__) || defined(__aarch64__)

#define DEPTH 64

struct capture {
	struct uw_thread thread;
	struct uw_region region;
	struct uw_memory memory;
	uint64_t frames[DEPTH]; /* libgcc's */
	int n_frames;
};

#define NAMES_MAX 256
static char *names[NAMES_MAX]; /* of mapped files */
static size_t n_names;
static uint64_t stack_top;
static struct capture captured;

#ifdef __x86_64__

#define MACHINE	 EM_X86_64
#define SP	 UW_X86_64_RSP
#define RED_ZONE 128

static void take_regs(struct uw_regs *regs, const ucontext_t *uc)
{
	/* <sys/ucontext.h>'s order is the kernel's; ours is DWARF's. */
	static const int order[17] = { REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI,
				       REG_RBP, REG_RSP, REG_R8,  REG_R9,  REG_R10, REG_R11,
				       REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP };

	for (int i = 0; i < 17; i++)
		regs->value[i] = (uint64_t)uc->uc_mcontext.gregs[order[i]];
	regs->known = 0x1ffff;
}

#else

#define MACHINE	 EM_AARCH64
#define SP	 UW_AARCH64_SP
#define RED_ZONE 0

static void take_regs(struct uw_regs *regs, const ucontext_t *uc)
{
	for (int i = 0; i < 31; i++)
		regs->value[i] = uc->uc_mcontext.regs[i];
	regs->value[UW_AARCH64_SP] = uc->uc_mcontext.sp;
	regs->value[UW_AARCH64_PC] = uc->uc_mcontext.pc;
	regs->known = 0x1ffffffff;
}

#endif

static struct uw_object *resolve(void *ctx, const struct uw_mapping *mapping)
{
	struct uw_object *object = NULL;
	char path[64];
	int fd;

	(void)ctx;
	if (mapping->kind == UW_MAPPING_VDSO) {
		const void *image = (const void *)getauxval(AT_SYSINFO_EHDR);

		return uw_object_open_image(image, mapping->end - mapping->start, &object) ? NULL
											   : object;
	}
	if (mapping->kind != UW_MAPPING_FILE)
		return NULL;
	(void)snprintf(path, sizeof(path), "/proc/self/map_files/%" PRIx64 "-%" PRIx64,
		       mapping->start, mapping->end);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) /* an emulator's mappings are not where the kernel has them */
		fd = open(mapping->user, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	CHECK(uw_object_open(fd, 0, &object) == 0, path);
	close(fd);
	return object;
}

static struct uw_space *own_space(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	struct uw_space *space = NULL;
	char line[512];

	if (uw_space_new(MACHINE, resolve, NULL, &space))
		exit(1);
	while (fgets(line, sizeof(line), maps)) {
		struct uw_mapping m = { .kind = UW_MAPPING_OTHER };
		char prot[5], name[256] = "";

		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %*s %*s %255s", &m.start,
			   &m.end, prot, &m.off, name) < 4)
			continue;
		m.prot = (prot[0] == 'r' ? (uint32_t)PROT_READ : 0) |
			 (prot[1] == 'w' ? (uint32_t)PROT_WRITE : 0) |
			 (prot[2] == 'x' ? (uint32_t)PROT_EXEC : 0);
		if (name[0] == '/') {
			m.kind = UW_MAPPING_FILE;
			m.user = n_names < NAMES_MAX ? names[n_names++] = strdup(name) : NULL;
		} else if (!name[0]) {
			m.kind = UW_MAPPING_ANON;
		}
		if (!strcmp(name, "[vdso]"))
			m.kind = UW_MAPPING_VDSO;
		if (!strcmp(name, "[stack]"))
			stack_top = m.end;
		CHECK(uw_space_map(space, &m) == 0, line);
	}
	(void)fclose(maps);
	return space;
}

/* Copied without memcpy: a sanitizer treats the bytes between variables as out of bounds. */
__attribute__((noinline, no_sanitize("address", "undefined"))) static void
copy_stack(volatile uint8_t *out, const volatile uint8_t *from, size_t size)
{
	for (size_t i = 0; i < size; i++)
		out[i] = from[i];
}

/* The context and all of the stack from below it up to its top. */
static void take(struct capture *c, const ucontext_t *uc)
{
	uint8_t *bytes;

	take_regs(&c->thread.regs, uc);
	c->region.addr = c->thread.regs.value[SP] - RED_ZONE;
	c->region.size = stack_top - c->region.addr;
	bytes = malloc(c->region.size);
	if (!bytes)
		exit(1);
	copy_stack(bytes, (const uint8_t *)(uintptr_t)c->region.addr, c->region.size);
	c->region.bytes = bytes;
	c->memory = (struct uw_memory){ .regions = &c->region, .n_regions = 1 };
	c->thread.read = uw_memory_read;
	c->thread.ctx = &c->memory;
}

/* backtrace() is not used: with a sanitizer it adds a frame. */
static _Unwind_Reason_Code note_frame(struct _Unwind_Context *context, void *arg)
{
	struct capture *c = arg;

	/* libgcc continues to a frame at 0 beyond _start. */
	if (c->n_frames < DEPTH && _Unwind_GetIP(context))
		c->frames[c->n_frames++] = _Unwind_GetIP(context);
	return _URC_NO_REASON;
}

#ifdef __ARM_FEATURE_PAC_DEFAULT
/*
 * The signatures of the innermost five frames, which are ours: one signature of 7 bits may be 0 by
 * chance, but not all.
 */
static int count_signed(void)
{
	const uint64_t *record = __builtin_frame_address(0);
	int n = 0;

	for (int i = 0; i < 5 && record; i++) {
		n += record[1] >> 48 != 0;
		record = (const uint64_t *)(uintptr_t)record[0];
	}
	return n;
}
#endif

__attribute__((noinline)) static int here(struct capture *c)
{
	ucontext_t uc;

#ifdef __ARM_FEATURE_PAC_DEFAULT
	CHECK(count_signed() > 0, "return addresses are signed");
#endif
	(void)_Unwind_Backtrace(note_frame, c);
	(void)getcontext(&uc);
	take(c, &uc);
	return 1;
}

__attribute__((noinline)) static int recurse(struct capture *c, int depth)
{
	volatile char room[100 + 16 * (depth & 3)];

	room[0] = (char)depth;
	return (depth ? recurse(c, depth - 1) : here(c)) + room[0];
}

static void on_signal(int signo, siginfo_t *info, void *context)
{
	(void)signo;
	(void)info;
	(void)context;
	(void)recurse(&captured, 3);
}

static int compare_for_sort(const void *a, const void *b)
{
	static volatile int once;

	if (!once) {
		once = 1;
		(void)raise(SIGUSR1);
	}
	return *(const int *)a - *(const int *)b;
}

/* libgcc's first frame is in here(), like ours; its last frame is _start, like ours. */
static void compare(const char *what, struct uw_space *space, struct uw_worker *worker,
		    const struct capture *c, int signals)
{
	struct uw_frame frames[DEPTH];
	struct uw_stack stack = { .frames = frames, .max_frames = DEPTH };
	int seen = 0;

	uw_walk(space, worker, &c->thread, &stack);
	CHECK(stack.stop == UW_STOP_ROOT, uw_stop_name(stack.stop));
	CHECK(stack.n_frames == (size_t)c->n_frames, what);
	for (size_t i = 0; i < stack.n_frames && i < (size_t)c->n_frames; i++) {
		/* Frame 0 is at two places of the same function. */
		if (i > 0)
			CHECK(frames[i].pc == c->frames[i], what);
		CHECK(frames[i].mapping != NULL, what);
		CHECK(frames[i].cfa > frames[i].sp || i + 1 == stack.n_frames || frames[i].signal,
		      what);
		seen += frames[i].signal;
		if (frames[i].signal && i + 1 < stack.n_frames)
			CHECK(frames[i + 1].exact && frames[i + 1].lookup == frames[i + 1].pc,
			      "the interrupted pc is exact");
	}
	CHECK(seen == signals, "signal frames");

	/* If the top of the stack is missing, the walk ends where the bytes end, and reports it. */
	if (!signals && stack.n_frames > 6) {
		struct uw_region cut = c->region;
		struct uw_memory memory = { .regions = &cut, .n_regions = 1 };
		struct uw_thread thread = c->thread;

		/* On x86_64 the return address is the last word below the CFA. */
		cut.size = (MACHINE == EM_X86_64 ? frames[5].cfa - 8 : frames[5].sp) - cut.addr;
		thread.ctx = &memory;
		uw_walk(space, worker, &thread, &stack);
		CHECK(stack.stop == UW_STOP_TRUNCATED, uw_stop_name(stack.stop));
		CHECK(stack.n_frames == 6, what);
		CHECK(MACHINE == EM_X86_64 ? stack.stop_addr == cut.addr + cut.size
					   : stack.stop_addr >= cut.addr + cut.size &&
						     stack.stop_addr < frames[5].cfa,
		      "the first address missing");
	}
	stack.max_frames = 3;
	uw_walk(space, worker, &c->thread, &stack);
	CHECK(stack.stop == UW_STOP_MAX_FRAMES && stack.n_frames == 3, "max_frames");
}

#ifdef __x86_64__
/*
 * While a vfork is under way its return address is in rdi, and the CFA is sp:
 * readelf --debug-dump=frames-interp libc.so.6 says "rsp+0 … ra r5 (rdi)" from
 * the second instruction on.
 */
static void test_vfork_keeps_its_return_address_in_a_register(struct uw_space *space,
							      struct uw_worker *worker,
							      const struct capture *c)
{
	struct uw_frame frames[DEPTH];
	struct uw_stack stack = { .frames = frames, .max_frames = DEPTH };
	struct uw_thread thread = c->thread;
	static const uint8_t syscall_insn[] = { 0x0f, 0x05 };
	const uint8_t *code = dlsym(RTLD_DEFAULT, "__vfork");
	const uint8_t *call = code ? memmem(code, 32, syscall_insn, 2) : NULL;

	if (!call) {
		(void)puts("this libc's vfork is another one");
		return;
	}
	uw_walk(space, worker, &c->thread, &stack);
	thread.regs.value[UW_X86_64_RIP] = (uint64_t)(uintptr_t)(call + 2);
	thread.regs.value[UW_X86_64_RSP] = frames[0].cfa;
	thread.regs.value[5] = frames[1].pc; /* rdi */
	uw_walk(space, worker, &thread, &stack);
	/* The walk ends here: the other registers are not those of that frame. */
	CHECK(stack.n_frames >= 2 && frames[1].pc == thread.regs.value[5], "its caller");
	CHECK(frames[0].cfa == frames[0].sp, "which has the same stack pointer");
}
#endif

#ifdef __x86_64__

static void handle(int signo, void (*handler)(int, siginfo_t *, void *))
{
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };

	CHECK(sigaction(signo, &action, NULL) == 0, "sigaction");
}

#else

/*
 * A copy of the vDSO's trampoline without unwind information: qemu has no vDSO, and its own
 * trampoline begins a page, so that ra - 1 lies outside. libgcc also recognises it by its code.
 */
__asm__(".text\n.globl own_sigreturn\n.p2align 2\nnop\nown_sigreturn: mov x8, #139\nsvc #0\n");
extern const char own_sigreturn[];

/* Like glibc's sigaction, which does not let a caller choose the trampoline. */
static void handle(int signo, void (*handler)(int, siginfo_t *, void *))
{
	const struct {
		void (*handler)(int, siginfo_t *, void *);
		unsigned long flags;
		const void *restorer;
		uint64_t mask;
	} action = { handler, SA_SIGINFO | 0x04000000 /* SA_RESTORER */, own_sigreturn, 0 };

	CHECK(syscall(SYS_rt_sigaction, signo, &action, NULL, sizeof(action.mask)) == 0,
	      "rt_sigaction");
}

#endif

/* ---- coroutines ----------------------------------------------------------------------------- */

static ucontext_t coroutine_caller, coroutine;

static void coroutine_main(void)
{
	(void)recurse(&captured, 3);
}

/*
 * A function of makecontext returns to the first byte of glibc's __start_context, which was never
 * called: the padding before it belongs to the row of another function.
 */
static void test_a_coroutine_ends_where_it_begins(struct uw_space *space, struct uw_worker *worker)
{
	enum { SIZE = 1 << 18 };
	struct uw_frame frames[DEPTH];
	struct uw_stack stack = { .frames = frames, .max_frames = DEPTH };
	uint8_t *bytes =
		mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t top = stack_top;
	const struct uw_frame *last;

	CHECK(bytes != MAP_FAILED && getcontext(&coroutine) == 0, "a stack for it");
	coroutine.uc_stack.ss_sp = bytes;
	coroutine.uc_stack.ss_size = SIZE;
	coroutine.uc_link = &coroutine_caller;
	makecontext(&coroutine, coroutine_main, 0);
	stack_top = (uint64_t)(uintptr_t)bytes + SIZE;
	captured.n_frames = 0;
	CHECK(swapcontext(&coroutine_caller, &coroutine) == 0, "it ran");
	stack_top = top;
	for (int i = 0; i < 2; i++) { /* from the caches too */
		uw_walk(space, worker, &captured.thread, &stack);
		CHECK(stack.stop == UW_STOP_ROOT, uw_stop_name(stack.stop));
		CHECK(stack.n_frames > 2, "frames");
		last = &frames[stack.n_frames - 1];
		CHECK(last->exact && last->lookup == last->pc, "its entry");
		CHECK(!frames[stack.n_frames - 2].exact, "the function that it was made for");
	}
	free((void *)captured.region.bytes);
	(void)munmap(bytes, SIZE);
}

/* ---- threads that begin --------------------------------------------------------------------- */

#ifdef __x86_64__

/* Return the address in the C library after the system call with this number, which clone makes. */
static uint64_t behind_call(uint8_t number, uint8_t second)
{
	const uint8_t call[] = { 0xb8, number, second, 0, 0, 0x0f, 0x05, 0x48, 0x85, 0xc0 };
	uint64_t start, end, at = 0;
	char line[512], prot[8];
	FILE *maps = fopen("/proc/self/maps", "re");

	while (maps && !at && fgets(line, sizeof(line), maps)) {
		const uint8_t *found;

		/*
		 * The child of fork stays on its stack; there the result is compared, not tested.
		 */
		if (!strstr(line, "/libc.so") ||
		    sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s", &start, &end, prot) != 3 ||
		    prot[2] != 'x')
			continue;
		found = memmem((const void *)(uintptr_t)start, end - start, call, sizeof(call));
		at = found ? (uint64_t)(uintptr_t)found + 7 : 0;
	}
	if (maps)
		(void)fclose(maps);
	return at;
}

/* The C library puts the function to call on a child's stack: it has not been called yet. */
static void test_a_child_has_no_caller(struct uw_space *space, struct uw_worker *worker)
{
	enum { RAX = 0, RSI = 4, STACK = 0x700000000000 };
	const uint64_t places[] = { behind_call(56, 0), behind_call(0xb3, 1) };
	uint64_t words[8] = { (uint64_t)(uintptr_t)&compare_for_sort + 16 };
	struct uw_region region = { .addr = STACK, .size = sizeof(words), .bytes = (void *)words };
	struct uw_memory memory = { .regions = &region, .n_regions = 1 };
	static const uint8_t offs[] = { 0, 3, 5 }; /* test, jl, jz */
	struct uw_frame frames[DEPTH];

	for (size_t i = 0; i < 2; i++) {
		for (size_t j = 0; j < sizeof(offs) / sizeof(offs[0]); j++) {
			struct uw_thread thread = { .read = uw_memory_read, .ctx = &memory };
			struct uw_stack stack = { .frames = frames, .max_frames = DEPTH };

			CHECK(places[i] != 0, "clone and clone3 of the C library");
			thread.regs.known = (1 << UW_X86_64_REGS) - 1;
			thread.regs.value[UW_X86_64_RIP] = places[i] + offs[j];
			thread.regs.value[UW_X86_64_RSP] = STACK;
			thread.regs.value[RSI] = STACK;
			for (int again = 0; again < 2; again++) { /* from the caches too */
				uw_walk(space, worker, &thread, &stack);
				CHECK(stack.stop == UW_STOP_ROOT && stack.n_frames == 1,
				      "the child");
			}
			thread.regs.value[RAX] = 4321;
			uw_walk(space, worker, &thread, &stack);
			CHECK(stack.n_frames > 1 && frames[1].pc == words[0], "the parent");
		}
	}
}

#endif

/* ---- many at once --------------------------------------------------------------------------- */

static bool same_stack(const struct uw_stack *a, const struct uw_stack *b)
{
	bool same =
		a->n_frames == b->n_frames && a->stop == b->stop && a->stop_addr == b->stop_addr;

	for (size_t i = 0; same && i < a->n_frames; i++) {
		const struct uw_frame *x = &a->frames[i], *y = &b->frames[i];

		same = x->pc == y->pc && x->lookup == y->lookup && x->cfa == y->cfa &&
		       x->sp == y->sp && x->mapping == y->mapping && x->stepper == y->stepper &&
		       x->confidence == y->confidence && x->exact == y->exact &&
		       x->signal == y->signal;
	}
	return same;
}

#define JOBS   100
#define ROUNDS 180

/*
 * Stacks of all lengths, whole and cut, a few frames of some, no registers of others, each in a
 * space of its own. In the end there are so many spaces that the worker's tags for them run out
 * during walks.
 */
static void test_many_at_once_have_the_same_frames(struct uw_space *space, struct uw_worker *worker,
						   const struct capture *plain,
						   const struct capture *in_signal)
{
	static struct uw_frame frames[JOBS][DEPTH], alone[DEPTH];
	static struct uw_thread threads[JOBS];
	static struct uw_stack stacks[JOBS];
	struct uw_region regions[JOBS];
	struct uw_memory memories[JOBS];
	struct uw_space *spaces[JOBS];
	struct uw_job jobs[JOBS];
	int wrong = 0;

	for (size_t i = 0; i < JOBS; i++) {
		const struct capture *c = i % 3 ? plain : in_signal;

		if (uw_space_copy(space, &spaces[i]))
			exit(1);
		regions[i] = c->region;
		if (i % 4)
			regions[i].size = 136 + c->region.size * i / JOBS / 64 * 64;
		memories[i] = (struct uw_memory){ .regions = &regions[i], .n_regions = 1 };
		threads[i] = c->thread;
		threads[i].ctx = &memories[i];
		if (i % 11 == 10)
			threads[i].regs.known = 0;
		stacks[i].frames = frames[i];
		stacks[i].max_frames = i % 7 ? DEPTH : i % 5;
		jobs[i] = (struct uw_job){ spaces[i], &threads[i], &stacks[i] };
	}
	uw_walk_many(worker, jobs, 0);
	for (size_t round = 0; round < ROUNDS; round++) {
		size_t n = round < 20 ? round : JOBS;

		uw_walk_many(worker, jobs, n);
		for (size_t i = 0; i < n && round % 8 == 3; i++) {
			struct uw_stack one = { .frames = alone,
						.max_frames = stacks[i].max_frames };

			uw_walk(spaces[i], worker, &threads[i], &one);
			wrong += !same_stack(&one, &stacks[i]);
		}
	}
	CHECK(wrong == 0, "walked alone and among others");
	for (size_t i = 0; i < JOBS; i++)
		uw_space_free(spaces[i]);
}

int main(void)
{
	struct uw_space *space;
	struct uw_worker *worker;
	struct capture plain = { .n_frames = 0 };
	int numbers[3] = { 3, 1, 2 };
	space = own_space();
	if (uw_worker_new(&worker))
		return 1;
	(void)recurse(&plain, 9);
	compare("plain", space, worker, &plain, 0);
	compare("plain, from the caches", space, worker, &plain, 0);
#ifdef __x86_64__
	test_vfork_keeps_its_return_address_in_a_register(space, worker, &plain);
#endif
	handle(SIGUSR1, on_signal);
	qsort(numbers, 3, sizeof(numbers[0]), compare_for_sort);
	compare("signal", space, worker, &captured, 1);

	test_many_at_once_have_the_same_frames(space, worker, &plain, &captured);
	free((void *)plain.region.bytes);
	free((void *)captured.region.bytes);
	test_a_coroutine_ends_where_it_begins(space, worker);
#ifdef __x86_64__
	test_a_child_has_no_caller(space, worker);
#endif

	uw_worker_free(worker);
	uw_space_free(space);
	while (n_names)
		free(names[--n_names]);
	return check_done();
}

#else

int main(void)
{
	(void)puts("walks its own stack: x86_64 and aarch64 only");
	return 77;
}

#endif
