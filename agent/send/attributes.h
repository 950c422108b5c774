/*
 * agent/send/attributes.h: what the labels of samples are called elsewhere: attributes of OpenTelemetry's
 * semantic conventions, of the process or of the thread.
 */
#ifndef AGENT_SEND_ATTRIBUTES_H
#define AGENT_SEND_ATTRIBUTES_H

#include "agent/export/profile/stacks.h"

#include <stdbool.h>

/*
 * A program's process context and its threads can both have names of its own with a dot, and a label does not say which of
 * the two it is from. Names of which one process had two values within a window are those of threads. All zero: none.
 */
struct attribute_names {
	char *of_threads[64]; /* owned */
	size_t n;
};

/*
 * Add such names of a window's samples. What is beyond their number stays the process's. -ENOMEM.
 */
int attribute_names_learn(struct attribute_names *names, const struct stacks *window);
void attribute_names_fini(struct attribute_names *names);

/*
 * Return whether a label says something of the process, and not of one of its samples. of_threads: names that are known to be of
 * threads; NULL: none.
 */
bool attribute_is_of_process(const char *label, const struct attribute_names *of_threads);
/* Return the attribute's name for a label; out has room for names that are put together. */
const char *attribute_name(const char *label, char out[128]);

/*
 * Return what stands for the service of a sample: what the program says of itself (service.name), or its
 * systemd service, or the name of its program; "unknown_service" if nothing is known. It is borrowed from
 * stacks or from out.
 */
const char *attribute_service(const struct stacks *stacks, const struct stacks_sample *sample,
			      char out[256]);
/* Return the name of a sample's program, borrowed from stacks; "": not known. */
const char *attribute_program(const struct stacks *stacks, const struct stacks_sample *sample);

/*
 * Return the kind of a frame (profile.frame.type) in a module: "native", "kernel", "cpython" for interpreted
 * code, or what runs generated code of this program: "jvm" and so on.
 */
const char *attribute_frame_type(const struct stacks_module *module, const char *program);

#endif
