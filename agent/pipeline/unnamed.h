/*
 * agent/pipeline/unnamed.h: measures how much of a profile is in functions of files without
 * symbols.
 */
#ifndef AGENT_PIPELINE_UNNAMED_H
#define AGENT_PIPELINE_UNNAMED_H

#include "agent/pipeline/names.h"
#include "agent/pipeline/profile.h"
#include "agent/source/source.h"

enum { UNNAMED_FILES = 256 }; /* how many files are counted separately */

struct unnamed_file {
	char *path;	/* as the process saw it; owned */
	bool own;	/* the process sees the same file tree as this program */
	uint64_t inode; /* 0: not reported */
	uint64_t value;
};

struct unnamed {	/* all zero: empty */
	char what[128]; /* the event's name; "": time */
	uint64_t whole; /* sum of the first event's values */
	uint64_t value; /* … of samples whose innermost frame is in such a function */
	bool unsure;	/* names are missing for other reasons, too */
	struct unnamed_file *files;
	size_t n_files;
};

/*
 * Add a profile's samples of its first event. Frames in the kernel, in generated code and in files
 * that do not exist count as named. So does everything in a recording of another host: installing
 * symbols here would not name it.
 */
void unnamed_add(struct unnamed *unnamed, const struct profile *profile, struct names *names,
		 const struct source_info *info);
void unnamed_fini(struct unnamed *unnamed);

#endif
