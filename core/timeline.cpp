#include "core/timeline.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace dflop {
namespace {

/// Returns the first group that runs each stage; a unique number for a stage that no group runs.
std::vector<std::size_t> first_group_of_stages(const Program& program) {
  std::vector<std::size_t> groups(program.stages.size());
  for (std::size_t s = 0; s < groups.size(); ++s) groups[s] = program.groups.size() + s;
  for (std::size_t g = program.groups.size(); g-- > 0;) {
    // The other dp ranks of a pipeline rank run the same stages.
    if (program.groups[g].dp_rank != 0) continue;
    groups[program.groups[g].stage] = g;
    for (const Instruction& instruction : program.instructions_of(program.groups[g]))
      groups[instruction.stage] = g;
  }
  return groups;
}

}  // namespace

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

bool has_pieces_alone(const Timeline& timeline) {
  return !timeline.spans.empty() && std::ranges::none_of(timeline.spans, [](const Span& span) {
    return is_compute(span.op) || is_send(span.op) || is_receive(span.op);
  });
}

bool begin_apart(const Timeline& timeline) {
  return std::ranges::any_of(timeline.groups,
                             [](const GroupUsage& group) { return group.begin > Nanoseconds(0); });
}

void shorten_to(Nanoseconds makespan, Timeline& timeline) {
  timeline.makespan = makespan;
  for (GroupUsage& group : timeline.groups) {
    group.busy = std::min(group.busy, makespan);
    group.wait = std::min(group.wait, makespan - group.busy);
    group.transfer = std::min(group.transfer, makespan);
    group.peak_time = std::min(group.peak_time, makespan);
    group.bubble = makespan - group.busy - group.wait;
  }
}

std::vector<Bytes> gpu_memory(const Timeline& timeline) {
  std::vector<Bytes> memory;
  for (const GroupUsage& group : timeline.groups) {
    const int first = device_of(group.first_rank, timeline.shared_gpus);
    memory.resize(std::max(memory.size(), static_cast<std::size_t>(first + group.ranks)));
    for (int r = 0; r < group.ranks; ++r) memory[first + r] += group.peak_memory;
  }
  return memory;
}

Bytes most_of(const std::vector<Bytes>& memory, const Timeline& timeline, const GroupUsage& group) {
  const auto first = memory.begin() + device_of(group.first_rank, timeline.shared_gpus);
  return *std::max_element(first, first + group.ranks);
}

Bytes peak_memory(const Timeline& timeline) {
  Bytes peak;
  if (timeline.shared_gpus > 0) {
    for (const Bytes bytes : gpu_memory(timeline)) peak = std::max(peak, bytes);
    return peak;
  }
  for (const GroupUsage& group : timeline.groups) peak = std::max(peak, group.peak_memory);
  return peak;
}

std::vector<std::string> stage_names(const Program& program) {
  const bool apart = std::none_of(program.stages.begin(), program.stages.end(), [](const Stage& stage) {
    return (stage.encoder_layers > 0) == (stage.llm_layers > 0);
  });
  const auto kind_of = [&](std::size_t stage) {
    if (!apart) return "stage ";
    return program.stages[stage].encoder_layers > 0 ? "encoder " : "llm ";
  };
  const std::vector<std::size_t> owners = first_group_of_stages(program);
  std::map<std::string_view, int> ranks;                                        // per kind
  std::map<std::pair<std::string_view, std::size_t>, std::pair<int, int>> own;  // rank and chunks of an owner
  std::vector<std::string> names;
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    const std::string_view kind = kind_of(s);
    const auto [place, is_new] = own.try_emplace({kind, owners[s]}, 0, 0);
    auto& [rank, chunks] = place->second;
    if (is_new) rank = ranks[kind]++;
    names.push_back(std::string(kind) + std::to_string(rank));
    if (chunks > 0) names.back() += "." + std::to_string(chunks);
    ++chunks;
  }
  return names;
}

}  // namespace dflop
