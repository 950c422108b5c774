/*
 * agent/role/reading.h: notes which file is being read, where the supervisor can see it if this process
 * dies over it.
 *
 * The notes are in memory that the supervisor and all its workers share. A worker that follows one
 * that died does not read the files that the dead one was reading, and does not walk the sample that
 * it was walking. Without a supervisor nothing is noted. Any thread may call.
 */
#ifndef AGENT_ROLE_READING_H
#define AGENT_ROLE_READING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define READING_MAX  32 /* files being read at once, and files refused, at most */
#define READING_PATH 512

/* A file as fstat(2) shows it. A changed file is another one. */
struct reading_file {
	uint64_t dev, ino, size;
	int64_t mtime_ns, ctime_ns;
	uint64_t uid, elf_off;
	char path[READING_PATH]; /* for messages; cut if it is longer */
};

struct reading_notes {
	struct {
		_Atomic bool taken;
		_Atomic int thread; /* which reads it; written last, 0: the note is not complete */
		struct reading_file file;
	} now[READING_MAX];
	/* The thread that a fault ended, and the process with it; 0: it is not known. */
	_Atomic int faulted;
	/* Written by the supervisor while there is no worker. */
	struct reading_file refused[READING_MAX];
	size_t n_refused;
	/* Counts beginnings and ends of reading_busy: odd while the worker is busy. */
	_Atomic uint64_t turns;
	/* Counts the looks of a recording at its end: a worker whose count does not grow hangs. */
	_Atomic uint64_t beats;
	/*
	 * The sample that is being walked, by its number in its input, or in a recording by its
	 * process; 0: none.
	 */
	_Atomic uint64_t sample;
	uint64_t refused_samples[READING_MAX];
	size_t n_refused_samples;
};

/*
 * Use this shared memory from now on; borrowed. NULL: note nothing. Faults are noted, too, until others take
 * their signals; then the handler that was there before gets the signal. Threads that read files must not block
 * the signals of faults (agent/thread.h), and a file is noted by the thread that reads it.
 */
void reading_use(struct reading_notes *shared);

/*
 * For the supervisor: return whether reading file i of now can have ended the worker. Others may have been
 * read at the same time, on other threads: their files are not to suffer from it.
 */
enum reading_blame { READING_INNOCENT, READING_SUSPECT, READING_GUILTY };
enum reading_blame reading_blame(const struct reading_notes *notes, size_t i);

/* Return whether a worker died over this file. */
bool reading_is_refused(int fd);

/* Note that fd is being read. Return a number for reading_noted; -1: nothing was noted. */
int reading_note(int fd, uint64_t elf_off, const char *path);
/* The same, if the facts are already known. */
int reading_note_known(const struct reading_file *file);
void reading_noted(int number);

/*
 * Note that work begins, or ends, that never takes long. The supervisor ends a worker that is busy for
 * half a minute. One thread only may call.
 */
void reading_busy(bool busy);

/* Note that a recording goes on, whether events come or not. */
void reading_beat(void);

/* Note that a sample is being walked; 0: no more. Return false if a worker died over it. */
bool reading_sample(uint64_t number);

#endif
