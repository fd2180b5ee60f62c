#!/usr/bin/env bash
# Shows what dflop does on a GPU, in two halves of at most five minutes each, with the most important steps first.
#
# usage: experiments/gpu/run_all.sh first|second --out DIR [--build DIR] [--bundle FILE] [--seconds S] [--dry-run] [--tar]
#
#   first    CUDA tests, dflop and PyTorch side by side, predictions next to runs
#   second   a process for each rank (NCCL) on a shared GPU, the death of one, parts of the GPU, benches, compute-sanitizer
#
#   --build DIR    with dflop, dflop_bench and tests/test_cuda; build/cuda
#   --bundle FILE  unpack a file from bundle.sh and run it
#   --seconds S    for the half (290; for a dry run 600)
#   --dry-run      the same commands on the processor with small models, in a minute; build/release
#   --tar          pack DIR/HALF to DIR/HALF.tar.gz at the end
#
# PYTHON names a Python with torch and transformers; python3.
#
# Each step has a time limit, and a failed step does not end the others. DIR/HALF has the output of each step. Its
# log.txt ends with a table of exit statuses and seconds. Exit status: 0; 1 if a step failed; 4 without a GPU.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
usage() { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }

python=${PYTHON:-python3}
half=${1:-}
case $half in first | second) shift ;; *) usage ;; esac
out='' build='' bundle='' seconds='' dry=0 pack=''
while [ $# -gt 0 ]; do
  case $1 in
    --out) out=${2:-} && shift ;;
    --build) build=${2:-} && shift ;;
    --bundle) bundle=${2:-} && shift ;;
    --seconds) seconds=${2:-none} && shift ;;
    --dry-run) dry=1 ;;
    --tar) pack=1 ;;
    *) usage ;;
  esac
  shift
done
[ -n "$out" ] || usage
[[ ${seconds:-1} =~ ^[0-9]+$ ]] || { echo "run_all.sh: --seconds: expected a whole number, found '$seconds'" >&2; exit 2; }
[ -n "$seconds" ] || seconds=$((dry ? 600 : 290))
mkdir -p "$out/$half" || exit 2
out=$(cd "$out" && pwd)
room=${TMPDIR:-/tmp}  # in memory where models and data fit into it
if [ "$(df --output=avail -k /dev/shm 2>/dev/null | tail -n 1)" -gt 16000000 ] 2>/dev/null; then room=/dev/shm; fi
work=$(mktemp -d -p "$room" dflop-gpu.XXXXXX)
trap 'rm -rf "$work"' EXIT

if [ -n "$bundle" ]; then
  if command -v xz >/dev/null; then tar -xJf "$bundle" -C "$work"; else "$python" -m tarfile -e "$bundle" "$work"; fi || exit 2
  unpacked=$work/dflop-gpu dry_run=()
  [ "$dry" = 0 ] || dry_run=(--dry-run)
  "$unpacked/experiments/gpu/run_all.sh" "$half" --out "$out" --seconds "$seconds" "${dry_run[@]}" ${pack:+--tar}
  exit
fi

[ -n "$build" ] || build=$root/build/$([ "$dry" = 1 ] && [ ! -d "$root/build/cuda" ] && echo release || echo cuda)
build=$(cd "$build" 2>/dev/null && pwd) || { echo "run_all.sh: no folder of programs; build them: ./dev build cuda" >&2; exit 2; }
here=$root/experiments/gpu
cd "$root" || exit 2
exec > >(tee "$out/$half/log.txt") 2>&1
tee_pid=$!
trap 'rm -rf "$work"; exec >/dev/null 2>&1; wait "$tee_pid"' EXIT  # the log is whole when this script has ended

# CUDA's libraries come from the machine: from a toolkit, or from Python packages. Only dflop uses this path, because
# torch finds its own.
toolkit=$(readlink -f "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")
libraries=$root/lib:$(dirname "$(dirname "$toolkit")")/lib64
for python_lib in $("$python" -c 'import nvidia; print(*nvidia.__path__)' 2>/dev/null); do
  libraries+=:$(find "$python_lib" -maxdepth 2 -name lib -printf '%p:')
