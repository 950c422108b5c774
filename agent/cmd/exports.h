/*
 * agent/cmd/exports.h: the settings of the daemon that say where windows are sent: sections
 * [export KIND] or [export KIND NAME], and --export KIND=URL.
 */
#ifndef AGENT_CMD_EXPORTS_H
#define AGENT_CMD_EXPORTS_H

#include "agent/send/target.h"

struct export
{
	struct target target; /* but for its token, which is read when the daemon begins */
	int line;	      /* of the section's first setting; 0: of the command line */
	char *token_file;     /* owned; NULL: none */
	int token_line;
};

struct exports {
	struct export all[SENDING_TARGETS];
	size_t n;
};

/* Return whether a section is one of these. */
bool exports_is_section(const char *section);
/* Take a setting of such a section. Return 0, or a negative code after reporting what is wrong. */
int exports_take(struct exports *e, const char *section, const char *name, const char *value,
		 int line);
/* Take the argument of --export. Return 0, or a negative code after reporting what is wrong. */
int exports_add(struct exports *e, const char *text);
/* Return -EINVAL after reporting what a section lacks, else 0. */
int exports_check(const struct export *e);
/* Move what file has to e, but for those whose names e has. */
void exports_move(struct exports *e, struct exports *file);
bool exports_are_same(const struct exports *a, const struct exports *b);
void exports_fini(struct exports *e);

#endif
