/*
 * agent/http/recording.h: recordings that requests ask for. The process that serves HTTP can record nothing:
 * it asks the supervisor, which runs offwind record, and gets the file that the profile will be in, and a
 * socket by which it is told how that ended. Closing the socket ends the recording.
 */
#ifndef AGENT_HTTP_RECORDING_H
#define AGENT_HTTP_RECORDING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct channels;
struct message;

enum {
	RECORDING_SECONDS_MAX = 600,
	RECORDING_HZ_MAX = 999,
	RECORDINGS_MAX = 2, /* at the same time */
	RECORDING_WORDS = 64,
	RECORDING_ERROR = 400,
	/* How long a recording may take to begin, and to name what it has. */
	RECORDING_GRACE_S = 60,
};

/* What became of what was asked for; for metrics. */
enum recording_result {
	RECORDING_DONE,
	RECORDING_FAILED,
	RECORDING_LEFT, /* the client did not wait for it */
	RECORDING_REFUSED,
	RECORDING_RESULTS
};
const char *recording_result_name(enum recording_result result);

struct recordings { /* which the supervisor counts, and the server shows */
	_Atomic uint64_t n[RECORDING_RESULTS], running;
};

/* What is asked for. The words are options of offwind record without their dashes. */
struct recording_wish {
	uint32_t seconds, hz;
	struct recording_word {
		const char *name, *value; /* value NULL: none */
	} words[RECORDING_WORDS];
	size_t n_words;
};

struct recording {
	int profile, end; /* -1: there is none */
	bool over;
	uint64_t until_ns; /* CLOCK_MONOTONIC: it is over then, whatever happened */
	int code;	   /* once over: the exit code of offwind record; -1: it was ended */
	char text[RECORDING_ERROR]; /* what that reported */
};

#define RECORDING_NONE                    \
	{                                 \
		.profile = -1, .end = -1, \
	}

/*
 * In the server: ask for a recording, and wait until the supervisor has begun it or not. Return 0, -EPERM,
 * -EBUSY, -EINVAL or another code; out->text says why.
 */
int recording_begin(struct channels *supervisor, const struct recording_wish *wish,
		    struct recording *out);
/* Return whether it is over. */
bool recording_is_over(struct recording *recording, uint64_t now_ns);
/* End it if it is not over, and release what it has. */
void recording_end(struct recording *recording);

/*
 * In the supervisor: take a request; the texts are borrowed from the message. -EBADMSG: it is none that
 * recording_begin makes.
 */
int recording_take(struct message *request, struct recording_wish *out);
/* Write the reply; text says why err is not 0. The descriptors are borrowed. */
void recording_reply(struct message *reply, int err, const char *text, int profile, int end);
/* Say by its socket how a recording ended. Does not wait. */
void recording_say_end(int end, int code, const char *text);

#endif
