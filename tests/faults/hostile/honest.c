/* tests/faults/hostile/honest.c: is the honest program: nearly all of its time it is in known_leaf, below known callers. */
#include <stdlib.h>

static volatile unsigned long sum;

__attribute__((noinline)) static unsigned long known_leaf(unsigned long n)
{
	for (unsigned long i = 0; i < 300000; i++)
		sum += i * n;
	return sum;
}

__attribute__((noinline)) static int known_compare(const void *a, const void *b)
{
	(void)b;
	return known_leaf(*(const unsigned long *)a) == 1;
}

/* A frame of libc stands in the middle. */
__attribute__((noinline)) static unsigned long known_b(unsigned long n)
{
	void *(*volatile search)(const void *, const void *, size_t, size_t,
				 int (*)(const void *, const void *)) = bsearch;

	return search(&n, &n, 1, sizeof(n), known_compare) != NULL;
}

__attribute__((noinline)) static unsigned long known_a(unsigned long n)
{
	return known_b(n) + 1;
}

int main(void)
{
	for (unsigned long n = 0;; n++)
		sum += known_a(n);
}
