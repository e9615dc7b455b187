/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of hb-k8s. */
#ifndef HB_K8S_K8S_COMMAND_H
#define HB_K8S_K8S_COMMAND_H

#include <stdbool.h>

/* `hb-k8s dra`; argv[0] is the word dra. Returns the exit status. */
int hb_k8s_dra(int argc, char **argv);

/* Says what is wrong in the command line. Returns the exit status 2. */
int hb_k8s_usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Takes the value of --gpu. Returns -1, or the exit status 2 after a message. */
int hb_k8s_take_gpu(const char *value, bool *simulated);

#endif
