/*
 * unwinder/walk/history.c: the walk history: stores each thread's last walk, so that the next one can
 * reuse its outermost frames.
 */
#include "unwinder/walk/history.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/growth.h"
#include "base/hash.h"
#include "unwinder/walk/space.h"
#include "unwinder/walk/walk.h"

/*
 * Recording and comparing cost a third of what a reused frame saves, in the walk and in the
 * caller's work on the frame together. A thread whose captured bytes end at varying places (8 KiB
 * of a deep stack) is seldom where it was. After FRUITLESS walks in a row that did not pay, such a
 * thread is walked plainly, and tried again after REST walks.
 */
#define FRUITLESS	   3
#define REST		   12
#define PAYS_OFF(taken, n) ((taken) >= (n) / 4)

/* One thread's last walk. The three arrays are one block: frames, records, users. */
struct last_walk {
	uint64_t key;
	uint32_t id;			 /* position in the history's array */
	struct last_walk *newer, *older; /* list by last use */
	uint64_t space, mask, code_mask;
	enum uw_stop stop;
	uint64_t stop_addr;
	unsigned int fruitless; /* times in a row that comparing did not pay */
	unsigned int rest;	/* walks left without comparing */
	size_t n, room;
	struct uw_frame *frames; /* outermost first, like records and users */
	struct uw_record *records;
	uint32_t *users;
};

struct uw_history {
	size_t max_bytes, bytes;
	struct last_walk **all; /* in no order */
	size_t n, room;
	struct uw_hash_index by_key;
	struct last_walk *newest, *oldest;
	struct uw_record *records; /* of the walk under way */
	size_t max_frames;
	struct uw_walking walking;
};

#define FRAME_BYTES (sizeof(struct uw_frame) + sizeof(struct uw_record) + sizeof(uint32_t))

/* Return what a history entry with room for so many frames takes. */
static size_t bytes_of(size_t room)
{
	return sizeof(struct last_walk) + room * FRAME_BYTES;
}

int uw_history_new(size_t max_frames, size_t max_bytes, struct uw_history **out)
{
	struct uw_history *history = calloc(1, sizeof(*history));

	if (history)
		history->records = calloc(max_frames ? max_frames : 1, sizeof(*history->records));
	if (!history || !history->records) {
		free(history);
		return -ENOMEM;
	}
	history->max_frames = max_frames;
	history->max_bytes = max_bytes;
	*out = history;
	return 0;
}

void uw_history_free(struct uw_history *history)
{
	if (!history)
		return;
	uw_history_forget(history);
	uw_hash_fini(&history->by_key);
	free(history->all);
	free(history->records);
	free(history);
}

/* ---- threads, by last use ------------------------------------------------------------- */

static void unlink_walk(struct uw_history *history, struct last_walk *last)
{
	*(last->newer ? &last->newer->older : &history->newest) = last->older;
	*(last->older ? &last->older->newer : &history->oldest) = last->newer;
}

/* Insert an entry, which is in no list, as the newest. */
static void make_newest(struct uw_history *history, struct last_walk *last)
{
	last->newer = NULL;
	last->older = history->newest;
	*(history->newest ? &history->newest->newer : &history->oldest) = last;
	history->newest = last;
}

/* Free an entry. The last one of the array fills its place. */
static void drop(struct uw_history *history, struct last_walk *last)
{
	struct last_walk *moved = history->all[--history->n];

	uw_hash_remove(&history->by_key, uw_hash_u64(last->key), last->id);
	if (moved != last) {
		uw_hash_renumber(&history->by_key, uw_hash_u64(moved->key), moved->id, last->id);
		moved->id = last->id;
		history->all[last->id] = moved;
	}
	unlink_walk(history, last);
	history->bytes -= bytes_of(last->room);
	free(last->frames);
	free(last);
}

void uw_history_forget(struct uw_history *history)
{
	while (history->oldest)
		drop(history, history->oldest);
}

/* Add an entry for a thread that has none. NULL: no memory. */
static struct last_walk *add(struct uw_history *history, uint64_t key)
{
	struct last_walk *last;

	if (UW_ARRAY_GROW(history->all, history->n, history->room, UW_HASH_NONE))
		return NULL;
	last = calloc(1, sizeof(*last));
	if (!last || uw_hash_add(&history->by_key, uw_hash_u64(key), (uint32_t)history->n)) {
		free(last);
		return NULL;
	}
	last->key = key;
	last->id = (uint32_t)history->n;
	history->all[history->n++] = last;
	history->bytes += bytes_of(0);
	return last;
}

/* Return the thread's entry as the newest, a new one if there is none. NULL: no memory. */
static struct last_walk *find(struct uw_history *history, uint64_t key)
{
	uint32_t id =
		UW_HASH_FIND(i, &history->by_key, uw_hash_u64(key), history->all[i]->key == key);
	struct last_walk *last = id == UW_HASH_NONE ? add(history, key) : history->all[id];

	if (last && id != UW_HASH_NONE)
		unlink_walk(history, last);
	if (last)
		make_newest(history, last);
	return last;
}

/*
 * Make room for n frames, of which the first n_old stay. The oldest entries of other threads are
 * dropped to stay within max_bytes. False: there is no room.
 */
