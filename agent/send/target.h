/*
 * agent/send/target.h: a system to which windows are sent, and what a kind of such systems does. To add
 * a kind, write a struct target_kind in a file of its own, and add it to the list in target.c.
 */
#ifndef AGENT_SEND_TARGET_H
#define AGENT_SEND_TARGET_H

#include "agent/history/history.h"
#include "agent/role/sending.h"

#include <stdbool.h>
#include <stdint.h>

enum { TARGET_HEADERS = 16 };

/* What the settings say. All texts are owned. */
struct target {
	char name
		[SENDING_NAME]; /* of the section, "otlp" or "otlp east": for messages and metrics */
	const struct target_kind *kind;
	char *url;		       /* "https://collector:4318" */
	char *headers[TARGET_HEADERS]; /* "NAME: VALUE", beside those of the kind */
	size_t n_headers;
	char *token;	    /* for Authorization: Bearer; NULL: none */
	char *ca_file;	    /* certificates to trust; NULL: those of the system */
	char *version;	    /* of the development of OTLP profiles; NULL: the one that is written */
	char *host;	    /* under which the samples are stored; NULL: the machine's name */
	uint32_t timeout_s; /* a request with its reply may take so long */
	uint32_t slot_s;    /* windows of so long become one batch; 0: the kind's default */
	bool grpc;
	bool debuginfo; /* send files with symbols, too */
	bool htlhash;	/* read programs, for hashes of their ends */
	bool times;	/* each sample has its time, also if the kind does not need it */
	bool no_names;	/* send addresses without their names, if these can be found elsewhere */
};

struct attribute_names; /* agent/send/attributes.h */

/* A window of the history. */
struct send_window {
	int64_t id;		   /* of the row: with the host's name, unique */
	uint64_t start_ns, end_ns; /* since 1970 */
	const char *host;
	/*
	 * Its samples with all their labels, summed by thread and stack; with a label HISTORY_TIME_LABEL if
	 * the kind wants times. Borrowed until send returns.
	 */
	const struct stacks *stacks;
	/* Names of labels that are of threads, not of processes; NULL: none are known. Borrowed until send returns. */
	const struct attribute_names *of_threads;
	/* What became of all that fired in it, if the kind has batches. Borrowed until send returns. */
	const struct history_counter *counters;
	size_t n_counters;
};

enum send_outcome {
	SEND_DONE,    /* the receiver has the window */
	SEND_AGAIN,   /* for the reason in report.fault, it must be sent again later */
	SEND_REFUSED, /* it will never be taken */
	SEND_HELD,    /* it is in a batch, which a later call settles (report.settled) */
};

/* What becomes of a window. */
struct send_report {
	enum sending_fault fault;
	uint64_t
		after_ns; /* with SEND_AGAIN: the receiver asks to wait so long; 0: it does not say */
	uint64_t n_bytes;
	uint64_t dropped[SENDING_DROP_N]; /* samples that are not sent, of a window that is */
	bool settled;	/* the receiver has all windows that were held before this call */
	bool rewind;	/* with SEND_AGAIN: those that are held are lost, and must come again */
	char text[256]; /* what is wrong, or what the receiver says; "": nothing */
};

struct target_kind {
	const char *name;
	bool times; /* each sample has its time; else samples of a thread and stack are summed */
	uint64_t age_ns; /* receivers refuse windows that ended longer ago; 0: they do not */
	/* The settings beside those that all targets have. */
	bool has_grpc, has_version, has_times, has_debuginfo, has_htlhash, has_batches;
	/*
	 * Begin, in the thread that sends, before the process gives up its rights. Return 0 or a negative
	 * code after reporting it. The target is borrowed.
	 */
	int (*open)(const struct target *target, void **out);
	/*
	 * Send one window, and wait for the reply, but not for ever. A window that was sent may come again:
	 * when the reply was lost, or the process died before it was noted.
	 */
	enum send_outcome (*send)(void *opened, const struct send_window *window,
				  struct send_report *report);
	void (*close)(void *opened); /* NULL is fine */
};

/* Return the kind with that name; NULL: there is none. */
const struct target_kind *target_kind_find(const char *name);
/* Write all their names, separated by commas. */
void target_kind_names(char *out, size_t size);
/* Copy a target. -ENOMEM. Call target_fini in each case. */
int target_copy(const struct target *from, struct target *to);
void target_fini(struct target *target);

#endif
