/*
 * schema/window_blob.h: the samples of a window of the history, as the column windows.samples has them.
 *
 * All numbers are LEB128, those marked with "signed" SLEB128. After the header come groups of equal
 * samples, sorted by labels, pid, tid and node. At level 0, the samples of a group have equal values, too;
 * older versions of offwind gave such a group the sum of different values. Each number marked with "Δ" is
 * the difference from the same field of the group before, which for the first group is 0.
 *
 *   header   version (WINDOW_BLOB_VERSION), level (as windows.level)
 *   group    head: WINDOW_OTHER_THREAD and WINDOW_OTHER_VALUES, or 0 for each; above these bits,
 *            without WINDOW_OTHER_THREAD, Δ node
 *            WINDOW_OTHER_THREAD: Δ labels (id), Δ pid (signed), Δ tid (signed), Δ node (id, signed; 0: no frames)
 *            WINDOW_OTHER_VALUES: 0: values of the same types as the group before; else their number + 1, and the
 *            types (ids); of each type, the Δ sum of the samples' values (signed; of a type that the group before
 *            does not have at this position: the sum)
 *            else: values of the same types as the group before; the first one (signed; if there is one). Each other
 *            one is a multiple of it, as many times as in the last group with WINDOW_OTHER_VALUES
 *            at level 0: number of times, and of each the milliseconds since the window's start, after
 *            the first the difference from the time before
 *
 * So a group is mostly its node and a number of samples: the other values, such as CPU time, are as many periods. Version 1
 * has no heads: each group has what both bits stand for.
 *
 * pid and tid are 0 where threads are not told apart (level 2).
 */
#ifndef SCHEMA_WINDOW_BLOB_H
#define SCHEMA_WINDOW_BLOB_H

#define WINDOW_BLOB_VERSION 2
#define WINDOW_OTHER_THREAD 1 /* or other labels, or a node far away */
#define WINDOW_OTHER_VALUES 2 /* they are no multiples, or of other types */
#define WINDOW_HEAD_BITS    2
#define WINDOW_TIME_NS	    1000000 /* the unit of times */

#endif
