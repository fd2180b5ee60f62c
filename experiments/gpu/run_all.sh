#!/usr/bin/env bash
# All that a GPU can say of dflop, in one call of at most nine minutes: its tests, benches beside the device's ceilings,
# a profile, variants of kernels, shares of the GPU, plans live beside their predictions, and timelines. For a bare
# machine: bring the folder that bundle.sh makes.
#
# usage: ./run_all.sh OUT      from that folder; OUT gets at most eight files
#
# A step that fails or runs out of time is noted in OUT/log.txt and does not end the others. Exit status 4 without a GPU,
# 1 where a step failed.
set -uo pipefail
cd "$(dirname "$0")"
out=${1:?usage: ./run_all.sh OUT}
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
exec > >(tee "$out/log.txt") 2>&1
tee_pid=$!
trap 'rm -rf "$work"; exec >/dev/null 2>&1; wait "$tee_pid"' EXIT  # the log is whole when this script has ended

# CUDA's libraries are the machine's: of a toolkit, or those that come with Python's packages.
toolkit=$(readlink -f "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")
root=$(dirname "$(dirname "$toolkit")")
libraries=$root/lib64:$root/lib
for python_lib in $(python3 -c 'import nvidia; print(*nvidia.__path__)' 2>/dev/null); do
  libraries+=:$(find "$python_lib" -maxdepth 2 -name lib -printf '%p:')
done
export LD_LIBRARY_PATH=$PWD/lib:$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

failed=0
deadline=$((SECONDS + 530))
# step SECONDS NAME COMMAND...: runs it for so long at most, and no longer than there is time in all.
step() {
  local most=$1 name=$2 left=$((deadline - SECONDS)) begin=$SECONDS status=0
  shift 2
  if [ "$left" -lt 5 ]; then
    echo "== $name: no time left"
    failed=1
    return
  fi
  echo "== $name: $*"
  timeout --kill-after=5 $((left < most ? left : most)) "$@" || status=$?
  echo "-- $name: exit status $status after $((SECONDS - begin)) s"
  [ "$status" -eq 0 ] || failed=1
}

nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem --format=csv
bin/dflop devices || exit 4

# A fault of the GPU spoils what its process does afterwards, and a hang all that it has not written: suites apart.
for suite in CudaDevices:CudaKernels 'Precision/CudaLinear*' 'Precision/CudaRows*' 'Precision/CudaLookup*' \
             'Precision/CudaAttention*' 'Cuda/DeviceContract*:CudaDevice' 'Cuda/CommunicatorContract*:CudaWorld' \
             'Plans/LiveCuda*:LiveCuda*'; do
  step 40 "tests of $suite" bin/test_cuda --gtest_brief=1 --gtest_filter="${suite//:/.*:}.*" \
    --gtest_output="xml:$work/tests/$(tr -c '[:alnum:]\n' _ <<<"$suite").xml"
done
step 80 benches bin/dflop_bench --benchmark_filter='^cuda' --benchmark_format=json --benchmark_out="$out/benches.json"
step 60 profile bin/dflop profile --device cuda --model small-vlm --dtype bf16 --budget-s 20 --out "$out/profile.json"
# Variants of kernels, cuDNN's and cuBLASLt's choices among them, beside the default, and a run that takes the best.
step 60 kernels bin/dflop kernels tune --device cuda --model small-vlm --dtype bf16 --budget-s 40 --kernels-file "$out/dflop.kernels"
step 30 train-kernels bin/dflop train --device cuda --model small-vlm --dtype bf16 --steps 20 --kernels profile --kernels-file "$out/dflop.kernels"
# What neighbours on parts of the GPU do to each other, and shared plans beside the same on streams that share it in time.
step 70 shares bin/dflop profile --device cuda --partition --shares 1/8,1/4,3/8,1/2,5/8,3/4,7/8 --model small-vlm --dtype bf16 --budget-s 45 --out "$work/shares.json"
step 50 fidelity-shares bin/dflop fidelity --device cuda --partition --dtype bf16 --plans traces/grids/small-vlm-shared.json --steps 6 --budget-s 4 --out "$work/shares"
step 40 fidelity-sliced bin/dflop fidelity --device cuda --dtype bf16 --plans traces/grids/small-vlm-sliced.json --steps 6 --budget-s 2 --out "$work/sliced"
step 80 fidelity bin/dflop fidelity --device cuda --dtype bf16 --partition --plans traces/grids/small-vlm-gpu.json --steps 8 --out "$work/partition"
step 60 fidelity-shared bin/dflop fidelity --device cuda --dtype bf16 --plans traces/grids/small-vlm-gpu.json --steps 4 --budget-s 2 --out "$work/shared"
step 30 train bin/dflop train --device cuda --model small-vlm --dtype bf16 --steps 20 --record "$out/timelines.json.gz"
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck; do
    step 60 "$tool" compute-sanitizer --tool "$tool" --error-exitcode 1 bin/test_cuda --gtest_brief=1 --gtest_filter='Precision/CudaAttention*bf16*'
  done
  step 60 memcheck-train compute-sanitizer --error-exitcode 1 bin/dflop train --device cuda --dtype bf16 --model tiny-vlm --steps 2
fi
tar -C "$work" -czf "$out/tests-and-fidelity.tar.gz" .
nvidia-smi --query-gpu=clocks.sm,clocks.mem,temperature.gpu,power.draw --format=csv

echo "== files"
ls -l "$out"
exit "$failed"
