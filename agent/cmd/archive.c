/* agent/cmd/archive.c: the archive command: puts files into S3, and gets them back. */
#include "agent/cli/option.h"
#include "agent/cmd/cmd.h"
#include "agent/export/output.h"
#include "agent/http/s3.h"
#include "agent/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct options {
	const char *endpoint;
};

static const char help_before[] =
	"usage: offwind archive put [OPTION]… FILE… s3://BUCKET/KEY\n"
	"       offwind archive get [OPTION]… s3://BUCKET/KEY [FILE]\n"
	"Stores capture files, or any others, in S3 or in what speaks like it, so that what ran\n"
	"in a bad hour can be unwound again with new debug files, and gets them back.  put\n"
	"appends the name of each file to a KEY that is empty or ends with /.  get writes FILE,\n"
	"by default the last part of KEY; - is standard output:\n"
	"offwind archive get s3://BUCKET/KEY - | offwind unwind -\n"
	"\n";

static const char help_after[] =
	"\n"
	"Credentials are those of AWS's own programs: AWS_ACCESS_KEY_ID and\n"
	"AWS_SECRET_ACCESS_KEY, or AWS_PROFILE of ~/.aws/credentials; AWS_REGION.\n"
	"Exit code: 0 success, 1 failure, 2 wrong command line.\n";

#define AT(field) .at = offsetof(struct options, field)

static const struct option_row option_rows[] = {
	{ "--endpoint", 0, "URL",
	  "use the server at URL, https://minio.example:9000 (default:\n"
	  "$AWS_ENDPOINT_URL_S3, $AWS_ENDPOINT_URL, or AWS)",
	  .set = option_text, AT(endpoint) },
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

static const char *base_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Whether the key is only the beginning of one. */
static bool is_prefix(const struct s3_place *p)
{
	size_t n = strlen(p->key);

	return !n || p->key[n - 1] == '/';
}

static int put_one(const struct s3_account *account, const struct s3_place *to, const char *path)
{
	struct s3_place place = { .bucket = to->bucket };
	struct stat st = { .st_size = 0 };
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	int err = fd < 0 || fstat(fd, &st) ? -errno : S_ISREG(st.st_mode) ? 0 : -EINVAL;

	if (err)
		log_error("%s: %s", path,
			  err == -EINVAL ? "this is no regular file" : strerror(-err));
	if (!err && asprintf(&place.key, "%s%s", to->key, is_prefix(to) ? base_of(path) : "") < 0) {
		place.key = NULL;
		err = -ENOMEM;
	}
	if (!err)
		err = s3_put(account, &place, fd, (uint64_t)st.st_size);
	if (!err)
		log_info("%s: s3://%s/%s, %" PRIu64 " bytes", path, place.bucket, place.key,
			 (uint64_t)st.st_size);
	if (fd >= 0)
		(void)close(fd);
	free(place.key);
	return err;
}

static int get(const struct s3_account *account, const struct s3_place *from, const char *path)
{
	struct output out = { .fd = -1 };
	int err = output_open(&out, path);

	if (!err)
		err = s3_get(account, from, out.fd);
	if (!err)
		err = output_commit(&out);
	output_abort(&out);
	return err;
}

/* Find what the command line names wrongly. -EINVAL after reporting it. */
static int check(bool puts, const struct s3_place *place, char **arguments, int n)
{
	if (puts && !is_prefix(place) && n > 2) {
		log_error("archive put stores several files below a key that ends with /");
		return -EINVAL;
	}
	if (!puts && is_prefix(place)) {
		log_error("archive get takes one object: s3://BUCKET/KEY");
		return -EINVAL;
	}
	return puts ? 0 : output_not_terminal("archive get", n > 1 ? arguments[1] : "");
}

int cmd_archive(int argc, char **argv)
{
	struct options o = { .endpoint = NULL };
	struct s3_account account = { .id = NULL };
	struct s3_place place = { .bucket = NULL };
	int parsed = option_read(&option_table, argc, argv, &o), n, err;
	bool puts, gets;

	if (parsed)
		return parsed < 0 ? CMD_USAGE : CMD_DONE;
	n = argc - optind - 1;
	argv += optind + 1;
	puts = n >= 2 && !strcmp(argv[-1], "put");
	gets = n >= 1 && n <= 2 && !strcmp(argv[-1], "get");
	if (!puts && !gets) {
		log_error("archive takes put, files and s3://BUCKET/KEY, or get, s3://BUCKET/KEY "
			  "and a file");
		return CMD_USAGE;
	}
	if (s3_place_parse(puts ? argv[n - 1] : argv[0], &place) || check(puts, &place, argv, n)) {
		s3_place_fini(&place);
		return CMD_USAGE;
	}
	err = s3_account_read(&account, o.endpoint);
	for (int i = 0; puts && !err && i < n - 1; i++)
		err = put_one(&account, &place, argv[i]);
	if (gets && !err)
		err = get(&account, &place, n > 1 ? argv[1] : base_of(place.key));
	s3_account_fini(&account);
	s3_place_fini(&place);
	return err ? CMD_FAILED : CMD_DONE;
}
