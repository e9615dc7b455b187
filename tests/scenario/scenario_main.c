/* SPDX-License-Identifier: Apache-2.0 */
/* run [--check | --refresh] FILE.txt|FOLDER...: the scenarios of the core; see golden/golden_main.h. */
#include "golden/golden_main.h"
#include "scenario.h"

static void run(const char *name, FILE *in, FILE *out)
{
	struct hb_error error;
	if (hb_scenario_run(name, in, out, &error))
		fprintf(out, "%s\n", error.text);
}

int main(int argc, char **argv)
{
	return hb_golden_main(argc, argv, run);
}
