/* agent/log.c: messages on standard error, warnings limited for each format string. */
#include "agent/log.h"

#include "agent/clock.h"
#include "agent/sanitize.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PERIOD_NS UINT64_C(60000000000)

enum {
	LINES = 10,    /* warnings of one format that are printed in PERIOD_NS */
	N_CAUSES = 64, /* more than the program has warnings */
	LINE_MAX_SIZE = 2048,
};

/*
 * A warning, identified by the address of its format string: that is a literal, so it stays valid
 * and at its place.
 */
struct cause {
	const char *format;
	/* start of the current period, CLOCK_MONOTONIC */
	uint64_t since_ns;
	unsigned int n_printed;
	uint64_t n_left_out;
	char last[256]; /* the last suppressed warning */
};

/*
 * The only global state of the agent's messages: there is one standard error and one set of flags.
 */
static struct {
	pthread_mutex_t lock; /* protects all below; the thread that writes profiles also warns */
	bool quiet, verbose;
	bool has_error;	   /* an error was reported */
	bool progress;	   /* a progress line is shown and must be erased first */
	bool reader_left;  /* standard output's reader has closed it */
	const char *place; /* before each message; NULL: none */
	struct cause causes[N_CAUSES];
} voice = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void lock(void)
{
	(void)pthread_mutex_lock(&voice.lock);
}

static void unlock(void)
{
	(void)pthread_mutex_unlock(&voice.lock);
}

static void wipe_progress(void)
{
	if (voice.progress)
		(void)fputs("\r\033[K", stderr);
	voice.progress = false;
}

/*
 * Print one line. Control characters are replaced, so that the name of a file, function or program
 * cannot break the line or control the terminal. voice.lock is held.
 */
static void print(const char *kind, const char *line)
{
	char sanitized[3 * LINE_MAX_SIZE], place[LINE_MAX_SIZE];

	(void)sanitize_text(line, "", '?', sanitized, sizeof(sanitized));
	(void)sanitize_text(voice.place ? voice.place : "", "", '?', place, sizeof(place));
	wipe_progress();
	(void)fprintf(stderr, "offwind: %s%s%s\n", kind, place, sanitized);
}

/*
 * Return the entry for format; a new one if it has none yet, NULL if the table is full. Formats
 * are compared by address.
 */
static struct cause *find_cause(const char *format)
{
	for (size_t i = 0; i < N_CAUSES; i++) {
		struct cause *c = &voice.causes[i];

		if (!c->format)
			*c = (struct cause){ .format = format, .since_ns = now_ns() };
		if (c->format == format)
			return c;
	}
	return NULL;
}

/* Report how many warnings were suppressed in this period, and begin the next one. */
static void settle(struct cause *c)
{
	char line[LINE_MAX_SIZE];

	if (c->n_left_out) {
		(void)snprintf(
			line, sizeof(line),
			"%llu more like this %s left out (--verbose shows all), the last was: %s",
			(unsigned long long)c->n_left_out, c->n_left_out == 1 ? "was" : "were",
			c->last);
		print("warning: ", line);
	}
	c->n_left_out = 0;
	c->n_printed = 0;
	c->since_ns = now_ns();
}

/* Print a warning or, if its period's limit is reached, only count it. voice.lock is held. */
static void warn(const char *format, const char *line)
{
	struct cause *c = find_cause(format);

	if (c && now_ns() - c->since_ns >= PERIOD_NS)
		settle(c);
	if (c && c->n_printed >= LINES && !voice.verbose) {
		c->n_left_out++;
		(void)snprintf(c->last, sizeof(c->last), "%.*s", (int)sizeof(c->last) - 1, line);
		return;
	}
	if (c)
		c->n_printed++;
	print("warning: ", line);
}

#define SAY(kind)                                                  \
	do {                                                       \
		char line[LINE_MAX_SIZE];                          \
		va_list args;                                      \
		va_start(args, format);                            \
		(void)vsnprintf(line, sizeof(line), format, args); \
		va_end(args);                                      \
		print(kind, line);                                 \
	} while (0)

bool log_has_error(void)
{
	bool has;

	lock();
	has = voice.has_error;
	unlock();
	return has;
}

void log_error(const char *format, ...)
{
	lock();
	voice.has_error = true;
	SAY("");
	unlock();
}

void log_warning(const char *format, ...)
{
	char line[LINE_MAX_SIZE];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	lock();
	warn(format, line);
	unlock();
}

void log_info(const char *format, ...)
{
	lock();
	if (!voice.quiet)
		SAY("");
	unlock();
}

void log_debug(const char *format, ...)
{
	lock();
	if (voice.verbose)
		SAY("debug: ");
	unlock();
}

void log_unwritable(const char *path, int err)
{
	bool standard = !path || !strcmp(path, "-");

	if (standard && err == -EPIPE) {
		lock();
		voice.reader_left = true;
		unlock();
	} else {
		log_error("%s: cannot be written: %s", standard ? "standard output" : path,
			  strerror(-err));
	}
}

bool log_reader_left(void)
{
	bool left;

	lock();
	left = voice.reader_left;
	unlock();
	return left;
}

void log_end(void)
{
	lock();
	for (size_t i = 0; i < N_CAUSES; i++)
		if (voice.causes[i].format)
			settle(&voice.causes[i]);
	wipe_progress();
	unlock();
}

void log_place(const char *place)
{
	lock();
	voice.place = place;
	unlock();
}

void log_quiet(bool quiet)
{
	lock();
	voice.quiet = quiet;
	unlock();
}

void log_verbose(bool verbose)
{
	lock();
	voice.verbose = verbose;
	unlock();
}

bool log_is_verbose(void)
{
	bool verbose;

	lock();
	verbose = voice.verbose;
	unlock();
	return verbose;
}

bool log_is_quiet(void)
{
	bool verbose;

	lock();
	verbose = voice.quiet;
	unlock();
	return verbose;
}

void log_progress(const char *format, ...)
{
	char line[256];
	va_list args;

	if (!isatty(STDERR_FILENO))
		return;
	va_start(args, format);
	(void)vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	lock();
	if (!voice.quiet) {
		(void)fprintf(stderr, "\r\033[K%s", line);
		(void)fflush(stderr);
		voice.progress = true;
	}
	unlock();
}

void log_progress_done(void)
{
	lock();
	wipe_progress();
	unlock();
}
