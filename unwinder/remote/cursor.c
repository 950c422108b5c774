/*
 * unwinder/remote/cursor.c: steps through the frames of a target one by one (cursor.h): by the
 * accessors, by the rules in an address space, or by the frame pointer.
 */
#include "unwinder/cursor.h"

#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "unwinder/arch/arch.h"
#include "unwinder/dynamic/dynamic.h"
#include "unwinder/remote/proc_info.h"
#include "unwinder/rule/object.h"
#include "unwinder/walk/child.h"
#include "unwinder/walk/explain.h"
#include "unwinder/walk/guess.h"
#include "unwinder/walk/prologue.h"
#include "unwinder/walk/space.h"
#include "unwinder/walk/step.h"
#include "unwinder/walk/stepper.h"
#include "unwinder/walk/walk.h"

/* ---- targets ------------------------------------------------------------------------ */

#define SLOTS	  4096
#define SLOTS_MAX (1u << 16)
#define SLOT_REGS 8

struct slot { /* a cached rule; it has no expressions, whose bytes it would have to borrow */
	uint64_t key; /* lookup << 1 | exact */
	uint32_t age; /* the slot is valid if this equals the target's age */
	uint8_t rule[offsetof(struct uw_rule, regs)];
	struct uw_reg_rule regs[SLOT_REGS];
	uint64_t bias;
};

struct uw_target {
	const struct uw_arch *arch;
	struct uw_accessors accessors;
	struct uw_space *space;
	struct uw_worker *worker; /* for walks in space; NULL without a space */
	uint64_t code_mask;
	pthread_mutex_t lock; /* protects all fields below, the space and the worker */
	enum uw_caching policy;
	struct slot *slots; /* allocated on first use; owned */
	size_t n_slots;
	uint32_t age;
	uint32_t
		flushes; /* of all or a range; a rule that was looked up before one is not stored */
	bool has_dyn;
	uint64_t dyn;
	struct uw_dynamic *dynamic; /* the list's contents; counted; NULL: none */
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

/* Return the target's memory accessor, or one that always fails. */
static uw_read_fn reader(const struct uw_target *t)
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
	bool kept;
	int err;

