/*
 * Walks the thread of a snapshot folder (maps.txt, regs.txt, stack*.data; the
 * layout is told in the corpus README) and prints its frames.
 *   usage: snapshot_walk CASE FOLDER
 *   case  frame  module  rel_pc  function  function_offset  stepper, then the stop on stderr
 */
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "unwinder/unwinder.h"

#define REGIONS_MAX 16
#define FRAMES_MAX  512

static const char *folder;
static char *names[4096];
static size_t n_names;

static int open_in(const char *name)
{
	char path[4096];

	(void)snprintf(path, sizeof(path), "%s/%s", folder, name);
	return open(path, O_RDONLY | O_CLOEXEC);
}

static uint8_t *read_all(const char *name, size_t *size)
{
	int fd = open_in(name);
	off_t end = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
	uint8_t *data = end < 0 ? NULL : malloc((size_t)end + 1);

	if (data && pread(fd, data, (size_t)end, 0) == end) {
		data[end] = 0;
		*size = (size_t)end;
	}
	if (fd >= 0)
		close(fd);
	return data;
}

/* An ELF file, or one inside an archive: the last page that begins one at or before off. */
static struct uw_object *resolve(void *ctx, const struct uw_mapping *mapping)
{
	const char *name = mapping->user;
	struct uw_object *object = NULL;
	int fd = name && name[0] ? open_in(name) : -1;
	int err;

	(void)ctx;
	if (fd < 0)
		return NULL;
	err = uw_object_open(fd, 0, &object);
	for (uint64_t off = mapping->off & ~(uint64_t)0xfff; err == -ENOTSUP && off; off -= 0x1000)
		err = uw_object_open(fd, off, &object);
	close(fd);
	return err ? NULL : object;
}

static uint16_t machine_of(const char *regs)
{
	return strstr(regs, "rip:") ? EM_X86_64 : EM_AARCH64;
}

static void read_regs(char *text, uint16_t machine, struct uw_regs *regs)
{
	static const char *const x86[] = { "rax", "rdx", "rcx", "rbx", "rsi", "rdi",
					   "rbp", "rsp", "r8",	"r9",  "r10", "r11",
					   "r12", "r13", "r14", "r15", "rip" };

	*regs = (struct uw_regs){ .known = machine == EM_X86_64 ? 0x1ffff : 0x1ffffffff };
	for (char *line = strtok(text, "\r\n"); line; line = strtok(NULL, "\r\n")) {
		char name[16];
		uint64_t value;
		int reg = -1;

		if (sscanf(line, " %15[a-z0-9] : %" SCNx64, name, &value) != 2 &&
		    sscanf(line, " %15[a-z0-9]: %" SCNx64, name, &value) != 2)
			continue;
		if (machine == EM_X86_64) {
			for (int i = 0; i < 17; i++)
				if (!strcmp(name, x86[i]))
					reg = i;
		} else if (name[0] == 'x') {
			reg = atoi(name + 1);
		} else {
			reg = !strcmp(name, "lr")   ? UW_AARCH64_LR
			      : !strcmp(name, "sp") ? UW_AARCH64_SP
			      : !strcmp(name, "pc") ? UW_AARCH64_PC
						    : -1;
		}
		if (reg >= 0 && reg < UW_REGS_MAX)
			regs->value[reg] = value;
	}
}

static void read_maps(char *text, struct uw_space *space)
{
	for (char *line = strtok(text, "\r\n"); line; line = strtok(NULL, "\r\n")) {
		struct uw_mapping m = { .kind = UW_MAPPING_FILE };
		char prot[8];
		int at = 0;

		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %*s %*s %n", &m.start,
			   &m.end, prot, &m.off, &at) < 4)
			continue;
		if ((m.end & 0xfff) == 0xfff) /* some cases give the last byte */
			m.end++;
		m.prot = (strchr(prot, 'r') ? (uint32_t)PROT_READ : 0) |
			 (strchr(prot, 'w') ? (uint32_t)PROT_WRITE : 0) |
			 (strchr(prot, 'x') ? (uint32_t)PROT_EXEC : 0);
		if (n_names < sizeof(names) / sizeof(names[0])) {
			names[n_names] = strdup(at ? line + at : "");
			m.user = names[n_names++];
		}
		if (!m.user || !*(char *)m.user)
			m.kind = UW_MAPPING_ANON;
		(void)uw_space_map(space, &m);
	}
}

static size_t read_regions(struct uw_region *regions)
{
	DIR *dir = opendir(folder);
	struct dirent *entry;
	size_t n = 0;

	while (dir && (entry = readdir(dir)) && n < REGIONS_MAX) {
		size_t length = strlen(entry->d_name), size;
		uint8_t *data;

		if (length < 5 || strcmp(entry->d_name + length - 5, ".data"))
			continue;
		data = read_all(entry->d_name, &size);
		if (!data || size < 8)
			continue;
		memcpy(&regions[n].addr, data, 8);
		regions[n].size = size - 8;
		regions[n++].bytes = data + 8;
	}
	if (dir)
		(void)closedir(dir);
	return n;
}

int main(int argc, char **argv)
{
	static struct uw_frame frames[FRAMES_MAX];
	struct uw_stack stack = { .frames = frames, .max_frames = FRAMES_MAX };
	struct uw_region regions[REGIONS_MAX];
	struct uw_memory memory = { .regions = regions };
	struct uw_thread thread = { .read = uw_memory_read, .ctx = &memory };
	struct uw_worker *worker = NULL;
	struct uw_space *space = NULL;
	char *regs, *maps;
	uint16_t machine;
	size_t size;

	if (argc != 3)
		return 2;
	folder = argv[2];
	regs = (char *)read_all("regs.txt", &size);
	maps = (char *)read_all("maps.txt", &size);
	if (!regs || !maps)
		return 1;
	machine = machine_of(regs);
	if (uw_space_new(machine, resolve, NULL, &space) || uw_worker_new(&worker))
		return 1;
	read_regs(regs, machine, &thread.regs);
	read_maps(maps, space);
	memory.n_regions = read_regions(regions);
	uw_walk(space, worker, &thread, &stack);
	for (size_t i = 0; i < stack.n_frames; i++) {
		const struct uw_frame *f = &frames[i];
		const char *name = f->mapping && f->mapping->user && *(char *)f->mapping->user
					   ? f->mapping->user
					   : "<unknown>";
		uint64_t rel = f->pc;

		if (f->mapping)
			rel = f->mapping->object ? f->pc - f->mapping->bias
						 : f->pc - f->mapping->start + f->mapping->off;
		(void)printf("%s\t%zu\t%s\t%" PRIx64 "\t-\t-\t%s\n", argv[1], i, name, rel,
			     uw_stepper_name(f->stepper));
	}
	(void)fprintf(stderr, "%s: %zu frames, %s at %" PRIx64 "\n", argv[1], stack.n_frames,
		      uw_stop_name(stack.stop), stack.stop_addr);
	for (size_t i = 0; i < memory.n_regions; i++)
		free((void *)(regions[i].bytes - 8));
	while (n_names)
		free(names[--n_names]);
	free(regs);
	free(maps);
	uw_worker_free(worker);
	uw_space_free(space);
	return 0;
}
