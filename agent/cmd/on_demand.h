/*
 * agent/cmd/on_demand.h: in the daemon's supervisor: runs offwind record for requests
 * (agent/http/recording.h), beside the recording of the daemon, which goes on as before.
 */
#ifndef AGENT_CMD_ON_DEMAND_H
#define AGENT_CMD_ON_DEMAND_H

#include <stddef.h>

struct channels;
struct cost;
struct recordings;

/* What the settings allow requests to record. */
enum on_demand_mode {
	ON_DEMAND_TIME, /* CPU time and waiting; the default */
	ON_DEMAND_NO,	/* nothing */
	ON_DEMAND_ANY,	/* all that offwind record can */
};

struct on_demand_settings { /* borrowed; they hold until the next call */
	enum on_demand_mode mode;
	const char *db;	    /* the store */
	char *const *words; /* options of offwind record by which the daemon records, "--unit=a" */
	size_t n_words;
	struct cost *cost; /* NULL: it is not measured */
};

struct on_demand {
	/* Called with ctx for each request. */
	void (*settings)(void *ctx, struct on_demand_settings *out);
	void *ctx;
	struct recordings *counts; /* shared with the server */
	/* The rest is on_demand.c's. */
	struct channels *channels; /* to the server that runs now; NULL: none */
	int poll;		   /* epoll(7) of all that may come; -1: none */
	struct on_demand_one *all; /* RECORDINGS_MAX */
};

/* Before the server's process is forked, each time: end what the last one began, and make a channel. */
int on_demand_begin(struct on_demand *o);
/* After that fork, in the supervisor. */
void on_demand_began(struct on_demand *o);
/* After that fork, in the server: return its end of the channel, which is the caller's; NULL: there is none. */
struct channels *on_demand_serve(struct on_demand *o);
/* In each other process that is forked: close what is the supervisor's. */
void on_demand_leave(struct on_demand *o);

/* When o->poll is readable, and about once a second: answer requests, and see which recordings ended. */
void on_demand_act(struct on_demand *o);
/* End all recordings. */
void on_demand_end(struct on_demand *o);

#endif