static bool reserve(struct uw_history *history, struct last_walk *last, size_t n, size_t n_old)
{
	size_t room = last->room ? last->room : 32;
	struct uw_frame *frames;
	struct uw_record *records;
	uint32_t *users;

	if (n > last->room) {
		while (room < n)
			room += room / 2;
		frames = malloc(room * FRAME_BYTES);
		if (!frames)
			return false;
		records = (struct uw_record *)(frames + room);
		users = (uint32_t *)(records + room);
		if (n_old) {
			memcpy(frames, last->frames, n_old * sizeof(*frames));
			memcpy(records, last->records, n_old * sizeof(*records));
			memcpy(users, last->users, n_old * sizeof(*users));
		}
		free(last->frames);
		history->bytes += (room - last->room) * FRAME_BYTES;
		last->frames = frames;
		last->records = records;
		last->users = users;
		last->room = room;
	}
	while (history->bytes > history->max_bytes && history->oldest != last)
		drop(history, history->oldest);
	return history->bytes <= history->max_bytes;
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
static inline bool read_u64(const struct uw_thread *thread, const struct uw_region *near,
			    uint64_t addr, uint64_t *out)
{
	uint64_t at = addr - near->addr;

	if (near->size < 8 || at > near->size - 8)
		return !uw_memory_read(thread->ctx, addr, out, 8);
	memcpy(out, near->bytes + at, 8);
	return true;
}

/* Return whether the walk would end as the last one did if it came to its outermost frame. */
static bool ends_alike(const struct last_walk *last, const struct uw_thread *thread,
		       const struct uw_region *near)
{
	const struct uw_record *record = last->records;
	uint64_t value;

	if (record->flags & UW_RECORD_ROOT)
		return true;
	/* A file's bytes at that address have not changed, because the space has not. */
	if (record->flags & UW_RECORD_MISSING)
		return !read_u64(thread, near, record->ra_at, &value);
	return last->stop == UW_STOP_GUESS_ENDED && read_u64(thread, near, record->ra_at, &value) &&
	       !(value & last->mask);
}

/* Count the outermost frames for which all words that the last walk read are unchanged. */
static size_t count_equal(const struct last_walk *last, const struct uw_thread *thread)
{
	struct uw_region near;
	size_t i;

	if (!last->n || !(last->records->flags & UW_RECORD_HOT))
		return 0;
	near = around(thread, last->frames->sp);
	if (!ends_alike(last, thread, &near))
		return 0;
	for (i = 1; i < last->n; i++) {
		const struct uw_record *record = &last->records[i];
		uint64_t value;

		if (!(record->flags & UW_RECORD_HOT) ||
		    !read_u64(thread, &near, record->ra_at, &value) ||
		    (value & last->mask) != last->frames[i - 1].pc)
			break;
		if (record->flags & UW_RECORD_FP &&
		    (!read_u64(thread, &near, record->fp_at, &value) ||
		     value != last->records[i - 1].fp))
			break;
	}
	return i;
}

/* ---- walking ---------------------------------------------------------------------------- */

/* Walk without the history. */
static void walk_plain(struct uw_worker *worker, const struct uw_job *job,
		       struct uw_incremental *out)
{
	uw_walk(job->space, worker, job->thread, job->stack);
	*out = (struct uw_incremental){ .n_taken = 0 };
}

void uw_walk_incremental(struct uw_history *history, uint64_t key, struct uw_worker *worker,
			 const struct uw_job *job, struct uw_incremental *out)
{
	struct uw_stack *stack = job->stack;
	struct uw_walking *w = &history->walking;
	struct last_walk *last = NULL;
	uint64_t space = uw_space_id(job->space);
	size_t taken = 0, compared, n;

	if (job->thread->read == uw_memory_read && stack->max_frames <= history->max_frames)
		last = find(history, key);
	if (!last) {
		walk_plain(worker, job, out);
		return;
	}
	if (last->space != space || last->code_mask != job->thread->code_mask)
		last->n = 0;
	if (last->rest) {
		last->rest--;
		last->n = 0;
		walk_plain(worker, job, out);
		return;
	}
	compared = last->n;
	w->records = history->records;
	w->reuse = (struct uw_reuse){ .frames = last->frames,
				      .records = last->records,
				      .n = count_equal(last, job->thread) };
	w->reuse.sp = w->reuse.n ? last->frames[w->reuse.n - 1].sp : UINT64_MAX;
	if (uw_walk_recording(w, worker, job)) {
		taken = w->reuse.n;
		stack->stop = last->stop;
		stack->stop_addr = last->stop_addr;
	}
	n = taken + stack->n_frames;
	if (!reserve(history, last, n, taken)) {
		drop(history, last);
		walk_plain(worker, job, out);
		return;
	}
	/* This walk came to the frame in another way than the last one. */
	if (taken)
		memcpy(&last->frames[taken - 1].stepper, &w->reuse.how, sizeof(w->reuse.how));
	for (size_t i = 0; i < stack->n_frames; i++) {
		last->frames[n - 1 - i] = stack->frames[i];
		last->records[n - 1 - i] = history->records[i];
	}
	if (compared)
		last->fruitless = PAYS_OFF(taken, n) ? 0 : last->fruitless + 1;
	if (compared && last->fruitless >= FRUITLESS)
		last->rest = REST;
	last->n = n;
	last->space = space;
	last->mask = w->mask;
	last->code_mask = job->thread->code_mask;
	last->stop = stack->stop;
	last->stop_addr = stack->stop_addr;
	*out = (struct uw_incremental){
		.n_taken = taken, .n = n, .frames = last->frames, .users = last->users
	};
}
