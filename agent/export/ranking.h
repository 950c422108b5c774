/*
 * agent/export/ranking.h: what a profile's values add up to, by function, by file, by process …
 *
 * self is what samples had innermost, total what they had anywhere; recursion counts once.
 */
#ifndef AGENT_EXPORT_RANKING_H
#define AGENT_EXPORT_RANKING_H

#include "agent/export/stacks.h"

enum ranking_by {
	RANKING_SYMBOL, /* function and module */
	RANKING_MODULE,
	RANKING_SOURCE,	   /* source file */
	RANKING_PID,	   /* a process and its name */
	RANKING_COMM,	   /* names of processes */
	RANKING_THREAD,	   /* a thread and its name */
	RANKING_CONTAINER, /* "-": outside of any */
	RANKING_STOP,	   /* how stacks ended */
};

struct ranking_row {
	const char *name;  /* the ranking's */
	const char *where; /* module; of a process its number, of a thread "PID/TID"; "" */
	int64_t self, total;
	int64_t base_self, base_total; /* of what is compared with */
	size_t last;		       /* for counting */
};

struct ranking { /* all zero: empty */
	enum ranking_by by;
	bool outside; /* self is of the innermost function outside the scheduler, the allocator */
	struct ranking_row *rows;
	size_t n_rows, room_rows;
	int64_t total, base_total;
	struct strings texts;
	struct hash_index by_name;
	size_t n_counted;
};

/* Adds a profile's samples, of all profiles together; -ENOMEM. */
int ranking_add(struct ranking *ranking, const struct stacks *stacks, size_t type);
/* Only samples with that number as label key; key NULL: all. */
int ranking_add_of(struct ranking *ranking, const struct stacks *stacks, size_t type,
		   const char *key, int64_t number);
void ranking_fini(struct ranking *ranking);

enum ranking_order {
	RANKING_BY_SELF,
	RANKING_BY_TOTAL,
	RANKING_BY_NAME,
	RANKING_BY_CHANGE,	 /* of self, as shares of the whole, whatever its sign */
	RANKING_BY_TOTAL_CHANGE, /* of total */
};
void ranking_sort(struct ranking *ranking, enum ranking_order order);

/* part of whole in percent, 0 of nothing. */
double ranking_percent(int64_t part, int64_t whole);

#endif
