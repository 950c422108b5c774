/*
 * tests/unit/test_ended.c: tests that a long recording forgets what ended processes left: after three
 * times as many programs, it has no more modules, names and bytes than after the first.
 */
#include "agent/clock.h"
#include "agent/limits.h"
#include "agent/opener/opener.h"
#include "agent/pipeline/fold.h"
#include "agent/pipeline/names.h"
#include "agent/pipeline/pipeline.h"
#include "agent/process/modules.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent/limits.h"
#include "agent/log.h"
#include "tests/asan.h"
#include "tests/check.h"

#if defined(WITH_ASAN)
/* As in <sanitizer/allocator_interface.h>, which comes with clang only. */
size_t __sanitizer_get_current_allocated_bytes(void);
#endif

enum {
	PROGRAMS = 3500, /* programs of one load: more than are known without a process */
	WINDOW = 500,	 /* of a profile */
};

static char dir[] = "/tmp/ended.XXXXXX";
static struct source_event event_kind = { .name = "cpu", .type = "cpu", .unit = "nanoseconds" };
/* Open a program as the capture process does, which holds the files of new processes open. */
static int open_mapped(void *ctx, uint32_t major, uint32_t minor, uint64_t inode, const char *path,
		       int *fd)
{
	(void)ctx;
	(void)major;
	(void)minor;
	(void)inode;
	*fd = open(path, O_RDONLY | O_CLOEXEC);
	return *fd >= 0 ? 0 : -ENOENT;
}

static struct source_info info = { .machine = EM_X86_64,
				   .kind = "live",
				   .events = &event_kind,
				   .n_events = 1,
				   .file = open_mapped };
static struct pipeline *pipeline;
static struct names *names;
static uint64_t now = 1000, code_off, code_size;

/* Return how many bytes are allocated. */
static size_t bytes_used(void)
{
#if defined(WITH_ASAN)
	return __sanitizer_get_current_allocated_bytes();
#else
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
#endif
}

static void put(struct event event)
{
	event.time_ns = now += 1000000; /* 1 ms: a task is remembered for 2 s after its end */
	CHECK(!pipeline_event(pipeline, &event), "event");
}

static int read_none(void *ctx, uint64_t addr, void *out, size_t size)
{
	(void)ctx;
	(void)addr;
	(void)out;
	(void)size;
	return -1;
}

static void map(uint32_t pid, uint64_t start, const char *path, uint64_t inode)
{
	put((struct event){ .type = EVENT_MAPPING,
			    .pid = pid,
			    .tid = pid,
			    .mapping = { .start = start,
					 .end = start + code_size,
					 .off = inode ? code_off : 0,
					 .inode = inode,
					 .prot = PROT_READ | PROT_EXEC,
					 .path = path } });
}

static void sample(uint32_t pid, uint64_t pc)
{
	struct event event = { .type = EVENT_SAMPLE,
			       .pid = pid,
			       .tid = pid,
			       .sample = {
				       .period = 1, .has_user_regs = true, .read = read_none } };

	event.sample.regs = (struct uw_regs){ .known = UINT64_C(1) << UW_X86_64_RSP |
						       UINT64_C(1) << UW_X86_64_RIP };
	event.sample.regs.value[UW_X86_64_RIP] = pc;
	event.sample.regs.value[UW_X86_64_RSP] = 0x7ffd00000000;
	put(event);
}

/* Run one program: its own file, generated code and a name of its own. */
static void run_program(unsigned int i)
{
	const uint32_t pid = 1u << 23 | i; /* no process has such a number */
	const uint64_t start = 0x400000, jit = 0x7f0000000000;
	char first[64], path[64], comm[16];

	(void)snprintf(first, sizeof(first), "%s/program", dir);
	(void)snprintf(path, sizeof(path), "%s/%u", dir, i);
	(void)snprintf(comm, sizeof(comm), "program-%u", i);
	CHECK(!link(first, path), "link");
	put((struct event){ .type = EVENT_FORK, .pid = pid, .tid = pid, .fork = { 1, 1 } });
	put((struct event){ .type = EVENT_EXEC, .pid = pid, .tid = pid });
	put((struct event){ .type = EVENT_COMM, .pid = pid, .tid = pid, .comm = { comm } });
	map(pid, start, path, i + 1000);
	map(pid, jit, "", 0);
	sample(pid, start + code_size / 2);
	sample(pid, jit + 64);
	put((struct event){ .type = EVENT_EXIT, .pid = pid, .tid = pid });
	CHECK(!unlink(path), "unlink");
}

/* End a window of the profile: name it, as the writer does. */
static void end_window(void)
{
	struct profile *profile;
	struct name name;

	if (pipeline_take(pipeline, &profile)) {
		CHECK(false, "profile");
		return;
	}
	names_prepare(names, profile);
	for (size_t i = 0; i < profile->n_locations; i++)
		names_find(names, &profile->locations[i], &name);
	CHECK(profile->n_entries == (size_t)2 * WINDOW, "every program is counted by its own name");
	names_bound(&names, now_ns());
	profile_free(profile);
}

