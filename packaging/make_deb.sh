#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds hummingbird_VERSION-1_ARCH.deb with debhelper, from packaging/debian and packaging/files.txt.
# usage: packaging/make_deb.sh [OUTPUT FOLDER] [BUILD FOLDER]
# OUTPUT defaults to the current folder. BUILD (default build-deb) is kept for the next run. Two builds of one commit
# give the same package, in any folder. Needs debhelper and the packages for building. Runs nothing as root and installs nothing.
cd "$(dirname "$0")/.."
. tools/setup.sh

out=$(hb_path "${1:-.}")
build=$(hb_path "${2:-$PWD/build-deb}")
export HB_SOURCE=$PWD
command -v dh >/dev/null || die "dh is missing: install debhelper"
SOURCE_DATE_EPOCH=$(hb_source_date)
export SOURCE_DATE_EPOCH DEB_BUILD_OPTIONS="nocheck noautodbgsym parallel=$HB_JOBS"
version=$(hb_version)-1

# debhelper wants a folder with debian/.
package=$build/package
rm -rf "$package/debian" "$build"/*.deb
mkdir -p "$package"
cp -r packaging/debian "$package"
cat packaging/files.txt >>"$package/debian/hummingbird.install"
needs=$(awk '!/^#/ && $2 == "build" {print $1}' tools/packages.txt | paste -sd ,)
control=$(<packaging/debian/control.in)
control=${control/@BUILD_DEPENDS@/$needs}
echo "${control/@MAINTAINER@/"$(hb_maintainer)"}" >"$package/debian/control"
hb_debian_changelog hummingbird "$version" >"$package/debian/changelog"
# The clean target would remove the build.
(cd "$package" && dpkg-buildpackage --build=binary --no-sign --no-pre-clean >&2)
mv "$build"/hummingbird_"$version"_*.deb "$out"
echo "$out"/hummingbird_"$version"_*.deb
