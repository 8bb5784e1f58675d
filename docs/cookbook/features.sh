#!/bin/sh
# Features through a pipeline of three processes: extract, scale, sum. Usage: features.sh MOUNT [BATCHES [ROWS]]
set -eu
mnt=$1 batches=${2:-8} rows=${3:-32768}
extract='x = np.random.default_rng(i).standard_normal((rows, 64), dtype="f4")'
scale='x -= x.mean(0); x /= x.std(0)'
check='total += float(np.abs(x).sum())'

# A stage that receives batches as files, maps them, and hands them on: they are written once and never copied.
by_files() { # FROM TO CODE
	python3 -c "import numpy as np, os, subprocess
rows, total = $rows, 0.0
for i in range($batches):
    file = f'$mnt/host/$2-{i}'
    if '$1':
        subprocess.run(['hmcfs', 'subscribe', f'$1-{i}={file}', '--timeout', '60s'], check=True, stdout=subprocess.DEVNULL)
        x = np.load(file, mmap_mode='r+')
    $3
    if not '$1': np.save(open(file, 'wb'), x)
    del x                                          # a file goes on when nobody maps it
    os.rename(file, f'$mnt/publish/$2-{i}') if '$2' != 'end' else os.remove(file)
if '$2' == 'end': print(f'{total:.3f}')"
}
# The same by pipes: every byte is written and read again for each stage.
by_pipes() { # FROM TO CODE
	python3 -c "import numpy as np, sys
rows, total = $rows, 0.0
for i in range($batches):
    if '$1': x = np.frombuffer(bytearray(sys.stdin.buffer.read(rows * 256)), 'f4').reshape(rows, 64)
    $3
    if '$2' != 'end': sys.stdout.buffer.write(x)
if '$2' == 'end': print(f'{total:.3f}')"
}
ms() { echo $(($(date +%s%N) / 1000000)); }
start=$(ms)
by_files "" raw "$extract" & by_files raw scaled "$scale" & files=$(by_files scaled end "$check")
wait && middle=$(ms)
pipes=$(by_pipes "" raw "$extract" | by_pipes raw scaled "$scale" | by_pipes scaled end "$check")
echo "files handed over: $((middle - start)) ms; pipes: $(($(ms) - middle)) ms; sums $files and $pipes"
[ "$files" = "$pipes" ]
