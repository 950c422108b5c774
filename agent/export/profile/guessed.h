/*
 * agent/export/profile/guessed.h: the label "guessed" of samples: the numbers of the locations to which no unwind rule led, 0
 * the innermost, as in "2-5,9".
 */
#ifndef AGENT_EXPORT_PROFILE_GUESSED_H
#define AGENT_EXPORT_PROFILE_GUESSED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Enough for the default depth of a walk, whatever the pattern. */
enum { GUESSED_SIZE = 4096 };

/* Set guessed[i] for each of n locations that the label names. Anybody may have written it; NULL: none. */
void guessed_read(const char *label, uint32_t n, bool *guessed);
/* Write the label; "": none is guessed. The last numbers are missing if there is no room for them. */
void guessed_write(const bool *guessed, uint32_t n, char out[GUESSED_SIZE]);

#endif
