/* SPDX-License-Identifier: Apache-2.0 */
/* Reads hummingbird.yaml; see daemon_config.h. */
#include "daemon/daemon_config.h"

#include "base/clock.h"
#include "base/config.h"
#include "base/http_address.h"
#include "base/paths.h"
#include "core/low_minimum.h"
#include "daemon/user_budget.h"
#include "decide/defaults.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const priorities[] = {"low", "high", NULL};
/* In the order of enum hb_config_registrar. */
static const char *const registrars[] = {"anybody", "root", NULL};
static const char *const engines[] = {"auto", "temporal", "turns", "spatial", NULL};
static const char *const isolations[] = {"strict", "shared", NULL};
/* In the order of enum hb_config_masks. */
static const char *const masks[] = {"spread", "gpcs", NULL};

static int check_policy(const char *text, struct hb_error *why)
{
	if (hb_policy_find(text))
		return 0;
	return hb_error_set(why, -EINVAL, "there is no policy '%.60s'; the policies are:%s", text, hb_policy_words);
}

static int check_metrics_address(const char *text, struct hb_error *why)
{
	struct sockaddr_storage address;
	return *text ? hb_http_address_parse(text, &address, why) : 0;
}

#define DAY_NS (86400 * HB_NS_PER_S)
#define PPM_OF_PERCENT 10000

/* A whole number of percent; -1 = the text is none, or too large. */
static long read_percent(const char *text)
{
	char *end;
	long percent = strtol(text, &end, 10);
	bool valid = end != text && strcmp(end, "%") == 0 && percent >= 0 &&
		     percent <= HB_LOW_MINIMUM_MOST_PPM / PPM_OF_PERCENT;
	return valid ? percent : -1;
}

static int check_low_minimum(const char *text, struct hb_error *why)
{
	if (read_percent(text) >= 0)
		return 0;
	return hb_error_set(why, -EINVAL, "'%.20s' is not a share from 0%% to %d%%, such as 20%%", text,
			    HB_LOW_MINIMUM_MOST_PPM / PPM_OF_PERCENT);
}

uint32_t hb_daemon_config_low_minimum_ppm(const struct hb_daemon_config *config)
{
	long percent = read_percent(config->low_minimum);
	return percent > 0 ? (uint32_t)percent * PPM_OF_PERCENT : 0;
}

static const struct hb_config_key rule_keys[] = {
	HB_CONFIG_TEXT(struct hb_rule, name, "name"),
	HB_CONFIG_TEXT(struct hb_rule, user, "user"),
	HB_CONFIG_TEXT(struct hb_rule, unit, "unit"),
	HB_CONFIG_TEXT(struct hb_rule, cgroup, "cgroup"),
	HB_CONFIG_CHOICE(struct hb_rule, registered_by, "registered_by", .choices = registrars),
	HB_CONFIG_CHOICE(struct hb_rule, priority, "priority", .choices = priorities, .required = true),
	HB_CONFIG_BYTES(struct hb_rule, memory_bytes, "memory", .memory = true),
	HB_CONFIG_DURATION(struct hb_rule, slo_ns, "slo"),
	HB_CONFIG_BOOL(struct hb_rule, elastic, "elastic"),
	HB_CONFIG_END,
};

