/*
 * agent/process/modules.c: the catalogue of mapped files: their identity, and tables for them.
 */
#include "agent/process/modules.h"

#include "agent/array.h"
#include "agent/clock.h"
#include "agent/errand.h"
#include "agent/io.h"
#include "agent/limits.h"
#include "agent/process/modules_internal.h"
#include "symbolizer/symbolizer.h"

#include <assert.h>
#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * Compile a table after one CFI parse for each BYTES_A_READ bytes of code. Measured with clang 14:
 * the parse for one lookup costs 1 to 1.5 us; a table costs 5 to 10 ns for each byte of .eh_frame,
 * which is a tenth of the code: 100 ms for the 120 MB of LLVM.
 */
#define BYTES_A_READ 2048

/*
 * Files that no process has mapped are closed beyond their limit, or beyond this part of the files that
 * this process may have open. A deleted file cannot be opened again: these have a limit of their own.
 */
#define OPEN_PART 4
/*
 * A file is held from its first mapping on, because its process may end; beyond the half of the files
 * that this process may have open, it is opened when a walk needs it. The last quarter is for others.
 */
#define HELD(most)    ((most) / 2)
#define NUMBERS(most) ((most) - (most) / 4)
/*
 * What ended processes registered about their code can take 1 MiB each, so after this number of new
 * processes that generate code, the ended ones are sought.
 */
#define OBJECTS_EVERY	128
#define GENERATED_EVERY 64

/*
 * A file that no process has had mapped for this long is closed, also if there are few. Otherwise memory would grow for
 * hours, until a limit: each program that a build makes is another file. Programs that run now and then stay open.
 */
#define UNUSED_NS UINT64_C(600000000000)

#define TRIES_MAX 16 /* to open a file again; see try_again */

static void known_free(struct known *k)
{
	if (!k)
		return;
	uw_object_put(k->module.object);
	for (size_t i = 0; i < GENERATED_MAX; i++)
		uw_dynamic_put(k->generated[i]);
	free(k->module.path);
	free(k->raw_path);
	free(k->jitdump);
	free(k->image);
	if (k->fd >= 0)
		(void)close(k->fd);
	free(k);
}

/* Find an id for one more module: one that a forgotten module had, or a new one. -ENOMEM. */
static int take_id(struct modules *modules, uint32_t *out)
{
	if (modules->n_known == modules->n) {
		/* Forgetting must not need memory, so the list of free ids has room for all. */
		if (array_grow(modules->known, modules->n, modules->room) ||
		    array_reserve(modules->free_ids, modules->room, modules->room_free))
			return -ENOMEM;
		*out = (uint32_t)modules->n++;
	} else {
		*out = modules->free_ids[modules->n - modules->n_known - 1];
	}
	modules->n_known++;
	return 0;
}

/* Add a module of this kind to the catalogue. Return NULL when out of memory. */
static struct known *add(struct modules *modules, enum module_kind kind, const char *path)
{
	struct known *k = calloc(1, sizeof(*k));
	bool has_bytes = kind == MODULE_FILE || kind == MODULE_VDSO;

	if (!k)
		return NULL;
	k->fd = -1;
	k->canonical = &k->module;
	k->module.kind = kind;
	k->module.state = has_bytes ? MODULE_NOT_OPENED : MODULE_NO_FILE;
	k->raw_path = strdup(path);
	k->module.path = sym_sanitize(path, strlen(path), 4096);
	if (!k->raw_path || !k->module.path || take_id(modules, &k->module.id))
		goto fail;
	k->module.serial = ++modules->serial;
	modules->known[k->module.id] = k;
	return k;
fail:
	known_free(k);
	return NULL;
}

static size_t least(uint64_t a, uint64_t b)
{
	return (size_t)(a < b ? a : b);
}

int modules_new(struct opener *opener, const struct source_info *info, bool pin,
		struct modules **out)
{
	struct modules *modules = calloc(1, sizeof(*modules));
	struct rlimit limit;

