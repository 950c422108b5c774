/*
 * agent/export/writer.h: names and writes profiles in a thread of its own, so
 * that capture never waits for symbols or a disk.
 */
#ifndef AGENT_EXPORT_WRITER_H
#define AGENT_EXPORT_WRITER_H

#include "agent/export/formats.h"
#include "agent/pipeline/profile.h"
#include "agent/pipeline/unnamed.h"
#include "agent/source/source.h"

struct writer;
struct opener;
struct store;

struct writer_options {
	const struct source_info *info; /* borrowed; must not change while the writer lives */
	struct opener *opener;		/* borrowed */
	struct store *store;		/* for symbols; borrowed; NULL: none */
	bool demangle;
	bool lines, inlined; /* see names_lines */
	enum format format;
	const char *type;   /* sample type to show; NULL: by default */
	const char *folder; /* profiles by window: offwind-TIME.pb.gz in here; NULL: write path */
	const char *path;
	struct unnamed *
		unnamed; /* all profiles are added to it; borrowed until the writer is finished; NULL */
	uint32_t keep; /* most windows left in folder, the oldest go first; 0: all */
};

int writer_new(const struct writer_options *options, struct writer **out);

/* Takes the profile over.  Waits only while a dozen others are queued. */
void writer_put(struct writer *writer, struct profile *profile);

/*
 * Waits for the last one to be written and frees the writer; n_written and
 * n_failed may be NULL.  What failed was reported as it happened.
 */
void writer_finish(struct writer *writer, uint64_t *n_written, uint64_t *n_failed);

#endif
