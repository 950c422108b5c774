/* agent/history/history_reading.h: what the files share that read a range of time into a profile. */
#ifndef AGENT_HISTORY_HISTORY_READING_H
#define AGENT_HISTORY_HISTORY_READING_H

#include "agent/history/history_internal.h"

enum { HISTORY_TYPES = 1024 }; /* sample types that a history can have */

/* A row whose contents are in the profile already. */
struct loaded {
	int64_t row;
	uint32_t index; /* in the profile; of labels: of their first in label_ids */
	uint32_t n;	/* of labels */
};

struct loaded_rows {
	struct loaded *rows;
	size_t n, room;
	struct uw_hash_index by_row;
};

/*
 * What is known of a node, and its place in the tree of all stacks: together, as all of it is needed at about the same
 * time, and each node lies somewhere else in memory. Of 16 bytes, so that none lies in two of the CPU's cache lines.
 * Nodes are told by their index in the cache + 1; 0: there is none.
 */
struct node_use {
	uint32_t location : 31; /* in the profile, + 1; 0: not loaded */
	uint32_t repeated : 1;	/* the parent has another child with this location */
	uint32_t sum;		/* the first one of the node: index in sums + 1; 0: there is none */
	uint32_t child;		/* the first */
	uint32_t beside; /* the next child of the parent; LAST_CHILD; 0: it is not in the tree */
};

enum { LAST_CHILD = UINT32_MAX };

/* What samples have in common that are counted together. */
struct sum_key {
	uint64_t labels, time_ns;
	uint64_t node : 63;
	uint64_t cut : 1; /* the stacks go on below the node (history_cut) */
	uint32_t pid, tid;
};

/* Samples that are counted together. The values are beside what they are found by: both are one place in memory. */
struct sum {
	struct sum_key key;
	int64_t values[]; /* of the profile's types */
};

/*
 * Samples to be counted. What is known of their sum lies at a random place in memory; several are looked for
 * together, so that the CPU waits for these places at the same time.
 */
struct pending {
	struct sum_key key;
	uint64_t hash; /* of the key, if not only the stack matters; else of nothing */
	size_t place;  /* in stack_sums; SIZE_MAX: not known yet */
	uint32_t at;   /* the sum that is probably theirs: its index; UW_HASH_NONE: not known */
	uint32_t n_values;
	struct {
		size_t type; /* index in the profile */
		int64_t value;
	} values[HISTORY_VALUES];
};

enum { PENDING = 32 };

struct counting; /* a thread that counts samples: history_count.c */

struct reading {
	struct history *h;
	const struct history_query *q;
	struct stacks *s;
	struct history_found *found;
	struct history_bounds bounds;
	bool careful; /* go through each window and its stacks before it is used: one is damaged */
	int64_t *type_of; /* by row in types: index + 1 in the profile; 0: there is no such row */
	size_t n_types;	  /* room of type_of */
	void *sums;	  /* history_sum_at */
	size_t sum_size, n_sums, room_sums; /* sum_size: bytes of each, with its values */
	struct uw_hash_index by_sum;
	/*
	 * Of samples without labels and times: by index in the cache of nodes, index in sums + 1; 0:
	 * none. They are apart from uses, so that what each group of samples asks for is small.
	 */
	uint32_t *stack_sums;
	size_t n_stack_sums;
	uint32_t sum_without_frames; /* index + 1 */
	/*
	 * Samples to be counted, and for how many there is room. They are in cache lines of their own: a thread that counts
	 * uses what is above.
	 */
	_Alignas(64) struct pending *pending;
	size_t n_pending, most_pending;
	struct pending few[PENDING];	    /* where they are without a thread */
	uint64_t n_counted;		    /* samples that were counted without one */
	struct counting *counting;	    /* NULL: there is none */
	_Alignas(64) struct node_use *uses; /* as the cache of nodes */
	size_t n_uses;
	uint32_t *frames, *functions; /* as the caches of rows: index in the profile + 1 */
	size_t n_frames, n_functions;
	struct loaded_rows modules, labels;
	uint32_t *label_ids; /* of all rows in labels */
	size_t n_label_ids, room_label_ids;
	struct stacks_label pid, tid, time; /* without their numbers */
	uint32_t *ids;			    /* of one sample */
	size_t room_ids;
	struct {
		const char *from, *to;
	} file;			   /* of the last function: as it is cached, and in the profile */
	struct stacks_line *lines; /* of one location */
	size_t room_lines;
	uint32_t cut_location; /* HISTORY_CUT, if there are sums that are cut */
};

