/* tests/faults/hostile/generated.c: runs generated code, and lies about it: in perf maps, jitdump files and in the list for debuggers. */
#include "attack.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOADS = 66000, MOVES = 300000, ENTRIES = 60000 };

static uint8_t *code;

static FILE *perf_map(void)
{
	char path[64];
	FILE *file;

	(void)snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)getpid());
	file = fopen(path, "w");
	if (!file)
		fail(path);
	return file;
}

/* Only run code. */
static void plain(char **args)
{
	(void)args;
	code = new_code(4096, 0);
	ready();
	run_code(code);
}

/* FILE: only run code, with a mapping of FILE. */
static void beside(char **args)
{
	if (mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, open(args[0], O_RDONLY | O_CLOEXEC), 0) ==
	    MAP_FAILED)
		fail(args[0]);
	plain(args);
}

/* KIND: what lies under the name of the perf map. */
static void planted(char **args)
{
	const char *kind = args[0];
	char path[64];

	code = new_code(4096, 0);
	(void)snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)getpid());
	if (!strcmp(kind, "fifo")   ? mkfifo(path, 0666)
	    : !strcmp(kind, "dir")  ? mkdir(path, 0755)
	    : !strcmp(kind, "hole") ? ftruncate(open(path, O_CREAT | O_RDWR, 0644), 10l << 30)
				    : symlink(kind, path))
		fail(path);
	ready();
	run_code(code);
}

/* 100 MB of lines, all about the same address. */
static void map_long(char **args)
{
	FILE *file = perf_map();

	(void)args;
	code = new_code(4096, 0);
	for (int i = 0; i < 10000000; i++)
		(void)fputs("1 1 a\n", file);
	(void)fprintf(file, "%lx 1000 \033[31m<script>\n", (unsigned long)(uintptr_t)code);
	(void)fflush(file);
	ready();
	run_code(code);
}

/* A perf map that grows without pause, and begins again at 100 MB. */
static void map_grows(char **args)
{
	FILE *file = perf_map();

	(void)args;
	code = new_code(1 << 20, 0);
	if (!fork()) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (unsigned long i = 0;; i++) {
			(void)fprintf(file, "%lx 10 n%lx\n",
				      (unsigned long)(uintptr_t)code + i % 60000 * 16, i);
			if (ftell(file) > 100 << 20) {
				rewind(file);
				(void)!ftruncate(fileno(file), 0);
			}
		}
	}
	ready();
	run_code(code);
}

/* ---- jitdump: Linux, tools/perf/Documentation/jitdump-specification.txt --------------------- */

struct load {
	uint32_t pid, tid;
	uint64_t vma, addr, size, index;
	char name[8];
};

static void put_record(FILE *file, uint32_t id, const void *body, uint32_t size)
{
	uint32_t head[4] = { id, 16 + size };

	(void)fwrite(head, sizeof(head), 1, file);
	(void)fwrite(body, size, 1, file);
}

static FILE *dump_new(const char *directory)
{
	const uint32_t head[10] = { 0x4a695444, 1, 40, 62 };
	char path[512];
	FILE *file;

	code = new_code(4096, 0);
	(void)snprintf(path, sizeof(path), "%s/jit-%d.dump", directory, (int)getpid());
	file = fopen(path, "w+");
	if (!file)
		fail(path);
	(void)fwrite(head, sizeof(head), 1, file);
	return file;
}

static void dump_use(FILE *file)
{
	(void)fflush(file);
	if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(file), 0) == MAP_FAILED)
		fail("mapping the file");
	ready();
	run_code(code);
}

/* DIRECTORY: 66,000 functions, and 300,000 moves of code that is not registered. */
static void moves(char **args)
{
	FILE *file = dump_new(args[0]);
	struct load load = { .name = "f" };
	struct {
		uint32_t pid, tid;
		uint64_t vma, from, to, size, index;
	} move = { .from = 1 };

	for (uint64_t i = 0; i < LOADS; i++) {
		load.addr = (uintptr_t)code + 8192 + 16 * i;
		load.size = 16;
		put_record(file, 0, &load, sizeof(load));
	}
	for (uint64_t i = 0; i < MOVES; i++)
		put_record(file, 1, &move, sizeof(move));
	dump_use(file);
}

/* DIRECTORY: 16 million empty records. */
static void records(char **args)
{
	FILE *file = dump_new(args[0]);
	const uint32_t empty[4] = { 2, 16 };

	for (int i = 0; i < 16000000; i++)
		(void)fwrite(empty, sizeof(empty), 1, file);
	dump_use(file);
}

