/*
 * compat/libunwind.c: libunwind's functions for remote unwinding, on top of uw_cursor.
 *
 * The functions translate error codes, structures, and memory reads, which libunwind does word by
 * word. The address space says which target is unwound. A cursor that was not initialized here
 * (for local unwinding) is refused with -UNW_EINVAL.
 */
#include "compat/abi.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct unw_addr_space {
	struct unw_accessors accessors; /* a copy, which callers may change through get_accessors */
	struct uw_target *target;
};

_Static_assert(sizeof(struct unw_cursor) == 127 * 8, "as large as x86_64's");

/* The context of our accessors: whose accessors to call, with which argument. */
struct call {
	unw_as as;
	void *arg;
};

int compat_error(int err)
{
	switch (err) {
	case 0:
		return 0;
	case -ENOENT:
		return -UNW_ENOINFO;
	case -ENOMEM:
		return -UNW_ENOMEM;
	case -ENODATA:
		return -UNW_EBADREG;
	case -EINVAL:
		return -UNW_EINVAL;
	case -ENOTSUP:
		return -UNW_EBADVERSION;
	case -EBADMSG:
	case -ELOOP:
		return -UNW_EBADFRAME;
	default:
		return err >= -UNW_ENOINFO && err < 0 ? err : -UNW_EUNSPEC;
	}
}

uint16_t compat_machine(unw_as as)
{
	return uw_target_machine(as->target);
}

/* ---- accessors ------------------------------------------------------------------------ */

/* Read memory in aligned words of 8 bytes, as libunwind does. */
static int read_mem(void *ctx, uint64_t addr, void *out, size_t size)
{
	const struct call *c = ctx;
	uint8_t *to = out;
	unw_word word;

	if (size > UINT64_MAX - addr)
		return -EFAULT;
	while (size) {
		size_t skip = addr % 8, n = 8 - skip < size ? 8 - skip : size;

		if (c->as->accessors.access_mem(c->as, addr - skip, &word, 0, c->arg) < 0)
			return -EFAULT;
		memcpy(to, (uint8_t *)&word + skip, n); /* host and target are little-endian */
		to += n;
		addr += n;
		size -= n;
	}
	return 0;
}

/* Read a register of the innermost frame. */
static int read_reg(void *ctx, unsigned int reg, uint64_t *value)
{
	const struct call *c = ctx;

	return c->as->accessors.access_reg(c->as, (int)reg, value, 0, c->arg) < 0 ? -ENODATA : 0;
}

/*
 * Translate libunwind's procedure information to this library's. unwind_info stays owned by *from.
 */
static void to_ours(const struct unw_proc_info *from, struct uw_proc_info *to)
{
	*to = (struct uw_proc_info){ .start = from->start_ip,
				     .end = from->end_ip,
				     .lsda = from->lsda,
				     .handler = from->handler,
				     .gp = from->gp,
				     .flags = (uint32_t)from->flags,
				     .format = from->format,
				     .unwind_info = from->unwind_info,
				     .unwind_info_size = from->unwind_info_size > 0
								 ? (uint64_t)from->unwind_info_size
								 : 0 };
}

void compat_to_theirs(const struct uw_proc_info *from, struct unw_proc_info *to)
{
	memset(to, 0, offsetof(struct unw_proc_info, extra));
	to->start_ip = from->start;
	to->end_ip = from->end;
	to->lsda = from->lsda;
	to->handler = from->handler;
	to->gp = from->gp;
	to->flags = from->flags;
	to->format = from->format;
	to->unwind_info = from->unwind_info;
	to->unwind_info_size = (int)from->unwind_info_size;
}

void compat_release(struct unw_proc_info *info)
{
	struct uw_proc_info ours_too;

	to_ours(info, &ours_too);
	uw_proc_info_free(&ours_too);
	info->unwind_info = ours_too.unwind_info;
}

/*
 * Call the caller's find_proc_info. Return 0, 1 if it says that unwinding must stop here, or a
 * negative code.
 */
