/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of cuxtra.h that level 1 uses. XSched asks for the parameters at every launch, and each answer costs a call of
 * the driver, so every thread keeps the answers until code is unloaded.
 */
#include "cuxtra/cuxtra.h"

#include "xsched/utils/log.h"

#include <atomic>
#include <unordered_map>
#include <vector>

using xsched::cuda::Driver;

struct Parameter {
	size_t offset;
	size_t size;
};

static std::atomic<unsigned> n_forgotten{1};

static std::vector<Parameter> ask_parameters(CUfunction handle)
{
	// The handle of a launch can also be a kernel of a library.
	CUfunction function = nullptr;
	if (Driver::KernelGetFunction(&function, (CUkernel)(void *)handle) != CUDA_SUCCESS)
		function = handle;
	std::vector<Parameter> parameters;
	Parameter next = {};
	CUresult result;
	while ((result = Driver::FuncGetParamInfo(function, parameters.size(), &next.offset, &next.size)) ==
	       CUDA_SUCCESS)
		parameters.push_back(next);
	// The driver has this answer for the index after the last one.
	if (result != CUDA_ERROR_INVALID_VALUE)
		XERRO("the driver does not tell the parameters of kernel %p: error %d", (void *)handle, result);
	return parameters;
}

static const std::vector<Parameter> &parameters_of(CUfunction handle)
{
	static thread_local std::unordered_map<CUfunction, std::vector<Parameter>> known;
	static thread_local unsigned known_since = 0;
	unsigned now = n_forgotten.load();
	if (known_since != now)
		known.clear();
	known_since = now;
	auto [place, is_new] = known.try_emplace(handle);
	if (is_new)
		place->second = ask_parameters(handle);
	return place->second;
}

void hb_forget_functions(void)
{
	n_forgotten.fetch_add(1);
}

// Level 1 passes the result only to the next two functions.
CUfunction cuXtraKernelGetFunction(CUkernel kernel)
{
	return (CUfunction)(void *)kernel;
}

size_t cuXtraGetParamCount(CUfunction function)
{
	return parameters_of(function).size();
}

void cuXtraGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size, bool *)
{
	const Parameter &parameter = parameters_of(function).at(index);
	*offset = parameter.offset;
	*size = parameter.size;
}

void cuXtraGetExtraBuffer(void **extra, void **buffer, size_t *size)
{
	for (; extra[0] != CU_LAUNCH_PARAM_END; extra += 2) {
		if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			*buffer = extra[1];
		else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
			*size = *(const size_t *)extra[1];
	}
}
