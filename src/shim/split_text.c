/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Modules that the program loads as PTX text. The driver compiles the text and does
 * not return the machine code, so its kernels could not be split. The driver's linker
 * compiles text as well and returns the code, which is then loaded in place of the
 * text.
 */
#include "shim/shim.h"
#include "shim/split.h"

#include <string.h>

/*
 * The linker does not use the driver's cache on the disk, so a long text would be compiled again at each start of the
 * program.
 */
#define TEXT_BYTES_MAX ((size_t)1 << 20)

/* Skips spaces and comments. Reads nothing behind the first byte of anything else. */
static const char *skip_comments(const char *text)
{
	for (;;) {
		text += strspn(text, " \t\r\n");
		if (text[0] == '/' && text[1] == '/')
			text += strcspn(text, "\n");
		else if (text[0] == '/' && text[1] == '*')
			text = strstr(text + 2, "*/") ? strstr(text + 2, "*/") + 2 : "";
		else
			return text;
	}
}

/* Whether the option leaves the code as it is: reports, and what the linker does anyway. */
static bool is_harmless(CUjit_option option)
{
	switch (option) {
	case CU_JIT_WALL_TIME:
	case CU_JIT_INFO_LOG_BUFFER:
	case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
	case CU_JIT_ERROR_LOG_BUFFER:
	case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
	case CU_JIT_LOG_VERBOSE:
	case CU_JIT_TARGET_FROM_CUCONTEXT:
	case CU_JIT_CACHE_MODE:
		return true;
	default:
		return false;
	}
}

/*
 * The linker may leave calls of functions that the compiler would have inlined, and then the last bits of a result could
 * differ. So text with functions is not compiled here.
 */
bool hb_split_can_compile(const void *image, unsigned n_options, const CUjit_option *options)
{
	const char *text = image;
	if (strncmp(skip_comments(text), ".version", strlen(".version")) != 0 ||
	    strnlen(text, TEXT_BYTES_MAX) == TEXT_BYTES_MAX || strstr(text, ".func"))
		return false;
	for (unsigned i = 0; i < n_options; i++)
		if (!is_harmless(options[i]))
			return false;
	return true;
}

const void *hb_split_compile(const void *text, CUlinkState *link)
{
	void *code;
	size_t size;
	if (HB_REAL(cuLinkCreate_v2)(0, NULL, NULL, link) != CUDA_SUCCESS)
		return NULL;
	if (HB_REAL(cuLinkAddData_v2)(*link, CU_JIT_INPUT_PTX, (void *)(uintptr_t)text, strlen(text) + 1, "module", 0,
				      NULL, NULL) == CUDA_SUCCESS &&
	    HB_REAL(cuLinkComplete)(*link, &code, &size) == CUDA_SUCCESS)
		return code;
	HB_REAL(cuLinkDestroy)(*link);
	return NULL;
}
