-- Labels are found by a hash, as functions are: an index of their texts is as large as the table. Hashes have 31 bits:
-- what is found is compared anyway, and a number of 31 bits takes half the space.

CREATE TABLE new_labels (
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	labels TEXT NOT NULL, -- as before
	hash INTEGER NOT NULL -- of the labels, to find them
) STRICT;
INSERT INTO new_labels SELECT id, labels, text_hash(labels) FROM labels ORDER BY id;
-- Ids are not used again, also if the rows with the last ones were deleted.
DELETE FROM sqlite_sequence WHERE name = 'new_labels';
INSERT INTO sqlite_sequence (name, seq) SELECT 'new_labels', seq FROM sqlite_sequence WHERE name = 'labels';
DROP TABLE labels;
ALTER TABLE new_labels RENAME TO labels;
CREATE INDEX labels_hash ON labels (hash);

DROP INDEX functions_hash;
UPDATE functions SET hash = hash & 0x7fffffff;
CREATE INDEX functions_hash ON functions (hash);
