/*
 * agent/process/modules.h: the catalogue of files that processes have mapped. Each file is known
 * once, with its descriptor and its unwind object.
 *
 * Modules are identified by path, build-id, device, inode and generation as the source saw them,
 * and for a process in a container also by the container's view of the file system. Generated code
 * is identified by its process. If two modules turn out to be the same file, reported in two ways,
 * the later one refers to the earlier one (module_canonical). After frames were found in a module, the
 * module does not change as long as a profile has them, so another thread may read it.
 *
 * When recordings are read, modules live as long as the catalogue. While recording, a module is
 * forgotten some time after its last process has ended: see modules_park.
 */
#ifndef AGENT_PROCESS_MODULES_H
#define AGENT_PROCESS_MODULES_H

#include "agent/opener/opener.h"
#include "agent/process/module.h"
#include "agent/source/source.h"
#include "agent/store/tables/keeper.h"

struct modules;

/*
 * Create a catalogue. opener and info are borrowed; info is read again later, when the source has
 * filled in more of it. pin: open each file when it is first seen, before its process can end.
 */
int modules_new(struct opener *opener, const struct source_info *info, bool pin,
		struct modules **out);
void modules_free(struct modules *modules); /* NULL is fine */

/*
 * Give objects unwind tables from their first sampled pc on. With keeper and store, the keeper
 * provides each table as soon as it can. With a store alone, a table that is stored is used at
 * once. With a keeper alone, no later run can use the table, so it is compiled only when
 * modules_compile finds that this pays. Both are borrowed; either may be NULL.
 */
void modules_tables(struct modules *modules, struct store *store, struct keeper *keeper);
/*
 * From now on, files are only asked for names: a debug file stands in for a file that is not here, also one from
 * debuginfod servers.
 */
void modules_for_names(struct modules *modules);
/*
 * Hand over to the keeper the objects whose CFI was parsed so often that compiling a table is
 * cheaper.
 */
void modules_compile(struct modules *modules);
/* Tell the store which tables it lacked, so that it can compile them later. */
void modules_want(const struct modules *modules);

/*
 * Return the module for a mapping event of process pid; add it if it is new. NULL only when out of
 * memory.
 */
struct module *modules_get(struct modules *modules, uint32_t pid,
			   const struct event_mapping *mapping);

/*
 * While modules hurry, they do not open the file of a new mapping: it is opened when a sample needs
 * it. At first they do not hurry.
 */
void modules_hurry(struct modules *modules, bool hurry);

/* Say that a process has begun, ended, or runs another program: it may see other files now. */
void modules_process_changed(struct modules *modules, uint32_t pid);

struct module *modules_kernel(struct modules *modules);	 /* the kernel and its modules */
struct module *modules_unknown(struct modules *modules); /* addresses in no mapping */
/*
 * Return the module for the frames of a runtime of interpreted code, by its name; it is never forgotten. NULL
 * when out of memory. modules_set_frames sets what the addresses in all of them mean; borrowed.
 */
struct runtime_frames;
struct module *modules_runtime(struct modules *modules, const char *name);
void modules_set_frames(struct modules *modules, struct runtime_frames *frames);

/*
 * Return the unwind object of a module; a uw_resolve_fn. ctx is the catalogue, mapping->user the
 * module. The first call opens the file: candidate by candidate, until one has the reported
 * build-id.
 */
struct uw_object *modules_resolve(void *ctx, const struct uw_mapping *mapping);

/* Return the module to count frames in: the module itself, or the earlier one for the same file. */
const struct module *module_canonical(const struct module *module);

/*
 * Add what the process of a JIT module registered about its code. The module takes its own
 * reference. Only the last few registrations stay stored, because names are looked up later. A
 * fault in a registration is logged once for each process.
 */
void module_add_generated(struct module *module, struct uw_dynamic *dynamic);
/*
 * Return the name of the procedure around addr, from the latest registration that has one,
 * sanitised. The caller frees the name. NULL: the procedure has no name. *start must be 0 before
 * the call; it becomes the start of the procedure if a registration has one, with or without a
 * name. Thread-safe.
 */
char *module_generated_name(const struct module *module, uint64_t addr, uint64_t *start);

/*
 * A recorder holds the files of all processes. Those that no living process has mapped are closed,
 * the longest unused first, once there are many of them, and each when none has had it mapped for ten
 * minutes: their descriptors, objects and tables. Opened again is a file when a process maps it, or
 * when a profile with it is to get its names.
 *
 * What is known of a module is forgotten, too, the longest unused first, once many modules have no
 * living process. What a process registered about its code is released when the process has ended.
 *
 * modules_are_many tells that it is time. Then modules_note marks each module that a process has
 * mapped, and modules_note_counted each module that the profile being made has. modules_park closes
 * the files of modules that no process has mapped, and forgets modules without any mark. Only while no
 * other thread reads modules, that is, while there is no profile but the one being made. now_ns:
 * CLOCK_MONOTONIC.
 */
bool modules_are_many(const struct modules *modules, uint64_t now_ns);
void modules_note(struct module *module);
void modules_note_counted(const struct module *module);
void modules_park(struct modules *modules, uint64_t now_ns);
/* Open the file of a parked module again, as far as possible. Does nothing for others. */
void modules_unpark(struct modules *modules, const struct module *module);

/*
 * Say that a cache refers to the module, so that the module is not forgotten until module_unuse. Call
 * module_use only while a profile has the module. Both are thread-safe.
 */
void module_use(const struct module *module);
void module_unuse(const struct module *module);

/* Return the descriptor of the file, for readers of symbols; -1: not open. Borrowed. */
int module_fd(const struct module *module);
/*
 * Return the bytes of the file, valid as long as the catalogue. NULL or an empty view: not mapped.
 */
const struct uw_view *module_view(const struct module *module);
uint64_t module_elf_off(const struct module *module); /* where the ELF image begins in the file */
/* Return the image bytes, if the source provided them; NULL: none. Borrowed. */
const void *module_image(const struct module *module, size_t *size);

/*
 * Return the path of the jitdump file that the process of generated code has mapped; NULL: none.
 * Borrowed.
 */
const char *module_jitdump(const struct module *module);
/* Fill in what is known about the file, for the opener. The strings are borrowed. */
void module_file(const struct module *module, struct opener_file *out);

const char *module_state_sentence(enum module_state state);

/* Return how many ids there are, each below this number. */
size_t modules_count(const struct modules *modules);
/* Return the module with the id i; NULL: it was forgotten. */
const struct module *modules_at(const struct modules *modules, size_t i);
/* Return how many modules are known. */
size_t modules_known(const struct modules *modules);

#endif
