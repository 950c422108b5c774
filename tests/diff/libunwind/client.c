/*
 * tests/diff/libunwind/client.c: is a small client of libunwind's remote functions, compiled with
 * libunwind's own headers. The same program runs with libunwind and with libunwind-offwind.so
 * preloaded, and the outputs are compared.
 *
 *   client pid PID        a process, by _UPT_: attach, unwind, detach
 *   client core FILE      the threads of a core file, by _UCD_
 *   client folder DIRECTORY   maps.txt, regs.txt and *.data, by the client's own call-backs
 *                                   over the files' .eh_frame_hdr (like perf's)
 *   client debug FILE VADDR   the procedure at VADDR by .debug_frame, for which Debian's
 *                                   libunwind is not built
 *   client names          codes and registers
 *
 * The output is one line per frame: pc, sp, signal frame or not, procedure, name, registers, and
 * where they are saved.
 */
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#ifdef FOLDER_ONLY /* the names of the given machine: cross-platform, as libunwind(3) has it */
#include FOLDER_ONLY
#else
#include <libunwind-coredump.h>
#include <libunwind-ptrace.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef UNW_TARGET_X86_64
static const int preserved[] = { UNW_X86_64_RBX, UNW_X86_64_RBP, UNW_X86_64_R12,
				 UNW_X86_64_R13, UNW_X86_64_R14, UNW_X86_64_R15 };
#define REGS	     17
#define search_table _Ux86_64_dwarf_search_unwind_table
#else
static const int preserved[] = { UNW_AARCH64_X19, UNW_AARCH64_X20, UNW_AARCH64_X21, UNW_AARCH64_X22,
				 UNW_AARCH64_X23, UNW_AARCH64_X24, UNW_AARCH64_X25, UNW_AARCH64_X26,
				 UNW_AARCH64_X27, UNW_AARCH64_X28, UNW_AARCH64_X29 };
#define REGS	     33
#define search_table _Uaarch64_dwarf_search_unwind_table
#endif
extern int search_table(unw_addr_space_t as, unw_word_t ip, unw_dyn_info_t *di, unw_proc_info_t *pi,
			int need_unwind_info, void *arg);

static int walk(unw_addr_space_t as, void *arg)
{
	unw_proc_info_t info;
	unw_save_loc_t loc;
	unw_cursor_t cursor, copy;
	unw_word_t ip, sp, value, off;
	char name[256];
	int got = unw_init_remote(&cursor, as, arg), frames = 0;

	if (got) {
		printf("init: %d\n", got);
		return 1;
	}
	do {
		copy = cursor;
		if (unw_get_reg(&copy, UNW_REG_IP, &ip) || unw_get_reg(&copy, UNW_REG_SP, &sp) ||
		    !ip)
			break;
		printf("#%d %" PRIx64 " %" PRIx64 "%s", frames, ip, sp,
		       unw_is_signal_frame(&copy) > 0 ? " signal" : "");
		if (!unw_get_proc_info(&copy, &info))
			printf(" [%" PRIx64 ",%" PRIx64 ") lsda %" PRIx64 " handler %" PRIx64,
			       info.start_ip, info.end_ip, info.lsda, info.handler);
		got = unw_get_proc_name(&copy, name, sizeof(name), &off);
		if (!got)
			printf(" %s+%" PRIx64, name, off);
		for (size_t i = 0; i < sizeof(preserved) / sizeof(preserved[0]); i++) {
			printf(" %s", unw_regname(preserved[i]));
			if (!unw_get_reg(&copy, preserved[i], &value))
				printf("=%" PRIx64, value);
			if (!unw_get_save_loc(&copy, preserved[i], &loc) &&
			    loc.type == UNW_SLT_MEMORY)
				printf("@%" PRIx64, (uint64_t)loc.u.addr);
			else if (loc.type == UNW_SLT_REG)
				printf("@%s", unw_regname(loc.u.regnum));
		}
		printf("\n");
		frames++;
	} while (frames < 200 && (got = unw_step(&cursor)) > 0);
	return 0;
}

/* ---- a folder ------------------------------------------------------------------------------ */

struct mapped {
	uint64_t start, end, off;
	const uint8_t *file;
	uint64_t size;
};

struct folder {
	struct mapped maps[512];
	size_t n_maps;
	struct mapped memory[16]; /* file: its bytes */
	size_t n_memory;
	uint64_t regs[64], known;
};

static const uint8_t *bytes_at(const struct mapped *m, size_t n, uint64_t addr, uint64_t size)
{
	for (size_t i = 0; i < n; i++)
		if (m[i].file && addr >= m[i].start && addr < m[i].end &&
		    addr - m[i].start + m[i].off <= m[i].size &&
		    size <= m[i].size - (addr - m[i].start + m[i].off))
			return m[i].file + (addr - m[i].start + m[i].off);
	return NULL;
}

