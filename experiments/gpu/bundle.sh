#!/usr/bin/env bash
# Packs everything that run_all.sh needs on a bare machine with a GPU into one .tar.xz: the programs, their shared
# libraries except the C library and CUDA, the scripts and the data. run_all.sh --bundle unpacks and runs it.
#
# usage: experiments/gpu/bundle.sh FILE.tar.xz [BUILD [MIB]]     (BUILD: build/cuda; MIB: the file's limit, 64)
set -euo pipefail
cd "$(dirname "$0")/../.."
file=${1:?usage: experiments/gpu/bundle.sh FILE.tar.xz [BUILD [MIB]]}
build=${2:-build/cuda}
limit_mib=${3:-64}

programs=(dflop dflop_bench tests/test_cuda)
for program in "${programs[@]}"; do
  [ -x "$build/$program" ] || { echo "bundle.sh: $build/$program is not there; build it with CUDA first: ./dev build cuda" >&2; exit 2; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
folder=$work/dflop-gpu

mkdir -p "$folder/build/cuda/tests" "$folder/lib" "$folder/traces/datasets"
for program in "${programs[@]}"; do
  strip -o "$folder/build/cuda/$program" "$build/$program"
done
ldd "${programs[@]/#/$build/}" | awk '$2 == "=>" && $3 ~ /^\// && $3 !~ /\/(libc|libm|libdl|librt|libpthread|libcuda)\.so/ {print $3}' | sort -u |
  xargs -I{} cp -L {} "$folder/lib"
cp traces/datasets/vision_mix.csv "$folder/traces/datasets"
git ls-files experiments/gpu traces/grids traces/emoji/model/tokenizer.json | xargs cp --parents -t "$folder"

XZ_OPT='-6 -T0' tar -C "$work" -cJf "$file" dflop-gpu
bytes=$(stat -c %s "$file")
printf '%s: %s.%s MiB, of %s at most\n' "$file" $((bytes >> 20)) $(((bytes & 1048575) * 10 >> 20)) "$limit_mib"
[ "$bytes" -le $((limit_mib << 20)) ] || { echo "bundle.sh: more than $limit_mib MiB" >&2; exit 1; }
