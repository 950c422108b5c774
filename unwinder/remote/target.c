/*
 * unwinder/remote/target.c: targets (cursor.h): their callbacks, their rule cache, and the list of
 * their code generators.
 */
#include "unwinder/remote/target.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "unwinder/arch/arch.h"
#include "unwinder/dynamic/dynamic.h"
#include "unwinder/walk/space.h"
#include "unwinder/walk/walk.h"

/* ---- targets ------------------------------------------------------------------------ */

#define SLOTS	  4096
#define SLOTS_MAX (1u << 16)
#define SLOT_REGS 8

/* A cached rule; it has no expressions, whose bytes it would have to borrow. */
struct uw_target_slot {
	uint64_t key; /* lookup << 1 | exact */
	uint32_t age; /* the slot is valid if this equals the target's age */
	uint8_t rule[offsetof(struct uw_rule, regs)];
	struct uw_reg_rule regs[SLOT_REGS];
	uint64_t bias;
};

/* A memory accessor for targets that have none. */
static int no_memory(void *ctx, uint64_t addr, void *out, size_t size)
{
	(void)ctx;
	(void)addr;
	(void)out;
	(void)size;
	return -EFAULT;
}

/* Create a worker too if the target has a space: the walks in the space need one. */
int uw_target_new(uint16_t machine, int byte_order, const struct uw_accessors *accessors,
		  struct uw_space *space, struct uw_target **out)
{
	const struct uw_arch *arch = uw_arch_of(machine);
	struct uw_target *t;

	if (!arch || (byte_order && byte_order != LITTLE_ENDIAN))
		return -ENOTSUP;
	if (!accessors || (space && uw_space_machine(space) != machine))
		return -EINVAL;
	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	if (space && uw_worker_new(&t->worker)) {
		free(t);
		return -ENOMEM;
	}
	(void)pthread_mutex_init(&t->lock, NULL);
	t->arch = arch;
	t->accessors = *accessors;
	t->space = space;
	t->policy = UW_CACHING_GLOBAL;
	t->n_slots = SLOTS;
	t->age = 1;
	*out = t;
	return 0;
}

void uw_target_free(struct uw_target *t)
{
	if (!t)
		return;
	(void)pthread_mutex_destroy(&t->lock);
	uw_dynamic_put(t->dynamic);
	uw_worker_free(t->worker);
	free(t->slots);
	free(t);
}

struct uw_accessors *uw_target_accessors(struct uw_target *t)
{
	return &t->accessors;
}

uint16_t uw_target_machine(const struct uw_target *t)
{
	return t->arch->machine;
}

struct uw_space *uw_target_space(const struct uw_target *t)
{
	return t->space;
}

void uw_target_code_mask(struct uw_target *t, uint64_t mask)
{
	t->code_mask = mask;
}

/* ---- the cache ------------------------------------------------------------------------------ */

uw_read_fn uw_target_reader(const struct uw_target *t)
{
	return t->accessors.read_mem ? t->accessors.read_mem : no_memory;
}

/* Empty the rule cache by starting a new age. The caller holds the lock. */
static void forget_rules(struct uw_target *t)
{
	t->flushes++;
	if (++t->age == 0) { /* the age wrapped: slots with the same value may exist */
		free(t->slots);
		t->slots = NULL;
		t->age = 1;
	}
}

/*
 * Empty the rule cache and drop the address of the list of code generators. The caller holds
 * the lock.
 */
static void forget(struct uw_target *t)
{
	t->has_dyn = false;
	forget_rules(t);
}

int uw_target_caching(struct uw_target *t, enum uw_caching policy)
{
	if ((unsigned int)policy > UW_CACHING_PER_THREAD)
		return -EINVAL;
	(void)pthread_mutex_lock(&t->lock);
	if (t->policy != policy)
		forget(t);
	t->policy = policy;
	(void)pthread_mutex_unlock(&t->lock);
	return 0;
}

/* Drop all slots; the next rule that is stored allocates them again. */
int uw_target_cache_size(struct uw_target *t, size_t n)
{
	size_t slots = 1;

	if (n == 0)
		return -EINVAL;
	if (n > SLOTS_MAX)
		return -ENOMEM;
	while (slots < n)
		slots *= 2;
	(void)pthread_mutex_lock(&t->lock);
	if (slots != t->n_slots) {
		free(t->slots);
		t->slots = NULL;
		t->n_slots = slots;
	}
	(void)pthread_mutex_unlock(&t->lock);
	return 0;
}

/* For a range, reset only the age of the slots in it: the other slots stay valid. */
void uw_target_flush(struct uw_target *t, uint64_t start, uint64_t end)
{
	(void)pthread_mutex_lock(&t->lock);
	if (!start && !end) {
		forget(t);
	} else {
		t->flushes++;
		t->has_dyn = false;
		for (size_t i = 0; t->slots && i < t->n_slots; i++) {
			uint64_t addr = t->slots[i].key >> 1;

			if (addr >= start && addr < end)
				t->slots[i].age = 0;
		}
	}
	(void)pthread_mutex_unlock(&t->lock);
}

