#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the machine code beside it again; needs CUDA 13's nvcc and fatbinary, and (for range_check) nothing but ptxas.
# The range_check.cubin that is checked in was made by the driver's own compiler (580.159, H200), as in use.
set -euo pipefail
cd "$(dirname "$0")"
nvcc -O3 -arch=sm_90 -fatbin --compress-mode=size -o kernels.fatbin slice_kernels.cu
echo '.version 7.0
.target sm_70
.address_size 64
.visible .entry nothing() { ret; }' >nothing.ptx
ptxas -arch=sm_90 -o nothing.cubin nothing.ptx
fatbinary --64 --create=lz4.fatbin --compress-mode=speed --compress-all \
	--image3=kind=elf,sm=90,file=nothing.cubin --image3=kind=ptx,sm=90,file=nothing.ptx
rm nothing.ptx nothing.cubin
