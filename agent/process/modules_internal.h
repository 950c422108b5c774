/*
 * agent/process/modules_internal.h: a module of the catalogue as the files that make it up see it:
 * modules.c (identity and tables), module_open.c (the file of a module), module_elf.c (the object in
 * a file) and module_generated.c (registered code).
 */
#ifndef AGENT_PROCESS_MODULES_INTERNAL_H
#define AGENT_PROCESS_MODULES_INTERNAL_H

#include "agent/hash.h"
#include "agent/process/modules.h"

/*
 * How many registrations of generated code are stored for a process. A process can generate code
 * for hours, so names from older registrations are lost.
 */
#define GENERATED_MAX 8

struct known { /* a module as the catalogue stores it */
	struct module module;
	char *raw_path; /* as the process saw it, byte for byte; owned */
	uint32_t major, minor;
	uint64_t inode, inode_generation;
	struct uw_build_id reported; /* by the source, with the mapping */
	/* the same, or else the build-id of the copy that the source stored */
	struct uw_build_id expected;
	/* The process and mapping in which the file was seen first, for the opener. */
	uint32_t pid;
	struct opener_user user; /* the user of pid */
	uint64_t view;		 /* from opener_view, of the processes that have the file */
	bool own_debug;		 /* its debug file is from that view: not valid for other views */
	uint64_t start, end;
	bool deleted, main_program;
	uint64_t reported_elf_off;
	uint64_t elf_off; /* as reported, then as found; bytes */

	bool asked_source;
	int embedded_error; /* why there is no copy, or no other one; 0: the source was not asked */
	unsigned int next_candidate;
	int fd;			    /* -1: not open */
	int open_error;		    /* error of the attempt that pinned the file */
	uint32_t n_mapped_unopened; /* mappings that came while the file could not be opened */
	void *image;
	size_t image_size;
	const struct module *canonical;
	bool stored; /* its table came from the store */
	bool said_fault, no_elf;
	uint64_t used_ns; /* CLOCK_MONOTONIC, while recording: when a process had it mapped last */
	bool needed;	  /* a living process has it mapped; only while parking */
	bool counted;	  /* the profile that is being made has it; likewise */
	bool unlinked;	  /* its file has no name any more; only while parking */
	bool parked;	  /* its file and object were closed: see modules_park */
	bool for_names;	  /* being opened again for its names only */
	/* names that refer to this module, also those of other threads; see module_use */
	_Atomic uint32_t n_users;
	uint32_t n_same;		       /* other modules whose canonical this module is */
	uint64_t identity_hash, contents_hash; /* in the two indexes */
	bool has_contents;		       /* it is in by_contents */
	char *jitdump; /* path reported by the process of generated code; owned; NULL: none */
	struct uw_dynamic *generated[GENERATED_MAX]; /* latest first; NULL after the last */
};

#define MODULES_RUNTIMES_MAX 16

struct modules {
	struct opener *opener;
	const struct source_info *info;
	bool pin, for_names;
	struct store *store;   /* borrowed, like keeper; NULL: none */
	struct keeper *keeper; /* borrowed; NULL: objects without a stored table get none */
	struct known **known;  /* by id; NULL: forgotten, and the id is free */
	size_t n, room, n_known;
	uint32_t *free_ids; /* n - n_known of them; as much room as known has */
	size_t room_free;
	uint64_t serial; /* of the latest module */
	struct uw_hash_index by_identity;
	struct uw_hash_index by_contents; /* usable modules, by path and build-id */
	struct known *kernel, *unknown;
	struct known *runtimes[MODULES_RUNTIMES_MAX]; /* NULL after the last */
	struct runtime_frames *frames;
	uint64_t patience_ns, patience_at_ns; /* the time that was left, and when */
	size_t n_open;	    /* files opened since the last parking, and those left open by it */
	size_t held_max;    /* descriptors below which files are held that nobody needs yet, */
	size_t numbers_max; /* and below which any module's file is */
	size_t open_max;    /* files that stay open although no process has mapped them */
	size_t deleted_max; /* deleted ones among them */
	size_t park_from;   /* when so many are open, parking is tried, */
	uint64_t park_ns;   /* and at this time (CLOCK_MONOTONIC) */
	size_t forget_from; /* when so many are known, forgetting is tried */
	size_t n_objects;   /* opened since the last parking */
	size_t n_generated; /* modules of generated code since the last parking */
	uint32_t *waiting;  /* ids of modules for which a table does not pay yet */
	size_t n_waiting, room_waiting;
	bool said_origin;
	bool hurry; /* see modules_hurry */
	struct opener_views views;
};

static inline struct known *known_of(const struct module *module)
{
	return (struct known *)(uintptr_t)module; /* first member */
}

/* Describe a module's file for the opener. The strings and the user are borrowed from k. */
struct opener_file modules_file_to_open(const struct known *k);

/*
 * Open the next candidate into k->fd, and close the one before it. -EMFILE: it was there, but what is
 * left of the files that this process may have open is for other things.
 */
int modules_open_next(struct modules *modules, struct known *k);

/*
 * Open the ELF object in the module's open file, k->fd, and set k->elf_off. While recording, use a
 * time limit unless only the superuser can have written the file: -ETIMEDOUT.
 */
int modules_open_elf(struct modules *modules, struct known *k, struct uw_object **out);

/*
 * Get or request an unwind table for an object. On failure (no memory) walks use the CFI as before.
 */
void modules_get_table(struct modules *modules, struct known *k);

/*
 * Make a module refer to an earlier module for the same file, so that the file is counted once even
 * if it was reported in two ways (for example with and without a build-id). The same path and
 * build-id do not prove that the files are the same: another user's mount can have both.
 */
void modules_unite(struct modules *modules, struct known *k);

/* Remove a module from the catalogue and free it. Nothing may refer to it. */
void modules_remove(struct modules *modules, struct known *k);

/* Release what a process registered about its code: no sample can need it any more. */
void modules_drop_generated(struct known *k);

#endif
