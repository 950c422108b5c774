/* agent/live/system/file_id.c: a cache of the build-ids of mapped files. */
#include "agent/live/system/file_id.h"

#include "agent/clock.h"
#include "agent/hash.h"
#include "agent/live/system/mount.h"
#include "agent/live/system/pin.h"
#include "agent/opener/opener.h"
#include "agent/source/memory_image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES_MAX 1024u
#define HOLD_NS	  UINT64_C(3000000000) /* for this time a deleted file still occupies disk space */
#define KEEP_NS \
	UINT64_C(60000000000) /* the same for a file of the root file system that is not deleted */
#define SWEEP_NS UINT64_C(1000000000)
/*
 * Between two attempts to open a file: a process that executes itself again and again has other mappings by the time that
 * one is opened, which takes a thread (places_mapped_link).
 */
#define AGAIN_NS     UINT64_C(1000000)
#define AGAIN_MAX_NS UINT64_C(50000000)

struct known {
	uint32_t major, minor;
	uint64_t inode, generation;
	struct uw_build_id id;	 /* size 0: the file has no build-id */
	struct timespec changed; /* change time of the file when its build-id was read */
	int fd;			 /* -1: closed */
	uint32_t pid; /* a process that had it mapped, there, when recording began; 0: none */
	uint64_t start, end;
	bool indexed;
	uint64_t used_ns;
	uint64_t again_ns,
		pause_ns; /* it could not be opened: not tried again before, and so long */
};

struct live_file_ids {
	struct opener_mappings *opener;
	struct known known[FILES_MAX]; /* circular: a new file replaces the oldest */
	size_t n, next;
	struct uw_hash_index by_file;
	uint64_t swept_ns;
};

int live_file_ids_new(struct live_file_ids **out)
{
	struct live_file_ids *ids = calloc(1, sizeof(*ids));
	int err = ids ? opener_mappings_new(&ids->opener) : -ENOMEM;

	if (err) {
		free(ids);
		return err;
	}
	*out = ids;
	return 0;
}

/* Close the file, but leave its build-id in the cache. */
static void let_go(struct known *k)
{
	if (k->fd >= 0)
		(void)close(k->fd);
	k->fd = -1;
}

void live_file_ids_free(struct live_file_ids *ids)
{
	if (!ids)
		return;
	for (size_t i = 0; i < ids->n; i++)
		let_go(&ids->known[i]);
	uw_hash_fini(&ids->by_file);
	opener_mappings_free(ids->opener);
	free(ids);
}

static uint64_t hash_of(uint32_t major, uint32_t minor, uint64_t inode)
{
	return hash_u64((uint64_t)major << 32 | minor, inode);
}

static bool same_inode(const struct known *k, const struct event_mapping *m)
{
	return k->inode == m->inode && k->major == m->major && k->minor == m->minor;
}

static bool same_file(const struct known *k, const struct event_mapping *m)
{
	return same_inode(k, m) && k->generation == m->inode_generation;
}

/*
 * Add an entry for a file that is not in the cache, in place of the oldest one. NULL: no memory;
 * then the entry cannot be found.
 */
static struct known *add(struct live_file_ids *ids, const struct event_mapping *m)
{
	uint32_t i = (uint32_t)ids->next;
	struct known *k = &ids->known[i];

	if (i < ids->n) {
		if (k->indexed)
			uw_hash_remove(&ids->by_file, hash_of(k->major, k->minor, k->inode), i);
		let_go(k);
	}
	*k = (struct known){ .major = m->major,
			     .minor = m->minor,
			     .inode = m->inode,
			     .generation = m->inode_generation,
			     .fd = -1 };
	ids->n += i == ids->n;
	ids->next = (i + 1) % FILES_MAX;
	k->indexed = !uw_hash_add(&ids->by_file, hash_of(m->major, m->minor, m->inode), i);
	return k->indexed ? k : NULL;
}

/* Return the number of a file, whatever its generation, that a process had mapped when recording began. */
static uint32_t find_mapped(const struct live_file_ids *ids, const struct event_mapping *m)
{
	return UW_HASH_FIND(n, &ids->by_file, hash_of(m->major, m->minor, m->inode),
			    ids->known[n].pid && same_inode(&ids->known[n], m));
}

/* Open the file of a mapping, and check that it is that file. */
static int open_file(struct live_file_ids *ids, struct live_pins *pins, uint32_t pid,
		     const struct event_mapping *m, int *fd)
{
	struct opener_file file = { .pid = pid,
				    .start = m->start,
				    .end = m->end,
				    .major = m->major,
				    .minor = m->minor,
				    .inode = m->inode,
				    .inode_generation = m->inode_generation };
	uint32_t major, minor, mapped;
	uint64_t inode;
	int err;

	if (pins && !live_pins_open(pins, m->major, m->minor, m->inode, fd))
		return 0;
	err = opener_mappings_open(ids->opener, &file, fd);
	/* A short process has ended by now, but its libraries are those of others. */
	mapped = err ? find_mapped(ids, m) : UW_HASH_NONE;
	if (mapped != UW_HASH_NONE) {
		file.pid = ids->known[mapped].pid;
		file.start = ids->known[mapped].start;
		file.end = ids->known[mapped].end;
		err = opener_mappings_open(ids->opener, &file, fd);
	}
	if (err)
		return err;
	/* Do not compare the device: on btrfs, stat returns that of a subvolume. */
	if (live_file_identity(*fd, &major, &minor, &inode) || inode != m->inode) {
		(void)close(*fd);
		return -ENOENT;
	}
	return 0;
}

