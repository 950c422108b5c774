/* tests/unit/test_process.c: tests how mappings, forks, execs and exits are replayed. */
#include "agent/process/process.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/hash.h"
#include "agent/limits.h"
#include "agent/log.h"
#include "tests/check.h"

static struct opener *opener;
static struct modules *modules;
static struct processes *processes;
static struct source_info info;
static uint64_t now;

static void begin(void)
{
	const struct opener_options options = { 0 };

	now = 1000;
	CHECK(!opener_new(&options, &opener), "opener");
	CHECK(!modules_new(opener, &info, false, &modules), "modules");
	CHECK(!processes_new(EM_X86_64, modules, &processes), "processes");
}

static void end(void)
{
	processes_free(processes);
	modules_free(modules);
	opener_free(opener);
}

static void put(struct event event)
{
	event.time_ns = now++;
	CHECK(!processes_event(processes, &event), "event");
}

static void map_as(uint32_t pid, uint64_t start, uint64_t end_addr, uint64_t off, const char *path,
		   uint32_t prot)
{
	put((struct event){ .type = EVENT_MAPPING,
			    .pid = pid,
			    .tid = pid,
			    .mapping = { .start = start,
					 .end = end_addr,
					 .off = off,
					 .prot = prot,
					 .path = path } });
}

static void map(uint32_t pid, uint64_t start, uint64_t end_addr, uint64_t off, const char *path)
{
	map_as(pid, start, end_addr, off, path, PROT_READ | PROT_EXEC);
}

static void fork_task(uint32_t ppid, uint32_t ptid, uint32_t pid, uint32_t tid)
{
	put((struct event){ .type = EVENT_FORK,
			    .pid = pid,
			    .tid = tid,
			    .fork = { .parent_pid = ppid, .parent_tid = ptid } });
}

static void comm(uint32_t pid, uint32_t tid, const char *name)
{
	put((struct event){ .type = EVENT_COMM, .pid = pid, .tid = tid, .comm = { name } });
}

static void task_exit(uint32_t pid, uint32_t tid)
{
	put((struct event){ .type = EVENT_EXIT, .pid = pid, .tid = tid });
}

static struct thread thread_of(uint32_t pid, uint32_t tid)
{
	struct thread thread = { 0 };

	CHECK(!processes_thread(processes, pid, tid, &thread), "thread");
	return thread;
}

/* Return "path+offset" of the mapping there, or "-". */
static const char *at(uint32_t pid, uint64_t addr)
{
	static char text[256];
	struct thread thread = thread_of(pid, pid);
	const struct uw_mapping *m = uw_space_find(thread.space, addr);
	const struct module *module = m ? m->user : NULL;

	if (!module)
		return "-";
	(void)snprintf(text, sizeof(text), "%s+%llx", module->path,
		       (unsigned long long)(addr - m->start + m->off));
	return text;
}

static void test_a_later_mapping_splits_an_earlier_one(void)
{
	begin();
	map(1, 0x10000, 0x20000, 0x1000, "/a");
	map(1, 0x14000, 0x16000, 0x9000, "/b");
	CHECK(!strcmp(at(1, 0x13fff), "/a+4fff"), "before it");
	CHECK(!strcmp(at(1, 0x14000), "/b+9000"), "inside");
	CHECK(!strcmp(at(1, 0x16000), "/a+7000"), "behind it the offset still counts");
	map_as(1, 0x12000, 0x13000, 0, "//anon", PROT_READ | PROT_WRITE);
	CHECK(!strcmp(at(1, 0x12800), "-"), "data in its place: no code there any more");
	CHECK(!strcmp(at(1, 0x13000), "/a+4000"), "and the rest stays");
	CHECK(!strcmp(at(1, 0x20000), "-"), "the end is past the last byte");
	end();
}

static void test_fork_inherits_and_exec_clears(void)
{
	begin();
	fork_task(0, 0, 10, 10);
	comm(10, 10, "shell");
	map(10, 0x1000, 0x2000, 0, "/bin/sh");
	fork_task(10, 10, 11, 11);
	CHECK(!strcmp(at(11, 0x1800), "/bin/sh+800"), "the child has its parent's mappings");
	CHECK(!strcmp(thread_of(11, 11).comm, "shell"), "and name");
	put((struct event){ .type = EVENT_EXEC, .pid = 11, .tid = 11 });
	comm(11, 11, "ls");
	map(11, 0x5000, 0x6000, 0, "/bin/ls");
	CHECK(!strcmp(at(11, 0x1800), "-"), "gone with the old image");
	CHECK(!strcmp(at(11, 0x5800), "/bin/ls+800"), "the new image");
	CHECK(!strcmp(at(10, 0x1800), "/bin/sh+800"), "the parent is as it was");
	CHECK(!strcmp(thread_of(10, 10).comm, "shell"), "and so is its name");
	end();
}