/* ---- history_sums.c: samples that are counted together ---- */

static inline struct sum *history_sum_at(const struct reading *r, size_t index)
{
	return (struct sum *)((char *)r->sums + index * r->sum_size);
}

/* Those of a group's samples, in the order of their times, that are counted. */
struct sum_part {
	uint64_t from, to, n; /* to is not included; n is how many the group has */
	uint64_t time_ns;     /* 0: times do not matter */
};

/* Count a part of a group's samples; they are pending until history_sum_pending. -EBADMSG: a value has no type. */
int history_sum_add(struct reading *r, const struct history_sample *g,
		    const struct sum_part *share);
/* Count the samples that are pending, and all before them. */
int history_sum_pending(struct reading *r);
/* Count n samples. */
int history_sum_these(struct reading *r, struct pending *pending, size_t n);
/* Count sums together that have become equal. */
int history_sums_merge(struct reading *r);
/* Forget what was added. */
void history_sums_forget(struct reading *r);
void history_sums_fini(struct reading *r);

/* ---- history_count.c: samples are counted in a thread of its own, while others are read ---- */

/*
 * Begin to count in a thread: r->pending is the first batch then, with room for r->most_pending. Until history_count_end only
 * that thread uses the sums. Without a thread nothing changes.
 */
void history_count_begin(struct reading *r);
/* Give the thread the samples that are pending; r->pending is the next batch. Return the thread's error. */
int history_count_give(struct reading *r);
/* Let it count what it was given, and wait until it has ended. Return its error; 0 if there is none. */
int history_count_end(struct reading *r);

/* ---- history_load.c: what samples refer to ---- */

/* Make *known large enough for an index in a cache of rows; what is new is 0. */
int history_reserve_known(uint32_t **known, size_t *n, size_t index);
/* Load a frame: *out is its location in the profile. */
int history_load_frame(struct reading *r, int64_t row, uint32_t *out);
/* Find a node in the cache, and make room for what is known of it. */
int history_find_node(struct reading *r, int64_t row, size_t *index);
/* Forget what is known of nodes. */
void history_forget_nodes(struct reading *r);
/* Give the parent of a node, as its index in the cache + 1; 0: the node is outermost. */
int history_find_parent(struct reading *r, size_t index, uint32_t *out);
/* Load the location of a node. */
int history_load_node(struct reading *r, size_t index);
/* Look whether all nodes and frames of a stack are there. -EBADMSG: they are not. */
int history_check_stack(struct reading *r, int64_t row);
/* Let the profile have all sample types of the history, in any order if it has some already. */
int history_load_types(struct reading *r);
/* Prepare the labels that have columns of their own. */
int history_make_labels(struct reading *r);
/* Put the labels of a sum behind the n ids that there are. */
int history_put_labels(struct reading *r, const struct sum_key *sum, uint32_t *n);
void history_load_fini(struct reading *r);

/* ---- history_cut.c: the smallest stacks together ---- */

/* Move sums that have less than one of query.parts of all to the first caller that has more. */
int history_cut(struct reading *r);

/* ---- history_tree.c: the stacks in their order ---- */

/* The stacks of all sums as a tree, which is in uses. */
struct history_tree {
	uint32_t *next; /* by sum: the next one of its node: index in sums + 1; 0: there is none */
	uint32_t alone; /* as next: the first sum without a node */
	uint32_t outermost; /* the first node without a parent */
};

/* Free what it has; all zero is fine. */
void history_tree_free(struct history_tree *t);
/* Make the tree. Nothing is added to the profile but frames. */
int history_tree_make(struct reading *r, struct history_tree *t);
/*
 * Add all sums: those without a stack, then callers before what they call. So each has the most in common with the
 * one before.
 */
int history_tree_add(struct reading *r, const struct history_tree *t);

#endif
