/*
 * agent/process/module_open.c: finds the file of a module, opens its object and says why it cannot.
 */
#include "agent/process/modules_internal.h"

#include "agent/io.h"
#include "agent/log.h"
#include "agent/textbuf.h"
#include "symbolizer/symbolizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct opener_file modules_file_to_open(const struct known *k)
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
				     .elf_off = k->reported_elf_off,
				     .build_id = k->expected };
}

/*
 * Ask the source for its stored copy of the file. With fd NULL, only read the copy's build-id into
 * k->expected.
 */
static int ask_embedded(const struct modules *modules, struct known *k, int *fd)
{
	const struct source_info *info = modules->info;

	return !info->embedded_file
		       ? -ENOENT
		       : info->embedded_file(info->embedded_file_ctx, k->major, k->minor, k->inode,
					     k->raw_path, &k->expected, fd);
}

/* Open the source's stored copy of the file. The source is asked only once, and a copy opened once. */
static int open_embedded(struct modules *modules, struct known *k)
{
	int err = k->embedded_error;

	if (!err) {
		err = ask_embedded(modules, k, &k->fd);
		k->embedded_error = err ? err : -ENOENT;
	}
	return err;
}

static int open_next(struct modules *modules, struct known *k)
{
	struct opener_file file;
	int err, embedded;

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
	if (!k->expected.size && !ask_embedded(modules, k, NULL) && !k->expected.size &&
	    !open_embedded(modules, k))
		return 0;
	file = modules_file_to_open(k);
	err = opener_open(modules->opener, &file, &k->next_candidate, &k->fd);
	k->no_elf = k->no_elf || err == -ENOTSUP;
	if (!err)
		return 0;
	/* If there is a copy that cannot be read, that is the reason, not that there is no file. */
	embedded = open_embedded(modules, k);
	return embedded == -ENOENT ? err : embedded;
}

/* A new file gets the lowest free number: so many are open. */
int modules_open_next(struct modules *modules, struct known *k)
{
	int err;

	if (k->fd >= 0)
		(void)close(k->fd);
	k->fd = -1;
	err = open_next(modules, k);
	if (err || k->fd < (int)modules->numbers_max)
		return err;
	(void)close(k->fd);
	k->fd = -1;
	return -EMFILE;
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
			err = k->open_error ? k->open_error : modules_open_next(modules, k);
		k->open_error = 0;
		if (err)
			return worst ? worst : err;
		err = modules_open_elf(modules, k, &object);
		if (!err && k->expected.size &&
		    !uw_build_id_equal(uw_object_build_id(object), &k->expected)) {
			uw_object_put(object);
			err = -ESTALE;
		}
		if (!err) {
			*out = object;
			return 0;
		}
		k->no_elf = err == -ENOTSUP && !io_is_elf(k->fd, 0);
		if (worst != -ESTALE)
			worst = err;
		(void)close(k->fd);
		k->fd = -1;
		/* The other candidates lead to the same file, so each would take as much. */
		if (err == -ETIMEDOUT || err == -E2BIG || err == -EOWNERDEAD)
			return err;
	}
}

/*
 * Warn about a recording without build-ids or host name. Once for all files: the profile reports
 * the state of each file.
 */
