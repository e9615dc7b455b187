/* SPDX-License-Identifier: Apache-2.0 */
/* Applies the rules of the configuration; see admission.h. */
#include "daemon/admission.h"

#include <stdio.h>
#include <string.h>

static bool is_below(const char *path, const char *top)
{
	size_t length = strlen(top);
	while (length > 1 && top[length - 1] == '/')
		length--;
	return strncmp(path, top, length) == 0 && (path[length] == '\0' || path[length] == '/' || length == 1);
}

static bool rule_fits(const struct hb_rule *rule, const struct hb_peer *peer)
{
	if (rule->user[0] && strcmp(rule->user, peer->user) != 0)
		return false;
	if (rule->unit[0] && strcmp(rule->unit, peer->unit) != 0)
		return false;
	if (rule->registered_by == HB_CONFIG_BY_ROOT && !peer->by_root)
		return false;
	return !rule->cgroup[0] || is_below(peer->cgroup, rule->cgroup);
}

static const struct hb_rule *find_rule(const struct hb_daemon_config *config, const struct hb_peer *peer)
{
	for (uint32_t i = 0; i < config->n_rules; i++)
		if (rule_fits(&config->rules[i], peer))
			return &config->rules[i];
	return NULL;
}

static void describe_rule(const struct hb_daemon_config *config, const struct hb_rule *rule, char *name, size_t size)
{
	if (!rule)
		snprintf(name, size, "no rule fits this user, unit or cgroup (so 'others' applies)");
	else if (rule->name[0])
		snprintf(name, size, "rule '%s'", rule->name);
	else
		snprintf(name, size, "rule %u", (unsigned)(rule - config->rules) + 1);
}

struct hb_rights hb_admit(const struct hb_daemon_config *config, bool system_mode, const struct hb_peer *peer,
			  const struct hb_rights *wanted, char reason[160])
{
	struct hb_rights granted = *wanted;
	const struct hb_rule *rule = find_rule(config, peer);
	int highest = rule ? rule->priority : system_mode ? config->others : HB_CONFIG_HIGH;
	char name[96];
	describe_rule(config, rule, name, sizeof name);
	reason[0] = '\0';
	if (rule && rule->slo_ns && !wanted->slo_ns)
		granted.slo_ns = rule->slo_ns;
	if (rule && rule->memory_bytes && (!wanted->memory_bytes || wanted->memory_bytes > rule->memory_bytes)) {
		granted.memory_bytes = rule->memory_bytes;
		snprintf(reason, 160, "memory limited by %s", name);
	}
	if (wanted->priority == HB_PAGE_HIGH && highest == HB_CONFIG_LOW) {
		granted.priority = HB_PAGE_LOW;
		snprintf(reason, 160, "priority high not granted: %s", name);
	}
	granted.elastic = granted.priority == HB_PAGE_LOW && config->elastic_host_bytes &&
			  (wanted->elastic || (rule && rule->elastic));
	granted.over = granted.elastic && wanted->over;
	return granted;
}

bool hb_admit_join(const struct hb_daemon_config *config, bool system_mode, const struct hb_peer *first,
		   const struct hb_rights *rights, const struct hb_peer *peer, char reason[160])
{
	hb_admit(config, system_mode, peer, rights, reason);
	return !reason[0] || find_rule(config, peer) == find_rule(config, first);
}
