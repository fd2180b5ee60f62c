// This file selects the ranks that a condition affects.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/program.hpp"
#include "experiments/studies/what_if/what_if.hpp"

namespace dflop {

/// The max factor of a condition; the min factor is 1 / kMaxFactor.
inline constexpr double kMaxFactor = 1e6;

/// An Affected selects a rank, all ranks of a stage, or the ranks of a GPU (two in a shared plan), and has
/// the condition's factor for them.
struct Affected {
  enum class Kind : std::uint8_t { rank, stage, gpu };

  Kind kind = Kind::rank;
  int index = 0;
  std::string label = {};            ///< label of a stage, instead of its index
  std::optional<GpuRole> role = {};  ///< role of a GPU, instead of its index
  double factor = 1;
};

/// Returns the affected ranks. If `affected` names a role, `gpu` is the GPU that has this role in the current
/// run.
/// @throws Error (usage) for a rank, stage or GPU that the program does not have, and for a role if `gpu` is
/// empty
std::vector<int> ranks_of(const Program& program, const std::string& option, const Affected& affected,
                          const std::optional<int>& gpu);

/// Returns for each group the worst factor of its ranks, because the worst rank determines the group's speed.
/// `worse` returns the worse of two factors. If several conditions affect a rank, their factors multiply.
/// Products are bounded, so that they cannot underflow or overflow.
/// @throws Error (usage) naming the `option` for a product that is too small or too large; what ranks_of()
/// throws
std::vector<double> factors_of_groups(const Program& program, const std::string& option,
                                      const std::vector<Affected>& affected, const std::optional<int>& gpu,
                                      double (*worse)(double, double));

}  // namespace dflop
