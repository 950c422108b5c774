/* agent/cmd/given.c: loads profiles, and recordings through a profile in memory. */
#include "agent/cmd/given.h"

#include "agent/cli/input.h"
#include "agent/cmd/unwind.h"
#include "agent/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Unwind the recording at path into a profile in memory, and add that. */
static int load_recording(struct stacks *stacks, const char *path, bool base, struct pick *pick)
{
	int fd = memfd_create("offwind.pb.gz", MFD_CLOEXEC);
	int err = fd < 0 ? -errno : 0;

	if (err) {
		log_error("%s: %s", path, strerror(-err));
		return err;
	}
	err = unwind_into(path, pick, fd);
	if (!err && lseek(fd, 0, SEEK_SET))
		err = -errno;
	if (!err)
		err = stacks_load_fd(stacks, fd, strcmp(path, "-") != 0 ? path : "standard input",
				     base);
	(void)close(fd);
	return err;
}

/* --time cannot be applied to a profile, because its samples are already counted together. */
int given_load(struct stacks *stacks, const char *path, bool base, struct pick *pick)
{
	if (input_is_recording(path))
		return load_recording(stacks, path, base, pick);
	if (pick_any(pick)) {
		log_error(
			"%s: --time is for recordings (perf.data, .owc): a profile's samples have "
			"no times",
			path);
		return -EINVAL;
	}
	return stacks_load(stacks, path, base);
}

char *given_default(const char *command)
{
	static char *const names[] = { "offwind.pb.gz", "offwind.owc", "perf.data" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!access(names[i], F_OK))
			return names[i];
	log_error("%s: no profile is given, and there is no offwind.pb.gz, offwind.owc or "
		  "perf.data here; see offwind %s --help",
		  command, command);
	return NULL;
}