	if (!modules)
		return -ENOMEM;
	modules->opener = opener;
	modules->info = info;
	modules->pin = pin;
	if (getrlimit(RLIMIT_NOFILE, &limit))
		limit.rlim_cur = INT_MAX;
	limit.rlim_cur = least(limit.rlim_cur, INT_MAX);
	modules->held_max = HELD(limit.rlim_cur);
	modules->numbers_max = NUMBERS(limit.rlim_cur);
	modules->open_max = least(limits.open_files, limit.rlim_cur / OPEN_PART);
	modules->deleted_max = least(limits.deleted_files, limit.rlim_cur / OPEN_PART);
	modules->park_from = modules->open_max;
	modules->forget_from = limits.modules;
	modules->park_ns = now_ns() + UNUSED_NS / 2;
	modules->kernel = add(modules, MODULE_KERNEL, "[kernel]");
	modules->unknown = add(modules, MODULE_OTHER, "[unknown]");
	if (!modules->kernel || !modules->unknown) {
		modules_free(modules);
		return -ENOMEM;
	}
	*out = modules;
	return 0;
}

void modules_tables(struct modules *modules, struct store *store, struct keeper *keeper)
{
	modules->store = store;
	modules->keeper = keeper;
}

/* Fill in what identifies the module's file in the store. */
static void file_of(const struct known *k, struct store_file *out)
{
	/* The contents of an image have no file that could identify them. */
	store_file_of(k->image ? -1 : k->fd, k->elf_off, k->module.path, out);
}

/*
 * Without a store, tables are only worth making for objects that are parsed often: modules_compile
 * decides later.
 */
void modules_get_table(struct modules *modules, struct known *k)
{
	struct store_file file;

	if (!modules->store && !modules->keeper)
		return;
	if (!modules->store) {
		if (array_grow(modules->waiting, modules->n_waiting, modules->room_waiting))
			return;
		modules->waiting[modules->n_waiting++] = k->module.id;
		return;
	}
	file_of(k, &file);
	if (modules->keeper)
		(void)keeper_add(modules->keeper, k->module.object, &file);
	else
		k->stored = !store_find_at_once(modules->store, k->module.object, &file);
}

/* Return the size of the executable segments in the file, in bytes. */
static uint64_t code_size(const struct uw_object *object)
{
	size_t n;
	const struct uw_segment *segments = uw_object_segments(object, &n);
	uint64_t size = 0;

	for (size_t i = 0; i < n; i++)
		if (segments[i].flags & PF_X)
			size += segments[i].file_size;
	return size;
}

/* A table costs about as much as one parse for each BYTES_A_READ bytes of code. */
void modules_compile(struct modules *modules)
{
	size_t left = 0;

	for (size_t i = 0; i < modules->n_waiting; i++) {
		struct known *k = modules->known[modules->waiting[i]];
		struct store_file file;

		if (!k->module.object)
			continue; /* parked */
		if (uw_object_parsed(k->module.object) <
		    code_size(k->module.object) / BYTES_A_READ) {
			modules->waiting[left++] = k->module.id;
			continue;
		}
		file_of(k, &file);
		(void)keeper_add(modules->keeper, k->module.object, &file);
	}
	modules->n_waiting = left;
}

void modules_want(const struct modules *modules)
{
	for (size_t i = 0; modules->store && i < modules->n; i++) {
		const struct known *k = modules->known[i];
		struct store_file file;

		if (!k || !k->module.object || k->canonical != &k->module)
			continue;
		store_parsed(modules->store, k->module.object);
		if (k->stored || modules->keeper)
			continue;
		file_of(k, &file);
		store_want(modules->store, k->module.object, &file);
	}
}

void modules_free(struct modules *modules)
{
	if (!modules)
		return;
	for (size_t i = 0; i < modules->n; i++)
		known_free(modules->known[i]);
	free(modules->known);
	free(modules->free_ids);
	free(modules->waiting);
	uw_hash_fini(&modules->by_identity);
	uw_hash_fini(&modules->by_contents);
	free(modules);
}

void modules_for_names(struct modules *modules)
{
	modules->for_names = true;
}

void modules_hurry(struct modules *modules, bool hurry)
{
	modules->hurry = hurry;
}

struct module *modules_kernel(struct modules *modules)
{
	return &modules->kernel->module;
}

struct module *modules_unknown(struct modules *modules)
{
	return &modules->unknown->module;
}

struct module *modules_runtime(struct modules *modules, const char *name)
{
	size_t i = 0;

	while (i < MODULES_RUNTIMES_MAX && modules->runtimes[i]) {
		if (!strcmp(modules->runtimes[i]->module.path, name))
			return &modules->runtimes[i]->module;
		i++;
	}
	assert(i < MODULES_RUNTIMES_MAX);
	modules->runtimes[i] = add(modules, MODULE_RUNTIME, name);
	if (!modules->runtimes[i])
		return NULL;
	modules->runtimes[i]->module.frames = modules->frames;
	return &modules->runtimes[i]->module;
}

