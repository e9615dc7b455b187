#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds llama.cpp's llama-server for one kind of GPU (sm_90) from PyPI's source distribution of llama-cpp-python, small
# enough to carry to a machine without a network. Nothing of llama.cpp becomes part of this project.
#
# usage: bench/llm/build_llama_server.sh FOLDER [JOBS]      FOLDER/llama-server is the result
#
# Needs nvcc 13 or 12, cmake, ninja, a C++ compiler and pip. LLAMA_SDIST=FILE names a source distribution that is already
# there. Only kernels for 16-bit weights and heads of 128 numbers are compiled (bench/llm/write_gguf.py writes such models);
# the other instances are taken out of the source, and the program ends if it calls one of them.
set -euo pipefail
version=0.3.36
(($# >= 1)) || { sed -n '/^# usage/p' "$0" >&2; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
jobs=${2:-$(nproc)}
sdist=${LLAMA_SDIST:-$folder/llama_cpp_python-$version.tar.gz}
export PATH=$PATH:/usr/local/cuda/bin

# Compiles the files of DIRECTORY/FOLDER as one part of TARGET: unite DIRECTORY TARGET FOLDER
unite() {
	cat >>"$1/CMakeLists.txt" <<-UNITE
		file(GLOB united RELATIVE \${CMAKE_CURRENT_SOURCE_DIR} "$3/*.cpp")
		set_source_files_properties(\${united} PROPERTIES UNITY_GROUP $3)
		set_target_properties($2 PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
	UNITE
}

[[ -f $sdist ]] || python3 -m pip download -q --no-deps --no-binary :all: -d "$folder" "llama-cpp-python==$version"
source=$folder/llama_cpp_python-$version/vendor/llama.cpp
if [[ ! -f $source/.trimmed ]]; then
	rm -rf "$folder/llama_cpp_python-$version"
	tar -xzf "$sdist" -C "$folder"
	instances=$source/ggml/src/ggml-cuda/template-instances
	rm "$instances"/mmq-instance-*.cu "$instances"/fattn-tile-instance-*.cu
	find "$instances" -name 'fattn-mma-*' ! -name '*ncols2_4.cu' ! -name '*ncols2_1.cu' -delete
	sed -i -E '/^DECL_FATTN_MMA_F16_CASE/{/\(128, 128/!d}' "$instances"/fattn-mma-*.cu
	sed -i -E '/^DECL_FATTN_VEC_CASE/{/\(128,/!d}' "$instances"/fattn-vec-*.cu
	# Small files with the same large headers compile in a fraction of the time as one.
	unite "$source/tools/mtmd" mtmd models
	unite "$source/common" llama-common parsers
	touch "$source/.trimmed"
fi

missing=$folder/missing.o
[[ -f $missing ]] || as -o "$missing" /dev/null
cmake -S "$source" -B "$folder/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
	-DCMAKE_CUDA_ARCHITECTURES=90-real -DGGML_CUDA=ON -DGGML_CUDA_FA_QUANTS=f16-f16 -DGGML_CUDA_NCCL=OFF \
	-DGGML_NATIVE=OFF -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON -DGGML_OPENMP=OFF \
	-DGGML_CCACHE=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF \
	-DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF \
	-DCMAKE_EXE_LINKER_FLAGS="-static-libstdc++ -static-libgcc $missing" \
	>"$folder/cmake.log" || { tail -20 "$folder/cmake.log" >&2; exit 1; }
ninja -C "$folder/build" -j "$jobs" ggml-cuda
# The instances that were taken out become functions that end the program.
kernels=$folder/build/ggml/src/ggml-cuda/libggml-cuda.a
comm -23 <(nm -u "$kernels" | awk '/mul_mat_q_case|flash_attn_ext.*_case/ {print $2}' | sort -u) \
	<(nm --defined-only "$kernels" | awk '{print $3}' | sort -u) |
	sed 's/.*/.globl &\n&:/; $a ud2\n.section .note.GNU-stack,"",@progbits' | as -o "$missing"
rm -f "$folder/build/bin/llama-server"
ninja -C "$folder/build" -j "$jobs" llama-server
strip -o "$folder/llama-server" "$folder/build/bin/llama-server"
ls -l "$folder/llama-server"
