/* agent/cli/option.c: reads options and says what is wrong with them. */
#include "agent/cli/option.h"

#include "agent/log.h"

#include <stdio.h>
#include <string.h>

/*
 * Return the long option that name, of n bytes, means: an exact match, or the only option that
 * begins with it. Otherwise return NULL. *n_like: how many options match.
 */
static const struct option *find_word(const struct option *words, const char *name, size_t n,
				      size_t *n_like)
{
	const struct option *like = NULL;

	*n_like = 0;
	for (const struct option *w = words; w->name; w++) {
		if (strncmp(w->name, name, n) != 0)
			continue;
		if (!w->name[n]) {
			*n_like = 1;
			return w;
		}
		like = w;
		++*n_like;
	}
	return *n_like == 1 ? like : NULL;
}

/* Report what is wrong with a long option, which getopt_long refused. */
static void say_word(const char *argument, const struct option *words)
{
	const char *name = argument + 2;
	int n = (int)strcspn(name, "=");
	size_t n_like;
	const struct option *w = find_word(words, name, (size_t)n, &n_like);

	if (!w && n_like)
		log_error("option '--%.*s' may be one of several", n, name);
	else if (!w)
		log_error("there is no option '--%.*s'", n, name);
	else if (w->has_arg == required_argument)
		log_error("option '--%s' needs an argument", w->name);
	else
		log_error("option '--%s' takes no argument", w->name);
}

int option_next(int argc, char *const *argv, const char *letters, const struct option *words)
{
	/*
	 * With several letters in one argument, optind does not advance before the last of them.
	 */
	int at = optind ? optind : 1;
	int c;

	opterr = 0;
	c = getopt_long(argc, argv, letters, words, NULL);
	if (c != '?')
		return c;
	if (optind > at)
		at = optind - 1;
	if (at < argc && !strncmp(argv[at], "--", 2))
		say_word(argv[at], words);
	else if (optopt && optopt != ':' && optopt != '+' && strchr(letters, optopt))
		log_error("option '-%c' needs an argument", optopt);
	else
		log_error("there is no option '-%c'", optopt);
	return c;
}
