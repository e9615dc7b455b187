/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: reads a recording of scheduling cores and replays it. */
#include "core/recording.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hb_error error = {""};
	struct hb_replay replay;
	char *text = calloc(1, size + 1);
	if (!text)
		return 0;
	memcpy(text, data, size);
	int code = hb_recording_replay(text, "input", NULL, NULL, &replay, &error);
	if (code && strncmp(error.text, "input:", 6) != 0)
		abort();
	free(text);
	return 0;
}
