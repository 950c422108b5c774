/* unwinder/table/table_pack.h: writes rows and rules as a blob (schema/table_blob.h). */
#ifndef UNWINDER_TABLE_TABLE_PACK_H
#define UNWINDER_TABLE_TABLE_PACK_H

#include <stddef.h>
#include <stdint.h>

#include "unwinder/table/table_build.h"
#include "unwinder/table/table_rows.h"

/*
 * Return the vaddr of unit 0: the source's lowest code, rounded down to a block. -ENOENT: there is
 * no code.
 */
int uw_table_base(const struct uw_table_source *source, uint64_t *base);

/*
 * Make a blob; the caller frees it. The last row only marks where the table ends. -ENOTSUP: there is more
 * than a table can hold. -ENOMEM.
 */
int uw_table_pack(const struct uw_table_source *source, const struct uw_table_rows *rows,
		  uint64_t base, uint8_t **blob, size_t *size);

#endif
