#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tries tarball, wheel and RPM package in minimal Debians of several releases, as a new user would (checks_in_chroot.sh prints
# one line for each check). usage: packaging/try_release.sh ARTIFACTS [FOLDER [RELEASE...]]
# ARTIFACTS is the folder that packaging/make_release.sh has filled. Needs root, the network, debootstrap, gcc, openssl and
# rpm. FOLDER keeps the Debians for the next run; without FOLDER they are temporary. RELEASE defaults to the releases of
# Debian's mirrors since glibc 2.28.
cd "$(dirname "$0")/.."
. tools/setup.sh
. packaging/debians.sh

DEFAULT=(bullseye bookworm trixie forky)
artifacts=$(hb_path "${1:?usage: packaging/try_release.sh ARTIFACTS [FOLDER [RELEASE...]]}")
releases=("${@:3}")
((${#releases[@]})) || releases=("${DEFAULT[@]}")
hb_need_root gcc openssl rpm
hb_folder_or_temporary "${2:-}"
share=$folder/share
rm -rf "$share"
mkdir -p "$share"
cp "$artifacts"/hummingbird-*-x86_64.tar.gz "$artifacts"/hummingbird_gpu-*.whl packaging/checks{,_in_chroot}.sh "$share"
gcc -static -o "$share/as-old-kernel" tests/unit/as_old_kernel.c
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 \
	-keyout "$share/key.pem" -out "$share/cert.pem" 2>/dev/null

# The chroot has a process namespace of its own, so that no process and no mount outlives it.
# shellcheck disable=SC2016 # for the inner shell
inside='mount --make-rprivate / && mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" &&
	mount -t tmpfs tmpfs "$1/tmp" && mount -t tmpfs tmpfs "$1/run" &&
	exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root chroot "$1" /share/checks_in_chroot.sh "$2"'
# run_checks TREE archives|package
run_checks() {
	timeout 900 unshare --mount --pid --fork --kill-child bash -c "$inside" bash "$@" </dev/null || failed=1
}
failed=0
for release in "${releases[@]}"; do
	tree=$folder/$release
	hb_make_debian "$release" "$tree" python3-venv || { failed=1; continue; }
	rm -rf "$tree/share"
	cp -r "$share" "$tree/share"
	echo "--- $release, $(chroot "$tree" ldd --version | sed -n 1p)"
	run_checks "$tree" archives
	# Without the dependencies: Debian's packages are unknown to rpm.
	rpm --force-debian --root "$tree" --nodeps --replacepkgs --install "$artifacts"/hummingbird-*.rpm || failed=1
	run_checks "$tree" package
	rpm --force-debian --root "$tree" --nodeps --erase hummingbird || failed=1
	left=$(find "$tree"/{usr,etc} -path '*hummingbird*' -o -name 'hb*' -path '*bin*')
	[[ -z $left ]] || { echo "FAILED  the package leaves $left"; failed=1; }
done
((!failed)) || die "not everything works"
echo "all is well"
