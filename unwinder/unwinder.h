/*
 * unwinder/unwinder.h: the public interface of liboffwind.
 *
 * The library takes unwind sections, registers and captured memory, and returns
 * stack frames. It never opens a path, prints or exits. Its only mutable global
 * state is two counters that number objects and spaces, the limits and how often
 * they were reached (unwinder/limits.h), and what threads hold (uw_unpack_unless).
 * A sample can be unwound on any host: an x86_64 sample on an aarch64 machine, for example.
 *
 * Addresses: `pc` is where a thread is, `ra` is a return address, `lookup` is the
 * address to look up rules and symbols with (pc, or ra - 1), `vaddr` is an address
 * as the ELF file states it, `off` is an offset in the file, `bias` is run-time
 * address - vaddr, `cfa` is the canonical frame address (DWARF 5 §6.4).
 *
 * Errors: functions that can fail return 0 or a negative errno value, and leave
 * their result untouched on failure. -EINVAL means a mistake of the caller,
 * -ENOENT that there is nothing there, -EBADMSG damaged input, -ENOTSUP valid
 * input that the library does not handle, -EFAULT memory that was not captured.
 * -ENOMEM and other system errors are passed on unchanged.
 *
 * Threads: objects do not change for their users and have an atomic reference
 * count, so any number of threads may share one. A space and a worker may be used
 * by one thread at a time.
 */
#ifndef UNWINDER_UNWINDER_H
#define UNWINDER_UNWINDER_H

/* Files. */
#include "unwinder/file_bytes.h"
#include "unwinder/limits.h"
#include "unwinder/objects.h"

/* Processes: what is mapped, what they registered, their threads. */
#include "unwinder/registered.h"
#include "unwinder/spaces.h"
#include "unwinder/threads.h"

/* Walks and what they find. */
#include "unwinder/explained.h"
#include "unwinder/frames.h"
#include "unwinder/walks.h"

/* Single frames by callbacks, and whole processes. */
#include "unwinder/cursor.h"
#include "unwinder/walker.h"

#endif
