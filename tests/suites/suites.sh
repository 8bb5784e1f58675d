#!/usr/bin/env bash
# Runs test suites of others on real mounts: fio, which verifies what it has
# written, and the stressors of stress-ng for file systems. Called by
# `make suites`; by hand:
#
#   HMCFS=bin/hmcfs tests/suites/suites.sh [DEVICE...]
#
# DEVICE is a directory of a mount: host, sim0 and ocl0 by default. It needs
# bash, coreutils and the right to mount, as root or by fusermount3, and what it
# lacks is skipped with the reason (apt-get install fio stress-ng pocl-opencl-icd).
# Each part takes a second or so and is ended after LIMIT seconds (60): all of it
# takes about three minutes. The exit status is 0 when all that ran has passed, 1
# when something failed, and 3 when nothing ran. Nothing is left behind.
set -euo pipefail
export LC_ALL=C

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
hmcfs=$(realpath "${HMCFS:-$root/bin/hmcfs}")
limit=${LIMIT:-60}
# Short, for the admin socket's path has at most 107 bytes.
scratch=$(mktemp -d "${TMPDIR:-/tmp}/hmcfs-suites.XXXXXX")
mnt=$scratch/mnt log=$scratch/log
export TMPDIR=$scratch
cd "$scratch" # what a suite leaves beside itself goes with it
part= passed=0 failed=0 skipped=0

# clean_up leaves nothing behind, whatever the end was.
clean_up() {
	local status=$?
	trap - EXIT
	trap '' INT TERM HUP
	cd /
	if [ -n "$part" ] && kill -TERM "$part" 2>/dev/null; then
		wait "$part" || true
	fi
	if mountpoint -q "$mnt" 2>/dev/null; then
		timeout -k 1 20 "$hmcfs" umount --force "$mnt" >/dev/null 2>&1 || umount -l "$mnt" 2>/dev/null ||
			fusermount3 -u -z "$mnt" || status=1
	fi
	rm -rf --one-file-system "$scratch" || status=1
	exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

ok() { passed=$((passed + 1)) && printf 'ok       %s\n' "$1"; }
skip() { skipped=$((skipped + 1)) && printf 'skipped  %s: %s\n' "$1" "$2"; }

# fail tells why, with the end of what was said.
fail() {
	failed=$((failed + 1))
	printf 'FAILED   %s: %s\n' "$1" "$2"
	tail -n 30 "$log" | sed 's/^/           /'
}

# bounded runs a command for at most LIMIT seconds and returns its status, 124
# if it had to be ended. In the background, so that a signal is heard meanwhile.
bounded() {
	local status=0
	timeout -k 5 "$limit" "$@" >"$log" 2>&1 &
	part=$!
	wait "$part" || status=$?
	part=
	return "$status"
}

# verified runs a job of fio in a directory: it writes, and reads what it wrote.
verified() {
	local name="fio $2 on $1" status=0
	shift 2
	bounded fio --name=job --directory="$dir" --size=16m --verify=crc32c --verify_fatal=1 --randseed=7 \
		--verify_state_save=0 --group_reporting "$@" || status=$?
	case $status in
	0) ok "$name" ;;
	124 | 137) fail "$name" "not done after $limit s" ;;
	*) if grep -q 'io_queue_init failed\|io_uring_setup.*not permitted\|engine.*not loadable' "$log"; then
		skip "$name" "this machine does not allow it"
	else
		fail "$name" "exit status $status"
	fi ;;
	esac
}

# stressed runs a stressor of stress-ng for a second, twice at the same time.
stressed() {
	local name="stress-ng $2 on $1" status=0
	bounded stress-ng --temp-path "$dir" --"$2" 2 --timeout 1s --verify --no-rand-seed "${@:3}" || status=$?
	case $status in
	0) ok "$name" ;;
	3 | 4) skip "$name" "$(sed -n 's/^stress-ng: [a-z]*: *\[[0-9]*\] //p' "$log" | grep -iv 'dispatching\|setting to' | head -n 1)" ;;
	124 | 137) fail "$name" "not done after $limit s" ;;
	*) fail "$name" "exit status $status" ;;
	esac
}

