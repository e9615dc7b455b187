#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the machine code beside it again; needs CUDA 13's nvcc and fatbinary, and (for range_check) nothing but ptxas.
# generations.fatbin and range_checks.fatbin have code for GPUs on which splitting was never tried; their checks are
# ptxas's.
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
printf '#include "cubin/prologue.h"\n#include <stdio.h>\nint main(void) { fputs(hb_prologue_ptx, stdout); }\n' >print.c
cc -D_GNU_SOURCE -I../../src -o print.out print.c ../../src/cubin/*.c -llz4 -lzstd
./print.out >range_check.ptx
for arch in 80 89 100; do
	nvcc -O3 -arch=sm_$arch -cubin -o kernels_$arch.cubin slice_kernels.cu
	ptxas -arch=sm_$arch -o range_$arch.cubin range_check.ptx
done
fatbinary --64 --create=generations.fatbin --compress-mode=size --compress-all \
	--image3=kind=elf,sm=80,file=kernels_80.cubin --image3=kind=elf,sm=89,file=kernels_89.cubin \
	--image3=kind=elf,sm=100,file=kernels_100.cubin
fatbinary --64 --create=range_checks.fatbin --compress-mode=size --compress-all \
	--image3=kind=elf,sm=80,file=range_80.cubin --image3=kind=elf,sm=89,file=range_89.cubin \
	--image3=kind=elf,sm=100,file=range_100.cubin
rm nothing.ptx kernels_*.cubin range_[0-9]*.cubin range_check.ptx print.c print.out nothing.cubin
