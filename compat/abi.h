/*
 * compat/abi.h: the binary interface of libunwind 1.6: the types that programs were compiled with,
 * for both x86_64 and aarch64. tests/unit/test_compat.c compares them with libunwind's headers.
 *
 * The two machines differ only in the size of a cursor and in floating-point registers, which are
 * not supported here.
 */
#ifndef COMPAT_ABI_H
#define COMPAT_ABI_H

#include <stddef.h>
#include <stdint.h>

#include "unwinder/unwinder.h"

typedef uint64_t unw_word;
struct unw_addr_space;

enum { /* unw_error_t; functions return the negative values */
       UNW_ESUCCESS,
       UNW_EUNSPEC,
       UNW_ENOMEM,
       UNW_EBADREG,
       UNW_EREADONLYREG,
       UNW_ESTOPUNWIND,
       UNW_EINVALIDIP,
       UNW_EBADFRAME,
       UNW_EINVAL,
       UNW_EBADVERSION,
       UNW_ENOINFO,
};

enum { /* unw_dyn_info_format_t */
       UNW_FORMAT_DYNAMIC,
       UNW_FORMAT_TABLE,
       UNW_FORMAT_REMOTE_TABLE,
       UNW_FORMAT_ARM_EXIDX,
       UNW_FORMAT_IP_OFFSET,
};

struct unw_proc_info {
	unw_word start_ip, end_ip, lsda, handler, gp, flags;
	int format;
	int unwind_info_size;
	void *unwind_info;
	char extra; /* never written */
};

/* unw_cursor_t of x86_64; the one of aarch64 is larger. */
struct unw_cursor {
	struct uw_cursor cursor;
	struct unw_addr_space *as;
	void *arg;
	unw_word spare[127 - sizeof(struct uw_cursor) / 8 - 2];
};

typedef struct unw_addr_space *unw_as;

struct unw_accessors {
	int (*find_proc_info)(unw_as as, unw_word ip, struct unw_proc_info *info, int need,
			      void *arg);
	void (*put_unwind_info)(unw_as as, struct unw_proc_info *info, void *arg);
	int (*get_dyn_info_list_addr)(unw_as as, unw_word *addr, void *arg);
	int (*access_mem)(unw_as as, unw_word addr, unw_word *value, int write, void *arg);
	int (*access_reg)(unw_as as, int reg, unw_word *value, int write, void *arg);
	int (*access_fpreg)(unw_as as, int reg, void *value, int write, void *arg);
	int (*resume)(unw_as as, struct unw_cursor *cursor, void *arg);
	int (*get_proc_name)(unw_as as, unw_word ip, char *name, size_t size, unw_word *off,
			     void *arg);
};

struct unw_save_loc {
	int type; /* 0 none, 1 memory, 2 register */
	union {
		unw_word addr;
		int regnum;
	} u;
	char extra;
};

/* unw_dyn_info_t. Only the table formats are passed to this library in its own memory. */
struct unw_dyn_info {
	void *next, *prev;
	unw_word start_ip, end_ip, gp;
	int32_t format, pad;
	unw_word load_offset;
	struct { /* u.ti and u.rti */
		unw_word name_ptr, segbase, table_len, table_data;
	} table;
};

/* Translate an error code of this library to a code of libunwind; 0 stays 0. */
int compat_error(int err);
uint16_t compat_machine(unw_as as); /* EM_* */
void compat_to_theirs(const struct uw_proc_info *from, struct unw_proc_info *to);
/* Free unwind_info if this library allocated it. */
void compat_release(struct unw_proc_info *info);

/*
 * Export the function u_NAME under libunwind's names for both machines. One function serves both,
 * because cursors and address spaces know their machine.
 */
#define COMPAT_BOTH_AS(name, function)                                                 \
	extern __typeof__(function) _Ux86_64_##name __attribute__((alias(#function))); \
	extern __typeof__(function) _Uaarch64_##name __attribute__((alias(#function)))
#define COMPAT_BOTH(name) COMPAT_BOTH_AS(name, u_##name)

#endif
