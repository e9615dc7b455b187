#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tries containers with podman and `hb cdi generate` on a simulated GPU (checks_in_containers.sh prints one line for each
# check): as root and rootless, in images of an older and a newer Debian and in one with musl.
# usage: packaging/try_containers.sh TARBALL [FOLDER]     TARBALL is made by packaging/make_tarball.sh
# Needs root, the network, podman, crun, newuidmap (package uidmap), debootstrap and musl-gcc (package musl-tools). Everything
# runs in mount and process namespaces of its own, with an /etc and a /run of its own, so nothing is left on this machine.
# FOLDER keeps the images for the next run; without FOLDER they are temporary.
cd "$(dirname "$0")/.."
. tools/setup.sh

tarball=$(cd "$OLDPWD" && realpath "${1:?usage: packaging/try_containers.sh TARBALL [FOLDER]}")
((EUID == 0)) || die "namespaces of root and of another user need root: sudo $0"
for tool in podman crun newuidmap debootstrap musl-gcc; do
	command -v "$tool" >/dev/null || die "$tool is missing: install the package that contains it"
done
folder=${2:+$(cd "$OLDPWD" && realpath -m "$2")}
folder=${folder:-$(mktemp -d)}
[[ -n ${2:-} ]] || trap 'rm -rf --one-file-system "$folder"' EXIT
mkdir -p "$folder"
chmod 755 "$folder"

# The oldest release on Debian's mirrors, and this one.
for release in bullseye bookworm; do
	[[ ! -f $folder/$release.tar ]] || continue
	unshare --mount debootstrap --variant=minbase --include=python3-minimal,libpython3-stdlib "$release" \
		"$folder/$release" "$(hb_debian_mirror)" >"$folder/$release.log" 2>&1 || die "debootstrap: $(tail -n 1 "$folder/$release.log")"
	install packaging/container_program.py "$folder/$release/usr/bin/program"
	tar -C "$folder/$release" --exclude=./var/cache --exclude=./dev -cf "$folder/$release.tar" .
	rm -rf --one-file-system "${folder:?}/$release"
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
