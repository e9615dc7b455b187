/* SPDX-License-Identifier: Apache-2.0 */
/* The client API from C++, in a program without Hummingbird and without CUDA: the header compiles by itself, and the calls do nothing. */
#include "hummingbird/client.h"

int main(void)
{
	int64_t before = hb_now_ns();
	hb_request_begin(0);
	hb_hint(hb_now_ns() + 300000);
	hb_request_end();
	hb_request_end();
	return hb_now_ns() >= before ? 0 : 1;
}