/* Return whether a process's only label is its program; NULL: there is no label. */
static bool runs(uint32_t pid, const char *exe)
{
	const char *labels = thread_of(pid, pid).labels;
	struct label_item item;

	if (!labels_next(&labels, &item))
		return !exe;
	return exe && !strcmp(item.key, "exe") && !strcmp(item.value, exe) &&
	       !labels_next(&labels, &item);
}

static void test_the_program_is_the_first_code_that_is_mapped(void)
{
	begin();
	fork_task(0, 0, 10, 10);
	CHECK(runs(10, NULL), "nothing is mapped");
	map_as(10, 0x500, 0x600, 0, "/etc/data", PROT_READ);
	CHECK(runs(10, NULL), "data");
	map(10, 0x1000, 0x2000, 0, "/bin/sh");
	map(10, 0x3000, 0x4000, 0, "/lib/ld.so");
	CHECK(runs(10, "/bin/sh"), "not its linker");
	fork_task(10, 10, 11, 11);
	CHECK(runs(11, "/bin/sh"), "a child's is the parent's");
	put((struct event){ .type = EVENT_EXEC, .pid = 11, .tid = 11 });
	CHECK(runs(11, NULL), "until it executes another");
	map_as(11, 0x7000, 0x8000, 0, "[vdso]", PROT_READ | PROT_EXEC);
	map(11, 0x5000, 0x6000, 0, "/bin/l\ns");
	CHECK(runs(11, "/bin/l s") || runs(11, "/bin/l?s") || runs(11, "/bin/l\xef\xbf\xbds"),
	      "another, without control characters");
	CHECK(runs(10, "/bin/sh"), "the parent's is as it was");
	end();
}

static void test_what_a_program_says_of_itself_is_its_process_s(void)
{
	struct labels said = { .n = 0 };

	begin();
	CHECK(!processes_context(processes, 10), "no process");
	CHECK(processes_set_context(processes, 10, &said) == -ENOENT, "no process");
	fork_task(0, 0, 10, 10);
	map(10, 0x1000, 0x2000, 0, "/bin/shop");
	CHECK(!processes_context(processes, 10)->born_ns, "it was there before");
	CHECK(labels_add(&said, NULL, "service.name", "shop"), "a label");
	CHECK(!processes_set_context(processes, 10, &said), "set");
	CHECK(!strcmp(thread_of(10, 10).labels, "exe\1/bin/shop\2service.name\1shop\2"), "both");
	fork_task(10, 10, 11, 11);
	CHECK(runs(11, "/bin/shop"), "a child says nothing of itself");
	CHECK(processes_context(processes, 11)->born_ns, "and is new");
	put((struct event){ .type = EVENT_EXEC, .pid = 10, .tid = 10 });
	CHECK(runs(10, NULL) && processes_context(processes, 10)->born_ns, "another program");
	end();
}

static void test_threads_share_mappings_and_have_names(void)
{
	begin();
	fork_task(0, 0, 20, 20);
	comm(20, 20, "server");
	fork_task(20, 20, 20, 21);
	comm(20, 21, "worker");
	fork_task(20, 21, 20, 22);
	map(20, 0x1000, 0x2000, 0, "/srv");
	CHECK(thread_of(20, 21).space == thread_of(20, 20).space, "one space");
	CHECK(!strcmp(thread_of(20, 21).comm, "worker"), "own name");
	CHECK(!strcmp(thread_of(20, 22).comm, "worker"), "named after the thread that made it");
	CHECK(!strcmp(thread_of(20, 21).process_comm, "server"), "the process's name");
	task_exit(20, 20); /* the leader may end first */
	now += UINT64_C(10000000000);
	comm(20, 21, "worker");
	CHECK(!strcmp(at(20, 0x1800), "/srv+800"), "the others go on");
	task_exit(20, 21);
	task_exit(20, 22);
	task_exit(20, 20);
	CHECK(processes_count(processes) == 1, "late samples still find it");
	now += UINT64_C(10000000000);
	comm(99, 99, "tick");
	CHECK(processes_count(processes) == 1, "then it is forgotten");
	end();
}

