/* agent/cli/option.c: reads options by their table, and says what is wrong with them. */
#include "agent/cli/option.h"

#include "agent/log.h"
#include "agent/textbuf.h"
#include "base/text.h"

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <string.h>

enum {
	ROWS_MAX = 96,
	WORD = 256, /* what getopt_long returns for the first row; above all letters */
};

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
		log_error("option '--%.*s' is ambiguous", n, name);
	else if (!w)
		log_error("there is no option '--%.*s'", n, name);
	else if (w->has_arg == required_argument)
		log_error("option '--%s' needs an argument", w->name);
	else
		log_error("option '--%s' takes no argument", w->name);
}

/*
 * As getopt_long, with messages of offwind's own: getopt's would print the bytes of the command
 * line unchanged on the terminal. '?' means that the option is wrong, which is already reported.
 */
static int next(int argc, char *const *argv, const char *letters, const struct option *words)
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

/*
 * Return the row whose option this row is: the row itself, or the one of which it is another name.
 * getopt_long then takes an abbreviation that fits both.
 */
static size_t meant(const struct option_table *t, size_t row)
{
	const struct option_row *r = &t->rows[row];

	for (size_t i = 0; !r->help && i < row; i++)
		if (t->rows[i].set == r->set && t->rows[i].at == r->at && t->rows[i].name[1] == '-')
			return i;
	return row;
}

/* Make getopt_long's tables. words and letters have room for all rows. */
static void make_words(const struct option_table *t, struct option *words, char *letters)
{
	if (t->stops)
		*letters++ = '+';
	for (size_t i = 0; i < t->n_rows; i++) {
		const struct option_row *r = &t->rows[i];

		if (!r->set)
			continue;
		if (r->letter)
			*letters++ = r->letter;
		if (r->letter && r->argument)
			*letters++ = ':';
		if (r->name[1] == '-')
			*words++ = (struct option){ .name = r->name + 2,
						    .has_arg = !r->argument ? no_argument
							       : *r->argument == '['
								       ? optional_argument
								       : required_argument,
						    .val = WORD + (int)meant(t, i) };
	}
	*words = (struct option){ 0 };
	*letters = '\0';
}

/* Return the row that next() gave as c. */
static const struct option_row *row_of(const struct option_table *t, int c)
{
	size_t i = 0;

	if (c >= WORD)
		return &t->rows[c - WORD];
	while (t->rows[i].letter != c)
		i++;
	return &t->rows[i];
}

int option_read(const struct option_table *table, int argc, char *const *argv, void *options)
{
	struct option words[ROWS_MAX + 1];
	char letters[2 * ROWS_MAX + 2];
	int c;

	assert(table->n_rows <= ROWS_MAX);
	make_words(table, words, letters);
	while ((c = next(argc, argv, letters, words)) != -1) {
		const struct option_row *row = c == '?' ? NULL : row_of(table, c);
		int err = row ? row->set((char *)options + row->at, row->name, optarg) : -EINVAL;

		if (err)
			return err;
		if (row->set == option_show_help) {
			option_help(table, stdout);
			return 1;
		}
	}
	return 0;
}

/* ---- the help ------------------------------------------------------------------- */

/* Print the lines of a help, from the given column on. at: the column where the output is now. */
static void print_help(const char *help, size_t at, unsigned int column, FILE *out)
{
	if (*help && at >= column) {
		(void)fputc('\n', out);
		at = 0;
	}
	while (*help) {
		size_t n = strcspn(help, "\n");

		(void)fprintf(out, "%*s%.*s", (int)(column - at), "", (int)n, help);
		help += n;
		if (*help) {
			(void)fputc('\n', out);
			help++;
		}
		at = 0;
	}
	(void)fputc('\n', out);
}

/*
 * A row without a name is a heading. A row that has OPTION_BESIDE as its help shares a line with
 * the row after it.
 */
void option_help(const struct option_table *table, FILE *out)
{
	size_t at = 0; /* the column, inside a line that several rows share */

	(void)fputs(table->usage, out);
	for (size_t i = 0; i < table->n_rows; i++) {
		const struct option_row *r = &table->rows[i];
		const char *argument = r->argument ? r->argument : "";
		char text[128];

		if (r->help && !r->name)
			(void)fprintf(out, "%s\n", r->help);
		if (!r->help || !r->name)
			continue;
		(void)snprintf(text, sizeof(text), "%s%s%s%s", r->letter ? ", " : "", r->name,
			       *argument && *argument != '[' ? " " : "", argument);
		if (at)
			at += (size_t)fprintf(out, ", ");
		else if (r->letter)
			at += (size_t)fprintf(out, "  -%c", r->letter);
		else
			at += (size_t)fprintf(out, "      ");
		(void)fputs(text, out);
		at += uw_text_columns(text);
		if (!strcmp(r->help, OPTION_BESIDE))
			continue;
		print_help(r->help, at, r->column ? r->column : table->column, out);
		at = 0;
	}
	if (table->end)
		(void)fputs(table->end, out);
}

/* ---- what many options do --------------------------------------------------------- */

int option_text(void *to, const char *option, char *text)
{
	(void)option;
	*(const char **)to = text;
	return 0;
}

int option_true(void *to, const char *option, char *text)
{
	(void)option;
	(void)text;
	*(bool *)to = true;
	return 0;
}

int option_word(const char *option, const char *text, const char *const *words, size_t n)
{
	char known[256] = "";

	for (size_t i = 0; i < n; i++)
		if (!strcmp(text, words[i]))
			return (int)i;
	for (size_t i = 0; i < n; i++)
		textbuf_add(known, sizeof(known), "%s%s",
			    !i		 ? ""
			    : i + 1 == n ? " or "
					 : ", ",
			    words[i]);
	log_error("%s is %s, not '%s'", option, known, text);
	return -EINVAL;
}

int option_quiet(void *to, const char *option, char *text)
{
	(void)to;
	(void)option;
	(void)text;
	log_quiet(true);
	return 0;
}

int option_verbose(void *to, const char *option, char *text)
{
	(void)to;
	(void)option;
	(void)text;
	log_verbose(true);
	return 0;
}

/* option_read prints the help. */
int option_show_help(void *to, const char *option, char *text)
{
	(void)to;
	(void)option;
	(void)text;
	return 0;
}
