/* SPDX-License-Identifier: Apache-2.0 */
/* Limits on the HTTP/2 session of a connection, and a count of its memory. Used by server and client of gRPC. */
#ifndef HB_GRPC_SESSION_LIMITS_H
#define HB_GRPC_SESSION_LIMITS_H

#include <nghttp2/nghttp2.h>
#include <stdint.h>

#define HB_SESSION_HEADER_BYTES_MAX (16 * 1024) /* headers of a call, and 32 bytes for each, as HTTP/2 counts them */
#define HB_SESSION_HEADER_TABLE_BYTES 4096      /* headers that a connection remembers to compress later ones */

struct hb_session_memory {
	uint64_t bytes; /* allocated for the session now */
};

/* Returns functions that allocate for a session and count; *memory must outlive the session. */
nghttp2_mem hb_session_memory_functions(struct hb_session_memory *memory);
/* Returns the limits that the library enforces, for nghttp2_option_del(); NULL without memory. */
nghttp2_option *hb_session_limits_new(void);

#endif
