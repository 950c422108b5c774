/*
 * tests/live/contexts/library.c: the variable by which threads say what they work for (OpenTelemetry enhancement
 * proposal 4947), and the only function that writes it. It is a part of the program, or a library of it.
 */
#include <stddef.h>

#ifdef INITIAL_EXEC
#define MODEL __attribute__((tls_model("initial-exec")))
#else
#define MODEL
#endif

/* Others are before it in the block. */
__thread char library_before[40] = { 1 };
MODEL __thread void *volatile otel_thread_ctx_v1;

void library_publish(void *record);

void library_publish(void *record)
{
	otel_thread_ctx_v1 = record;
}