static int find_proc_info(void *ctx, uint64_t pc, bool rules, struct uw_proc_info *out)
{
	const struct call *c = ctx;
	struct unw_proc_info info;
	int got;

	if (!c->as->accessors.find_proc_info)
		return -ENOENT;
	memset(&info, 0, sizeof(info));
	got = c->as->accessors.find_proc_info(c->as, pc, &info, rules, c->arg);
	if (got == -UNW_ESTOPUNWIND)
		return 1;
	/* Any code that libunwind does not define also means that the callback found nothing. */
	if (got == -UNW_ENOINFO || got < -UNW_ENOINFO)
		return -ENOENT;
	if (got < 0)
		return got;
	to_ours(&info, out);
	return 0;
}

/* Let the caller release its unwind_info, and then free what this library allocated. */
static void put_proc_info(void *ctx, struct uw_proc_info *info)
{
	const struct call *c = ctx;
	struct unw_proc_info theirs;

	compat_to_theirs(info, &theirs);
	if (c->as->accessors.put_unwind_info)
		c->as->accessors.put_unwind_info(c->as, &theirs, c->arg);
	info->unwind_info = theirs.unwind_info; /* the callback may have freed it */
	uw_proc_info_free(info);
}

/*
 * Return the address of the target's list of generated code, or -ENOENT if the callback is missing
 * or fails.
 */
static int dyn_list_addr(void *ctx, uint64_t *addr)
{
	const struct call *c = ctx;

	*addr = 0;
	return c->as->accessors.get_dyn_info_list_addr &&
			       c->as->accessors.get_dyn_info_list_addr(c->as, addr, c->arg) >= 0
		       ? 0
		       : -ENOENT;
}

/* Return the name of the procedure at addr, as the caller's get_proc_name reports it. */
static int proc_name(void *ctx, uint64_t addr, char *name, size_t size, uint64_t *off)
{
	const struct call *c = ctx;

	if (!c->as->accessors.get_proc_name)
		return -ENOENT;
	return c->as->accessors.get_proc_name(c->as, addr, name, size, off, c->arg);
}

static const struct uw_accessors ours = { .read_mem = read_mem,
					  .read_reg = read_reg,
					  .find_proc_info = find_proc_info,
					  .put_proc_info = put_proc_info,
					  .dyn_list_addr = dyn_list_addr,
					  .proc_name = proc_name };

/* ---- address spaces ------------------------------------------------------------------- */

/*
 * Create an address space. Return NULL if the machine or byte order is not supported, or if there
 * is no memory.
 */
static unw_as create(uint16_t machine, const struct unw_accessors *accessors, int byte_order)
{
	unw_as as = calloc(1, sizeof(*as));

	if (as && !uw_target_new(machine, byte_order, &ours, NULL, &as->target)) {
		as->accessors = *accessors;
		(void)uw_target_caching(as->target,
					UW_CACHING_NONE); /* the default for remote unwinding */
		return as;
	}
	free(as);
	return NULL;
}

unw_as _Ux86_64_create_addr_space(struct unw_accessors *accessors, int byte_order);
unw_as _Uaarch64_create_addr_space(struct unw_accessors *accessors, int byte_order);

unw_as _Ux86_64_create_addr_space(struct unw_accessors *accessors, int byte_order)
{
	return create(EM_X86_64, accessors, byte_order);
}

unw_as _Uaarch64_create_addr_space(struct unw_accessors *accessors, int byte_order)
{
	return create(EM_AARCH64, accessors, byte_order);
}

static void u_destroy_addr_space(unw_as as)
{
	if (!as)
		return;
	uw_target_free(as->target);
	free(as);
}
COMPAT_BOTH(destroy_addr_space);

static struct unw_accessors *u_get_accessors(unw_as as)
{
	return &as->accessors;
}
COMPAT_BOTH(get_accessors);
COMPAT_BOTH_AS(get_accessors_int, u_get_accessors);

static void u_flush_cache(unw_as as, unw_word start, unw_word end)
{
	uw_target_flush(as->target, start, end);
}
COMPAT_BOTH(flush_cache);

