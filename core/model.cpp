#include "core/model.hpp"

namespace dflop {

std::int64_t TransformerSpec::layer_parameters(int tp) const {
  const std::int64_t query_width = heads_per_rank(tp) * head_dim;
  const std::int64_t kv_width = kv_heads_per_rank(tp) * head_dim;
  const std::int64_t mlp_matrices = gated_mlp ? 3 : 2;
  return hidden * (2 * query_width + 2 * kv_width + mlp_matrices * ffn_per_rank(tp));
}

std::int64_t ConnectorSpec::parameters(int tp) const {
  std::int64_t sum = 0;
  for (std::size_t i = 1; i < widths.size(); ++i) {
    sum += round_up(std::int64_t{widths[i - 1]} * widths[i], tp) / tp;
  }
  return sum;
}

}  // namespace dflop
