/*
 * tests/unit/test_heap.c: tests the heap memory that processes have allocated: partial frees, any
 * order, ends of processes.
 */
#include "agent/pipeline/heap.h"
#include "tests/check.h"

#include <errno.h>

static struct heap_piece piece(uint64_t id, uint32_t pid, uint64_t size)
{
	return (struct heap_piece){ .alloc = { .id = id, .size = size, .objects = EVENT_OBJECT },
				    .pid = pid,
				    .entry = (uint32_t)id };
}

static int add(struct heap *heap, uint64_t id, uint32_t pid, uint64_t size)
{
	struct heap_piece p = piece(id, pid, size);

	return heap_add(heap, &p);
}

static bool give_back(struct heap *heap, uint64_t id, uint64_t bytes, struct heap_piece *out,
		      bool *whole)
{
	const struct event_freed freed = { id, bytes };

	return heap_freed(heap, &freed, out, whole);
}

static void test_parts_are_given_back_before_the_whole(void)
{
	struct heap heap = { 0 };
	struct heap_piece out;
	bool whole;

	CHECK(!add(&heap, 7, 1, 100), "one");
	CHECK(add(&heap, 7, 1, 100) == -ENOSPC, "its number is taken");
	CHECK(give_back(&heap, 7, 30, &out, &whole) && !whole && out.alloc.size == 30, "a part");
	CHECK(give_back(&heap, 7, UINT64_MAX, &out, &whole) && whole && out.alloc.size == 70,
	      "more than there is left is what is left");
	CHECK(!give_back(&heap, 7, 1, &out, &whole) && !heap.n, "nothing is left");
	heap_fini(&heap);
}

static void test_any_order_of_many(void)
{
	struct heap heap = { 0 };
	struct heap_piece out;
	size_t found = 0;
	bool whole;

	for (uint64_t id = 1; id <= 1000; id++)
		CHECK(!add(&heap, id, (uint32_t)(id % 10), id), "add");
	/* 7 and 1009 have no common divisor: each once. */
	for (uint64_t i = 1; i <= 1008; i++)
		found += give_back(&heap, i * 7 % 1009, UINT64_MAX, &out, &whole) && whole &&
			 out.entry == i * 7 % 1009 && out.alloc.size == out.entry;
	CHECK(found == 1000 && !heap.n, "each was found with what is its own");
	heap_fini(&heap);
}

static void test_what_ended_is_forgotten_and_nothing_else(void)
{
	struct heap heap = { 0 };
	struct heap_piece out;
	bool whole;

	for (uint64_t id = 1; id <= 6; id++)
		CHECK(!add(&heap, id, (uint32_t)(id % 3), 1), "add"); /* pids 1 2 0 1 2 0 */
	heap_ends(&heap, 1);
	heap_ends(&heap, 2);
	heap_ends(&heap, 99);
	/* Its first thread has ended, but the process has not. */
	CHECK(give_back(&heap, 2, 1, &out, &whole), "of process 2");
	heap_forget_ended(&heap);
	CHECK(heap.n == 3, "process 1 had two, 2 has one, 0 has two");
	CHECK(!give_back(&heap, 1, 1, &out, &whole), "of process 1");
	heap_renewed(&heap, 0);
	CHECK(heap.n == 1 && give_back(&heap, 5, 1, &out, &whole), "of process 2");
	heap_fini(&heap);
}

int main(void)
{
	test_parts_are_given_back_before_the_whole();
	test_any_order_of_many();
	test_what_ended_is_forgotten_and_nothing_else();
	return check_done();
}
