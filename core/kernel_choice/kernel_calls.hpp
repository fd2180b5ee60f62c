// These functions list the kernel calls that a part of a model makes, given the model, the tp split and the
// work. The cost model prices these calls, and tuning runs before training measure their variants. A test
// checks that live steps make these calls.
#pragma once

#include <cstdint>
#include <vector>

#include "core/kernel_choice/kernel_key.hpp"
#include "core/measured/profile.hpp"
#include "core/model.hpp"
#include "core/program.hpp"
#include "core/sample.hpp"

namespace dflop {

/// A token of a preset's made-up images has this many values: 4x4 pixels of three colors.
inline constexpr int kPatchValues = 48;

/// AttentionHeads describe the attention heads that one rank computes.
struct AttentionHeads {
  int heads = 1;
  int kv_heads = 1;
  int head_dim = 1;
  bool causal = false;
};

/// Returns a call of attention or its backward over this many tokens. `pairs` is the sum of the squared
/// lengths, as Workload counts them. The caller sets the precision. @pre kv_heads < 512, because
/// KernelCall::outer packs both numbers of heads
constexpr KernelCall attention_call(KernelOperation operation, const AttentionHeads& heads,
                                    std::int64_t tokens, std::int64_t pairs) {
  return {.operation = operation,
          .inner = heads.head_dim,
          .outer = heads.heads * 512 + heads.kv_heads,
          .causal = heads.causal,
          .tokens = tokens,
          .length = tokens == 0 ? 0 : (pairs + tokens / 2) / tokens};
}

/// A KernelPass is the pass that a unit's call belongs to. `recompute` is the part of the forward that is
/// repeated before the unit's backward_input.
enum class KernelPass : std::uint8_t { forward, backward_input, backward_weight, recompute };
inline constexpr std::size_t kKernelPasses = 4;

/// A UnitCall is one kernel call of a unit (ProfileUnit). A unit that occurs in every layer lists the calls
/// of one layer.
struct UnitCall {
  KernelPass pass = KernelPass::forward;
  KernelCall call;
};

/// Returns the calls, of operations that have variants, that one rank makes in all passes of a unit; none
/// without work. `work` is the encoder's for its units and the connector, otherwise the LLM's. The precision
/// is not set. If tp does not divide a width or the vocabulary, these are the calls of a rank with one more
/// column than the others, whose calls then differ. @pre tp divides the heads
std::vector<UnitCall> unit_kernel_calls(const ModelSpec& model, ProfileUnit unit, const TpMode& mode,
                                        const Workload& work);

/// A StageCall is a call that a stage makes `times` times in one op.
struct StageCall {
  KernelCall call;
  std::int64_t times = 0;
};

/// Returns the calls of one rank of a stage in a forward, backward, backward_input or backward_weight.
/// `patches`: whether the stage takes pixels. @pre tp divides the heads
std::vector<StageCall> stage_kernel_calls(const ModelSpec& model, const Stage& stage, bool patches, Op op,
                                          const Work& work);

}  // namespace dflop
