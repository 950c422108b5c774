/*
 * agent/export/output.c: creates, renames and removes result files, safely in directories of other
 * users.
 */
#include "agent/export/output.h"

#include "agent/log.h"
#include "agent/role/files.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct output empty = { .fd = -1 };

/*
 * Return whether the symbolic link at path may be written through: only this user or root can have
 * made it or can replace it. This is true of /dev/stdout and of a link in the user's own directory.
 * It is not true of a link that another user left in a directory that this other user can write to.
 */
static bool is_own_link(const char *path, const struct stat *link)
{
	const char *slash = strrchr(path, '/');
	char *dir = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
	struct stat st;
	bool own = (!link->st_uid || link->st_uid == geteuid()) && dir && !stat(dir, &st) &&
		   (!st.st_uid || st.st_uid == geteuid()) &&
		   (!(st.st_mode & (S_IWGRP | S_IWOTH)) || st.st_mode & S_ISVTX);

	free(dir);
	return own;
}

/*
 * Open a file that is not regular, or a file behind a trusted link. -ESTALE: the file was replaced
 * meanwhile.
 */
static int open_directly(const char *path, bool link, int *fd)
{
	/*
	 * With O_CREAT the kernel refuses other users' pipes in sticky directories
	 * (fs.protected_fifos).
	 */
	int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | (link ? O_TRUNC : O_NOFOLLOW);
	int opened = open(path, flags, 0600);
	struct stat st;

	if (opened < 0)
		return errno == ELOOP ? -ESTALE : -errno;
	if (!link && (fstat(opened, &st) || S_ISREG(st.st_mode))) {
		(void)close(opened);
		return -ESTALE;
	}
	*fd = opened;
	return 0;
}

/*
 * Open the file at path if it is not to be replaced by a new one. -ENOENT: a new file is to be
 * created.
 */
static int open_there(const char *path, int *fd)
{
	struct stat st;
	bool link;
	int err;

	if (lstat(path, &st) || S_ISREG(st.st_mode))
		return -ENOENT;
	link = S_ISLNK(st.st_mode);
	if (link && !is_own_link(path, &st))
		return -ENOENT;
	err = open_directly(path, link, fd);
	return err == -ESTALE ? -ENOENT : err;
}

/* Open and truncate the file at path itself; create it if it does not exist. */
static int open_in_place(const char *path, int *fd)
{
	struct stat st;
	bool link = !lstat(path, &st) && S_ISLNK(st.st_mode) && is_own_link(path, &st);
	int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY;
	int opened = open(path, flags | (link ? 0 : O_NOFOLLOW), 0600);

	if (opened < 0)
		return -errno;
	*fd = opened;
	return 0;
}

/*
 * Create a file with a new name next to path, readable for this user alone (mkostemp). The caller
 * frees *temporary.
 */
static int create_beside(const char *path, char **temporary, int *fd)
{
	char *name;
	int opened, err;

	if (asprintf(&name, "%s.XXXXXX", path) < 0)
		return -ENOMEM;
	opened = mkostemp(name, O_CLOEXEC);
	if (opened < 0) {
		err = -errno;
		free(name);
		return err;
	}
	*temporary = name;
	*fd = opened;
	return 0;
}

int output_create(const char *path, int *fd)
{
	char *temporary;
	int created, err = open_there(path, fd);

	if (err != -ENOENT)
		return err;
	err = create_beside(path, &temporary, &created);
	if (err)
		return err;
	if (rename(temporary, path)) {
		err = -errno;
		(void)unlink(temporary);
		(void)close(created);
	} else {
		*fd = created;
	}
	free(temporary);
	return err;
}

int output_begin(struct output *out, const char *path, bool in_place)
{
	int err;

	*out = empty;
	out->path = strdup(path);
	if (!out->path)
		return -ENOMEM;
	if (files_are_asked_for()) {
		err = files_output(path, in_place, &out->fd, &out->number);
		out->elsewhere = !err;
		return err;
	}
	err = in_place ? open_in_place(path, &out->fd) : open_there(path, &out->fd);
	if (err == -ENOENT && !in_place)
		err = create_beside(path, &out->temporary, &out->fd);
	return err;
}

/* Open a result and report a failure. */
static int open_as(struct output *out, const char *path, bool in_place)
{
	int err;

	if (!strcmp(path, "-")) {
		*out = empty;
		out->fd = dup(STDOUT_FILENO);
		err = out->fd < 0 ? -errno : 0;
	} else {
		err = output_begin(out, path, in_place);
	}
	if (err) {
		log_unwritable(path, err);
		output_abort(out);
	}
	return err;
}

int output_open(struct output *out, const char *path)
{
	return open_as(out, path, false);
}

int output_open_in_place(struct output *out, const char *path)
{
	return open_as(out, path, true);
}

int output_try(const char *path)
{
	struct output out;
	struct stat st;
	int err;

	/*
	 * Opening a pipe or a device would already have an effect; whether it can be written shows
	 * later.
	 */
	if (!strcmp(path, "-") ||
	    (!lstat(path, &st) && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)))
		return 0;
	err = output_open(&out, path);
	output_abort(&out);
	return err;
}

int output_not_terminal(const char *command, const char *path)
{
	if (strcmp(path, "-") != 0 || !isatty(STDOUT_FILENO))
		return 0;
	log_error("%s: this format cannot be shown on a terminal; use -o FILE", command);
	return -EINVAL;
}

FILE *output_file(struct output *out)
{
	if (!out->file)
		out->file = fdopen(out->fd, "w");
	return out->file;
}

int output_why(int fd)
{
	struct pollfd out = { .fd = fd };

	return poll(&out, 1, 0) == 1 && out.revents & POLLERR ? -EPIPE : -EIO;
}

/* Close the file or stream. Return 0 or the first error of all writes. */
static int finish(struct output *out)
{
	int err = 0;

	if (out->file) {
		if (ferror(out->file))
			err = output_why(fileno(out->file));
		errno = 0;
		if (fclose(out->file))
			err = errno ? -errno : -EIO;
		out->file = NULL;
	} else if (out->fd >= 0 && close(out->fd)) {
		err = -errno;
	}
	out->fd = -1;
	return err;
}

int output_rename(struct output *out)
{
	int err = 0;

	if (out->elsewhere)
		err = files_commit(out->number);
	else if (out->temporary && rename(out->temporary, out->path))
		err = -errno;
	if (err)
		return err;
	free(out->temporary);
	out->temporary = NULL;
	out->elsewhere = false;
	return 0;
}

int output_commit(struct output *out)
{
	int err = finish(out);

	if (!err)
		err = output_rename(out);
	if (err)
		log_unwritable(out->path, err);
	output_abort(out);
	return err;
}

void output_abort(struct output *out)
{
	(void)finish(out);
	if (out->elsewhere)
		files_abort(out->number);
	if (out->temporary)
		(void)unlink(out->temporary);
	free(out->temporary);
	free(out->path);
	*out = empty;
}