static int access_mem(unw_addr_space_t as, unw_word_t addr, unw_word_t *value, int write, void *arg)
{
	const struct folder *f = arg;
	const uint8_t *at = bytes_at(f->memory, f->n_memory, addr, 8);

	(void)as;
	if (!at)
		at = bytes_at(f->maps, f->n_maps, addr, 8);
	if (write || !at)
		return -UNW_EINVAL;
	memcpy(value, at, 8);
	return 0;
}

static int access_reg(unw_addr_space_t as, unw_regnum_t reg, unw_word_t *value, int write,
		      void *arg)
{
	const struct folder *f = arg;

	(void)as;
	if (write || reg < 0 || reg >= 64 || !(f->known >> reg & 1))
		return -UNW_EBADREG;
	*value = f->regs[reg];
	return 0;
}

/* As in perf: the mapped file's .eh_frame_hdr in the target's memory. */
static int find_proc_info(unw_addr_space_t as, unw_word_t ip, unw_proc_info_t *pi, int need,
			  void *arg)
{
	struct folder *f = arg;
	const struct mapped *m = NULL;
	const Elf64_Phdr *segments;
	const Elf64_Ehdr *head;
	unw_dyn_info_t di;
	uint64_t bias = 0, hdr = 0;
	const uint8_t *at;

	for (size_t i = 0; i < f->n_maps; i++)
		if (ip >= f->maps[i].start && ip < f->maps[i].end)
			m = &f->maps[i];
	if (!m || !m->file)
		return -UNW_ENOINFO;
	head = (const void *)m->file;
	segments = (const void *)(m->file + head->e_phoff);
	for (int i = 0; i < head->e_phnum; i++) {
		if (segments[i].p_type == PT_LOAD && m->off >= (segments[i].p_offset & -4096) &&
		    m->off < segments[i].p_offset + segments[i].p_filesz &&
		    segments[i].p_flags & PF_X)
			bias = m->start - m->off + segments[i].p_offset - segments[i].p_vaddr;
		if (segments[i].p_type == PT_GNU_EH_FRAME)
			hdr = segments[i].p_vaddr;
	}
	at = hdr ? bytes_at(f->maps, f->n_maps, hdr + bias, 12) : NULL;
	/* Version 1; encodings: .eh_frame pcrel|sdata4, count udata4, table datarel|sdata4. */
	if (!at || memcmp(at, "\1\x1b\3\x3b", 4) != 0)
		return -UNW_ENOINFO;
	memset(&di, 0, sizeof(di));
	di.format = UNW_INFO_FORMAT_REMOTE_TABLE;
	di.start_ip = m->start;
	di.end_ip = m->end;
	di.u.rti.segbase = hdr + bias;
	di.u.rti.table_data = hdr + bias + 12;
	di.u.rti.table_len = *(const uint32_t *)(at + 8);
	return search_table(as, ip, &di, pi, need, arg);
}

static void put_unwind_info(unw_addr_space_t as, unw_proc_info_t *pi, void *arg)
{
	(void)as;
	(void)pi;
	(void)arg;
}

static int no_dyn_list(unw_addr_space_t as, unw_word_t *addr, void *arg)
{
	(void)as;
	(void)addr;
	(void)arg;
	return -UNW_ENOINFO;
}

static const uint8_t *map_file(const char *path, uint64_t *size)
{
	int fd = open(path, O_RDONLY);
	struct stat st;
	void *at = MAP_FAILED;

	if (fd >= 0 && !fstat(fd, &st) && st.st_size > 64)
		at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (fd >= 0)
		close(fd);
	*size = at == MAP_FAILED ? 0 : (uint64_t)st.st_size;
	return at == MAP_FAILED ? NULL : at;
}

