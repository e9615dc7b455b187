#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tries containers with podman and `hb cdi generate` on a simulated GPU (checks_in_containers.sh prints one line for each
# check): as root and rootless, in images of an older and a newer Debian and in one with musl.
# usage: packaging/try_containers.sh TARBALL [FOLDER]     TARBALL is made by packaging/make_tarball.sh
# Needs root, the network, podman, crun, newuidmap (package uidmap), debootstrap and musl-gcc (package musl-tools). Everything
# runs in mount and process namespaces of its own, with an /etc and a /run of its own, so nothing is left on this machine.
# FOLDER keeps the images for the next run; without FOLDER they are temporary. Each other NAME.tar in it, a root file system with
# glibc as `podman export` writes it, is tried as well.
cd "$(dirname "$0")/.."
. tools/setup.sh
. packaging/debians.sh

tarball=$(hb_path "${1:?usage: packaging/try_containers.sh TARBALL [FOLDER]}")
hb_need_root podman crun newuidmap musl-gcc
hb_folder_or_temporary "${2:-}"
chmod 755 "$folder"

# The oldest release on Debian's mirrors, and this one.
for release in bullseye bookworm; do
	[[ ! -f $folder/$release.tar ]] || continue
	hb_make_debian "$release" "$folder/$release" || exit 1
	tar -C "$folder/$release" --exclude=./var/cache --exclude=./dev -cf "$folder/$release.tar" .
	rm -rf --one-file-system "${folder:?}/$release"{,-is-complete}
done
# A program and a loader of musl, and nothing else.
if [[ ! -f $folder/musl.tar ]]; then
	mkdir -p "$folder/musl/lib" "$folder/musl/bin"
	printf '%s\n' '#include <dlfcn.h>' '#include <stdio.h>' 'int main(void)' '{' \
		'void *driver = dlopen("libcuda.so.1", RTLD_NOW);' 'puts(driver ? "found" : dlerror());' 'return !!driver;' '}' |
		musl-gcc -x c -o "$folder/musl/bin/program" -
	cp -L /lib/ld-musl-x86_64.so.1 "$folder/musl/lib"
	tar -C "$folder/musl" -cf "$folder/musl.tar" .
fi
rm -rf "$folder/hummingbird" "$folder/run"
mkdir -p "$folder/hummingbird" "$folder/run"
tar -C "$folder/hummingbird" --strip-components=1 -xf "$tarball"
timeout -k 10 900 unshare --mount --pid --fork --kill-child packaging/checks_in_containers.sh "$folder" </dev/null
