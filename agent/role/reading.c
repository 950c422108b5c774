/* agent/role/reading.c: the shared notes about files that are being read. */
#include "agent/role/reading.h"

#include "agent/thread.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECOND_NS INT64_C(1000000000)

static struct reading_notes *notes;

/* These are global because a signal handler belongs to the whole process. */
static const int faults[] = { THREAD_FAULTS, SIGABRT };
static struct sigaction before[sizeof(faults) / sizeof(faults[0])];
static bool installed;

/*
 * Note the thread, and restore the earlier handler, which gets the signal when the instruction is repeated.
 * What a system call sent (si_code is not positive) and a breakpoint are not repeated: send them again.
 */
static void on_fault(int number, siginfo_t *info, void *context)
{
	(void)context;
	if (notes)
		atomic_store(&notes->faulted, gettid());
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		if (faults[i] == number)
			(void)sigaction(number, &before[i], NULL);
	if (info->si_code <= 0 || number == SIGTRAP)
		(void)raise(number);
}

void reading_use(struct reading_notes *shared)
{
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK };

	notes = shared;
	if (!shared || installed)
		return;
	installed = true;
	(void)sigemptyset(&action.sa_mask);
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		(void)sigaction(faults[i], &action, &before[i]);
}

/* The worker may have been taken over before it died: its notes are no more than its word. */
enum reading_blame reading_blame(const struct reading_notes *of, size_t i)
{
	const int faulted = of->faulted;
	size_t n = 0, n_faulted = 0;

	if (!of->now[i].taken)
		return READING_INNOCENT;
	for (size_t k = 0; k < READING_MAX; k++) {
		n += of->now[k].taken;
		n_faulted += of->now[k].taken && of->now[k].thread == faulted;
	}
	/* The process ended while this thread was writing its note, or a thread faulted that has none. */
	if (!of->now[i].thread || (faulted && !n_faulted))
		return READING_SUSPECT;
	/* The thread is not known if its stack overflowed, or somebody sent a signal. */
	if (!faulted)
		return n == 1 ? READING_GUILTY : READING_SUSPECT;
	return of->now[i].thread == faulted ? READING_GUILTY : READING_INNOCENT;
}

static bool describe(int fd, struct reading_file *out)
{
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		return false;
	out->dev = st.st_dev;
	out->ino = st.st_ino;
	out->size = (uint64_t)st.st_size;
	out->uid = st.st_uid;
	out->mtime_ns = (int64_t)st.st_mtim.tv_sec * SECOND_NS + st.st_mtim.tv_nsec;
	out->ctime_ns = (int64_t)st.st_ctim.tv_sec * SECOND_NS + st.st_ctim.tv_nsec;
	return true;
}

bool reading_is_refused(int fd)
{
	struct reading_file file;

	if (!notes || !notes->n_refused || !describe(fd, &file))
		return false;
	for (size_t i = 0; i < notes->n_refused && i < READING_MAX; i++) {
		const struct reading_file *r = &notes->refused[i];

		if (r->dev == file.dev && r->ino == file.ino && r->size == file.size &&
		    r->mtime_ns == file.mtime_ns && r->ctime_ns == file.ctime_ns)
			return true;
	}
	return false;
}

int reading_note_known(const struct reading_file *file)
{
	for (int i = 0; notes && i < READING_MAX; i++) {
		if (atomic_exchange(&notes->now[i].taken, true))
			continue;
		notes->now[i].file = *file;
		atomic_store(&notes->now[i].thread, gettid());
		return i;
	}
	return -1;
}

int reading_note(int fd, uint64_t elf_off, const char *path)
{
	struct reading_file file = { .elf_off = elf_off };

	if (!notes || !describe(fd, &file))
		return -1;
	(void)snprintf(file.path, sizeof(file.path), "%s", path ? path : "");
	return reading_note_known(&file);
}

void reading_noted(int number)
{
	if (!notes || number < 0)
		return;
	atomic_store(&notes->now[number].thread, 0);
	atomic_store(&notes->now[number].taken, false);
}

void reading_busy(bool busy)
{
	uint64_t turns;

	if (!notes)
		return;
	turns = atomic_load_explicit(&notes->turns, memory_order_relaxed);
	if ((turns & 1) != busy)
		atomic_store_explicit(&notes->turns, turns + 1, memory_order_relaxed);
}

void reading_beat(void)
{
	if (notes)
		atomic_fetch_add_explicit(&notes->beats, 1, memory_order_relaxed);
}

bool reading_sample(uint64_t number)
{
	if (!notes)
		return true;
	for (size_t i = 0; number && i < notes->n_refused_samples && i < READING_MAX; i++)
		if (notes->refused_samples[i] == number)
			return false;
	atomic_store_explicit(&notes->sample, number, memory_order_relaxed);
	return true;
}