void modules_set_frames(struct modules *modules, struct runtime_frames *frames)
{
	modules->frames = frames;
	for (size_t i = 0; i < MODULES_RUNTIMES_MAX && modules->runtimes[i]; i++)
		modules->runtimes[i]->module.frames = frames;
}

size_t modules_count(const struct modules *modules)
{
	return modules->n;
}

const struct module *modules_at(const struct modules *modules, size_t i)
{
	assert(i < modules->n);
	return modules->known[i] ? &modules->known[i]->module : NULL;
}

size_t modules_known(const struct modules *modules)
{
	return modules->n_known;
}

/*
 * Return whether a file in memory without a reported build-id is an ELF program. The kernel reports
 * no build-id before 5.12, nor before 6.11 for mappings older than the recording. So read the file
 * itself while its process is alive. Only done while recording (pin).
 */
static bool is_program(const struct modules *modules, uint32_t pid,
		       const struct event_mapping *mapping)
{
	const struct opener_file file = { .pid = pid,
					  .start = mapping->start,
					  .end = mapping->end,
					  .path = "",
					  .deleted = true };
	const struct source_info *info = modules->info;
	unsigned int next = 0;
	bool is;
	int fd;

	if (!modules->pin)
		return false;
	/* The source may hold a file open that its process does not have any more. */
	if ((!info->file || info->file(info->file_ctx, mapping->major, mapping->minor,
				       mapping->inode, mapping->path, &fd)) &&
	    opener_open(modules->opener, &file, &next, &fd))
		return false;
	is = io_is_elf(fd, 0);
	(void)close(fd);
	return is;
}

/* Return the kind of a mapping, by the names that kernels give to mappings without a file. */
static enum module_kind kind_of(const struct modules *modules, uint32_t pid,
				const struct event_mapping *mapping)
{
	const char *path = mapping->path;
	/* Heap and stack are executable only if a program generates code there. */
	static const char *const generated[] = {
		"//anon",      "/anon_hugepage", "/memfd:", "/dev/zero", "/SYSV",
		"anon_inode:", "[anon",		 "[heap]",  "[stack"
	};

	if (!*path)
		return MODULE_JIT;
	if (mapping->file)
		return MODULE_FILE;
	if (!strcmp(path, "[vdso]"))
		return MODULE_VDSO;
	/* A memfd can hold a program, or code that a program generates. */
	if (!strncmp(path, "/memfd:", 7) &&
	    (mapping->build_id.size || is_program(modules, pid, mapping)))
		return MODULE_FILE;
	for (size_t i = 0; i < sizeof(generated) / sizeof(generated[0]); i++)
		if (!strncmp(path, generated[i], strlen(generated[i])))
			return MODULE_JIT;
	return path[0] == '/' ? MODULE_FILE : MODULE_OTHER;
}

/*
 * Compare a known module with a mapping of this kind from a process that has this view of files. A
 * file can have the name of a mapping without a file, such as "[vdso]".
 */
static bool same_identity(const struct known *k, enum module_kind kind,
			  const struct event_mapping *m, uint64_t view)
{
	/* Mappings older than the recording are reported without a generation: 0 equals any. */
	return k->module.kind == kind && k->inode == m->inode && k->view == view &&
	       (k->inode_generation == m->inode_generation || !k->inode_generation ||
		!m->inode_generation) &&
	       k->major == m->major && k->minor == m->minor && k->reported_elf_off == m->elf_off &&
	       uw_build_id_equal(&k->reported, &m->build_id) && !strcmp(k->raw_path, m->path);
}

/*
 * Remember the path of a jitdump file. A process that writes jit-PID.dump maps it, so that a
 * recorder sees where it is.
 */
static void note_jitdump(struct modules *modules, uint32_t pid, const struct event_mapping *mapping)
{
	const char *slash = strrchr(mapping->path, '/');
	struct event_mapping code = { .path = "" };
	size_t n = slash ? strlen(slash) : 0;
	struct module *module;
	struct known *k;

	if (n < 10 || strncmp(slash, "/jit-", 5) != 0 || strcmp(slash + n - 5, ".dump") != 0)
		return;
	module = modules_get(modules, pid, &code);
	k = module ? known_of(module) : NULL;
	if (k && !k->jitdump)
		k->jitdump = strdup(mapping->path);
}