/* DIRECTORY: functions at the end of memory, records of 4 GB, and a file of 7 TB. */
static void lies(char **args)
{
	FILE *file = dump_new(args[0]);
	struct load load = { .addr = (uintptr_t)code, .size = UINT64_MAX, .name = "f" };
	const uint32_t huge[4] = { 4, 0xfffffff0 };

	put_record(file, 0, &load, sizeof(load));
	load.addr = UINT64_MAX;
	put_record(file, 0, &load, sizeof(load));
	(void)fwrite(huge, sizeof(huge), 1, file);
	(void)fflush(file);
	(void)!ftruncate(fileno(file), 7l << 40);
	dump_use(file);
}

/* ---- gdb's manual, "JIT Compilation Interface" ------------------------------------------------ */

struct jit_entry {
	struct jit_entry *next, *prev;
	const void *addr;
	uint64_t size;
};

struct {
	uint32_t version, action;
	struct jit_entry *relevant, *first;
} __jit_debug_descriptor = { .version = 1 };

void __jit_debug_register_code(void);
__attribute__((noinline)) void __jit_debug_register_code(void)
{
	__asm__ volatile("");
}

static struct jit_entry entries[ENTRIES];

/* A list that runs in a circle. */
static void list_circle(char **args)
{
	(void)args;
	code = new_code(1 << 20, 0);
	for (size_t i = 0; i < ENTRIES; i++)
		entries[i] = (struct jit_entry){ .next = &entries[(i * 7919 + 1) % ENTRIES],
						 .addr = code,
						 .size = 1 << 20 };
	__jit_debug_descriptor.first = entries;
	ready();
	run_code(code);
}

static void list_fill(void)
{
	uint8_t *elf =
		mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	FILE *self = fopen("/proc/self/exe", "r");

	if (elf == MAP_FAILED || !self)
		fail("list");
	(void)!fread(elf, 1, 1 << 20, self);
	for (size_t i = 0; i < ENTRIES; i++)
		entries[i] = (struct jit_entry){ .next = i + 1 < ENTRIES ? &entries[i + 1] : NULL,
						 .addr = elf,
						 .size = 16384 };
}

/* A list of 60,000 ELF files. */
static void list_long(char **args)
{
	(void)args;
	code = new_code(4096, 0);
	list_fill();
	__jit_debug_descriptor.first = entries;
	ready();
	run_code(code);
}

/* Code that is registered and unregistered all the time. */
static void list_churn(char **args)
{
	(void)args;
	code = new_code(4096, 1);
	list_fill();
	ready();
	for (size_t i = 0;; i = (i + 7919) % ENTRIES) {
		__jit_debug_descriptor.first = &entries[i];
		__jit_debug_descriptor.relevant = &entries[i / 2];
		__jit_debug_descriptor.action = 1 + i % 2;
		__jit_debug_register_code();
		run_code(code);
	}
}

/* FILE: the list lies in a mapping of FILE. */
static void list_in(char **args)
{
	int fd = open(args[0], O_RDONLY | O_CLOEXEC);
	void *list = mmap(NULL, 1 << 20, PROT_READ, MAP_PRIVATE, fd, 0);

	if (fd < 0 || list == MAP_FAILED)
		fail(args[0]);
	code = new_code(4096, 0);
	__jit_debug_descriptor.first = list;
	ready();
	run_code(code);
}

/* New code at new addresses, and a line of the map for each, for ever. */
static void churn(char **args)
{
	FILE *file = perf_map();

	(void)args;
	ready();
	for (unsigned long n = 0;; n++) {
		code = new_code(65536, 1);
		(void)fprintf(file, "%lx 1000 f%lu\n", (unsigned long)(uintptr_t)code, n);
		(void)fflush(file);
		run_code(code);
		(void)munmap(code, 65536);
	}
}

int main(int argc, char **argv)
{
	static const struct attack attacks[] = {
		{ "plain", 0, plain },
		{ "beside", 1, beside },
		{ "planted", 1, planted },
		{ "map-long", 0, map_long },
		{ "map-grows", 0, map_grows },
		{ "moves", 1, moves },
		{ "records", 1, records },
		{ "lies", 1, lies },
		{ "list-circle", 0, list_circle },
		{ "list-long", 0, list_long },
		{ "list-churn", 0, list_churn },
		{ "list-in", 1, list_in },
		{ "churn", 0, churn },
	};

	return attack_main(argc, argv, attacks, sizeof(attacks) / sizeof(attacks[0]));
}
