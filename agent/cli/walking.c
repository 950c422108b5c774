/* agent/cli/walking.c: the options of the commands that walk stacks. */
#include "agent/cli/walking.h"

#include "agent/cli/input.h"
#include "agent/log.h"
#include "agent/role/files.h"
#include "agent/store/store.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

int walking_max_frames(void *to, const char *option, char *text)
{
	struct walking *walking = to;
	uint64_t number;

	if (input_number(option, text, 1, walking->frames_limit, &number))
		return -EINVAL;
	walking->pipeline.max_frames = (size_t)number;
	return 0;
}

int walking_pid(void *to, const char *option, char *text)
{
	struct walking *walking = to;
	uint64_t number;

	if (input_number(option, text, 1, INT32_MAX, &number))
		return -EINVAL;
	walking->pid = (uint32_t)number;
	return 0;
}

int walking_verified(const struct walking *walking, const struct pipeline_reuse *reuse)
{
	if (!walking->pipeline.verify_reuse)
		return 0;
	log_info("verified %" PRIu64 " samples: frames walked %" PRIu64 ", taken over %" PRIu64
		 "; samples that differ %" PRIu64,
		 reuse->n_verified, reuse->n_walked, reuse->n_taken, reuse->n_differing);
	if (!reuse->n_differing)
		return 0;
	log_error("%" PRIu64 " stacks differ where frames were taken over", reuse->n_differing);
	return -EBADMSG;
}

void walking_open_store(struct walking *walking)
{
	if (!walking->no_cache)
		(void)store_open(walking->db, &walking->pipeline.store);
	/* A recording inserts tables while it walks. */
	if (walking->pipeline.live || walking->pid)
		store_read_beside(walking->pipeline.store);
	if (files_are_asked_for())
		store_open_files(walking->pipeline.store);
}

int walking_open_process(struct walking *walking)
{
	char error[512] = "";
	int err = walking->pid ? source_process_open(walking->pid, &walking->process, error) : 0;

	if (err)
		log_error("%s", error);
	return err;
}

int walking_open(struct walking *walking, const char *path, struct source **out)
{
	struct pipeline_options *pipeline = &walking->pipeline;
	struct files_facts facts;
	int err;

	pipeline->until_ns = 0;
	pipeline->live = pipeline->once = !path;
	pipeline->beside = NULL;
	if (!path) {
		*out = walking->process;
		walking->process = NULL;
		return 0;
	}
	err = input_open(path, out);
	if (err)
		return err;
	pipeline->beside = input_beside(*out, path);
	/*
	 * A file that was changed after the recording ended is not what was recorded. The
	 * recording's modification time is taken as its end.
	 */
	if (!pipeline->beside && strcmp(path, "-") != 0 && !files_stat(path, &facts))
		pipeline->until_ns = (uint64_t)facts.mtime_s * 1000000000;
	return 0;
}
