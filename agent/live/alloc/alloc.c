/* agent/live/alloc/alloc.c: decides which processes and files get probes on allocators. */
#include "agent/live/alloc/alloc.h"

#include "agent/array.h"
#include "agent/clock.h"
#include "agent/errand.h"
#include "agent/hash.h"
#include "agent/live/alloc/alloc_search.h"
#include "agent/live/bpf/bpf.h"
#include "agent/log.h"
#include "agent/opener/opener.h"
#include "agent/source/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define FILES_MAX      65536u /* files that are searched */
#define ALLOCATORS_MAX 1024u  /* allocators that are watched */
/*
 * Most processes that have probes of their own. At every hit of a breakpoint, the kernel asks each
 * of their filters whether the hit is meant. With more processes than this, probes for all
 * processes cost less.
 */
#define CHOSEN_MAX 64u

struct known { /* a file that was searched */
	uint32_t major, minor;
	uint64_t inode;
	size_t allocator; /* index; SIZE_MAX: the file has none */
};

struct allocator {
	int fd;
	struct live_alloc_place *places;
	size_t n;
	bool watched; /* it has probes, or had some */
};

/* An allocator that has probes in one process alone. */
struct watched {
	uint32_t pid;
	size_t allocator;
};

struct live_allocators {
	struct live_bpf *bpf;
	struct opener *opener;
	struct known *known;
	size_t n_known, room;
	struct uw_hash_index by_inode;
	struct allocator *allocators;
	size_t n_allocators, allocators_room;
	bool everywhere;
	struct watched *watched; /* used if everywhere is false */
	size_t n_watched, watched_room, n_chosen;
	size_t n;   /* allocators that have or had probes */
	int failed; /* the first failure to attach; error has its message */
	char error[LIVE_ERROR_SIZE];
	/* What was left of the time limit for untrusted files, and when that was computed. */
	uint64_t patience_ns, patience_at_ns;
	bool said_slow;
};

int live_allocators_new(struct live_bpf *bpf, bool everywhere, struct live_allocators **out)
{
	const struct opener_options options = { .live = true, .irreplaceable = true };
	struct live_allocators *a = calloc(1, sizeof(*a));
	int err = a ? opener_new(&options, &a->opener) : -ENOMEM;

	if (err) {
		free(a);
		return err;
	}
	a->bpf = bpf;
	a->everywhere = everywhere;
	*out = a;
	return 0;
}

void live_allocators_free(struct live_allocators *a)
{
	if (!a)
		return;
	opener_free(a->opener);
	for (size_t i = 0; i < a->n_allocators; i++) {
		(void)close(a->allocators[i].fd);
		free(a->allocators[i].places);
	}
	free(a->allocators);
	free(a->watched);
	uw_hash_fini(&a->by_inode);
	free(a->known);
	free(a);
}

size_t live_allocators_n(const struct live_allocators *a)
{
	return a->n;
}

bool live_allocators_everywhere(const struct live_allocators *a)
{
	return a->everywhere;
}

/* Return the index of a file, whose hash is given, or UW_HASH_NONE. */
static uint32_t find_file(const struct live_allocators *a, const struct known *file, uint64_t hash)
{
	return UW_HASH_FIND(i, &a->by_inode, hash,
			    a->known[i].inode == file->inode && a->known[i].major == file->major &&
				    a->known[i].minor == file->minor);
}

/*
 * Look up a file, or add it: *i is its index. 0: added; -EEXIST: it was there already; -ENOSPC: the
 * table is full; -ENOMEM.
 */
static int meet(struct live_allocators *a, const struct known *file, uint32_t *i)
{
	uint64_t hash = hash_u64((uint64_t)file->major << 32 | file->minor, file->inode);

	*i = find_file(a, file, hash);
	if (*i != UW_HASH_NONE)
		return -EEXIST;
	if (a->n_known == FILES_MAX)
		return -ENOSPC;
	if (array_grow(a->known, a->n_known, a->room))
		return -ENOMEM;
	a->known[a->n_known] = *file;
	a->known[a->n_known].allocator = SIZE_MAX;
	if (uw_hash_add(&a->by_inode, hash, (uint32_t)a->n_known))
		return -ENOMEM;
	*i = (uint32_t)a->n_known++;
	return 0;
}

/*
 * The time for which untrusted files may hold up the thread that reads the ring: at most FILE_NS at
 * once, and a tenth of the time that passes. A file with a million symbols takes about 0.2 s.
 */
#define FILE_NS	 UINT64_C(500000000)
#define LEAST_NS UINT64_C(5000000)

/*
 * Search a file that others than the superuser may have written. Give up if it takes too long.
 * -ETIMEDOUT: given up; the search goes on in its thread and frees itself.
 */
