/* agent/cli/screen.c: the terminal in raw mode, the alternate screen, keys and signals. */
#include "agent/cli/screen.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <termios.h>
#include <unistd.h>

/* Switch to the alternate screen, without cursor and without wrapping long lines; and back. */
#define ENTER "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
#define LEAVE "\x1b[?7h\x1b[?25h\x1b[0m\x1b[?1049l"

/* File-wide, because the signal handlers use it; there is only one terminal. */
static struct termios before;
/*
 * shown: the alternate screen is on. asked: the signal that asked for the end. changed: draw
 * again. stop: SIGTSTP came.
 */
static volatile sig_atomic_t is_open, shown, asked, changed, stop;
/* memory file that is standard error while the screen is open, and the real standard error */
static int errors = -1, own_stderr = -1;
static char *picture;
static size_t picture_size;
static FILE *drawing;

static const int ends[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
static const int crashes[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT };

/*
 * Write all bytes to the terminal. It may be non-blocking: wait up to a second each time that it
 * is full. Give up on other errors.
 */
static void send_bytes(const char *bytes, size_t n)
{
	while (n) {
		ssize_t done = write(STDOUT_FILENO, bytes, n);

		if (done < 0 && errno == EAGAIN) { /* the line is slow */
			struct pollfd out = { .fd = STDOUT_FILENO, .events = POLLOUT };

			(void)poll(&out, 1, 1000);
			continue;
		}
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return;
		bytes += done;
		n -= (size_t)done;
	}
}

/*
 * Switch to the alternate screen, and to input without echo or waiting for a line. enter and leave
 * are safe in a signal handler.
 */
static void enter(void)
{
	struct termios raw = before;

	raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	raw.c_cc[VMIN] = 0;
	raw.c_cc[VTIME] = 0;
	(void)tcsetattr(STDIN_FILENO, TCSANOW, &raw);
	send_bytes(ENTER, sizeof(ENTER) - 1);
	shown = 1;
}

static void leave(void)
{
	if (!shown)
		return;
	shown = 0;
	send_bytes(LEAVE, sizeof(LEAVE) - 1);
	(void)tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

static void on_end(int number)
{
	/*
	 * The second signal, other than SIGHUP: restore the terminal and exit, whatever takes so
	 * long.
	 */
	if (asked && number != SIGHUP) {
		leave();
		_exit(1);
	}
	asked = number;
}

/* Restore the terminal, then crash as without this handler. */
static void on_crash(int number)
{
	leave();
	(void)signal(number, SIG_DFL);
	(void)raise(number);
}

static void on_change(int number)
{
	if (number == SIGTSTP)
		stop = 1;
	changed = 1;
}

static struct termios noted;
static int noted_out = -1; /* the terminal, also when standard output is something else */

void screen_note(void)
{
	if (!tcgetattr(STDIN_FILENO, &noted))
		noted_out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
}

void screen_restore(void)
{
	struct termios now;

	if (noted_out < 0 || tcgetattr(STDIN_FILENO, &now) || now.c_lflag == noted.c_lflag)
		return;
	if (write(noted_out, LEAVE, sizeof(LEAVE) - 1) < 0)
		return;
	(void)tcsetattr(STDIN_FILENO, TCSANOW, &noted);
}

static void catch (int number, void (*handler)(int))
{
	struct sigaction action = { .sa_handler = handler };

	(void)sigaction(number, &action, NULL);
}

int screen_open(void)
{
	if (!isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, &before))
		return -ENOTTY;
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		catch (ends[i], on_end);
	for (size_t i = 0; i < sizeof(crashes) / sizeof(crashes[0]); i++)
		catch (crashes[i], on_crash);
	catch (SIGWINCH, on_change);
	catch (SIGTSTP, on_change);
	/* Collect standard error, because a warning would be printed into the picture. */
	errors = memfd_create("errors", MFD_CLOEXEC);
	own_stderr = dup(STDERR_FILENO);
	if (errors >= 0 && own_stderr >= 0)
		(void)dup2(errors, STDERR_FILENO);
	is_open = 1;
	enter();
	(void)atexit(screen_close);
	return 0;
}

/* Restore standard error, and print what was collected. */
static void say_errors(void)
{
	char text[4096];
	ssize_t n;

	if (errors < 0 || own_stderr < 0)
		return;
	(void)fflush(stderr);
	(void)dup2(own_stderr, STDERR_FILENO);
	(void)lseek(errors, 0, SEEK_SET);
	while ((n = read(errors, text, sizeof(text))) > 0)
		if (write(STDERR_FILENO, text, (size_t)n) != n)
			break;
	(void)close(errors);
	(void)close(own_stderr);
	errors = own_stderr = -1;
}

void screen_close(void)
{
	if (!is_open)
		return;
	is_open = 0;
	leave();
	say_errors();
	if (drawing)
		(void)fclose(drawing);
	drawing = NULL;
	free(picture);
	picture = NULL;
}

void screen_size(size_t *columns, size_t *rows)
{
	struct winsize size = { 0 };

	(void)ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
	*columns = size.ws_col ? size.ws_col : 80;
	*rows = size.ws_row ? size.ws_row : 24;
}

FILE *screen_draw(void)
{
	free(picture);
	picture = NULL;
	drawing = open_memstream(&picture, &picture_size);
	return drawing;
}

void screen_show(void)
{
	size_t columns, rows, row = 0;
	char *all = NULL, *at;
	size_t size;
	FILE *out;

	if (!drawing || fclose(drawing)) {
		drawing = NULL;
		return;
	}
	drawing = NULL;
	out = open_memstream(&all, &size);
	if (!out)
		return;
	screen_size(&columns, &rows);
	(void)fputs("\x1b[H", out);
	/*
	 * Overwrite the previous picture line by line, without clearing it first, so that nothing
	 * flickers.
	 */
	for (at = picture; *at && row < rows; row++) {
		size_t n = strcspn(at, "\n");

		(void)fprintf(out, "%s%.*s\x1b[0m\x1b[K", row ? "\r\n" : "", (int)n, at);
		at += n + (at[n] == '\n');
	}
	(void)fputs("\x1b[J", out);
	if (!fclose(out) && shown)
		send_bytes(all, size);
	free(all);
}

/*
 * Keys that send a sequence of bytes, such as the arrows, are recognized only if all bytes have
 * arrived together; otherwise their bytes are returned one by one.
 */
int screen_key(void)
{
	static char bytes[16];
	static size_t n;
	struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
	static const struct {
		const char *sequence;
		int key;
	} keys[] = { { "\x1b[A", SCREEN_UP },	    { "\x1b[B", SCREEN_DOWN },
		     { "\x1bOA", SCREEN_UP },	    { "\x1bOB", SCREEN_DOWN },
		     { "\x1b[5~", SCREEN_PAGE_UP }, { "\x1b[6~", SCREEN_PAGE_DOWN } };
	size_t used = 1;
	int key;

	if (n < sizeof(bytes) && poll(&in, 1, 0) > 0) {
		ssize_t got = read(STDIN_FILENO, bytes + n, sizeof(bytes) - n);

		if (got > 0)
			n += (size_t)got;
		else if (got == 0 || errno == EIO)
			return SCREEN_END;
	}
	if (!n)
		return SCREEN_NONE;
	key = (unsigned char)bytes[0];
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		size_t length = strlen(keys[i].sequence);

		if (length <= n && !memcmp(bytes, keys[i].sequence, length)) {
			used = length;
			key = keys[i].key;
		}
	}
	n -= used;
	memmove(bytes, bytes + used, n);
	return key;
}

int screen_ended(void)
{
	return asked;
}

bool screen_changed(void)
{
	bool was = changed;

	if (stop) {
		stop = 0;
		leave();
		(void)raise(SIGSTOP);
		enter(); /* the program was continued (SIGCONT) */
	}
	changed = 0;
	return was;
}
