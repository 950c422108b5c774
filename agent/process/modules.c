/*
 * agent/process/modules.c: the catalogue of mapped files: identity, opening, checks, unwind tables.
 */
#include "agent/process/modules.h"

#include "agent/array.h"
#include "agent/clock.h"
#include "agent/errand.h"
#include "agent/hash.h"
#include "agent/log.h"
#include "agent/source/mapped.h"
#include "symbolizer/symbolizer.h"

#include <assert.h>
#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * How many registrations of generated code are stored for a process. A process can generate code
 * for hours, so names from older registrations are lost.
 */
#define GENERATED_KEPT 8

/*
 * Compile a table after one CFI parse for each BYTES_A_READ bytes of code. Measured with clang 14:
 * the parse for one lookup costs 1 to 1.5 us; a table costs 5 to 10 ns for each byte of .eh_frame,
 * which is a tenth of the code: 100 ms for the 120 MB of LLVM.
 */
#define BYTES_A_READ 2048

struct known { /* a module as the catalogue stores it */
	struct module module;
	char *raw_path; /* as the process saw it, byte for byte; owned */
	uint32_t major, minor;
	uint64_t inode, inode_generation;
	struct uw_build_id told; /* by the source, with the mapping */
	/* the same, or else the build-id of the copy that the source stored */
	struct uw_build_id expected;
	/* The process and mapping in which the file was seen first, for the opener. */
	uint32_t pid;
	struct opener_user user; /* the user of pid */
	uint64_t view;		 /* from opener_view, of the processes that have the file */
	bool own_debug;		 /* its debug file is from that view: not valid for other views */
	uint64_t start, end;
	bool deleted, main_program;
	uint64_t told_elf_off;
	uint64_t elf_off; /* as reported, then as found; bytes */

	bool asked_source, asked_kept;
	unsigned int next_candidate;
	int fd;		/* -1: not open */
	int open_error; /* error of the attempt that pinned the file */
	void *image;
	size_t image_size;
	const struct module *canonical;
	bool stored; /* its table came from the store */
	bool said_fault, no_elf;
	char *jitdump; /* path reported by the process of generated code; owned; NULL: none */
	struct uw_dynamic *generated[GENERATED_KEPT]; /* latest first; NULL after the last */
};

struct modules {
	struct opener *opener;
	const struct source_info *info;
	bool pin;
	struct store *store;   /* borrowed, like keeper; NULL: none */
	struct keeper *keeper; /* borrowed; NULL: objects without a stored table get none */
	struct known **known;
	size_t n, room;
	struct hash_index by_identity;
	struct hash_index by_contents; /* usable modules, by path and build-id */
	struct known *kernel, *unknown;
	uint64_t patience_ns, patience_at_ns; /* the time that was left, and when */
	uint32_t *waiting; /* ids of modules for which a table does not pay yet */
	size_t n_waiting, room_waiting;
	bool said_origin;
};

static struct known *known_of(const struct module *module)
{
	return (struct known *)(uintptr_t)module; /* first member */
}

static void known_free(struct known *k)
{
	if (!k)
		return;
	uw_object_put(k->module.object);
	for (size_t i = 0; i < GENERATED_KEPT; i++)
		uw_dynamic_put(k->generated[i]);
	free(k->module.path);
	free(k->raw_path);
	free(k->jitdump);
	free(k->image);
	if (k->fd >= 0)
		(void)close(k->fd);
	free(k);
}

/* Append a module of this kind to the catalogue. Return NULL when out of memory. */
static struct known *add(struct modules *modules, enum module_kind kind, const char *path)
{
	struct known *k = calloc(1, sizeof(*k));
	void *known = modules->known;
	bool has_bytes = kind == MODULE_FILE || kind == MODULE_VDSO;

	if (!k)
		return NULL;
	k->fd = -1;
	k->canonical = &k->module;
	k->module.kind = kind;
	k->module.id = (uint32_t)modules->n;
	k->module.state = has_bytes ? MODULE_NOT_OPENED : MODULE_NO_FILE;
	k->raw_path = strdup(path);
	k->module.path = sym_sanitize(path, strlen(path), 4096);
	if (!k->raw_path || !k->module.path)
		goto fail;
	if (array_make_room(&known, modules->n, &modules->room, sizeof(*modules->known)))
		goto fail;
	modules->known = known;
	modules->known[modules->n++] = k;
	return k;
fail:
	known_free(k);
	return NULL;
}

