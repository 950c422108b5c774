/* agent/cli/pick.c: parses and applies the conditions for samples. */
#include "agent/cli/pick.h"

#include "agent/cli/input.h"
#include "agent/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Parse the bound at text, up to the comma, the dash or the end, to which *end then points. Return
 * false if it is not valid.
 */
static bool take_bound(const char *text, struct pick_bound *out, const char **end)
{
	bool offset = *text == '+';
	const char *digits = text + offset;
	size_t n = strspn(digits, "0123456789.");
	char *stop;
	double value;

	if (!n && !offset) {
		*out = (struct pick_bound){ .unit = PICK_OPEN };
		*end = text;
		return true;
	}
	value = strtod(digits, &stop);
	if (!n || stop != digits + n || value > 1e10)
		return false;
	if (*stop == '%' && !offset) {
		*out = (struct pick_bound){ .unit = PICK_FRACTION, .fraction = value / 100 };
		*end = stop + 1;
		return value <= 100;
	}
	*out = (struct pick_bound){ .unit = offset ? PICK_OFFSET : PICK_CLOCK,
				    .ns = (uint64_t)(value * 1e9 + 0.5) };
	*end = stop;
	return true;
}

int pick_time(void *to, const char *option, char *text)
{
	struct pick *pick = to;
	const char *at;

	if (*text && take_bound(text, &pick->begin, &at) &&
	    (*at == ',' || (*at == '-' && pick->begin.unit == PICK_FRACTION)) &&
	    take_bound(at + 1, &pick->end, &at) && !*at)
		return 0;
	log_error("%s takes BEGIN,END in seconds on the recording's clock (12.5,13), since its "
		  "first sample (+0.5,+1), or in parts of it (10%%-20%%), not '%s'",
		  option, text);
	return -EINVAL;
}

static bool has_slice(const struct pick *pick)
{
	return pick->begin.unit != PICK_OPEN || pick->end.unit != PICK_OPEN;
}

int pick_check_range(const struct pick *pick)
{
	if (!pick->from_ns || !pick->to_ns || pick->to_ns > pick->from_ns)
		return 0;
	log_error("--to is not after --from");
	return -EINVAL;
}

bool pick_any(const struct pick *pick)
{
	return has_slice(pick) || pick->pids || pick->tids || pick->comms;
}

/*
 * Find the times of the first and of the last sample. Return false if there is no sample, or none
 * has a time.
 */
static bool find_times(struct source *source, uint64_t *first, uint64_t *last)
{
	struct event event;
	bool any = false;
	int rc;

	/* If the input is damaged, unwinding reports it later. */
	while ((rc = source_next(source, &event, -1)) == 1 || rc == -EAGAIN) {
		if (rc != 1 || event.type != EVENT_SAMPLE)
			continue;
		if (!any)
			*first = event.time_ns;
		*last = event.time_ns;
		any = true;
	}
	return any && *last;
}

/*
 * Return a bound as a time on the recording's clock. open is the value of a bound that was not
 * given.
 */
static uint64_t bound_ns(const struct pick_bound *bound, uint64_t open, uint64_t first,
			 uint64_t last)
{
	switch (bound->unit) {
	case PICK_CLOCK:
		return bound->ns;
	case PICK_OFFSET:
		return first + bound->ns;
	case PICK_FRACTION:
		return first + (uint64_t)((double)(last - first) * bound->fraction);
	case PICK_OPEN:
	default:
		return open;
	}
}

/* Convert the bounds of the slice to times of the recording, so that pick_wants only compares. */
int pick_begin(struct pick *pick, const char *path)
{
	uint64_t first = 0, last = 0;
	struct source *source = NULL;
	int err;

	if (!has_slice(pick))
		return 0;
	if (pick->begin.unit > PICK_CLOCK || pick->end.unit > PICK_CLOCK) {
		if (!strcmp(path, "-")) {
			log_error("--time: it is not known when standard input begins and ends; "
				  "give seconds on its clock, or a file");
			return -EINVAL;
		}
		err = input_open(path, &source);
		if (err)
			return err;
		if (!find_times(source, &first, &last)) {
			log_error("%s: --time: its samples have no times", path);
			err = -EINVAL;
		}
		source_close(source);
		if (err)
			return err;
	}
	pick->begin_ns = bound_ns(&pick->begin, 0, first, last);
	/* end_ns is excluded, but a slice up to 100 % contains the last sample. */
	pick->end_ns = pick->end.unit == PICK_FRACTION && pick->end.fraction >= 1
			       ? UINT64_MAX
			       : bound_ns(&pick->end, UINT64_MAX, first, last);
	return 0;
}

/* Return true if text is one of the comma-separated words. */
static bool has_word(const char *words, const char *text)
{
	size_t size = strlen(text);

	for (const char *at = words;; at++) {
		size_t n = strcspn(at, ",");

		if (n == size && !strncmp(at, text, n))
			return true;
		at += n;
		if (!*at)
			return false;
	}
}

static bool has_number(const char *words, uint32_t number)
{
	char text[16];

	(void)snprintf(text, sizeof(text), "%" PRIu32, number);
	return has_word(words, text);
}

bool pick_wants(const struct pick *pick, const struct event *event, struct pipeline *pipeline)
{
	const char *comm, *process;

	if (event->type != EVENT_SAMPLE && event->type != EVENT_LOST)
		return true;
	if (has_slice(pick) && (event->time_ns < pick->begin_ns || event->time_ns >= pick->end_ns))
		return false;
	if (event->type == EVENT_LOST) /* it is not known to which threads lost samples belong */
		return true;
	if ((pick->pids && !has_number(pick->pids, event->pid)) ||
	    (pick->tids && !has_number(pick->tids, event->tid)))
		return false;
	if (!pick->comms)
		return true;
	return !pipeline_names(pipeline, event, &comm, &process) &&
	       ((comm && has_word(pick->comms, comm)) ||
		(process && has_word(pick->comms, process)));
}
