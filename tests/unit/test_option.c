/* tests/unit/test_option.c: tests how options are read by their table, and their help. */
#include "agent/cli/option.h"
#include "agent/log.h"

#include "tests/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct options {
	bool all, raw;
	const char *name, *file, *min;
	int n_numbers;
	char last[16];
};

/* Count the numbers, keep the name by which the option was given. 13 is refused. */
static int take_number(void *to, const char *option, char *text)
{
	struct options *o = to;

	o->n_numbers++;
	(void)snprintf(o->last, sizeof(o->last), "%s", option);
	return strcmp(text, "13") ? 0 : -ERANGE;
}

#define AT(field) .at = offsetof(struct options, field)

static const struct option_row rows[] = {
	{ "--all", 'a', NULL, "all of them", .set = option_true, AT(all) },
	{ "--number", 'n', "N[,…]", "one\ntwo", .set = take_number },
	{ "--name", 0, "NAME", OPTION_BESIDE, .set = option_text, AT(name) },
	{ "--title", 0, "NAME", "beside it", .set = option_text, AT(name) },
	{ .help = "\nMore:" },
	{ "--min", 0, "[=MIN]", "at least", .set = option_text, AT(min), .column = 20 },
	{ "--file-of-the-name", 0, "FILE", "too long for its line", .set = option_text, AT(file) },
	{ "--file-by-name", 0, "FILE", .set = option_text, AT(file) },
	{ "--none", 0, "x|y", "", .set = NULL },
	{ "-r", 'r', NULL, .set = option_true, AT(raw) },
	OPTION_HELP,
};

static const struct option_table table = {
	.usage = "usage: x\n\n",
	.end = "\nThe end.\n",
	.column = 24,
	.stops = true,
	OPTION_ROWS(rows),
};

/* Read the words, at most seven. */
static int read_words(struct options *o, const char *const *words)
{
	char copies[8][40], *argv[9] = { NULL };
	int argc = 0;

	*o = (struct options){ 0 };
	for (; words[argc]; argc++) {
		(void)snprintf(copies[argc], sizeof(copies[argc]), "%s", words[argc]);
		argv[argc] = copies[argc];
	}
	optind = 0;
	return option_read(&table, argc, argv, o);
}

#define READ(...) read_words(&o, (const char *const[]){ "x", __VA_ARGS__, NULL })

static void test_options_are_read(void)
{
	struct options o;

	CHECK(!READ("-a", "-n1", "--number=2", "-n", "3", "arg", "--name") && o.all &&
		      o.n_numbers == 3 && !strcmp(o.last, "--number") && optind == 6 && !o.name,
	      "until the first argument");
	CHECK(!READ("-ar") && o.all && o.raw, "letters together, one without a word");
	CHECK(!READ("--title", "t") && o.name, "one place for two options");
	CHECK(!READ("--min") && !o.min && !READ("--min=3") && o.min, "an argument may be left out");
	CHECK(!READ("--al") && o.all, "a word may be cut short");
	CHECK(!READ("--file", "f") && o.file, "also if it means two names of one option");
	CHECK(!READ("--", "-a") && !o.all && optind == 2, "-- ends them");
}

static void test_what_is_wrong_is_refused(void)
{
	struct options o;

	log_quiet(true);
	CHECK(READ("--n", "x") == -EINVAL, "one of two");
	CHECK(READ("--nothing") == -EINVAL, "no such word");
	CHECK(READ("-z") == -EINVAL, "no such letter");
	CHECK(READ("--none=x") == -EINVAL, "only a line of the help");
	CHECK(READ("--name") == -EINVAL, "no argument");
	CHECK(READ("--all=x") == -EINVAL, "an argument");
	CHECK(READ("-n", "13", "-a") == -ERANGE && !o.all, "what the option does not take");
}

static void test_the_help_has_all_rows_that_are_shown(void)
{
	static const char want[] = "usage: x\n"
				   "\n"
				   "  -a, --all             all of them\n"
				   "  -n, --number N[,…]    one\n"
				   "                        two\n"
				   "      --name NAME, --title NAME\n"
				   "                        beside it\n"
				   "\n"
				   "More:\n"
				   "      --min[=MIN]   at least\n"
				   "      --file-of-the-name FILE\n"
				   "                        too long for its line\n"
				   "      --none x|y\n"
				   "  -h, --help            print this help\n"
				   "\n"
				   "The end.\n";
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	CHECK(out, "memory");
	if (!out)
		return;
	option_help(&table, out);
	(void)fclose(out);
	if (strcmp(text, want) != 0)
		(void)fputs(text, stdout);
	CHECK(!strcmp(text, want), "the help");
	free(text);
}

static void test_words_are_numbered(void)
{
	static const char *const words[] = { "self", "total" };

	CHECK(option_word("--sort", "total", words, 2) == 1, "the second");
	CHECK(option_word("--sort", "tot", words, 2) == -EINVAL, "none");
}

int main(void)
{
	test_options_are_read();
	test_what_is_wrong_is_refused();
	test_the_help_has_all_rows_that_are_shown();
	test_words_are_numbered();
	return check_done();
}
