/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which client may make which call, for HTTP and gRPC alike. A protocol passes what a request says about its
 * sender to hb_access_identify() once, and asks hb_access_check() before the call is answered. Any thread.
 */
#ifndef HB_SERVER_ACCESS_H
#define HB_SERVER_ACCESS_H

#include "base/error.h"
#include "base/http_host.h"
#include "server/security/server_client.h"

#include <stdint.h>
#include <stdio.h>

#define HB_ACCESS_LIST_MAX 64
#define HB_ACCESS_PREFIX_MAX 64

struct hb_access;

/* The rights that calls need; each call needs one. */
enum hb_right {
	HB_RIGHT_HEALTH = 1,        /* health of the server: every client whose Host is allowed */
	HB_RIGHT_USE = 2,           /* inference, metadata, metrics */
	HB_RIGHT_CONTROL = 4,       /* calls that change the server: load, unload, policy */
	HB_RIGHT_SHARED_MEMORY = 8, /* registering, unregistering and listing regions */
};

/* Which clients have a right, as flags: the values of --control and --shared-memory. */
enum hb_access_to { HB_TO_NOBODY = 0, HB_TO_SOCKET = 1, HB_TO_TOKEN = 2, HB_TO_LOOPBACK = 4 };

struct hb_access_config {
	unsigned control, shared_memory;   /* enum hb_access_to */
	const char *token_file;            /* NULL: calls that use the server need no token */
	char prefix[HB_ACCESS_PREFIX_MAX]; /* beginning of the names of shared memory; "" = no rule */
	char hosts[HB_ACCESS_LIST_MAX][HB_HTTP_HOST_MAX];
	uint32_t n_hosts;
	uid_t users[HB_ACCESS_LIST_MAX]; /* may control the server over a Unix socket, like its own user and root */
	uint32_t n_users;
	gid_t groups[HB_ACCESS_LIST_MAX];
	uint32_t n_groups;
};

/* The data of a request from which its sender is identified. A missing header is NULL. */
struct hb_access_request {
	struct hb_client client;
	bool loopback_listener;    /* it arrived at a loopback address */
	const char *host, *origin; /* values of Host (gRPC: ":authority") and Origin */
	const char *authorization;
};

/* Why a call is refused. */
enum hb_refusal {
	HB_ALLOWED,
	HB_REFUSED_HOST,
	HB_REFUSED_ORIGIN,
	HB_REFUSED_TOKEN, /* HTTP status 401, gRPC UNAUTHENTICATED; the others are 403 and PERMISSION_DENIED */
	HB_REFUSED_CONTROL,
	HB_REFUSED_SHARED_MEMORY,
	HB_REFUSALS
};

/* The sender of a request, as hb_access_identify() found it. */
struct hb_caller {
	struct hb_client client;
	uint64_t id;             /* callers with the same id may use each other's regions of shared memory */
	unsigned rights;         /* enum hb_right */
	enum hb_refusal refusal; /* why the caller lacks HB_RIGHT_USE */
	bool low_only;           /* its requests run with low priority */
};

/* Returns 0, or negative errno with *error. */
int hb_access_new(const struct hb_access_config *config, struct hb_access **out, struct hb_error *error);
void hb_access_free(struct hb_access *access);
/* Reads the token file again. On an error the tokens stay as they were. Returns 0, or negative errno with *error. */
int hb_access_reload(struct hb_access *access, struct hb_error *error);

struct hb_caller hb_access_identify(struct hb_access *access, const struct hb_access_request *request);
/* Returns the most bytes that the body of a call may have which needs `right`; `most` is the limit of inference. */
uint64_t hb_access_size_limit(enum hb_right right, bool infers, uint64_t most);
/* Returns whether the caller may make a call that needs `right`, and counts refusals. */
enum hb_refusal hb_access_check(struct hb_access *access, const struct hb_caller *caller, enum hb_right right);
/* Returns the text for the client. It names the option that would allow the call. */
const char *hb_access_text(const struct hb_access *access, enum hb_refusal refusal);

/*
 * Returns whether the caller may register an object of shared memory: its name as in shm_open(), and the open file.
 * Returns 0, or -EACCES with *error.
 */
int hb_access_check_object(const struct hb_access *access, const struct hb_caller *caller, const char *name,
			   const struct stat *object, struct hb_error *error);

/* Reads "none", or a list of socket, token and loopback, into *out. Returns 0 or -EINVAL. */
int hb_access_parse_to(const char *text, unsigned *out);
/* Adds a list of users and @groups, names or numbers, to those that may control the server. */
int hb_access_parse_operators(const char *text, struct hb_access_config *config, struct hb_error *error);

/* Appends the counters of refused calls to the metrics. */
void hb_access_write_metrics(const struct hb_access *access, FILE *out);

#endif
