/* agent/cmd/given.c: loads profiles, and unwinds recordings. */
#include "agent/cmd/given.h"

#include "agent/array.h"
#include "agent/cli/input.h"
#include "agent/cli/supervisor.h"
#include "agent/cli/walking.h"
#include "agent/cmd/cmd.h"
#include "agent/cmd/unwind.h"
#include "agent/history/history.h"
#include "agent/log.h"
#include "agent/store/db.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The histories among the inputs: they are opened before this process gives up its rights. */
static struct given_one {
	const char *path;
	struct history *history;
} * histories;
static size_t n_histories, room_histories;

static bool partly; /* something is damaged, and the rest was loaded */

static int open_histories(const struct supervision *given)
{
	const char *input;
	int err = 0;

	for (size_t i = 0; !err && (input = supervision_input(given, i)); i++) {
		if (!history_is(input))
			continue;
		err = array_grow(histories, n_histories, room_histories);
		if (err) {
			log_error("%s: %s", input, strerror(-err));
			break;
		}
		histories[n_histories].path = input;
		err = history_open(input, false, &histories[n_histories].history);
		n_histories += !err;
	}
	return err;
}

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
	err = open_histories(given);
	if (err)
		return err;
	if (recording)
		walking_open_store(&walking);
	*store = walking.pipeline.store;
	supervisor_confine();
	return 0;
}

/* Add a range of a history. */
static int load_history(struct stacks *stacks, struct history *history, bool base,
			const struct pick *pick)
{
	const struct history_query query = { .from_ns = pick->from_ns,
					     .to_ns = pick->to_ns ? pick->to_ns : UINT64_MAX,
					     .labels = true,
					     .base = base };
	struct history_found found;
	int err = history_read(history, &query, stacks, &found);

	partly = partly || (!err && found.n_damaged);
	return err;
}

/*
 * --time is on a recording's clock. It cannot be applied to a history, whose times are those of days, nor to a
 * profile, whose samples are already counted together.
 */
int given_load(struct stacks *stacks, const char *path, bool base, struct pick *pick,
	       struct store *store)
{
	for (size_t i = 0; i < n_histories; i++) {
		if (strcmp(histories[i].path, path) != 0)
			continue;
		if (!pick_any(pick))
			return load_history(stacks, histories[i].history, base, pick);
		log_error("%s: --time is for recordings; a history takes --from and --to", path);
		return -EINVAL;
	}
	if (pick->from_ns || pick->to_ns) {
		log_error("%s: --from and --to are for a history (offwind daemon)", path);
		return -EINVAL;
	}
	if (input_is_recording(path)) {
		int err = unwind_into(path, pick, stacks, base, store);

		partly = partly || err > 0;
		return err > 0 ? 0 : err;
	}
	if (pick_any(pick)) {
		log_error(
			"%s: --time is for recordings (perf.data, .owc): a profile's samples have "
			"no times",
			path);
		return -EINVAL;
	}
	return stacks_load(stacks, path, base);
}

int given_code(int err)
{
	return err ? CMD_FAILED : partly ? CMD_PARTLY : CMD_DONE;
}

char *given_history(void)
{
	char *db = NULL, *path = NULL;

	if (!db_path(NULL, &db))
		path = history_path(db);
	free(db);
	if (path && access(path, R_OK)) {
		log_error("%s: %s; offwind daemon makes it", path, strerror(errno));
		free(path);
		path = NULL;
	}
	return path;
}

static char *default_file(const char *command)
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

char *given_last(const char *command, const struct pick *pick, char **owned)
{
	if (!pick->from_ns && !pick->to_ns)
		return default_file(command);
	*owned = given_history();
	return *owned;
}
