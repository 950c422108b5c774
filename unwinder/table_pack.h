/* unwinder/table_pack.h: rows and rules → a blob (schema/table.h). */
#ifndef UNWINDER_TABLE_PACK_H
#define UNWINDER_TABLE_PACK_H

#include <stddef.h>
#include <stdint.h>

#include "unwinder/table_build.h"
#include "unwinder/table_rows.h"

/*
 * The vaddr of unit 0: the source's lowest code, at the start of a block.
 * -ENOENT there is no code.
 */
int uw_table_base(const struct uw_table_source *source, uint64_t *base);

/*
 * A blob for the caller to free.  The last row is where the table ends.  -ENOTSUP more
 * than a table can hold; -ENOMEM.
 */
int uw_table_pack(const struct uw_table_source *source, const struct uw_rows *rows, uint64_t base,
		  uint8_t **blob, size_t *size);

#endif
