#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds other systems that share a GPU, for `hb bench run SUITE --hami OUT`, `--nvshare OUT` and `--xsched OUT`. Their code
# comes from a checkout that you name and goes into a folder that you name; none of it becomes part of this project. The
# checkout is not changed. docs/bench.md says how they are used.
#
#   bench/build_peers.sh nvshare CHECKOUT OUT
#   bench/build_peers.sh hami CHECKOUT OUT     # needs CUDA's headers (CUDA_HOME) and nvml.h (there, or in the folder NVML_INCLUDE)
#   bench/build_peers.sh xsched CHECKOUT OUT   # needs checkouts of jsoncpp (JSONCPP) and of cpp-httplib (CPP_HTTPLIB)
set -eu

fail() {
    echo "build_peers.sh: $*" >&2
    exit 1
}

[ $# -eq 3 ] || { sed -n '/^#   bench/s/^#  *//p' "$0" >&2; exit 2; }
system=$1
ours=$(dirname -- "$(realpath -- "$0")")
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

# XSched 1.2 at level 1, without its closed library cuxtra, for which bench/xsched stands. The server's command-line tool and
# the tools for X11 are left out, because they need further libraries.
build_xsched() {
    [ -d "$checkout/platforms/cuda/shim" ] || fail "$checkout/platforms/cuda/shim is missing; name a checkout of XSched"
    [ -f "${JSONCPP:-}/src/lib_json/json_value.cpp" ] || fail "set JSONCPP to a checkout of jsoncpp"
    [ -f "${CPP_HTTPLIB:-}/httplib.h" ] || fail "set CPP_HTTPLIB to a checkout of cpp-httplib"
    mkdir "$work/xsched"
    for name in CMakeLists.txt config.cmake.in include platforms preempt protocol python sched service utils; do
        cp -r "$checkout/$name" "$work/xsched/"
    done
    cp -r "$ours/xsched" "$work/xsched/3rdparty"
    sed -i '/^# xcli/,/^# xserver/d; /add_subdirectory(tools)/d' "$work/xsched/service/CMakeLists.txt"
    # The warnings that are errors there depend on the compiler.
    find "$work/xsched" -name CMakeLists.txt -exec sed -i '/^ *-Werror$/d' {} +
    # The part for cuxtra keeps what it learned of a kernel until the application unloads code or ends a context.
    ends='ModuleUnload|LibraryUnload|CtxDestroy(_v2)?|GreenCtxDestroy|DevicePrimaryCtxRe(set|lease)(_v2)?'
    sed -E -i -e "s/\((Driver::($ends)), /((hb_forget_functions(), \1), /" -e '1i extern "C" void hb_forget_functions(void);' \
        "$work/xsched/platforms/cuda/shim/src/intercept.cpp"
    if ! { cmake -S "$work/xsched" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$out" \
        -DPLATFORM_CUDA=ON -DJSONCPP="$(realpath -- "$JSONCPP")" -DCPP_HTTPLIB="$(realpath -- "$CPP_HTTPLIB")" -Wno-dev &&
        cmake --build "$work/build" -j "$(nproc)" --target xserver shimcuda; } > "$work/log" 2>&1; then
        tail -20 "$work/log" >&2
        fail "the build failed"
    fi
    mkdir -p "$out/bin" "$out/lib"
    cp "$work/build/service/xserver" "$out/bin/"
    cp "$work/build/preempt/libpreempt.so" "$work/build/platforms/cuda/libhalcuda.so" "$out/lib/"
    # Programs load the driver by these names.
    cp "$work/build/platforms/cuda/libshimcuda.so" "$out/lib/libcuda.so.1"
    ln -sf libcuda.so.1 "$out/lib/libcuda.so"
    strip "$out/bin/xserver" "$out/lib/"*.so "$out/lib/libcuda.so.1"
}

case $system in
nvshare) build_nvshare ;;
hami) build_hami ;;
xsched) build_xsched ;;
*) fail "$system: it can build nvshare, hami and xsched" ;;
esac
note_version
