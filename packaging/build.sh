#!/usr/bin/env bash
# Builds what is installed on other machines, into dist/:
#
#   packaging/build.sh deb rpm     packages, by nfpm
#   packaging/build.sh image       an OCI image, without docker
#
# Image takes its base from IMAGE_BASE: an image of a registry, or the tar file
# of a root file system with glibc. By default it is Debian's, from the registry,
# or where that does not answer, made by debootstrap as root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CGO_ENABLED=0 GOARCH=${GOARCH:-$(go env GOARCH)}
out=$PWD/dist
root=$out/root
tools=$out/tools
mkdir -p "$out" "$tools"

# The files, with symbols stripped, as make install puts them.
rm -rf "$root"
make --no-print-directory install DESTDIR="$root" PREFIX=/usr SBINDIR=/usr/sbin BIN=dist/hmcfs LDFLAGS='-s -w' >/dev/null
find "$root/usr/share/man" -type f -exec gzip -9nf {} +
units=$root/usr/lib/systemd/system
for unit in docs/deploy/*.service; do
	install -D -m 0644 "$unit" "$units/${unit##*/}"
	sed -i 's,/usr/local/bin/,/usr/bin/,g' "$units/${unit##*/}"
done
install -D -m 0644 docs/deploy/config.yaml "$root/usr/share/doc/hmcfs/examples/config.yaml"
install -D -m 0644 -t "$root/usr/share/doc/hmcfs" CHANGELOG.md
VERSION=$(sed -n 's/^const release = "\(.*\)"$/\1/p' cmd/hmcfs/cli/version.go)
export VERSION

# A root file system of Debian, as small as it gets.
debian() {
	command -v debootstrap >/dev/null || {
		echo "build.sh: the registry does not answer, and debootstrap is not installed; give IMAGE_BASE" >&2
		return 1
	}
	local at=$out/debian
	debootstrap --variant=minbase bookworm "$at" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$out/debootstrap.log"
	rm -rf "$at"/var/cache/apt/* "$at"/var/lib/apt/lists/* "$at"/usr/share/{doc,man,locale}/*
	tar -C "$at" --one-file-system --numeric-owner -cf "$1" .
	rm -rf "$at"
}

image() {
	local to=$out/hmcfs-$VERSION-$GOARCH.oci.tar base=${IMAGE_BASE:-debian:bookworm-slim}
	"$tools/image" -root "$root" -base "$base" -version "$VERSION" -o "$to" && return
	[ -z "${IMAGE_BASE:-}" ] || return 1
	base=$out/debian.tar
	[ -e "$base" ] || debian "$base"
	"$tools/image" -root "$root" -base "$base" -version "$VERSION" -o "$to"
}

for what; do
	case $what in
	deb | rpm)
		(cd packaging && GOARCH= go build -o "$tools/nfpm" github.com/goreleaser/nfpm/v2/cmd/nfpm)
		"$tools/nfpm" package -f packaging/nfpm.yaml -p "$what" -t "$out"
		;;
	image)
		(cd packaging && GOARCH= go build -o "$tools/image" ./image)
		image
		ls "$out/hmcfs-$VERSION-$GOARCH.oci.tar"
		;;
	*)
		echo "build.sh: $what is unknown; use deb, rpm or image" >&2
		exit 2
		;;
	esac
done
