/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One scalar of a configuration file, from text into a field. Used by config.c
 * only; knows nothing of YAML, files or lines.
 */
#ifndef HB_BASE_CONFIG_VALUE_H
#define HB_BASE_CONFIG_VALUE_H

#include "base/config.h"

/*
 * Converts `text` to key->type and stores it at `field`. A value in quotes
 * (`quoted`) can only be text. Returns 0 or -EINVAL; the error describes the
 * value, without file, line and key.
 */
int hb_config_value_store(const struct hb_config_key *key, const char *text, bool quoted, void *field,
			  struct hb_error *error);

#endif
