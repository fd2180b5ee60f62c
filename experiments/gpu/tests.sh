#!/usr/bin/env bash
# Runs the CUDA tests, each suite in its own process: a fault of the GPU breaks the rest of its process, and a hang
# loses unwritten output. Four suites run at a time.
#
# usage: experiments/gpu/tests.sh TEST_CUDA OUT [--list]     (--list: names the tests and runs none)
set -uo pipefail
export TEST_CUDA=${1:?} OUT=${2:?} LIST=${3:-}
suites=(CudaDevices:CudaKernels 'Precision/CudaLinear*' 'Precision/CudaRows*' 'Precision/CudaLookup*' 'Precision/CudaAttention*'
  'Cuda/DeviceContract*:CudaDevice' 'Cuda/CommunicatorContract*:CudaWorld' 'Plans/LiveCuda*:LiveCuda*')

run_suite() {
  local suite=$1 status=0 filter="${1//:/.*:}.*" name
  name=tests-$(tr -cs '[:alnum:]\n' - <<<"$suite")
  if [ -n "$LIST" ]; then
    "$TEST_CUDA" --gtest_list_tests --gtest_filter="$filter" >"$OUT/$name.txt" && grep -q '^  ' "$OUT/$name.txt" || status=1
  else
    "$TEST_CUDA" --gtest_brief=1 --gtest_filter="$filter" --gtest_output="xml:$OUT/$name.xml" >"$OUT/$name.txt" 2>&1 || status=$?
  fi
  printf '%s: exit status %s, %s\n' "$suite" "$status" "$(tail -n 1 "$OUT/$name.txt")"
  [ "$status" -eq 0 ]
}
export -f run_suite
printf '%s\0' "${suites[@]}" | xargs -0 -P4 -I{} bash -c 'run_suite "$1"' _ {}
