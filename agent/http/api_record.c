/* agent/http/api_record.c: POST /api/v1/record: a recording of its own, beside that of the daemon. */
#include "agent/http/api_internal.h"

#include "agent/http/recording.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	SECONDS_DEFAULT = 10,
	HZ_DEFAULT = 99,
	PIECE = 65536,
	WRONG_OPTION = 2, /* the exit code of offwind record */
};
#define PROFILE_MAX (UINT64_C(256) << 20)

/* The labels by which a recording can be chosen before it is made, and the options of offwind record. */
static const struct {
	const char *label, *option;
} chosen[] = {
	{ "pid", "pid" },
	{ "comm", "comm" },
	{ "user", "uid" },
	{ "cgroup", "cgroup" },
	{ "container_id", "container" },
	{ "pod", "pod" },
	{ "unit", "unit" },
	{ "slice", "unit" },
};

/* The arguments that are options of offwind record. optional: a value may be left out. */
static const struct {
	const char *argument, *option;
	bool optional;
} options[] = {
	{ "type", "sample-type", false }, { "format", "format", false },
	{ "event", "event", false },	  { "uprobe", "uprobe", false },
	{ "off-cpu", "off-cpu", true },	  { "alloc", "alloc", true },
};

/* Return the option of an argument, which may be a label; NULL: there is none. */
static const char *option_of(const struct http_argument *a, bool *optional)
{
	*optional = false;
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		if (!strcmp(options[i].argument, a->key)) {
			*optional = options[i].optional;
			return options[i].option;
		}
	for (size_t i = 0; i < sizeof(chosen) / sizeof(chosen[0]); i++)
		if (!strcmp(chosen[i].label, a->key))
			return chosen[i].option;
	return NULL;
}

/* Read the arguments. -EINVAL: one is wrong; the reply says so. */
static int take_wish(const struct http_request *r, struct http_reply *reply,
		     struct recording_wish *wish)
{
	uint64_t seconds = SECONDS_DEFAULT, hz = HZ_DEFAULT;
	enum format format;

	if (r->body_size)
		return http_fail(reply, 400,
				 "arguments are in the path: /api/v1/record?seconds=10");
	if (api_number(r, reply, "seconds", 1, RECORDING_SECONDS_MAX, &seconds) ||
	    api_number(r, reply, "freq", 1, RECORDING_HZ_MAX, &hz) || api_format(r, reply, &format))
		return -EINVAL;
	*wish = (struct recording_wish){ .seconds = (uint32_t)seconds, .hz = (uint32_t)hz };
	for (size_t i = 0; i < r->n_arguments; i++) {
		const struct http_argument *a = &r->arguments[i];
		bool optional, number = !strcmp(a->key, "seconds") || !strcmp(a->key, "freq");
		const char *option = option_of(a, &optional);

		if (number || (!*a->key && !*a->value))
			continue;
		if (!option)
			return http_fail(reply, 400,
					 "a recording is chosen by pid, comm, user, cgroup, "
					 "container_id, pod, unit or slice, not by '%.40s'",
					 a->key);
		if (!*a->value && !optional)
			return http_fail(reply, 400, "%s needs a value", a->key);
		wish->words[wish->n_words++] =
			(struct recording_word){ option, *a->value ? a->value : NULL };
	}
	return 0;
}

/* Ask for the recording. */
static void begin(struct api *api, const struct http_request *r, struct http_reply *reply)
{
	struct recording_wish wish;
	int err;

	if (take_wish(r, reply, &wish))
		return;
	if (!api->supervisor || !r->recording) {
		(void)http_fail(reply, 503, "nobody records for requests here");
		return;
	}
	err = recording_begin(api->supervisor, &wish, r->recording);
	if (!err)
		reply->status = HTTP_LATER;
	else
		(void)http_fail(reply,
				err == -EPERM	 ? 403
				: err == -EBUSY	 ? 429
				: err == -EINVAL ? 400
						 : 503,
				"%s", *r->recording->text ? r->recording->text : strerror(-err));
}

/* Copy the profile into the reply. */
static int copy(int fd, FILE *out)
{
	char *piece = malloc(PIECE);
	uint64_t at = 0;
	ssize_t n = piece ? 1 : -1;
	int err = piece ? 0 : -ENOMEM;

	while (!err && (n = pread(fd, piece, PIECE, (off_t)at)) > 0) {
		at += (uint64_t)n;
		if (at > PROFILE_MAX)
			err = -EFBIG;
		else if (fwrite(piece, 1, (size_t)n, out) != (size_t)n)
			err = -EIO;
	}
	if (!err && n < 0)
		err = -errno;
	free(piece);
	return err ? err : at ? 0 : -ENODATA;
}

/* Answer with what was recorded. */
static void finish(const struct http_request *r, struct http_reply *reply)
{
	const struct recording *recording = r->recording;
	enum format format;
	int err;

	if (recording->code == WRONG_OPTION)
		(void)http_fail(reply, 400, "%s", recording->text);
	else if (recording->code)
		(void)http_fail(reply, 422, "the recording failed: %s",
				*recording->text ? recording->text : "it was ended");
	if (reply->status != 200 || api_format(r, reply, &format))
		return;
	reply->type = api_type_of(format);
	reply->file = format_file(format);
	err = copy(recording->profile, reply->out);
	if (err == -EFBIG)
		(void)http_fail(reply, 413, "the profile has more than %d MiB: choose a lower freq",
				(int)(PROFILE_MAX >> 20));
	else if (err)
		(void)http_fail(reply, 503, "the profile cannot be read: %s", strerror(-err));
}

void api_record(struct api *api, const struct http_request *r, struct http_reply *reply)
{
	if (r->recording && r->recording->over)
		finish(r, reply);
	else
		begin(api, r, reply);
}
