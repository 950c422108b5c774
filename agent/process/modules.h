/*
 * agent/process/modules.h: the files that processes have mapped, each known
 * once, with its descriptor and its unwind object.
 *
 * A module is told apart by path, build-id, device, inode and generation as the
 * source saw them, in a container by that too, generated code by its process.  Where that turns out to be one file told in two ways, the
 * later module defers to the earlier (module_canonical).  Modules live as long
 * as the catalogue; a module that frames were found in changes no more, so that
 * another thread may read it.
 */
#ifndef AGENT_PROCESS_MODULES_H
#define AGENT_PROCESS_MODULES_H

#include "agent/opener/opener.h"
#include "agent/pipeline/profile.h"
#include "agent/source/source.h"
#include "agent/store/keeper.h"

struct modules;

/*
 * opener and info are borrowed; info is read again as it becomes fuller.  pin:
 * open files at first sight, before their process can end.
 */
int modules_new(struct opener *opener, const struct source_info *info, bool pin,
		struct modules **out);
void modules_free(struct modules *modules); /* NULL is fine */

/*
 * From now on objects get their tables from their first sampled pc on: by keeper
 * as soon as it can, else out of store at once where it has them.  Both are
 * borrowed, either may be NULL.  With a keeper alone, where nobody after it has
 * anything of a table, once modules_compile finds that it pays.
 */
void modules_tables(struct modules *modules, struct store *store, struct keeper *keeper);
/* Hands over to the keeper what has been read bit by bit so often that a table is cheaper. */
void modules_compile(struct modules *modules);
/* Tells the store what it should have had. */
void modules_want(const struct modules *modules);

/* The module that a mapping event of process pid names.  NULL only when out of memory. */
struct module *modules_get(struct modules *modules, uint32_t pid,
			   const struct event_mapping *mapping);

struct module *modules_kernel(struct modules *modules);	 /* the kernel and its modules */
struct module *modules_unknown(struct modules *modules); /* addresses in no mapping */

/*
 * A uw_resolve_fn, ctx: the catalogue; mapping->user is the module.  Opens the
 * file, candidate by candidate until one has the build-id that was told.
 */
struct uw_object *modules_resolve(void *ctx, const struct uw_mapping *mapping);

/* The module to count frames in: itself, or the one that was the same file first. */
const struct module *module_canonical(const struct module *module);

/*
 * What the process of a JIT module registered of its code; the last few are kept, since names are
 * asked for later.  Counted once more.  What is wrong with it is said once a process.
 */
void module_add_generated(struct module *module, struct uw_dynamic *dynamic);
/*
 * Return the name of the procedure around addr by the latest registration that has one, sanitised; the
 * caller frees it.  NULL: it has no name.  *start, 0 before the call, becomes where the procedure
 * begins, with a name or without one.  Any thread may call this at any time.
 */
char *module_generated_name(const struct module *module, uint64_t addr, uint64_t *start);

/* Descriptor of the file, for readers of symbols; -1: none; borrowed. */
int module_fd(const struct module *module);
/* Its bytes, for as long as the catalogue lives; NULL or without any: it is not mapped. */
const struct uw_view *module_view(const struct module *module);
uint64_t module_elf_off(const struct module *module); /* where the ELF image begins in it */
/* Image bytes where the source gave them; NULL: none; borrowed. */
const void *module_image(const struct module *module, size_t *size);

/* The jitdump file that the process of generated code has mapped; NULL: none; borrowed. */
const char *module_jitdump(const struct module *module);
/* What is known of the file, for the opener; texts are borrowed. */
void module_file(const struct module *module, struct opener_file *out);

const char *module_state_sentence(enum module_state state);

size_t modules_count(const struct modules *modules);
const struct module *modules_at(const struct modules *modules, size_t i);

#endif
