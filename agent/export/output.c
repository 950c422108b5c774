#include "agent/export/output.h"

#include "agent/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct output empty = { .fd = -1 };

static int open_directly(struct output *out)
{
	out->fd = open(out->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666);
	return out->fd < 0 ? -errno : 0;
}

static int open_beside(struct output *out)
{
	mode_t mask = umask(0);

	(void)umask(mask);
	if (asprintf(&out->temporary, "%s.XXXXXX", out->path) < 0) {
		out->temporary = NULL;
		return -ENOMEM;
	}
	out->fd = mkostemp(out->temporary, O_CLOEXEC);
	if (out->fd < 0) {
		int err = -errno;

		free(out->temporary);
		out->temporary = NULL;
		return err;
	}
	/* mkostemp gives 0600; a result is as readable as any other new file. */
	return fchmod(out->fd, 0666 & ~mask) ? -errno : 0;
}

static int open_as(struct output *out, const char *path, bool in_place)
{
	struct stat st;
	int err;

	*out = empty;
	if (!strcmp(path, "-")) {
		out->fd = dup(STDOUT_FILENO);
		err = out->fd < 0 ? -errno : 0;
	} else {
		out->path = strdup(path);
		if (!out->path)
			err = -ENOMEM;
		else if (in_place || (!lstat(path, &st) && !S_ISREG(st.st_mode)))
			err = open_directly(out);
		else
			err = open_beside(out);
	}
	if (err) {
		log_error("%s: cannot be written: %s", path, strerror(-err));
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

	/* To open a pipe or a device is to begin; whether it takes anything is seen then. */
	if (!strcmp(path, "-") ||
	    (!lstat(path, &st) && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)))
		return 0;
	err = output_open(&out, path);
	output_abort(&out);
	return err;
}

FILE *output_file(struct output *out)
{
	if (!out->file)
		out->file = fdopen(out->fd, "w");
	return out->file;
}

static int finish(struct output *out)
{
	int err = 0;

	if (out->file) {
		if (ferror(out->file))
			err = -EIO;
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

int output_commit(struct output *out)
{
	int err = finish(out);

	if (!err && out->temporary && rename(out->temporary, out->path))
		err = -errno;
	if (err) {
		log_error("%s: cannot be written: %s", out->path ? out->path : "standard output",
			  strerror(-err));
	} else {
		free(out->temporary);
		out->temporary = NULL;
	}
	output_abort(out);
	return err;
}

void output_abort(struct output *out)
{
	(void)finish(out);
	if (out->temporary)
		(void)unlink(out->temporary);
	free(out->temporary);
	free(out->path);
	*out = empty;
}
