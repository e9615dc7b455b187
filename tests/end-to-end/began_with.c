/* SPDX-License-Identifier: Apache-2.0 */
/* usage: began-with PID NAME=VALUE. Asks for the environment of a process as the daemon does; prints the answer. */
#include "daemon/process.h"

#include <stdlib.h>

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	puts(hb_process_began_with(atoi(argv[1]), argv[2]) ? "yes" : "no");
	fflush(stdout);
	_Exit(0);
}