static int u_set_caching_policy(unw_as as, int policy)
{
	return compat_error(uw_target_caching(as->target, (enum uw_caching)policy));
}
COMPAT_BOTH(set_caching_policy);

/* flag is reserved in libunwind 1.6 and must be 0. */
static int u_set_cache_size(unw_as as, size_t size, int flag)
{
	return flag ? -1 : compat_error(uw_target_cache_size(as->target, size));
}
COMPAT_BOTH(set_cache_size);

/* ---- cursors -------------------------------------------------------------------------- */

/*
 * Return the accessor context of a cursor. It is passed again for each call, because callers copy
 * cursors.
 */
static struct call begin(struct unw_cursor *c)
{
	return (struct call){ c->as, c->arg };
}

/* Return whether the cursor was initialized by u_init_remote(). */
static bool is_ours(struct unw_cursor *c)
{
	return uw_cursor_target(&c->cursor) != NULL;
}

/* Place a cursor on the innermost frame of the thread that arg stands for. */
static int u_init_remote(struct unw_cursor *c, unw_as as, void *arg)
{
	struct call call = { as, arg };

	c->as = as;
	c->arg = arg;
	return compat_error(uw_cursor_init(&c->cursor, as->target, &call));
}
COMPAT_BOTH(init_remote);

/*
 * Step to the caller's frame. Return a positive value, 0 if there is none, or an error code of
 * libunwind.
 */
static int u_step(struct unw_cursor *c)
{
	struct call call;
	int got;

	if (!is_ours(c))
		return -UNW_EINVAL;
	call = begin(c);
	uw_cursor_context(&c->cursor, &call);
	got = uw_cursor_step(&c->cursor);
	return got >= 0 ? got : compat_error(got);
}
COMPAT_BOTH(step);

static unsigned int sp_of(const struct unw_cursor *c)
{
	return uw_target_machine(c->as->target) == EM_X86_64 ? UW_X86_64_RSP : UW_AARCH64_SP;
}

/*
 * Translate a register number of libunwind. Two differ: on x86_64 the number after the last
 * register is the CFA, which is where the frame's stack begins; on aarch64 UNW_REG_IP is x30.
 */
#define X86_64_CFA 17

static int number_of(const struct unw_cursor *c, int reg)
{
	if (compat_machine(c->as) == EM_X86_64)
		return reg == X86_64_CFA ? UW_X86_64_RSP : reg;
	return reg == UW_AARCH64_LR ? UW_AARCH64_PC : reg;
}

static int u_get_reg(struct unw_cursor *c, int reg, unw_word *value)
{
	if (!is_ours(c))
		return -UNW_EINVAL;
	reg = number_of(c, reg);
	return reg < 0 || uw_cursor_reg(&c->cursor, (unsigned int)reg, value) ? -UNW_EBADREG : 0;
}
COMPAT_BOTH(get_reg);

/*
 * Set a register of the cursor's frame. The stack pointer cannot be set. The target's registers
 * and memory stay as they are.
 */
static int u_set_reg(struct unw_cursor *c, int reg, unw_word value)
{
	if (!is_ours(c))
		return -UNW_EINVAL;
	reg = number_of(c, reg);
	if (reg == (int)sp_of(c))
		return -UNW_EREADONLYREG;
	return reg < 0 || uw_cursor_set_reg(&c->cursor, (unsigned int)reg, value) ? -UNW_EBADREG
										  : 0;
}
COMPAT_BOTH(set_reg);

/* Floating-point registers are not captured. */
static int u_get_fpreg(struct unw_cursor *c, int reg, void *value)
{
	(void)c;
	(void)reg;
	(void)value;
	return -UNW_EBADREG;
}
COMPAT_BOTH(get_fpreg);
/* The value argument is not declared: it is passed in a register that is not read here. */
static int u_set_fpreg(struct unw_cursor *c, int reg)
{
	(void)c;
	(void)reg;
	return -UNW_EBADREG;
}
COMPAT_BOTH(set_fpreg);