static void report_origin(struct modules *modules, const struct known *k)
{
	const struct source_info *info = modules->info;
	bool foreign = k->module.state == MODULE_FOREIGN;

	if (modules->said_origin || k->module.kind != MODULE_FILE || k->reported.size ||
	    (!foreign && (strcmp(info->kind, "perf.data") != 0 || info->host[0])))
		return;
	modules->said_origin = true;
	if (foreign)
		log_warning("%s: recorded on %s without build-ids: this machine's files are not "
			    "used; --symfs DIR names a directory with that machine's files (/: "
			    "they are the same)",
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
	char reported[2 * UW_BUILD_ID_MAX + 1];

	if (k->module.state == MODULE_USABLE)
		return;
	(void)textbuf_build_id(&k->reported, reported);
	switch (k->module.state) {
	case MODULE_REPLACED:
		log_warning("%s: replaced since it was mapped%s%s; not used", k->module.path,
			    reported[0] ? ", no file has build-id " : "", reported);
		break;
	case MODULE_MISSING:
		log_warning("%s: %s%s%s", k->module.path,
			    k->module.kind == MODULE_VDSO
				    ? "of another kernel, and not in the recording"
				    : module_state_sentence(k->module.state),
			    reported[0] ? ", build-id " : "", reported);
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
			    : k->module.error == -E2BIG	 ? "too much unwind information for memory"
			    : k->module.error == -EAGAIN ? "a program has a lease on it"
			    : k->module.error == -EOWNERDEAD
				    ? "it ended the process that read it; in quarantine"
				    : strerror(-k->module.error),
			    reported[0] ? ", build-id " : "", reported);
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
	if (!k->reported.size && !modules->info->same_boot && !modules->info->same_kernel)
		return -ENOENT;
	err = uw_object_open_image(image, size, &object);
	if (!err && k->reported.size &&
	    !uw_build_id_equal(uw_object_build_id(object), &k->reported)) {
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
	k->elf_off = k->reported_elf_off;
	err = uw_object_open_image_at(image, size, k->elf_off, out);
	if (!err && k->reported.size &&
	    !uw_build_id_equal(uw_object_build_id(*out), &k->reported)) {
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
 * Not done for walks while recording, because no sample may wait for the store.
 */
static int open_gone(struct modules *modules, struct known *k, struct uw_object **out)
{
	int err = -ENOENT;

	if (modules->store && (!modules->keeper || k->for_names) && k->module.kind == MODULE_FILE &&
	    k->reported.size && !k->reported_elf_off)
		err = store_find_gone(modules->store, &k->reported, out);
	if (err == -EPERM)
		log_warning("%s: gone; the store has a table for its build-id, of a file that "
			    "another user could write, and does not use it",
			    k->module.path);
	k->module.gone = !err;
	return err;
}

/* Return whether fd, which becomes the module's, is the debug file with its build-id; then open the object of its code. */
static bool is_stand_in(struct modules *modules, struct known *k, int fd, struct uw_object **out)
{
	k->fd = fd;
	if (!modules_open_elf(modules, k, out)) {
		if (uw_build_id_equal(uw_object_build_id(*out), &k->reported))
			return true;
		uw_object_put(*out);
	}
	(void)close(k->fd);
	k->fd = -1;
	return false;
}

/* Open the debug file of a file that is not here, for its names. */
static int open_debug_instead(struct modules *modules, struct known *k, struct uw_object **out)
{
	struct opener_file file = modules_file_to_open(k);
	unsigned int next = 0;
	bool linked;
	int fd;

	if (!modules->for_names || k->module.kind != MODULE_FILE || !k->reported.size ||
	    k->reported_elf_off)
		return -ENOENT;
	while (!opener_open_debug(modules->opener, &file, NULL, &next, &linked, &fd))
		if (is_stand_in(modules, k, fd, out))
			return 0;
	if (!opener_fetched_debug(modules->opener, &k->reported, &fd) &&
	    is_stand_in(modules, k, fd, out))
		return 0;
	return -ENOENT;
}

/*
 * Find out whether the debug file of a file in a container comes from the container. Only then must
 * its names be separate from those of the same file elsewhere.
 */
static void look_for_own_debug(struct modules *modules, struct known *k)
{
	struct opener_file file = modules_file_to_open(k);
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
	struct opener_file file = modules_file_to_open(k);

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
	modules->n_open -= k->fd >= 0;
	if (k->image)
		err = uw_object_open_image(k->image, k->image_size, &object);
	else if (k->module.kind == MODULE_VDSO)
		err = open_own_vdso(modules, k, &object);
	else
		err = open_object(modules, k, &object);
	if ((state_of(err) == MODULE_MISSING || state_of(err) == MODULE_REPLACED) &&
	    !open_debug_instead(modules, k, &object))
		err = 0;
	modules->n_open += k->fd >= 0;
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
	/* Other files will have been closed when it is mapped again, or when names are wanted. */
	k->parked |= err == -EMFILE;
	report(k);
	if (!err || err == -EREMOTE)
		report_origin(modules, k);
	if (err)
		return NULL;
	k->module.object = object;
	modules->n_objects++;
	k->module.build_id = *uw_object_build_id(object);
	if (k->for_names)
		return uw_object_get(k->module.object);
	look_for_own_debug(modules, k);
	modules_unite(modules, k);
	if (k->canonical == &k->module) {
		modules_get_table(modules, k);
		want_debug(modules, k);
	}
	return uw_object_get(k->module.object);
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
		return "of another machine, and recorded without a build-id";
	case MODULE_UNREADABLE:
		return "cannot be read";
	case MODULE_DAMAGED:
		return "not a sound ELF file";
	case MODULE_NO_FILE:
		return "has no file";
	}
	return "unknown";
}
