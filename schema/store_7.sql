-- schema/store_7.sql: a file that ended its reader is known by its bytes, too: "contents" is their
-- SHA-256, empty if nobody has hashed them, and "size" how many they are.
ALTER TABLE quarantine ADD COLUMN size     INTEGER NOT NULL DEFAULT 0;
ALTER TABLE quarantine ADD COLUMN contents BLOB    NOT NULL DEFAULT x'';