/* Report where the value of a register is saved: in memory, in a register, or in no place. */
static int u_get_save_loc(struct unw_cursor *c, int reg, struct unw_save_loc *loc)
{
	struct uw_save save;

	if (!is_ours(c))
		return -UNW_EINVAL;
	reg = number_of(c, reg);
	if (reg < 0 || uw_cursor_save(&c->cursor, (unsigned int)reg, &save))
		return -UNW_EBADREG;
	memset(loc, 0, offsetof(struct unw_save_loc, extra));
	if (save.place == UW_PLACE_MEMORY) {
		loc->type = 1;
		loc->u.addr = save.addr;
	} else if (save.place == UW_PLACE_REGISTER) {
		loc->type = 2;
		loc->u.regnum = save.from;
	}
	return 0;
}
COMPAT_BOTH(get_save_loc);

/* Report the procedure of the cursor's frame, without rules. */
static int u_get_proc_info(struct unw_cursor *c, struct unw_proc_info *info)
{
	struct uw_proc_info found;
	struct call call;
	unw_word ip;
	int err;

	if (!is_ours(c))
		return -UNW_EINVAL;
	call = begin(c);
	uw_cursor_context(&c->cursor, &call);
	err = uw_cursor_proc_info(&c->cursor, &found);
	/*
	 * For code without unwind information, such as _start, libunwind on x86_64 reports a
	 * procedure of one byte at ip.
	 */
	if (err == -ENOENT && uw_target_machine(c->as->target) == EM_X86_64 &&
	    !uw_cursor_reg(&c->cursor, UW_X86_64_RIP, &ip)) {
		found = (struct uw_proc_info){ .start = ip, .end = ip + 1 };
		err = 0;
	}
	if (!err)
		compat_to_theirs(&found, info);
	return compat_error(err);
}
COMPAT_BOTH(get_proc_info);

/* Report the procedure at ip by the caller's own callback, as libunwind does. */
static int u_get_proc_info_by_ip(unw_as as, unw_word ip, struct unw_proc_info *info, void *arg)
{
	if (!as->accessors.find_proc_info)
		return -UNW_ENOINFO;
	return as->accessors.find_proc_info(as, ip, info, 0, arg);
}
COMPAT_BOTH(get_proc_info_by_ip);

/* Copy the name of the cursor's procedure. off may be NULL. */
static int u_get_proc_name(struct unw_cursor *c, char *name, size_t size, unw_word *off)
{
	struct call call;
	unw_word ignored;

	if (!is_ours(c))
		return -UNW_EINVAL;
	call = begin(c);
	uw_cursor_context(&c->cursor, &call);
	return compat_error(uw_cursor_proc_name(&c->cursor, name, size, off ? off : &ignored));
}
COMPAT_BOTH(get_proc_name);

/*
 * On x86_64, return whether this is the frame that a signal interrupted. Its pc is exact, while
 * callers subtract 1 from the pc of all other frames to look up the call. On aarch64, return
 * whether this is the frame of the signal trampoline.
 */
static int u_is_signal_frame(struct unw_cursor *c)
{
	uint8_t stepper, confidence;
	struct call call;
	bool exact;

	if (!is_ours(c))
		return -UNW_EINVAL;
	if (compat_machine(c->as) == EM_X86_64) {
		uw_cursor_found(&c->cursor, &stepper, &confidence, &exact);
		return exact && stepper != UW_STEPPER_CONTEXT;
	}
	call = begin(c);
	uw_cursor_context(&c->cursor, &call);
	return uw_cursor_is_signal(&c->cursor);
}
COMPAT_BOTH(is_signal_frame);

/* Captured state cannot be resumed. */
static int u_resume(struct unw_cursor *c)
{
	(void)c;
	return -UNW_EINVAL;
}
COMPAT_BOTH(resume);

/* ---- unwind tables -------------------------------------------------------------------- */

/*
 * Opened files with .debug_frame. They stay open for the life of the process, because a table that
 * refers to one has no owner who says when it is no longer used.
 */
#define FILES_MAX 256

struct debug_file {
	struct uw_object *object;
	dev_t dev;
	ino_t ino;
	int64_t changed_ns;
};

