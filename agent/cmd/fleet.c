/* agent/cmd/fleet.c: the fleet command: makes the tables of a fleet in ClickHouse. */
#include "agent/cli/option.h"
#include "agent/cmd/cmd.h"
#include "agent/fleet/server.h"
#include "agent/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct options {
	const char *cluster;
};

static const char help_before[] =
	"usage: offwind fleet init [OPTION]… URL…\n"
	"Makes the tables for many hosts in ClickHouse (docs/fleet.md).  URL is a server:\n"
	"http://[USER:PASSWORD@]HOST:8123[/DATABASE]; the database is offwind by default.\n"
	"Tables that are there stay as they are.\n"
	"\n";

static const char help_after[] = "\n"
				 "Exit code: 0 success, 1 failure, 2 wrong command line.\n";

#define AT(field) .at = offsetof(struct options, field)

static const struct option_row option_rows[] = {
	{ "--cluster", 0, "NAME",
	  "also make the database DATABASE_all with tables over all shards of the\n"
	  "cluster NAME, which the servers' settings describe (remote_servers)",
	  .set = option_text, AT(cluster) },
	OPTION_QUIET,
	OPTION_VERBOSE,
	OPTION_HELP,
};

static const struct option_table option_table = {
	.usage = help_before,
	.end = help_after,
	.column = 22,
	OPTION_ROWS(option_rows),
};

int cmd_fleet(int argc, char **argv)
{
	struct options o = { .cluster = NULL };
	int parsed = option_read(&option_table, argc, argv, &o), err = 0;

	if (parsed)
		return parsed < 0 ? CMD_USAGE : CMD_DONE;
	if (argc - optind < 2 || strcmp(argv[optind], "init") != 0) {
		log_error("fleet takes init and the URLs of servers");
		return CMD_USAGE;
	}
	for (int i = optind + 1; i < argc && !err; i++) {
		struct server_url url;

		err = server_url_parse(argv[i], &url);
		if (err == -EINVAL)
			return CMD_USAGE;
		if (!err) {
			err = server_init(&url, o.cluster);
			server_url_fini(&url);
		}
		if (err == -ENOMEM)
			log_error("%s", strerror(ENOMEM));
	}
	return err ? CMD_FAILED : CMD_DONE;
}
