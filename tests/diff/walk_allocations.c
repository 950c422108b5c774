/*
 * tests/diff/walk_allocations.c: counts the allocations during walks of recorded samples: there
 * must be none once the objects have read what the walks need.
 * The program's own malloc and related functions replace those of the C library, also for the C
 * library's own calls.
 *
 *   usage: walk_allocations FILE…      prints samples and counts; exit 1 if any count is not 0
 *
 * It cannot run with sanitizers, whose allocators are not those of the C library.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/peers/peer.h"

/* glibc's own functions, under the names that it provides for programs that replace them. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t size);
void __libc_free(void *block);

static bool counting;
static unsigned long calls;

void *malloc(size_t size)
{
	calls += counting;
	return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
	calls += counting;
	return __libc_calloc(n, size);
}

void *realloc(void *old, size_t size)
{
	calls += counting;
	return __libc_realloc(old, size);
}

void free(void *block)
{
	calls += counting && block;
	__libc_free(block);
}

void *mmap(void *addr, size_t size, int protection, int flags, int fd, off_t off)
{
	calls += counting;
	return (void *)syscall(SYS_mmap, addr, size, protection, flags, fd, off);
}

/* Walk all samples once. Return the number of calls that this made. */
static unsigned long walk_all(const struct recording *r, const struct peer *peer, void *self)
{
	static uint64_t pcs[PEER_MANY][PEER_FRAMES];
	uint64_t *rows[PEER_MANY];
	size_t n_pcs[PEER_MANY], n;

	for (size_t i = 0; i < PEER_MANY; i++)
		rows[i] = pcs[i];
	calls = 0;
	counting = true;
	for (size_t i = 0; i < r->n_samples; i += n) {
		n = r->n_samples - i < PEER_MANY ? r->n_samples - i : PEER_MANY;
		if (peer->many)
			peer->many(self, &r->samples[i], n, rows, n_pcs);
		for (size_t k = 0; !peer->many && k < n; k++)
			(void)peer->walk(self, &r->samples[i + k], rows[k]);
	}
	counting = false;
	return calls;
}

static bool check(const char *file)
{
	/* Change from rules in files to tables, which stay. */
	static const struct peer *const peers[] = { &peer_file, &peer_table, &peer_many };
	struct recording r;
	unsigned long first, again, all = 0, n;
	void *self;

	if (recording_read(file, 0, &r))
		return false;
	n = r.n_samples;
	printf("%lu samples,", n);
	for (size_t i = 0; i < sizeof(peers) / sizeof(peers[0]); i++) {
		if (peers[i]->new (&r, SIZE_MAX, &self))
			return false;
		first = walk_all(&r, peers[i], self);
		again = walk_all(&r, peers[i], self);
		printf(" %s %lu and again %lu", peers[i]->name, first, again);
		all += again;
		peers[i]->free(self);
	}
	printf("\n");
	recording_free(&r);
	return n && !all;
}

/* Check that calls from libraries arrive here: if they did not, the counts would prove nothing. */
static bool are_counted(void)
{
	void *block;

	calls = 0;
	counting = true;
	block = realloc(calloc(1, 24), 48);
	free(block);
	if (fflush(NULL) || asprintf((char **)&block, "%p", block) < 0)
		block = NULL;
	counting = false;
	free(block);
	return calls >= 4;
}

int main(int argc, char **argv)
{
	bool ok = argc > 1 && are_counted();

	if (!ok)
		fprintf(stderr, "walk_allocations: calls are not counted\n");
	for (int i = 1; i < argc && ok; i++)
		ok = check(argv[i]);
	return !ok;
}
