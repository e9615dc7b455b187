#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds hummingbird-VERSION-x86_64.tar.gz for any x86-64 Linux with glibc 2.28 and Linux 5.3 or newer: unpacked in any folder it works
# from there. usage: packaging/make_tarball.sh [--no-install] [OUTPUT FOLDER] [WORK FOLDER]
# OUTPUT defaults to the current folder. WORK (default build-tarball) keeps compiler, libraries and build for the next run;
# remove it to get Debian's newest security fixes. It contains tree/, the unpacked tarball. Needs Debian 12 and PyPI.
cd "$(dirname "$0")/.."
. tools/setup.sh

if [[ ${1:-} == --no-install ]]; then shift; else hb_install build release; fi
out=$(cd "$OLDPWD" && realpath "${1:-.}")
work=${2:+$(cd "$OLDPWD" && realpath -m "$2")}
work=${work:-$PWD/build-tarball}
libraries=$work/libraries
packaging/static_libraries.sh "$libraries"

meson=$libraries/venv/bin/meson
# gcc's options for Debian's packages: the compiler that targets old systems has no others of its own.
[[ -f $work/build/build.ninja ]] || env -u CC -u CFLAGS "$meson" setup "$work/build" --native-file "$libraries/native.ini" \
	--prefix=/ --libdir=lib --sysconfdir=etc --buildtype=release -Db_pie=true -Dprefer_static=true -Dtls=enabled \
	-Dtests=false -Dstrip=true -Dc_args=-fstack-protector-strong
ninja -C "$work/build" -j "$HB_JOBS"

version=$(meson introspect --projectinfo "$work/build" | python3 -c 'import json, sys; print(json.load(sys.stdin)["version"])')
name=hummingbird-$version-x86_64
rm -rf "$work/tree"
mkdir -p "$work/tree"
tree=$work/tree/$name
DESTDIR=$tree "$meson" install -C "$work/build" --no-rebuild --quiet
# The module is also in share/hummingbird/python, and only Debian's Python searches here.
rm -r "$tree/lib/python3"
find "$tree" \( -name __pycache__ -o -name libcuda.so \) -prune -exec rm -r {} +
doc=$tree/share/doc/hummingbird
install -Dm644 -t "$doc" LICENSE README.md "$libraries/libraries.txt"
install -Dm644 -t "$doc/docs" docs/*.md docs/*.svg
install -Dm644 -t "$doc/licences" "$libraries"/licences/*
cp -r examples "$doc/examples"
install -m755 packaging/install_service.sh "$tree/share/hummingbird/install-service"

packaging/check_portable.py "$tree"
find "$tree" -type d -exec chmod 755 {} +
# Two builds of one commit give the same archive.
date=$(git log -1 --format=%ct 2>/dev/null || date +%s)
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$date" -C "$work/tree" -cf - "$name" | gzip -9n >"$out/$name.tar.gz"
echo "$out/$name.tar.gz"
