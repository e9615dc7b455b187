/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One scalar of a configuration file, from text into a field. Used by config.c
 * only; knows nothing of YAML, files or lines.
 */
#ifndef HB_BASE_CONFIG_VALUE_H
#define HB_BASE_CONFIG_VALUE_H

#include "base/config.h"

/*
 * Stores `text` as key->type says at `field`. `quoted`: the file put quotes
 * around it, so it is text and nothing else. 0 or -EINVAL; the error says what
 * is wrong with the value, without file, line and key.
 */
int hb_config_value_store(const struct hb_config_key *key, const char *text, bool quoted, void *field,
			  struct hb_error *error);

#endif
