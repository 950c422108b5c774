/*
 * agent/process/module_generated.c: stores what processes registered about their generated code.
 */
#include "agent/process/modules_internal.h"

#include "agent/log.h"
#include "symbolizer/symbolizer.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

/*
 * Protects known.generated: another thread looks up names for a finished profile while the next
 * profile is being captured.
 */
static pthread_mutex_t generated_lock = PTHREAD_MUTEX_INITIALIZER;

/*
 * Return the slot that a new registration replaces. A registration that only has names contains all
 * names of the earlier one, so it replaces that one. Otherwise the oldest is replaced.
 */
static size_t place_for(const struct known *k, const struct uw_dynamic *dynamic)
{
	for (size_t i = 0; i < GENERATED_MAX && uw_dynamic_is_names(dynamic); i++)
		if (k->generated[i] && uw_dynamic_is_names(k->generated[i]))
			return i;
	return GENERATED_MAX - 1;
}

/* Put the newest registration first: module_generated_name takes the first that has a name. */
void module_add_generated(struct module *module, struct uw_dynamic *dynamic)
{
	const char *fault = uw_dynamic_fault(dynamic);
	struct known *k = known_of(module);
	size_t at;

	if (k->generated[0] == dynamic)
		return;
	if (fault && !k->said_fault)
		log_warning("process %" PRIu32
			    ": a part of what it tells about the code that it generated "
			    "is left out: %s",
			    k->module.pid, fault);
	k->said_fault |= fault != NULL;
	(void)pthread_mutex_lock(&generated_lock);
	at = place_for(k, dynamic);
	uw_dynamic_put(k->generated[at]);
	memmove(k->generated + 1, k->generated, at * sizeof(*k->generated));
	k->generated[0] = uw_dynamic_get(dynamic);
	(void)pthread_mutex_unlock(&generated_lock);
}

void modules_drop_generated(struct known *k)
{
	(void)pthread_mutex_lock(&generated_lock);
	for (size_t i = 0; i < GENERATED_MAX; i++) {
		uw_dynamic_put(k->generated[i]);
		k->generated[i] = NULL;
	}
	(void)pthread_mutex_unlock(&generated_lock);
}

char *module_generated_name(const struct module *module, uint64_t addr, uint64_t *start)
{
	const struct known *k = known_of(module);
	struct uw_dynamic_proc proc;
	char *name = NULL;

	(void)pthread_mutex_lock(&generated_lock);
	for (size_t i = 0; i < GENERATED_MAX && k->generated[i] && !name; i++) {
		if (uw_dynamic_proc(k->generated[i], addr, &proc))
			continue;
		if (proc.name)
			name = sym_sanitize(proc.name, strlen(proc.name), 4096);
		if (name || !*start)
			*start = proc.start;
	}
	(void)pthread_mutex_unlock(&generated_lock);
	return name;
}
