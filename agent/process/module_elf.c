/*
 * agent/process/module_elf.c: opens the ELF object in a module's file, within a time limit if a
 * stranger may have written the file.
 */
#include "agent/process/modules_internal.h"

#include "agent/clock.h"
#include "agent/errand.h"
#include "agent/role/reading.h"
#include "agent/source/mapped.h"
#include "agent/store/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
	uint64_t off = k->reported_elf_off & ~(ARCHIVE_PAGE - 1), least;
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

/*
 * Limits on the time that files which a stranger may have written can hold up the thread that reads
 * the ring buffer. One file may take OBJECT_NS of CPU time (errand.h), all files together PATIENCE_NS.
 * A tenth of the time that passes is added to the rest again, and each file may take at least
 * LEAST_NS. An object with 100 MB of code is ready for lookups within 30 ms.
 */
#define OBJECT_NS   UINT64_C(200000000)
#define PATIENCE_NS UINT64_C(700000000)
#define LEAST_NS    UINT64_C(5000000)

struct opening {
	struct known k; /* a copy, with a descriptor of its own */
	char *path;	/* for the note of what is being read; owned; NULL: not known */
	struct uw_object *object;
	int err;
};

static void free_opening(void *ctx)
{
	struct opening *o = ctx;

	uw_object_put(o->object);
	(void)close(o->k.fd);
	free(o->path);
	free(o);
}

/*
 * Open the object and read everything that lookups in it need (the procedure list). Runs as an
 * errand.
 */
static void open_and_read(void *ctx)
{
	struct opening *o = ctx;
	int number = reading_note(o->k.fd, o->k.reported_elf_off, o->path);
	size_t size;
	void *procs;

	o->err = open_file(true, &o->k, &o->object);
	if (!o->err) {
		if (!uw_object_procs(o->object, &procs, &size))
			free(procs);
		o->err = uw_object_keep(o->object);
	}
	reading_noted(number);
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
	o->k.reported_elf_off = k->reported_elf_off;
	o->k.fd = dup(k->fd);
	o->path = k->module.path ? strdup(k->module.path) : NULL;
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

/* Open a file on this thread. */
static int open_noted(bool pin, struct known *k, struct uw_object **out)
{
	int number = reading_note(k->fd, k->reported_elf_off, k->module.path);
	int err = open_file(pin, k, out);

	reading_noted(number);
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
	return open_noted(true, k, out);
}

int modules_open_elf(struct modules *modules, struct known *k, struct uw_object **out)
{
	if (store_refuses(modules->store, k->fd, k->reported_elf_off, k->module.path))
		return -EOWNERDEAD;
	return modules->pin ? open_live_file(modules, k, out) : open_noted(false, k, out);
}
