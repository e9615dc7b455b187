/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks the CUDA driver of this process whether an error has broken a context (illegal address, failed assertion, ECC error
 * ...). Then each later call in it fails, until the process ends. For onnx_worker.c; worker.py does the same.
 */
#ifndef HB_SERVER_CUDA_CONTEXT_H
#define HB_SERVER_CUDA_CONTEXT_H

/* Returns the driver's error of a broken context; 0 = no context is broken, or CUDA is not loaded. Waits for the GPU. */
int hb_cuda_context_error(void);

#endif
