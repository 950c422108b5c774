/*
 * agent/export/writer.h: a thread that names and writes profiles, so that capture never waits for
 * symbols or a disk.
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
	struct store *store;		/* store of symbols; borrowed; NULL: none */
	bool demangle;
	bool lines, inlined; /* see names_lines */
	enum format format;
	const char *type;      /* sample type to show; NULL: the default */
	const char *directory; /* directory of windows, offwind-TIME.pb.gz; NULL: write path */
	const char *path;
	/*
	 * Take each result, in an unnamed file at fd, instead of writing it to directory or path; NULL:
	 * not so. A failure is reported by take.
	 */
	int (*take)(void *ctx, const struct profile *profile, int fd);
	void *take_ctx;
	/* All profiles are added to it; borrowed until writer_finish(); or NULL. */
	struct unnamed *unnamed;
	uint32_t keep; /* how many windows to leave in directory, the newest; 0: all */
};

/* Start the thread. The options are copied. */
int writer_new(const struct writer_options *options, struct writer **out);

/* Queue a profile; takes ownership of it. This waits only while a dozen others are queued. */
void writer_put(struct writer *writer, struct profile *profile);

/*
 * Wait until all queued profiles are written, and free the writer. n_written and n_failed may be
 * NULL. Failures were reported when they happened.
 */
void writer_finish(struct writer *writer, uint64_t *n_written, uint64_t *n_failed);

#endif
