/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU pages for programs of the previous release. Their shims were loaded before an
 * upgrade, map the GPU page writable, and report on it what newer shims report on
 * pages of their own (enum hb_protocol_feature). Such a tenant gets a copy of the
 * GPU page that no other tenant maps. The daemon writes its own fields to the copy at
 * each tick and reads nothing from it, so the tenant stays scheduled and can harm only
 * itself. For such a tenant the memory of other LP tenants is up to a tick old, and the
 * spatial engine is off on its GPU, because it cannot see the boards of others. Remove this file when no supported upgrade starts at that release.
 */
#ifndef HB_DAEMON_PREVIOUS_PAGE_H
#define HB_DAEMON_PREVIOUS_PAGE_H

#include "daemon/gpu_record.h"

struct hb_previous_page {
	struct hb_gpu_page *page;
	int fd;
};

/* The descriptor of the tenant's copy, which is made by the first call; or negative errno. */
int hb_previous_page_fd(struct hb_gpu *gpu, const struct hb_tenancy *tenancy);
/* Writes what has changed to all copies. Call it at each tick and after a change of the engine. */
void hb_previous_pages_update(struct hb_gpu *gpu);
void hb_previous_page_free(struct hb_gpu *gpu, uint32_t index);
/* Whether a program of the previous release uses the GPU. */
bool hb_previous_pages_in_use(const struct hb_gpu *gpu);

#endif
