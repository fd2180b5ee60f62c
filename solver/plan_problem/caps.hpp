// What the bins of a plan may hold.
#pragma once

#include <vector>

#include "core/scheduler.hpp"
#include "solver/bins.hpp"

namespace dflop {

/// Caps with the weights that they refer to.
struct CapSet {
  std::vector<Cap> caps;
  std::vector<std::vector<double>> weights;
};

/// The caps of a request: its token cap; and where it names a memory, that the activations of the
/// microbatches which a stage holds at once under the plan's order fit beside model state and workspace.
///
/// Activations add up over samples to within rounding to tp shares. The workspace grows with the largest
/// microbatch, so tokens of a bin and encoder tokens of a microbatch are capped as well, at 1.5 x their mean
/// or the largest sample, and memory is kept free for that. A rank with several stages has one cap for
/// all, over the microbatches that the fullest of them holds, which is only near: it is never below what a
/// balanced schedule needs. An encoder's dp ranks hold equal parts of a microbatch and up to one sequence
/// more, as lower() cuts it. The order is that of equal steps; where an order depends on durations, or the
/// parts of split backwards keep what recomputation has brought back, a batch may hold more, which the
/// simulated peak shows.
CapSet plan_caps(const ScheduleRequest& request);

}  // namespace dflop
