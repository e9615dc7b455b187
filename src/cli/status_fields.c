/* SPDX-License-Identifier: Apache-2.0 */
/* Reads fields of the daemon's status; see status_fields.h. */
#include "cli/status_fields.h"

#include <stdio.h>

const char *hb_status_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));
	return text ? text : "";
}

int64_t hb_status_number(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

json_t *hb_status_find_tenant(const json_t *status, int64_t id)
{
	json_t *tenant;
	size_t i;
	json_array_foreach(json_object_get(status, "tenants"), i, tenant)
	{
		if (hb_status_number(tenant, "id") == id)
			return tenant;
	}
	return NULL;
}

const char *hb_status_format_slo(const json_t *tenant, const char *none, char text[HB_UNITS_TEXT_MAX])
{
	int64_t slo_ns = hb_status_number(tenant, "slo_asked_ns");
	if (slo_ns > 0)
		return hb_duration_format(slo_ns, text);
	snprintf(text, HB_UNITS_TEXT_MAX, "%s", slo_ns < 0 ? "auto" : none);
	return text;
}
