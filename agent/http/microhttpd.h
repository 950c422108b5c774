/*
 * agent/http/microhttpd.h: the functions of GNU libmicrohttpd that the server uses, loaded when they are
 * needed: the library brings a dozen others, which every run of offwind would have to load
 * (docs/decisions/http-library.md).
 */
#ifndef AGENT_HTTP_MICROHTTPD_H
#define AGENT_HTTP_MICROHTTPD_H

#include <microhttpd.h>

struct microhttpd {
	__typeof__(&MHD_start_daemon) start;
	__typeof__(&MHD_stop_daemon) stop;
	__typeof__(&MHD_get_connection_values) values;
	__typeof__(&MHD_lookup_connection_value) value;
	__typeof__(&MHD_create_response_from_buffer) from_buffer;
	__typeof__(&MHD_create_response_from_fd) from_fd;
	__typeof__(&MHD_add_response_header) add_header;
	__typeof__(&MHD_queue_response) queue;
	__typeof__(&MHD_destroy_response) destroy;
	__typeof__(&MHD_suspend_connection) suspend;
	__typeof__(&MHD_resume_connection) resume;
	__typeof__(&MHD_get_connection_info) info;
};

/* Load the library, for good. -ENOENT after reporting that it is not installed. */
int microhttpd_load(struct microhttpd *out);

#endif