static int walk_folder(const char *path)
{
	static struct folder f;
	static unw_accessors_t accessors = { .find_proc_info = find_proc_info,
					     .put_unwind_info = put_unwind_info,
					     .get_dyn_info_list_addr = no_dyn_list,
					     .access_mem = access_mem,
					     .access_reg = access_reg };
	char line[1024], name[1024];
	uint64_t value;
	glob_t found;
	FILE *file = chdir(path) ? NULL : fopen("maps.txt", "r");

	while (file && f.n_maps < 512 && fgets(line, sizeof(line), file)) {
		struct mapped *m = &f.maps[f.n_maps++];

		name[0] = '\0';
		sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64 " %*s %*s %1023s", &m->start,
		       &m->end, &m->off, name);
		m->file = map_file(name, &m->size);
		if (m->file && memcmp(m->file, ELFMAG, SELFMAG) != 0)
			m->file = NULL;
	}
	file = freopen("regs.txt", "r", file);
	while (file && fscanf(file, " %15[^:]: %" SCNx64, name, &value) == 2)
		for (int reg = 0; reg < REGS; reg++)
			if (!strcasecmp(name, unw_regname(reg)) ||
			    (name[0] == 'x' && atoi(name + 1) == reg)) {
				f.regs[reg] = value;
				f.known |= UINT64_C(1) << reg;
			}
	if (glob("stack*.data", 0, NULL, &found))
		return 1;
	for (size_t i = 0; i < found.gl_pathc && i < 16; i++) {
		struct mapped *m = &f.memory[f.n_memory++];

		m->file = map_file(found.gl_pathv[i], &m->size);
		if (!m->file)
			return 1;
		memcpy(&m->start, m->file, 8);
		m->off = 8;
		m->end = m->start + m->size - 8;
	}
	return walk(unw_create_addr_space(&accessors, 0), &f);
}

/* ---- processes and cores ------------------------------------------------------------------------ */

#ifndef FOLDER_ONLY
static int walk_pid(pid_t pid)
{
	unw_addr_space_t as = unw_create_addr_space(&_UPT_accessors, 0);
	void *arg = _UPT_create(pid);
	int err, status;

	if (ptrace(PTRACE_ATTACH, pid, NULL, NULL) || waitpid(pid, &status, __WALL) != pid)
		return 1;
	err = walk(as, arg);
	_UPT_destroy(arg);
	unw_destroy_addr_space(as);
	return ptrace(PTRACE_DETACH, pid, NULL, NULL) ? 1 : err;
}

static int walk_core(const char *path, int n_files, char **files)
{
	unw_addr_space_t as = unw_create_addr_space(&_UCD_accessors, 0);
	struct UCD_info *info = _UCD_create(path);
	int err = 0;

	if (!info)
		return 1;
	for (int i = 0; i + 1 < n_files;
	     i += 2) /* ADDRESS FILE: libunwind does not find them itself */
		if (_UCD_add_backing_file_at_vaddr(info, strtoul(files[i], NULL, 16), files[i + 1]))
			printf("no file %s\n", files[i + 1]);
	printf("pid %d signal %d threads %d\n", _UCD_get_pid(info), _UCD_get_cursig(info),
	       _UCD_get_num_threads(info));
	for (int i = 0; i < _UCD_get_num_threads(info); i++) {
		printf("thread %d\n", i);
		_UCD_select_thread(info, i);
		err |= walk(as, info);
	}
	_UCD_destroy(info);
	unw_destroy_addr_space(as);
	return err;
}

static int debug_frame(const char *path, unw_word_t vaddr)
{
	static unw_accessors_t accessors = { .find_proc_info = find_proc_info };
	unw_addr_space_t as = unw_create_addr_space(&accessors, 0);
	const unw_word_t base = 0x7f0000000000;
	unw_dyn_info_t di;
	unw_proc_info_t pi;
	int (*find)(int, unw_dyn_info_t *, unw_word_t, unw_word_t, const char *, unw_word_t,
		    unw_word_t) =
		(int (*)(int, unw_dyn_info_t *, unw_word_t, unw_word_t, const char *, unw_word_t,
			 unw_word_t))dlsym(RTLD_DEFAULT, "_Ux86_64_dwarf_find_debug_frame");

	memset(&pi, 0, sizeof(pi));
	if (!find || find(0, &di, base + vaddr, base, path, base, base + 0x100000) != 1 ||
	    search_table(as, base + vaddr + 1, &di, &pi, 0, NULL))
		return 1;
	printf("%" PRIx64 " %" PRIx64 " %" PRIu64 "\n", pi.start_ip - base, pi.end_ip - pi.start_ip,
	       pi.flags);
	unw_destroy_addr_space(as);
	return 0;
}
#endif

int main(int argc, char **argv)
{
#ifndef FOLDER_ONLY
	if (argc == 4 && !strcmp(argv[1], "debug"))
		return debug_frame(argv[2], strtoul(argv[3], NULL, 16));
	if (argc == 3 && !strcmp(argv[1], "pid"))
		return walk_pid(atoi(argv[2]));
	if (argc >= 3 && !strcmp(argv[1], "core"))
		return walk_core(argv[2], argc - 3, argv + 3);
#endif
	if (argc == 2 && !strcmp(argv[1], "names")) {
		for (int i = -UNW_ENOINFO; i <= 0; i++)
			puts(unw_strerror(i));
		for (int i = 0; i < REGS; i++)
			puts(unw_regname(i));
		return 0;
	}
	if (argc == 3 && !strcmp(argv[1], "folder"))
		return walk_folder(argv[2]);
	return 2;
}
