#include "core/timeline.hpp"

#include <algorithm>
#include <array>

namespace dflop {

std::string_view to_string(Stream stream) {
  constexpr std::array<std::string_view, kStreams> names = {"compute", "send", "receive", "collective"};
  return names[static_cast<std::size_t>(stream)];
}

double idle_fraction(const Timeline& timeline) {
  if (timeline.makespan.count() == 0) return 0.0;
  double idle_rank_time = 0;
  double ranks = 0;
  for (const GroupUsage& group : timeline.groups) {
    idle_rank_time += static_cast<double>((group.bubble + group.wait).count()) * group.ranks;
    ranks += group.ranks;
  }
  return idle_rank_time / (ranks * static_cast<double>(timeline.makespan.count()));
}

Bytes peak_memory(const Timeline& timeline) {
  Bytes peak;
  for (const GroupUsage& group : timeline.groups) peak = std::max(peak, group.peak_memory);
  return peak;
}

std::vector<std::string> stage_names(const Program& program) {
  const bool apart = std::none_of(program.stages.begin(), program.stages.end(), [](const Stage& stage) {
    return (stage.encoder_layers > 0) == (stage.llm_layers > 0);
  });
  std::vector<std::string> names;
  int encoder_stages = 0;
  int llm_stages = 0;
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    if (!apart) {
      names.push_back("stage " + std::to_string(s));
    } else if (program.stages[s].encoder_layers > 0) {
      names.push_back("encoder " + std::to_string(encoder_stages++));
    } else {
      names.push_back("llm " + std::to_string(llm_stages++));
    }
  }
  return names;
}

}  // namespace dflop
