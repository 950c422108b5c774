/*
 * compat/ptrace.c: the accessors of libunwind-ptrace, for a thread that the caller traces and has
 * stopped. Nothing is written to the thread.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <unistd.h>

#include "agent/source/machine.h"
#include "compat/mapped_files.h"

#define VDSO_MAX (1u << 20)

struct traced {
	pid_t pid;
	struct compat_files *files; /* NULL until the machine is known */
};

/* Read memory of the thread (a uw_read_fn). */
static int read_traced(void *ctx, uint64_t addr, void *out, size_t size)
{
	const struct traced *t = ctx;
	struct iovec to = { out, size }, from = { (void *)(uintptr_t)addr, size };
	uint8_t *bytes = out;

	if (process_vm_readv(t->pid, &to, 1, &from, 1, 0) == (ssize_t)size)
		return 0;
	/* That fails across the end of a mapping or without permission: read word by word. */
	for (size_t i = 0; i < size; i += sizeof(long)) {
		long word;

		errno = 0;
		word = ptrace(PTRACE_PEEKDATA, t->pid, (void *)(uintptr_t)(addr + i), NULL);
		if (errno)
			return -EFAULT;
		memcpy(bytes + i, &word, size - i < sizeof(word) ? size - i : sizeof(word));
	}
	return 0;
}

/* compat_open_fn: open a file that the process has mapped. */
static int open_mapped(void *ctx, const char *path, const struct uw_mapping *m)
{
	const struct traced *t = ctx;
	char name[4200];
	int fd;

	/*
	 * map_files gives the mapped file even if it was deleted or replaced. Otherwise open the
	 * path as the process sees it.
	 */
	(void)snprintf(name, sizeof(name), "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, (int)t->pid,
		       m->start, m->end);
	fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd >= 0)
		return fd;
	(void)snprintf(name, sizeof(name), "/proc/%d/root%s", (int)t->pid, path);
	return open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

/* Add the vDSO with a copy of its bytes. */
static void map_vdso(struct traced *t, const struct uw_mapping *m)
{
	uint64_t size = m->end - m->start;
	uint8_t *image = size <= VDSO_MAX ? malloc(size) : NULL;

	if (image && !read_traced(t, m->start, image, size))
		(void)compat_files_map(t->files, m, "[vdso]", image, size);
	free(image);
}

/* Read all mappings of the process again. */
static void read_maps(struct traced *t)
{
	char name[64], line[4400], prot[5], path[4200];
	FILE *maps;

	compat_files_clear(t->files);
	(void)snprintf(name, sizeof(name), "/proc/%d/maps", (int)t->pid);
	maps = fopen(name, "re");
	while (maps && fgets(line, sizeof(line), maps)) {
		struct uw_mapping m = { .start = 0 };

		path[0] = '\0';
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %*s %*s %4199[^\n]",
			   &m.start, &m.end, prot, &m.off, path) < 4)
			continue;
		m.prot = (uint32_t)((prot[0] == 'r') | (prot[1] == 'w') << 1 |
				    (prot[2] == 'x') << 2);
		if (strcmp(path, "[vdso]") == 0)
			map_vdso(t, &m);
		else if (compat_files_map(t->files, &m, path, NULL, 0))
			break;
	}
	if (maps)
		(void)fclose(maps);
}

/*
 * Return the mapped files. If no mapping contains addr, read the mappings again: the process may
 * have called dlopen().
 */
static struct compat_files *files_at(struct traced *t, unw_as as, uint64_t addr)
{
	if (!t->files && compat_files_new(compat_machine(as), open_mapped, t, &t->files))
		return NULL;
	if (!compat_files_has(t->files, addr))
		read_maps(t);
	return t->files;
}

void *_UPT_create(pid_t pid);
void _UPT_destroy(void *arg);
int _UPT_find_proc_info(unw_as as, unw_word ip, struct unw_proc_info *info, int need, void *arg);
void _UPT_put_unwind_info(unw_as as, struct unw_proc_info *info, void *arg);
int _UPT_get_dyn_info_list_addr(unw_as as, unw_word *addr, void *arg);
int _UPT_access_mem(unw_as as, unw_word addr, unw_word *value, int write, void *arg);
int _UPT_access_reg(unw_as as, int reg, unw_word *value, int write, void *arg);
int _UPT_access_fpreg(unw_as as, int reg, void *value, int write, void *arg);
int _UPT_get_proc_name(unw_as as, unw_word ip, char *name, size_t size, unw_word *off, void *arg);
int _UPT_resume(unw_as as, struct unw_cursor *cursor, void *arg);
extern struct unw_accessors _UPT_accessors;

/*
 * Create the accessors' context for a thread. The caller frees it with _UPT_destroy(). NULL: out
 * of memory.
 */
void *_UPT_create(pid_t pid)
{
	struct traced *t = calloc(1, sizeof(*t));

	if (t)
		t->pid = pid;
	return t;
}

void _UPT_destroy(void *arg)
{
	struct traced *t = arg;

	if (t)
		compat_files_free(t->files);
	free(t);
}

/* Look up the procedure at ip in the mapped files. */
int _UPT_find_proc_info(unw_as as, unw_word ip, struct unw_proc_info *info, int need, void *arg)
{
	struct uw_proc_query query = { .pc = ip,
				       .rules = need,
				       .machine = compat_machine(as),
				       .read = read_traced,
				       .ctx = arg };
	struct compat_files *files = files_at(arg, as, ip);

	return files ? compat_files_proc_info(files, &query, info) : -UNW_ENOMEM;
}

/* Read a word of the thread's memory. Writing is not supported. */
int _UPT_access_mem(unw_as as, unw_word addr, unw_word *value, int write, void *arg)
{
	(void)as;
	return write || read_traced(arg, addr, value, sizeof(*value)) ? -UNW_EINVAL : 0;
}

/* Read a register of the thread by its DWARF number. Writing is not supported. */
int _UPT_access_reg(unw_as as, int reg, unw_word *value, int write, void *arg)
{
	const struct traced *t = arg;
	const struct machine *machine = machine_of(compat_machine(as));
	uint8_t bytes[512];
	struct iovec io = { bytes, sizeof(bytes) };
	struct uw_regs regs = { .known = 0 };

	if (write)
		return -UNW_EREADONLYREG;
	if (reg < 0 || reg >= UW_REGS_MAX ||
	    ptrace(PTRACE_GETREGSET, t->pid, (void *)(uintptr_t)NT_PRSTATUS, &io) ||
	    machine_with_regset(io.iov_len) != machine)
		return -UNW_EBADREG;
	machine_read_regset(machine, bytes, &regs);
	if (!(regs.known >> reg & 1))
		return -UNW_EBADREG;
	*value = regs.value[reg];
	return 0;
}

int _UPT_get_proc_name(unw_as as, unw_word ip, char *name, size_t size, unw_word *off, void *arg)
{
	struct compat_files *files = files_at(arg, as, ip);

	return files ? compat_files_proc_name(files, ip, name, size, off) : -UNW_ENOMEM;
}

struct unw_accessors _UPT_accessors = { .find_proc_info = _UPT_find_proc_info,
					.put_unwind_info = _UPT_put_unwind_info,
					.get_dyn_info_list_addr = _UPT_get_dyn_info_list_addr,
					.access_mem = _UPT_access_mem,
					.access_reg = _UPT_access_reg,
					.access_fpreg = _UPT_access_fpreg,
					.resume = _UPT_resume,
					.get_proc_name = _UPT_get_proc_name };
