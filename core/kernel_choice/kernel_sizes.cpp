#include "core/kernel_choice/kernel_sizes.hpp"

#include <cstdint>
#include <string_view>

#include "core/refuse.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kSizes = std::int64_t{1} << 21;
constexpr std::int64_t kHeads = 4096;  // x 512 + key heads are a size
constexpr std::int64_t kKeyHeads = 512;

}  // namespace

void require_kernel_sizes(const ModelSpec& model, int tp, const std::string& where) {
  const auto require = [&](std::string_view module, std::string_view what, std::int64_t size,
                           std::int64_t bound) {
    if (size < bound) return;
    refuse_input(where,
                 "expected fewer than {} {} of the {} on one rank of tp {}, to choose kernels by, found {}",
                 bound, what, module, tp, size);
  };
  const auto require_module = [&](std::string_view module, const TransformerSpec& spec) {
    const std::int64_t heads = spec.heads_per_rank(tp);
    const std::int64_t key_heads = spec.kv_heads_per_rank(tp);
    require(module, "query heads", heads, kHeads);
    require(module, "key heads", key_heads, kKeyHeads);
    require(module, "columns of queries, keys and values", (heads + 2 * key_heads) * spec.head_dim, kSizes);
    require(module, "hidden columns", spec.hidden, kSizes);
    require(module, "columns of the MLP", (spec.gated_mlp ? 2 : 1) * spec.ffn_per_rank(tp), kSizes);
    require(module, "words", spec.vocabulary_per_rank(tp), kSizes);
  };
  if (model.encoder.layers > 0) {
    require_module("encoder", model.encoder);
    for (const int width : model.connector.widths) require("connector", "columns", width, kSizes);
  }
  require_module("LLM", model.llm);
}

}  // namespace dflop
