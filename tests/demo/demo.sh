#!/usr/bin/env bash
# The main job, shown: mounts hmcfs, copies tensors in, between devices and
# out again, and proves by checksums and counters that every byte arrived and
# which way it took. Each command is printed before it runs. Called by
# `make demo`; by hand:
#
#   HMCFS=bin/hmcfs tests/demo/demo.sh [SIZE]
#
# SIZE is that of each of the two files; 256MiB by default. The exit status is
# not 0 if a byte differs, a copy took another path than it should, or
# anything is left mounted.
set -euo pipefail
export LC_ALL=C

size=${1:-256MiB}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
program=$(realpath "${HMCFS:-$root/bin/hmcfs}")
scratch=$(mktemp -d "${TMPDIR:-/tmp}/hmcfs-demo.XXXXXX")

hmcfs() { "$program" "$@"; }

mounted() { mountpoint -q "$scratch/mnt" 2>/dev/null; }

# clean_up leaves nothing behind, whatever the end was.
clean_up() {
	local status=$?
	trap - EXIT
	trap '' INT TERM HUP
	cd /
	if mounted; then
		hmcfs umount "$scratch/mnt" >/dev/null 2>&1 || umount -l "$scratch/mnt" 2>/dev/null ||
			fusermount3 -u -z "$scratch/mnt" || true
	fi
	# What the daemon still has there goes with it in a moment.
	rm -rf --one-file-system "$scratch" || status=1
	exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

die() {
	echo "demo: $*" >&2
	exit 1
}

title() { printf '\n== %s\n' "$*"; }

# run prints a command and runs it.
run() {
	printf '$ %s\n' "$*"
	"$@"
}

# build makes the demo's own programs; Go wants a HOME.
build() {
	(cd "$root" && HOME=${HOME:-$scratch} CGO_ENABLED=0 GOFLAGS=-mod=readonly \
		go build -trimpath -o "$scratch/" ./tests/demo/gen ./tests/demo/counted)
}

# count reads into the named array how many bytes each path has moved.
count() {
	local -n into=$1
	local path bytes
	into=()
	while read -r path bytes; do
		into[$path]=$bytes
	done < <(./counted mnt/.hmcfs/stats)
}

rows=()

# move PATHS COMMAND… SOURCE TARGET runs a copy or a move, and checks that the
# bytes took one of the PATHS (a|b) and no other, by the counters and, inside
# the mount, by what the object says itself.
move() {
	local wanted=$1 begin end bytes path moved= target=${*: -1}
	shift
	[ ! -d "$target" ] || target=${target%/}/$(basename "${*: -2:1}")
	local -A before after
	count before
	printf '$ %s\n' "$*"
	begin=${EPOCHREALTIME/./}
	"$@"
	end=${EPOCHREALTIME/./}
	count after
	bytes=$(stat -c %s "$target")
	for path in "${!after[@]}"; do
		local n=$((after[$path] - ${before[$path]:-0}))
		[ "$n" -eq 0 ] && continue
		moved+=${moved:+,}$path
		[ "$n" -ge "$bytes" ] || die "$target: only $n of $bytes bytes took the path $path"
	done
	# The kernel serves files of the host tier by itself; nobody counts those.
	moved=${moved:-passthrough}
	[[ "|$wanted|" == *"|$moved|"* ]] || die "$target: the bytes took the path $moved, not $wanted"
	if [[ $target == mnt/* && $moved != passthrough ]]; then
		path=$(getfattr --only-values -n user.hmc.path "$target")
		[ "$path" = "$moved" ] || die "$target: user.hmc.path is $path, the counters say $moved"
	fi
	rows+=("$(printf '%s\t%s\t%s\t%d' "$*" "$bytes" "$moved" $((end - begin)))")
}

# same fails unless all files have one checksum.
same() {
	run sha256sum "$@" | tee sums
	[ "$(awk '/^[0-9a-f]+ / { print $1 }' sums | sort -u | wc -l)" -eq 1 ] ||
		die "checksums differ"
}

# report prints what was moved.
report() {
	printf '%-58s %12s  %-12s %8s %7s\n' COMMAND BYTES PATH SECONDS GB/s
	printf '%s\n' "${rows[@]}" | awk -F'\t' '{
		printf "%-58s %12d  %-12s %8.3f %7.2f\n", $1, $2, $3, $4 / 1e6, $2 / 1e3 / $4
	}'
}

cd "$scratch"
mkdir mnt in out
build

title "A NumPy array and a safetensors model of $size each"
run ./gen -dir in -npy "$size" -safetensors "$size"
run ls -l in

title "Mount: pinned host memory, an OpenCL device, two simulated devices"
run hmcfs mount --device host,size=1GiB --device opencl:0,size=2GiB \
	--device sim:0,size=1GiB --device sim:1,size=1GiB \
	--state-dir "$scratch/state" --runtime-dir "$scratch/run" mnt
run ls -l mnt
for device in host ocl0 sim0 sim1; do
	run df -h "mnt/$device"
done

title "Copy in: host to device"
move h2d cp in/activations.npy mnt/ocl0/
move 'passthrough|h2d' cp in/model.safetensors mnt/host/
move h2d cp mnt/host/model.safetensors mnt/ocl0/

title "Copy inside a device: no byte goes through the host"
move d2d cp mnt/ocl0/activations.npy mnt/ocl0/copy.npy

title "Copy and move between devices"
move 'd2d-peer|mapped|staged' cp mnt/ocl0/copy.npy mnt/sim0/
move 'd2d-peer|staged' cp mnt/sim0/copy.npy mnt/sim1/
move 'd2d-peer|mapped|staged' mv mnt/sim1/copy.npy mnt/ocl0/moved.npy
move 'd2d-peer|mapped|staged' cp mnt/ocl0/model.safetensors mnt/sim1/
run ls -l mnt/ocl0 mnt/sim0 mnt/sim1
for device in host ocl0 sim0 sim1; do
	run df -h "mnt/$device"
done

title "Attributes"
run setfattr -n user.hmc.key -v demo.activations mnt/ocl0/moved.npy
run setfattr -n user.hmc.blobs -v "128,$(($(stat -c %s mnt/ocl0/moved.npy) - 128))" mnt/ocl0/moved.npy
run getfattr -d mnt/ocl0/moved.npy
run getfattr -n user.hmc.device mnt/sim1/model.safetensors
run ls -l mnt/keys
[ "$(readlink mnt/keys/demo.activations)" = ../ocl0/moved.npy ] || die "the key leads elsewhere"

title "Checksums on both sides"
same in/activations.npy mnt/ocl0/activations.npy mnt/sim0/copy.npy mnt/ocl0/moved.npy mnt/keys/demo.activations
same in/model.safetensors mnt/host/model.safetensors mnt/ocl0/model.safetensors mnt/sim1/model.safetensors

title "Copy out: device to host"
move d2h cp mnt/ocl0/moved.npy out/
move d2h cp mnt/sim1/model.safetensors out/
move 'passthrough|d2h' cp mnt/host/model.safetensors out/from-host.safetensors
run cmp in/activations.npy out/moved.npy
run cmp in/model.safetensors out/model.safetensors
run cmp in/model.safetensors out/from-host.safetensors

if hmcfs status --json mnt | grep -q '"holder": {'; then # not with a kernel before 6.9
	title "The daemon is killed, and another one continues: an open file stays open"
	daemon=$(hmcfs status --json mnt | sed -n 's/^  "pid": \([0-9]*\),$/\1/p')
	exec 5<mnt/ocl0/moved.npy
	run kill -KILL "$daemon"
	run cmp in/activations.npy - <&5
	exec 5<&-
	same in/activations.npy mnt/ocl0/activations.npy mnt/sim0/copy.npy mnt/keys/demo.activations
	same in/model.safetensors mnt/host/model.safetensors mnt/sim1/model.safetensors
fi

title "Status"
run hmcfs status mnt

title "Unmount"
run hmcfs umount mnt
! mounted || die "mnt is still mounted"

title "What was moved"
report
echo
echo "Every byte arrived, each by the path that was expected."
