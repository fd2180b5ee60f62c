// This header has the options that distinguish schedules: their objective, and the order of their bins.
#pragma once

#include <cstdint>

#include "core/names.hpp"

namespace dflop {

/// An Objective is the value that a schedule minimizes.
enum class Objective : std::uint8_t {
  published,  ///< the max load over all bins, of the encoder or of the LLM; a bin carries only its own
              ///< samples' encoder work
  bins,       ///< like `published`, but all bins of a microbatch share its encoder work, as in execution
  makespan,   ///< the duration of the iteration
};

/// A BinOrder says which bin becomes which microbatch of which dp rank.
enum class BinOrder : std::uint8_t {
  alike,   ///< similar bins share a microbatch, the largest in the middle (solver/bins/heuristics.hpp)
  solver,  ///< bins in the order in which the method found them, as in the published system
};

template <>
inline constexpr NameTable<Objective, 3> kNames<Objective> = {
    {{Objective::published, "published"}, {Objective::bins, "bins"}, {Objective::makespan, "makespan"}}};
template <>
inline constexpr NameTable<BinOrder, 2> kNames<BinOrder> = {
    {{BinOrder::alike, "alike"}, {BinOrder::solver, "solver"}}};

}  // namespace dflop
