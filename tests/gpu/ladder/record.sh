#!/usr/bin/env bash
# Build the ladders, time each step without a profiler, then record one launch of each: times.jsonl and ladder.ncu-rep.gz in $1.
# Needs nvcc, ncu and an NVIDIA GPU of compute capability 9.0 (another: SM=80 …); the GPU's clocks are left as they are.
set -euo pipefail
out=${1:?folder for the results}
here=$(cd "$(dirname "$0")" && pwd)
build=$(mktemp -d)
mkdir -p "$out" && out=$(cd "$out" && pwd)
nvcc -O3 -lineinfo -arch="sm_${SM:-90}" -o "$build/ladder" "$here/ladder.cu"
"$build/ladder" time | tee "$out/times.jsonl"
cd "$build" && cp "$here/ladder.cu" .
ncu --set full --import-source yes --clock-control none --force-overwrite -o "$build/ladder" "$build/ladder" once
gzip -9 -c "$build/ladder.ncu-rep" > "$out/ladder.ncu-rep.gz"
ls -l "$out"
