/* SPDX-License-Identifier: Apache-2.0 */
/* The table of optional functions in the shim that users load: none. See extension.h. */
#include "shim/extension.h"

const struct hb_shim_extension hb_shim_extension;
