// Random plans of the tiny model.
#pragma once

#include <algorithm>
#include <vector>

#include "core/program/lowering.hpp"
#include "core/support/random.hpp"

namespace dflop::testing {

inline int pick(Random& random, int most) {
  return static_cast<int>(1 + random.below(most));
}

/// Cuts `layers` at random places into `stages` parts of at least one layer.
inline std::vector<int> random_split(Random& random, int layers, int stages) {
  std::vector<int> parts(stages, 1);
  for (int left = layers - stages; left > 0; --left) ++parts[random.below(stages)];
  return parts;
}

/// Draws a divisor of `number` that is at most `most`.
inline int pick_divisor(Random& random, int number, int most) {
  int divisor = 0;
  do {
    divisor = pick(random, most);
  } while (number % divisor != 0);
  return divisor;
}

/// Draws an encoder with as many ranks as the LLM, and its share of their GPUs.
inline void share_gpus(Random& random, Plan& plan) {
  const int ranks = plan.llm.ranks();
  const int tp = pick_divisor(random, ranks, 2);
  const int pp = pick_divisor(random, ranks / tp, 3);
  plan.encoder = {tp, pp, ranks / tp / pp, random_split(random, 4, pp)};
  plan.encoder_share = pick(random, 7) / 8.0;
}

/// Draws the trained parts: all of them half of the time, otherwise at least one.
inline TrainedParts random_trained(Random& random) {
  TrainedParts trained;
  if (random.below(2) == 0) return trained;
  do {
    trained = {random.below(2) == 0, random.below(2) == 0, random.below(2) == 0, 0};
    if (!trained.llm && random.below(2) == 0) trained.lora_rank = pick(random, 8);
  } while (!trained.reaches_connector() && !trained.in_llm());
  return trained;
}

/// Draws a plan for the model of 4 encoder and 6 LLM layers.
inline Plan random_plan(Random& random, OrderKind order, Layout layout) {
  Plan plan;
  plan.layout = layout;
  plan.order = order;
  plan.placement = static_cast<RankOrder>(random.below(kNames<RankOrder>.size()));
  const OrderTraits& kind = traits(order);
  const bool chunked = kind.has_chunks();
  plan.llm.tp = pick(random, 2);
  plan.llm.pp = pick(random, chunked ? 3 : 5);
  plan.llm.dp = pick(random, 3);
  plan.chunks =
      kind.chunks == OrderTraits::kSeveralChunks ? std::max(2, pick(random, 6 / plan.llm.pp)) : kind.chunks;
  plan.microbatches = pick(random, 9);
  const int stages = plan.llm.pp * plan.chunks;
  plan.llm.layers = random_split(random, 6, stages);
  if (layout == Layout::disaggregated) {
    const int pp = pick(random, 3);
    plan.encoder = {pick(random, 2), pp, pick(random, 3), random_split(random, 4, pp)};
  } else if (layout == Layout::shared) {
    share_gpus(random, plan);
  } else if (layout == Layout::colocated) {
    const int tp = pick(random, plan.llm.tp);  // 1 or 2, so it divides the LLM's
    plan.encoder = {tp, 1, plan.llm.ranks() / tp, {4}};
  } else {
    plan.encoder = plan.llm;
    int encoder_left = 4;
    const std::vector<int> both = random_split(random, 10, stages);
    for (int s = 0; s < stages; ++s) {
      plan.encoder.layers[s] = std::min(encoder_left, both[s]);
      plan.llm.layers[s] = both[s] - plan.encoder.layers[s];
      encoder_left -= plan.encoder.layers[s];
    }
  }
  plan.gbs = plan.bins() + static_cast<int>(random.below(20));
  if (random.below(2) == 0) plan.gradient_bucket = Bytes{pick(random, 400'000)};
  if (random.below(2) == 0) plan.reshard = Reshard::hub;
  if (random.below(3) == 0) plan.share_rule = ShareRule::count;
  if (layout != Layout::uniform && random.below(3) == 0)
    plan.encoder_recomputation = static_cast<Recomputation>(random.below(kNames<Recomputation>.size()));
  return plan;
}

}  // namespace dflop::testing
