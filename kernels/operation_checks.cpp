#include "kernels/operation_checks.hpp"

#include <iterator>

#include "kernels/checks.hpp"

namespace dflop {
namespace {

/// What both norms share. `statistics` are the numbers kept of a row.
void require_norm(std::string_view operation, ConstMatrix y, ConstSums kept, ConstMatrix x, ConstMatrix gamma,
                  std::int64_t statistics) {
  require_shape({operation, "y"}, y, x.rows, x.columns);
  require_shape({operation, "x"}, x, y.rows, y.columns);
  require_shape({operation, "statistics"}, kept, x.rows, statistics);
  require_shape({operation, "gamma"}, gamma, 1, x.columns);
}

void require_attention(std::string_view operation, ConstMatrix out, ConstSums statistics, ConstMatrix qkv,
                       const AttentionShape& shape, Indices offsets) {
  require_heads(operation, shape);
  require_shape({operation, "qkv"}, qkv, out.rows, shape.qkv_columns());
  require_shape({operation, "out"}, out, qkv.rows, shape.out_columns());
  require_shape({operation, "statistics"}, statistics, qkv.rows, shape.heads);
  require_offsets(operation, offsets, qkv.rows);
}

}  // namespace

void check_linear(ConstMatrix y, ConstMatrix x, ConstMatrix weight, ConstMatrix bias) {
  require_shape({"linear", "weight"}, weight, y.columns, x.columns);
  require_shape({"linear", "x"}, x, y.rows, weight.columns);
  require_shape({"linear", "y"}, y, x.rows, weight.rows);
  if (bias.columns > 0) require_shape({"linear", "bias"}, bias, 1, weight.rows);
}

void check_linear_backward_input(ConstMatrix dx, ConstMatrix dy, ConstMatrix weight) {
  require_shape({"linear_backward_input", "weight"}, weight, dy.columns, dx.columns);
  require_shape({"linear_backward_input", "dy"}, dy, dx.rows, weight.rows);
  require_shape({"linear_backward_input", "dx"}, dx, dy.rows, weight.columns);
}

void check_linear_backward_weight(ConstSums dweight, ConstSums dbias, ConstMatrix dy, ConstMatrix x) {
  require_shape({"linear_backward_weight", "dweight"}, dweight, dy.columns, x.columns);
  require_shape({"linear_backward_weight", "dy"}, dy, x.rows, dweight.rows);
  require_shape({"linear_backward_weight", "x"}, x, dy.rows, dweight.columns);
  if (dbias.columns > 0) require_shape({"linear_backward_weight", "dbias"}, dbias, 1, dy.columns);
}

void check_layer_norm(ConstMatrix y, ConstSums statistics, ConstMatrix x, ConstMatrix gamma,
                      ConstMatrix beta) {
  require_norm("layer_norm", y, statistics, x, gamma, 2);
  require_shape({"layer_norm", "beta"}, beta, 1, x.columns);
}

void check_layer_norm_backward(ConstMatrix dx, ConstSums dgamma, ConstSums dbeta, ConstMatrix dy,
                               ConstMatrix x, ConstMatrix gamma, ConstSums statistics) {
  constexpr std::string_view operation = "layer_norm_backward";
  require_norm(operation, dy, statistics, x, gamma, 2);
  if (dx.data != nullptr) require_shape({operation, "dx"}, dx, x.rows, x.columns);
  if (dgamma.columns > 0) require_shape({operation, "dgamma"}, dgamma, 1, x.columns);
  if (dbeta.columns > 0) require_shape({operation, "dbeta"}, dbeta, 1, x.columns);
}

void check_rms_norm(ConstMatrix y, ConstSums statistics, ConstMatrix x, ConstMatrix gamma) {
  require_norm("rms_norm", y, statistics, x, gamma, 1);
}

void check_rms_norm_backward(ConstMatrix dx, ConstSums dgamma, ConstMatrix dy, ConstMatrix x,
                             ConstMatrix gamma, ConstSums statistics) {
  constexpr std::string_view operation = "rms_norm_backward";
  require_norm(operation, dy, statistics, x, gamma, 1);
  if (dx.data != nullptr) require_shape({operation, "dx"}, dx, x.rows, x.columns);
  if (dgamma.columns > 0) require_shape({operation, "dgamma"}, dgamma, 1, x.columns);
}

void check_gelu(ConstMatrix y, ConstMatrix x) {
  require_shape({"gelu", "y"}, y, x.rows, x.columns);
  require_shape({"gelu", "x"}, x, y.rows, y.columns);
}

void check_gelu_backward(ConstMatrix dx, ConstMatrix dy, ConstMatrix x) {
  require_shape({"gelu_backward", "dx"}, dx, x.rows, x.columns);
  require_shape({"gelu_backward", "dy"}, dy, x.rows, x.columns);
  require_shape({"gelu_backward", "x"}, x, dx.rows, dx.columns);
}

void check_swiglu(ConstMatrix y, ConstMatrix x) {
  require_shape({"swiglu", "x"}, x, y.rows, 2 * y.columns);
  require_shape({"swiglu", "y"}, y, x.rows, x.columns / 2);
}

void check_swiglu_backward(ConstMatrix dx, ConstMatrix dy, ConstMatrix x) {
  require_shape({"swiglu_backward", "dx"}, dx, x.rows, x.columns);
  require_shape({"swiglu_backward", "x"}, x, dy.rows, 2 * dy.columns);
  require_shape({"swiglu_backward", "dy"}, dy, x.rows, x.columns / 2);
}

void check_rope(ConstMatrix qkv, const AttentionShape& shape, Indices positions) {
  require_paired_heads("rope", shape);
  require_shape({"rope", "qkv"}, qkv, qkv.rows, shape.qkv_columns());
  require_count({"rope", "positions"}, positions, qkv.rows);
}

void check_attention(ConstMatrix out, ConstSums statistics, ConstMatrix qkv, const AttentionShape& shape,
                     Indices offsets) {
  require_attention("attention", out, statistics, qkv, shape, offsets);
}

void check_attention_backward(ConstMatrix dqkv, ConstMatrix dout, ConstMatrix out, ConstSums statistics,
                              ConstMatrix qkv, const AttentionShape& shape, Indices offsets) {
  require_attention("attention_backward", out, statistics, qkv, shape, offsets);
  require_shape({"attention_backward", "dqkv"}, dqkv, qkv.rows, qkv.columns);
  require_shape({"attention_backward", "dout"}, dout, out.rows, out.columns);
}

void check_embedding(ConstMatrix y, ConstMatrix table, Indices ids) {
  require_shape({"embedding", "y"}, y, std::ssize(ids.host), table.columns);
  require_shape({"embedding", "table"}, table, table.rows, y.columns);
}

void check_embedding_backward(ConstSums dtable, ConstMatrix dy, Indices ids) {
  require_shape({"embedding_backward", "dy"}, dy, std::ssize(ids.host), dtable.columns);
  require_shape({"embedding_backward", "dtable"}, dtable, dtable.rows, dy.columns);
}

void check_cross_entropy_parts(ConstSums parts, ConstMatrix logits, Indices targets) {
  require_shape({"cross_entropy_parts", "parts"}, parts, logits.rows, 3);
  require_shape({"cross_entropy_parts", "logits"}, logits, parts.rows, logits.columns);
  require_count({"cross_entropy_parts", "targets"}, targets, logits.rows);
  require_classes("cross_entropy_parts", logits);
}

void check_cross_entropy_merge(ConstSums merged, ConstSums parts, int ranks) {
  require_ranks("cross_entropy_merge", ranks);
  require_shape({"cross_entropy_merge", "parts"}, parts, ranks * merged.rows, 3);
  require_shape({"cross_entropy_merge", "merged"}, merged, merged.rows, 3);
}

void check_cross_entropy_backward(ConstMatrix logits, ConstSums loss, ConstSums merged, Indices targets) {
  require_shape({"cross_entropy_backward", "merged"}, merged, logits.rows, 3);
  require_shape({"cross_entropy_backward", "logits"}, logits, merged.rows, logits.columns);
  require_shape({"cross_entropy_backward", "loss"}, loss, 1, 1);
  require_count({"cross_entropy_backward", "targets"}, targets, logits.rows);
  require_classes("cross_entropy_backward", logits);
}

void check_pool_rows(ConstMatrix y, ConstMatrix x, Indices begin, Indices end) {
  require_shape({"pool_rows", "y"}, y, y.rows, x.columns);
  require_shape({"pool_rows", "x"}, x, x.rows, y.columns);
  require_windows("pool_rows", begin, end, y.rows, x.rows);
}

void check_pool_rows_backward(ConstMatrix dx, ConstMatrix dy, Indices begin, Indices end) {
  require_shape({"pool_rows_backward", "dx"}, dx, dx.rows, dy.columns);
  require_shape({"pool_rows_backward", "dy"}, dy, dy.rows, dx.columns);
  require_windows("pool_rows_backward", begin, end, dy.rows, dx.rows);
}

void check_gather_rows(ConstMatrix y, ConstMatrix x, Indices index) {
  require_shape({"gather_rows", "y"}, y, std::ssize(index.host), x.columns);
  require_shape({"gather_rows", "x"}, x, x.rows, y.columns);
  require_below({"gather_rows", "index"}, index, x.rows);
}

void check_scatter_add_rows(ConstMatrix y, ConstMatrix x, Indices index) {
  require_shape({"scatter_add_rows", "x"}, x, std::ssize(index.host), y.columns);
  require_shape({"scatter_add_rows", "y"}, y, y.rows, x.columns);
  require_below({"scatter_add_rows", "index"}, index, y.rows);
}

void check_add(ConstMatrix y, ConstMatrix x) {
  require_shape({"add", "x"}, x, y.rows, y.columns);
  require_shape({"add", "y"}, y, x.rows, x.columns);
}

void check_zero(ConstMatrix y) {
  require_shape({"zero", "y"}, y, y.rows, y.columns);
}

void check_round(ConstMatrix y, ConstSums x) {
  require_shape({"round", "x"}, x, y.rows, y.columns);
  require_shape({"round", "y"}, y, x.rows, x.columns);
}

void check_sums(std::string_view operation, ConstSums y) {
  require_shape({operation, "y"}, y, y.rows, y.columns);
}

void check_adamw(ConstMatrix weight, ConstSums master, ConstSums m, ConstSums v, ConstSums gradient,
                 const AdamWStep& step) {
  require_shape({"adamw", "weight"}, weight, gradient.rows, gradient.columns);
  require_shape({"adamw", "master"}, master, weight.rows, weight.columns);
  require_shape({"adamw", "m"}, m, weight.rows, weight.columns);
  require_shape({"adamw", "v"}, v, weight.rows, weight.columns);
  require_shape({"adamw", "gradient"}, gradient, weight.rows, weight.columns);
  require_step(step);
}

}  // namespace dflop