static void test_a_number_used_again_is_another_process(void)
{
	begin();
	fork_task(0, 0, 30, 30);
	comm(30, 30, "old");
	map(30, 0x1000, 0x2000, 0, "/old");
	fork_task(30, 30, 30, 31);
	task_exit(30, 31);
	task_exit(30, 30);
	fork_task(1, 1, 30, 30);
	comm(30, 30, "new");
	map(30, 0x5000, 0x6000, 0, "/new");
	CHECK(!strcmp(at(30, 0x1800), "-"), "nothing of the old one");
	now += UINT64_C(10000000000);
	comm(99, 99, "tick");
	CHECK(!strcmp(at(30, 0x5800), "/new+800"), "the old one's end is not the new one's");
	CHECK(!strcmp(thread_of(30, 30).comm, "new"), "name");
	/* A thread's number may become a process's number without an exit event. */
	fork_task(30, 30, 30, 32);
	fork_task(1, 1, 32, 32);
	CHECK(thread_of(32, 32).pid == 32, "a process of its own");
	end();
}

static void test_names_of_mappings_tell_their_kind(void)
{
	static const struct {
		const char *path;
		enum module_kind kind;
	} cases[] = {
		{ "/usr/bin/x", MODULE_FILE },	  { "[vdso]", MODULE_VDSO },
		{ "//anon", MODULE_JIT },	  { "", MODULE_JIT },
		{ "/memfd:jit", MODULE_JIT },	  { "/dev/zero", MODULE_JIT },
		{ "[heap]", MODULE_JIT },	  { "[stack]", MODULE_JIT },
		{ "anon_inode:[x]", MODULE_JIT }, { "/anon_hugepage", MODULE_JIT },
		{ "[vsyscall]", MODULE_OTHER },	  { "[uprobes]", MODULE_OTHER },
	};

	begin();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct event_mapping m = { .start = 1, .end = 2, .path = cases[i].path };
		const struct module *module = modules_get(modules, 1, &m);

		CHECK(module && module->kind == cases[i].kind, cases[i].path);
		CHECK(modules_get(modules, 1, &m) == module, "the same again");
		CHECK((modules_get(modules, 2, &m) == module) == (cases[i].kind != MODULE_JIT),
		      "generated code is its process's own");
	}
	end();
}

/* A snapshot can have a file named like a mapping that has none. */
static void test_a_file_is_no_mapping_of_its_name(void)
{
	static const char *const paths[] = { "[vdso]", "[vsyscall]" };

	begin();
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		struct event_mapping m = { .start = 1, .end = 2, .path = paths[i] };
		const struct module *plain = modules_get(modules, 1, &m), *file;

		m.file = true;
		file = modules_get(modules, 1, &m);
		CHECK(file != plain && file->kind == MODULE_FILE, paths[i]);
		CHECK(modules_get(modules, 1, &m) == file, "the same again");
		m.file = false;
		CHECK(modules_get(modules, 1, &m) == plain, "and so is the mapping");
	}
	end();
}

static void test_a_file_is_used_only_with_its_build_id(void)
{
	char self[256] = "";
	struct event_mapping m = { .start = 1, .end = 2, .path = self };
	struct uw_mapping mapping = { .start = 1, .end = 2 };
	struct uw_object *object;
	struct module *plain, *told, *wrong;

	begin();
	CHECK(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0, "own name");
	mapping.user = plain = modules_get(modules, 1, &m);
	object = modules_resolve(modules, &mapping);
	CHECK(object && plain->state == MODULE_USABLE && plain->build_id.size,
	      "its build-id is read from the file");
	uw_object_put(object);

	m.build_id = plain->build_id;
	mapping.user = told = modules_get(modules, 1, &m);
	CHECK(told != plain, "told in another way");
	object = modules_resolve(modules, &mapping);
	CHECK(object && object == plain->object, "but the same file, parsed once");
	CHECK(module_canonical(told) == plain, "and counted once");
	uw_object_put(object);

	m.build_id.bytes[0] ^= 1;
	mapping.user = wrong = modules_get(modules, 1, &m);
	log_quiet(true);
	CHECK(!modules_resolve(modules, &mapping), "another build-id: not used");
	CHECK(wrong->state == MODULE_REPLACED && wrong->error == -ESTALE, "and said so");
	CHECK(module_canonical(wrong) == wrong, "it stays itself");

	m = (struct event_mapping){ .start = 1, .end = 2, .path = "/nonexistent/file" };
	mapping.user = wrong = modules_get(modules, 1, &m);
	CHECK(!modules_resolve(modules, &mapping) && wrong->state == MODULE_MISSING, "missing");
	m.path = "/etc/passwd";
	mapping.user = wrong = modules_get(modules, 1, &m);
	CHECK(!modules_resolve(modules, &mapping) && wrong->state == MODULE_DAMAGED, "not ELF");
	end();
}

