/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The least that libmicrohttpd can do, set up as `hb serve` sets it up: it reads a
 * request and answers with the same few bytes. bench/front.py measures it beside
 * the server: what is between them is ours. Prints its port; ends with stdin.
 */
#include <microhttpd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static enum MHD_Result handle(void *argument, struct MHD_Connection *connection, const char *url, const char *method,
			      const char *version, const char *data, size_t *bytes, void **context)
{
	static char body[] = "{\"model_name\":\"null\",\"outputs\":[]}";
	static int begun;
	if (!*context) {
		*context = &begun;
		return MHD_YES;
	}
	if (*bytes > 0) {
		*bytes = 0;
		return MHD_YES;
	}
	struct MHD_Response *response = MHD_create_response_from_buffer(strlen(body), body, MHD_RESPMEM_PERSISTENT);
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "application/json");
	enum MHD_Result result = MHD_queue_response(connection, 200, response);
	MHD_destroy_response(response);
	return result;
}

int main(void)
{
	char end;
	struct MHD_Daemon *daemon = MHD_start_daemon(
		MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_TURBO, 0, NULL, NULL, handle, NULL,
		MHD_OPTION_THREAD_POOL_SIZE, 2U, MHD_OPTION_CONNECTION_LIMIT, 16384U, MHD_OPTION_END);
	if (!daemon)
		return 1;
	printf("%u\n", MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT)->port);
	fflush(stdout);
	while (read(STDIN_FILENO, &end, 1) > 0)
		;
	MHD_stop_daemon(daemon);
	return 0;
}
