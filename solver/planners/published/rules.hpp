// This header has two versions of the published Data-aware 3D Parallelism Optimizer: its released code, and
// its Algorithm 1 as printed. Both see only a PublishedProfile.
#pragma once

#include <optional>

#include "core/plan.hpp"
#include "solver/planners/published/profile.hpp"

namespace dflop {

/// A PublishedChoice is the best configuration according to an optimizer.
struct PublishedChoice {
  ModulePlan encoder;  ///< layers are set neither here nor in `llm`
  ModulePlan llm;
  int microbatches = 0;
  double seconds = 0;  ///< the optimizer's own estimate of an iteration
  bool operator==(const PublishedChoice&) const = default;
};

struct PublishedChoices {
  std::optional<PublishedChoice> choice;  ///< none if nothing fits the memory
  std::int64_t candidates = 0;            ///< configurations considered
};

/// A PublishedProblem is the input of an optimizer, in addition to the profile. The optimizers consider pairs
/// of module plans that together use all GPUs, in increasing order of the encoder's GPUs, tp and pp, then of
/// the LLM's tp and pp. No module has more stages than layers.
struct PublishedProblem {
  int gpus = 0;
  int gbs = 0;
  double memory = 0;  ///< bytes of a GPU
};

/// Chooses like the released code (data_aware_optimizer.py at 60e86d8):
///   memory      a module fits if 1.25 x (model state + activations) of ceil(layers / pp) layers fits; the
///               encoder keeps E_pp + L_pp microbatches of most_tiles x L_dp / E_dp tiles, the LLM keeps
///               L_pp microbatches of most_tokens tokens
///   N_mb        is not searched: it is the smallest number with mean_tiles x GBS / (N_mb E_dp) <=
///   most_tiles,
///               mean_tokens x GBS / (N_mb L_dp) <= most_tokens and at least one item for each module's
///               microbatch; if there is none, it is the largest, floor(GBS / L_dp)
///   T           (N_mb + E_pp + L_pp - 1) x the longer time of both modules' microbatches; a module's time
///               is mean TFLOP x GBS / (N_mb dp) / (throughput at the mean microbatch x tp x pp), without
///               communication
///   acceptance  a pair is accepted if T < 1.1 x T of the last accepted pair and its N_mb is smaller
/// Pairs whose extrapolated throughput is not positive are left out. So are pairs with L_dp > GBS: for these,
/// the released code reads values left over from an earlier pair.
PublishedChoices released_choice(const PublishedProfile& profile, const PublishedProblem& problem);

/// Chooses like Algorithm 1 as printed (section 3.3): of all pairs and N_mb from 1 to GBS / L_dp, the first
/// with the smallest T at the mean shape, subject to
///   state_E + (E_pp + L_pp) x activations_E <= M,  state_L + L_pp x activations_L <= M
/// with the activations of a mean microbatch. Throughput is interpolated; beyond the profiled shapes, which
/// the paper does not cover, it stays at the last shape's value.
PublishedChoices printed_choice(const PublishedProfile& profile, const PublishedProblem& problem);

}  // namespace dflop