static void test_the_vdso_is_this_kernels_only_if_it_is_the_one(void)
{
	const struct event_mapping m = { .start = 1, .end = 2, .path = "[vdso]" };
	struct event_mapping told = m;
	struct uw_mapping mapping = { .start = 1, .end = 2 };
	const struct module *module;
	struct uw_object *object;

	info.same_boot = false;
	begin();
	mapping.user = modules_get(modules, 1, &m);
	CHECK(!modules_resolve(modules, &mapping), "nothing says that it is");
	end();
	info.same_boot = true;
	begin();
	mapping.user = modules_get(modules, 1, &m);
	object = modules_resolve(modules, &mapping);
	CHECK(object, "recorded while this kernel ran");
	module = mapping.user;
	told.build_id = module->build_id;
	CHECK(told.build_id.size, "it has a build-id");
	uw_object_put(object);
	end();
	info.same_boot = false;
	begin();
	mapping.user = modules_get(modules, 1, &told);
	object = modules_resolve(modules, &mapping);
	CHECK(object, "of another boot, but with its build-id");
	uw_object_put(object);
	end();
	info.same_kernel = true;
	begin();
	mapping.user = modules_get(modules, 1, &m);
	object = modules_resolve(modules, &mapping);
	CHECK(object, "under this kernel, though nobody says where it lay");
	uw_object_put(object);
	end();
	info.same_kernel = false;
	told.build_id.bytes[3] ^= 0x10;
	info.same_boot = true;
	begin();
	mapping.user = modules_get(modules, 1, &told);
	CHECK(!modules_resolve(modules, &mapping), "with another");
	end();
}

static void test_many_processes_come_and_go(void)
{
	begin();
	map(1, 0x1000, 0x2000, 0, "/init");
	for (uint32_t i = 0; i < 5000; i++) {
		uint32_t pid = 100 + i % 700; /* numbers come again */

		fork_task(1, 1, pid, pid);
		fork_task(pid, pid, pid, pid + 10000);
		if (i % 3)
			task_exit(pid, pid + 10000);
		task_exit(pid, pid);
		now += 20000000;
	}
	CHECK(processes_count(processes) <= 800, "what ended does not pile up");
	CHECK(!strcmp(at(1, 0x1800), "/init+800"), "the first is still there");
	end();
}

static void test_forks_of_large_processes_are_bounded(void)
{
	enum { MAPPINGS = 100000, FORKS = 60 };
	const struct limits defaults = limits;
	uint32_t with = 0;

	limits.mappings = 2 * MAPPINGS;
	begin();
	for (uint32_t i = 0; i < MAPPINGS; i++)
		map(1, 0x10000 + i * 0x2000ull, 0x11000 + i * 0x2000ull, 0, "/a");
	for (uint32_t i = 0; i < FORKS; i++)
		fork_task(1, 1, 100 + i, 100 + i);
	for (uint32_t i = 0; i < FORKS; i++)
		with += strcmp(at(100 + i, 0x10800), "-") != 0;
	CHECK(with >= 35 && with <= 42, "4 Mi mappings in all");
	CHECK(!strcmp(at(100, 0x10800), "/a+800"), "the first child has all of them");
	CHECK(!strcmp(at(100 + FORKS - 1, 0x10800), "-"), "the last one none");
	put((struct event){ .type = EVENT_EXEC, .pid = 100, .tid = 100 });
	put((struct event){ .type = EVENT_EXEC, .pid = 101, .tid = 101 });
	fork_task(1, 1, 900, 900);
	CHECK(!strcmp(at(900, 0x10800), "/a+800"), "where others went there is room again");
	CHECK(limits_counts.all_mappings, "what was left out is counted");
	end();
	limits = defaults;
}

static size_t count_mappings(uint32_t pid)
{
	return uw_space_n_mappings(thread_of(pid, pid).space);
}