done
for program in dflop dflop_bench tests/test_cuda; do
  wrapper=$work/$(basename "$program")
  printf '#!/bin/sh\nLD_LIBRARY_PATH="%s${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "%s" "$@"\n' "$libraries" "$build/$program" >"$wrapper"
  chmod +x "$wrapper"
done
dflop=$work/dflop test_cuda=$work/test_cuda bench=$work/dflop_bench
export PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error

deadline=$((SECONDS + seconds))
names=() statuses=() times=()
note() { names+=("$1") statuses+=("$2") times+=("$3"); }
# step SECONDS NAME COMMAND...: runs the command within this time and the time that is left in total. The limits are for
# a GPU: a dry run may share its processor with others, and gets more time.
step() {
  local most=$((dry ? 600 : $1)) name=$2 left=$((deadline - SECONDS)) begin=$SECONDS status=0
  shift 2
  if [ "$left" -lt 5 ]; then
    note "$name" 'no time left' 0
    return
  fi
  printf '== %s: %s\n' "$name" "$*"
  timeout --kill-after=10 $((left < most ? left : most)) "$@" >"$out/$half/$name.txt" 2>&1 || status=$?
  tail -n 30 "$out/$half/$name.txt"
  note "$name" "$status" $((SECONDS - begin))
}
# built STEP PROGRAM: whether the program exists. A dry run skips programs of other builds.
built() {
  [ "$dry" = 0 ] || [ -x "$build/$2" ] || { note "$1" skipped 0; return 1; }
}

if [ "$dry" = 1 ]; then
  device=(--device host --dtype f32) parts=(--device-cores 2) shares=1/2,1 small=(--small) model=tiny-vlm
  steps=1 budget=0.1 budget_of_shares=0.4 processes=host alone=(--alone) few=(--modalities image --gbs 8 --warm-up 1) list=(--list)
else
  device=(--device cuda --dtype bf16) parts=(--partition) shares=1/4,1/2,3/4,1 small=() model=small-vlm
  steps=6 budget=8 budget_of_shares=25 processes=nccl alone=() few=() list=()
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem --format=csv
  "$dflop" devices || exit 4
fi
data=$work/data

# grid_of MODEL: a grid with one plan of one rank, for a model given as a folder.
grid_of() {
  printf '{"schema": "dflop.grid", "version": 1, "model": "%s", "cluster": "h100:1", "gbs": 8, "plans": [
    {"name": "one rank", "llm": {"tp": 1, "pp": 1, "dp": 1}, "microbatches": 4}]}\n' "$1"
}
# grid_for MODEL FILE: a grid of small-vlm, changed to another model.
grid_for() { sed "s|\"small-vlm\"|\"$1\"|" "$2"; }

first_half() {
  built tests tests/test_cuda && step 75 tests "$here/tests.sh" "$test_cuda" "$out/first" "${list[@]}"
  step 200 head-to-head "$python" "$here/head_to_head.py" --out "$out/first/head-to-head" --dflop "$dflop" --data "$data" --seconds $((dry ? 600 : 185)) "${small[@]}"
  local length=4096
  [ "$dry" = 0 ] || length=32
  grid_of "$data/text" >"$work/text.json"
  grid_of "$data/vlm" >"$work/vlm.json"
  grid_for "$model" traces/grids/small-vlm-gpu.json >"$work/small.json"
  step 45 fidelity-text "$dflop" check runs "${device[@]}" --plans "$work/text.json" --data "$data/text.bin" --sequence-length "$length" \
    --steps "$steps" --warm-up 2 --budget-s "$budget" --out "$out/first/fidelity-text"
  step 50 fidelity-vlm "$dflop" check runs "${device[@]}" --plans "$work/vlm.json" --data "$data/vlm.tar" \
    --steps "$steps" --warm-up 2 --budget-s "$budget" --out "$out/first/fidelity-vlm"
  step 60 fidelity-small "$dflop" check runs "${device[@]}" --plans "$work/small.json" "${few[@]}" --steps "$steps" --budget-s "$budget" --out "$out/first/fidelity-small"
}

