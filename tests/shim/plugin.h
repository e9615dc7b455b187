/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds driver functions by being linked with libcuda. Part of the linked caller, and
 * also a plug-in that caller.c opens with RTLD_DEEPBIND.
 */
#ifndef HB_TEST_PLUGIN_H
#define HB_TEST_PLUGIN_H

__attribute__((visibility("default"))) void *hb_test_plugin_find(const char *name);

#endif
