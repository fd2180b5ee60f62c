# Each line breaks a kernel in one place, and the tests that it names must then fail. This shows that the emulation detects such
# mistakes. mutation(<what> <file> <n> <text> <other> <tests>), see copy_kernels.cmake; the text is a whole statement or
# operand.
set(tensor "*CudaAttention.LargeScores/bf16")
set(plain "*CudaAttention.LargeScores/f32")
set(norms "*CudaRows.NormsOfWideRows/f32")
set(adding "*CudaRows.NormsAdd*/f32")
set(rows "*CudaLookup.*ManyTokens/f32")
set(linear "*CudaLinear.UnalignedMatrices/f32")
set(squares "*CudaRows.Squares/f32")
set(few "*CudaAttention.FewKeyHeads/bf16")
set(tiles "*CudaAttention.LengthsChooseTiles/bf16")

mutation("forward: keys are not waited for" attention_forward.cu 1 "wait_copies();" "" ${tensor})
mutation("forward: no barrier before keys are read" attention_forward.cu 1 "__syncthreads();" "" ${tensor})
mutation("forward: values are not waited for" attention_forward.cu 2 "wait_copies();" "" ${tensor})
mutation("forward: no barrier before values are read" attention_forward.cu 2 "__syncthreads();" "" ${tensor})
mutation("forward: one key behind a sequence is seen" attention_forward.cu 1
  "key + kKeys > tile.length" "key + kKeys > tile.length + 1" "*CudaAttention.NothingBehind*/bf16")
mutation("forward: warps skip keys that they see" attention_forward.cu 1
  "key < query + kRowTiles * 16" "key < query" ${tensor})
mutation("forward: half of the shared memory" attention_forward.cu 1
  "S::kSharedBytes" "S::kSharedBytes / 2" ${tensor})
mutation("forward: shared memory is not asked for" launch.hpp 1
  "shared_bytes > kUsualSharedBytes" "false" ${tensor})
mutation("tiles: masks are off by one" tiles.cuh 1 "column >= visible" "column > visible" ${tensor})
mutation("tiles: rows behind a sequence are copied" tiles.cuh 1
  "in_head && row + step < count" "in_head" ${tensor})
mutation("tiles: chunks of a row are not exchanged where they are read" tiles.cuh 1
  "place ^ static_cast<unsigned>(chunks % 8 * 16)" "place + static_cast<unsigned>(chunks % 8 * 16)" ${tensor})

mutation("queries: keys are not waited for" attention_queries.cu 1 "wait_copies();" "" ${tensor})
mutation("queries: no barrier before keys are read" attention_queries.cu 1 "__syncthreads();" "" ${tensor})
mutation("queries: one buffer of keys" attention_queries.cu 1 "key / kKeys % 2 * 2 * kKeys" "0" ${tensor})

mutation("keys: queries are not waited for" attention_keys.cu 1 "wait_copies();" "" ${tensor})
mutation("keys: no barrier before queries are read" attention_keys.cu 1 "__syncthreads();" "" ${tensor})
mutation("keys: one buffer of queries" attention_keys.cu 1 "buffer_of(1 - which)" "buffer_of(which)" ${tensor})
mutation("keys: warps do not wait for each other" attention_keys.cu 1
  "wait_for_some(1 + warp / 2, 2 * kWarp);" "" ${tensor})
mutation("keys: all warps wait at one barrier" attention_keys.cu 1
  "wait_for_some(1 + warp / 2, 2 * kWarp);" "wait_for_some(1, 2 * kWarp);" ${tensor})
mutation("keys: one place to hand over" attention_keys.cu 1 "handed + S::kBlockVectors" "handed" ${tensor})
mutation("keys: warps take what they handed over" attention_keys.cu 1 "(warp ^ 1)" "warp" ${tensor})
mutation("keys: masks are off by one" attention_keys.cu 1
  "query + fragment_column(j) + c % 2 < key + fragment_row(i, c / 2)"
  "query + fragment_column(j) + c % 2 <= key + fragment_row(i, c / 2)" ${tensor})

mutation("keys: parts are written over each other" attention_keys.cu 1 "which * layout.rows" "0" ${few})
mutation("keys: each part has all heads" attention_keys.cu 1
  "first_head + parts.heads" "first_head + layout.heads / layout.kv_heads" ${few})
mutation("keys: all parts but the first are left out" attention_keys.cu 1 "part < parts.count" "part < 1" ${few})
mutation("keys: sums of parts have no factor" attention_keys.cu 1
  "column < layout.value(0) ? layout.scale : 1.0f" "1.0f" ${few})
