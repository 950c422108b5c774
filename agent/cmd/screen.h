/*
 * agent/cmd/screen.h: a terminal taken over for a while, and given back as it was on every way
 * out: the end, a signal, a crash, a stop by job control.
 *
 * Plain ANSI sequences (ECMA-48 and the alternate screen of xterm, which every terminal of today
 * and tmux, screen and the Linux console take); nothing is sent but what a frame needs.
 */
#ifndef AGENT_CMD_SCREEN_H
#define AGENT_CMD_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Both standard input and output are terminals; -ENOTTY if not. */
int screen_open(void);
/* As it was; what was written to standard error meanwhile comes now.  Fine when not open. */
void screen_close(void);

void screen_size(size_t *columns, size_t *rows);

/* A stream for the next picture, lines ended by \n; screen_show puts it up, at most the rows there are. */
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

/* The next key that was pressed, SCREEN_NONE: no more, SCREEN_END: the terminal is gone. */
int screen_key(void);

/* Whether a signal asks for the end (INT, TERM, HUP, QUIT); which one, or 0. */
int screen_ended(void);
/* Whether the size changed, or the program was stopped and goes on: draw anew. */
bool screen_changed(void);

#endif
