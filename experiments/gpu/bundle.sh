#!/usr/bin/env bash
# Puts all that run_all.sh needs on a bare machine with a GPU into one folder: the programs, the shared libraries that
# they need, but for the C library and CUDA, and the data.
#
# usage: experiments/gpu/bundle.sh FOLDER [BUILD]     (BUILD: build/release, built with CUDA)
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:?usage: experiments/gpu/bundle.sh FOLDER [BUILD]}
build=${2:-build/release}
limit_mib=56  # what travels with it has its own

programs=("$build/dflop" "$build/dflop_bench" "$build/tests/test_cuda")
for program in "${programs[@]}"; do
  [ -x "$program" ] || { echo "bundle.sh: $program is not there; build it with CUDA first: ./dev build cuda" >&2; exit 2; }
done
[ ! -e "$folder" ] || { echo "bundle.sh: $folder exists already" >&2; exit 2; }

mkdir -p "$folder/bin" "$folder/lib" "$folder/traces/datasets" "$folder/traces/grids"
cp "${programs[@]}" "$folder/bin"
strip "$folder"/bin/*
ldd "${programs[@]}" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
  grep -Ev '/(libc|libm|libdl|librt|libpthread|libcuda)\.so' | xargs -I{} cp -L {} "$folder/lib"
cp traces/datasets/vision_mix.csv "$folder/traces/datasets"
cp traces/grids/small-vlm-{gpu,shared,sliced}.json "$folder/traces/grids"
cp experiments/gpu/run_all.sh "$folder"

mib=$(du -sm "$folder" | cut -f1)
echo "$folder: $mib MiB"
[ "$mib" -le "$limit_mib" ] || { echo "bundle.sh: more than $limit_mib MiB" >&2; exit 1; }
