/*
 * agent/source/mapped.c: mapped files, and the SIGBUS handler that replaces truncated pages by
 * zeros.
 */
#include "agent/source/mapped.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAPPED_MAX 64 /* mappings at a time; further files are not mapped */

/* These are global because a signal handler belongs to the whole process. */
static _Atomic(struct mapped *) active[MAPPED_MAX];
static struct sigaction before;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool installed;
static uintptr_t page_size;

/*
 * Handle SIGBUS: if the address is in one of our mappings, put a page of zeros there and set cut.
 * This function runs in a signal handler; it only uses atomics and system calls.
 */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
	uintptr_t at = (uintptr_t)info->si_addr;

	(void)context;
	for (size_t i = 0; i < MAPPED_MAX; i++) {
		struct mapped *m = atomic_load(&active[i]);

		if (!m || at < (uintptr_t)m->bytes || at - (uintptr_t)m->bytes >= m->size)
			continue;
		if (mmap((void *)(at & ~(page_size - 1)), page_size, PROT_READ,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
			break;
		atomic_store(&m->cut, true);
		return;
	}
	/*
	 * The address is not ours: restore the earlier handler, which gets the signal when the
	 * access is repeated.
	 */
	(void)sigaction(number, &before, NULL);
}

/* Install the SIGBUS handler, once in the life of the process. */
static void install(void)
{
	struct sigaction action = { .sa_sigaction = on_bus_error,
				    .sa_flags = SA_SIGINFO | SA_NODEFER };

	page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
	installed = !sigemptyset(&action.sa_mask) && !sigaction(SIGBUS, &action, &before);
}

/*
 * Enter the mapping into a free place of `active`, where the handler of SIGBUS looks for it: a file
 * that another process cuts off must not end this process.
 */
void mapped_open(struct mapped *out, int fd, uint64_t size)
{
	void *bytes;

	*out = (struct mapped){ .bytes = NULL };
	if (!size || size > SIZE_MAX || pthread_once(&once, install) || !installed)
		return;
	bytes = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (bytes == MAP_FAILED)
		return;
	out->bytes = bytes;
	out->size = (size_t)size;
	for (size_t i = 0; i < MAPPED_MAX; i++) {
		struct mapped *none = NULL;

		if (atomic_compare_exchange_strong(&active[i], &none, out))
			return;
	}
	mapped_close(out);
}

void mapped_let_go(struct mapped *m, uint64_t off, uint64_t size)
{
	uint64_t first, past;

	if (!m->bytes || off >= m->size)
		return;
	first = (off + page_size - 1) & ~(uint64_t)(page_size - 1);
	past = (size < m->size - off ? off + size : m->size) & ~(uint64_t)(page_size - 1);
	if (first < past)
		(void)madvise((void *)(uintptr_t)(m->bytes + first), past - first, MADV_DONTNEED);
}

void mapped_close(struct mapped *mapped)
{
	struct mapped *self;

	if (!mapped->bytes)
		return;
	(void)munmap((void *)(uintptr_t)mapped->bytes, mapped->size);
	for (size_t i = 0; i < MAPPED_MAX; i++) {
		self = mapped;
		(void)atomic_compare_exchange_strong(&active[i], &self, NULL);
	}
	mapped->bytes = NULL;
	mapped->size = 0;
}
