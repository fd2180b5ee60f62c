// Schedules are of several kinds: what they make small, and in which order their bins come.
#pragma once

#include <cstdint>

#include "core/names.hpp"

namespace dflop {

/// Objective says what a schedule is to make small.
enum class Objective : std::uint8_t {
  published,  ///< the largest load of any bin, encoder or LLM; each bin carries its samples' encoder work
              ///< alone
  bins,       ///< the same with the encoder work of a microbatch shared by all its bins, as it is executed
  makespan,   ///< the duration of the iteration
};

/// BinOrder says which bin becomes which microbatch of which dp rank.
enum class BinOrder : std::uint8_t {
  alike,   ///< like bins share a microbatch, the largest in the middle (solver/bins/heuristics.hpp)
  solver,  ///< bins are as the method found them, as the published system leaves them
};

template <>
inline constexpr NameTable<Objective, 3> kNames<Objective> = {
    {{Objective::published, "published"}, {Objective::bins, "bins"}, {Objective::makespan, "makespan"}}};
template <>
inline constexpr NameTable<BinOrder, 2> kNames<BinOrder> = {
    {{BinOrder::alike, "alike"}, {BinOrder::solver, "solver"}}};

}  // namespace dflop