static void test_mappings_of_one_process_are_bounded(void)
{
	enum { MOST = 100 };
	const struct limits defaults = limits;
	uint64_t start = 0x10000000;

	limits.mappings = MOST;
	limits_counts.mappings = 0;
	begin();
	map(1, 0x1000, 0x2000, 0, "/a");
	map(1, 0x3000, 0x4000, 0, "/b");
	for (unsigned int i = 0; i < 10 * MOST; i++, start += 0x2000)
		map(1, start, start + 0x1000, 0, "");
	CHECK(count_mappings(1) <= MOST && count_mappings(1) >= MOST - 2, "not more");
	CHECK(limits_counts.mappings >= 9 * MOST, "each that went is counted");
	CHECK(!strcmp(at(1, 0x1000), "/a+0") && !strcmp(at(1, 0x3000), "/b+0"),
	      "files with code stay");
	CHECK(!strcmp(at(1, start - 0x2000), "[jit]+0"), "the newest is there");
	/* Each of these splits a mapping in two. */
	map(1, 0x40000000, 0x80000000, 0, "/c");
	for (uint64_t i = 0; i < 10 * MOST; i++) {
		map(1, 0x40001000 + i * 0x2000, 0x40002000 + i * 0x2000, 0, "/d");
		CHECK(count_mappings(1) <= MOST, "nor by splitting");
	}
	end();
	limits = defaults;
}

static void test_processes_are_bounded(void)
{
	enum { MOST = 50 };
	const struct limits defaults = limits;

	limits.processes = MOST;
	limits_counts.processes = 0;
	begin();
	/* The notices of their ends are lost. */
	for (uint32_t i = 0; i < 10 * MOST; i++) {
		fork_task(1, 1, 100 + i, 100 + i);
		fork_task(100 + i, 100 + i, 100 + i, 10000 + i);
		map(100 + i, 0x1000, 0x2000, 0, "/a");
		CHECK(!strcmp(at(100 + i, 0x1000), "/a+0"), "the newest is there");
	}
	CHECK(processes_count(processes) <= MOST, "not more");
	CHECK(limits_counts.processes >= 9 * MOST, "each that went is counted");
	end();
	limits = defaults;
}

static void test_names_that_nobody_has_are_forgotten(void)
{
	const struct limits defaults = limits;
	const char *kept, *marked;
	char name[16];

	limits.thread_names = 100;
	limits_counts.thread_names = 0;
	begin();
	comm(1, 1, "profiled");
	marked = thread_of(1, 1).comm;
	comm(1, 1, "first");
	kept = thread_of(1, 1).comm;
	comm(1, 5, "a thread");
	for (unsigned int i = 0; !processes_names_are_many(processes); i++) {
		(void)snprintf(name, sizeof(name), "name-%u", i);
		comm(2, 2, name);
	}
	strings_mark(marked);
	processes_forget_names(processes);
	CHECK(!processes_names_are_many(processes) && limits_counts.thread_names > 90, "gone");
	CHECK(thread_of(1, 1).comm == kept && !strcmp(kept, "first"), "a thread's name stays");
	CHECK(!strcmp(thread_of(1, 5).comm, "a thread"), "also of another thread");
	CHECK(!strcmp(thread_of(2, 2).comm, name), "and the last");
	comm(3, 3, "profiled");
	CHECK(thread_of(3, 3).comm == marked && !strcmp(marked, "profiled"), "and a marked name");
	comm(1, 1, "second");
	comm(3, 3, "second");
	processes_forget_names(processes);
	comm(4, 4, "second");
	CHECK(thread_of(4, 4).comm == thread_of(1, 1).comm, "names are found again");
	end();
	limits = defaults;
}

int main(void)
{
	test_a_later_mapping_splits_an_earlier_one();
	test_fork_inherits_and_exec_clears();
	test_the_program_is_the_first_code_that_is_mapped();
	test_what_a_program_says_of_itself_is_its_process_s();
	test_threads_share_mappings_and_have_names();
	test_a_number_used_again_is_another_process();
	test_names_of_mappings_tell_their_kind();
	test_a_file_is_no_mapping_of_its_name();
	test_a_file_is_used_only_with_its_build_id();
	test_the_vdso_is_this_kernels_only_if_it_is_the_one();
	test_many_processes_come_and_go();
	test_forks_of_large_processes_are_bounded();
	test_mappings_of_one_process_are_bounded();
	test_processes_are_bounded();
	test_names_that_nobody_has_are_forgotten();
	return check_done();
}
