#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tries a tarball and a wheel in minimal Debians of several releases, as a new user would (checks_in_chroot.sh prints one line
# for each check). usage: packaging/try_tarball.sh TARBALL WHEEL [FOLDER [RELEASE...]]
# Needs root, the network, debootstrap, gcc and openssl. FOLDER keeps the Debians for the next run; without FOLDER they are
# temporary. RELEASE defaults to those of DEFAULT whose glibc the tarball supports and that Debian's mirrors still have.
cd "$(dirname "$0")/.."
. tools/setup.sh

DEFAULT=(bullseye bookworm trixie forky)
tarball=$(realpath "${1:?usage: packaging/try_tarball.sh TARBALL WHEEL [FOLDER [RELEASE...]]}")
wheel=$(realpath "${2:?usage: packaging/try_tarball.sh TARBALL WHEEL [FOLDER [RELEASE...]]}")
folder=${3:-}
releases=("${@:4}")
((${#releases[@]})) || releases=("${DEFAULT[@]}")
((EUID == 0)) || die "a chroot needs root: sudo $0"
for tool in debootstrap gcc openssl; do
	command -v "$tool" >/dev/null || die "$tool is missing: install the package that contains it"
done
if [[ -z $folder ]]; then
	folder=$(mktemp -d)
	trap 'rm -rf "$folder"' EXIT
fi
mkdir -p "$folder/share"
folder=$(realpath "$folder")
share=$folder/share
cp "$tarball" "$wheel" packaging/checks_in_chroot.sh "$share"
gcc -static -o "$share/as-old-kernel" tests/unit/as_old_kernel.c
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 \
	-keyout "$share/key.pem" -out "$share/cert.pem" 2>/dev/null

# The chroot has a process namespace of its own, so that no process and no mount outlives it.
# shellcheck disable=SC2016 # for the inner shell
inside='mount --make-rprivate / && mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" &&
	mount -t tmpfs tmpfs "$1/tmp" && mount -t tmpfs tmpfs "$1/run" &&
	exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root chroot "$1" /share/checks_in_chroot.sh'
failed=0
for release in "${releases[@]}"; do
	tree=$folder/$release
	if [[ ! -f $tree-is-complete ]]; then
		rm -rf "$tree"
		debootstrap --variant=minbase --include=python3-venv "$release" "$tree" "$(hb_debian_mirror)" >"$tree.log" 2>&1 ||
			{ echo "FAILED  $release: debootstrap: $(tail -n 1 "$tree.log")"; failed=1; continue; }
		touch "$tree-is-complete"
	fi
	rm -rf "$tree/share"
	cp -r "$share" "$tree/share"
	echo "--- $release, $(chroot "$tree" ldd --version | sed -n 1p)"
	timeout 900 unshare --mount --pid --fork --kill-child bash -c "$inside" bash "$tree" </dev/null || failed=1
done
((!failed)) || die "not everything works"
echo "all is well"
