/* agent/send/otlp_encode.h: samples of a window as a request of OTLP profiles (proto/otlp.proto). */
#ifndef AGENT_SEND_OTLP_ENCODE_H
#define AGENT_SEND_OTLP_ENCODE_H

#include "agent/send/htlhash.h"
#include "agent/send/target.h"

#include <stddef.h>
#include <stdint.h>

/* What a request has at most; beyond, it is divided. It is what receivers of gRPC take by default. */
#define OTLP_BYTES_MAX ((size_t)4 << 20)

struct otlp_part { /* what is encoded; all borrowed */
	const struct send_window *window;
	size_t from, to;	  /* its samples */
	struct htlhashes *hashes; /* NULL: mappings do not get these */
};

/*
 * Encode the samples [from, to) of a window: a resource for each process and container, and in it a profile
 * for each sample type. The same samples give the same bytes. Return 0 and the message, which
 * the caller frees, and how many profiles it has; -EFBIG: it has more than OTLP_BYTES_MAX bytes; -ENOMEM.
 */
int otlp_encode(const struct otlp_part *part, uint8_t **bytes, size_t *size, size_t *n_profiles);

#endif