/*
 * Return what identifies the module of a mapping, with all else zero. Mappings without a file are
 * one module for each name, however their pages were made. Generated code is one module for each
 * process.
 */
static struct event_mapping identity_of(enum module_kind kind, uint32_t pid,
					const struct event_mapping *mapping)
{
	if (kind == MODULE_FILE)
		return *mapping;
	if (kind == MODULE_JIT)
		return (struct event_mapping){ .path = "[jit]", .inode = pid };
	if (kind == MODULE_VDSO)
		return (struct event_mapping){ .path = mapping->path,
					       .build_id = mapping->build_id };
	return (struct event_mapping){ .path = mapping->path };
}

/* Note the process and the mapping through which the opener is to look for the module's file. */
static void set_place(const struct modules *modules, struct known *k, uint32_t pid,
		      const struct event_mapping *mapping)
{
	k->pid = pid;
	k->user = (struct opener_user){ .known = false };
	if (modules->opener &&
	    ((k->module.kind == MODULE_FILE && !modules->hurry) || k->module.kind == MODULE_JIT))
		opener_user_of(modules->opener, pid, &k->user);
	k->start = mapping->start;
	k->end = mapping->end;
	k->deleted = mapping->deleted;
}

/* ---- files that no process has mapped any more ---------------------------------------- */

bool modules_are_many(const struct modules *modules, uint64_t now)
{
	return modules->pin &&
	       (modules->n_open >= modules->park_from || modules->n_known >= modules->forget_from ||
		modules->n_objects >= OBJECTS_EVERY || modules->n_generated >= GENERATED_EVERY ||
		now >= modules->park_ns);
}

void modules_note(struct module *module)
{
	struct known *k = known_of(module);

	k->needed = known_of(k->canonical)->needed = true;
}

void modules_note_counted(const struct module *module)
{
	known_of(module)->counted = true;
}

void module_use(const struct module *module)
{
	(void)atomic_fetch_add(&known_of(module)->n_users, 1);
}

void module_unuse(const struct module *module)
{
	(void)atomic_fetch_sub(&known_of(module)->n_users, 1);
}

/*
 * Close the object and, if it can be opened again, the file; what identifies the module stays. When it is opened again, it is
 * found out anew whether another one is the same file.
 */
static void park(struct known *k, bool file_too)
{
	if (k->canonical != &k->module)
		known_of(k->canonical)->n_same--;
	k->canonical = &k->module;
	uw_object_put(k->module.object);
	k->module.object = NULL;
	if (k->module.state == MODULE_USABLE || file_too)
		k->module.state = MODULE_NOT_OPENED;
	if (file_too) {
		(void)close(k->fd);
		k->fd = -1;
	}
	k->parked = true;
}

static int by_use(const void *a, const void *b)
{
	const struct known *const *x = a, *const *y = b;

	return ((*x)->used_ns > (*y)->used_ns) - ((*x)->used_ns < (*y)->used_ns);
}

static bool is_unlinked(const struct known *k)
{
	struct stat st;

	return !fstat(k->fd, &st) && !st.st_nlink;
}

/*
 * Closing and forgetting begins at a limit and goes on to half of it, so that it is not done for
 * every file. A file that is run again is opened again.
 */
static size_t left_of(uint64_t limit)
{
	return (size_t)limit / 2;
}

/*
 * Return whether a file is open that no process has mapped, and that can be opened again. No other module may need it for
 * its names. left: a thread that was left behind may still read a file that names are found in.
 */
static bool is_unused(struct known *k, bool left)
{
	return !k->needed && k->fd >= 0 && !k->n_same && !k->image &&
	       k->module.kind == MODULE_FILE && !(left && atomic_load(&k->n_users));
}

/*
 * Close files that no process has mapped. unused has room for all modules. */