/* Call the accessor without the lock. Two threads may call it at once. */
int uw_target_dyn_list(struct uw_target *t, void *ctx, uint64_t *addr)
{
	uint64_t found = 0;
	bool cached;
	int err;

	(void)pthread_mutex_lock(&t->lock);
	cached = t->has_dyn;
	found = t->dyn;
	(void)pthread_mutex_unlock(&t->lock);
	if (!cached) {
		if (!t->accessors.dyn_list_addr)
			return -ENOENT;
		err = t->accessors.dyn_list_addr(ctx, &found);
		if (err)
			return err;
		(void)pthread_mutex_lock(&t->lock);
		t->dyn = found;
		t->has_dyn = t->policy != UW_CACHING_NONE;
		(void)pthread_mutex_unlock(&t->lock);
	}
	if (!found)
		return -ENOENT;
	*addr = found;
	return 0;
}

/* ---- code that the target registered itself ------------------------------------------------ */

/*
 * Release the old information outside of the lock. Rules in the cache may come from it, so they are
 * forgotten when it changes.
 */
void uw_target_poll(struct uw_target *t, void *ctx)
{
	struct uw_dynamic_list list = { .kind = UW_DYNAMIC_LIST };
	struct uw_dynamic *found = NULL, *old;
	uint64_t mark = 0;

	if (t->space || uw_target_dyn_list(t, ctx, &list.addr)) {
		list.addr = 0;
	} else if (!uw_dynamic_marks(&list, 1, uw_target_reader(t), ctx, &mark)) {
		(void)pthread_mutex_lock(&t->lock);
		if (t->dynamic && uw_dynamic_mark(t->dynamic) == mark)
			found = uw_dynamic_get(t->dynamic);
		(void)pthread_mutex_unlock(&t->lock);
		if (!found)
			(void)uw_dynamic_read(t->arch->machine, &list, 1, uw_target_reader(t), ctx,
					      &found);
	}
	(void)pthread_mutex_lock(&t->lock);
	old = t->dynamic;
	if (!t->space && old != found)
		forget_rules(t);
	t->dynamic = found;
	(void)pthread_mutex_unlock(&t->lock);
	uw_dynamic_put(old);
}

struct uw_dynamic *uw_target_dynamic(struct uw_target *t)
{
	struct uw_dynamic *dynamic = NULL;

	(void)pthread_mutex_lock(&t->lock);
	if (t->dynamic)
		dynamic = uw_dynamic_get(t->dynamic);
	(void)pthread_mutex_unlock(&t->lock);
	return dynamic;
}

bool uw_target_rule(struct uw_target *t, uint64_t key, struct uw_rule *rule, uint64_t *bias)
{
	bool found = false;
	const struct uw_target_slot *slot;

	(void)pthread_mutex_lock(&t->lock);
	if (t->slots && t->policy != UW_CACHING_NONE) {
		slot = &t->slots[uw_slot_of(0, key, (unsigned int)t->n_slots)];
		found = slot->key == key && slot->age == t->age;
		if (found) {
			memcpy(rule, slot->rule, sizeof(slot->rule));
			memcpy(rule->regs, slot->regs, rule->n_regs * sizeof(*rule->regs));
			*bias = slot->bias;
		}
	}
	(void)pthread_mutex_unlock(&t->lock);
	return found;
}

/*
 * Return whether a rule can be cached: it has no expressions, whose bytes may be freed, and it
 * fits into a slot.
 */
static bool stands_alone(const struct uw_rule *rule)
{
	if (rule->cfa_size || rule->n_regs > SLOT_REGS)
		return false;
	for (unsigned int i = 0; i < rule->n_regs; i++)
		if (rule->regs[i].kind == UW_RULE_AT_EXPR || rule->regs[i].kind == UW_RULE_EXPR)
			return false;
	return true;
}

void uw_target_keep_rule(struct uw_target *t, uint64_t key, const struct uw_rule *rule,
			 uint64_t bias, uint32_t flushes)
{
	if (!stands_alone(rule))
		return;
	(void)pthread_mutex_lock(&t->lock);
	if (t->policy != UW_CACHING_NONE && t->flushes == flushes) {
		if (!t->slots)
			t->slots = calloc(t->n_slots, sizeof(*t->slots));
		if (t->slots) {
			struct uw_target_slot *slot =
				&t->slots[uw_slot_of(0, key, (unsigned int)t->n_slots)];

			slot->key = key;
			slot->age = t->age;
			slot->bias = bias;
			memcpy(slot->rule, rule, sizeof(slot->rule));
			memcpy(slot->regs, rule->regs, rule->n_regs * sizeof(*rule->regs));
		}
	}
	(void)pthread_mutex_unlock(&t->lock);
}
