#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds other systems that share a GPU, for `hb bench run SUITE --hami OUT` and `--nvshare OUT`. Their code comes from a
# checkout that you name and goes into a folder that you name; none of it becomes part of this project. The checkout is not
# changed. docs/bench.md says how they are used.
#
#   bench/build_peers.sh nvshare CHECKOUT OUT
#   bench/build_peers.sh hami CHECKOUT OUT     # needs CUDA's headers (CUDA_HOME) and nvml.h (there, or in the folder NVML_INCLUDE)
set -eu

fail() {
    echo "build_peers.sh: $*" >&2
    exit 1
}

[ $# -eq 3 ] || { sed -n '/^#   bench/s/^#  *//p' "$0" >&2; exit 2; }
system=$1
checkout=$(realpath -e -- "$2") || fail "$2: there is no such folder"
sources=$checkout/src
mkdir -p -- "$3"
out=$(realpath -- "$3")
case $out/ in "$checkout"/*) fail "OUT must not be inside the checkout";; esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

note_version() {
    git -C "$checkout" rev-parse HEAD > "$out/commit" 2> /dev/null || echo unknown > "$out/commit"
    echo "built $system at $(cat "$out/commit") into $out"
}

build_nvshare() {
    [ -f "$sources/scheduler.c" ] || fail "$sources/scheduler.c is missing; name a checkout of nvshare"
    cp -r "$sources" "$work/src"
    make -s -C "$work/src" NVSHARE_COMMIT=unknown libnvshare.so nvshare-scheduler nvsharectl
    cp "$work/src/libnvshare.so" "$work/src/nvshare-scheduler" "$work/src/nvsharectl" "$out/"
}

# Only the library: the checkout's own build also compiles tests, which need the entire toolkit. Without a driver on this
# machine, empty libraries stand for the two that it links; the program finds the real ones when it starts.
build_hami() {
    [ -f "$sources/libvgpu.c" ] || fail "$sources/libvgpu.c is missing; name a checkout of HAMi-core"
    cuda=${CUDA_HOME:-/usr/local/cuda}
    [ -f "$cuda/include/cuda.h" ] || fail "$cuda/include/cuda.h is missing; set CUDA_HOME"
    nvml=${NVML_INCLUDE:-$cuda/include}
    [ -f "$nvml/nvml.h" ] || fail "$nvml/nvml.h is missing; set NVML_INCLUDE to its folder"
    mkdir "$work/config" "$work/libraries"
    # These are the options that the checkout's build.sh switches on, without the debug messages.
    sed 's/@[A-Z_]*@/build_peers/g; /^#cmakedefine .*_DEBUG/d; s/^#cmakedefine/#define/' \
        "$sources/static_config.h.in" > "$work/config/static_config.h"
    for name in cuda nvidia-ml; do
        echo | cc -shared -Wl,-soname,"lib$name.so.1" -x c -o "$work/libraries/lib$name.so" -
    done
    include="-I$cuda/include -I$nvml -I$sources -I$work/config"
    if ! { cmake -S "$sources" -B "$work/build" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS="$include" \
        -DCMAKE_SHARED_LINKER_FLAGS="-L$work/libraries -Wl,--no-as-needed" \
        -DLIBRARY_COMPILE_FLAGS="-shared;-fPIC;-D_GNU_SOURCE;-O2" -Wno-dev &&
        cmake --build "$work/build" --target vgpu; } > "$work/log" 2>&1; then
        tail -20 "$work/log" >&2
        fail "the build failed"
    fi
    cp "$work/build/libvgpu.so" "$out/"
}

case $system in
nvshare) build_nvshare ;;
hami) build_hami ;;
*) fail "$system: it can build nvshare and hami" ;;
esac
note_version
