#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds hummingbird_VERSION_ARCH.deb. usage: packaging/make_deb.sh [OUTPUT FOLDER] [BUILD FOLDER]
# OUTPUT defaults to the current folder. A BUILD folder that exists must have been configured with --prefix=/usr.
# Needs dpkg-dev and the packages for building. Runs nothing as root and installs nothing.
cd "$(dirname "$0")/.."
. tools/setup.sh

out=$(realpath "${1:-$OLDPWD}")
build=${2:-build-deb}
command -v dpkg-shlibdeps >/dev/null || die "dpkg-shlibdeps is missing: install dpkg-dev"
hb_build "$build" --prefix=/usr --libdir="lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)" --sysconfdir=/etc \
	--buildtype=release -Dstrip=true -Dtests=false >&2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree

DESTDIR=$tree meson install -C "$build" --no-rebuild --quiet
# The folder in which Debian's Python searches.
mkdir -p "$tree/usr/lib/python3/dist-packages"
mv "$tree"/usr/lib/*/python3/dist-packages/hummingbird "$tree/usr/lib/python3/dist-packages/"
rmdir -p --ignore-fail-on-non-empty "$tree"/usr/lib/*/python3/dist-packages
find "$tree" -name __pycache__ -prune -exec rm -r {} +
# Removes the links for compiling against the libraries: programs find the libraries at run time.
find "$tree/usr/lib" -name libcuda.so -delete
find "$tree/usr/share/man" -type f -exec gzip -9n {} +
install -Dm644 LICENSE "$tree/usr/share/doc/hummingbird/copyright"
install -Dm644 -t "$tree/usr/share/doc/hummingbird" README.md
install -Dm644 -t "$tree/usr/share/doc/hummingbird/docs" docs/*.md docs/*.svg

# The packages that contain the libraries of the programs, on the machine that built them.
mkdir -p "$work/debian" "$tree/DEBIAN"
echo "Source: hummingbird" >"$work/debian/control"
depends=$(cd "$work" && find tree/usr -type f \( -path '*/bin/*' -o -path '*/sbin/*' -o -path '*/libexec/*' -o -name '*.so*' -o -name hb-simgpu \) -print0 |
	xargs -0 dpkg-shlibdeps -O --ignore-missing-info -ltree/usr/lib/hummingbird 2>/dev/null | sed 's/^shlibs:Depends=//')
[[ -n $depends ]] || die "dpkg-shlibdeps found no packages that the programs depend on"
version=$(meson introspect --projectinfo "$build" | python3 -c 'import json, sys; print(json.load(sys.stdin)["version"])')
architecture=$(dpkg --print-architecture)
sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@DEPENDS@/$depends/" \
	-e "s/@SIZE@/$(du -sk "$tree" | cut -f1)/" packaging/debian/control.in >"$tree/DEBIAN/control"
echo /etc/hummingbird/hummingbird.yaml >"$tree/DEBIAN/conffiles"
install -m755 -t "$tree/DEBIAN" packaging/debian/{postinst,prerm,postrm}
find "$tree" -type d -exec chmod 755 {} +
dpkg-deb --build --root-owner-group "$tree" "$out/hummingbird_${version}_$architecture.deb"
