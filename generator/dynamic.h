/*
 * offwind/dynamic.h: for programs that generate code: how it is to be unwound.
 *
 * libunwind-dynamic(3) has the idea; structures, names and values are those of libunwind 1.6,
 * so that a program built with either header registers with either library.  offwind reads the
 * list out of the running process, or out of its core; docs/generated-code.md says what each
 * operation means.
 *
 * Ownership: what is registered belongs to the program and must stay as it is until it is
 * cancelled.  Threads: both functions may be called by any at once; neither in a signal handler.
 * Errors: there are none, for there is nothing to allocate.
 */
#ifndef OFFWIND_DYNAMIC_H
#define OFFWIND_DYNAMIC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef LIBUNWIND_H /* its own header has declared all of it already */

typedef uint64_t unw_word_t;

/* What an instruction does to the frame: unw_dyn_op.tag. */
typedef enum {
	UNW_DYN_STOP,	      /* ends the list */
	UNW_DYN_SAVE_REG,     /* reg is copied into register val */
	UNW_DYN_SPILL_FP_REL, /* reg is stored at the frame pointer + val */
	UNW_DYN_SPILL_SP_REL, /* reg is stored at the stack pointer, as it is behind it, + val */
	UNW_DYN_ADD,	      /* val is added to reg: the stack pointer or a copy of it */
	UNW_DYN_POP_FRAMES,   /* the innermost val prologues are undone */
	UNW_DYN_LABEL_STATE,  /* the state at the region's entry is called val */
	UNW_DYN_COPY_STATE,   /* the state is the one called val */
	UNW_DYN_ALIAS,	      /* from here on it is a copy of the code at val */
} unw_dyn_operation_t;

/* unw_dyn_info.format */
typedef enum {
	UNW_INFO_FORMAT_DYNAMIC,      /* u.pi */
	UNW_INFO_FORMAT_TABLE,	      /* u.ti */
	UNW_INFO_FORMAT_REMOTE_TABLE, /* u.rti */
} unw_dyn_info_format_t;

typedef struct unw_dyn_op {
	int8_t tag;
	int8_t qp;    /* _U_QP_TRUE */
	int16_t reg;  /* by DWARF number */
	int32_t when; /* takes effect behind this instruction of the region */
	unw_word_t val;
} unw_dyn_op_t;

typedef struct unw_dyn_region_info {
	struct unw_dyn_region_info *next; /* NULL: the last */
	int32_t insn_count; /* bytes on x86_64, instructions on aarch64; negative: up to the end */
	uint32_t op_count;
	unw_dyn_op_t op[1]; /* op_count of them */
} unw_dyn_region_info_t;

typedef struct unw_dyn_proc_info {
	unw_word_t name_ptr; /* 0: it has none */
	unw_word_t handler;  /* nobody calls it */
	uint32_t flags;	     /* 0 */
	int32_t pad0;
	unw_dyn_region_info_t *regions;
} unw_dyn_proc_info_t;

/* Sorted pairs of 32-bit distances from segbase: where code begins, where its FDE is. */
typedef struct unw_dyn_table_info {
	unw_word_t name_ptr;
	unw_word_t segbase;
	unw_word_t table_len; /* in words, which are pairs */
	unw_word_t *table_data;
} unw_dyn_table_info_t;

typedef struct unw_dyn_remote_table_info {
	unw_word_t name_ptr;
	unw_word_t segbase;
	unw_word_t table_len;
	unw_word_t table_data;
} unw_dyn_remote_table_info_t;

typedef struct unw_dyn_info {
	struct unw_dyn_info *next; /* not the program's, nor the following */
	struct unw_dyn_info *prev;
	unw_word_t start_ip;
	unw_word_t end_ip; /* past the last */
	unw_word_t gp;	   /* of no meaning here */
	int32_t format;
	int32_t pad;
	unw_word_t load_offset; /* added to the addresses that FDEs state */
	union {
		unw_dyn_proc_info_t pi;
		unw_dyn_table_info_t ti;
		unw_dyn_remote_table_info_t rti;
	} u;
} unw_dyn_info_t;

typedef struct unw_dyn_info_list {
	uint32_t version;
	uint32_t generation; /* another one after each change */
	unw_dyn_info_t *first;
} unw_dyn_info_list_t;

#define _U_QP_TRUE 0

/* Bytes of a region with so many operations. */
#define _U_dyn_region_info_size(op_count) \
	(offsetof(unw_dyn_region_info_t, op) + (size_t)(op_count) * sizeof(unw_dyn_op_t))

#define _U_dyn_op(tag, qp, when, reg, val) \
	((unw_dyn_op_t){ (tag), (qp), (reg), (when), (unw_word_t)(val) })
#define _U_dyn_op_save_reg(op, qp, when, reg, to) \
	((void)(*(op) = _U_dyn_op(UNW_DYN_SAVE_REG, (qp), (when), (reg), (to))))
#define _U_dyn_op_spill_fp_rel(op, qp, when, reg, off) \
	((void)(*(op) = _U_dyn_op(UNW_DYN_SPILL_FP_REL, (qp), (when), (reg), (off))))
#define _U_dyn_op_spill_sp_rel(op, qp, when, reg, off) \
	((void)(*(op) = _U_dyn_op(UNW_DYN_SPILL_SP_REL, (qp), (when), (reg), (off))))
#define _U_dyn_op_add(op, qp, when, reg, value) \
	((void)(*(op) = _U_dyn_op(UNW_DYN_ADD, (qp), (when), (reg), (value))))
#define _U_dyn_op_pop_frames(op, qp, when, n) \
	((void)(*(op) = _U_dyn_op(UNW_DYN_POP_FRAMES, (qp), (when), 0, (n))))
#define _U_dyn_op_label_state(op, label) \
	((void)(*(op) = _U_dyn_op(UNW_DYN_LABEL_STATE, _U_QP_TRUE, -1, 0, (label))))
#define _U_dyn_op_copy_state(op, label) \
	((void)(*(op) = _U_dyn_op(UNW_DYN_COPY_STATE, _U_QP_TRUE, -1, 0, (label))))
#define _U_dyn_op_alias(op, qp, when, addr) \
	((void)(*(op) = _U_dyn_op(UNW_DYN_ALIAS, (qp), (when), 0, (addr))))
#define _U_dyn_op_stop(op) ((void)(*(op) = _U_dyn_op(UNW_DYN_STOP, _U_QP_TRUE, -1, 0, 0)))

/* The code's information is known from here on … */
extern void _U_dyn_register(unw_dyn_info_t *info);
/* … and until here. */
extern void _U_dyn_cancel(unw_dyn_info_t *info);

#endif /* LIBUNWIND_H */

/* Where the list is, for who reads it; offwind finds it by the name of either. */
extern unw_word_t _U_dyn_info_list_addr(void);
extern unw_dyn_info_list_t _U_dyn_info_list;

#ifdef __cplusplus
}
#endif

#endif
