/*
 * unwinder/walk/history.c: the walk history: stores each thread's last walk, so that the next one can
 * reuse its outermost frames.
 */
#include "unwinder/walk/history.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "unwinder/walk/space.h"
#include "unwinder/walk/walk.h"

/* Threads are in hash chains; a machine has some tens of busy ones. */
#define BUCKETS 256u

/*
 * Recording and comparing cost a third of what a reused frame saves, in the walk and in the
 * caller's work on the frame together. A thread whose captured bytes end at varying places (8 KiB
 * of a deep stack) is seldom where it was. After FRUITLESS walks in a row that did not pay, such a
 * thread is walked plainly, and tried again after REST walks.
 */
#define FRUITLESS	3
#define REST		12
#define WORTH(taken, n) ((taken) >= (n) / 4)

/* One thread's last walk. The three arrays are one block: frames, notes, users. */
struct past {
	uint64_t key;
	struct past *next;	    /* next in the bucket */
	struct past *newer, *older; /* list by last use */
	uint64_t space, mask, code_mask;
	enum uw_stop stop;
	uint64_t stop_addr;
	unsigned int fruitless; /* times in a row that comparing did not pay */
	unsigned int rest;	/* walks left without comparing */
	size_t n, room;
	struct uw_frame *frames; /* outermost first, like notes and users */
	struct uw_note *notes;
	uint32_t *users;
};

struct uw_pasts {
	size_t max_bytes, bytes;
	struct past *buckets[BUCKETS];
	struct past *newest, *oldest;
	struct uw_note *notes; /* of the walk under way */
	size_t max_frames;
	struct uw_walking walking;
};

#define FRAME_BYTES (sizeof(struct uw_frame) + sizeof(struct uw_note) + sizeof(uint32_t))

/* Return what a history entry with room for so many frames takes. */
static size_t bytes_of(size_t room)
{
	return sizeof(struct past) + room * FRAME_BYTES;
}

int uw_pasts_new(size_t max_frames, size_t max_bytes, struct uw_pasts **out)
{
	struct uw_pasts *pasts = calloc(1, sizeof(*pasts));

	if (pasts)
		pasts->notes = calloc(max_frames ? max_frames : 1, sizeof(*pasts->notes));
	if (!pasts || !pasts->notes) {
		free(pasts);
		return -ENOMEM;
	}
	pasts->max_frames = max_frames;
	pasts->max_bytes = max_bytes;
	*out = pasts;
	return 0;
}

void uw_pasts_free(struct uw_pasts *pasts)
{
	if (!pasts)
		return;
	uw_pasts_forget(pasts);
	free(pasts->notes);
	free(pasts);
}

/* ---- threads, by last use ------------------------------------------------------------- */

/* Return the link to the thread's entry, or the link where a new one goes. */
static struct past **place_of(struct uw_pasts *pasts, uint64_t key)
{
	struct past **at = &pasts->buckets[(key * 0x9e3779b97f4a7c15u >> 32) % BUCKETS];

	while (*at && (*at)->key != key)
		at = &(*at)->next;
	return at;
}

static void unlink_past(struct uw_pasts *pasts, struct past *past)
{
	*(past->newer ? &past->newer->older : &pasts->newest) = past->older;
	*(past->older ? &past->older->newer : &pasts->oldest) = past->newer;
}

/* Insert an entry, which is in no list, as the newest. */
static void make_newest(struct uw_pasts *pasts, struct past *past)
{
	past->newer = NULL;
	past->older = pasts->newest;
	*(pasts->newest ? &pasts->newest->newer : &pasts->oldest) = past;
	pasts->newest = past;
}

/* Free an entry. */
static void drop(struct uw_pasts *pasts, struct past *past)
{
	*place_of(pasts, past->key) = past->next;
	unlink_past(pasts, past);
	pasts->bytes -= bytes_of(past->room);
	free(past->frames);
	free(past);
}

void uw_pasts_forget(struct uw_pasts *pasts)
{
	while (pasts->oldest)
		drop(pasts, pasts->oldest);
}

/* Return the thread's entry as the newest, a new one if there is none. NULL: no memory. */
static struct past *find(struct uw_pasts *pasts, uint64_t key)
{
	struct past **at = place_of(pasts, key), *past = *at;

	if (past) {
		unlink_past(pasts, past);
	} else {
		past = calloc(1, sizeof(*past));
		if (!past)
			return NULL;
		past->key = key;
		*at = past;
		pasts->bytes += bytes_of(0);
	}
	make_newest(pasts, past);
	return past;
}

/*
 * Make room for n frames, of which the first `kept` stay. The oldest entries of other threads are
 * dropped to stay within max_bytes. False: there is no room.
 */
static bool reserve(struct uw_pasts *pasts, struct past *past, size_t n, size_t kept)
{
	size_t room = past->room ? past->room : 32;
	struct uw_frame *frames;
	struct uw_note *notes;
	uint32_t *users;

	if (n > past->room) {
		while (room < n)
			room += room / 2;
		frames = malloc(room * FRAME_BYTES);
		if (!frames)
			return false;
		notes = (struct uw_note *)(frames + room);
		users = (uint32_t *)(notes + room);
		if (kept) {
			memcpy(frames, past->frames, kept * sizeof(*frames));
			memcpy(notes, past->notes, kept * sizeof(*notes));
			memcpy(users, past->users, kept * sizeof(*users));
		}
		free(past->frames);
		pasts->bytes += (room - past->room) * FRAME_BYTES;
		past->frames = frames;
		past->notes = notes;
		past->users = users;
		past->room = room;
	}
	while (pasts->bytes > pasts->max_bytes && pasts->oldest != past)
		drop(pasts, pasts->oldest);
	return pasts->bytes <= pasts->max_bytes;
}

