/*
 * agent/source/live_pin.h: files held open from the moment they are executed.
 *
 * A program that is deleted as it starts and ends at once leaves nothing that
 * could be opened when its mapping is told.  The kernel's notice of the exec holds
 * the file in its queue (fanotify(7), FAN_OPEN_EXEC); reading the notice opens it.
 * Held for a few seconds only, since a deleted file keeps its room on disk so long.
 * What is executed again meanwhile is held already: the kernel need not tell of it, until
 * notices are wanted anew every few seconds.
 */
#ifndef AGENT_SOURCE_LIVE_PIN_H
#define AGENT_SOURCE_LIVE_PIN_H

#include <stddef.h>
#include <stdint.h>

struct live_pins;

/* Local file systems only: opening a file of others may wait for ever. */
int live_pins_new(struct live_pins **out);   /* -EPERM without CAP_SYS_ADMIN, … */
void live_pins_free(struct live_pins *pins); /* NULL is fine */

/* What is executed on the file system that path is on, too; failing is no error. */
void live_pins_watch(struct live_pins *pins, const char *path);

void live_pins_drain(struct live_pins *pins, uint64_t now_ns); /* takes in what was executed */

/*
 * Holds a file in memory that was mapped there, which nobody tells when it is executed:
 * its process may end before the mapping's turn comes.  Failing is no error.
 */
void live_pins_hold(struct live_pins *pins, uint32_t pid, uint64_t start, uint64_t end,
		    uint64_t now_ns);

/* A descriptor of its own, the caller's; -ENOENT. */
int live_pins_open(struct live_pins *pins, uint32_t major, uint32_t minor, uint64_t inode, int *fd);

#endif
