/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hb doctor --inside`, which runs as a tenant: creates a CUDA context through the libcuda.so.1 that the loader finds, asks
 * the daemon for the status of its tenant, and prints it as one JSON object on standard output.
 */
#ifndef HB_CLI_DOCTOR_INSIDE_H
#define HB_CLI_DOCTOR_INSIDE_H

/* Returns an enum hb_exit. */
int hb_doctor_inside(void);

#endif
