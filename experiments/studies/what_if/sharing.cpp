#include "experiments/studies/what_if/sharing.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "experiments/cli/say.hpp"

namespace dflop {
namespace {

using Interval = std::pair<Nanoseconds, Nanoseconds>;

/// Returns the total overlap of two lists of intervals. Each list is ascending and has no overlaps itself.
Nanoseconds common_time(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  Nanoseconds sum{0};
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    sum += std::max(Nanoseconds(0), std::min(a[i].second, b[j].second) - std::max(a[i].first, b[j].first));
    a[i].second < b[j].second ? ++i : ++j;
  }
  return sum;
}

/// Returns the number of GPUs that two groups have in common.
int common_gpus(const Program& program, const Group& a, const Group& b) {
  const int first = std::max(program.first_device(a), program.first_device(b));
  const int end = std::min(program.first_device(a) + a.ranks, program.first_device(b) + b.ranks);
  return std::max(0, end - first);
}

/// ModuleTimes are sums over GPUs.
struct ModuleTimes {
  double busy_s = 0;
  double longer_s = 0;
};

}  // namespace

Table explain_sharing(const Program& program, const ProgramCosts& costs, const Timeline& timeline,
                      const Conditions& conditions) {
  Table table;
  table.columns = {{"module", "module"},           {"busy_s", "compute s", 3},
                   {"beside_s", "overlap s", 3},   {"beside", "of it %", 1, 100},
                   {"longer_s", "longer by s", 3}, {"longer", "of it %", 1, 100}};
  if (program.shared_gpus == 0) return table;
  std::map<std::int32_t, std::size_t> group_of;  // by first rank
  for (std::size_t g = 0; g < program.groups.size(); ++g) group_of[program.groups[g].first_rank] = g;
  std::vector<std::vector<Interval>> runs(program.groups.size());
  std::vector<ComputePiece> pieces;
  std::array<ModuleTimes, 2> modules;
  const auto module_of = [&](const Group& group) { return group.first_rank < program.shared_gpus ? 0 : 1; };
  for (const Span& span : timeline.spans) {
    if (span.stream != Stream::compute) continue;
    const std::size_t g = group_of.at(span.rank);
    const Group& group = program.groups[g];
    const Nanoseconds end = span.start + span.duration;
    const auto index = static_cast<std::int32_t>(g);
    const Nanoseconds ran = span.duration - paused_time(conditions, index, span.start, end);
    pieces.clear();
    run_compute(conditions, index, span.start, ran, &pieces);
    for (const ComputePiece& piece : pieces) {
      if (!piece.paused) runs[g].emplace_back(piece.start, piece.end);
    }
    ModuleTimes& times = modules[module_of(group)];
    times.busy_s += Seconds(ran).count() * group.ranks;
    times.longer_s += Seconds(ran - costs.instruction[group.begin + span.position]).count() * group.ranks;
  }
  double beside_s = 0;
  for (std::size_t a = 0; a < runs.size(); ++a) {
    for (std::size_t b = 0; b < runs.size(); ++b) {
      if (module_of(program.groups[a]) != 0 || module_of(program.groups[b]) != 1) continue;
      const int gpus = common_gpus(program, program.groups[a], program.groups[b]);
      if (gpus > 0) beside_s += gpus * Seconds(common_time(runs[a], runs[b])).count();
    }
  }
  const double gpus = program.shared_gpus;
  const auto part = [](double of, double all) { return all > 0 ? of / all : 0; };
  for (const std::size_t m : {0, 1}) {
    const ModuleTimes& times = modules[m];
    table.rows.push_back({std::string(m == 0 ? "encoder" : "llm"), times.busy_s / gpus, beside_s / gpus,
                          part(beside_s, times.busy_s), times.longer_s / gpus,
                          part(times.longer_s, times.busy_s)});
  }
  return table;
}

std::string sharing_text(const Table& sharing) {
  if (sharing.rows.empty()) return "";
  return section("overlap of the modules on shared GPUs, mean GPU", sharing);
}

}  // namespace dflop
