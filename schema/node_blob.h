/*
 * schema/node_blob.h: nodes of the history, as the column node_pages.nodes has them.
 *
 * All numbers are LEB128. The blob has up to NODES_IN_PAGE nodes, in the order of their ids, without gaps:
 *
 *   node     frame (id, ≥ 1), how far the parent's id is below this one (0: the frame is outermost)
 *   deleted  0, how many nodes are not there
 *
 * Both numbers of a node have 32 bits, so that a node takes eight bytes of memory.
 */
#ifndef SCHEMA_NODE_BLOB_H
#define SCHEMA_NODE_BLOB_H

enum { NODES_IN_PAGE = 256 };

#endif
