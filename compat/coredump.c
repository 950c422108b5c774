/*
 * compat/coredump.c: the accessors of libunwind-coredump, on top of the reader of core files. Mapped
 * files are opened by the names in the core; files that the caller adds have priority.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/source/source.h"
#include "base/elf_note.h"
#include "compat/mapped_files.h"

#define THREADS_MAX 65536
#define BACKING_MAX 4096

struct core_thread {
	struct uw_regs regs;
	uw_read_fn read;
	void *read_ctx;
};

struct backing { /* a file that the caller adds for the mapping at start */
	uint64_t start;
	char *path;
};

struct UCD_info {
	struct source *source;
	struct compat_files *files;
	struct core_thread *threads;
	size_t n_threads, at;
	struct backing *backing;
	size_t n_backing;
	Elf64_Phdr *segments; /* program headers of the core */
	size_t n_segments;
	pid_t pid;
	int signal;
};

/* compat_open_fn: open the file that the caller added for the mapping, or the path in the core. */
static int open_backing(void *ctx, const char *path, const struct uw_mapping *m)
{
	const struct UCD_info *u = ctx;

	for (size_t i = 0; i < u->n_backing; i++)
		if (u->backing[i].start >= m->start && u->backing[i].start < m->end)
			path = u->backing[i].path;
	return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

/* Store a thread's registers and memory accessor. */
static int take_thread(struct UCD_info *u, const struct event *e)
{
	struct core_thread *all;

	if (u->n_threads == THREADS_MAX)
		return -E2BIG;
	all = realloc(u->threads, (u->n_threads + 1) * sizeof(*all));
	if (!all)
		return -ENOMEM;
	u->threads = all;
	all[u->n_threads++] = (struct core_thread){ .regs = e->sample.regs,
						    .read = e->sample.read,
						    .read_ctx = e->sample.read_ctx };
	return 0;
}

/* Store what an event of the core reader reports: a thread or a mapping. */
static int take_event(struct UCD_info *u, const struct event *e)
{
	const struct event_mapping *m = &e->mapping;
	const struct uw_mapping mapping = {
		.start = m->start, .end = m->end, .off = m->off, .prot = m->prot
	};

	u->pid = (pid_t)e->pid;
	if (e->type == EVENT_SAMPLE)
		return e->sample.has_user_regs ? take_thread(u, e) : 0;
	if (e->type != EVENT_MAPPING || m->end <= m->start)
		return 0;
	return compat_files_map(u->files, &mapping, m->path, m->image, m->image_size);
}

/*
 * Read the program headers, and the signal of the first thread: pr_cursig of struct elf_prstatus.
 * They stay empty if they cannot be read.
 */
static void read_heads(struct UCD_info *u, int fd)
{
	Elf64_Ehdr head;
	uint8_t bytes[4096];
	ssize_t got;

	if (pread(fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head) ||
	    head.e_phentsize != sizeof(Elf64_Phdr) || !head.e_phnum || head.e_phnum == PN_XNUM)
		return;
	u->segments = calloc(head.e_phnum, sizeof(*u->segments));
	if (!u->segments ||
	    pread(fd, u->segments, head.e_phnum * sizeof(*u->segments), (off_t)head.e_phoff) !=
		    (ssize_t)(head.e_phnum * sizeof(*u->segments)))
		return;
	u->n_segments = head.e_phnum;
	for (size_t i = 0; i < u->n_segments; i++) {
		struct uw_bytes notes;
		struct uw_note n;

		if (u->segments[i].p_type != PT_NOTE)
			continue;
		got = pread(fd, bytes, sizeof(bytes), (off_t)u->segments[i].p_offset);
		notes = uw_bytes_of(bytes, got > 0 ? (size_t)got : 0);
		/* The kernel writes NT_PRSTATUS first: siginfo (12 bytes), then cursig. */
		if (uw_note_next(&notes, 4, &n) && uw_note_is(&n, "CORE", NT_PRSTATUS) &&
		    n.size >= 14)
			u->signal = n.contents[12] | n.contents[13] << 8;
		return;
	}
}

struct UCD_info *_UCD_create(const char *filename);
void _UCD_destroy(struct UCD_info *u);
int _UCD_get_num_threads(struct UCD_info *u);
void _UCD_select_thread(struct UCD_info *u, int n);
pid_t _UCD_get_pid(struct UCD_info *u);
int _UCD_get_cursig(struct UCD_info *u);
int _UCD_add_backing_file_at_segment(struct UCD_info *u, int segment, const char *filename);
int _UCD_add_backing_file_at_vaddr(struct UCD_info *u, unsigned long vaddr, const char *filename);
int _UCD_find_proc_info(unw_as as, unw_word ip, struct unw_proc_info *info, int need, void *arg);
void _UCD_put_unwind_info(unw_as as, struct unw_proc_info *info, void *arg);
int _UCD_get_dyn_info_list_addr(unw_as as, unw_word *addr, void *arg);
int _UCD_access_mem(unw_as as, unw_word addr, unw_word *value, int write, void *arg);
int _UCD_access_reg(unw_as as, int reg, unw_word *value, int write, void *arg);
int _UCD_access_fpreg(unw_as as, int reg, void *value, int write, void *arg);
int _UCD_get_proc_name(unw_as as, unw_word ip, char *name, size_t size, unw_word *off, void *arg);
int _UCD_resume(unw_as as, struct unw_cursor *cursor, void *arg);
extern struct unw_accessors _UCD_accessors;

/*
 * Open a core file and read its threads and mappings. Return NULL if it cannot be read or has no
 * threads. The caller frees the result with _UCD_destroy().
 */
struct UCD_info *_UCD_create(const char *filename)
{
	struct UCD_info *u = calloc(1, sizeof(*u));
	int fd = open(filename, O_RDONLY | O_CLOEXEC);
	char error[512];
	struct event event;
	int got;

	if (!u || fd < 0) {
		if (fd >= 0)
			(void)close(fd);
		free(u);
		return NULL;
	}
	read_heads(u, fd);
	if (source_core_open(fd, filename, &u->source, error) ||
	    compat_files_new(u->source->info.machine, open_backing, u, &u->files)) {
		_UCD_destroy(u);
		return NULL;
	}
	/* A damaged core is used as far as it is sound. */
	while ((got = source_next(u->source, &event, -1)) > 0)
		if (take_event(u, &event))
			break;
	if (!u->n_threads) {
		_UCD_destroy(u);
		return NULL;
	}
	return u;
}

void _UCD_destroy(struct UCD_info *u)
{
	if (!u)
		return;
	compat_files_free(u->files);
	source_close(u->source);
	for (size_t i = 0; i < u->n_backing; i++)
		free(u->backing[i].path);
	free(u->backing);
	free(u->segments);
	free(u->threads);
	free(u);
}

int _UCD_get_num_threads(struct UCD_info *u)
{
	return (int)u->n_threads;
}

/* Select the thread that the accessors read; an invalid number is ignored. */
void _UCD_select_thread(struct UCD_info *u, int n)
{
	if (n >= 0 && (size_t)n < u->n_threads)
		u->at = (size_t)n;
}

pid_t _UCD_get_pid(struct UCD_info *u)
{
	return u->pid;
}

/* Return the signal that the core was written for, or 0 if it is not known. */
int _UCD_get_cursig(struct UCD_info *u)
{
	return u->signal;
}

/*
 * Use filename for the mapping that contains vaddr. The name is copied. Return 0, or -1 if the
 * file is not readable or there is no memory.
 */
int _UCD_add_backing_file_at_vaddr(struct UCD_info *u, unsigned long vaddr, const char *filename)
{
	struct backing *all;
	char *path;

	if (u->n_backing == BACKING_MAX || access(filename, R_OK))
		return -1;
	path = strdup(filename);
	all = realloc(u->backing, (u->n_backing + 1) * sizeof(*all));
	if (all)
		u->backing = all;
	if (!path || !all) {
		free(path);
		return -1;
	}
	all[u->n_backing++] = (struct backing){ vaddr, path };
	return 0;
}

int _UCD_add_backing_file_at_segment(struct UCD_info *u, int segment, const char *filename)
{
	if (segment < 0 || (size_t)segment >= u->n_segments)
		return -1;
	return _UCD_add_backing_file_at_vaddr(u, u->segments[segment].p_vaddr, filename);
}

/* Read memory of the selected thread (a uw_read_fn). */
static int read_core(void *ctx, uint64_t addr, void *out, size_t size)
{
	const struct UCD_info *u = ctx;
	const struct core_thread *t = &u->threads[u->at];

	return t->read ? t->read(t->read_ctx, addr, out, size) : -EFAULT;
}

/* Read a word from the core or, if the core does not contain it, from a mapped file. */
int _UCD_access_mem(unw_as as, unw_word addr, unw_word *value, int write, void *arg)
{
	struct UCD_info *u = arg;

	(void)as;
	if (write)
		return -UNW_EINVAL;
	return read_core(u, addr, value, sizeof(*value)) &&
			       compat_files_read(u->files, addr, value, sizeof(*value))
		       ? -UNW_EINVAL
		       : 0;
}

/* Look up the procedure at ip in the mapped files. */
int _UCD_find_proc_info(unw_as as, unw_word ip, struct unw_proc_info *info, int need, void *arg)
{
	struct UCD_info *u = arg;
	struct uw_proc_query query = {
		.pc = ip, .rules = need, .machine = compat_machine(as), .read = read_core, .ctx = u
	};

	return compat_files_proc_info(u->files, &query, info);
}

/* Read a register of the selected thread by its DWARF number. Writing is not supported. */
int _UCD_access_reg(unw_as as, int reg, unw_word *value, int write, void *arg)
{
	const struct UCD_info *u = arg;
	const struct uw_regs *regs = &u->threads[u->at].regs;

	(void)as;
	if (write)
		return -UNW_EREADONLYREG;
	if (reg < 0 || reg >= UW_REGS_MAX || !(regs->known >> reg & 1))
		return -UNW_EBADREG;
	*value = regs->value[reg];
	return 0;
}

int _UCD_get_proc_name(unw_as as, unw_word ip, char *name, size_t size, unw_word *off, void *arg)
{
	struct UCD_info *u = arg;

	(void)as;
	return compat_files_proc_name(u->files, ip, name, size, off);
}

struct unw_accessors _UCD_accessors = { .find_proc_info = _UCD_find_proc_info,
					.put_unwind_info = _UCD_put_unwind_info,
					.get_dyn_info_list_addr = _UCD_get_dyn_info_list_addr,
					.access_mem = _UCD_access_mem,
					.access_reg = _UCD_access_reg,
					.access_fpreg = _UCD_access_fpreg,
					.resume = _UCD_resume,
					.get_proc_name = _UCD_get_proc_name };
