/*
 * agent/cmd/cache/cache_work.c: the cache subcommands that change the store or copy tables: prefetch, gc,
 * export, import.
 */
#include "agent/array.h"
#include "agent/cmd/cache/cache.h"
#include "agent/cmd/cmd.h"
#include "agent/export/output.h"
#include "agent/io.h"
#include "agent/log.h"
#include "agent/opener/opener.h"
#include "agent/store/store.h"
#include "agent/store/tables/stored.h"
#include "schema/export_file.h"
#include "schema/table_blob.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define IMPORT_MAX ((off_t)1 << 30)

/* ---- prefetch ----------------------------------------------------------------------- */

struct found {
	char *path; /* owned */
	int fd;	    /* -1: not open yet */
	/* As the kernel has mapped it; inode 0: the file was found by its path. */
	uint32_t major, minor;
	uint64_t inode;
};

/* shared by the threads that compile; files and n do not change while they run */
struct prefetch {
	struct store *store;
	struct found *files;
	size_t n, room;
	atomic_size_t next, done, stored, there, failed, refused, useless;
};

/*
 * Add a file to compile, with a copy of its path. fd is -1 or a descriptor that then belongs to p,
 * on success only. Return 0 or -ENOMEM.
 */
static int add_found(struct prefetch *p, const struct opener_file *file, int fd)
{
	int err = array_grow(p->files, p->n, p->room);

	if (!err) {
		p->files[p->n] = (struct found){ .path = strdup(file->path),
						 .fd = fd,
						 .major = file->major,
						 .minor = file->minor,
						 .inode = file->inode };
		if (!p->files[p->n].path)
			err = -ENOMEM;
		else
			p->n++;
	}
	return err;
}

static bool has_elf_magic(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	bool elf = fd >= 0 && io_is_elf(fd, 0);

	if (fd >= 0)
		(void)close(fd);
	return elf;
}

/*
 * Add every ELF file below path. Links below path are not followed, other file systems are not
 * entered. Return 0, or a negative code after reporting it.
 */
static int find_below(struct prefetch *p, char *path)
{
	char *const roots[] = { path, NULL };
	FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV | FTS_COMFOLLOW, NULL);
	int err = tree ? 0 : -errno;
	FTSENT *e;

	while (!err && (e = fts_read(tree))) {
		if (e->fts_info == FTS_F && has_elf_magic(e->fts_path))
			err = add_found(p, &(struct opener_file){ .path = e->fts_path }, -1);
		else if (e->fts_level == 0 && (e->fts_info == FTS_NS || e->fts_info == FTS_DNR))
			err = -e->fts_errno;
	}
	if (tree)
		(void)fts_close(tree);
	if (err)
		log_error("%s: %s", path, strerror(-err));
	return err;
}

/*
 * Return whether a mapped file is in the list. In another mount namespace, or after the file was
 * replaced, the same path is another file.
 */
static bool is_found(const struct prefetch *p, const struct opener_file *file)
{
	for (size_t i = 0; i < p->n; i++) {
		const struct found *f = &p->files[i];

		if (f->inode == file->inode && f->major == file->major && f->minor == file->minor &&
		    !strcmp(f->path, file->path))
			return true;
	}
	return false;
}

/*
 * Add the files of a process's executable mappings, each file once. The files are opened while the
 * process exists, so that those in its mount namespace can be read later.
 */
static void find_mapped(struct prefetch *p, struct opener *opener, uint32_t pid)
{
	char name[64], line[8192];
	FILE *maps;

	(void)snprintf(name, sizeof(name), "/proc/%u/maps", pid);
	maps = fopen(name, "re");
	while (maps && fgets(line, sizeof(line), maps)) {
		struct opener_file file = { .pid = pid };
		unsigned int candidate = 0;
		char prot[8] = "";
		int at = 0, fd;

		line[strcspn(line, "\n")] = '\0';
		if (sscanf(line,
			   "%" SCNx64 "-%" SCNx64 " %7s %*s %" SCNx32 ":%" SCNx32 " %" SCNu64 " %n",
			   &file.start, &file.end, prot, &file.major, &file.minor, &file.inode,
			   &at) < 6 ||
		    !at || prot[2] != 'x' || line[at] != '/')
			continue;
		file.path = line + at;
		if (!is_found(p, &file) && !opener_open(opener, &file, &candidate, &fd) &&
		    add_found(p, &file, fd))
			(void)close(fd);
	}
	if (maps)
		(void)fclose(maps);
}

/* Add the files that running processes have mapped. Return 0 or a negative code. */
static int find_running(struct prefetch *p)
{
	struct opener_options options = { .live = true };
	struct opener *opener;
	struct dirent *entry;
	int err = opener_new(&options, &opener);
	DIR *proc;

	if (err)
		return err;
	proc = opendir("/proc");
	while (proc && (entry = readdir(proc)))
		if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
			find_mapped(p, opener, (uint32_t)strtoul(entry->d_name, NULL, 10));
	if (proc)
		(void)closedir(proc);
	opener_free(opener);
	return 0;
}

