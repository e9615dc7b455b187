/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding driver functions by being linked with libcuda; part of the linked
 * caller, and a plug-in of its own that caller.c opens with RTLD_DEEPBIND.
 */
#ifndef HB_TEST_PLUGIN_H
#define HB_TEST_PLUGIN_H

__attribute__((visibility("default"))) void *hb_test_plugin_find(const char *name);

#endif
