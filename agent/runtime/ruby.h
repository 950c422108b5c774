/*
 * agent/runtime/ruby.h: reads the stack of a Ruby thread (CRuby), and the names of its frames.
 *
 * Each thread and fiber has an execution context (rb_execution_context_t, vm_core.h) with a stack: values
 * grow up from its start, control frames (rb_control_frame_t) down from its end. A frame of Ruby code has
 * its instruction sequence (rb_iseq_t); a frame of a C function has the method entry
 * (rb_callable_method_entry_t) in its environment, three words that the frame's ep leads to.
 */
#ifndef AGENT_RUNTIME_RUBY_H
#define AGENT_RUNTIME_RUBY_H

#include "agent/runtime/raw.h"

/* Where things are in the structures of a version: bytes from their start. */
struct ruby_layout {
	unsigned int major, minor;
	uint16_t ec_stack, ec_stack_words, ec_cfp, ec_size; /* rb_execution_context_t */
	/* rb_control_frame_t */
	uint16_t cf_pc, cf_iseq, cf_ep, cf_size;
	/* rb_iseq_t, its body, insns_info in it, and an entry of its table */
	uint16_t iseq_body, iseq_n, iseq_code, iseq_path, iseq_base_label, iseq_label,
		iseq_first_line, first_line_size; /* 8: a Fixnum; 4: a number */
	uint16_t info_table, info_n, info_index, entry_size, entry_line;
	/* rb_callable_method_entry_t, rb_method_definition_t */
	uint16_t me_class, me_definition, definition_name;
	/* RClass, rb_classext_t, st_table: where the name and the attached object are instance variables */
	uint16_t class_ext, ext_ivars, ivars_start, ivars_entries;
	/* RClass with rb_classext_t behind it: where they are fields; 0: they are none */
	uint16_t class_path, class_attached, class_flags, class_is_permanent;
	uint16_t string_bytes;		      /* RString: of a short one; 24: behind the length */
	uint16_t array_mask;		      /* RArray: how many are in a short one */
	uint16_t symbols_last, symbols_names; /* rb_symbols_t */
	uint32_t last_operator;		      /* tLAST_OP_ID */
};

/* Return the layout of a version. NULL: it is not known. */
const struct ruby_layout *ruby_layout_of(unsigned int major, unsigned int minor);

/*
 * Find the frames of an execution context. Frames that were found are in the stack, whatever is returned: 0;
 * -EFAULT: memory was not captured; -E2BIG: there are more frames than there is room; -EBADMSG: the stack is
 * impossible.
 */
int ruby_stack(struct runtime_memory *m, const struct ruby_layout *layout, uint64_t ec,
	       struct raw_stack *stack);

/*
 * Make the plan that copies what ruby_stack reads; the first slice is the execution context of the thread. index is
 * the address of two words: the module and the offset of ruby_current_ec in thread-local storage. base is where
 * their file is.
 */
void ruby_plan(const struct ruby_layout *layout, uint64_t index, uint64_t base, struct plan *out);

/* What is known of a process. */
struct ruby_known {
	uint64_t symbols;	      /* address of ruby_global_symbols; 0: not known */
	uint64_t classpath, attached; /* IDs of __classpath__ and __attached__; 0: not met yet */
};

/*
 * Find a frame's name as Ruby 3.4 writes it: "Class#method", "Class.method", "block in Class#method",
 * "<main>", "<class:Name>". The class is missing where it has no name. C functions have no file.
 * Without the symbols, C functions and classes have no names.
 * Return 0; -EFAULT: memory cannot be read; -EBADMSG: what is there is no function.
 */
int ruby_name(struct raw_reader *reader, const struct ruby_layout *layout, struct ruby_known *known,
	      const struct raw_frame *frame, struct raw_name *out);

/*
 * Find ruby_global_symbols, which is not exported, by the code of rb_id2str: code has the first bytes of the
 * function that it jumps to, and addr is their address. Return 0 if it is not there.
 */
uint64_t ruby_symbols(struct raw_reader *reader, const struct ruby_layout *layout,
		      const uint8_t *code, size_t size, uint64_t addr);

struct runtime_ops;
extern const struct runtime_ops runtime_ruby;

#endif
