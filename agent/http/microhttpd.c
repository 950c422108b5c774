/* agent/http/microhttpd.c: loads GNU libmicrohttpd. */
#include "agent/http/microhttpd.h"

#include "agent/log.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

int microhttpd_load(struct microhttpd *out)
{
	static const struct {
		const char *name;
		size_t at;
	} functions[] = {
#define FUNCTION(symbol, field) { symbol, offsetof(struct microhttpd, field) }
		FUNCTION("MHD_start_daemon", start),
		FUNCTION("MHD_stop_daemon", stop),
		FUNCTION("MHD_get_connection_values", values),
		FUNCTION("MHD_lookup_connection_value", value),
		FUNCTION("MHD_create_response_from_buffer", from_buffer),
		FUNCTION("MHD_create_response_from_fd", from_fd),
		FUNCTION("MHD_add_response_header", add_header),
		FUNCTION("MHD_queue_response", queue),
		FUNCTION("MHD_destroy_response", destroy),
		FUNCTION("MHD_suspend_connection", suspend),
		FUNCTION("MHD_resume_connection", resume),
		FUNCTION("MHD_get_connection_info", info),
#undef FUNCTION
	};
	void *library = dlopen("libmicrohttpd.so.12", RTLD_NOW | RTLD_LOCAL);

	for (size_t i = 0; library && i < sizeof(functions) / sizeof(functions[0]); i++) {
		void *function = dlsym(library, functions[i].name);

		if (!function) {
			(void)dlclose(library);
			library = NULL;
			break;
		}
		memcpy((char *)out + functions[i].at, &function, sizeof(function));
	}
	if (library)
		return 0;
	log_error("libmicrohttpd, which serves HTTP, is not installed");
	return -ENOENT;
}
