/*
 * offwind/dynamic.h: for programs that generate code: describe how to unwind that code.
 *
 * The interface is that of libunwind-dynamic(3). Structures, names and values are those of
 * libunwind 1.6, so that a program built with either header can register with either library.
 * offwind reads the list from the running process or from its core file. docs/generated-code.md
 * explains each operation.
 *
 * Ownership: registered data belong to the program and must not be changed or freed until they are
 * cancelled.
 *
 * Threads: both functions can be called by any threads at the same time, but not from a signal
 * handler.
 *
 * Errors: there are none, because nothing is allocated.
 */
#ifndef OFFWIND_DYNAMIC_H
#define OFFWIND_DYNAMIC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef LIBUNWIND_H /* libunwind's own header has declared all of this already */

typedef uint64_t unw_word_t;

/* unw_dyn_op.tag: the effect of an instruction on the frame */
typedef enum {
	UNW_DYN_STOP,	      /* ends the list */
	UNW_DYN_SAVE_REG,     /* reg is copied into register val */
	UNW_DYN_SPILL_FP_REL, /* reg is stored at the frame pointer + val */
	UNW_DYN_SPILL_SP_REL, /* reg is stored at (sp after the instruction) + val */
	UNW_DYN_ADD,	      /* val is added to reg: the stack pointer or a copy of it */
	UNW_DYN_POP_FRAMES,   /* the innermost val prologues are undone */
	UNW_DYN_LABEL_STATE,  /* the state at the region's start gets the name val */
	UNW_DYN_COPY_STATE,   /* the state becomes the one with the name val */
	UNW_DYN_ALIAS,	      /* from here on, the code is a copy of the code at val */
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
	int16_t reg;  /* DWARF number */
	int32_t when; /* in effect after this instruction of the region */
	unw_word_t val;
} unw_dyn_op_t;

typedef struct unw_dyn_region_info {
	struct unw_dyn_region_info *next; /* NULL: this is the last region */
	int32_t insn_count; /* bytes (x86_64) or instructions (aarch64); negative: to the end */
	uint32_t op_count;
	unw_dyn_op_t op[1]; /* op_count entries */
} unw_dyn_region_info_t;

typedef struct unw_dyn_proc_info {
	unw_word_t name_ptr; /* 0: no name */
	unw_word_t handler;  /* never called */
	uint32_t flags;	     /* 0 */
	int32_t pad0;
	unw_dyn_region_info_t *regions;
} unw_dyn_proc_info_t;

/*
 * A sorted table of pairs of 32-bit offsets from segbase: where the code begins and where its FDE
 * is.
 */
typedef struct unw_dyn_table_info {
	unw_word_t name_ptr;
	unw_word_t segbase;
	unw_word_t table_len; /* in words; a pair is one word */
	unw_word_t *table_data;
} unw_dyn_table_info_t;

typedef struct unw_dyn_remote_table_info {
	unw_word_t name_ptr;
	unw_word_t segbase;
	unw_word_t table_len;
	unw_word_t table_data;
} unw_dyn_remote_table_info_t;

typedef struct unw_dyn_info {
	struct unw_dyn_info *next; /* next and prev are set by the library */
	struct unw_dyn_info *prev;
	unw_word_t start_ip;
	unw_word_t end_ip; /* address after the last byte */
	unw_word_t gp;	   /* not used */
	int32_t format;
	int32_t pad;
	unw_word_t load_offset; /* added to the addresses in FDEs */
	union {
		unw_dyn_proc_info_t pi;
		unw_dyn_table_info_t ti;
		unw_dyn_remote_table_info_t rti;
	} u;
} unw_dyn_info_t;

typedef struct unw_dyn_info_list {
	uint32_t version;
	uint32_t generation; /* incremented after each change */
	unw_dyn_info_t *first;
} unw_dyn_info_list_t;

#define _U_QP_TRUE 0

/* The size in bytes of a region with op_count operations. */
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

/*
 * Register information about generated code. *info must not be changed or freed until it is
 * cancelled.
 */
extern void _U_dyn_register(unw_dyn_info_t *info);
/* Remove the information from the list. */
extern void _U_dyn_cancel(unw_dyn_info_t *info);

#endif /* LIBUNWIND_H */

/*
 * The address of the list, for programs that read it from outside. offwind looks up both symbols.
 */
extern unw_word_t _U_dyn_info_list_addr(void);
extern unw_dyn_info_list_t _U_dyn_info_list;

#ifdef __cplusplus
}
#endif

#endif