static void close_files(struct modules *modules, struct known **unused)
{
	bool left = errands_left();
	size_t n = 0, n_parked = 0, n_deleted = 0, most = left_of(modules->open_max);

	modules->n_open = 0;
	for (size_t i = 0; i < modules->n; i++) {
		struct known *k = modules->known[i];

		if (!k)
			continue;
		modules->n_open += k->fd >= 0;
		if (is_unused(k, left)) {
			k->unlinked = is_unlinked(k);
			n_deleted += k->unlinked;
			unused[n++] = k;
		}
	}
	if (n > most)
		qsort(unused, n, sizeof(*unused), by_use);
	for (size_t i = 0; i + most < n; i++) {
		bool unlinked = unused[i]->unlinked;
		bool close_it = !unlinked || n_deleted > modules->deleted_max;

		park(unused[i], close_it);
		n_deleted -= unlinked && close_it;
		n_parked += close_it;
		if (unlinked && close_it)
			limits_reach(deleted_files, 1);
	}
	limits_reach(open_files, n_parked);
	modules->n_open -= n_parked;
	modules->park_from = modules->n_open + modules->open_max - most;
}

/*
 * Close files that no process has had mapped for a long time. Not those of the profile that is being made: a deleted one
 * could not be opened again for its names.
 */
static void close_long_unused(struct modules *modules, uint64_t now)
{
	bool left = errands_left();

	for (size_t i = 0; i < modules->n; i++) {
		struct known *k = modules->known[i];

		if (k && k->needed)
			k->used_ns = now;
		if (k && is_unused(k, left) && !k->counted && k->used_ns + UNUSED_NS < now)
			park(k, true);
	}
	modules->park_ns = now + UNUSED_NS / 2;
}

/* Free the tables of files that no process has mapped, if they are large. unused has room for all modules. */
static void free_tables(struct modules *modules, struct known **unused)
{
	bool left = errands_left();
	uint64_t bytes = 0, n_parked = 0;
	size_t n = 0;

	for (size_t i = 0; i < modules->n; i++) {
		struct known *k = modules->known[i];

		if (k && k->module.object && is_unused(k, left)) {
			bytes += uw_object_memory(k->module.object);
			unused[n++] = k;
		}
	}
	if (bytes > limits.table_bytes)
		qsort(unused, n, sizeof(*unused), by_use);
	else
		n = 0;
	for (size_t i = 0; i < n && bytes > left_of(limits.table_bytes); i++) {
		bytes -= uw_object_memory(unused[i]->module.object);
		park(unused[i], false);
		n_parked++;
	}
	limits_reach(table_bytes, n_parked);
	modules->n_objects = 0;
}

/*
 * Forget modules that nothing refers to, the longest unused first. unused has room for all modules.
 */
static void forget(struct modules *modules, struct known **unused)
{
	size_t n = 0, left = 0, most = left_of(limits.modules);

	for (size_t i = 0; i < modules->n; i++) {
		struct known *k = modules->known[i];

		if (k && !k->needed && !k->counted && !k->n_same && !atomic_load(&k->n_users) &&
		    k->module.kind != MODULE_RUNTIME && k != modules->kernel &&
		    k != modules->unknown)
			unused[n++] = k;
	}
	if (n > most) {
		qsort(unused, n, sizeof(*unused), by_use);
		for (size_t i = 0; i + most < n; i++) {
			modules->n_open -= unused[i]->fd >= 0;
			modules_remove(modules, unused[i]);
		}
		limits_reach(modules, n - most);
	}
	for (size_t i = 0; i < modules->n_waiting; i++)
		if (modules->known[modules->waiting[i]])
			modules->waiting[left++] = modules->waiting[i];
	modules->n_waiting = left;
	modules->forget_from = modules->n_known + limits.modules - most;
}

/* Without memory only what was unused for long is closed, and the rest is tried again later. */
void modules_park(struct modules *modules, uint64_t now)
{
	struct known **unused = calloc(modules->n, sizeof(*unused));

	close_long_unused(modules, now);
	if (unused) {
		close_files(modules, unused);
		free_tables(modules, unused);
		forget(modules, unused);
	}
	free(unused);
	modules->n_generated = 0;
	for (size_t i = 0; i < modules->n; i++) {
		struct known *k = modules->known[i];

		if (k && k->module.kind == MODULE_JIT && !k->needed && !k->counted)
			modules_drop_generated(k);
		if (k)
			k->needed = k->counted = false;
	}
}

/* Forget how the file was looked for, so that it is looked for again. */
static void look_again(struct known *k)
{
	k->parked = false;
	if (k->module.error == -EMFILE)
		k->module.state = MODULE_NOT_OPENED;
	if (k->fd >= 0)
		return; /* a deleted file, which stayed open */
	k->asked_source = false;
	k->embedded_error = 0;
	k->next_candidate = 0;
	k->open_error = 0;
}