# ranks RANKS NAME OPTION...: makes a plan with these options, and runs it with threads of one process and with a
# process per rank.
ranks() {
  local count=$1 name=$2 run
  shift 2
  step 30 "$name-plan" "$dflop" plan --model "$model" --data traces/datasets/vision_mix.csv --cluster h100:1 --gbs 16 --microbatches 4 \
    --recompute none --iterations 1 "$@" --out "$work/$name.json"
  run=(--plan "$work/$name.json" --dtype "${device[3]}")
  step 30 "$name-threads" "$dflop" train "${run[@]}" --device "${device[1]}" --steps 6 --log "$work/$name.jsonl"
  step 60 "$name-processes" "$python" "$here/ranks.py" "$count" --out "$out/second/$name" --like "$work/$name.jsonl" "${alone[@]}" -- \
    "$dflop" train "${run[@]}" --device "$processes" --steps 6
  killed=("$here/ranks.py" "$count" --out "$out/second/$name-killed" --kill 1 "${alone[@]}" --
    "$dflop" train "${run[@]}" --device "$processes" --steps 2000)
}

second_half() {
  ranks 2 pp2-zb-v --layout uniform --tp 1 --pp 2 --dp 1 --order zb-v
  ranks 2 dp2 --layout uniform --tp 1 --pp 1 --dp 2
  ranks 2 apart --layout disaggregated --encoder-tp 1 --encoder-pp 1 --encoder-dp 1 --tp 1 --pp 1 --dp 1
  step 60 killed-of-2 "$python" "${killed[@]}"
  ranks 4 apart-tp2 --layout disaggregated --encoder-tp 1 --encoder-pp 1 --encoder-dp 2 --tp 2 --pp 1 --dp 1
  step 60 killed-of-4 "$python" "${killed[@]}"
  step 40 data "$python" "$here/h2h/data.py" "$data" --models wide "${small[@]}"
  grid_for "$data/wide" traces/grids/small-vlm-shared.json >"$work/shared.json"
  step 60 shares "$dflop" profile "${device[@]}" "${parts[@]}" --shares "$shares" --model "$data/wide" --budget-s "$budget_of_shares" \
    --most-tokens 8192 --out "$out/second/shares.json"
  step 70 fidelity-shares "$dflop" check runs "${device[@]}" "${parts[@]}" --plans "$work/shared.json" --data "$data/vlm.tar" --profile "$out/second/shares.json" \
    --steps "$steps" --warm-up 2 --out "$out/second/fidelity-shares"
  if [ "$dry" = 1 ]; then
    built benches dflop_bench && step 20 benches "$bench" --benchmark_filter='^cuda' --benchmark_min_time=0.2 --benchmark_list_tests
    return
  fi
  step 60 benches "$bench" --benchmark_filter='^cuda' --benchmark_min_time=0.2 --benchmark_format=json --benchmark_out="$out/second/benches.json"
  command -v compute-sanitizer >/dev/null || { note compute-sanitizer skipped 0; return; }
  # It checks only the program that it starts itself, so it cannot start a wrapper.
  local sanitize=(env "LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" compute-sanitizer --error-exitcode 1)
  step 50 memcheck-train "${sanitize[@]}" "$build/dflop" train --device cuda --dtype bf16 --model tiny-vlm --steps 2
  for tool in memcheck racecheck; do
    step 50 "$tool" "${sanitize[@]}" --tool "$tool" "$build/tests/test_cuda" --gtest_brief=1 --gtest_filter='Precision/CudaAttention*bf16*'
  done
}

"${half}_half"
[ "$dry" = 1 ] || nvidia-smi --query-gpu=clocks.sm,clocks.mem,temperature.gpu,power.draw --format=csv
failed=0
printf '\n%-24s  %12s  %7s\n' step 'exit status' seconds
for i in "${!names[@]}"; do
  printf '%-24s  %12s  %7s\n' "${names[i]}" "${statuses[i]}" "${times[i]}"
  case ${statuses[i]} in 0 | skipped) ;; *) failed=1 ;; esac
done
[ -z "$pack" ] || tar -C "$out" -czf "$out/$half.tar.gz" "$half"
exit "$failed"