/* ---- comparing -------------------------------------------------------------------------- */

/* Return the captured region around sp, where most words are. */
static struct uw_region around(const struct uw_thread *thread, uint64_t sp)
{
	const struct uw_memory *memory = thread->ctx;

	for (size_t i = 0; i < memory->n_regions; i++) {
		const struct uw_region *r = &memory->regions[i];

		if (sp >= r->addr && sp - r->addr < r->size)
			return *r;
	}
	return (struct uw_region){ .size = 0 };
}

/* Read a captured word, first from near. False: it was not captured. */
static inline bool read_word(const struct uw_thread *thread, const struct uw_region *near,
			     uint64_t addr, uint64_t *out)
{
	uint64_t at = addr - near->addr;

	if (near->size < 8 || at > near->size - 8)
		return !uw_memory_read(thread->ctx, addr, out, 8);
	memcpy(out, near->bytes + at, 8);
	return true;
}

/* Return whether the walk would end as the last one did if it came to its outermost frame. */
static bool ends_alike(const struct past *past, const struct uw_thread *thread,
		       const struct uw_region *near)
{
	const struct uw_note *note = past->notes;
	uint64_t word;

	if (note->flags & UW_NOTE_ROOT)
		return true;
	/* A file's bytes at that address have not changed, because the space has not. */
	if (note->flags & UW_NOTE_MISSING)
		return !read_word(thread, near, note->ra_at, &word);
	return past->stop == UW_STOP_GUESS_ENDED && read_word(thread, near, note->ra_at, &word) &&
	       !(word & past->mask);
}

/* Count the outermost frames for which all words that the last walk read are unchanged. */
static size_t count_equal(const struct past *past, const struct uw_thread *thread)
{
	struct uw_region near;
	size_t i;

	if (!past->n || !(past->notes->flags & UW_NOTE_HOT))
		return 0;
	near = around(thread, past->frames->sp);
	if (!ends_alike(past, thread, &near))
		return 0;
	for (i = 1; i < past->n; i++) {
		const struct uw_note *note = &past->notes[i];
		uint64_t word;

		if (!(note->flags & UW_NOTE_HOT) || !read_word(thread, &near, note->ra_at, &word) ||
		    (word & past->mask) != past->frames[i - 1].pc)
			break;
		if (note->flags & UW_NOTE_FP && (!read_word(thread, &near, note->fp_at, &word) ||
						 word != past->notes[i - 1].fp))
			break;
	}
	return i;
}

/* ---- walking ---------------------------------------------------------------------------- */

/* Walk without the history. */
static void walk_plain(struct uw_worker *worker, const struct uw_job *job, struct uw_again *out)
{
	uw_walk(job->space, worker, job->thread, job->stack);
	*out = (struct uw_again){ .n_taken = 0 };
}

void uw_walk_again(struct uw_pasts *pasts, uint64_t key, struct uw_worker *worker,
		   const struct uw_job *job, struct uw_again *out)
{
	struct uw_stack *stack = job->stack;
	struct uw_walking *w = &pasts->walking;
	struct past *past = NULL;
	uint64_t space = uw_space_id(job->space);
	size_t taken = 0, compared, n;

	if (job->thread->read == uw_memory_read && stack->max_frames <= pasts->max_frames)
		past = find(pasts, key);
	if (!past) {
		walk_plain(worker, job, out);
		return;
	}
	if (past->space != space || past->code_mask != job->thread->code_mask)
		past->n = 0;
	if (past->rest) {
		past->rest--;
		past->n = 0;
		walk_plain(worker, job, out);
		return;
	}
	compared = past->n;
	w->notes = pasts->notes;
	w->join = (struct uw_join){ .frames = past->frames,
				    .notes = past->notes,
				    .n = count_equal(past, job->thread) };
	w->join.sp = w->join.n ? past->frames[w->join.n - 1].sp : UINT64_MAX;
	if (uw_walk_noting(w, worker, job)) {
		taken = w->join.n;
		stack->stop = past->stop;
		stack->stop_addr = past->stop_addr;
	}
	n = taken + stack->n_frames;
	if (!reserve(pasts, past, n, taken)) {
		drop(pasts, past);
		walk_plain(worker, job, out);
		return;
	}
	/* This walk came to the frame in another way than the last one. */
	if (taken)
		memcpy(&past->frames[taken - 1].stepper, &w->join.how, sizeof(w->join.how));
	for (size_t i = 0; i < stack->n_frames; i++) {
		past->frames[n - 1 - i] = stack->frames[i];
		past->notes[n - 1 - i] = pasts->notes[i];
	}
	if (compared)
		past->fruitless = WORTH(taken, n) ? 0 : past->fruitless + 1;
	if (compared && past->fruitless >= FRUITLESS)
		past->rest = REST;
	past->n = n;
	past->space = space;
	past->mask = w->mask;
	past->code_mask = job->thread->code_mask;
	past->stop = stack->stop;
	past->stop_addr = stack->stop_addr;
	*out = (struct uw_again){
		.n_taken = taken, .n = n, .frames = past->frames, .users = past->users
	};
}
