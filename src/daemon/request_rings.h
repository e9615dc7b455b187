/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that the tenants' processes report through the rings on their pages
 * (struct hb_page_requests). Reading them and posting them to the cores are two
 * steps: in between the daemon polls the gates, so that work which began before
 * a request ended is known when the request is judged. A ring is a process's own
 * memory: entries are checked, and bad ones count as lost. A tenant can only
 * change the judgement of its own requests.
 */
#ifndef HB_DAEMON_REQUEST_RINGS_H
#define HB_DAEMON_REQUEST_RINGS_H

#include "daemon/gpu_record.h"

/* A finished request that was read from a ring. */
struct hb_reported_request {
	struct hb_tenancy *tenancy;
	int64_t begin_ns, end_ns, deadline_ns;
	uint32_t flags, harm_us; /* as on the page, see struct hb_page_request */
	uint32_t lost;           /* requests before this one that could not be read */
};

/* Reported requests in the order in which they were read; begins all zero. The tenants must exist until they are posted. */
struct hb_request_list {
	struct hb_reported_request *requests;
	size_t n, room;
};

/* Appends the requests in the tenant's rings, if it is time to read them. When to call it again; HB_TIME_NEVER. */
int64_t hb_request_rings_read(struct hb_tenancy *tenancy, int64_t now_ns, struct hb_request_list *list);
/* Posts the requests to the cores of the GPUs that their tenants used, and empties the list. */
void hb_request_list_post(struct hb_request_list *list, int64_t now_ns);
void hb_request_list_free(struct hb_request_list *list);

/* The running request of a tenant that has the least slack. */
struct hb_request_running {
	int64_t since_ns; /* 0 = no request is running */
	int64_t slack_ns; /* HB_TIME_NEVER = the request has no deadline */
};
struct hb_request_running hb_request_running(const struct hb_tenancy *tenancy, const struct hb_tenant *tenant,
					     int64_t now_ns);

#endif
