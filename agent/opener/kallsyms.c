/*
 * agent/opener/kallsyms.c: opens the kernel's list of symbols, and stores copies of it for this user.
 */
#include "agent/opener/opener.h"
#include "agent/opener/places.h"
#include "agent/opener/request.h"
#include "agent/textbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Ask the opener's process for a list of symbols. next may be NULL. */
static int ask_elsewhere(const struct opener *opener, enum request_what what,
			 const struct uw_build_id *id, unsigned int *next, int *fd)
{
	struct request request = { .what = what, .opener = opener->number, .fd = -1 };

	if (id)
		request.id = *id;
	return request_file(&request, next, fd);
}

int opener_kallsyms(struct opener *opener, int *fd)
{
	int opened;

	if (opener->number)
		return ask_elsewhere(opener, REQUEST_KALLSYMS, NULL, NULL, fd);
	opened = open("/proc/kallsyms", O_RDONLY | O_CLOEXEC);
	if (opened < 0)
		return -errno;
	*fd = opened;
	return 0;
}

/*
 * Create a directory for this user alone, and its parent in the same way. The grandparent (usually
 * the home directory) must exist.
 */
static int make_directory(const char *path)
{
	char *above = strdup(path), *slash;
	int err = 0;

	if (!above)
		return -ENOMEM;
	slash = strrchr(above, '/');
	if (slash && slash != above) {
		*slash = '\0';
		(void)mkdir(above, 0700);
	}
	if (mkdir(path, 0700) && errno != EEXIST)
		err = -errno;
	free(above);
	return err;
}

/*
 * Copy all bytes from one descriptor to the other and rewind the copy. Return 0 or a negative code.
 */
static int copy_all(int from, int to)
{
	enum { CHUNK = 64 << 10 };
	char *chunk = malloc(CHUNK);
	size_t have = 0; /* the kernel returns one page for each read */
	ssize_t n = -1;

	while (chunk && (n = read(from, chunk + have, CHUNK - have)) >= 0) {
		have += (size_t)n;
		if (n && have < CHUNK)
			continue;
		if (write(to, chunk, have) != (ssize_t)have) {
			n = -1;
			errno = ENOSPC;
		}
		have = 0;
		if (n <= 0)
			break;
	}
	free(chunk);
	if (n < 0)
		return chunk ? -errno : -ENOMEM;
	return lseek(to, 0, SEEK_SET) < 0 ? -errno : 0;
}

/* Write to a file without a name (O_TMPFILE): no other process can see a part of the copy. */
int opener_copy_kallsyms(struct opener *opener, int *fd)
{
	int from = -1, to, err;

	if (opener->number)
		return ask_elsewhere(opener, REQUEST_COPY_KALLSYMS, NULL, NULL, fd);
	if (!opener->own)
		return -ENOENT;
	err = make_directory(opener->own);
	if (err)
		return err;
	to = open(opener->own, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (to < 0)
		return -errno;
	err = opener_kallsyms(opener, &from);
	if (!err) {
		err = copy_all(from, to);
		(void)close(from);
	}
	if (err)
		(void)close(to);
	else
		*fd = to;
	return err;
}

/*
 * Write the path of our kallsyms copy for this kernel. suffix makes the temporary name that the
 * copy has before it is renamed.
 */
static int own_path(const struct opener *opener, const struct uw_build_id *id, const char *suffix,
		    char *path, size_t room)
{
	char hex[2 * UW_BUILD_ID_MAX + 1];

	if (!opener->own || !id->size)
		return -ENOENT;
	(void)textbuf_build_id(id, hex);
	if ((size_t)snprintf(path, room, "%s/kallsyms-%s%s", opener->own, hex, suffix) >= room)
		return -ENAMETOOLONG;
	return 0;
}

void opener_keep_kallsyms(struct opener *opener, const struct uw_build_id *id, int fd)
{
	char path[4096], fresh[4096], suffix[32], link[64];

	if (opener->number) {
		struct request request = {
			.what = REQUEST_KEEP_KALLSYMS, .opener = opener->number, .id = *id, .fd = fd
		};
		struct reply reply;

		(void)request_call(&request, &reply);
		return;
	}
	(void)snprintf(suffix, sizeof(suffix), ".%d", (int)getpid());
	if (own_path(opener, id, "", path, sizeof(path)) ||
	    own_path(opener, id, suffix, fresh, sizeof(fresh)))
		return;
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (linkat(AT_FDCWD, link, AT_FDCWD, fresh, AT_SYMLINK_FOLLOW))
		return;
	if (rename(fresh, path))
		(void)unlink(fresh);
}

/* Candidate 0 is perf's copy, candidate 1 is our own. */
int opener_stored_kallsyms(struct opener *opener, const struct uw_build_id *id, unsigned int *next,
			   int *fd)
{
	char path[4096];
	int err = -ENOENT;

	if (opener->number)
		return ask_elsewhere(opener, REQUEST_STORED_KALLSYMS, id, next, fd);
	while (err && *next < 2) {
		if ((*next)++ == 0)
			err = places_open_cached(opener, id, "kallsyms", NULL, fd);
		else
			err = own_path(opener, id, "", path, sizeof(path));
		if (!err && *next == 2)
			err = places_open(path, NULL, fd);
	}
	return err ? -ENOENT : 0;
}
