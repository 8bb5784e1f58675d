#!/usr/bin/env bash
# Installs the packages of dist/ in root file systems of their own, uses them, and
# removes them; runs the image of dist/ the same way:
#
#   packaging/test.sh [deb] [rpm] [image]
#
# It needs root, /dev/fuse, and debootstrap with a mirror, or BASE: the folder of
# a root file system of Debian, which stays as it is. The exit status is 77 when
# nothing could be tested, and the last line then says why. Everything runs in
# namespaces of its own: no mount and no process outlives it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

skip() {
	echo "skipped: $*"
	exit 77
}

if [ -z "${SCRATCH:-}" ]; then
	[ "$(id -u)" -eq 0 ] || skip "this is not root"
	[ -e /dev/fuse ] || skip "there is no /dev/fuse"
	[ -n "${BASE:-}" ] || command -v debootstrap >/dev/null || skip "debootstrap is not installed"
	SCRATCH=$(mktemp -d)
	export SCRATCH
	trap 'rm -rf --one-file-system "$SCRATCH"' EXIT
	unshare --mount --pid --fork --kill-child "$0" "$@"
	exit
fi
mount --make-rprivate /
[ $# -gt 0 ] || set -- deb rpm image

# base sets $base to a minimal Debian.
base() {
	base=${BASE:-$SCRATCH/base}
	[ -d "$base" ] && return
	debootstrap --variant=minbase bookworm "$base" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$SCRATCH/log" 2>&1 ||
		skip "debootstrap: $(tail -n 1 "$SCRATCH/log")"
}

# room prepares a directory as a root file system: $in runs a command in it.
room() {
	root=$1
	in="chroot $root /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root"
	mkdir -p "$root"/{proc,dev,sys,mnt/hmc,run,tmp}
	mount -t proc proc "$root/proc"
	mount --rbind /dev "$root/dev"
	mount -t tmpfs tmpfs "$root/run"
}

# used fails unless hmcfs works there: mounted by mount(8), a file is written,
# copied to another device and read back.
used() {
	head -c 3000000 /dev/urandom >"$root/tmp/data"
	$in mount -t hmcfs -o 'device="host,size=64MiB",device="sim:0,size=64MiB"' hmcfs /mnt/hmc
	$in cp /tmp/data /mnt/hmc/sim0/a
	$in cp /mnt/hmc/sim0/a /mnt/hmc/host/b
	$in cmp /tmp/data /mnt/hmc/host/b
	[[ $($in hmcfs status /mnt/hmc) == *sim0* ]]
	$in hmcfs umount /mnt/hmc
	! $in mountpoint -q /mnt/hmc
	rm -r "$root/tmp/data" "$root/var/lib/hmcfs" # the log of the mount, which is the user's
}

# there lists what a package must not leave: all files but its manager's own, and no
# folders but hmcfs's: those of all packages stay, as rpm does it.
there() {
	find "$root" -xdev \( -path "$root/var/lib/dpkg" -o -path "$root/var/lib/rpm" -o -path "$root/var/log" \
		-o -path "$root/var/cache" -o -path "$root/var/lib/apt" -o -path "$root/root" \) -prune -o \( ! -type d -o -name '*hmcfs*' \) -printf '%P\n' | sort
}

# installed fails unless the files of a package are there.
installed() {
	[ "$($in hmcfs version | cut -d' ' -f2 | cut -d+ -f1)" = "$version" ]
	local file
	for file in usr/sbin/mount.hmcfs usr/lib/systemd/system/hmcfs.service usr/share/man/man1/hmcfs.1.gz \
		usr/share/man/man8/mount.hmcfs.8.gz usr/share/bash-completion/completions/hmcfs \
		usr/share/doc/hmcfs/examples/config.yaml usr/share/doc/hmcfs/THIRD_PARTY_NOTICES; do
		[ -s "$root/$file" ] || [ -L "$root/$file" ] || {
			echo "$file is missing"
			return 1
		}
	done
	! grep -q /usr/local/ "$root"/usr/lib/systemd/system/hmcfs*.service
}

# package installs, uses and removes a package by the commands of its manager.
package() {
	local name=$1 install=$2 remove=$3
	there >"$SCRATCH/before"
	$in sh -c "$install"
	installed
	used
	$in sh -c "$remove"
	there >"$SCRATCH/after"
	diff "$SCRATCH/before" "$SCRATCH/after" || {
		echo "FAILED: $name leaves the files above"
		return 1
	}
	echo "ok: $name"
}

version=$(sed -n 's/^const release = "\(.*\)"$/\1/p' "$here/../cmd/hmcfs/cli/version.go")
dist=$here/../dist
for what; do
	case $what in
	deb)
		base
		cp -a "$base" "$SCRATCH/deb"
		room "$SCRATCH/deb"
		cp "$dist/hmcfs_${version}"_*.deb "$root/tmp/hmcfs.deb"
		package deb "dpkg -i /tmp/hmcfs.deb >/dev/null" "dpkg --purge hmcfs >/dev/null"
		;;
	rpm)
		base
		cp -a "$base" "$SCRATCH/rpm"
		room "$SCRATCH/rpm"
		# Debian's rpm knows nothing of Debian's glibc: dependencies are not asked.
		cp /etc/resolv.conf "$root/etc/"
		if ! $in sh -c 'command -v rpm >/dev/null || { apt-get -qq update && apt-get -qq install -y --no-install-recommends rpm; }' >"$SCRATCH/log" 2>&1; then
			echo "skipped: rpm can't be installed: $(tail -n 1 "$SCRATCH/log")"
			continue
		fi
		cp "$dist/hmcfs-${version}"-*.rpm "$root/tmp/hmcfs.rpm"
		package rpm "rpm -i --nodeps --force-debian /tmp/hmcfs.rpm" "rpm -e --force-debian hmcfs"
		;;
	image)
		mkdir "$SCRATCH/image"
		"$dist/tools/image" -extract "$SCRATCH/image" "$dist/hmcfs-$version"-*.oci.tar
		room "$SCRATCH/image"
		installed
		used
		echo "ok: image"
		;;
	esac
done
