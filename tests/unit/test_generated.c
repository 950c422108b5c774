/*
 * tests/unit/test_generated.c: tests the cost of reading a process that registers generated code
 * with bad intent. The list is this program's own, found by its symbol; the process is its child.
 */
#include "agent/process/generated.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <libunwind.h>
#include <link.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "schema/dynamic_blob.h"
#include "tests/check.h"

unw_dyn_info_list_t _U_dyn_info_list;

/* "JIT Compilation Interface" in GDB's manual. */
struct jit_entry {
	struct jit_entry *next, *prev;
	const void *file;
	uint64_t size;
};
struct jit_descriptor {
	uint32_t version, action;
	struct jit_entry *relevant, *first;
};
struct jit_descriptor __jit_debug_descriptor;
static struct jit_entry entries[50000];
static Elf64_Ehdr elf;
static unw_dyn_info_t infos[100000];
static struct {
	unw_dyn_region_info_t head;
	unw_dyn_op_t more[4000];
} region;

#define CODE 0x7e0000000000u

static struct opener *opener;
static struct modules *modules;
static struct processes *processes;
static struct generated *generated;
static struct source_info info = { .machine = EM_X86_64 };

static void mapping(uint32_t pid, uint64_t start, uint64_t end, const char *path)
{
	struct event event = { .type = EVENT_MAPPING, .pid = pid, .tid = pid };
	struct event_mapping *m = &event.mapping;

	*m = (struct event_mapping){
		.start = start, .end = end, .prot = PROT_READ | PROT_EXEC, .path = path
	};
	CHECK(processes_event(processes, &event) == 0, path);
}

/* The mapping of this program's code, as a kernel reports it. */
static int map_self(struct dl_phdr_info *dl, size_t size, void *ctx)
{
	static char self[4096];

	(void)size;
	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return -1;
	for (int i = 0; i < dl->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &dl->dlpi_phdr[i];
		struct event event = { .type = EVENT_MAPPING, .pid = *(uint32_t *)ctx };

		if (p->p_type != PT_LOAD || !(p->p_flags & PF_X))
			continue;
		event.tid = event.pid;
		event.mapping = (struct event_mapping){
			.start = dl->dlpi_addr + (p->p_vaddr & ~(uint64_t)4095),
			.end = dl->dlpi_addr + p->p_vaddr + p->p_memsz,
			.off = p->p_offset & ~(uint64_t)4095,
			.prot = PROT_READ | PROT_EXEC,
			.path = self,
		};
		CHECK(processes_event(processes, &event) == 0, "self");
	}
	return 1; /* the first is the program */
}