static void load(unsigned int from)
{
	for (unsigned int i = from; i < from + PROGRAMS; i++) {
		run_program(i);
		if (i % WINDOW == WINDOW - 1)
			end_window();
	}
}

/*
 * Let a process map memory for code that it generates, each time elsewhere, and unmap it, of which no
 * event tells.
 */
static void generate(uint32_t pid, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		const uint64_t start = 0x100000000 + (uint64_t)(i * 2654435761u) * 8 * code_size;

		map(pid, start, "", 0);
		if (i % 1000 == 0)
			sample(pid, start + 64);
	}
}

/* A program that generates code has one module, and as many mappings as a process may have. */
static void test_a_jit(void)
{
	const uint32_t pid = 1u << 23;
	size_t known, used;

	limits.mappings =
		4096; /* for speed; the default takes as much memory as so many mappings */
	generate(pid, 50000);
	known = modules_known(pipeline_modules(pipeline));
	used = bytes_used();
	generate(pid, 100000);
	(void)printf("JIT: modules %zu, then %zu; bytes %zu, then %zu\n", known,
		     modules_known(pipeline_modules(pipeline)), used, bytes_used());
	CHECK(modules_known(pipeline_modules(pipeline)) == known, "the same module");
	CHECK(bytes_used() < used + used / 8, "no more memory than after 50,000 mappings");
	CHECK(limits_counts.mappings > 140000, "older mappings were forgotten, and counted");
}

/* Copy a program, and find its code. */
static void make_program(void)
{
	char path[64], command[128];
	struct uw_object *object = NULL;
	const struct uw_segment *segments;
	size_t n = 0;
	int fd;

	(void)snprintf(path, sizeof(path), "%s/program", dir);
	(void)snprintf(command, sizeof(command), "cp /bin/true %s", path);
	CHECK(!system(command), "copy");
	fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && !uw_object_open(fd, 0, &object), "an ELF file");
	if (object) {
		segments = uw_object_segments(object, &n);
		for (size_t i = 0; i < n; i++)
			if (segments[i].flags & PF_X) {
				code_off = segments[i].off & ~UINT64_C(4095);
				code_size = (segments[i].file_size + 4095) & ~UINT64_C(4095);
			}
		uw_object_put(object);
	}
	(void)close(fd);
	CHECK(code_size, "code");
}

static void remove_program(void)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "%s/program", dir);
	CHECK(!unlink(path) && !rmdir(dir), "remove");
}

/* Cached symbols are begun again when they take more bytes than the limit. */
static void test_symbols_are_bounded_by_bytes(void)
{
	const uint64_t reached = limits_counts.symbol_bytes, most = limits.symbol_bytes;

	CHECK(!reached, "small tables stay");
	limits.symbol_bytes = 1;
	for (unsigned int i = 0; i < WINDOW; i++)
		run_program(3 * PROGRAMS + i);
	end_window();
	CHECK(limits_counts.symbol_bytes == reached + 1, "tables of a window go");
	limits.symbol_bytes = most;
	for (unsigned int i = 0; i < WINDOW; i++)
		run_program(4 * PROGRAMS + i);
	end_window();
	CHECK(limits_counts.symbol_bytes == reached + 1, "the next ones stay");
}

int main(void)
{
	const struct pipeline_options options = { .live = true, .fold = true };
	struct rlimit limit;
	size_t known, used;

	log_quiet(true);
	if (!getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur < 4096 && limit.rlim_max >= 4096) {
		limit.rlim_cur = 4096;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
	CHECK(mkdtemp(dir), "mkdtemp");
	make_program();
	CHECK(!pipeline_new(&options, &info, &pipeline) &&
		      !names_new(pipeline_opener(pipeline), &info, true, &names),
	      "set up");
	load(0);
	known = modules_known(pipeline_modules(pipeline));
	used = bytes_used();
	load(PROGRAMS);
	load(2 * PROGRAMS);
	(void)printf("modules %zu, then %zu; bytes %zu, then %zu\n", known,
		     modules_known(pipeline_modules(pipeline)), used, bytes_used());
	/* Each program has two modules. */
	CHECK(modules_known(pipeline_modules(pipeline)) < PROGRAMS, "old modules are forgotten");
	CHECK(modules_count(pipeline_modules(pipeline)) < 2 * PROGRAMS, "their ids are used again");
	/* The sum goes up and down with what is being collected. Without forgetting, it doubles. */
	CHECK(bytes_used() < used + used / 4, "no more memory than after the first load");
	test_symbols_are_bounded_by_bytes();
	test_a_jit();
	names_free(names);
	CHECK(pipeline_free(pipeline), "free");
	remove_program();
	return check_done();
}
