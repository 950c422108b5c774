/* tests/unit/test_code_facts.c: tests that a worker's cache of what code is says what the objects say. */
#include "unwinder/walk/code_facts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/check.h"
#include "unwinder/walk/child.h"

static struct uw_object *open_file(const char *path)
{
	struct uw_object *object = NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	CHECK(fd >= 0 && uw_object_open(fd, 0, &object) == 0, path);
	(void)close(fd);
	return object;
}

/* Check the packed rule, and that a missing rule is missing for uw_facts_rule, too. */
static void check_rule(struct uw_code_facts *facts, struct uw_object *o, uint64_t pc, bool exact)
{
	uint64_t lookup = exact ? pc : pc - 1, packed = 0, want = 0;
	struct uw_rule rule, other;
	uint8_t stepper = 0, by = 0;
	enum uw_rule_origin from;
	int err = uw_object_packed(o, lookup, exact, &want, &by);

	CHECK(uw_facts_packed(facts, o, lookup, exact, &packed, &stepper, &rule, &from) == err,
	      "the error of the object");
	CHECK(err || (packed == want && stepper == by), "the word and stepper of the object");
	err = uw_object_rule(o, lookup, exact, &other);
	CHECK(uw_facts_rule(facts, o, lookup, exact, &rule) == err, "the rule's error");
	CHECK(err || (rule.start == other.start && rule.end == other.end &&
		      rule.cfa_reg == other.cfa_reg && rule.cfa_off == other.cfa_off &&
		      rule.n_regs == other.n_regs),
	      "the rule of the object");
}

static void check_code(struct uw_code_facts *facts, struct uw_object *o, uint64_t pc)
{
	const struct uw_arch *arch = uw_arch_of(uw_object_machine(o));
	uint8_t buffer[UW_CODE_BEFORE + UW_CODE_AFTER];
	struct uw_rule stub;
	struct uw_call call, want;
	struct uw_code code;
	int err = uw_object_code(o, pc, buffer, &code);

	CHECK(uw_facts_call(facts, o, pc, &call) == err, "whether the code can be read");
	if (!err) {
		want = arch->after_call(&code);
		if (want.kind == UW_CALL_DIRECT &&
		    uw_object_stub(o, pc + (uint64_t)(int64_t)want.target, &stub))
			want.kind = UW_CALL_INDIRECT;
		CHECK(call.kind == want.kind &&
			      (call.kind == UW_CALL_NONE || call.target == want.target),
		      "the call");
	}
	CHECK(uw_facts_begins(facts, o, pc) == uw_object_begins(o, pc), "a beginning");
	CHECK(uw_facts_child(facts, o, pc) == uw_child_may_begin(o, pc), "a new thread");
}

/* The address of a function of this program, in its file. */
static uint64_t own(const struct uw_object *o, void (*function)(void))
{
	extern const char __ehdr_start[];
	uint64_t vaddr = 0;

	CHECK(!uw_object_vaddr(o, 0, &vaddr), "the first byte");
	return (uint64_t)((uintptr_t)function - (uintptr_t)__ehdr_start) + vaddr;
}

/*
 * Ask for so many places of two objects, exact or not, that slots are replaced, each twice in turn with
 * the other object's same place; what is found is still right.
 */
static void test_answers_are_those_of_the_objects(bool compiled)
{
	struct uw_code_facts *facts = calloc(1, sizeof(*facts));
	struct uw_object *objects[] = { open_file("/lib/x86_64-linux-gnu/libc.so.6"),
					open_file("/proc/self/exe") };
	uint64_t calls = 0, missing = 0;

	CHECK(facts != NULL, "memory");
	for (unsigned int i = 0; compiled && i < 2; i++)
		CHECK(uw_object_compile(objects[i]) == 0, "a table");
	for (uint64_t n = 0; n < UW_CODE_FACTS / 2; n++) {
		uint64_t pc = 0x26000 + n * 37 % 0x120000;

		if (n % 3 == 0)
			pc &= ~(uint64_t)15;
		for (unsigned int twice = 0; twice < 4; twice++) {
			struct uw_object *o = objects[twice % 2];
			uint64_t packed;
			uint8_t by;
			struct uw_call call;

			check_rule(facts, o, pc, n & 1);
			if (twice / 2 == 0 || n % 16 == 0)
				check_code(facts, o, pc);
			missing += uw_object_packed(o, pc, true, &packed, &by) == -ENOENT;
			calls += !uw_facts_call(facts, o, pc, &call) && call.kind != UW_CALL_NONE;
		}
	}
	(void)printf("%lu calls, %lu places without rules\n", calls, missing);
	CHECK(calls > 100 && missing > 1000, "calls and places without rules were among them");
	for (unsigned int i = 0; i < 2; i++)
		uw_object_put(objects[i]);
	free(facts);
}

static void nothing(void)
{
}

/* A return address and an exact pc at the same place are told apart. */
static void test_exact_is_another_place(void)
{
	struct uw_code_facts *facts = calloc(1, sizeof(*facts));
	struct uw_object *o = open_file("/proc/self/exe");
	uint64_t at = own(o, nothing);

	for (unsigned int i = 0; i < 3; i++) {
		check_rule(facts, o, at, true);
		check_rule(facts, o, at, false);
		CHECK(uw_facts_keeping(facts, o, at, i & 1) == uw_beginnings_keep(o, at),
		      "what it does with the frame pointer");
	}
	uw_object_put(o);
	free(facts);
}

int main(void)
{
	test_answers_are_those_of_the_objects(false);
	test_answers_are_those_of_the_objects(true);
	test_exact_is_another_place();
	return check_done();
}
