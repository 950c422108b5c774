/*
 * unwinder/remote/target.h: a target as cursors use it: its callbacks, its rule cache, and what it
 * registered about generated code. Used by target.c and by the cursor's files (cursor*.c).
 */
#ifndef UNWINDER_REMOTE_TARGET_H
#define UNWINDER_REMOTE_TARGET_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unwinder/cursor.h"
#include "unwinder/rule.h"

struct uw_arch;
struct uw_target_slot;

/* A target; its members are not for the library's users. */
struct uw_target {
	const struct uw_arch *arch;
	struct uw_accessors accessors;
	struct uw_space *space;
	struct uw_worker *worker; /* for walks in space; NULL without a space */
	uint64_t code_mask;
	pthread_mutex_t lock; /* protects all fields below, the space and the worker */
	enum uw_caching policy;
	struct uw_target_slot *slots; /* allocated on first use; owned */
	size_t n_slots;
	uint32_t age;
	uint32_t
		flushes; /* of all or a range; a rule that was looked up before one is not stored */
	bool has_dyn;
	uint64_t dyn;
	struct uw_dynamic *dynamic; /* the list's contents; counted; NULL: none */
};

/* Return the target's memory accessor, or one that always fails. */
uw_read_fn uw_target_reader(const struct uw_target *t);

/*
 * Read the target's list of code generators if it has changed. This is done when a cursor is
 * initialized: code that is registered later is not on the cursor's stack. A target with an
 * address space has no such list here; the space knows what was registered
 * (uw_stepper_dynamic).
 */
void uw_target_poll(struct uw_target *t, void *ctx);

/*
 * Return a counted reference to the code that the target registered, or NULL. The caller puts
 * it back.
 */
struct uw_dynamic *uw_target_dynamic(struct uw_target *t);

/* Look up a rule in the cache. Return whether it was found. */
bool uw_target_rule(struct uw_target *t, uint64_t key, struct uw_rule *rule, uint64_t *bias);

/*
 * Store a rule in the cache. flushes is the target's number of flushes before the rule was looked
 * up: nothing is stored if there was one since then. Without memory for the cache, nothing is
 * stored.
 */
void uw_target_keep_rule(struct uw_target *t, uint64_t key, const struct uw_rule *rule,
			 uint64_t bias, uint32_t flushes);

#endif
