/*
 * agent/cli/option.h: the options of a command as one table. getopt, the messages and --help all
 * follow from this table; the completion of shells and the lists of options in the manual page
 * (deploy/man1.py) are read from --help.
 */
#ifndef AGENT_CLI_OPTION_H
#define AGENT_CLI_OPTION_H

#include <getopt.h> /* optind */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/*
 * Take an option: store text, its argument, in what `to` points to. text is NULL if there is no
 * argument; it is borrowed from the command line and may be modified. option is the row's name, for
 * messages. Return 0; 1 after printing what was asked for, which ends the command; or a negative code
 * after reporting what is wrong.
 */
typedef int (*option_fn)(void *to, const char *option, char *text);

/* An option, or a line of the help. */
struct option_row {
	const char *name; /* "--pid", or "-p" if there is no long one; NULL: only a line of help */
	char letter;	  /* 'p'; 0: none */
	/* as the help has it: "PID"; "[=MIN]" if it may be left out; NULL: none */
	const char *argument;
	/*
	 * A sentence that begins with a verb, without its full stop; \n breaks a line.
	 * OPTION_BESIDE: the next row continues this line. NULL: the help does not show this
	 * option; if set and at are those of an earlier row, it is another name of that one.
	 */
	const char *help;
	option_fn set;	     /* NULL: only a line of help */
	size_t at;	     /* offset in the options of the command of what set gets */
	unsigned int column; /* where help begins; 0: as in option_table */
};

#define OPTION_BESIDE ","

struct option_table {
	const char *usage, *end; /* the help's text before and behind the rows; end NULL: none */
	const struct option_row *rows;
	size_t n_rows;
	unsigned int column; /* where the help of the rows begins */
	bool stops;	     /* at the first argument, which is a command with its own options */
};

#define OPTION_ROWS(array) .rows = (array), .n_rows = sizeof(array) / sizeof((array)[0])

/* Take the argument as a text: *to is a const char *, which borrows it. */
int option_text(void *to, const char *option, char *text);
/* Set the bool *to. */
int option_true(void *to, const char *option, char *text);

/* Return the index of text in words; -EINVAL after reporting which words the option takes. */
int option_word(const char *option, const char *text, const char *const *words, size_t n);

int option_quiet(void *to, const char *option, char *text);
int option_verbose(void *to, const char *option, char *text);
int option_show_help(void *to, const char *option, char *text);

#define OPTION_QUIET                                                                        \
	{                                                                                   \
		"--quiet", 'q', NULL, "print errors and warnings only", .set = option_quiet \
	}
#define OPTION_VERBOSE                                                      \
	{                                                                   \
		"--verbose", 'v', NULL, "print more", .set = option_verbose \
	}
#define OPTION_HELP                                                             \
	{                                                                       \
		"--help", 'h', NULL, "print this help", .set = option_show_help \
	}

/*
 * Read the options of a command line into the options of the command; optind is then the index of
 * the first argument. Return 0; 1 after --help or the like was printed; or a negative code after
 * reporting what is wrong.
 */
int option_read(const struct option_table *table, int argc, char *const *argv, void *options);

/* Print the help of a command. */
void option_help(const struct option_table *table, FILE *out);

#endif
