/*
 * agent/source/live_bpf.h: the capture program of bpf/capture.bpf.c: loading,
 * attaching, its counters, and the table of wanted processes.
 */
#ifndef AGENT_SOURCE_LIVE_BPF_H
#define AGENT_SOURCE_LIVE_BPF_H

#include "schema/capture.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LIVE_ERROR_SIZE 512 /* as source.error */

struct live_bpf_options {
	uint32_t stack_max;  /* 0: CAPTURE_STACK_DEFAULT; at most CAPTURE_STACK_LIMIT */
	uint32_t ring_bytes; /* 0: 16 MiB; rounded up to a power of two */
	bool filter;	     /* only processes added with live_bpf_want, and their children */
};

struct live_bpf;

/* Loads, attaches nothing yet.  On failure error says which step failed, why and what helps. */
int live_bpf_open(const struct live_bpf_options *options, struct live_bpf **out, char *error);
void live_bpf_free(struct live_bpf *bpf); /* detaches; NULL is fine */

/* From here on fd, a perf event, runs the program and is enabled; bpf owns fd, also on failure. */
int live_bpf_attach(struct live_bpf *bpf, int fd, char *error);

/* With filter, before the first live_bpf_want: children of wanted processes become wanted. */
int live_bpf_follow(struct live_bpf *bpf, char *error);
int live_bpf_want(struct live_bpf *bpf, uint32_t pid);
bool live_bpf_any_alive(struct live_bpf *bpf); /* of the wanted */

int live_bpf_ring_fd(const struct live_bpf *bpf);
size_t live_bpf_ring_size(const struct live_bpf *bpf);
int live_bpf_program_fd(const struct live_bpf *bpf); /* for the kernel's statistics */
int live_bpf_counters(const struct live_bpf *bpf, struct capture_counters *sum);

/* What errno value a step gave means for a user; "" where nothing can be said.  Static. */
const char *live_hint(int err);

#endif
