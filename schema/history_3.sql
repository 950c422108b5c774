-- Frames are stored as nodes are, some in a row: half of a row was its own header, and columns that are alike in most rows.
-- They are found by a hash of 23 bits, which takes three bytes.

CREATE TABLE frame_pages (
	id INTEGER PRIMARY KEY, -- page n has the frames n * 64 + 1 to n * 64 + 64
	frames BLOB NOT NULL -- schema/frame_blob.h; or stack(node) and function(node)
) STRICT;

-- An address's hash, or an address and variant's: few frames have the same one, and what is found is compared.
CREATE TABLE frame_index (
	hash INTEGER NOT NULL, -- of module, address and variant
	frame INTEGER NOT NULL,
	PRIMARY KEY (hash, frame)
) STRICT, WITHOUT ROWID;

-- Page by page, so that little is in memory. Nodes have frames with ids of 32 bits.
INSERT INTO frame_pages
WITH RECURSIVE pages (id) AS (
	SELECT (min(id) - 1) / 64 FROM frames WHERE id BETWEEN 1 AND 0xffffffff
	UNION ALL
	SELECT (SELECT (min(frames.id) - 1) / 64 FROM frames WHERE frames.id BETWEEN pages.id * 64 + 65 AND 0xffffffff)
	FROM pages WHERE pages.id IS NOT NULL
)
SELECT id, (
	SELECT frame_page(frames.id, module, address, variant, lines) FROM frames
	WHERE frames.id BETWEEN pages.id * 64 + 1 AND pages.id * 64 + 64 AND frames.id <= 0xffffffff
) FROM pages WHERE id IS NOT NULL;
INSERT INTO frame_index SELECT frame_hash(module, address, variant), id FROM frames
WHERE id BETWEEN 1 AND 0xffffffff ORDER BY 1, 2;
-- Ids are not used again.
INSERT OR REPLACE INTO settings SELECT 'last_frame', CAST(seq AS TEXT) FROM sqlite_sequence WHERE name = 'frames';
DROP TABLE frames;
