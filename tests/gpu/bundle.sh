#!/bin/sh
# Builds what tests/gpu/run.sh needs on a machine without toolchains:
#
#   tests/gpu/bundle.sh DIR
#
# puts hmcfs, the suite, its helpers and the recipes into DIR. The C programs
# are linked to libc and libdl alone, and run where the C library is not older
# than the one here. CC is the compiler, for x86-64 as for the Go programs;
# LDFLAGS are further flags of Go's linker.
set -eu

dir=${1:?usage: bundle.sh DIR}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

version=$(git -C "$root" describe --tags --always --dirty 2>/dev/null || echo unknown)
(
	cd "$root"
	export CGO_ENABLED=0 GOFLAGS=-mod=readonly
	[ -n "${HMCFS:-}" ] || go build -trimpath -o "$dir/hmcfs" \
		-ldflags "${LDFLAGS:-} -X github.com/hmcfs/hmcfs/cmd/hmcfs/cli.version=$version" ./cmd/hmcfs
	go build -trimpath -ldflags "${LDFLAGS:-}" -o "$dir/gpu" ./tests/gpu
	go test -trimpath -ldflags "${LDFLAGS:-}" -c -o "$dir/conformance" ./tests/gpu/conformance
)
for program in truth cudaraw fileio; do
	${CC:-cc} -std=gnu11 -O2 -Wall -Wextra -Werror -pthread -o "$dir/$program" "$here/native/$program.c" -ldl
done
cp "$here/run.sh" "$dir/"
mkdir -p "$dir/recipes"
cp "$root"/tests/recipes/*.py "$dir/recipes/"
