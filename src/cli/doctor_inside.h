/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of `hb doctor` that runs as a tenant: makes a CUDA context through
 * whatever libcuda.so.1 the loader finds, asks the daemon what became of it,
 * and prints that as one JSON object on standard output.
 */
#ifndef HB_CLI_DOCTOR_INSIDE_H
#define HB_CLI_DOCTOR_INSIDE_H

/* An enum hb_exit. */
int hb_doctor_inside(void);

#endif
