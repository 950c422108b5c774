-- schema/store_4.sql: what debuginfod servers were asked for and do not have;
-- they are asked again after a day.
CREATE TABLE missing (
	build_id BLOB    NOT NULL,
	since    INTEGER NOT NULL,
	PRIMARY KEY (build_id)
) STRICT, WITHOUT ROWID;