# fio_suite has each way of writing that programs have.
fio_suite() {
	if ! command -v fio >/dev/null; then
		skip "fio on $1" "it is not installed"
		return
	fi
	verified "$1" "in order" --ioengine=psync --rw=write --bs=128k
	verified "$1" "at random" --ioengine=psync --rw=randwrite --bs=4k
	verified "$1" "odd sizes" --ioengine=psync --rw=randwrite --bsrange=512-64k
	verified "$1" "read while it writes" --ioengine=psync --rw=randwrite --bs=4k --verify_backlog=64
	verified "$1" "shared maps" --ioengine=mmap --rw=randwrite --bs=4k
	verified "$1" "O_DIRECT, 16 at a time" --ioengine=libaio --direct=1 --iodepth=16 --rw=randrw --bs=4k
	verified "$1" "io_uring, 16 at a time" --ioengine=io_uring --iodepth=16 --rw=randwrite --bs=8k
	verified "$1" "four processes" --ioengine=psync --rw=randwrite --bs=16k --numjobs=4 --size=8m
}

# stress_suite leaves out what is not about files of this file system (bind
# mounts, binder, /proc, sync of the whole machine).
stress_suite() {
	local stressor options
	if ! command -v stress-ng >/dev/null; then
		skip "stress-ng on $1" "it is not installed"
		return
	fi
	for stressor in access chattr chdir chmod chown copy-file dentry dir dirdeep dirmany dnotify dup fallocate fcntl \
		fiemap file-ioctl filename flock fpunch fsize fstat getdent handle hdd inode-flags inotify iomix lease link \
		locka lockf lockofd mmap mknod open readahead rename seek sendfile splice symlink sync-file touch utime xattr; do
		options=()
		case $stressor in # what would take a GiB by default
		copy-file | fallocate | hdd | iomix | mmap | readahead) options=("--$stressor-bytes" 128m) ;;
		esac
		stressed "$1" "$stressor" "${options[@]}"
	done
}

# on mounts a device, runs all suites there, and unmounts it.
on() {
	local spec
	case $1 in
	host) spec=host,size=1GiB ;;
	sim*) spec=sim:${1#sim},size=1GiB ;;
	ocl*) spec=opencl:${1#ocl},size=1GiB ;;
	*) spec=${1%%[0-9]*}:${1##*[a-z]},size=1GiB ;;
	esac
	case $1 in
	host | sim*) ;;
	*) if ! "$hmcfs" devices 2>"$log" | grep -qw "$1"; then
		skip "$1" "there is no such device; hmcfs devices says why"
		return
	fi ;;
	esac
	mkdir -p "$mnt"
	if ! bounded "$hmcfs" mount --state-dir "$scratch/state" --runtime-dir "$scratch/run" \
		$([ "$1" = host ] || echo --device host,size=64MiB) --device "$spec" "$mnt"; then
		fail "mount of $1" "see below"
		return
	fi
	dir=$mnt/$1/suites
	mkdir "$dir"
	fio_suite "$1"
	rm -rf "$dir"/*
	stress_suite "$1"
	if bounded rm -r "$dir" && bounded "$hmcfs" umount "$mnt"; then
		ok "removing all and unmounting $1"
	else
		fail "removing all and unmounting $1" "see below"
	fi
	if grep -q '^panic\|^fatal error\|^goroutine ' "$scratch/state/hmcfs.log"; then
		cp "$scratch/state/hmcfs.log" "$log"
		fail "the daemon's log of $1" "it has crashed"
	fi
}

dir=
if [ ! -x "$hmcfs" ]; then
	echo "suites: $hmcfs is not there; make build makes it" >&2
	exit 2
fi
if [ ! -w /dev/fuse ]; then
	skip "everything" "/dev/fuse is not there or may not be opened"
elif [ "$(id -u)" -ne 0 ] && ! command -v fusermount3 >/dev/null; then
	skip "everything" "mounting as an ordinary user needs fusermount3 (apt-get install fuse3)"
else
	[ $# -gt 0 ] || set -- host sim0 ocl0
	for device; do on "$device"; done
fi
echo "suites: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] || exit 1
[ "$passed" -gt 0 ] || exit 3