static uint64_t now_ns(clockid_t clock)
{
	struct timespec now;

	(void)clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Fork a child with a copy of this memory; what it registers is in *out. */
static int ask(struct event *out, const char *what)
{
	struct event sample = { .type = EVENT_SAMPLE };
	uint64_t began;
	pid_t child = fork();
	uint32_t pid = (uint32_t)child;
	int said;

	if (child == 0)
		for (;;)
			(void)pause();
	(void)dl_iterate_phdr(map_self, &pid);
	mapping(pid, CODE, CODE + 0x100000, "//anon");
	sample.pid = sample.tid = pid;
	sample.sample.has_user_regs = true;
	sample.time_ns = 1;
	CHECK(generated_look(generated, &sample, out) == 0,
	      "nothing is read while samples are late");
	sample.time_ns = now_ns(CLOCK_MONOTONIC);
	began = now_ns(CLOCK_THREAD_CPUTIME_ID);
	said = generated_look(generated, &sample, out);
	/*
	 * Reading the lists takes at most 10 ms; looking up the list in this file comes before
	 * that.
	 */
	CHECK(now_ns(CLOCK_THREAD_CPUTIME_ID) - began < 100000000, what);
	if (said == 1) {
		CHECK(out->generated.size <= DYNAMIC_LISTS_MAX, what);
		CHECK(processes_event(processes, out) == 0, what);
		CHECK(generated_look(generated, &sample, out) == 0, "nothing new");
	}
	(void)kill(child, SIGKILL);
	(void)waitpid(child, NULL, 0);
	return said;
}

static uint32_t flags_of(const struct event *event)
{
	struct dynamic_header head;

	memcpy(&head, event->generated.bytes, sizeof(head));
	return head.flags;
}

static void enlist(size_t i, unw_dyn_info_t *next)
{
	infos[i] = (unw_dyn_info_t){ .start_ip = CODE + 16 * i,
				     .end_ip = CODE + 16 * i + 16,
				     .format = UNW_INFO_FORMAT_DYNAMIC,
				     .next = next };
	infos[i].u.pi.regions = &region.head;
}

static void test_descriptor(void)
{
	struct event event;

	memcpy(elf.e_ident, ELFMAG, SELFMAG);
	elf.e_ident[EI_CLASS] = ELFCLASS64;
	elf.e_ident[EI_DATA] = ELFDATA2LSB;
	elf.e_machine = EM_X86_64;
	elf.e_shentsize = sizeof(Elf64_Shdr);
	elf.e_shnum = UINT16_MAX;
	__jit_debug_descriptor = (struct jit_descriptor){ .version = 1, .first = &entries[0] };
	entries[0] = (struct jit_entry){ .file = &elf, .size = UINT64_MAX };
	CHECK(ask(&event, "sections") == 1 && flags_of(&event) & DYNAMIC_DAMAGED,
	      "more sections than there can be");
	elf.e_shnum = 4000;
	elf.e_shoff = UINT64_MAX - 100;
	CHECK(ask(&event, "offset") == 1 && flags_of(&event) & DYNAMIC_DAMAGED, "they are nowhere");
	entries[0].file = (void *)8;
	CHECK(ask(&event, "wild") == 1 && flags_of(&event) & DYNAMIC_DAMAGED, "a wild file");
	entries[0].next = &entries[0];
	CHECK(ask(&event, "circle") == 1 && flags_of(&event), "entries in a circle");
	elf.e_shoff = sizeof(elf);
	elf.e_shnum = 16;
	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++)
		entries[i] = (struct jit_entry){ .next = i ? &entries[i - 1] : NULL,
						 .file = &elf,
						 .size = 4096 };
	__jit_debug_descriptor.first = &entries[sizeof(entries) / sizeof(entries[0]) - 1];
	CHECK(ask(&event, "many") == 1 && flags_of(&event), "fifty thousand files");
	__jit_debug_descriptor.version = 7;
	CHECK(ask(&event, "version") == 1 && flags_of(&event) & DYNAMIC_DAMAGED,
	      "of a version that nobody knows");
}

int main(void)
{
	struct opener_options options = { .live = true };
	struct event event;
	int err = opener_new(&options, &opener);

	if (!err)
		err = modules_new(opener, &info, false, &modules);
	if (!err)
		err = processes_new(EM_X86_64, modules, &processes);
	if (!err)
		err = generated_new(processes, opener, true, &generated);
	/* Memory is read only of processes that generate code. */
	CHECK(mmap((void *)(uintptr_t)CODE, 4096, PROT_READ | PROT_EXEC,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != MAP_FAILED,
	      "code");
	CHECK(err == 0, "set up");
	if (err)
		return check_done();

	CHECK(ask(&event, "nothing") == 0, "it has registered nothing");
	_U_dyn_info_list.version = 1;
	_U_dyn_info_list.first = &infos[0];
	enlist(0, NULL);
	CHECK(ask(&event, "one") == 1 && flags_of(&event) == 0, "one procedure");
	infos[0].next = &infos[0];
	CHECK(ask(&event, "a circle") == 1 && flags_of(&event) & DYNAMIC_CUT, "a circle");
	infos[0].next = (void *)0x1234;
	CHECK(ask(&event, "wild") == 1 && flags_of(&event) & DYNAMIC_DAMAGED, "a wild pointer");
	/* As many entries as there is room for: each needs several reads. */
	for (size_t i = 0; i < sizeof(infos) / sizeof(infos[0]); i++)
		enlist(i, i ? &infos[i - 1] : NULL);
	_U_dyn_info_list.first = &infos[sizeof(infos) / sizeof(infos[0]) - 1];
	CHECK(ask(&event, "many") == 1 && flags_of(&event), "a hundred thousand");
	region.head.op_count = UINT32_MAX;
	CHECK(ask(&event, "operations") == 1 && flags_of(&event) & DYNAMIC_DAMAGED,
	      "2^32 operations");
	region.head.op_count = 4000;
	region.head.next = &region.head;
	CHECK(ask(&event, "regions") == 1 && flags_of(&event), "regions in a circle");

	_U_dyn_info_list.first = NULL;
	test_descriptor();

	generated_free(generated);
	processes_free(processes);
	modules_free(modules);
	opener_free(opener);
	return check_done();
}