mutation("keys: too little memory for parts" attention_keys.cu 1
  "parts.count * size" "parts.count * size - 1" ${few})
mutation("tiles: the last columns of a head are left out" tiles.cuh 1
  "k < width / 16" "k < width / 16 - 1" "*CudaAttention.Windows/bf16")
mutation("rule: tiles of 128 for all lengths" attention.cu 2
  "attention_way(longest, false)" "AttentionWay::tiles_128" ${tiles})
mutation("rule: long sequences do not go to the library" attention.cu 1
  "state.packaged != nullptr" "false" "*CudaAttention.LongSequences*/bf16")

mutation("plain forward: lanes do not wait for the query" attention_plain.cu 1 "__syncwarp();" "" ${plain})
mutation("plain queries: lanes do not wait for the query" attention_plain.cu 3 "__syncwarp();" "" ${plain})
mutation("plain queries: lanes do not wait for weights" attention_plain.cu 4 "__syncwarp();" "" ${plain})
mutation("plain keys: lanes do not wait for the key" attention_plain.cu 5 "__syncwarp();" "" ${plain})
mutation("plain keys: lanes do not wait for weights" attention_plain.cu 6 "__syncwarp();" "" ${plain})

mutation("reduce: a result is written while it is read" reduce.cuh 1 "__syncthreads();" "" ${norms})
mutation("reduce: results are read before they are there" reduce.cuh 2 "__syncthreads();" "" ${norms})
mutation("norms: sums are not kept" norms.cu 1 "store(row + column, values);" "" ${adding})
mutation("norms: sums are not rounded" norms.cu 1
  "to_float(from_float<T>(values[i] + more[i]))" "values[i] + more[i]" "*CudaRows.NormsAdd*/bf16")
mutation("norms: rows all get what is added to the first" norms.cu 1 "added + row * columns" "added" ${adding})
mutation("norms: nothing is added to a gradient" norms.cu 1
  "__fadd_rn(values[i], slopes[i])" "values[i]" ${adding})
mutation("norms: the first row is added to every gradient" norms.cu 1
  "pass.added + start + column" "pass.added + column" ${adding})
mutation("rows: matches are read before they are there" rows.cu 1 "__syncthreads();" "" ${rows})
mutation("rows: matches are written while they are read" rows.cu 2 "__syncthreads();" "" ${rows})
mutation("rows: threads do not agree" rows.cu 1 "__syncthreads_or(mine)" "static_cast<int>(mine)" ${rows})
mutation("product: tiles are read before they are there" products.cu 1 "__syncthreads();" "" ${linear})
mutation("product: tiles are written while they are read" products.cu 2 "__syncthreads();" "" ${linear})
mutation("column sums: groups are read before they are there" products.cu 3 "__syncthreads();" "" ${linear})
mutation("column sums: parts are read before they are there" products.cu 4 "__syncthreads();" "" ${linear})
mutation("column sums: too little memory between kernels" products.cu 1
  "groups * x.columns" "groups * x.columns - 1" ${linear})
mutation("column products: one factor alone" products.cu 1 "factors != nullptr" "false" "*CudaRows.Columns/f32")
mutation("squares: values behind the last are summed" elementwise.cu 1 "first + width <= size" "true" ${squares})
mutation("squares: blocks take values that others have taken" elementwise.cu 1
  "std::int64_t{gridDim.x} * kSquareThreads * width" "std::int64_t{gridDim.x} * kSquareThreads" ${squares})
mutation("squares: every thread writes the sum of its warp" elementwise.cu 1
  "reduce_block(sum, 0.0f, Add())" "reduce_warp(sum, Add())" ${squares})
mutation("squares: too little memory between kernels" elementwise.cu 2
  "blocks" "blocks - blocks / 64" ${squares})
mutation("unpack: only the first of the neighbors is checked" unpack.cu 1 "x + first + i" "x + first"
  "*CudaRows.Unpack*/f32")
mutation("mix: windows begin where the first does" rows.cu 1 "begin[row]" "begin[0]" "*CudaRows.Mixes*/f32")
mutation("adamw: gradients without their factor" elementwise.cu 1
  "g[i] *= factors.gradient;" "" "*CudaRows.AdamW/f32")
mutation("rope: turned back as forth" attention.cu 1 "inverse ? -1.0f : 1.0f" "1.0f" "*CudaRows.Rope/f32")
