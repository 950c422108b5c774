-- schema/store_3.sql: an object stays in quarantine for as long as the same builder
-- would read the same bytes: "builder" as of tables, "file" a hash of what is known of
-- the file.  "crashes" counts how often it was put in, whatever the reason.
ALTER TABLE quarantine ADD COLUMN builder INTEGER NOT NULL DEFAULT 0;
ALTER TABLE quarantine ADD COLUMN file    INTEGER NOT NULL DEFAULT 0;