/* Open a file that is not open, but not so soon after an attempt that failed. Return whether it is open now. */
static bool open_again(struct live_file_ids *ids, struct live_pins *pins, uint32_t pid,
		       const struct event_mapping *m, struct known *k)
{
	int fd;

	if (now_ns() < k->again_ns)
		return false;
	if (open_file(ids, pins, pid, m, &fd)) {
		k->pause_ns = longer_pause(k->pause_ns, AGAIN_NS, AGAIN_MAX_NS);
		k->again_ns = now_ns() + k->pause_ns;
		return false;
	}
	k->fd = fd;
	k->pause_ns = 0;
	return true;
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/* Read the build-id, unless it was read before (again) and the file has not changed since. */
static void read_id(struct known *k, bool again)
{
	struct stat st;

	if (fstat(k->fd, &st) || (again && same_time(&st.st_ctim, &k->changed)))
		return;
	k->changed = st.st_ctim;
	k->id.size = 0;
	(void)image_file_build_id(k->fd, &k->id);
}

static uint32_t find(const struct live_file_ids *ids, const struct event_mapping *m)
{
	return UW_HASH_FIND(n, &ids->by_file, hash_of(m->major, m->minor, m->inode),
			    same_file(&ids->known[n], m));
}

bool live_file_ids_hold(struct live_file_ids *ids, const struct event_mapping *m, uint64_t now_ns)
{
	uint32_t i = find(ids, m);

	if (i == UW_HASH_NONE || ids->known[i].fd < 0)
		return false;
	ids->known[i].used_ns = now_ns;
	return true;
}

/* Note where a file is mapped whose build-id was reported. (Its generation was not.) */
static void note_mapped(struct live_file_ids *ids, uint32_t pid, const struct event_mapping *m)
{
	struct known *k = find_mapped(ids, m) == UW_HASH_NONE ? add(ids, m) : NULL;

	if (!k)
		return;
	k->id = m->build_id;
	k->pid = pid;
	k->start = m->start;
	k->end = m->end;
}

void live_file_ids_fill(struct live_file_ids *ids, struct live_pins *pins, uint32_t pid,
			struct event_mapping *m, uint64_t now_ns)
{
	struct known *k;
	bool again, is_new = false;
	uint32_t i;

	if (!m->inode || !m->path || m->path[0] != '/')
		return;
	if (m->build_id.size) {
		note_mapped(ids, pid, m);
		return;
	}
	i = find(ids, m);
	again = i != UW_HASH_NONE;
	k = again ? &ids->known[i] : add(ids, m);
	if (!k)
		return;
	/* If it cannot be opened, a file that was open is still known by its generation. */
	if (k->fd < 0)
		is_new = open_again(ids, pins, pid, m, k);
	/* What is filled in at one time needs one look at a file, however many processes have mapped it. */
	if (k->fd >= 0 && (is_new || k->used_ns != now_ns))
		read_id(k, again);
	k->used_ns = now_ns;
	m->build_id = k->id;
}

/* While a file is open, no other one can have its inode number: the generation does not matter. */
int live_file_ids_open(const struct live_file_ids *ids, uint32_t major, uint32_t minor,
		       uint64_t inode, int *fd)
{
	const struct event_mapping m = { .major = major, .minor = minor, .inode = inode };
	const struct known *known = ids->known;
	uint32_t i = UW_HASH_FIND(n, &ids->by_file, hash_of(major, minor, inode),
				  known[n].fd >= 0 && same_inode(&known[n], &m));
	int copy = i == UW_HASH_NONE ? -1 : fcntl(known[i].fd, F_DUPFD_CLOEXEC, 0);

	if (i == UW_HASH_NONE)
		return -ENOENT;
	if (copy < 0)
		return -errno;
	*fd = copy;
	return 0;
}

/*
 * Return whether a file that is mapped no more may stay open: nobody waits for its disk space, and nobody unmounts its file
 * system. To open it again would take a thread each time (places_mapped_link).
 */
static bool may_stay(const struct known *k, const struct stat *root, uint64_t now_ns)
{
	struct stat st;

	return k->used_ns + KEEP_NS >= now_ns && !fstat(k->fd, &st) && st.st_nlink &&
	       st.st_dev == root->st_dev;
}

void live_file_ids_sweep(struct live_file_ids *ids, uint64_t now_ns)
{
	struct stat root = { .st_dev = 0 };

	if (now_ns < ids->swept_ns + SWEEP_NS)
		return;
	ids->swept_ns = now_ns;
	(void)stat("/", &root);
	for (size_t i = 0; i < ids->n; i++) {
		struct known *k = &ids->known[i];

		if (k->fd >= 0 && k->used_ns + HOLD_NS < now_ns && !may_stay(k, &root, now_ns))
			let_go(k);
	}
}
