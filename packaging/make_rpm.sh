#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds hummingbird-VERSION-1.x86_64.rpm from the tarball that packaging/make_tarball.sh has made, so it has the same files
# and runs on the same systems (RHEL 8 and newer). usage: packaging/make_rpm.sh TARBALL [OUTPUT FOLDER]
# OUTPUT defaults to the current folder. Needs rpmbuild (package rpm). Installs nothing.
cd "$(dirname "$0")/.."
. tools/setup.sh

command -v rpmbuild >/dev/null || die "rpmbuild is missing: install the package rpm"
tarball=$(hb_path "${1:?usage: packaging/make_rpm.sh TARBALL [OUTPUT FOLDER]}")
out=$(hb_path "${2:-.}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/tree"
tar -C "$work/tree" -xf "$tarball"
tree=$(echo "$work"/tree/*)
version=${tree##*/hummingbird-}
# packaging/files.txt as rpmbuild wants it: without the Debian package's own folders, configuration and documents marked.
# shellcheck disable=SC2016 # the list says it this way
sed -e '/^#/d' -e 's| .*||' -e 's|\${DEB_HOST_MULTIARCH}/||' -e 's|^|/|' -e 's|^/etc/|%config(noreplace) &|' \
	-e 's|^/usr/share/doc/|%doc &|' -e 's|^/usr/share/man$|&/man*/*|' packaging/files.txt >"$work/files"
# The dates of the files are that of the commit, so the same commit gives the same package.
SOURCE_DATE_EPOCH=$(stat -c %Y "$tree") rpmbuild -bb --quiet --target x86_64 --define "_topdir $work" --define "_rpmdir $out" \
	--define "_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm" --define "version ${version%-*}" --define "tree $tree" --define "list $work/files" \
	--define "_buildhost localhost" --define "use_source_date_epoch_as_buildtime 1" --define "clamp_mtime_to_source_date_epoch 1" \
	packaging/hummingbird.spec
echo "$out/hummingbird-${version%-*}-1.x86_64.rpm"