void modules_unpark(struct modules *modules, const struct module *module)
{
	struct known *k = known_of(module);
	const struct uw_mapping mapping = { .user = &k->module };

	if (!k->parked)
		return;
	look_again(k);
	k->for_names = true;
	uw_object_put(modules_resolve(modules, &mapping));
	k->for_names = false;
}

/*
 * Hold a mapped file open, because it may be gone when a sample needs it; but not if so many are open,
 * or the worker is so late, that the sample must ask for it.
 */
static void hold(struct modules *modules, struct known *k)
{
	if (modules->hurry)
		return;
	k->open_error = modules_open_next(modules, k);
	/* -EBUSY: a lock of the process, or a busy machine, keeps the opener waiting; it may not when the sample asks. */
	if (k->open_error == -EMFILE || k->open_error == -EBUSY ||
	    k->fd >= (int)modules->held_max) {
		if (k->fd >= 0)
			(void)close(k->fd);
		k->fd = -1;
		look_again(k);
	}
	modules->n_open += k->fd >= 0;
}

/* A process has mapped the file of a module that is not open: look for it anew, and hold it. */
static void hold_again(struct modules *modules, struct known *k, uint32_t pid,
		       const struct event_mapping *mapping)
{
	look_again(k);
	if (k->fd >= 0)
		return;
	set_place(modules, k, pid, mapping);
	hold(modules, k);
}

/*
 * Try again to open a file that could not be opened before, through this process: its root or its
 * mappings may lead to the file. A process can map such a file 65,000 times, and so can its children,
 * and each attempt takes about 100 us: after TRIES_MAX attempts only each doubling of the number of
 * mappings is an occasion.
 */
static void try_again(struct modules *modules, struct known *k, uint32_t pid,
		      const struct event_mapping *mapping)
{
	if (!k->open_error || k->fd >= 0 || k->module.state != MODULE_NOT_OPENED || modules->hurry)
		return;
	k->n_mapped_unopened++;
	if (k->n_mapped_unopened > TRIES_MAX && k->n_mapped_unopened & (k->n_mapped_unopened - 1))
		return;
	hold_again(modules, k, pid, mapping);
}

/* Copy the vDSO's bytes, if the source has them. -ENOMEM. */
static int copy_image(struct known *k, const struct event_mapping *mapping)
{
	if (!mapping->image || !mapping->image_size)
		return 0;
	k->image = malloc(mapping->image_size);
	if (!k->image)
		return -ENOMEM;
	memcpy(k->image, mapping->image, mapping->image_size);
	k->image_size = mapping->image_size;
	return 0;
}

/*
 * Return the view of files that a process has (opener_view). Most mappings come with it. Without an
 * inode nothing else tells files apart, so ask.
 */
static uint64_t view_of(struct modules *modules, uint32_t pid, const struct event_mapping *m)
{
	if (!m->inode)
		return opener_view(modules->opener, pid, true);
	return m->has_view ? m->view : opener_views_get(&modules->views, modules->opener, pid);
}

void modules_process_changed(struct modules *modules, uint32_t pid)
{
	opener_views_forget(&modules->views, pid);
}

struct module *modules_get(struct modules *modules, uint32_t pid,
			   const struct event_mapping *mapping)
{
	enum module_kind kind = kind_of(modules, pid, mapping);
	struct event_mapping m = identity_of(kind, pid, mapping);
	struct known *k;
	uint64_t hash, view = 0, used_ns = modules->pin ? now_ns() : 0;
	uint32_t id;

	if (kind == MODULE_FILE)
		note_jitdump(modules, pid, mapping);
	/* In another mount namespace, the same path and build-id can be another file. */
	if (kind == MODULE_FILE && modules->pin)
		view = view_of(modules, pid, &m);
	hash = hash_bytes(m.inode, m.path, strlen(m.path));
	hash = hash_bytes(hash, m.build_id.bytes, m.build_id.size);
	id = UW_HASH_FIND(i, &modules->by_identity, hash,
			  same_identity(modules->known[i], kind, &m, view));
	if (id != UW_HASH_NONE) {
		k = modules->known[id];
		k->used_ns = known_of(k->canonical)->used_ns = used_ns;
		if (k->parked)
			hold_again(modules, k, pid, mapping);
		else
			try_again(modules, k, pid, mapping);
		return &k->module;
	}
	k = add(modules, kind, m.path);
	if (!k || uw_hash_add(&modules->by_identity, hash, k->module.id))
		return NULL;
	k->identity_hash = hash;
	modules->n_generated += kind == MODULE_JIT;
	k->major = m.major;
	k->minor = m.minor;
	k->inode = m.inode;
	k->inode_generation = m.inode_generation;
	k->reported = k->expected = k->module.build_id = m.build_id;
	k->reported_elf_off = k->elf_off = m.elf_off;
	k->view = view;
	k->module.pid = kind == MODULE_JIT ? pid : 0;
	k->main_program = mapping->main_program;
	k->used_ns = used_ns;
	set_place(modules, k, pid, mapping);
	if (kind == MODULE_VDSO && copy_image(k, mapping))
		return NULL;
	if (kind == MODULE_FILE && modules->pin)
		hold(modules, k);
	return &k->module;
}

