/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signatures of the driver functions that the shim hooks by hand or calls
 * itself, under their exact exported names. Compiled against cuda_abi.h in the
 * shim and against cuda.h in test_abi, where a wrong signature is an error.
 * Never called by these names: that would be a call to ourselves. HB_REAL(name)
 * of shim.h is the driver's function.
 */
#ifndef HB_SHIM_CUDA_CALLS_H
#define HB_SHIM_CUDA_CALLS_H

/* clang-format off */
CUresult cuInit(unsigned int flags);
CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags);
CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status);
/* clang-format on */

#endif