static const struct hb_config_key keys[] = {
	HB_CONFIG_CHOICE(struct hb_daemon_config, engine, "engine", .choices = engines),
	HB_CONFIG_CHOICE(struct hb_daemon_config, isolation, "isolation", .choices = isolations),
	HB_CONFIG_TEXT(struct hb_daemon_config, policy, "policy", .check = check_policy),
	HB_CONFIG_BOOL(struct hb_daemon_config, mps, "mps"),
	HB_CONFIG_DURATION(struct hb_daemon_config, quantum_ns, "quantum", .min = HB_NS_PER_MS,
			   .max = 10 * HB_NS_PER_S),
	HB_CONFIG_DURATION(struct hb_daemon_config, low_slice_ns, "low_slice", .min = HB_NS_PER_US, .max = HB_NS_PER_S),
	HB_CONFIG_DURATION(struct hb_daemon_config, high_slice_ns, "high_slice", .min = HB_NS_PER_US,
			   .max = 10 * HB_NS_PER_S),
	HB_CONFIG_TEXT(struct hb_daemon_config, low_minimum, "low_minimum", .check = check_low_minimum),
	HB_CONFIG_BYTES(struct hb_daemon_config, reserve_bytes, "reserve", .memory = true),
	HB_CONFIG_BYTES(struct hb_daemon_config, elastic_host_bytes, "elastic_host", .memory = true),
	HB_CONFIG_BOOL(struct hb_daemon_config, elastic_peers, "elastic_peers"),
	HB_CONFIG_DURATION(struct hb_daemon_config, elastic_idle_ns, "elastic_idle", .max = DAY_NS),
	HB_CONFIG_DURATION(struct hb_daemon_config, elastic_return_ns, "elastic_return", .max = DAY_NS),
	HB_CONFIG_DURATION(struct hb_daemon_config, window_ns, "window", .min = 20 * HB_NS_PER_US, .max = HB_NS_PER_S),
	HB_CONFIG_CHOICE(struct hb_daemon_config, masks, "masks", .choices = masks),
	HB_CONFIG_TEXT(struct hb_daemon_config, trusted_driver, "trusted_driver"),
	HB_CONFIG_DURATION(struct hb_daemon_config, idle_exit_ns, "idle_exit"),
	HB_CONFIG_TEXT(struct hb_daemon_config, metrics, "metrics", .check = check_metrics_address),
	HB_CONFIG_INT(struct hb_daemon_config, users, "users", .min = 0, .max = HB_USERS_KEPT_MAX),
	HB_CONFIG_INT(struct hb_daemon_config, user_tenants, "user_tenants", .min = 0, .max = INT32_MAX),
	HB_CONFIG_INT(struct hb_daemon_config, user_processes, "user_processes", .min = 0, .max = INT32_MAX),
	HB_CONFIG_INT(struct hb_daemon_config, user_connections, "user_connections", .min = 0, .max = INT32_MAX),
	HB_CONFIG_CHOICE(struct hb_daemon_config, others, "others", .choices = priorities),
	HB_CONFIG_LIST(struct hb_daemon_config, rules, n_rules, "rules", .keys = rule_keys),
	HB_CONFIG_END,
};

void hb_daemon_config_init(struct hb_daemon_config *config)
{
	memset(config, 0, sizeof *config);
	config->mps = true;
	config->engine = HB_CONFIG_ENGINE_TEMPORAL;
	config->isolation = HB_CONFIG_ISOLATION_STRICT;
	config->others = HB_CONFIG_LOW;
	config->users = HB_USERS_KEPT;
	config->quantum_ns = HB_DEFAULT_QUANTUM_NS;
	config->window_ns = HB_DEFAULT_WINDOW_NS;
	config->elastic_return_ns = HB_DEFAULT_MEMORY_ROOM_NS;
	config->masks = HB_DEFAULT_MASKS_GPCS ? HB_CONFIG_MASKS_GPCS : HB_CONFIG_MASKS_SPREAD;
	strcpy(config->policy, HB_DEFAULT_POLICY);
}

int hb_daemon_config_load(const char *path, struct hb_daemon_config *config, struct hb_error *error)
{
	return hb_config_load(path, keys, config, sizeof *config, error);
}

int hb_daemon_config_parse(const char *text, const char *origin, struct hb_daemon_config *config,
			   struct hb_error *error)
{
	return hb_config_parse(text, strlen(text), origin, keys, config, sizeof *config, error);
}

/* Keys that a running daemon cannot change. */
#define AT_START(X) \
	X(engine, "engine") \
	X(policy, "policy") \
	X(mps, "mps") \
	X(quantum_ns, "quantum") \
	X(low_slice_ns, "low_slice") \
	X(high_slice_ns, "high_slice") \
	X(low_minimum, "low_minimum") \
	X(elastic_idle_ns, "elastic_idle") \
	X(elastic_return_ns, "elastic_return") \
	X(users, "users") \
	X(metrics, "metrics")

void hb_daemon_config_reload(struct hb_daemon_config *config, const struct hb_daemon_config *read, char *later,
			     size_t size)
{
	struct hb_daemon_config next = *read;
	size_t used = 0;
	later[0] = '\0';
#define X(field, key) \
	if (memcmp(&config->field, &read->field, sizeof read->field) != 0 && used < size) \
		used += (size_t)snprintf(later + used, size - used, "%s%s", used ? ", " : "", key); \
	memcpy(&next.field, &config->field, sizeof next.field);
	AT_START(X)
#undef X
	*config = next;
}

void hb_daemon_config_path(bool system_mode, char *path, size_t size)
{
	if (system_mode)
		snprintf(path, size, "/etc/hummingbird/hummingbird.yaml");
	else
		hb_path_user_file("XDG_CONFIG_HOME", ".config", "hummingbird.yaml", path, size);
}
