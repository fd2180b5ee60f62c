// This file computes how the GPUs of a cluster spend an iteration, to compare plans.
#pragma once

#include <array>
#include <cstdint>

#include "core/names.hpp"
#include "experiments/studies/target.hpp"
#include "traces/files/schedule.hpp"

namespace dflop {

/// A TimeUse is a way in which a GPU spends time.
enum class TimeUse : std::uint8_t {
  compute,               ///< forward, backward and optimizer, without recomputation and tensor_communication
  recomputation,         ///< includes the tensor-parallel communication of recomputation
  tensor_communication,  ///< exposed all-reduces of tensor parallelism
  imbalance,             ///< idle time that would disappear if microbatches and dp ranks had equal work
  bubbles,  ///< other idle time without an awaited transfer: the pipeline fills, drains or is uneven
  exposed_communication,  ///< idle time while an awaited message or gradient reduction is in flight
  unused_gpus,            ///< time of the cluster's GPUs that have no rank of the plan
};

template <>
inline constexpr NameTable<TimeUse, 7> kNames<TimeUse> = {
    {{TimeUse::compute, "compute"},
     {TimeUse::recomputation, "recomputation"},
     {TimeUse::tensor_communication, "tensor-parallel communication"},
     {TimeUse::imbalance, "idle time from imbalance"},
     {TimeUse::bubbles, "pipeline bubbles"},
     {TimeUse::exposed_communication, "waiting for messages and gradient reductions"},
     {TimeUse::unused_gpus, "unused GPUs"}}};

/// A TimeBreakdown has the time for each use, averaged over the GPUs of the cluster and over iterations. The
/// times add up to the mean iteration time.
struct TimeBreakdown {
  std::array<Seconds, kNames<TimeUse>.size()> parts{};

  Seconds& operator[](TimeUse use) { return parts[static_cast<std::size_t>(use)]; }
  Seconds operator[](TimeUse use) const { return parts[static_cast<std::size_t>(use)]; }
  Seconds sum() const;
};

/// Returns the time breakdown of a schedule. It simulates the schedule with and without imbalance, and prices
/// it with and without recomputation and tensor-parallel communication.
/// @pre the target's costs are analytic, all iterations are feasible, and there is at least one
TimeBreakdown time_breakdown(const Target& target, const Plan& plan, const ScheduleFile& schedule);

}  // namespace dflop