static struct debug_file files[FILES_MAX];
static size_t n_files;
static pthread_mutex_t files_lock = PTHREAD_MUTEX_INITIALIZER;

/*
 * Return the opened file at path, which is never freed, or NULL if it cannot be used. Thread-safe.
 */
static struct debug_file *debug_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct debug_file *found = NULL;
	struct stat st;
	int64_t changed;

	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		(void)close(fd);
		return NULL;
	}
	changed = st.st_ctim.tv_sec * INT64_C(1000000000) + st.st_ctim.tv_nsec;
	(void)pthread_mutex_lock(&files_lock);
	for (size_t i = 0; i < n_files && !found; i++)
		if (files[i].dev == st.st_dev && files[i].ino == st.st_ino &&
		    files[i].changed_ns == changed)
			found = &files[i];
	if (!found && n_files < FILES_MAX) {
		struct debug_file file = { .dev = st.st_dev,
					   .ino = st.st_ino,
					   .changed_ns = changed };

		if (!uw_object_open(fd, 0, &file.object)) {
			files[n_files] = file;
			found = &files[n_files++];
		}
	}
	(void)pthread_mutex_unlock(&files_lock);
	(void)close(fd);
	return found;
}

/* Return whether addr is the address of an entry of files. */
static bool is_debug_file(unw_word addr)
{
	uintptr_t first = (uintptr_t)files;

	return addr >= first && addr - first < sizeof(files) &&
	       (addr - first) % sizeof(files[0]) == 0;
}

/*
 * If the file name has .debug_frame information for ip, make *di a table for
 * dwarf_search_unwind_table and return 1. Otherwise return found unchanged.
 */
static int u_dwarf_find_debug_frame(int found, struct unw_dyn_info *di, unw_word ip,
				    unw_word segbase, const char *name, unw_word start,
				    unw_word end)
{
	struct debug_file *file = name && *name ? debug_file(name) : NULL;
	struct uw_proc_query query = { .pc = ip };
	struct uw_proc_info info;

	if (!file || uw_proc_info_object(file->object, segbase, &query, &info) ||
	    !(info.flags & UW_PROC_DEBUG_FRAME))
		return found;
	memset(di, 0, sizeof(*di));
	di->start_ip = start;
	di->end_ip = end;
	di->format = UNW_FORMAT_TABLE;
	di->table.segbase = segbase;
	di->table.table_len = 1;
	di->table.table_data = (uintptr_t)file;
	return 1;
}
COMPAT_BOTH(dwarf_find_debug_frame);

/*
 * Look up the procedure of ip in a table: one made by u_dwarf_find_debug_frame(), or a binary
 * search table in the target's memory, which is read with access_mem. Return -UNW_EINVAL for other
 * formats.
 */
static int u_dwarf_search_unwind_table(unw_as as, unw_word ip, struct unw_dyn_info *di,
				       struct unw_proc_info *info, int need, void *arg)
{
	struct call call = { as, arg };
	struct uw_proc_query query = { .pc = ip,
				       .rules = need,
				       .machine = uw_target_machine(as->target),
				       .read = read_mem,
				       .ctx = &call };
	struct uw_search_table table = { .base = di->table.segbase,
					 .start = di->table.segbase,
					 .entries = di->table.table_data,
					 .n = di->table.table_len,
					 .gp = di->gp };
	struct uw_proc_info found;
	int err;

	switch (di->format) {
	case UNW_FORMAT_TABLE:
		if (!is_debug_file(di->table.table_data))
			return -UNW_EINVAL;
		err = uw_proc_info_object(
			((struct debug_file *)(uintptr_t)di->table.table_data)->object,
			di->table.segbase, &query, &found);
		break;
	case UNW_FORMAT_IP_OFFSET:
		table.start = di->start_ip;
		/* fall through */
	case UNW_FORMAT_REMOTE_TABLE:
		err = uw_proc_info_search(&table, &query, &found);
		break;
	default:
		return -UNW_EINVAL;
	}
	if (!err)
		compat_to_theirs(&found, info);
	return compat_error(err);
}
COMPAT_BOTH(dwarf_search_unwind_table);
