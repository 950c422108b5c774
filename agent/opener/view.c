/*
 * agent/opener/view.c: distinguishes the file trees that processes see, so that names found in one
 * tree are not used for another.
 */
#include "agent/opener/places.h"
#include "agent/opener/request.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef STATX_MNT_ID_UNIQUE
#define STATX_MNT_ID_UNIQUE 0x4000u /* since Linux 6.8; older kernels ignore the flag */
#endif

/*
 * Identifies a root directory. A mount belongs to one mount namespace, so the mount of the root
 * directory identifies the namespace, too. Kernels before 6.8 report a number that another mount
 * can reuse later.
 */
struct root {
	uint64_t mount, device, inode;
};

/* Read what identifies the directory path below dir. False on failure. */
static bool look(int dir, const char *path, struct root *out)
{
	struct statx st;

	/* With AT_STATX_DONT_SYNC the kernel answers from memory, and asks no program that serves the file system. */
	if (statx(dir, path, AT_STATX_DONT_SYNC | (*path ? 0 : AT_EMPTY_PATH),
		  STATX_INO | STATX_MNT_ID | STATX_MNT_ID_UNIQUE, &st))
		return false;
	*out = (struct root){ .mount = st.stx_mnt_id,
			      .device = (uint64_t)st.stx_dev_major << 32 | st.stx_dev_minor,
			      .inode = st.stx_ino };
	return true;
}

static bool same_directory(const struct root *a, const struct root *b)
{
	return a->device == b->device && a->inode == b->inode;
}

/*
 * Return whether a root directory has its own directory of debug files, other than the host's. The root is the host's, so
 * the kernel knows the way as soon as the host's was looked up.
 */
static bool has_own_debug(int root, const struct root *host)
{
	int debug = places_known(root, &PLACES_DEBUG[1], O_DIRECTORY);
	struct root its;
	bool own;

	if (debug < 0)
		return false;
	own = look(debug, "", &its) && !same_directory(&its, host);
	(void)close(debug);
	return own;
}

/* Compare a root directory with our own: see view_of. */
static uint64_t view_of_root(int root, bool strict, bool *own)
{
	struct root host, debug = { .inode = 0 }, its;
	uint64_t view;

	if (!look(root, "", &its) || !look(AT_FDCWD, "/", &host))
		return 0;
	if (same_directory(&its, &host)) {
		*own = its.mount == host.mount;
		if (*own)
			return 0;
		(void)look(AT_FDCWD, PLACES_DEBUG, &debug);
		if (!strict && !has_own_debug(root, &debug))
			return 0;
	}
	view = (its.mount * 0x9e3779b97f4a7c15u ^ its.device) * 0x9e3779b97f4a7c15u ^ its.inode;
	return view ? view : 1;
}

/*
 * Compare the process's root with our own. The result is a hash of its mount, device and inode. *own: the process is there,
 * and has our own view; another process that looks does not tell.
 */
static uint64_t view_of(const struct opener *opener, uint32_t pid, bool strict, bool *own)
{
	uint64_t view;
	int root;

	*own = false;
	if (!opener->live || !pid)
		return 0;
	if (opener->number) {
		struct request request = { .what = REQUEST_VIEW,
					   .opener = opener->number,
					   .pid = pid,
					   .flag = strict,
					   .fd = -1 };
		struct reply reply;

		return request_call(&request, &reply) ? 0 : reply.number;
	}
	if (places_root(pid, &root))
		return 0;
	view = view_of_root(root, strict, own);
	(void)close(root);
	return view;
}

uint64_t opener_view(const struct opener *opener, uint32_t pid, bool strict)
{
	bool own;

	return view_of(opener, pid, strict, &own);
}

uint64_t opener_views_get(struct opener_views *views, const struct opener *opener, uint32_t pid)
{
	uint32_t i = pid & (OPENER_VIEWS - 1);

	if (views->of[i].pid != pid) {
		views->of[i].pid = pid;
		views->of[i].view = view_of(opener, pid, false, &views->of[i].own);
	}
	return views->of[i].view;
}

bool opener_views_own(const struct opener_views *views, uint32_t pid)
{
	uint32_t i = pid & (OPENER_VIEWS - 1);

	return views->of[i].pid == pid && views->of[i].own;
}

void opener_views_forget(struct opener_views *views, uint32_t pid)
{
	uint32_t i = pid & (OPENER_VIEWS - 1);

	if (views->of[i].pid == pid)
		views->of[i].pid = 0;
}
