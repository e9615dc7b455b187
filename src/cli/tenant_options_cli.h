/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the options that describe a tenant: the same for `hb run` and `hb set`. */
#ifndef HB_CLI_TENANT_OPTIONS_H
#define HB_CLI_TENANT_OPTIONS_H

#include "protocol/daemon_client.h"

/* Codes of the options; a command's own options begin at HB_TENANT_OPTIONS_END. */
enum hb_tenant_option_code {
	HB_TENANT_OPTION_PRIORITY = 256,
	HB_TENANT_OPTION_SLO,
	HB_TENANT_OPTION_MEMORY,
	HB_TENANT_OPTION_WEIGHT,
	HB_TENANT_OPTION_PCIE_WEIGHT,
	HB_TENANT_OPTIONS_END,
};

/* Rows for getopt_long(). */
#define HB_TENANT_OPTION_ROWS \
	{"priority", required_argument, NULL, HB_TENANT_OPTION_PRIORITY}, \
		{"slo", required_argument, NULL, HB_TENANT_OPTION_SLO}, \
		{"memory", required_argument, NULL, HB_TENANT_OPTION_MEMORY}, \
		{"weight", required_argument, NULL, HB_TENANT_OPTION_WEIGHT}, \
	{ \
		"pcie-weight", required_argument, NULL, HB_TENANT_OPTION_PCIE_WEIGHT \
	}

/*
 * Stores the value of one of these options. Returns -1, or prints a message that names command, option and value and
 * returns the exit status. Other codes are left alone (-1).
 */
int hb_tenant_options_take(const char *command, struct hb_tenant_options *options, int code, const char *value);

#endif
