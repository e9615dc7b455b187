/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hummingbird.yaml: the daemon's settings and its policy. Read by hbd at start
 * and on SIGHUP, and by `hbd --check-config`. Keys are explained in
 * docs/daemon.md.
 */
#ifndef HB_DAEMON_DAEMON_CONFIG_H
#define HB_DAEMON_DAEMON_CONFIG_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HB_RULES_MAX 64
#define HB_DEFAULT_POLICY "temporal"

enum hb_config_priority { HB_CONFIG_LOW, HB_CONFIG_HIGH };
enum hb_config_engine {
	HB_CONFIG_ENGINE_AUTO,
	HB_CONFIG_ENGINE_TEMPORAL,
	HB_CONFIG_ENGINE_TURNS,
	HB_CONFIG_ENGINE_SPATIAL
};

/* What LP's masks leave to HP: SMs of all GPCs, or whole ones where they are known. */
enum hb_config_masks { HB_CONFIG_MASKS_SPREAD, HB_CONFIG_MASKS_GPCS };

/* One rule of the policy: the first that fits a process decides. Empty texts fit everything. */
struct hb_rule {
	char user[64];
	char unit[128];
	char cgroup[256];      /* this path and all below it */
	int priority;          /* enum hb_config_priority: the highest it may have */
	uint64_t memory_bytes; /* the most it may have on each GPU; 0 = no bound */
	int64_t slo_ns;        /* where it asks for none itself; 0 = none, -1 = learn it */
	char name[32];         /* for messages */
};

struct hb_daemon_config {
	int engine; /* enum hb_config_engine */
	char policy[32];
	bool mps; /* false: LP tenants always take turns */
	int64_t quantum_ns;
	int64_t low_slice_ns, high_slice_ns; /* 0 = the core's default */
	uint64_t reserve_bytes;
	char metrics[80]; /* address of the metrics endpoint; "" = off */
	/* The spatial engine: predicted LP time in flight beside HP; SMs LP may have then, 0 = slack decides; how much of
	 * its time alone LP may cost a request, in percent, 0 = LP waits while one is served, -1 = the policy decides. */
	int64_t window_ns;
	int64_t low_sms, harm_percent;
	int masks;            /* enum hb_config_masks */
	int64_t idle_exit_ns; /* per-user daemons end after this long without tenants; 0 = never */
	int others;           /* enum hb_config_priority: the highest for processes that no rule fits, in system mode */
	struct hb_rule rules[HB_RULES_MAX];
	uint32_t n_rules;
};

void hb_daemon_config_init(struct hb_daemon_config *config);
/* 0 or negative errno with "FILE:LINE: key: what is wrong". Unchanged on failure. */
int hb_daemon_config_load(const char *path, struct hb_daemon_config *config, struct hb_error *error);
int hb_daemon_config_parse(const char *text, const char *origin, struct hb_daemon_config *config,
			   struct hb_error *error);
/*
 * What of `read` may change while the daemon runs (rules, reserve, others, idle_exit, the spatial engine's) goes to *config; the names of
 * keys that differ and need a new start to `later`, "" = none.
 */
void hb_daemon_config_reload(struct hb_daemon_config *config, const struct hb_daemon_config *read, char *later,
			     size_t size);
/* Where it is looked for without --config; "" when there is no home. */
void hb_daemon_config_path(bool system_mode, char *path, size_t size);

#endif
