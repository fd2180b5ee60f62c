// The calls of kernels that a part of a model makes follow from the model, how tp ranks share it, and the
// work: what a simulator prices, what is tuned before a run, and what a live step's guide is asked.
#pragma once

#include <cstdint>
#include <vector>

#include "core/kernel_choice/kernel_key.hpp"
#include "core/measured/profile.hpp"
#include "core/model.hpp"
#include "core/program.hpp"
#include "core/sample.hpp"

namespace dflop {

/// Live encoders see so many values of one token, as 4x4 pixels of three colours.
inline constexpr int kPatchValues = 48;

/// AttentionHeads are those that one rank computes.
struct AttentionHeads {
  int heads = 1;
  int kv_heads = 1;
  int head_dim = 1;
  bool causal = false;
};

/// Returns what is known of a call of attention or its backward over so many tokens; pairs: the sum of the
/// squared lengths, as Workload counts them. The precision stays open.
constexpr KernelCall attention_call(KernelOperation operation, const AttentionHeads& heads,
                                    std::int64_t tokens, std::int64_t pairs) {
  return {.operation = operation,
          .inner = heads.head_dim,
          .outer = heads.heads * 512 + heads.kv_heads,
          .causal = heads.causal,
          .tokens = tokens,
          .length = tokens == 0 ? 0 : (pairs + tokens / 2) / tokens};
}

/// A KernelPass is what a unit's call is part of; `recompute` is what its forward does once more before its
/// backward_input.
enum class KernelPass : std::uint8_t { forward, backward_input, backward_weight, recompute };
inline constexpr std::size_t kKernelPasses = 4;

/// A UnitCall is one call of one unit, of a layer where the unit is part of one.
struct UnitCall {
  KernelPass pass = KernelPass::forward;
  KernelCall call;
};

/// Returns the calls of operations with variants that one rank makes in all passes of a unit; none without
/// work. `work` is the encoder's of its units and the connector, else the LLM's. The precision stays open.
/// Where tp does not divide a width or the vocabulary they are of a rank that has one more than the others,
/// which then make calls of their own. @pre tp divides the heads
std::vector<UnitCall> unit_kernel_calls(const ModelSpec& model, ProfileUnit unit, const TpMode& mode,
                                        const Workload& work);

/// A StageCall is a call that a stage makes so many times in one op.
struct StageCall {
  KernelCall call;
  std::int64_t times = 0;
};

/// Returns what one rank of a stage calls in a forward, backward, backward_input or backward_weight.
/// `patches`: whether pixels come in there. @pre tp divides the heads
std::vector<StageCall> stage_kernel_calls(const ModelSpec& model, const Stage& stage, bool patches, Op op,
                                          const Work& work);

}  // namespace dflop
