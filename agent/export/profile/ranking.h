/*
 * agent/export/profile/ranking.h: adds up a profile's values by function, by file, by process and so on.
 *
 * self is the value of samples whose innermost frame has the row's key, total that of samples with
 * any such frame; recursion counts once.
 */
#ifndef AGENT_EXPORT_PROFILE_RANKING_H
#define AGENT_EXPORT_PROFILE_RANKING_H

#include "agent/export/profile/stacks.h"

enum ranking_by {
	RANKING_SYMBOL, /* function and module */
	RANKING_MODULE,
	RANKING_SOURCE,	   /* source file */
	RANKING_PID,	   /* process with its name */
	RANKING_COMM,	   /* name of the process */
	RANKING_THREAD,	   /* thread with its name */
	RANKING_CONTAINER, /* "-": in no container */
	RANKING_STOP,	   /* reason why the stack ended */
	RANKING_UNIT,	   /* of systemd; "-": none, as for those that follow */
	RANKING_SERVICE,   /* service.name, which the program itself states */
	RANKING_EXE,	   /* the program's file */
	RANKING_USER,
	RANKING_HOST,
	RANKING_WAKER, /* the thread that ended a wait; "-": none, not known */
};

/* Return the label by whose values samples are added up; NULL: their frames are. */
const char *ranking_label(enum ranking_by by);

struct ranking_row {
	const char *name;  /* owned by the ranking */
	const char *where; /* module; for a process "PID", for a thread "PID/TID"; else "" */
	int64_t self, total;
	int64_t base_self, base_total; /* of the base to compare with */
};

struct ranking { /* all zero: empty */
	enum ranking_by by;
	bool outside; /* self skips the scheduler, the allocator (inner.h) */
	struct ranking_row *rows;
	size_t n_rows, room_rows;
	int64_t total, base_total;
	struct strings texts;
	struct uw_hash_index by_name;
};

/* Add the samples of a profile; a ranking may add up several. -ENOMEM. */
int ranking_add(struct ranking *ranking, const struct stacks *stacks, size_t type);
/* Do the same, but only for samples whose label `key` is this number. key NULL: all samples. */
int ranking_add_of(struct ranking *ranking, const struct stacks *stacks, size_t type,
		   const char *key, int64_t number);
void ranking_fini(struct ranking *ranking);

enum ranking_order {
	RANKING_BY_SELF,
	RANKING_BY_TOTAL,
	RANKING_BY_NAME,
	RANKING_BY_CHANGE,	 /* by the change of self's share of the whole, whatever its sign */
	RANKING_BY_TOTAL_CHANGE, /* by the change of total's share */
};
/*
 * Sort the rows in descending order of the values, or by name. After this, no more samples can be
 * added.
 */
void ranking_sort(struct ranking *ranking, enum ranking_order order);

/* Return part of whole in percent; 0 if whole is 0. */
double ranking_percent(int64_t part, int64_t whole);

#endif
