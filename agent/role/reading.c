/* agent/role/reading.c: the shared notes about files that are being read. */
#include "agent/role/reading.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define SECOND_NS INT64_C(1000000000)

static struct reading_notes *notes;

void reading_use(struct reading_notes *shared)
{
	notes = shared;
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
	if (notes && number >= 0)
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