static int search_strange(struct live_allocators *a, struct live_alloc_search *search)
{
	const struct errand errand = { .run = live_alloc_search,
				       .drop = live_alloc_search_free,
				       .ctx = search };
	uint64_t began = now_ns(), limit = a->patience_ns + (began - a->patience_at_ns) / 10;
	int err;

	limit = limit > FILE_NS ? FILE_NS : limit;
	err = errand_run(&errand, limit < LEAST_NS ? LEAST_NS : limit);
	a->patience_at_ns = now_ns();
	a->patience_ns =
		limit - (a->patience_at_ns - began < limit ? a->patience_at_ns - began : limit);
	if (err && !a->said_slow) {
		a->said_slow = true;
		log_warning("allocation functions inside some programs are not watched: reading "
			    "their symbols takes too long");
	}
	return err;
}

/*
 * Search a file for an allocator. *allocator is its index, or SIZE_MAX if there is none. Takes
 * ownership of fd. -ENOMEM.
 */
static int look_into(struct live_allocators *a, int fd, size_t *allocator)
{
	struct live_alloc_search *s = calloc(1, sizeof(*s));
	struct live_alloc_place places[LIVE_PLACES_MAX];
	struct allocator *found;
	bool whole = false;
	struct stat st;
	size_t n = 0;
	int err = 0;

	*allocator = SIZE_MAX;
	if (!s)
		goto no_memory;
	s->fd = a->n_allocators < ALLOCATORS_MAX ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
	if (s->fd >= 0 && !fstat(fd, &st)) {
		if (st.st_uid || st.st_mode & (S_IWGRP | S_IWOTH))
			err = search_strange(a, s);
		else
			live_alloc_search(s);
	}
	if (!err) {
		/*
		 * Both malloc and free are needed: libstdc++ has operators, but they call malloc.
		 */
		whole = s->mallocs && s->frees;
		n = s->n;
		memcpy(places, s->places, n * sizeof(*places));
	}
	if (err != -ETIMEDOUT)
		live_alloc_search_free(s);
	if (!whole) {
		(void)close(fd);
		return 0;
	}
	if (array_grow(a->allocators, a->n_allocators, a->allocators_room))
		goto no_memory;
	found = &a->allocators[a->n_allocators];
	*found = (struct allocator){ fd, malloc(n * sizeof(*places)), n, false };
	if (!found->places)
		goto no_memory;
	memcpy(found->places, places, n * sizeof(*places));
	*allocator = a->n_allocators++;
	return 0;
no_memory:
	(void)close(fd);
	return -ENOMEM;
}

/*
 * Return whether pid is this process. It is watched only for a moment, to measure the cost, and
 * does not count.
 */
static bool is_own(uint32_t pid)
{
	return pid == (uint32_t)getpid();
}

/*
 * Attach the probes of allocator i in process pid (0: in all processes). The first failure is
 * stored.
 */
static void attach(struct live_allocators *a, size_t i, uint32_t pid)
{
	struct allocator *allocator = &a->allocators[i];
	char path[32], error[LIVE_ERROR_SIZE] = "";
	int err;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", allocator->fd);
	err = live_bpf_attach_allocator(a->bpf, path, pid, allocator->places, allocator->n, error);
	if (!err && !is_own(pid)) {
		a->n += !allocator->watched;
		allocator->watched = true;
	}
	/* If the process has ended in the meantime, this is not a failure. */
	if (err && err != -ESRCH && !a->failed) {
		a->failed = err;
		memcpy(a->error, error, sizeof(error));
	}
}

/* Return whether this process has probes of its own. */
static bool is_chosen(const struct live_allocators *a, uint32_t pid)
{
	for (size_t i = 0; i < a->n_watched; i++)
		if (a->watched[i].pid == pid)
			return true;
	return false;
}

void live_allocators_leave(struct live_allocators *a, uint32_t pid)
{
	size_t left = 0;

	if (!is_chosen(a, pid))
		return;
	for (size_t i = 0; i < a->n_watched; i++)
		if (a->watched[i].pid != pid)
			a->watched[left++] = a->watched[i];
	a->n_watched = left;
	a->n_chosen -= !is_own(pid);
	live_bpf_detach_allocators(a->bpf, pid);
}

void live_allocators_exit(struct live_allocators *a, uint32_t pid)
{
	if (is_chosen(a, pid) && procfs_ended(pid))
		live_allocators_leave(a, pid);
}

/*
 * Remove the processes that have ended. Their last exit event may have come before the process was
 * really gone.
 */
