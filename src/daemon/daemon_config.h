/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hummingbird.yaml: the daemon's settings and its rules for tenants. hbd reads the
 * file when it starts and on SIGHUP; `hbd --check-config` only checks it.
 * docs/daemon.md explains the keys.
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

/* Which SMs LP's masks leave to HP: SMs spread over all GPCs, or complete GPCs where they are known. */
enum hb_config_masks { HB_CONFIG_MASKS_SPREAD, HB_CONFIG_MASKS_GPCS };

/* Whether `engine: auto` may make HP a client of the MPS server, where a fault of LP ends HP, too. */
enum hb_config_isolation { HB_CONFIG_ISOLATION_STRICT, HB_CONFIG_ISOLATION_SHARED };

/* Says who registered a tenant: its own process, or root for it (`hb register`). */
enum hb_config_registrar { HB_CONFIG_BY_ANYBODY, HB_CONFIG_BY_ROOT };

/* A rule for tenants. The first rule that fits a process decides; an empty text fits every process. */
struct hb_rule {
	char user[64];
	char unit[128];
	char cgroup[256];      /* this path and all paths below it */
	int registered_by;     /* enum hb_config_registrar */
	int priority;          /* enum hb_config_priority: the highest priority that is granted */
	uint64_t memory_bytes; /* the most memory on each GPU; 0 = no limit */
	int64_t slo_ns;        /* for tenants that request none; 0 = none, -1 = learned */
	bool elastic;          /* programs of low priority have elastic memory without asking for it */
	char name[32];         /* shown in messages */
};

struct hb_daemon_config {
	int engine;    /* enum hb_config_engine */
	int isolation; /* enum hb_config_isolation */
	char policy[32];
	bool mps; /* false: LP tenants always take turns */
	int64_t quantum_ns;
	int64_t low_slice_ns, high_slice_ns; /* 0 = the default */
	char low_minimum[8];                 /* share of the GPU that LP gets in any case, "20%"; "" = none */
	uint64_t reserve_bytes;
	uint64_t elastic_host_bytes; /* memory of the host for moved memory of LP; 0 = no memory is elastic */
	bool elastic_peers;          /* LP's memory may move to other GPUs with room */
	int64_t elastic_idle_ns; /* elastic memory of an LP tenant without work for this long moves away; 0 = it stays */
	int64_t elastic_return_ns; /* moved memory returns when there has been room for this long */
	char metrics[80];          /* address of the metrics endpoint; "" = off */
	int64_t window_ns;         /* spatial engine: predicted LP time in flight beside HP */
	int masks;                 /* enum hb_config_masks */
	char trusted_driver[32];   /* driver version on which masks may be used untried; "" = none */
	int64_t idle_exit_ns;      /* the daemon ends after this long without tenants; 0 = never */
	int64_t users;             /* system mode: for how many users places are kept free */
	int64_t user_tenants, user_processes,
		user_connections; /* the most of one user; 0 = what is not kept for others */
	int others;               /* enum hb_config_priority: in system mode, the highest priority if no rule fits */
	struct hb_rule rules[HB_RULES_MAX];
	uint32_t n_rules;
};

/* `low_minimum` in ppm; 0 = none. */
uint32_t hb_daemon_config_low_minimum_ppm(const struct hb_daemon_config *config);
void hb_daemon_config_init(struct hb_daemon_config *config);
/* 0 or negative errno with "FILE:LINE: key: what is wrong". Unchanged on failure. */
int hb_daemon_config_load(const char *path, struct hb_daemon_config *config, struct hb_error *error);
int hb_daemon_config_parse(const char *text, const char *origin, struct hb_daemon_config *config,
			   struct hb_error *error);
/*
 * Copies from `read` to *config what a running daemon can change: all keys but those of AT_START (daemon_config.c).
 * Writes the names of keys that differ and apply only after a restart to `later`; "" = none.
 */
void hb_daemon_config_reload(struct hb_daemon_config *config, const struct hb_daemon_config *read, char *later,
			     size_t size);
/* Writes the path of the file that is read without --config; "" when there is no home folder. */
void hb_daemon_config_path(bool system_mode, char *path, size_t size);

#endif
