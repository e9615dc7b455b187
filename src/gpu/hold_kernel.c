/* SPDX-License-Identifier: Apache-2.0 */
/* See hold_kernel.h. Reads the word with a volatile load: past the caches, about once a microsecond over PCIe. */
#include "gpu/hold_kernel.h"

const char hb_hold_ptx[] = ".version 7.0\n"
			   ".target sm_70\n"
			   ".address_size 64\n"
			   ".visible .entry " HB_HOLD_KERNEL_NAME "(.param .u64 word, .param .u64 limit, "
			   ".param .u64 linger)\n"
			   "{\n"
			   ".reg .u64 %word, %now, %end, %linger, %soon;\n"
			   ".reg .u32 %value;\n"
			   ".reg .pred %over;\n"
			   "ld.param.u64 %word, [word];\n"
			   "ld.param.u64 %end, [limit];\n"
			   "ld.param.u64 %linger, [linger];\n"
			   "mov.u64 %now, %globaltimer;\n"
			   "add.u64 %end, %end, %now;\n"
			   "LOOK:\n"
			   "ld.volatile.u32 %value, [%word];\n"
			   "setp.ge.u32 %over, %value, 2;\n"
			   "@%over bra DONE;\n"
			   "mov.u64 %now, %globaltimer;\n"
			   "setp.ge.u64 %over, %now, %end;\n"
			   "@%over bra DONE;\n"
			   "setp.eq.u32 %over, %value, 0;\n"
			   "@%over bra LOOK;\n"
			   "add.u64 %soon, %now, %linger;\n"
			   "min.u64 %end, %end, %soon;\n"
			   "bra LOOK;\n"
			   "DONE:\n"
			   "ret;\n"
			   "}\n";

/* 20 ms is above every limit that the process itself keeps. */
const char hb_hold_simulated[] = "HBSIM1\nhold " HB_HOLD_KERNEL_NAME " ns=20000000\n";