int modules_new(struct opener *opener, const struct source_info *info, bool pin,
		struct modules **out)
{
	struct modules *modules = calloc(1, sizeof(*modules));

	if (!modules)
		return -ENOMEM;
	modules->opener = opener;
	modules->info = info;
	modules->pin = pin;
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
 * Get or request an unwind table for an object. On failure (no memory) walks use the CFI as before.
 */
static void get_table(struct modules *modules, struct known *k)
{
	void *waiting = modules->waiting;
	struct store_file file;

	if (!modules->store && !modules->keeper)
		return;
	if (!modules->store) {
		if (array_make_room(&waiting, modules->n_waiting, &modules->room_waiting,
				    sizeof(*modules->waiting)))
			return;
		modules->waiting = waiting;
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

void modules_compile(struct modules *modules)
{
	size_t kept = 0;

	for (size_t i = 0; i < modules->n_waiting; i++) {
		struct known *k = modules->known[modules->waiting[i]];
		struct store_file file;

		if (uw_object_parsed(k->module.object) <
		    code_size(k->module.object) / BYTES_A_READ) {
			modules->waiting[kept++] = k->module.id;
			continue;
		}
		file_of(k, &file);
		(void)keeper_add(modules->keeper, k->module.object, &file);
	}
	modules->n_waiting = kept;
}

void modules_want(const struct modules *modules)
{
	for (size_t i = 0; modules->store && i < modules->n; i++) {
		const struct known *k = modules->known[i];
		struct store_file file;

		if (!k->module.object || k->canonical != &k->module)
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
	free(modules->waiting);
	hash_fini(&modules->by_identity);
	hash_fini(&modules->by_contents);
	free(modules);
}

struct module *modules_kernel(struct modules *modules)
{
	return &modules->kernel->module;
}

struct module *modules_unknown(struct modules *modules)
{
	return &modules->unknown->module;
}

size_t modules_count(const struct modules *modules)
{
	return modules->n;
}

const struct module *modules_at(const struct modules *modules, size_t i)
{
	assert(i < modules->n);
	return &modules->known[i]->module;
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
	char magic[SELFMAG];
	bool is = false;
	int fd;

	if (!modules->pin)
		return false;
	/* The source may hold a file open that its process does not have any more. */
	if ((!info->file || info->file(info->file_ctx, mapping->major, mapping->minor,
				       mapping->inode, mapping->path, &fd)) &&
	    opener_open(modules->opener, &file, &next, &fd))
		return false;
	is = pread(fd, magic, sizeof(magic), 0) == (ssize_t)sizeof(magic) &&
	     !memcmp(magic, ELFMAG, sizeof(magic));
	(void)close(fd);
	return is;
}

/* Return the kind of a mapping, by the names that kernels give to mappings without a file. */
static enum module_kind kind_of(const struct modules *modules, uint32_t pid,
				const struct event_mapping *mapping)
{
	const char *path = mapping->path;
	/* Heap and stack are executable only if a program generates code there. */
	static const char *const generated[] = { "//anon",	"/memfd:", "/dev/zero", "/SYSV",
						 "anon_inode:", "[anon",   "[heap]",	"[stack" };

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

struct identity {
	const struct modules *modules;
	const struct event_mapping *mapping;
	uint64_t view;
};

/* Compare a known module with a mapping event, for hash_find. */
static bool same_identity(const void *ctx, uint32_t id)
{
	const struct identity *want = ctx;
	const struct event_mapping *m = want->mapping;
	const struct known *k = want->modules->known[id];

	/* Mappings older than the recording are reported without a generation: 0 equals any. */
	return k->inode == m->inode && k->view == want->view &&
	       (k->inode_generation == m->inode_generation || !k->inode_generation ||
		!m->inode_generation) &&
	       k->major == m->major && k->minor == m->minor && k->told_elf_off == m->elf_off &&
	       uw_build_id_equal(&k->told, &m->build_id) && !strcmp(k->raw_path, m->path);
}

/* Describe a module's file for the opener. The strings and the user are borrowed from k. */
static struct opener_file file_to_open(const struct known *k)
{
	return (struct opener_file){ .pid = k->pid,
				     .start = k->start,
				     .end = k->end,
				     .path = k->raw_path,
				     .major = k->major,
				     .minor = k->minor,
				     .inode = k->inode,
				     .inode_generation = k->inode_generation,
				     .deleted = k->deleted,
				     .main_program = k->main_program,
				     .user = &k->user,
				     .view = k->own_debug ? k->view : 0,
				     .build_id = k->expected };
}

/*
 * Ask the source for its stored copy of the file. With fd NULL, only read the copy's build-id into
 * k->expected.
 */
static int ask_kept(const struct modules *modules, struct known *k, int *fd)
{
	const struct source_info *info = modules->info;

	return !info->kept_file ? -ENOENT
				: info->kept_file(info->kept_file_ctx, k->major, k->minor, k->inode,
						  k->raw_path, &k->expected, fd);
}

/* Open the source's stored copy of the file. The source is asked only once. */
static int open_kept(struct modules *modules, struct known *k)
{
	if (k->asked_kept)
		return -ENOENT;
	k->asked_kept = true;
	return ask_kept(modules, k, &k->fd);
}

/* Open the next candidate into k->fd, and close the one before it. */
static int open_next(struct modules *modules, struct known *k)
{
	struct opener_file file;
	int err;

	if (k->fd >= 0)
		(void)close(k->fd);
	k->fd = -1;
	if (!k->asked_source) {
		const struct source_info *info = modules->info;

		k->asked_source = true;
		if (info->file && k->inode &&
		    !info->file(info->file_ctx, k->major, k->minor, k->inode, k->raw_path, &k->fd))
			return 0;
	}
	/*
	 * If neither the event nor the stored copy has a build-id, nothing proves that the file of
	 * this name is the one that ran: prefer the stored copy.
	 */
	if (!k->expected.size && !ask_kept(modules, k, NULL) && !k->expected.size &&
	    !open_kept(modules, k))
		return 0;
	file = file_to_open(k);
	err = opener_open(modules->opener, &file, &k->next_candidate, &k->fd);
	return err && !open_kept(modules, k) ? 0 : err;
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

struct module *modules_get(struct modules *modules, uint32_t pid,
			   const struct event_mapping *mapping)
{
	enum module_kind kind = kind_of(modules, pid, mapping);
	struct event_mapping m = { .path = mapping->path };
	struct identity want = { .modules = modules, .mapping = &m };
	struct known *k;
	uint64_t hash;
	uint32_t id;

	/*
	 * Mappings without a file are one module for each name, however their pages were made.
	 * Generated code is one module for each process.
	 */
	if (kind == MODULE_FILE)
		m = *mapping;
	else if (kind == MODULE_VDSO)
		m.build_id = mapping->build_id;
	else if (kind == MODULE_JIT)
		m = (struct event_mapping){ .path = "[jit]", .inode = pid };
	if (kind == MODULE_FILE)
		note_jitdump(modules, pid, mapping);
	/* In another mount namespace, the same path and build-id can be another file. */
	if (kind == MODULE_FILE && modules->pin)
		want.view = opener_view(modules->opener, pid, !m.inode);
	hash = hash_bytes(m.inode, m.path, strlen(m.path));
	hash = hash_bytes(hash, m.build_id.bytes, m.build_id.size);
	id = hash_find(&modules->by_identity, hash, same_identity, &want);
	if (id != HASH_NONE) {
		k = modules->known[id];
		/*
		 * The file could not be opened before. Try again through this process: its root or
		 * its mappings may lead to the file.
		 */
		if (k->open_error && k->fd < 0 && k->module.state == MODULE_NOT_OPENED) {
			k->pid = pid;
			opener_user_of(modules->opener, pid, &k->user);
			k->start = mapping->start;
			k->end = mapping->end;
			k->deleted = mapping->deleted;
			k->asked_source = false;
			k->next_candidate = 0;
			k->open_error = open_next(modules, k);
		}
		return &k->module;
	}
	k = add(modules, kind, m.path);
	if (!k || hash_add(&modules->by_identity, hash, k->module.id))
		return NULL;
	k->major = m.major;
	k->minor = m.minor;
	k->inode = m.inode;
	k->inode_generation = m.inode_generation;
	k->told = k->expected = k->module.build_id = m.build_id;
	k->pid = pid;
	k->view = want.view;
	if (modules->opener && (kind == MODULE_FILE || kind == MODULE_JIT))
		opener_user_of(modules->opener, pid, &k->user);
	k->module.pid = kind == MODULE_JIT ? pid : 0;
	k->start = mapping->start;
	k->end = mapping->end;
	k->deleted = mapping->deleted;
	k->main_program = mapping->main_program;
	k->told_elf_off = k->elf_off = m.elf_off;
	if (kind == MODULE_VDSO && mapping->image && mapping->image_size) {
		k->image = malloc(mapping->image_size);
		if (!k->image)
			return NULL;
		memcpy(k->image, mapping->image, mapping->image_size);
		k->image_size = mapping->image_size;
	}
	if (kind == MODULE_FILE && modules->pin)
		k->open_error = open_next(modules, k);
	return &k->module;
}

/*
 * Protects known.generated: another thread looks up names for a finished profile while the next
 * profile is being captured.
 */
static pthread_mutex_t generated_lock = PTHREAD_MUTEX_INITIALIZER;

/*
 * Return the slot that a new registration replaces. A registration that only has names contains all
 * names of the earlier one, so it replaces that one. Otherwise the oldest is replaced.
 */
static size_t place_for(const struct known *k, const struct uw_dynamic *dynamic)
{
	for (size_t i = 0; i < GENERATED_KEPT && uw_dynamic_is_names(dynamic); i++)
		if (k->generated[i] && uw_dynamic_is_names(k->generated[i]))
			return i;
	return GENERATED_KEPT - 1;
}

void module_add_generated(struct module *module, struct uw_dynamic *dynamic)
{
	const char *fault = uw_dynamic_fault(dynamic);
	struct known *k = known_of(module);
	size_t at;

	if (k->generated[0] == dynamic)
		return;
	if (fault && !k->said_fault)
		log_warning("process %" PRIu32
			    ": a part of what it tells about the code that it generated "
			    "is left out: %s",
			    k->module.pid, fault);
	k->said_fault |= fault != NULL;
	(void)pthread_mutex_lock(&generated_lock);
	at = place_for(k, dynamic);
	uw_dynamic_put(k->generated[at]);
	memmove(k->generated + 1, k->generated, at * sizeof(*k->generated));
	k->generated[0] = uw_dynamic_get(dynamic);
	(void)pthread_mutex_unlock(&generated_lock);
}

char *module_generated_name(const struct module *module, uint64_t addr, uint64_t *start)
{
	const struct known *k = known_of(module);
	struct uw_dynamic_proc proc;
	char *name = NULL;

	(void)pthread_mutex_lock(&generated_lock);
	for (size_t i = 0; i < GENERATED_KEPT && k->generated[i] && !name; i++) {
		if (uw_dynamic_proc(k->generated[i], addr, &proc))
			continue;
		if (proc.name)
			name = sym_sanitize(proc.name, strlen(proc.name), 4096);
		if (name || !*start)
			*start = proc.start;
	}
	(void)pthread_mutex_unlock(&generated_lock);
	return name;
}

/* Return the state of a module whose file failed to open with err. */
static enum module_state state_of(int err)
{
	switch (err) {
	case 0:
		return MODULE_USABLE;
	case -ENOENT:
	case -ENOTDIR:
	case -ESRCH:
		return MODULE_MISSING;
	case -ESTALE:
		return MODULE_REPLACED;
	case -EREMOTE:
		return MODULE_FOREIGN;
	case -EBADMSG:
	case -ENOTSUP:
		return MODULE_DAMAGED;
	default:
		return MODULE_UNREADABLE;
	}
}

/* Return whether the mapped file was truncated; for uw_view.cut. */
static bool is_cut(void *ctx)
{
	const struct mapped *mapped = ctx;

	return atomic_load_explicit(&mapped->cut, memory_order_relaxed);
}

static void free_mapped(void *ctx)
{
	mapped_close(ctx);
	free(ctx);
}

/*
 * Map a file into memory, for readers of recordings: they read a few bytes here and there, hundreds
 * of times. Not while recording (pin): a recorder holds the files of all processes, for days.
 */
static struct uw_view view_of(bool pin, int fd)
{
	struct uw_view none = { .bytes = NULL };
	struct mapped *mapped;
	struct stat st;

	if (pin || fstat(fd, &st) || !S_ISREG(st.st_mode))
		return none;
	mapped = malloc(sizeof(*mapped));
	if (!mapped)
		return none;
	mapped_open(mapped, fd, (uint64_t)st.st_size);
	if (!mapped->bytes) {
		free(mapped);
		return none;
	}
	return (struct uw_view){ .bytes = mapped->bytes,
				 .size = mapped->size,
				 .cut = is_cut,
				 .release = free_mapped,
				 .ctx = mapped };
}

/* How far before the reported offset to look for an ELF image in an archive, in bytes. */
#define ARCHIVE_BACK_MAX ((uint64_t)64 << 20)
#define ARCHIVE_PAGE	 ((uint64_t)4096)

/*
 * Open an ELF file, or an ELF image inside an archive. The image begins at a page boundary, because
 * it must be mappable: at the reported offset, or before it if only a later part of the image was
 * mapped.
 */
static int open_file(bool pin, struct known *k, struct uw_object **out)
{
	struct uw_view view = view_of(pin, k->fd);
	uint64_t off = k->told_elf_off & ~(ARCHIVE_PAGE - 1), least;
	int err = uw_object_open_viewed(k->fd, 0, &view, out);

	k->elf_off = 0;
	if (err != -ENOTSUP || !off)
		return err;
	least = off > ARCHIVE_BACK_MAX ? off - ARCHIVE_BACK_MAX : ARCHIVE_PAGE;
	for (; err == -ENOTSUP && off >= least; off -= ARCHIVE_PAGE) {
		k->elf_off = off;
		err = uw_object_open(k->fd, off, out);
	}
	return err;
}

static bool is_elf(int fd)
{
	char magic[SELFMAG];

	return pread(fd, magic, sizeof(magic), 0) == (ssize_t)sizeof(magic) &&
	       !memcmp(magic, ELFMAG, sizeof(magic));
}

/*
 * Limits on the time that files which a stranger may have written can hold up the thread that reads
 * the ring buffer. One file may take OBJECT_NS, all files together PATIENCE_NS. A tenth of the time
 * that passes is added to the rest again, and each file may take at least LEAST_NS. An object with
 * 100 MB of code is ready for lookups within 30 ms.
 */
#define OBJECT_NS   UINT64_C(500000000)
#define PATIENCE_NS UINT64_C(1500000000)
#define LEAST_NS    UINT64_C(5000000)

struct opening {
	struct known k; /* a copy, with a descriptor of its own */
	struct uw_object *object;
	int err;
};

static void free_opening(void *ctx)
{
	struct opening *o = ctx;

	uw_object_put(o->object);
	(void)close(o->k.fd);
	free(o);
}

/*
 * Open the object and read everything that lookups in it need (the procedure list). Runs as an
 * errand.
 */
static void open_and_read(void *ctx)
{
	struct opening *o = ctx;
	size_t size;
	void *procs;

	o->err = open_file(true, &o->k, &o->object);
	if (!o->err && !uw_object_procs(o->object, &procs, &size))
		free(procs);
}

/* Return how long the next file may take, in ns, and update what is left of PATIENCE_NS. */
static uint64_t patience(struct modules *modules, uint64_t now)
{
	modules->patience_ns += (now - modules->patience_at_ns) / 10;
	modules->patience_at_ns = now;
	if (modules->patience_ns > PATIENCE_NS)
		modules->patience_ns = PATIENCE_NS;
	if (modules->patience_ns < LEAST_NS)
		return LEAST_NS;
	return modules->patience_ns < OBJECT_NS ? modules->patience_ns : OBJECT_NS;
}

/* Open a file that a stranger may have written, and give up (-ETIMEDOUT) if that takes too long. */
static int open_strange_file(struct modules *modules, struct known *k, struct uw_object **out)
{
	struct opening *o = calloc(1, sizeof(*o));
	const struct errand errand = { .run = open_and_read, .drop = free_opening, .ctx = o };
	uint64_t began = now_ns(), spent;
	int err;

	if (!o)
		return -ENOMEM;
	o->k.told_elf_off = k->told_elf_off;
	o->k.fd = dup(k->fd);
	err = errand_run(&errand, patience(modules, began));
	spent = now_ns() - began;
	modules->patience_ns -= spent < modules->patience_ns ? spent : modules->patience_ns;
	if (err == -ETIMEDOUT)
		return err;
	if (!err)
		err = o->err;
	/* too many files at once, or the recording is ending */
	else
		err = -ETIMEDOUT;
	k->elf_off = o->k.elf_off;
	if (!err) {
		*out = o->object;
		o->object = NULL;
	}
	free_opening(o);
	return err;
}

/*
 * A large file with less than 1/64 of its blocks allocated was made to waste the reader's time.
 * File systems with compression do not come near this ratio.
 */
#define HOLLOW_SIZE  ((off_t)16 << 20)
#define HOLLOW_PARTS 64

/*
 * Open a file of a recorded process. Use a time limit unless only the superuser can have written
 * it.
 */
static int open_live_file(struct modules *modules, struct known *k, struct uw_object **out)
{
	struct stat st;

	if (fstat(k->fd, &st))
		return -errno;
	if (st.st_size > HOLLOW_SIZE && st.st_blocks < st.st_size / 512 / HOLLOW_PARTS)
		return -EFBIG;
	if (st.st_uid || st.st_mode & (S_IWGRP | S_IWOTH))
		return open_strange_file(modules, k, out);
	return open_file(true, k, out);
}

/*
 * Try candidate after candidate until one is an ELF file with the expected build-id. If all fail,
 * return -ESTALE if any candidate was the wrong file, or else the last error.
 */
static int open_object(struct modules *modules, struct known *k, struct uw_object **out)
{
	int worst = 0;

	for (;;) {
		struct uw_object *object;
		int err = 0;

		if (k->fd < 0)
			err = k->open_error ? k->open_error : open_next(modules, k);
		k->open_error = 0;
		if (err)
			return worst ? worst : err;
		err = modules->pin ? open_live_file(modules, k, &object)
				   : open_file(false, k, &object);
		if (!err && k->expected.size &&
		    !uw_build_id_equal(uw_object_build_id(object), &k->expected)) {
			uw_object_put(object);
			err = -ESTALE;
		}
		if (!err) {
			*out = object;
			return 0;
		}
		k->no_elf = err == -ENOTSUP && !is_elf(k->fd);
		if (worst != -ESTALE)
			worst = err;
		(void)close(k->fd);
		k->fd = -1;
		/* The other candidates lead to the same file, so each would take as long. */
		if (err == -ETIMEDOUT)
			return err;
	}
}

struct contents {
	const struct modules *modules;
	const struct known *of;
};

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

/* Compare two modules for unite: build-id, path, bytes and origin of names. */
static bool same_contents(const void *ctx, uint32_t id)
{
	const struct contents *want = ctx;
	const struct known *k = want->modules->known[id];

	return uw_build_id_equal(&k->module.build_id, &want->of->module.build_id) &&
	       !strcmp(k->raw_path, want->of->raw_path) && same_bytes(k, want->of) &&
	       same_names(k, want->of);
}

/*
 * Make a module refer to an earlier module for the same file, so that the file is counted once even
 * if it was reported in two ways (for example with and without a build-id). The same path and
 * build-id do not prove that the files are the same: another user's mount can have both.
 */
static void unite(struct modules *modules, struct known *k)
{
	struct contents want = { .modules = modules, .of = k };
	const struct uw_build_id *build_id = &k->module.build_id;
	uint64_t hash = hash_bytes(0, k->raw_path, strlen(k->raw_path));
	uint32_t id;

	if (!build_id->size)
		return;
	hash = hash_bytes(hash, build_id->bytes, build_id->size);
	id = hash_find(&modules->by_contents, hash, same_contents, &want);
	if (id == HASH_NONE) {
		/* Without memory for the index, equal files are only counted separately. */
		(void)hash_add(&modules->by_contents, hash, k->module.id);
		return;
	}
	uw_object_put(k->module.object);
	k->module.object = uw_object_get(modules->known[id]->module.object);
	k->canonical = &modules->known[id]->module;
}

/*
 * Warn about a recording without build-ids or host name. Once for all files: the profile reports
 * the state of each file.
 */
static void report_origin(struct modules *modules, const struct known *k)
{
	const struct source_info *info = modules->info;
	bool foreign = k->module.state == MODULE_FOREIGN;

	if (modules->said_origin || k->module.kind != MODULE_FILE || k->told.size ||
	    strcmp(info->kind, "perf.data") != 0 || (!foreign && info->host[0]))
		return;
	modules->said_origin = true;
	if (foreign)
		log_warning(
			"%s: recorded on %s without build-ids: this machine's files are not used; "
			"--symfs DIR names a folder with that machine's (/: they are the same)",
			k->module.path, info->host);
	else
		log_warning("%s: the recording tells neither its machine nor build-ids: names are "
			    "right "
			    "only if this machine has the same files",
			    k->module.path);
}

/* Warn that a module cannot be used, and say why. */
static void report(const struct known *k)
{
	char told[2 * UW_BUILD_ID_MAX + 1] = "";

	if (k->module.state == MODULE_USABLE)
		return;
	for (size_t i = 0; i < k->told.size; i++)
		(void)snprintf(told + 2 * i, 3, "%02x", k->told.bytes[i]);
	switch (k->module.state) {
	case MODULE_REPLACED:
		log_warning("%s: replaced since it was mapped%s%s; not used", k->module.path,
			    told[0] ? ", no file has build-id " : "", told);
		break;
	case MODULE_MISSING:
		log_warning("%s: %s%s%s", k->module.path,
			    k->module.kind == MODULE_VDSO
				    ? "of another kernel, and not in the recording"
				    : module_state_sentence(k->module.state),
			    told[0] ? ", build-id " : "", told);
		break;
	case MODULE_UNREADABLE:
	case MODULE_DAMAGED:
		log_warning("%s: %s (%s)%s%s", k->module.path,
			    k->module.error == -ENOTSUP ? "cannot be used"
							: module_state_sentence(k->module.state),
			    k->no_elf			    ? "not an ELF file"
			    : k->module.error == -ENOTSUP   ? "32-bit, or for another machine"
			    : k->module.error == -ETIMEDOUT ? "reading it takes too long"
			    : k->module.error == -EREMOTEIO
				    ? "another user's program serves it (FUSE) and may never answer"
			    : k->module.error == -EFBIG	 ? "nearly all of it is a hole"
			    : k->module.error == -EAGAIN ? "a program has a lease on it"
							 : strerror(-k->module.error),
			    told[0] ? ", build-id " : "", told);
		break;
	case MODULE_FOREIGN:
	case MODULE_USABLE:
	case MODULE_NOT_OPENED:
	case MODULE_NO_FILE:
		break;
	}
}

/*
 * Open this kernel's own vDSO, because a recording has no copy of the vDSO's bytes. It is the
 * recorded one if the build-ids are equal or, without a reported build-id, if this kernel was
 * running when the recording was made. perf reports no build-id for the vDSO if each mapping has
 * its file's build-id (--buildid-mmap).
 */
static int open_own_vdso(struct modules *modules, struct known *k, struct uw_object **out)
{
	struct uw_object *object;
	const void *image;
	size_t size;
	int err = opener_vdso(modules->opener, &image, &size);

	if (err)
		return err;
	if (!k->told.size && !modules->info->same_boot && !modules->info->same_kernel)
		return -ENOENT;
	err = uw_object_open_image(image, size, &object);
	if (!err && k->told.size && !uw_build_id_equal(uw_object_build_id(object), &k->told)) {
		uw_object_put(object);
		err = -ENOENT;
	}
	if (err)
		return err;
	k->image = malloc(size);
	if (!k->image) {
		uw_object_put(object);
		return -ENOMEM;
	}
	memcpy(k->image, image, size);
	k->image_size = size;
	*out = object;
	return 0;
}

/* Open the object from process memory that the source stored, for a file that cannot be opened. */
static int open_from_memory(struct modules *modules, struct known *k, struct uw_object **out)
{
	const struct source_info *info = modules->info;
	uint8_t *image;
	size_t size;
	int err;

	if (!info->image)
		return -ENOENT;
	err = info->image(info->image_ctx, k->pid, k->start, &image, &size);
	if (err)
		return err;
	k->elf_off = k->told_elf_off;
	err = uw_object_open_image_at(image, size, k->elf_off, out);
	if (!err && k->told.size && !uw_build_id_equal(uw_object_build_id(*out), &k->told)) {
		uw_object_put(*out);
		err = -ESTALE;
	}
	if (err) {
		free(image);
		return err;
	}
	k->image = image;
	k->image_size = size;
	return 0;
}

/*
 * Open a file that is gone by its table in the store: a recording outlives the files it refers to.
 * Not done while recording, because no sample may wait for the store.
 */
static int open_gone(struct modules *modules, struct known *k, struct uw_object **out)
{
	int err = -ENOENT;

	if (modules->store && !modules->keeper && k->module.kind == MODULE_FILE && k->told.size &&
	    !k->told_elf_off)
		err = store_find_gone(modules->store, &k->told, out);
	if (err == -EPERM)
		log_warning("%s: gone; the store has a table for its build-id, of a file that "
			    "another user could write, and does not use it",
			    k->module.path);
	k->module.gone = !err;
	return err;
}

/*
 * Find out whether the debug file of a file in a container comes from the container. Only then must
 * its names be separate from those of the same file elsewhere.
 */
static void look_for_own_debug(struct modules *modules, struct known *k)
{
	struct opener_file file = file_to_open(k);
	struct sym_debug_where where;

	if (!k->view || k->fd < 0 || sym_debug_where(k->fd, k->elf_off, &where) || where.inside)
		return;
	file.build_id = k->module.build_id;
	file.view = k->view;
	k->own_debug =
		opener_has_own_debug(modules->opener, &file, where.linked ? where.link : NULL);
}

/*
 * Request a debug file from the debuginfod servers now. Names are looked up later, and the download
 * takes time.
 */
static void want_debug(struct modules *modules, const struct known *k)
{
	struct opener_file file = file_to_open(k);

	if (k->module.kind != MODULE_FILE || k->fd < 0 || !opener_fetches(modules->opener) ||
	    sym_has_debug(k->fd, k->elf_off))
		return;
	file.build_id = k->module.build_id;
	opener_want_debug(modules->opener, &file);
}

struct uw_object *modules_resolve(void *ctx, const struct uw_mapping *mapping)
{
	struct modules *modules = ctx;
	struct known *k = known_of(mapping->user);
	struct uw_object *object = NULL;
	int err;

	if (!k)
		return NULL;
	if (k->module.state != MODULE_NOT_OPENED)
		return k->module.object ? uw_object_get(k->module.object) : NULL;
	if (k->image)
		err = uw_object_open_image(k->image, k->image_size, &object);
	else if (k->module.kind == MODULE_VDSO)
		err = open_own_vdso(modules, k, &object);
	else
		err = open_object(modules, k, &object);
	if (err && err != -ENOMEM && !k->image && !open_from_memory(modules, k, &object))
		err = 0;
	if ((state_of(err) == MODULE_MISSING || state_of(err) == MODULE_REPLACED) &&
	    !open_gone(modules, k, &object)) {
		log_info("%s: gone; the store's table and names for its build-id are used",
			 k->module.path);
		k->stored = true;
		err = 0;
	}
	k->module.error = err;
	k->module.state = state_of(err);
	report(k);
	if (!err || err == -EREMOTE)
		report_origin(modules, k);
	if (err)
		return NULL;
	k->module.object = object;
	k->module.build_id = *uw_object_build_id(object);
	look_for_own_debug(modules, k);
	unite(modules, k);
	if (k->canonical == &k->module) {
		get_table(modules, k);
		want_debug(modules, k);
	}
	return uw_object_get(k->module.object);
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
	*out = file_to_open(known_of(module));
	out->build_id = module->build_id;
}

const char *module_state_sentence(enum module_state state)
{
	switch (state) {
	case MODULE_USABLE:
		return "in use";
	case MODULE_NOT_OPENED:
		return "not needed";
	case MODULE_MISSING:
		return "no such file any more";
	case MODULE_REPLACED:
		return "replaced since it was mapped";
	case MODULE_FOREIGN:
		return "of another machine, and told without a build-id";
	case MODULE_UNREADABLE:
		return "cannot be read";
	case MODULE_DAMAGED:
		return "not a sound ELF file";
	case MODULE_NO_FILE:
		return "has no file";
	}
	return "unknown";
}
