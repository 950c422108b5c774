/* agent/cmd/fleet.c: the fleet command: makes the tables of a fleet in ClickHouse, and serves a page over all its hosts. */
#include "agent/cli/option.h"
#include "agent/cmd/cmd.h"
#include "agent/cmd/fleet_serve.h"
#include "agent/fleet/server.h"
#include "agent/log.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct options {
	const char *cluster;	  /* of init */
	struct fleet_serve serve; /* of serve */
};

static const char help_before[] =
	"usage: offwind fleet init [OPTION]… URL…\n"
	"       offwind fleet serve [OPTION]… URL\n"
	"Makes the tables for many hosts in ClickHouse, or serves a page for browsers over all\n"
	"hosts (docs/fleet.md).  URL is a server: http://[USER:PASSWORD@]HOST:8123[/DATABASE];\n"
	"the database is offwind by default.  Tables that are there stay as they are.\n"
	"\n";

static const char help_after[] = "\n"
				 "Exit code: 0 success, 1 failure, 2 wrong command line.\n";

#define AT(field) .at = offsetof(struct options, field)

static const struct option_row option_rows[] = {
	{ "--cluster", 0, "NAME",
	  "also make the database DATABASE_all with tables over all shards of the\n"
	  "cluster NAME, which the servers' settings describe (remote_servers)",
	  .set = option_text, AT(cluster) },
	{ "--listen", 0, "ADDRESS",
	  "of serve: answer HTTP at ADDRESS: 127.0.0.1:7228 (default), [::1]:7228,\n"
	  "unix:/run/fleet.sock; one that other machines can reach takes the three\n"
	  "options below",
	  .set = option_text, AT(serve.listen) },
	{ "--token-file", 0, "FILE", "of serve: ask for the token in FILE", .set = option_text,
	  AT(serve.token_file) },
	{ "--tls-certificate", 0, "FILE", OPTION_BESIDE, .set = option_text,
	  AT(serve.certificate) },
	{ "--tls-key", 0, "FILE", "of serve: answer HTTPS with this certificate and key, PEM",
	  .set = option_text, AT(serve.key) },
	OPTION_QUIET,
	OPTION_VERBOSE,
	OPTION_HELP,
};

static const struct option_table option_table = {
	.usage = help_before,
	.end = help_after,
	.column = 24,
	OPTION_ROWS(option_rows),
};

/* Make the tables of n servers. Return the exit code. */
static int make_tables(char **urls, int n, const char *cluster)
{
	int err = 0;

	for (int i = 0; i < n && !err; i++) {
		struct server_url url;

		err = server_url_parse(urls[i], &url);
		if (err == -EINVAL)
			return CMD_USAGE;
		if (!err) {
			err = server_init(&url, cluster);
			server_url_fini(&url);
		}
		if (err == -ENOMEM)
			log_error("%s", strerror(ENOMEM));
	}
	return err ? CMD_FAILED : CMD_DONE;
}

int cmd_fleet(int argc, char **argv)
{
	struct options o = { .cluster = NULL };
	const struct fleet_serve *of_serve = &o.serve;
	int parsed = option_read(&option_table, argc, argv, &o), n;
	bool serves;

	if (parsed)
		return parsed < 0 ? CMD_USAGE : CMD_DONE;
	n = argc - optind;
	serves = n > 0 && !strcmp(argv[optind], "serve");
	if (n < 2 || (serves ? n != 2 : strcmp(argv[optind], "init") != 0)) {
		log_error("fleet takes init and the URLs of servers, or serve and one of them");
		return CMD_USAGE;
	}
	if (serves ? o.cluster != NULL
		   : of_serve->listen || of_serve->token_file || of_serve->certificate ||
			     of_serve->key) {
		log_error(serves ? "--cluster is for fleet init"
				 : "--listen, --token-file, --tls-certificate and --tls-key are "
				   "for fleet serve");
		return CMD_USAGE;
	}
	o.serve.url = argv[optind + 1];
	return serves ? fleet_serve(&o.serve) : make_tables(argv + optind + 1, n - 1, o.cluster);
}
