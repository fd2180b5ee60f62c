#include "sim/conditions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.hpp"

namespace dflop {
namespace {

/// Returns duration * factor. @throws Error (usage) if that exceeds kLongestRun: several factors, each of
/// them allowed, may be too large together.
Nanoseconds times(Nanoseconds duration, double factor) {
  const Seconds changed = Seconds(duration) * factor;
  if (changed <= kLongestRun) return to_nanoseconds(changed);
  throw Error(ErrorKind::usage,
              fmt::format("conditions: expected operations of at most {:g} s, found one of {:g} s",
                          kLongestRun.count(), changed.count()));
}

/// Returns one of the two values of the Box-Muller transform (1958).
double standard_normal(Random& random) {
  const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
  return radius * std::cos(2 * std::numbers::pi * random.uniform());
}

/// Returns the factor of each group's links. Groups that share a GPU also share its links.
std::vector<double> factors_of_ports(const Program& program, const std::vector<double>& bandwidth_factor) {
  if (program.shared_gpus == 0) return bandwidth_factor;
  const std::vector<double> of_gpu = gpu_factors(program, bandwidth_factor);
  std::vector<double> factors;
  for (const Group& group : program.groups) {
    const auto first = of_gpu.begin() + program.first_device(group);
    factors.push_back(*std::min_element(first, first + group.ranks));
  }
  return factors;
}

}  // namespace

std::int32_t group_of_rank(const Program& program, std::int32_t rank) {
  const auto holds = [rank](const Group& group) {
    return rank >= group.first_rank && rank < group.first_rank + group.ranks;
  };
  const auto group = std::find_if(program.groups.begin(), program.groups.end(), holds);
  return static_cast<std::int32_t>(group - program.groups.begin());
}

void slow_down(ProgramCosts& costs, const Program& program, std::int32_t group, double factor) {
  for (std::int64_t i = program.groups[group].begin; i < program.groups[group].end; ++i) {
    costs.set_duration(i, times(costs.instruction[i], factor));
  }
}

void add_jitter(ProgramCosts& costs, double sigma, Random& random) {
  for (std::size_t i = 0; i < costs.instruction.size(); ++i) {
    const Nanoseconds duration = costs.instruction[i];
    if (duration == Nanoseconds(0)) continue;
    costs.set_duration(i, times(duration, std::exp(sigma * standard_normal(random) - sigma * sigma / 2)));
  }
}

void slow_links(ProgramCosts& costs, const Program& program, const std::vector<double>& bandwidth_factor) {
  const std::vector<double> factor = factors_of_ports(program, bandwidth_factor);
  for (std::size_t m = 0; m < program.messages.size(); ++m) {
    const Message& message = program.messages[m];
    if (stays_on_gpus(message, program)) continue;
    const double slower = std::min(factor[message.source], factor[message.destination]);
    if (slower != 1) costs.message[m] = times(costs.message[m], 1 / slower);
  }
  for (std::size_t c = 0; c < program.collectives.size(); ++c) {
    double slowest = 1e300;
    for (const std::int32_t group : program.collectives[c].groups) slowest = std::min(slowest, factor[group]);
    if (slowest != 1) costs.collective[c] = times(costs.collective[c], 1 / slowest);
  }
}

void free_communication(ProgramCosts& costs) {
  std::fill(costs.message.begin(), costs.message.end(), Nanoseconds(0));
  std::fill(costs.collective.begin(), costs.collective.end(), Nanoseconds(0));
}

}  // namespace dflop
