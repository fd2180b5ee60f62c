# Counts the instructions in the loop with the most tensor-core products, for each kernel in a listing:
#   cuobjdump -sass kernel.o | c++filt | awk -f tests/bench/sass_loops.awk
# `edge` counts FSEL and ISETP, most of which mask scores at the edges of the visible region and are jumped
# over elsewhere.
function hex(text, value, i) {
  value = 0
  for (i = 1; i <= length(text); ++i) value = 16 * value + index("0123456789abcdef", substr(text, i, 1)) - 1
  return value
}
function print_kernel(from, to, i, b, count, best, best_from, best_to, all) {
  best = 0
  for (b = 0; b < branches; ++b) {
    count = 0
    for (i = 0; i < n; ++i) if (place[i] >= target[b] && place[i] <= source[b] && code[i] == "HMMA") ++count
    if (count > best) { best = count; best_from = target[b]; best_to = source[b] }
  }
  if (best > 0) {
    for (i = 0; i < n; ++i) if (place[i] >= best_from && place[i] <= best_to) { ++all; ++of[code[i]] }
    printf "HMMA %4d  LDSM %4d  MUFU %3d  edge %4d  others %4d  %s\n", best, of["LDSM"], of["MUFU"], of["FSEL"] + of["ISETP"],
      all - best - of["LDSM"] - of["MUFU"] - of["FSEL"] - of["ISETP"], kernel
  }
  split("", of); n = 0; branches = 0
}
/Function : / { print_kernel(); kernel = $0; sub(/.*Function : /, "", kernel) }
$1 ~ /^\/\*[0-9a-f]+\*\/$/ {
  operation = $2 ~ /^@/ ? $3 : $2
  if (operation !~ /^[A-Z]/) next
  sub(/\..*/, "", operation)
  here = hex(substr($1, 3, length($1) - 4))
  place[n] = here; code[n++] = operation
  if (operation == "BRA" && match($0, /0x[0-9a-f]+ *;/)) {
    there = substr($0, RSTART + 2, RLENGTH - 2); sub(/ *;/, "", there)
    if (hex(there) < here) { target[branches] = hex(there); source[branches++] = here }
  }
}
END { print_kernel() }