	(void)pthread_mutex_lock(&t->lock);
	kept = t->has_dyn;
	found = t->dyn;
	(void)pthread_mutex_unlock(&t->lock);
	if (!kept) {
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
 * Read the target's list of code generators if it has changed. This is done when a cursor is
 * initialized: code that is registered later is not on the cursor's stack. A target with an
 * address space has no such list here; the space knows what was registered
 * (uw_stepper_dynamic).
 */
static void poll_dynamic(struct uw_target *t, void *ctx)
{
	struct uw_dynamic_list list = { .kind = UW_DYNAMIC_LIST };
	struct uw_dynamic *found = NULL, *old;
	uint64_t mark = 0;

	if (t->space || uw_target_dyn_list(t, ctx, &list.addr)) {
		list.addr = 0;
	} else if (!uw_dynamic_marks(&list, 1, reader(t), ctx, &mark)) {
		(void)pthread_mutex_lock(&t->lock);
		if (t->dynamic && uw_dynamic_mark(t->dynamic) == mark)
			found = uw_dynamic_get(t->dynamic);
		(void)pthread_mutex_unlock(&t->lock);
		if (!found)
			(void)uw_dynamic_read(t->arch->machine, &list, 1, reader(t), ctx, &found);
	}
	(void)pthread_mutex_lock(&t->lock);
	old = t->dynamic;
	if (!t->space && old != found)
		forget_rules(t);
	t->dynamic = found;
	(void)pthread_mutex_unlock(&t->lock);
	uw_dynamic_put(old);
}

/*
 * Return a counted reference to the code that the target registered, or NULL. The caller puts
 * it back.
 */
static struct uw_dynamic *dynamic_of(struct uw_target *t)
{
	struct uw_dynamic *dynamic = NULL;

	(void)pthread_mutex_lock(&t->lock);
	if (t->dynamic)
		dynamic = uw_dynamic_get(t->dynamic);
	(void)pthread_mutex_unlock(&t->lock);
	return dynamic;
}

/*
 * The registered rule of a procedure may be an alias: the rule of the code at another address.
 * At most this many aliases are followed.
 */
#define ALIASES_MAX 8

/* Look up a rule in the cache. Return whether it was found. */
static bool kept_rule(struct uw_target *t, uint64_t key, struct uw_rule *rule, uint64_t *bias)
{
	bool found = false;
	const struct slot *slot;

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

/*
 * Store a rule in the cache. flushes is the target's number of flushes before the rule was looked up:
 * nothing is stored if there was one since then. Without memory for the cache, nothing is stored.
 */
static void keep_rule(struct uw_target *t, uint64_t key, const struct uw_rule *rule, uint64_t bias,
		      uint32_t flushes)
{
	if (!stands_alone(rule))
		return;
	(void)pthread_mutex_lock(&t->lock);
	if (t->policy != UW_CACHING_NONE && t->flushes == flushes) {
		if (!t->slots)
			t->slots = calloc(t->n_slots, sizeof(*t->slots));
		if (t->slots) {
			struct slot *slot = &t->slots[uw_slot_of(0, key, (unsigned int)t->n_slots)];

			slot->key = key;
			slot->age = t->age;
			slot->bias = bias;
			memcpy(slot->rule, rule, sizeof(slot->rule));
			memcpy(slot->regs, rule->regs, rule->n_regs * sizeof(*rule->regs));
		}
	}
	(void)pthread_mutex_unlock(&t->lock);
}

/* ---- a cursor's state --------------------------------------------------------------------- */

#define MAGIC 0x6f6666777363757fu

/* A flag beside enum uw_place: an expression computes the place or the value. */
#define BY_EXPRESSION 0x80

/* The contents of a struct uw_cursor. */
struct __attribute__((may_alias)) state {
	uint64_t magic;
	struct uw_target *target;
	void *ctx;
	struct uw_regs regs;
	uint64_t at[UW_REGS_MAX]; /* MEMORY: address; REGISTER: the innermost frame's */
	uint8_t place[UW_REGS_MAX];
	uint8_t stepper, confidence; /* how the frame was found */
	bool exact, sp_low;	     /* as in struct uw_walking */
	uint32_t stop;		     /* enum uw_stop of the last step */
	uint64_t stop_addr;
	uint64_t n;			  /* number of inner frames */
	uint64_t mark_pc, mark_sp, turns; /* see uw_walk_cycle */
};

_Static_assert(sizeof(struct state) <= sizeof(struct uw_cursor), "a cursor holds it");

/* Return the cursor's state, or NULL if it was not initialized. */
static struct state *state_of(struct uw_cursor *cursor)
{
	struct state *s = (struct state *)cursor->opaque;

	return s->magic == MAGIC ? s : NULL;
}

/* Return the cursor's state for reading, or NULL if it was not initialized. */
static const struct state *look(const struct uw_cursor *cursor)
{
	const struct state *s = (const struct state *)cursor->opaque;

	return s->magic == MAGIC ? s : NULL;
}

/* Return pc without authentication bits and tags. */
static uint64_t stripped(const struct state *s, uint64_t pc)
{
	const struct uw_target *t = s->target;

	/* Without a space, addresses have 48 bits unless the mask says otherwise. */
	return t->arch->strip(pc, t->code_mask,
			      t->space ? uw_space_top(t->space) : (uint64_t)1 << 48);
}

/* Return the frame's pc without authentication bits and tags. */
static uint64_t pc_of(const struct state *s)
{
	return stripped(s, s->regs.value[s->target->arch->pc]);
}

/* Return the address to look the frame up by: the pc, or the return address - 1. */
static uint64_t lookup_of(const struct state *s)
{
	/*
	 * A call may be the last instruction of its function; the return address then belongs
	 * to the next one.
	 */
	return pc_of(s) - !s->exact;
}

int uw_cursor_init_at(struct uw_cursor *cursor, struct uw_target *target, void *ctx,
		      const struct uw_regs *regs, bool exact)
{
	const struct uw_arch *arch = target->arch;
	const uint64_t needed = (uint64_t)1 << arch->pc | (uint64_t)1 << arch->sp;
	struct state s = { .magic = MAGIC,
			   .target = target,
			   .ctx = ctx,
			   .regs = *regs,
			   .n = !exact,
			   .exact = exact,
			   .stepper = UW_STEPPER_CONTEXT,
			   .confidence = UW_CONFIDENCE_RULE };

	if ((regs->known & needed) != needed)
		return -ENODATA;
	for (unsigned int i = 0; i < arch->n_regs; i++) {
		s.place[i] = UW_PLACE_REGISTER;
		s.at[i] = i;
	}
	memcpy(cursor->opaque, &s, sizeof(s));
	return 0;
}

/* Read all registers. Only pc and sp must be known. */
int uw_cursor_init(struct uw_cursor *cursor, struct uw_target *target, void *ctx)
{
	const struct uw_arch *arch = target->arch;
	struct uw_regs regs = { .known = 0 };
	int err;

	if (!target->accessors.read_reg)
		return -ENODATA;
	for (unsigned int i = 0; i < arch->n_regs; i++) {
		err = target->accessors.read_reg(ctx, i, &regs.value[i]);
		if (!err)
			regs.known |= (uint64_t)1 << i;
		else if (i == arch->pc || i == arch->sp)
			return err;
	}
	if (target->accessors.dyn_list_addr)
		poll_dynamic(target, ctx);
	return uw_cursor_init_at(cursor, target, ctx, &regs, true);
}

void uw_cursor_context(struct uw_cursor *cursor, void *ctx)
{
	struct state *s = state_of(cursor);

	if (s)
		s->ctx = ctx;
}

/* Mark a register as undefined. */
static void lose(struct state *s, unsigned int reg)
{
	s->place[reg] = UW_PLACE_UNDEFINED;
	s->at[reg] = 0;
}

/*
 * Set where reg is saved. If the callee did not move the register, its place is that of the
 * callee's register in the state before.
 */
static void settle(struct state *s, const struct state *before, unsigned int reg,
		   const struct uw_save *save)
{
	s->place[reg] = save->place | (save->expression ? BY_EXPRESSION : 0);
	s->at[reg] = save->addr;
	if (save->place != UW_PLACE_SAME && save->place != UW_PLACE_REGISTER)
		return;
	/* The register's value is where the callee's register is saved. */
	s->place[reg] = before->place[save->place == UW_PLACE_SAME ? reg : save->from];
	s->at[reg] = before->at[save->place == UW_PLACE_SAME ? reg : save->from];
}

/*
 * Set where each register is saved after a step by a rule. before is the state in the callee's
 * frame, and machine has the callee's registers.
 */
static void settle_by_rule(struct state *s, const struct state *before, struct uw_machine *machine,
			   const struct uw_rule *rule, uint64_t cfa)
{
	const struct uw_arch *arch = s->target->arch;
	const struct uw_reg_rule *ra = uw_rule_reg(rule, rule->ra);
	struct uw_save save = { .place = UW_PLACE_VALUE };

	settle(s, before, arch->sp, &save);
	save = (struct uw_save){ .place = UW_PLACE_REGISTER, .from = rule->ra };
	settle(s, before, arch->pc, &save);
	for (unsigned int i = 0; i < rule->n_regs; i++) {
		uw_explain_reg(machine, &rule->regs[i], cfa, &rule->regs[i] == ra, &save);
		settle(s, before, rule->regs[i].reg, &save);
		if (&rule->regs[i] == ra && ra->reg != arch->pc)
			settle(s, before, arch->pc, &save);
	}
}

/*
 * Set where each register is saved after a step without a rule: by the frame pointer, by a scan
 * of the stack, or by the return address that a call left at sp or in lr. Registers that the
 * step lost become undefined.
 */
static void settle_by_guess(struct state *s, const struct state *before, uint8_t stepper)
{
	const struct uw_arch *arch = s->target->arch;
	struct uw_save save = { .place = UW_PLACE_MEMORY };

	for (unsigned int i = 0; i < arch->n_regs; i++)
		if (!(s->regs.known >> i & 1))
			lose(s, i);
	s->place[arch->sp] = UW_PLACE_VALUE;
	s->at[arch->sp] = 0;
	if (stepper == UW_STEPPER_FP) {
		save.addr = before->regs.value[arch->fp];
		settle(s, before, arch->fp, &save);
		save.addr += 8;
	} else if (stepper == UW_STEPPER_SCAN) {
		save.addr = s->regs.value[arch->sp] - 8;
	} else if (arch->lr != arch->pc) {
		save = (struct uw_save){ .place = UW_PLACE_REGISTER, .from = arch->lr };
	} else {
		save.addr = before->regs.value[arch->sp];
	}
	settle(s, before, arch->pc, &save);
}

/*
 * Set where each register is saved after a step by one of the user's steppers, which names the
 * places of pc, sp and fp only. Registers with a new value are marked as computed.
 */
static void settle_by_user(struct state *s, const struct state *before,
			   const struct uw_save saves[3])
{
	const struct uw_arch *arch = s->target->arch;
	const uint8_t own[3] = { arch->pc, arch->sp, arch->fp };

	for (unsigned int i = 0; i < arch->n_regs; i++) {
		if (!(s->regs.known >> i & 1)) {
			lose(s, i);
		} else if (!(before->regs.known >> i & 1) ||
			   before->regs.value[i] != s->regs.value[i]) {
			s->place[i] = UW_PLACE_VALUE;
			s->at[i] = 0;
		}
	}
	for (unsigned int i = 0; i < 3; i++)
		if (saves[i].place != UW_PLACE_UNDEFINED && saves[i].from < arch->n_regs)
			settle(s, before, own[i], &saves[i]);
}

/* ---- steps by what the accessors know -------------------------------------------------------- */

/* Record why the walk stops and return the code that uw_cursor_step returns for that reason. */
static int stopping(struct state *s, enum uw_stop stop, uint64_t addr)
{
	s->stop = stop;
	s->stop_addr = addr;
	switch (stop) {
	case UW_STOP_ROOT:
	case UW_STOP_GUESS_ENDED:
		return 0;
	case UW_STOP_TRUNCATED:
		return -EFAULT;
	case UW_STOP_REG_UNKNOWN:
	case UW_STOP_NO_USER_STATE:
		return -ENODATA;
	case UW_STOP_BAD_CFI:
		return -EBADMSG;
	case UW_STOP_CFA_NOT_RISING:
	case UW_STOP_CYCLE:
		return -ELOOP;
	default:
		return -ENOENT;
	}
}

/* Return a machine with the frame's registers and the target's memory. */
static struct uw_machine machine_of(const struct state *s)
{
	return (struct uw_machine){
		.arch = s->target->arch, .regs = s->regs, .read = reader(s->target), .ctx = s->ctx
	};
}

/* Read the code around pc: as many bytes as can be read, up to UW_CODE_BEFORE and UW_CODE_AFTER. */
static void read_code(const struct uw_machine *machine, uint64_t pc,
		      uint8_t bytes[UW_CODE_BEFORE + UW_CODE_AFTER], struct uw_code *code)
{
	*code = (struct uw_code){ .at = bytes + UW_CODE_BEFORE };
	for (size_t size = UW_CODE_AFTER; size && !code->after; size -= 4)
		if (!machine->read(machine->ctx, pc, bytes + UW_CODE_BEFORE, size))
			code->after = size;
	if (pc >= UW_CODE_BEFORE &&
	    !machine->read(machine->ctx, pc - UW_CODE_BEFORE, bytes, UW_CODE_BEFORE))
		code->before = UW_CODE_BEFORE;
}

/*
 * Find the rule of a signal trampoline or a PLT stub by its code. -ENOENT if the code is
 * neither.
 */
static int rule_by_code(const struct state *s, struct uw_rule *rule)
{
	const struct uw_machine machine = machine_of(s);
	uint8_t bytes[UW_CODE_BEFORE + UW_CODE_AFTER];
	struct uw_code code;

	read_code(&machine, pc_of(s), bytes, &code);
	if (code.after && machine.arch->signal(&code, s->exact, rule))
		return 0;
	return code.after && s->exact && machine.arch->stub(&code, rule) ? 0 : -ENOENT;
}

/*
 * Return whether a system call has just created this thread, and the rule of its only frame.
 * bare: no unwind information covers the pc.
 */
static bool is_child(const struct state *s, bool bare, struct uw_rule *rule)
{
	const struct uw_machine machine = machine_of(s);
	uint8_t bytes[UW_CODE_BEFORE + UW_CODE_AFTER];
	struct uw_code code;

	if (!s->exact || !uw_child_result(machine.arch, &s->regs))
		return false;
	read_code(&machine, pc_of(s), bytes, &code);
	return uw_child_rule_by_code(machine.arch, &code, bare, &s->regs, rule);
}

/* The owners of the bytes that a rule's expressions point to. */
struct held {
	struct uw_proc_info info;
	struct uw_dynamic *dynamic;
};

/*
 * Find the rule of the frame without the address space: in the cache, in the code that the
 * target registered, by the find_proc_info accessor, and by the code itself. Return 0, 1 for
 * the outermost frame, -ENOENT, or the code of find_proc_info. The caller releases *held after
 * it has used the rule.
 */
static int rule_here(const struct state *s, struct uw_rule *rule, uint64_t *bias, struct held *held)
{
	struct uw_target *t = s->target;
	uint64_t lookup = lookup_of(s), key = lookup << 1 | s->exact;
	uint32_t flushes;
	int err;

	*bias = 0;
	*held = (struct held){ .dynamic = NULL };
	if (is_child(s, false, rule) || kept_rule(t, key, rule, bias))
		return 0;
	(void)pthread_mutex_lock(&t->lock);
	flushes = t->flushes;
	(void)pthread_mutex_unlock(&t->lock);
	err = -ENOENT;
	held->dynamic = dynamic_of(t);
	for (unsigned int i = 0; held->dynamic && i < ALIASES_MAX; i++) {
		uint64_t alias = 0;

		err = uw_dynamic_rule(held->dynamic, lookup, rule, &alias);
		if (err != 1)
			break;
		lookup = alias;
		err = -ENOENT;
	}
	if (err == -ENOENT && t->accessors.find_proc_info) {
		struct uw_proc_info info = { .start = 0 };

		err = t->accessors.find_proc_info(s->ctx, lookup, true, &info);
		if (!err) {
			err = uw_proc_info_rule(&info, lookup, s->exact, rule, bias);
			held->info = info;
		}
	}
	/*
	 * The vDSO's unwind information does not describe every trampoline completely: prefer
	 * the code.
	 */
	if ((!err && rule->signal && t->arch->sigcontext_first) || (err == -ENOENT && !t->space)) {
		struct uw_rule coded;

		if (!rule_by_code(s, &coded)) {
			*rule = coded;
			*bias = 0;
			err = 0;
		}
	}
	if (!err)
		keep_rule(t, key, rule, *bias, flushes);
	else if (err == -ENOENT && is_child(s, true, rule))
		err = 0;
	return err;
}

/*
 * Copy the name that the target registered for the code at the frame's lookup. -ENOENT none,
 * -ENOMEM the name was cut to size.
 */
static int registered_name(const struct state *s, char *name, size_t size, uint64_t *off)
{
	struct uw_dynamic *dynamic = dynamic_of(s->target);
	struct uw_dynamic_proc proc;
	size_t length;
	int err = dynamic ? uw_dynamic_proc(dynamic, lookup_of(s), &proc) : -ENOENT;

	if (!err && !proc.name)
		err = -ENOENT;
	if (!err) {
		length = strlen(proc.name);
		err = length < size ? 0 : -ENOMEM;
		if (err)
			length = size - 1;
		memcpy(name, proc.name, length);
		name[length] = '\0';
		*off = lookup_of(s) - proc.start;
	}
	uw_dynamic_put(dynamic);
	return err;
}

/* Release what a rule borrowed from. */
static void release(const struct state *s, struct held *held)
{
	const struct uw_accessors *a = &s->target->accessors;

	if (held->info.unwind_info && a->put_proc_info)
		a->put_proc_info(s->ctx, &held->info);
	else if (held->info.unwind_info)
		uw_proc_info_free(&held->info);
	uw_dynamic_put(held->dynamic);
}

/* Return whether the walk runs in a cycle: Brent's algorithm, as in uw_walk_cycle. */
static bool cycles(struct state *s, uint64_t pc, uint64_t sp)
{
	if (s->turns && pc == s->mark_pc && sp == s->mark_sp)
		return true;
	if (!(s->turns & (s->turns - 1))) {
		s->mark_pc = pc;
		s->mark_sp = sp;
	}
	s->turns++;
	return false;
}

/*
 * Check that the registers found are those of a caller, and move to it. anywhere: the caller's
 * stack pointer may have any value. Return 1, or the code of a step that stopped.
 */
static int arrive(struct state *s, const struct state *before, bool anywhere, bool signal)
{
	const struct uw_arch *arch = s->target->arch;
	uint64_t sp = s->regs.value[arch->sp], old = before->regs.value[arch->sp];
	uint64_t pc = pc_of(s), here = pc_of(before);

	if (pc == 0 && !signal)
		return stopping(s, UW_STOP_GUESS_ENDED, here);
	/* The same test as rises() in stepper.c. */
	if (sp <= old && !anywhere &&
	    !((arch->lr != arch->pc || before->exact) && sp == old && pc != here))
		return stopping(s, UW_STOP_CFA_NOT_RISING, here);
	if (sp <= old && cycles(s, pc, sp))
		return stopping(s, UW_STOP_CYCLE, here);
	s->exact = signal;
	s->n++;
	return 1;
}

/* Step to the caller by a rule; bias is that of the object with the rule's expressions. */
static int step_by_rule(struct state *s, const struct state *before, struct uw_rule *rule,
			uint64_t bias)
{
	struct uw_machine machine = machine_of(s), old = machine;
	uint64_t cfa = 0, pc = pc_of(s);
	int got;

	machine.bias = old.bias = bias;
	if (s->sp_low)
		(void)uw_stepper_from_record(machine.arch, rule);
	s->sp_low &= rule->cfa_reg == machine.arch->sp && !rule->cfa_size;
	got = uw_step(&machine, rule, &cfa);
	switch (got) {
	case 1:
		break;
	case 0:
		return stopping(s, UW_STOP_ROOT, pc);
	case -EFAULT:
		return stopping(s, UW_STOP_TRUNCATED, machine.missing);
	case -ENODATA:
		return stopping(s, UW_STOP_REG_UNKNOWN, pc);
	default:
		return stopping(s, UW_STOP_BAD_CFI, pc);
	}
	s->regs = machine.regs;
	s->stepper = rule->stepper;
	s->confidence = UW_CONFIDENCE_RULE;
	settle_by_rule(s, before, &old, rule, cfa);
	return arrive(s, before, rule->signal || rule->cfa_size || rule->cfa_kind != UW_CFA_PLAIN,
		      rule->signal);
}

/* Return whether the frame record at fp links to another one further up the stack. */
static bool leads_on(struct uw_machine *machine, uint64_t fp, uint64_t next)
{
	uint64_t ra;

	return next > fp && uw_guess_is_fp(fp, next) &&
	       !uw_machine_read(machine, next + 8, 8, &ra) && ra != 0;
}

/*
 * Step to the caller by the frame pointer. The step is accepted if a call ends at the return
 * address, or if the chain continues with another plausible frame record: the code may be
 * generated, so that it cannot be read or is not what runs (perf supplies the text of its
 * symbol map there). Used without an address space only: with one, its steppers do this.
 */
static int step_by_fp(struct state *s, const struct state *before)
{
	const struct uw_arch *arch = s->target->arch;
	struct uw_machine machine = machine_of(s);
	uint64_t pc = pc_of(s), sp = s->regs.value[arch->sp], fp, next, ra;
	uint8_t bytes[UW_CODE_BEFORE + UW_CODE_AFTER];
	struct uw_code here, code;
	bool called;

	if (uw_machine_reg(&machine, arch->fp, &fp))
		return stopping(s, UW_STOP_NO_UNWIND_INFO, pc);
	read_code(&machine, pc, bytes, &here);
	if (fp == 0 && !s->exact)
		return stopping(s, UW_STOP_GUESS_ENDED, pc);
	if (!uw_guess_is_fp(sp, fp))
		return stopping(s, here.after ? UW_STOP_NO_UNWIND_INFO : UW_STOP_NO_MAPPING, pc);
	if (uw_machine_read(&machine, fp, 8, &next) || uw_machine_read(&machine, fp + 8, 8, &ra))
		return stopping(s, UW_STOP_TRUNCATED, machine.missing);
	ra = stripped(s, ra);
	if (ra == 0 && next == 0 && !s->exact)
		return stopping(s, UW_STOP_GUESS_ENDED, pc);
	read_code(&machine, ra, bytes, &code);
	called = here.after && code.before && arch->after_call(&code).kind != UW_CALL_NONE;
	if (!called && !leads_on(&machine, fp, next))
		return stopping(s, here.after ? UW_STOP_NO_UNWIND_INFO : UW_STOP_NO_MAPPING, pc);
	s->regs.known = (uint64_t)1 << arch->pc | (uint64_t)1 << arch->sp | (uint64_t)1 << arch->fp;
	s->regs.value[arch->pc] = ra;
	s->regs.value[arch->sp] = fp + 16;
	s->regs.value[arch->fp] = next;
	s->stepper = UW_STEPPER_FP;
	s->confidence = called ? UW_CONFIDENCE_CHECKED : UW_CONFIDENCE_GUESS;
	s->sp_low = arch->lr != arch->pc;
	settle_by_guess(s, before, UW_STEPPER_FP);
	return arrive(s, before, false, false);
}

/* ---- steps in an address space -------------------------------------------------------------- */

/*
 * Find the rule that the step in the address space used: that of the object, of registered
 * code, or of a signal trampoline. The caller holds the target's lock.
 */
static int rule_in_space(const struct state *s, struct uw_rule *rule, uint64_t *bias)
{
	struct uw_target *t = s->target;
	struct uw_machine machine = machine_of(s);
	struct uw_mapping *mapping = uw_space_at(t->space, lookup_of(s));
	struct uw_object *object = mapping ? uw_space_resolve(t->space, mapping) : NULL;

	int err = -ENOENT;

	*bias = object ? mapping->bias : 0;
	if (object)
		err = uw_walk_rule(t->worker, object, lookup_of(s) - *bias, s->exact, rule);
	if (err == -ENOENT)
		err = uw_stepper_dynamic(t->space, lookup_of(s), s->exact, rule, bias);
	if (err == -ENOENT && !object &&
	    uw_stepper_trampoline(t->space, &machine, pc_of(s), s->exact, rule))
		err = 0;
	return err;
}

/*
 * Step to the caller with the walk's own code (uw_walk_frame) in the target's address space,
 * then find out where each register was saved. The caller holds the target's lock.
 */
static int step_in_space(struct state *s, const struct state *before)
{
	struct uw_target *t = s->target;
	struct uw_thread thread = {
		.regs = s->regs, .read = reader(t), .ctx = s->ctx, .code_mask = t->code_mask
	};
	struct uw_frame frames[2] = { { .pc = 0 } };
	struct uw_stack stack = { .frames = frames, .max_frames = 2 };
	struct uw_found found = { .stepper = UW_STEPPER_CONTEXT };
	struct uw_walking w;
	struct uw_rule rule;
	uint64_t bias;
	int stop = uw_walk_begin(&w, t->space, t->worker, &thread, &stack);

	if (stop != UW_GO_ON)
		return stopping(s, (enum uw_stop)(-1 - stop), 0);
	uw_walk_take_regs(&w);
	w.exact = s->exact;
	w.sp_low = s->sp_low;
	w.stepper = s->stepper;
	w.confidence = s->confidence;
	w.turns = s->turns;
	w.mark_pc = s->mark_pc;
	w.mark_sp = s->mark_sp;
	/* Only whether there are inner frames matters, not which ones. */
	stack.n_frames = w.due = s->n ? 1 : 0;
	stop = uw_walk_frame(&w, &found);
	s->turns = w.turns;
	s->mark_pc = w.mark_pc;
	s->mark_sp = w.mark_sp;
	if (stop != UW_GO_ON)
		return stopping(s, (enum uw_stop)(-1 - stop),
				stop == uw_stopping(UW_STOP_TRUNCATED) ? w.missing : pc_of(before));
	s->regs = w.machine.regs;
	if (pc_of(s) == 0 && !w.exact)
		return stopping(s, UW_STOP_GUESS_ENDED, pc_of(before));
	s->stepper = w.stepper;
	s->confidence = w.confidence;
	s->exact = w.exact;
	s->sp_low = w.sp_low;
	s->n++;
	if (s->stepper >= UW_STEPPER_N) {
		settle_by_user(s, before, found.saves);
	} else if (s->stepper == UW_STEPPER_CFI || s->stepper == UW_STEPPER_SIGNAL ||
		   s->stepper == UW_STEPPER_PLT || s->stepper == UW_STEPPER_DYNAMIC) {
		struct uw_machine machine = machine_of(before);

		if (!rule_in_space(before, &rule, &bias)) {
			if (before->sp_low)
				(void)uw_stepper_from_record(t->arch, &rule);
			machine.bias = bias;
			settle_by_rule(s, before, &machine, &rule, found.cfa);
		}
	} else if (s->stepper == UW_STEPPER_PROLOGUE) {
		struct uw_machine machine = machine_of(before);
		struct uw_mapping *mapping = uw_space_at(t->space, lookup_of(before));

		if (mapping && mapping->object &&
		    uw_beginnings_taken(mapping->object, pc_of(before) - mapping->bias,
					&before->regs, found.cfa, &rule))
			settle_by_rule(s, before, &machine, &rule, found.cfa);
	} else {
		settle_by_guess(s, before, s->stepper);
	}
	return 1;
}

/* ---- stepping ------------------------------------------------------------------------ */

/*
 * Step to the caller: by the accessors first, then by the address space or the frame pointer.
 * Return as uw_cursor_step; s may be changed even if the step fails.
 */
static int step_on(struct state *s, const struct state *before)
{
	struct uw_target *t = s->target;
	int err = -ENOENT;

	if (t->accessors.find_proc_info || !t->space) {
		struct held held;
		struct uw_rule rule;
		uint64_t bias;

		err = rule_here(s, &rule, &bias, &held);
		if (err == 0)
			err = step_by_rule(s, before, &rule, bias);
		else if (err > 0)
			err = stopping(s, UW_STOP_ROOT, pc_of(s));
		else if (err != -ENOENT)
			(void)stopping(s, UW_STOP_BAD_CFI, pc_of(s));
		else
			err = -EAGAIN;
		release(s, &held);
		if (err != -EAGAIN)
			return err;
	}
	if (!t->space)
		return step_by_fp(s, before);
	(void)pthread_mutex_lock(&t->lock);
	err = step_in_space(s, before);
	(void)pthread_mutex_unlock(&t->lock);
	return err;
}

/*
 * Step with the cursor's own state. If that fails, restore the old state, but with the reason
 * and with the marks of the search for cycles.
 */
int uw_cursor_step(struct uw_cursor *cursor)
{
	struct state *s = state_of(cursor), before;
	int got;

	if (!s)
		return -EINVAL;
	before = *s;
	got = step_on(s, &before);
	if (got != 1) { /* stay in the frame and record the reason */
		before.stop = s->stop;
		before.stop_addr = s->stop_addr;
		before.turns = s->turns;
		before.mark_pc = s->mark_pc;
		before.mark_sp = s->mark_sp;
		*s = before;
	}
	return got;
}

enum uw_stop uw_cursor_stop(const struct uw_cursor *cursor, uint64_t *addr)
{
	const struct state *s = look(cursor);

	if (addr)
		*addr = s ? s->stop_addr : 0;
	return s ? (enum uw_stop)s->stop : UW_STOP_NO_USER_STATE;
}

/* ---- queries ------------------------------------------------------------------------- */

int uw_cursor_reg(const struct uw_cursor *cursor, unsigned int reg, uint64_t *value)
{
	const struct state *s = look(cursor);

	if (!s || reg >= s->target->arch->n_regs)
		return -EINVAL;
	if (!(s->regs.known >> reg & 1))
		return -ENODATA;
	*value = reg == s->target->arch->pc ? pc_of(s) : s->regs.value[reg];
	return 0;
}

int uw_cursor_set_reg(struct uw_cursor *cursor, unsigned int reg, uint64_t value)
{
	struct state *s = state_of(cursor);

	if (!s || reg >= s->target->arch->n_regs)
		return -EINVAL;
	s->regs.value[reg] = value;
	s->regs.known |= (uint64_t)1 << reg;
	s->place[reg] = UW_PLACE_VALUE;
	s->at[reg] = 0;
	if (reg == s->target->arch->pc)
		s->exact = true;
	return 0;
}

int uw_cursor_save(const struct uw_cursor *cursor, unsigned int reg, struct uw_save *save)
{
	const struct state *s = look(cursor);

	if (!s || reg >= s->target->arch->n_regs)
		return -EINVAL;
	*save = (struct uw_save){ .reg = (uint8_t)reg,
				  .place = s->place[reg] & (uint8_t)~BY_EXPRESSION,
				  .expression = s->place[reg] & BY_EXPRESSION,
				  .known = s->regs.known >> reg & 1,
				  .value = s->regs.value[reg] };
	if (save->place == UW_PLACE_REGISTER)
		save->from = (uint8_t)s->at[reg];
	else
		save->addr = s->at[reg];
	return 0;
}

/* Look up the frame's rule without a step. A failure counts as "no signal". */
int uw_cursor_is_signal(const struct uw_cursor *cursor)
{
	const struct state *s = look(cursor);
	struct held held;
	struct uw_rule rule;
	uint64_t bias;
	int err = -ENOENT;

	if (!s)
		return -EINVAL;
	if (s->target->accessors.find_proc_info || !s->target->space) {
		err = rule_here(s, &rule, &bias, &held);
		release(s, &held);
	}
	if (err == -ENOENT && s->target->space) {
		(void)pthread_mutex_lock(&s->target->lock);
		err = rule_in_space(s, &rule, &bias);
		(void)pthread_mutex_unlock(&s->target->lock);
	}
	return !err && rule.signal;
}

/* Step a copy of the cursor to find cfa and signal. This costs as much as a step. */
int uw_cursor_frame(const struct uw_cursor *cursor, struct uw_frame *frame)
{
	const struct state *s = look(cursor);
	struct uw_cursor next = *cursor;

	if (!s)
		return -EINVAL;
	*frame = (struct uw_frame){ .pc = pc_of(s),
				    .lookup = lookup_of(s),
				    .sp = s->regs.value[s->target->arch->sp],
				    .stepper = s->stepper,
				    .confidence = s->confidence,
				    .exact = s->exact };
	if (s->target->space)
		frame->mapping = uw_space_find(s->target->space, frame->lookup);
	if (uw_cursor_step(&next) == 1) {
		const struct state *caller = look(&next);

		/*
		 * The caller's sp is the CFA, except for signals and the few functions that
		 * switch stacks.
		 */
		frame->cfa = caller->regs.value[s->target->arch->sp];
		frame->signal = caller->exact;
	}
	return 0;
}

void uw_cursor_found(const struct uw_cursor *cursor, uint8_t *stepper, uint8_t *confidence,
		     bool *exact)
{
	const struct state *s = look(cursor);

	*stepper = s ? s->stepper : (uint8_t)UW_STEPPER_CONTEXT;
	*confidence = s ? s->confidence : (uint8_t)UW_CONFIDENCE_GUESS;
	*exact = s && s->exact;
}

int uw_cursor_proc_info(const struct uw_cursor *cursor, struct uw_proc_info *out)
{
	const struct state *s = look(cursor);
	struct uw_proc_info info = { .start = 0 };
	struct uw_dynamic_proc proc;
	struct uw_dynamic *dynamic;
	struct uw_target *t;
	int err = -ENOENT;

	if (!s)
		return -EINVAL;
	t = s->target;
	dynamic = dynamic_of(t);
	if (dynamic && !uw_dynamic_proc(dynamic, lookup_of(s), &proc) && proc.walkable) {
		info.start = proc.start;
		info.end = proc.end;
		info.format = UW_PROC_DYNAMIC;
		err = 0;
	}
	uw_dynamic_put(dynamic);
	if (err == -ENOENT && t->accessors.find_proc_info)
		err = t->accessors.find_proc_info(s->ctx, lookup_of(s), false, &info);
	if (err == -ENOENT && t->space) {
		struct uw_proc_query query = { .pc = lookup_of(s),
					       .machine = t->arch->machine,
					       .read = reader(t),
					       .ctx = s->ctx };
		struct uw_mapping *mapping;
		struct uw_object *object;

		(void)pthread_mutex_lock(&t->lock);
		mapping = uw_space_at(t->space, query.pc);
		object = mapping ? uw_space_resolve(t->space, mapping) : NULL;
		if (object)
			err = uw_proc_info_object(object, mapping->bias, &query, &info);
		(void)pthread_mutex_unlock(&t->lock);
	}
	if (err == 0)
		*out = info;
	return err > 0 ? -ENOENT : err;
}

/* Find the name by the lookup, which is pc - 1 in outer frames, and adjust the offset to the pc. */
int uw_cursor_proc_name(const struct uw_cursor *cursor, char *name, size_t size, uint64_t *off)
{
	const struct state *s = look(cursor);
	uint64_t found = 0;
	int err;

	if (!s || size == 0)
		return -EINVAL;
	err = registered_name(s, name, size, &found);
	if (err == -ENOENT) {
		if (!s->target->accessors.proc_name)
			return -ENOENT;
		err = s->target->accessors.proc_name(s->ctx, lookup_of(s), name, size, &found);
	}
	if (!err || err == -ENOMEM)
		*off = found + !s->exact;
	return err;
}

struct uw_target *uw_cursor_target(const struct uw_cursor *cursor)
{
	const struct state *s = look(cursor);

	return s ? s->target : NULL;
}

int uw_reg_find(uint16_t machine, const char *name)
{
	const struct uw_arch *arch = uw_arch_of(machine);

	/* Names that the calling convention gives to two registers (AAPCS64 §6.1.1). */
	if (arch && arch->lr != arch->pc && strcmp(name, "lr") == 0)
		return arch->lr;
	if (arch && arch->lr != arch->pc && strcmp(name, "fp") == 0)
		return arch->fp;
	for (int i = 0; arch && i < arch->n_regs; i++)
		if (strcmp(uw_reg_name(machine, (unsigned int)i), name) == 0)
			return i;
	return -1;
}
