/*
 * tests/fuzz/fuzz_options.c: fuzzes command lines. Byte 0 chooses the command, the rest are its
 * words, each ended by a newline. They are accepted, or refused with a message.
 */
#include "agent/cli/option.h"
#include "agent/cmd/record/record_options.h"
#include "agent/cmd/report_options.h"
#include "agent/live/system/decode.h"
#include "agent/live/system/hint.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define WORDS_MAX 24

static FILE *messages;
static char *said;
static size_t n_said;

/* What is printed is looked at here; libFuzzer has its own way to standard error. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	messages = open_memstream(&said, &n_said);
	stdout = fopen("/dev/null", "we");
	if (!messages || !stdout)
		abort();
	stderr = messages;
	return 0;
}

/* Parse the events that were named. */
static int look_at_events(const struct record_options *o)
{
	static const struct live_events none;
	struct live_events events = none;
	char error[LIVE_ERROR_SIZE] = "";
	int err = live_events_of(&o->live, &events, error);

	if (err && !error[0])
		abort();
	for (size_t i = 0; !err && i < events.n; i++)
		if (!memchr(events.events[i].info.name, 0, sizeof(events.events[i].info.name)))
			abort();
	if (!err)
		live_events_fini(&events);
	return 0;
}

static int record(int n, char **words)
{
	struct record_options o = { .live = { .frequency_hz = 99, .stack_max = 256 << 10 },
				    .format = FORMAT_N };
	int err;

	err = record_options_parse(n, words, &o);
	if (!err)
		err = look_at_events(&o);
	record_options_fini(&o);
	return err;
}

static int report(int n, char **words)
{
	struct report_options o = { .top = 30, .least = 0.5, .format = FORMAT_N };
	int err;

	err = report_options_parse(n, words, &o);
	selection_fini(&o.selection);
	return err;
}

/*
 * Return whether one repetition follows another. The C library's regcomp takes memory that doubles
 * with each; who gives such an expression uses up memory of his own.
 */
static bool is_costly(const uint8_t *data, size_t size)
{
	for (size_t i = 1; i < size; i++)
		if (data[i] && data[i - 1] && strchr("*+?{}", data[i]) &&
		    strchr("*+?{}", data[i - 1]))
			return true;
	return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *words[WORDS_MAX + 1], *text, *at;
	int n = 1, err;

	if (!size || is_costly(data, size))
		return 0;
	text = malloc(size);
	if (!text)
		return 0;
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	words[0] = (char[]){ "command" };
	for (at = text; at && *at && n < WORDS_MAX;) {
		words[n++] = at;
		at = strchr(at, '\n');
		if (at)
			*at++ = '\0';
	}
	words[n] = NULL;
	optind = 0;
	rewind(messages);
	err = data[0] & 1 ? record(n, words) : report(n, words);
	(void)fflush(messages);
	if (err < 0 && !ftell(messages))
		abort();
	free(text);
	return 0;
}
