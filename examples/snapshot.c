/* snapshot FOLDER: unwinds a thread that was kept as maps.txt, regs.txt, stack*.data and files. */
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <offwind/unwinder.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static uint8_t bytes[8][1 << 20]; /* of each stack*.data: its address, then what lies there */

int main(int argc, char **argv)
{
	struct uw_mapping maps[512] = { 0 };
	struct uw_region regions[8];
	struct uw_memory memory = { .regions = regions };
	struct uw_thread thread = { .read = uw_memory_read, .ctx = &memory };
	struct uw_frame frames[256];
	struct uw_stack stack = { .frames = frames, .max_frames = 256 };
	struct uw_worker *worker;
	struct uw_space *space;
	char line[1024], name[1024], prot[5] = "";
	uint64_t value;
	uint16_t machine = 0;
	size_t n = 0, size;
	glob_t found = { 0 };
	FILE *file = argc == 2 && !chdir(argv[1]) ? fopen("maps.txt", "r") : NULL;

	for (; file && n < 512 && fgets(line, sizeof(line), file); n++) {
		sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 "%*s%*s %1023s", &maps[n].start,
		       &maps[n].end, prot, &maps[n].off, strcpy(name, "") /* none */);
		maps[n].prot = (prot[0] == 'r') | (prot[1] == 'w') << 1 | (prot[2] == 'x') << 2;
		int fd = open(name, O_RDONLY);
		if (fd >= 0 && !uw_object_open(fd, 0, &maps[n].object))
			machine = uw_object_machine(maps[n].object);
		close(fd);
	}
	if (!machine || uw_space_new(machine, NULL, NULL, &space) || uw_worker_new(&worker))
		return 1;
	for (size_t i = 0; i < n; uw_object_put(maps[i++].object))
		uw_space_map(space, &maps[i]); /* which counts the object once more */
	file = freopen("regs.txt", "r", file);
	while (file && fscanf(file, " %15[^:]: %" SCNx64, name, &value) == 2)
		for (int reg = uw_reg_find(machine, name); reg >= 0; reg = -1)
			thread.regs.value[reg] = value, thread.regs.known |= UINT64_C(1) << reg;
	(void)glob("stack*.data", 0, NULL, &found);
	for (size_t i = 0; i < found.gl_pathc && i < 8; memory.n_regions = ++i) {
		file = freopen(found.gl_pathv[i], "r", file);
		size = file ? fread(bytes[i], 1, sizeof(bytes[i]), file) : 0;
		memcpy(&regions[i].addr, bytes[i], 8); /* little-endian, as this host is */
		regions[i].bytes = bytes[i] + 8;
		regions[i].size = size > 8 ? size - 8 : 0;
	}
	uw_walk(space, worker, &thread, &stack);
	for (size_t i = 0; i < stack.n_frames; i++)
		printf("%zu %" PRIx64 "\n", i,
		       frames[i].pc - (frames[i].mapping ? frames[i].mapping->bias : 0));
	printf("stop: %s\n", uw_stop_name(stack.stop));
}
