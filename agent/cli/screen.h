/*
 * agent/cli/screen.h: takes over the terminal for a full-screen display. The terminal is restored
 * however the program ends: normally, by a signal, by a crash, and while job control stops it.
 *
 * Only plain ANSI sequences are sent (ECMA-48, and xterm's alternate screen), which every terminal
 * in use accepts, also tmux, screen and the Linux console. The state is global: one thread may use
 * it.
 */
#ifndef AGENT_CLI_SCREEN_H
#define AGENT_CLI_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/*
 * Take over the terminal. Until screen_close, standard error is collected in memory. Return 0, or
 * -ENOTTY if standard input and output are not both terminals.
 */
int screen_open(void);
/*
 * Note how the terminal is, before the process is forked that opens the screen; and make it so again,
 * in any process, if that one died without doing so.
 */
void screen_note(void);
void screen_restore(void);
/*
 * Restore the terminal, and print what was written to standard error meanwhile. Does nothing if
 * the screen is not open.
 */
void screen_close(void);

/* Return the terminal's size; 80 columns and 24 rows if it is not known. */
void screen_size(size_t *columns, size_t *rows);

/*
 * Return a stream for the next picture, whose lines end in \n; NULL if memory runs out.
 * screen_show displays the picture, cut to the terminal's rows, and closes the stream.
 */
FILE *screen_draw(void);
void screen_show(void);

enum {
	SCREEN_NONE = 0,
	SCREEN_UP = 256,
	SCREEN_DOWN,
	SCREEN_PAGE_UP,
	SCREEN_PAGE_DOWN,
	SCREEN_END
};

/*
 * Return the next key that was pressed: a byte or one of the above. SCREEN_NONE: there is none;
 * SCREEN_END: the terminal is gone. Does not wait.
 */
int screen_key(void);

/* Return the signal that asked the program to end (INT, TERM, HUP, QUIT), or 0. */
int screen_ended(void);
/*
 * Return true, once, if the size changed or the program continues after a stop: the picture must
 * be drawn again. If job control asked for a stop, stop here, with the terminal restored.
 */
bool screen_changed(void);

#endif
