/*
 * agent/process/module.h: what processes map, as profiles name it: a file, the vDSO, the kernel or
 * generated code. agent/process/modules.h has the catalogue of modules.
 */
#ifndef AGENT_PROCESS_MODULE_H
#define AGENT_PROCESS_MODULE_H

#include "unwinder/unwinder.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct runtime_frames;

enum module_kind {
	MODULE_FILE,
	MODULE_VDSO,
	MODULE_KERNEL,	/* vmlinux and its modules */
	MODULE_JIT,	/* executable memory without a file */
	MODULE_RUNTIME, /* interpreted code: "[cpython]"; agent/runtime/frames.h has its addresses */
	MODULE_OTHER,	/* [vsyscall], [uprobes], or an address in no mapping */
};

enum module_state { /* why a module has no object for unwinding and symbols */
		    MODULE_USABLE,
		    MODULE_NOT_OPENED, /* its contents were not needed so far */
		    MODULE_MISSING,    /* the file does not exist any more */
		    MODULE_REPLACED,   /* the file has another build-id or inode now */
		    MODULE_FOREIGN,    /* the recording is from another machine than the file */
		    MODULE_UNREADABLE, /* permission, I/O error, or not a regular file */
		    MODULE_DAMAGED,    /* not ELF, or damaged */
		    MODULE_NO_FILE,    /* generated code, kernel */
};

struct module {
	/*
	 * id is small and indexes arrays; when a module is forgotten, a later module gets its id.
	 * serial is never used twice.
	 */
	uint32_t id;
	uint64_t serial;
	enum module_kind kind;
	enum module_state state;
	int error;    /* negative errno for the state, or 0 */
	uint32_t pid; /* JIT: the process; other modules are shared by all processes */
	char *path;   /* as the process saw it, sanitised; or "[vdso]", "[kernel]", "[jit]", … */
	struct uw_build_id build_id; /* as reported by the source, or read from the file */
	struct uw_object *object;    /* NULL unless USABLE; owned */
	struct runtime_frames
		*frames; /* RUNTIME: what the addresses mean; borrowed; NULL: unknown */
	bool gone;	 /* USABLE without a file: uses what the store has for the build-id */
};

/* Return whether a mapping, or NULL, has generated code. */
static inline bool module_is_generated(const struct uw_mapping *m)
{
	const struct module *module = m ? m->user : NULL;

	return module && module->kind == MODULE_JIT;
}

/* Read from a file that a process has mapped what is at an address of it, unless it may be written to. -EFAULT: nothing. */
static inline int module_read(struct uw_space *space, uint64_t addr, void *out, size_t size)
{
	const struct uw_mapping *m = uw_space_resolved(space, addr);

	return m && m->object && !uw_object_read(m->object, addr - m->bias, out, size) ? 0
										       : -EFAULT;
}

#endif