/* Return whether both modules have the same open inode, which cannot be faked, or equal images. */
static bool same_bytes(const struct known *a, const struct known *b)
{
	struct stat x, y;

	if (a->image || b->image)
		return a->image && b->image && a->image_size == b->image_size &&
		       !memcmp(a->image, b->image, a->image_size);
	return a->fd >= 0 && b->fd >= 0 && a->elf_off == b->elf_off && !fstat(a->fd, &x) &&
	       !fstat(b->fd, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Return whether the names of both modules come from the same place. */
static bool same_names(const struct known *a, const struct known *b)
{
	return a->own_debug == b->own_debug && (!a->own_debug || a->view == b->view);
}

/* Return whether two modules are the same: build-id, path, bytes and origin of names. */
static bool same_contents(const struct known *a, const struct known *b)
{
	return uw_build_id_equal(&a->module.build_id, &b->module.build_id) &&
	       !strcmp(a->raw_path, b->raw_path) && same_bytes(a, b) && same_names(a, b);
}

void modules_unite(struct modules *modules, struct known *k)
{
	const struct uw_build_id *build_id = &k->module.build_id;
	uint64_t hash = hash_bytes(0, k->raw_path, strlen(k->raw_path));
	struct known *first;
	uint32_t id;

	if (!build_id->size)
		return;
	hash = hash_bytes(hash, build_id->bytes, build_id->size);
	id = UW_HASH_FIND(i, &modules->by_contents, hash,
			  modules->known[i] != k &&
				  modules->known[i]->canonical == &modules->known[i]->module &&
				  same_contents(modules->known[i], k));
	if (id == UW_HASH_NONE) {
		if (k->has_contents) /* another file was in its place before */
			uw_hash_remove(&modules->by_contents, k->contents_hash, k->module.id);
		/* Without memory for the index, equal files are only counted separately. */
		k->has_contents = !uw_hash_add(&modules->by_contents, hash, k->module.id);
		k->contents_hash = hash;
		return;
	}
	first = modules->known[id];
	if (first->module.object) { /* else it was parked, and nothing has needed it since */
		uw_object_put(k->module.object);
		k->module.object = uw_object_get(first->module.object);
	}
	k->canonical = &first->module;
	first->n_same++;
}

void modules_remove(struct modules *modules, struct known *k)
{
	uint32_t id = k->module.id;

	if (k->canonical != &k->module)
		known_of(k->canonical)->n_same--;
	uw_hash_remove(&modules->by_identity, k->identity_hash, id);
	if (k->has_contents)
		uw_hash_remove(&modules->by_contents, k->contents_hash, id);
	known_free(k);
	modules->known[id] = NULL;
	modules->n_known--;
	modules->free_ids[modules->n - modules->n_known - 1] = id;
}

const struct module *module_canonical(const struct module *module)
{
	return known_of(module)->canonical;
}

int module_fd(const struct module *module)
{
	return known_of(module)->fd;
}

const struct uw_view *module_view(const struct module *module)
{
	/* If two modules are the same file, the earlier one has the object. */
	return module->object && module_canonical(module) == module ? uw_object_view(module->object)
								    : NULL;
}

uint64_t module_elf_off(const struct module *module)
{
	return known_of(module)->elf_off;
}

const void *module_image(const struct module *module, size_t *size)
{
	*size = known_of(module)->image_size;
	return known_of(module)->image;
}

const char *module_jitdump(const struct module *module)
{
	return known_of(module)->jitdump;
}

void module_file(const struct module *module, struct opener_file *out)
{
	*out = modules_file_to_open(known_of(module));
	out->build_id = module->build_id;
}
