#!/bin/sh
# A rank that is a shell script: each puts a number into its window, and when
# all have come to the barrier, the root adds them up.
#
#	hmcfs run --nranks 4 -- tests/examples/shell/reduce.sh
set -eu

# conv=notrunc because a window can't be cut.
printf '%8d' "$((HMCFS_RANK + 1))" | dd of="$HMCFS_WINDOW" bs=8 conv=notrunc status=none
"${HMCFS:-hmcfs}" barrier --timeout 60s written
test "$HMCFS_RANK" = "$HMCFS_ROOT" || exit 0
sum=0
for window in "$HMCFS_WINDOWS"/*; do
	sum=$((sum + $(dd if="$window" bs=8 count=1 status=none)))
done
echo "the sum is $sum"
