#!/usr/bin/env bash
# Runs the same commands with two builds of dflop, as before and after a refactoring, and compares standard output, exit
# status and every file that they write, byte by byte. Measured seconds of 'partition' are left out.
#
# usage: tests/cli/same_bytes.sh OLD_BINARY NEW_BINARY [FOLDER]      (FOLDER keeps what both have written)
set -uo pipefail
[ $# -ge 2 ] || { sed -n '2,5s/^# \?//p' "$0" >&2; exit 2; }
old=$(realpath "$1") new=$(realpath "$2")
root=$(realpath "$(dirname "$0")/../..")
work=${3:-$(mktemp -d)}
mkdir -p "$work"
[ $# -ge 3 ] || trap 'rm -rf "$work"' EXIT

ov="--data traces/datasets/vision_mix.csv --model llava-ov-llama3-8b --cluster a100-80g:4 --gbs 128 --iterations 2"
iv="--data traces/datasets/vision_mix.csv --model llava-ov-qwen2.5-7b --cluster h100:2 --gbs 64 --iterations 2"
search="--planner search --budget 2000000"

# One command per line, in order: later ones read the files that earlier ones wrote to OUT.
commands=$(cat <<TXT
models
clusters
models --format json
clusters --format csv
data --data traces/datasets/vision_mix.csv --model qwen2.5-vl-7b
data --data traces/datasets/omni_mix.csv --model qwen2-audio-7b --modalities audio,text --format json
plan $ov --out OUT/plan.json
plan $ov --planner megatron --out OUT/megatron.json
plan $ov --planner pytorch --pipeline-schedule interleaved --chunks 2 --out OUT/interleaved.json
plan $ov --planner megatron --pipeline-schedule zb-v --recompute none --format json
plan $ov --planner pytorch --pipeline-schedule gpipe --no-zero1 --no-sequence-parallel --format csv
plan $ov --pipeline-schedule eager-1f1b --recompute selective --gradient-bucket 268435456 --out OUT/eager.json
plan $ov --placement replica-major --pipeline-schedule zb-h1 --out OUT/zb.json
plan $ov $search --explain --out OUT/search.json
plan $iv $search --layout colocated --scheduler lpt --out OUT/bubbles.json
plan $iv $search --layout uniform --plan-objective cvar --format json
plan $iv --pipeline-schedule zb-h2 --out OUT/h2.json
schedule --plan OUT/plan.json --data traces/datasets/vision_mix.csv --iterations 2 --out OUT/ilp.json
schedule --plan OUT/plan.json --data traces/datasets/vision_mix.csv --iterations 2 --scheduler lpt --out OUT/lpt.json
schedule --plan OUT/plan.json --data traces/datasets/vision_mix.csv --iterations 2 --scheduler makespan --steps 20000 --out OUT/makespan.json
schedule --plan OUT/plan.json --data traces/datasets/vision_mix.csv --iterations 2 --scheduler random --format json
schedule --plan OUT/plan.json --data traces/datasets/vision_mix.csv --iterations 2 --scheduler karmarkar-karp --objective bins --format csv
schedule --plan OUT/plan.json --data traces/datasets/vision_mix.csv --iterations 2 --scheduler local-search --token-cap 60000 --format json
schedule --plan OUT/zb.json --data traces/datasets/vision_mix.csv --iterations 2 --scheduler auto --steps 20000 --respect-memory --out OUT/zb-schedule.json
schedule --plan OUT/search.json --data traces/datasets/vision_mix.csv --iterations 2 --scheduler lpt --out OUT/search-schedule.json
schedule --plan OUT/bubbles.json --data traces/datasets/vision_mix.csv --iterations 2 --scheduler lpt --out OUT/bubbles-schedule.json
schedule --plan OUT/plan.json --data traces/datasets/vision_mix.csv --iterations 1 --scheduler lpt --token-cap 10
simulate --plan OUT/plan.json --schedule OUT/ilp.json --out OUT/timeline.json --perfetto OUT/trace.json
simulate --plan OUT/plan.json --schedule OUT/lpt.json --explain --html OUT/page.html --format json
simulate --plan OUT/zb.json --schedule OUT/zb-schedule.json --network contention --slow rank=3:1.5 --format json
simulate --plan OUT/search.json --schedule OUT/search-schedule.json --jitter 0.1 --repeat 20 --order-out OUT/order.json
simulate --plan OUT/bubbles.json --schedule OUT/bubbles-schedule.json --format csv
simulate --plan OUT/plan.json --schedule OUT/ilp.json --stage-gpu 0=h100 --collectives tree --format json
simulate --plan OUT/plan.json --schedule OUT/lpt.json --fail rank=0:2
simulate --plan OUT/plan.json --schedule OUT/lpt.json --pause rank=1:0.5:0.3 --slow-link rank=2:0.5 --cores 8
simulate --pipeline traces/pipelines/1f1b.json
simulate --pipeline traces/pipelines/zb-h1.json --explain --perfetto OUT/raw.json
simulate --pipeline traces/pipelines/encoder-in-bubbles.json --format json --out OUT/raw-timeline.json
simulate --pipeline traces/pipelines/1f1b.json --order traces/pipelines/1f1b-order.json --slow stage=1:1.2 --pause rank=0:0.01:0.05
replay --trace OUT/timeline.json
replay --trace OUT/timeline.json --iteration all --bandwidth-scale 0.5 --format json
replay --trace OUT/timeline.json --pipeline-schedule gpipe --cluster a100-80g:4
replay --trace OUT/timeline.json --pipeline-schedule zb-h1 --weight-share 0.4 --microbatches 6 --jitter 0.05 --repeat 5
replay --trace OUT/timeline.json --plan OUT/zb.json --schedule OUT/zb-schedule.json --format csv
replay --trace OUT/timeline.json --slow rank=0:1.3 --pause rank=1:0.2:0.2 --out OUT/replayed.json
replay --trace OUT/raw-timeline.json --cores 2
partition --costs traces/items/example.csv --bins 8 --dp 2 --encoder-dp 2 --format json
partition --costs traces/items/example.csv --bins 8 --method ilp --steps 2000 --format json
partition --costs traces/items/example.csv --bins 6 --method makespan --objective makespan --encoder-stages 2 --llm-stages 2 --schedule zb-h1 --steps 20000 --format json
partition --costs traces/items/example.csv --bins 4 --method random --objective published --format json
partition --costs traces/items/example.csv --bins 6 --method auto --objective makespan --encoder-stages 1 --llm-stages 3 --steps 20000 --format json
compare $ov --budget 2000000 --out OUT/compare
compare $iv --budget 2000000 --scheduler lpt --recompute selective --format csv
compare $ov --budget 1000000 --layout uniform --pipeline-schedule gpipe --train-samples 1000000 --format json
sweep --spec SPEC --out OUT/sweep.sqlite
sweep export --db OUT/sweep.sqlite
sweep export --db OUT/sweep.sqlite --format csv
sweep plot --db OUT/sweep.sqlite --x nodes --out OUT/plot.svg
correction --plan OUT/plan.json --data traces/datasets/vision_mix.csv --iterations 6 --format json
import --kineto traces/kineto/rank0.json traces/kineto/rank1.json
check published --truth traces/ground_truth/llama_b200.csv --cluster b200 --format csv
calibrate --truth traces/ground_truth/llama_b200.csv --cluster b200 --out OUT/b200.json
TXT
)
cat > "$work/spec.json" <<'JSON'
{"schema": "dflop.sweep", "version": 1,
 "axes": {"model": ["llava-ov-qwen2.5-7b"], "cluster": ["a100-80g"], "nodes": [1, 2], "gbs": [32], "iterations": [1],
  "data": ["traces/datasets/vision_mix.csv"], "planner": ["dflop", "megatron"], "scheduler": ["lpt", "random"],
  "conditions": ["none", "--slow rank=0:1.5 --network contention"]}}
JSON

# Runs all commands with one build. The k-th command's standard output and status go to k.txt, next to the files.
run_all() {
  local binary=$1 out=$2 k=0 line
  rm -rf "$out" && mkdir -p "$out/OUT"
  while IFS= read -r line; do
    k=$((k + 1))
    line=${line//OUT/$out/OUT}
    line=${line//SPEC/$work/spec.json}
    (cd "$root" && eval "$binary $line" 2>"$out/$k.err"; echo "status $?") |
      sed -E "s#$out#OUT#g; s/\"seconds\": ?[0-9.e+-]+/\"seconds\": -/" >"$out/$k.txt"
  done <<<"$commands"
  rm -f "$out"/OUT/*.sqlite*  # holds measured seconds; its export is compared
  find "$out/OUT" -type f -exec sed -i "s#$out#OUT#g" {} +
}
run_all "$old" "$work/old" &
run_all "$new" "$work/new"
wait

count=$(wc -l <<<"$commands") different=0 failed=0 k=0
while IFS= read -r line; do
  k=$((k + 1))
  grep -qE '^status [03]$' "$work/old/$k.txt" || { failed=$((failed + 1)); echo "fails before, too: dflop $line"; }
  cmp -s "$work/old/$k.txt" "$work/new/$k.txt" && continue
  different=$((different + 1))
  echo "differs: dflop $line"
  diff "$work/old/$k.txt" "$work/new/$k.txt" | head -n 6
done <<<"$commands"
files=$(cd "$work/old/OUT" && find . -type f | sort)
[ "$files" = "$(cd "$work/new/OUT" && find . -type f | sort)" ] || { echo "other files are written"; different=$((different + 1)); }
for file in $files; do
  cmp -s "$work/old/OUT/$file" "$work/new/OUT/$file" || { echo "differs: $file"; different=$((different + 1)); }
done
echo "$count commands, $failed fail with both, $(wc -w <<<"$files") files, $different differences"
[ $different -eq 0 ] && [ $failed -eq 0 ]
