#include "agent/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

/* The program's voice is the one thing that is global: one standard error, one set of flags. */
static struct {
	bool quiet, verbose;
	bool progress; /* a progress line is standing and must be wiped first */
} voice;

static void say(const char *kind, const char *format, va_list args)
{
	char line[2048];

	(void)vsnprintf(line, sizeof(line), format, args);
	log_progress_done();
	(void)fprintf(stderr, "offwind: %s%s\n", kind, line);
}

#define SAY(kind)                        \
	do {                             \
		va_list args;            \
		va_start(args, format);  \
		say(kind, format, args); \
		va_end(args);            \
	} while (0)

void log_error(const char *format, ...)
{
	SAY("");
}

void log_warning(const char *format, ...)
{
	SAY("warning: ");
}

void log_info(const char *format, ...)
{
	if (!voice.quiet)
		SAY("");
}

void log_debug(const char *format, ...)
{
	if (voice.verbose)
		SAY("debug: ");
}

void log_quiet(bool quiet)
{
	voice.quiet = quiet;
}

void log_verbose(bool verbose)
{
	voice.verbose = verbose;
}

void log_progress(const char *format, ...)
{
	char line[256];
	va_list args;

	if (voice.quiet || !isatty(STDERR_FILENO))
		return;
	va_start(args, format);
	(void)vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	(void)fprintf(stderr, "\r\033[K%s", line);
	(void)fflush(stderr);
	voice.progress = true;
}

void log_progress_done(void)
{
	if (!voice.progress)
		return;
	(void)fputs("\r\033[K", stderr);
	voice.progress = false;
}
