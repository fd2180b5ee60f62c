#include "experiments/studies/what_if/affected.hpp"

#include <fmt/format.h>

#include <cctype>
#include <numeric>
#include <string_view>

#include "experiments/cli/option_values.hpp"

namespace dflop {
namespace {

void require_rank(const Program& program, const std::string& option, int rank) {
  if (rank < program.ranks()) return;
  refuse_value(option, fmt::format("a rank from 0 to {}", program.ranks() - 1), fmt::format("rank={}", rank));
}

/// Returns a normalized name, so that "LLM-0" and "llm 0" are equal.
std::string plain_name(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c != ' ' && c != '-' && c != '_')
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return plain;
}

/// Finds a stage by number or name. @throws Error (usage) listing the existing stages
int find_stage(const Program& program, const std::string& option, const Affected& affected) {
  const std::vector<std::string> names = stage_names(program);
  for (std::size_t s = 0; s < names.size(); ++s) {
    const bool found = affected.label.empty() ? static_cast<std::size_t>(affected.index) == s
                                              : plain_name(affected.label) == plain_name(names[s]);
    if (found) return static_cast<int>(s);
  }
  std::string known;
  for (std::size_t s = 0; s < names.size(); ++s)
    known += fmt::format("{}{} ({})", s > 0 ? ", " : "", s, names[s]);
  refuse_value(option, "one of the stages " + known,
               "stage=" + (affected.label.empty() ? std::to_string(affected.index) : affected.label));
}

}  // namespace

std::vector<int> ranks_of(const Program& program, const std::string& option, const Affected& affected,
                          const std::optional<int>& gpu) {
  std::vector<int> ranks;
  switch (affected.kind) {
    case Affected::Kind::rank:
      require_rank(program, option, affected.index);
      return {affected.index};
    case Affected::Kind::stage: {
      const int stage = find_stage(program, option, affected);
      for (const Group& group : program.groups) {
        for (int r = 0; group.stage == stage && r < group.ranks; ++r) ranks.push_back(group.first_rank + r);
      }
      return ranks;
    }
    case Affected::Kind::gpu:
      break;
  }
  if (affected.role && !gpu) {
    refuse_value(option, "rank=R or stage=S (only 'simulate' with a plan and sweeps run each GPU in turn)",
                 fmt::format("gpu={}", to_string(*affected.role)));
  }
  const int device = affected.role ? *gpu : affected.index;
  for (int rank = 0; rank < program.ranks(); ++rank) {
    if (device_of(rank, program.shared_gpus) == device) ranks.push_back(rank);
  }
  if (ranks.empty()) refuse_value(option, "a GPU of the plan", fmt::format("gpu={}", device));
  return ranks;
}

std::vector<double> factors_of_groups(const Program& program, const std::string& option,
                                      const std::vector<Affected>& affected, const std::optional<int>& gpu,
                                      double (*worse)(double, double)) {
  std::vector<double> of_rank(program.ranks(), 1);
  for (const Affected& a : affected) {
    for (const int rank : ranks_of(program, option, a, gpu)) of_rank[rank] *= a.factor;
  }
  for (const double product : of_rank) {
    // The rounded product of 1e-3 and 1e-3 may be slightly below 1e-6.
    if (product >= 0.999 / kMaxFactor && product <= 1.001 * kMaxFactor) continue;
    refuse_value(option,
                 fmt::format("factors of a rank whose product is from {} to {}", 1 / kMaxFactor, kMaxFactor),
                 fmt::format("{:g}", product));
  }
  std::vector<double> of_group;
  for (const Group& group : program.groups) {
    const auto begin = of_rank.begin() + group.first_rank;
    of_group.push_back(std::accumulate(begin, begin + group.ranks, *begin, worse));
  }
  return of_group;
}

}  // namespace dflop
