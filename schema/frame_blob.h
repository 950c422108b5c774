/*
 * schema/frame_blob.h: frames of the history, as the column frame_pages.frames has them.
 *
 * All numbers are LEB128, those marked with "signed" SLEB128. The blob has up to FRAMES_IN_PAGE frames, in the order of
 * their ids, without gaps:
 *
 *   frame    2 × number of bytes in lines + 1, or + 2 if there is a variant
 *            how far the module's id is above that of the frame before (signed; first frame: the id)
 *            how far the address is above that of the last frame in this page with the same module (signed; if there
 *            is none: the address)
 *            the variant, if there is one
 *            lines: pairs of function (id) and line, the innermost inlined call first
 *   deleted  0, how many frames are not there
 *
 * Neighbours come from one stack, so most of them take about ten bytes; a row of their own took 22.
 */
#ifndef SCHEMA_FRAME_BLOB_H
#define SCHEMA_FRAME_BLOB_H

enum { FRAMES_IN_PAGE = 64 };

#endif
