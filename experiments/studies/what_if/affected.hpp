// An Affected selects the ranks on which a condition acts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/program.hpp"
#include "experiments/studies/what_if/what_if.hpp"

namespace dflop {

/// The max factor of a condition; the min factor is its inverse.
inline constexpr double kMaxFactor = 1e6;

/// An Affected is a rank, all ranks of a stage, or a GPU with its rank (two ranks in a shared plan); and a
/// factor.
struct Affected {
  enum class Kind : std::uint8_t { rank, stage, gpu };

  Kind kind = Kind::rank;
  int index = 0;
  std::string label = {};            ///< of a stage, instead of its index
  std::optional<GpuRole> role = {};  ///< of a GPU, instead of its index
  double factor = 1;
};

/// Returns the affected ranks. `gpu` is the GPU in turn if a role is named.
/// @throws Error (usage) for a rank, stage or GPU that the program does not have, and for a role without a
/// GPU in turn
std::vector<int> ranks_of(const Program& program, const std::string& option, const Affected& affected,
                          const std::optional<int>& gpu);

/// Returns for each group the worst factor of its ranks, which sets its pace; `worse` chooses between two.
/// Factors of one rank multiply. Products are bounded, so that they cannot underflow or overflow.
/// @throws Error (usage) naming the `option`, as ranks_of() and for a product that is too small or too large
std::vector<double> factors_of_groups(const Program& program, const std::string& option,
                                      const std::vector<Affected>& affected, const std::optional<int>& gpu,
                                      double (*worse)(double, double));

}  // namespace dflop
