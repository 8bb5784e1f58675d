#!/bin/sh
# The corrected ring with dd: rank 0 has a message, and each rank hands on what
# it has received, from window to window.
#
#	hmcfs run --nranks 4 -- tests/examples/shell/ring.sh
set -eu

size=32
right=$(((HMCFS_RANK + 1) % HMCFS_WORLD))
test "$HMCFS_RANK" != 0 || printf '%-*s' "$size" 'a message from rank 0' | dd of="$HMCFS_WINDOW" bs="$size" conv=notrunc status=none
step=1
while [ "$step" -lt "$HMCFS_WORLD" ]; do
	"${HMCFS:-hmcfs}" barrier --timeout 60s "before $step"
	# Only who has received the message in the last step hands it on.
	if [ "$HMCFS_RANK" = "$((step - 1))" ]; then
		dd if="$HMCFS_WINDOW" of="$HMCFS_WINDOWS/$right" bs="$size" count=1 conv=notrunc status=none
	fi
	step=$((step + 1))
done
"${HMCFS:-hmcfs}" barrier --timeout 60s end
dd if="$HMCFS_WINDOW" bs="$size" count=1 status=none
echo
