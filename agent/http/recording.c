/* agent/http/recording.c: asks the supervisor for recordings, and hears of their ends. */
#include "agent/http/recording.h"

#include "agent/clock.h"
#include "agent/role/channel.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

const char *recording_result_name(enum recording_result result)
{
	static const char *const names[RECORDING_RESULTS] = { [RECORDING_DONE] = "done",
							      [RECORDING_FAILED] = "failed",
							      [RECORDING_LEFT] = "left",
							      [RECORDING_REFUSED] = "refused" };

	return names[result];
}

/* ---- the server -------------------------------------------------------------------------- */

/* Take a text into recording->text. */
static void take_text(struct message *m, struct recording *r)
{
	const char *text = message_take_text(m);

	(void)snprintf(r->text, sizeof(r->text), "%s", text ? text : "");
}

int recording_begin(struct channels *supervisor, const struct recording_wish *wish,
		    struct recording *out)
{
	struct message *m = malloc(sizeof(*m));
	int err;

	*out = (struct recording)RECORDING_NONE;
	if (!m)
		return -ENOMEM;
	message_init(m);
	message_number(m, wish->seconds);
	message_number(m, wish->hz);
	message_number(m, wish->n_words);
	for (size_t i = 0; i < wish->n_words; i++) {
		message_text(m, wish->words[i].name);
		message_text(m, wish->words[i].value);
	}
	err = channels_call(supervisor, m, m);
	if (!err) {
		err = (int)(int64_t)message_take_number(m);
		take_text(m, out);
		if (!err) {
			out->profile = message_take_fd(m);
			out->end = message_take_fd(m);
			out->until_ns = now_ns() +
					(wish->seconds + RECORDING_GRACE_S) * UINT64_C(1000000000);
			err = m->err;
		}
		message_fini(m);
	}
	free(m);
	if (err)
		recording_end(out);
	return err;
}

bool recording_is_over(struct recording *r, uint64_t now)
{
	struct pollfd end = { .fd = r->end, .events = POLLIN };
	struct message *m;

	if (r->over || r->end < 0)
		return true;
	if (poll(&end, 1, 0) != 1 && now < r->until_ns)
		return false;
	r->over = true;
	r->code = -1;
	m = end.revents & POLLIN ? malloc(sizeof(*m)) : NULL;
	if (m && !message_receive(r->end, m)) {
		r->code = (int)(int64_t)message_take_number(m);
		take_text(m, r);
		if (m->err)
			r->code = -1;
		message_fini(m);
	}
	free(m);
	return true;
}

static void close_one(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
}

void recording_end(struct recording *r)
{
	close_one(&r->profile);
	close_one(&r->end);
}

/* ---- the supervisor ---------------------------------------------------------------------- */

int recording_take(struct message *m, struct recording_wish *out)
{
	uint64_t seconds = message_take_number(m), hz = message_take_number(m),
		 n = message_take_number(m);

	if (m->err || !seconds || seconds > RECORDING_SECONDS_MAX || !hz || hz > RECORDING_HZ_MAX ||
	    n > RECORDING_WORDS)
		return -EBADMSG;
	*out = (struct recording_wish){ .seconds = (uint32_t)seconds, .hz = (uint32_t)hz };
	for (; out->n_words < n; out->n_words++) {
		struct recording_word *w = &out->words[out->n_words];

		w->name = message_take_text(m);
		w->value = message_take_text(m);
		if (!w->name)
			return -EBADMSG;
	}
	return m->err ? -EBADMSG : 0;
}

void recording_reply(struct message *reply, int err, const char *text, int profile, int end)
{
	message_number(reply, (uint64_t)(int64_t)err);
	message_text(reply, text);
	message_fd(reply, profile);
	message_fd(reply, end);
}

void recording_say_end(int end, int code, const char *text)
{
	struct message *m = malloc(sizeof(*m));

	if (!m)
		return; /* that the socket is closed says it, too */
	message_init(m);
	message_number(m, (uint64_t)(int64_t)code);
	message_text(m, text);
	(void)message_send(end, m); /* there is room for one */
	free(m);
}
