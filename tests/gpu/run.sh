#!/usr/bin/env bash
# Checks and measures hmcfs on this machine's GPU, and prints one table:
#
#   run.sh [--device cuda0] [--quick] [--rows REGEXP] [--out DIR]
#
# It needs bash, coreutils, /dev/fuse and the right to mount, and the programs
# that `make gpu-bundle` puts beside it; no Go toolchain, no compiler. HMCFS
# names another hmcfs than the one beside it. What the machine can't run is
# told in the table. The exit status is 0 when every check passed, 1 when one
# failed, 2 when a program is missing or does not run here, 3 when the device is
# not there, 4 when checks could not run. A missed target of speed fails nothing. After LIMIT seconds (480) the suite is told to end, and GRACE seconds
# (20) later it is killed.
set -euo pipefail
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tools=${GPU_TOOLS:-$here}
hmcfs=$(realpath "${HMCFS:-$tools/hmcfs}")
for program in "$hmcfs" "$tools"/{gpu,conformance,truth,cudaraw,fileio}; do
	if [ ! -x "$program" ]; then
		echo "run.sh: $program is not there; make gpu-bundle builds what is needed" >&2
		exit 2
	fi
done
# Each program is run bare before anything else: one that was linked to a newer C
# library than this machine's would fail as if hmcfs had. Wrong usage is how the
# others say that they run.
bare() {
	local said status=0
	said=$("$@" 2>&1 </dev/null) || status=$?
	if [ "$status" -ne 0 ] && [[ $said != *[Uu]sage* ]]; then
		echo "run.sh: $1 does not run on this machine (status $status): ${said:-it says nothing}" >&2
		case $said in
		*GLIBC_*) echo "run.sh: it was built where the C library is newer; run make gpu-bundle on a machine as old as this" >&2 ;;
		esac
		exit 2
	fi
}
bare "$hmcfs" version
bare "$tools/conformance" -test.list none
bare "$tools/gpu" -h
for program in truth cudaraw fileio; do bare "$tools/$program"; done
# Short, for the admin socket's path has at most 107 bytes.
scratch=$(mktemp -d "${TMPDIR:-/tmp}/hmcfs-gpu.XXXXXX")
chmod 0711 "$scratch" # a check acts as another user
suite=

# below lists what is mounted below the scratch directory, the last first.
below() {
	local point
	while read -r _ _ _ _ point _; do
		[[ $point != "$scratch"/* ]] || echo "$point"
	done </proc/self/mountinfo | sort -r
}

# daemons lists the processes that work below the scratch directory.
daemons() {
	local process argument arguments
	for process in /proc/[0-9]*; do
		mapfile -d '' -t arguments 2>/dev/null <"$process/cmdline" || continue
		for argument in "${arguments[@]}"; do
			[[ $argument != "$scratch"/* ]] || { echo "${process#/proc/}" && break; }
		done
	done
}

# clean_up leaves nothing behind, also when the suite itself was killed.
clean_up() {
	local status=$? point process link
	trap - EXIT
	trap '' INT TERM HUP
	if [ -n "$suite" ] && kill -TERM "$suite" 2>/dev/null; then
		wait "$suite" || status=$?
	fi
	for point in $(below); do
		[[ $point == */host ]] || timeout -k 1 5 "$hmcfs" umount --force "$point" >/dev/null 2>&1 || true
	done
	for point in $(below); do
		umount -l "$point" 2>/dev/null || fusermount3 -u -z "$point" 2>/dev/null || true
		status=1
	done
	for process in $(daemons); do
		kill -KILL "$process" 2>/dev/null || true
		status=1
	done
	# A daemon that was killed has not removed the link to its runtime directory.
	for link in {/run,"${XDG_RUNTIME_DIR:-/run}"}/hmcfs/*; do
		[[ $(readlink "$link") != "$scratch"/* ]] || rm -f "$link"
	done
	rm -rf --one-file-system "$scratch" || status=1
	exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# In the background, so that a signal is heard while it runs; and all that is
# temporary in one place, so that it is found.
TMPDIR=$scratch timeout -k "${GRACE:-20}" "${LIMIT:-480}" "$tools/gpu" --tools "$tools" --hmcfs "$hmcfs" --scratch "$scratch" "$@" &
suite=$!
status=0
wait "$suite" || status=$?
suite=
exit "$status"
