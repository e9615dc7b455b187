#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes every artifact of a release from HEAD: source, tarball, wheel, Debian and RPM package, the Debian package of the plugin
# for Debian's Slurm, container images, and SHA256SUMS. The images need buildah and root, and are left out with a message otherwise.
# usage: packaging/make_release.sh [--snapshot] OUTPUT FOLDER
# The version is that of meson.build. For a release HEAD has the tag vVERSION, the first section of CHANGELOG.md has that
# number, and nothing is uncommitted; --snapshot omits these three checks. Builds anew in a temporary folder, which takes about 15
# minutes. Needs Debian 12, PyPI and a Debian mirror; installs missing packages (root or sudo). Afterwards try the result:
# sudo packaging/try_release.sh OUTPUT, and sudo packaging/try_images.sh OUTPUT.
cd "$(dirname "$0")/.."
. tools/setup.sh

snapshot=
if [[ ${1:-} == --snapshot ]]; then
	snapshot=1
	shift
fi
out=$(hb_path "${1:?usage: packaging/make_release.sh [--snapshot] OUTPUT FOLDER}")
version=$(hb_version)
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || die "meson.build: '$version' is not a version like 1.2.3"
if [[ -z $snapshot ]]; then
	section=$(sed -n 's/^## //p' CHANGELOG.md | sed -n 1p)
	[[ $section == "$version" ]] || die "CHANGELOG.md: the first section is '$section', and meson.build says $version"
	[[ -z $(git status --porcelain) ]] || die "commit everything first: $(git status --porcelain | sed -n 1p)"
	[[ " $(git tag --points-at HEAD | tr '\n' ' ')" == *" v$version "* ]] || die "HEAD has no tag v$version: git tag v$version"
fi
[[ ! -e $out || -z $(ls -A "$out") ]] || die "$out is not empty"

hb_install build release
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
HB_LOGS=$work/logs
hb_results_begin "$work/results"
hb_step "source" git archive --prefix="hummingbird-$version/" -o "$out/hummingbird-$version.tar.gz" HEAD
hb_step "tarball and wheel" packaging/make_wheel.sh --no-install "$out" "$work/tarball"
hb_step "Debian package" packaging/make_deb.sh "$out" "$work/deb"
hb_step "Debian package of the Slurm plugin" packaging/slurm/make_slurm_deb.sh "$out"
hb_step "lintian" lintian --allow-root --fail-on error,warning "$out"/hummingbird{,-slurm}_*.deb
hb_step "RPM package" packaging/make_rpm.sh "$out/hummingbird-$version-x86_64.tar.gz" "$out"
if ! command -v buildah >/dev/null; then
	echo "skipped container images: buildah is missing"
elif ((EUID)); then
	echo "skipped container images: only root can make their base"
else
	hb_step "container images" packaging/make_images.sh "$out/hummingbird-$version-x86_64.tar.gz" "$out"
fi
cd "$out"
sha256sum -- * >SHA256SUMS
cat SHA256SUMS
