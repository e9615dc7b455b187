/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The images of the takeover kernel (takeover_kernel.h). The kernel reads the word
 * with a volatile load, which bypasses the caches and takes about a microsecond over
 * PCIe. A kernel with a limit reports its begin and end with two posted writes; a
 * kernel without a limit only has to be queued.
 */
#include "nvidia/takeover_kernel.h"

const char hb_takeover_ptx[] = ".version 7.0\n"
			       ".target sm_70\n"
			       ".address_size 64\n"
			       ".visible .entry " HB_TAKEOVER_KERNEL_NAME "(.param .u64 word, .param .u64 limit, "
			       ".param .u64 linger)\n"
			       "{\n"
			       ".reg .u64 %word, %now, %end, %limit, %linger;\n"
			       ".reg .u32 %value, %last;\n"
			       ".reg .pred %over, %told;\n"
			       "ld.param.u64 %word, [word];\n"
			       "ld.param.u64 %limit, [limit];\n"
			       "ld.param.u64 %linger, [linger];\n"
			       "setp.ne.u64 %told, %limit, 0;\n"
			       "mov.u64 %now, %globaltimer;\n"
			       "@%told st.volatile.u64 [%word+8], %now;\n"
			       "add.u64 %limit, %limit, %now;\n"
			       "mov.u64 %end, %limit;\n"
			       "mov.u32 %last, 0;\n"
			       "LOOK:\n"
			       "ld.volatile.u32 %value, [%word];\n"
			       "setp.eq.u32 %over, %value, 0xffffffff;\n"
			       "@%over bra DONE;\n"
			       "mov.u64 %now, %globaltimer;\n"
			       "setp.ge.u64 %over, %now, %end;\n"
			       "@%over bra DONE;\n"
			       "setp.eq.u32 %over, %value, %last;\n"
			       "@%over bra LOOK;\n"
			       "mov.u32 %last, %value;\n"
			       "add.u64 %end, %now, %linger;\n"
			       "min.u64 %end, %end, %limit;\n"
			       "bra LOOK;\n"
			       "DONE:\n"
			       "mov.u64 %now, %globaltimer;\n"
			       "@%told st.volatile.u64 [%word+16], %now;\n"
			       "ret;\n"
			       "}\n";

/* 20 ms is more than every limit that the process itself sets. */
const char hb_takeover_simulated[] = "HBSIM1\ntakeover " HB_TAKEOVER_KERNEL_NAME " ns=20000000\n";
