/* agent/cmd/given.c: loads profiles, and unwinds recordings. */
#include "agent/cmd/given.h"

#include "agent/cli/input.h"
#include "agent/cli/supervisor.h"
#include "agent/cli/walking.h"
#include "agent/cmd/unwind.h"
#include "agent/log.h"

#include <errno.h>
#include <unistd.h>

int given_begin(const struct supervision *given, struct store **store)
{
	const char *input;
	bool recording = false;
	struct walking walking = { .no_cache = false };
	int err;

	for (size_t i = 0; !recording && (input = supervision_input(given, i)); i++)
		recording = input_is_recording(input);
	err = supervisor_start(given);
	if (err)
		return err;
	if (recording)
		walking_open_store(&walking);
	*store = walking.pipeline.store;
	supervisor_confine();
	return 0;
}

/* --time cannot be applied to a profile, because its samples are already counted together. */
int given_load(struct stacks *stacks, const char *path, bool base, struct pick *pick,
	       struct store *store)
{
	if (input_is_recording(path))
		return unwind_into(path, pick, stacks, base, store);
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