/*
 * Compile and store the table of one file, unless the store has it, and count the outcome. The
 * file is closed. A damaged file goes into quarantine, so that it is not read again.
 */
static void prefetch_one(struct prefetch *p, struct found *f)
{
	struct uw_object *object = NULL;
	struct store_file file;
	int err = 0, fd = f->fd;

	if (fd < 0)
		fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		err = -errno;
	store_file_of(fd, 0, f->path, &file);
	if (!err && store_is_quarantined(p->store, NULL, &file))
		err = -EPERM;
	if (!err) {
		err = uw_object_open(fd, 0, &object);
		if (err == -EBADMSG)
			(void)store_quarantine(p->store, NULL, &file, "is a damaged ELF file");
	}
	if (!err && !store_find(p->store, object, &file)) {
		p->there++;
	} else if (!err) {
		err = store_keep(p->store, object, &file);
		p->stored += !err;
	}
	uw_object_put(object);
	if (fd >= 0)
		(void)close(fd);
	if (err == -EPERM) {
		p->refused++;
		log_debug("%s: is in quarantine", f->path);
		return;
	}
	if (err == -ENOTSUP) {
		p->useless++;
		log_debug("%s: 32-bit, relocatable, or for another machine", f->path);
	} else if (err) {
		p->failed++;
		log_debug("%s: %s", f->path, strerror(-err));
	}
}

/* Thread: take files from the list until it is empty. */
static void *prefetch_some(void *ctx)
{
	struct prefetch *p = ctx;
	size_t i;

	while ((i = p->next++) < p->n) {
		prefetch_one(p, &p->files[i]);
		log_progress("%zu of %zu files", (size_t)++p->done, p->n);
	}
	return NULL;
}

int cache_prefetch(const struct cache_options *o, char **paths, int n)
{
	struct prefetch p = { .n = 0 };
	unsigned int jobs = o->jobs ? o->jobs : (unsigned int)sysconf(_SC_NPROCESSORS_ONLN);
	pthread_t threads[256];
	unsigned int begun = 0;
	int err = 0;

	if (store_open(o->db, &p.store)) {
		log_error("prefetch: there is no store to fill");
		return CMD_FAILED;
	}
	if (o->running)
		err = find_running(&p);
	for (int i = 0; i < n; i++)
		if (find_below(&p, paths[i]))
			err = -ENOENT;
	for (; begun + 1 < jobs && begun < 256; begun++)
		if (pthread_create(&threads[begun], NULL, prefetch_some, &p))
			break;
	(void)prefetch_some(&p);
	while (begun)
		(void)pthread_join(threads[--begun], NULL);
	log_progress_done();
	log_info("%zu files: %zu stored, %zu already there, %zu failed, %zu in quarantine", p.n,
		 (size_t)p.stored, (size_t)p.there, (size_t)p.failed, (size_t)p.refused);
	if (p.useless)
		log_info("%zu were skipped: 32-bit, relocatable, or for another machine",
			 (size_t)p.useless);
	for (size_t i = 0; i < p.n; i++)
		free(p.files[i].path);
	free(p.files);
	store_close(p.store);
	return err || p.failed ? CMD_PARTLY : CMD_DONE;
}

/* ---- gc ------------------------------------------------------------------------------- */

/*
 * Set the budget if it was given, delete objects that were not used for --unused days, then the
 * least recently used ones until the store is within its budget.
 */
int cache_gc(const struct cache_options *o)
{
	struct store_counters c;
	struct store *store;
	struct stat st;
	uint64_t n = 0;
	int err;

	if (store_open(o->db, &store))
		return CMD_FAILED;
	err = o->budget ? store_set_budget(store, o->budget) : 0;
	if (!err && o->unused_days >= 0)
		err = store_forget(store, time(NULL) - 86400 * o->unused_days, &n);
	if (!err)
		err = store_shrink(store, o->budget);
	store_counters(store, &c);
	if (err)
		log_error("%s: %s", store_path(store), strerror(-err));
	else
		log_info("%s: %" PRIu64 " objects deleted; %lld bytes", store_path(store),
			 c.evicted + n, stat(store_path(store), &st) ? 0LL : (long long)st.st_size);
	store_close(store);
	return err ? CMD_FAILED : CMD_DONE;
}

/* ---- export, import --------------------------------------------------------------------- */

/*
 * Fill in the trailer (schema/export_file.h) of an exported object. Return 0, or -ENOENT if the store
 * has no identity for it.
 */
static int trailer_of(sqlite3 *db, int64_t object, struct export_trailer *out)
{
	sqlite3_stmt *s = NULL;
	int err = db_errno(
		sqlite3_prepare_v2(db, "SELECT identity FROM objects WHERE id = ?1", -1, &s, NULL));

	*out = (struct export_trailer){ .magic = EXPORT_MAGIC, .version = EXPORT_VERSION };
	if (!err)
		(void)sqlite3_bind_int64(s, 1, object);
	if (!err &&
	    (sqlite3_step(s) != SQLITE_ROW || sqlite3_column_bytes(s, 0) != sizeof(out->identity)))
		err = -ENOENT;
	if (!err)
		memcpy(out->identity, sqlite3_column_blob(s, 0), sizeof(out->identity));
	(void)sqlite3_finalize(s);
	out->checksum = uw_checksum(out, offsetof(struct export_trailer, checksum), 0);
	return err;
}

