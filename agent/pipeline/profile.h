/*
 * agent/pipeline/profile.h: walked samples, folded: equal stacks of one thread
 * are counted once.  What exporters read.
 *
 * Modules and locations live in a catalogue that outlasts single profiles, so
 * that a rotating recording names each of them once.
 */
#ifndef AGENT_PIPELINE_PROFILE_H
#define AGENT_PIPELINE_PROFILE_H

#include "agent/event.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum module_kind {
	MODULE_FILE,
	MODULE_VDSO,
	MODULE_KERNEL, /* vmlinux and its modules */
	MODULE_JIT,    /* executable memory without a file */
	MODULE_OTHER,  /* [vsyscall], [uprobes], or an address in no mapping */
};

enum module_state { /* why a module has no object to unwind and name with */
		    MODULE_USABLE,
		    MODULE_NOT_OPENED, /* nobody needed its contents so far */
		    MODULE_MISSING,    /* no such file any more */
		    MODULE_REPLACED,   /* a file is there, with another build-id or inode */
		    MODULE_FOREIGN,    /* a file is there, on another machine than was recorded */
		    MODULE_UNREADABLE, /* permission, i/o error, not a regular file */
		    MODULE_DAMAGED,    /* not ELF, or torn */
		    MODULE_NO_FILE,    /* generated code, kernel */
};

struct module {
	uint32_t id;
	enum module_kind kind;
	enum module_state state;
	int error;    /* negative errno behind state, or 0 */
	uint32_t pid; /* JIT: whose it is; other modules are everybody's */
	char *path;   /* as the process saw it, sanitised; "[vdso]", "[kernel]", "[jit]" */
	struct uw_build_id build_id; /* as the source told, or read from the file */
	struct uw_object *object;    /* NULL unless USABLE; owned */
	bool gone; /* USABLE without a file: what the store has for its build-id is used */
};

/*
 * vaddr: MODULE_FILE and MODULE_VDSO with an object: ELF vaddr; a file without
 * one: file offset; everything else: the run-time address.  It is what symbols
 * are sought by: ra - 1 for callers.
 */
struct location {
	uint64_t vaddr;
	const struct module *module;
	uint8_t ra_bytes;   /* 1: the return address was vaddr + 1; 0: vaddr is exact */
	uint8_t confidence; /* enum uw_confidence: how surely frames here are their callee's caller */
};

/* One folded line: a stack of one thread, of one event. */
struct profile_entry {
	uint16_t event; /* index in source_info.events */
	uint8_t stop;	/* enum uw_stop of the user part */
	bool has_user;	/* false: a kernel stack alone */
	bool stack_cut; /* the live stack was longer than the copy */
	uint32_t pid, tid;
	const char *comm;	  /* the thread's name; sanitised */
	const char *process_comm; /* its process's */
	uint64_t cgroup_id;
	const char *cgroup;	 /* its path, sanitised; NULL: not known */
	uint32_t first_location; /* in profile.location_ids; innermost first, kernel before user */
	uint32_t n_locations, n_kernel;
	uint64_t n_samples;
	uint64_t value; /* sum of periods */
	/* Of allocations, in 1 / EVENT_OBJECT: how many there were and how many are not given back. */
	uint64_t objects, live_objects;
	uint64_t live;	    /* their bytes; of all allocations: value */
	uint8_t confidence; /* enum uw_confidence: of the frame that is least sure */
};

struct accounting { /* captured = unwound + lost; see accounting_balanced */
	uint64_t captured;
	uint64_t unwound;
	uint64_t stop[UW_STOP_N]; /* of the unwound: how their user part ended */
	uint64_t cut;		  /* of the unwound: live stack longer than the copy */
	uint64_t lost[EVENT_LOST_N];
	uint64_t sideband_lost;
};

bool accounting_balanced(const struct accounting *a);
void accounting_add(struct accounting *to, const struct accounting *from);
/* "captured 100 = unwound 98 (root 95, truncated 3) + lost 2 (ring_full 2)"; NUL-terminated within size. */
void accounting_text(const struct accounting *a, char *out, size_t size);
/* The same of samples that were not walked: "captured 9 = written 8 + lost 1 (not_written 1)". */
void accounting_written_text(const struct accounting *a, char *out, size_t size);

struct profile {
	struct profile_entry *entries; /* in the order their stacks first came */
	size_t n_entries;
	uint32_t *location_ids; /* into locations */
	size_t n_location_ids;
	const struct location *locations; /* the catalogue's; borrowed */
	size_t n_locations;
	uint64_t start_ns, end_ns; /* source clock: the window, or first and last sample */
	struct accounting accounting;
};

#endif
