/*
 * agent/live/system/pin.h: holds files open from the moment they are executed.
 *
 * If a program is deleted as it starts and ends at once, no file can be opened any more when its
 * mapping is reported. But the kernel's notice of the exec holds the file in its queue
 * (fanotify(7), FAN_OPEN_EXEC), and reading the notice opens the file. A file is held for a few
 * seconds only, because a deleted file occupies disk space as long as it is open. While a file is
 * held, the kernel need not report further executions of it; every few seconds all notices are
 * turned on again.
 */
#ifndef AGENT_LIVE_SYSTEM_PIN_H
#define AGENT_LIVE_SYSTEM_PIN_H

#include <stddef.h>
#include <stdint.h>

struct live_pins;

/*
 * Start holding executed files, on local file systems only: opening a file on another one may wait
 * forever. -EPERM without CAP_SYS_ADMIN; -ENOTSUP: no file system can be watched.
 */
int live_pins_new(struct live_pins **out);   /* -EPERM without CAP_SYS_ADMIN, … */
void live_pins_free(struct live_pins *pins); /* NULL is fine */

/* Watch the file system of a directory (O_PATH), too, if it is a local one. Failures are ignored. */
void live_pins_watch(struct live_pins *pins, int directory);

void live_pins_drain(struct live_pins *pins, uint64_t now_ns); /* reads the notices */

/*
 * Hold a file in memory (memfd) that is mapped at this place. The kernel sends no notice when such
 * a file is executed, and the process may end before the mapping is delivered. Failures are
 * ignored.
 */
void live_pins_hold(struct live_pins *pins, uint32_t pid, uint64_t start, uint64_t end,
		    uint64_t now_ns);

/* Return a new descriptor of a held file; the caller closes it. -ENOENT: the file is not held. */
int live_pins_open(struct live_pins *pins, uint32_t major, uint32_t minor, uint64_t inode, int *fd);

#endif