/*
 * The file is the table, the functions' ranges if there are any, and the trailer, one after the
 * other.
 */
int cache_export(const struct cache_options *o, const char *key)
{
	struct output out = { .fd = -1 };
	struct export_trailer trailer;
	struct stored *stored = NULL;
	int64_t object;
	sqlite3 *db;
	int err;

	if (cache_open(o, &db))
		return CMD_FAILED;
	err = cache_object(db, key, &object);
	if (!err) {
		err = stored_load(db, object, &stored);
		if (!err && !stored->rules)
			err = -ENOENT;
		if (!err)
			err = stored_whole(stored);
		if (!err)
			err = trailer_of(db, object, &trailer);
		if (err)
			log_error("%s: has no valid table of this version", key);
	}
	if (!err)
		err = output_open(&out, o->output);
	if (!err) {
		err = io_write(out.fd, stored->rules, stored->rules_size);
		if (!err && stored->procs)
			err = io_write(out.fd, stored->procs, stored->procs_size);
		if (!err)
			err = io_write(out.fd, &trailer, sizeof(trailer));
		if (err)
			log_unwritable(o->output, err);
		else
			err = output_commit(&out);
	}
	output_abort(&out);
	stored_put(stored);
	(void)sqlite3_close(db);
	return err ? CMD_FAILED : CMD_DONE;
}

/*
 * Read a whole regular file of at most IMPORT_MAX bytes; the caller frees *out. Return 0 or a
 * negative code.
 */
static int read_whole(const char *path, char **out, size_t *size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), err = 0;
	struct stat st;
	size_t at = 0;
	char *bytes;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st))
		err = -errno;
	else if (!S_ISREG(st.st_mode) || st.st_size > IMPORT_MAX)
		err = -EBADMSG;
	bytes = err ? NULL : malloc((size_t)st.st_size + 1);
	if (!err && !bytes)
		err = -ENOMEM;
	while (!err && at < (size_t)st.st_size) {
		ssize_t n = read(fd, bytes + at, (size_t)st.st_size - at);

		if (n <= 0)
			err = n < 0 ? -errno : -EBADMSG;
		else
			at += (size_t)n;
	}
	(void)close(fd);
	if (err) {
		free(bytes);
		return err;
	}
	*out = bytes;
	*size = at;
	return 0;
}

/*
 * Check an exported file and add it to the store. Return 0, or a negative code after reporting it.
 * A table that the store already has is no error.
 */
static int import_one(struct store *store, const char *path)
{
	struct store_blobs blobs = { .path = path };
	struct export_trailer trailer;
	struct table_header h;
	char *bytes = NULL, *procs = NULL;
	size_t size = 0;
	bool stored = false;
	int err = read_whole(path, &bytes, &size);

	if (!err && size < sizeof(h) + sizeof(trailer))
		err = -EBADMSG;
	if (!err) {
		size -= sizeof(trailer);
		memcpy(&trailer, bytes + size, sizeof(trailer));
		blobs.identity = trailer.identity;
		if (trailer.magic != EXPORT_MAGIC ||
		    trailer.checksum !=
			    uw_checksum(&trailer, offsetof(struct export_trailer, checksum), 0))
			err = -EBADMSG;
		else if (trailer.version != EXPORT_VERSION)
			err = -ENOTSUP;
	}
	if (!err) {
		memcpy(&h, bytes, sizeof(h));
		blobs.rules = bytes;
		blobs.rules_size = h.blob.size <= size ? (size_t)h.blob.size : size;
		blobs.procs_size = size - blobs.rules_size;
	}
	/* The ranges must be aligned to 8 bytes: copy them to a block of their own. */
	if (!err && blobs.procs_size) {
		procs = malloc(blobs.procs_size);
		if (procs)
			memcpy(procs, bytes + blobs.rules_size, blobs.procs_size);
		blobs.procs = procs;
		err = procs ? 0 : -ENOMEM;
	}
	if (!err)
		err = store_import(store, &blobs, &stored);
	free(procs);
	free(bytes);
	if (err)
		log_error("%s: %s", path,
			  err == -EBADMSG   ? "is not a valid table"
			  : err == -ENOTSUP ? "is a table of another version"
					    : strerror(-err));
	else
		log_info("%s: %s", path, stored ? "imported" : "is already in the store");
	return err;
}

int cache_import(const struct cache_options *o, char **paths, int n)
{
	struct store *store;
	int failed = 0;

	if (store_open(o->db, &store))
		return CMD_FAILED;
	for (int i = 0; i < n; i++)
		failed += import_one(store, paths[i]) != 0;
	store_close(store);
	return failed == n ? CMD_FAILED : failed ? CMD_PARTLY : CMD_DONE;
}