static void drop_ended(struct live_allocators *a)
{
	for (size_t i = 0; i < a->n_watched;) {
		size_t before = a->n_watched;

		live_allocators_exit(a, a->watched[i].pid);
		i = a->n_watched < before ? 0 : i + 1;
	}
}

/* Replace the probes in single processes by probes in all processes. */
static void watch_everywhere(struct live_allocators *a)
{
	log_warning("more than %u processes at once are watched for allocations: from now on the "
		    "probes slow down every process of the machine",
		    CHOSEN_MAX);
	a->everywhere = true;
	a->n_watched = a->n_chosen = 0;
	live_bpf_detach_allocators(a->bpf, 0);
	for (size_t i = 0; i < a->n_allocators; i++)
		attach(a, i, 0);
}

/* Attach an allocator's probes in a process, if they are not attached yet. */
static int watch(struct live_allocators *a, size_t allocator, uint32_t pid)
{
	bool more;

	for (size_t i = 0; i < a->n_watched; i++)
		if (a->watched[i].pid == pid && a->watched[i].allocator == allocator)
			return 0;
	more = !is_own(pid) && !is_chosen(a, pid);
	if (more && a->n_chosen >= CHOSEN_MAX)
		drop_ended(a);
	if (more && a->n_chosen >= CHOSEN_MAX) {
		watch_everywhere(a);
		return 0;
	}
	if (array_grow(a->watched, a->n_watched, a->watched_room))
		return -ENOMEM;
	a->watched[a->n_watched++] = (struct watched){ pid, allocator };
	a->n_chosen += more;
	attach(a, allocator, pid);
	return 0;
}

/*
 * Handle a file that a process has mapped: search it if it is new (!known), and watch its
 * allocator. fd is -1 if the file cannot be opened; otherwise this function takes ownership of it.
 */
static int take_file(struct live_allocators *a, uint32_t i, bool known, int fd, uint32_t pid)
{
	size_t allocator = SIZE_MAX;
	int err;

	if (!known && fd >= 0) {
		err = look_into(a, fd, &allocator);
		if (err)
			return err;
		a->known[i].allocator = allocator;
		if (allocator != SIZE_MAX && a->everywhere)
			attach(a, allocator, 0);
	}
	allocator = a->known[i].allocator;
	return allocator == SIZE_MAX || a->everywhere ? 0 : watch(a, allocator, pid);
}

int live_allocators_failed(const struct live_allocators *a, char *error)
{
	if (a->n || !a->failed)
		return 0;
	memcpy(error, a->error, sizeof(a->error));
	return a->failed;
}

/*
 * Open with O_NONBLOCK: opening a FIFO, or a file on which another process holds a lease, must not
 * wait.
 */
int live_allocators_file(struct live_allocators *a, uint32_t pid, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK), err;
	struct known file;
	struct stat st;
	uint32_t i;

	if (fd < 0)
		return 0;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		(void)close(fd);
		return 0;
	}
	file = (struct known){ .major = major(st.st_dev),
			       .minor = minor(st.st_dev),
			       .inode = st.st_ino };
	err = meet(a, &file, &i);
	if (!err)
		return take_file(a, i, false, fd, pid);
	(void)close(fd);
	if (err == -EEXIST)
		return take_file(a, i, true, -1, pid);
	return err == -ENOMEM ? err : 0;
}

/* A file that was met before (-EEXIST) is not opened again: its allocator, if any, is known. */
int live_allocators_mapping(struct live_allocators *a, uint32_t pid, const struct event_mapping *m)
{
	const struct opener_file file = { .pid = pid,
					  .start = m->start,
					  .end = m->end,
					  .path = m->path,
					  .major = m->major,
					  .minor = m->minor,
					  .inode = m->inode,
					  .inode_generation = m->inode_generation,
					  .deleted = m->deleted,
					  .build_id = m->build_id };
	const struct known known = { .major = m->major, .minor = m->minor, .inode = m->inode };
	unsigned int next = 0;
	uint32_t i;
	int fd, err;

	if (!(m->prot & PROT_EXEC) || !m->path || m->path[0] != '/' || !m->inode)
		return 0;
	err = meet(a, &known, &i);
	if (err && err != -EEXIST)
		return err == -ENOMEM ? err : 0;
	if (err || opener_open(a->opener, &file, &next, &fd))
		fd = -1;
	return take_file(a, i, err == -EEXIST, fd, pid);
}

int live_allocators_fork(struct live_allocators *a, uint32_t parent, uint32_t child)
{
	int err = 0;

	for (size_t i = 0; !err && i < a->n_watched; i++)
		if (a->watched[i].pid == parent)
			err = watch(a, a->watched[i].allocator, child);
	return err;
}
