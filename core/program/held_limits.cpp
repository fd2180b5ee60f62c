#include "core/program/held_limits.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

namespace dflop {

namespace {

/// A GroupMemory computes the memory of a group with one stage.
class GroupMemory {
 public:
  GroupMemory(const Program& program, const ProgramCosts& costs, std::size_t group, int microbatches)
      : state_(costs.model_state[group].total()),
        kept_before_(microbatches + 1),
        forward_workspace_(program.microbatches),
        backward_workspace_(program.microbatches) {
    std::vector<Bytes> activation(program.microbatches);
    for (std::int64_t i = program.groups[group].begin; i < program.groups[group].end; ++i) {
      const Instruction& instruction = program.instructions[i];
      if (!is_compute(instruction.op)) continue;
      const bool forward = instruction.op == Op::forward;
      if (forward) activation[instruction.microbatch] = costs.activation_of(i);
      Bytes& workspace = (forward ? forward_workspace_ : backward_workspace_)[instruction.microbatch];
      workspace = std::max(workspace, costs.workspace_of(i));
    }
    for (int j = 0; j < microbatches; ++j) {
      kept_before_[j + 1] = kept_before_[j] + activation[j % program.microbatches];
    }
  }

  /// Returns the peak memory of the group if it holds up to `held` microbatches at once in 1f1b order: during
  /// forward j the ones up to j, and during backward j the ones from j on.
  Bytes peak(int held) const {
    Bytes most;
    for (int j = 0; j < microbatches(); ++j) {
      const std::size_t like = static_cast<std::size_t>(j) % forward_workspace_.size();
      const Bytes forward = kept_before_[j + 1] - kept_before_[std::max(0, j + 1 - held)];
      const Bytes backward = kept_before_[std::min(microbatches(), j + held)] - kept_before_[j];
      most = std::max({most, forward + forward_workspace_[like], backward + backward_workspace_[like]});
    }
    return state_ + most;
  }

  /// Returns how many microbatches the group can hold within a limit; at least 1.
  int most_held(Bytes limit) const {
    int fits = 1;
    int too_many = microbatches() + 1;
    while (too_many - fits > 1) {
      const int held = fits + (too_many - fits) / 2;
      (peak(held) <= limit ? fits : too_many) = held;
    }
    return fits;
  }

 private:
  int microbatches() const { return static_cast<int>(kept_before_.size()) - 1; }

  Bytes state_;
  std::vector<Bytes> kept_before_;  ///< per microbatch: kept by the forwards of all earlier microbatches
  std::vector<Bytes> forward_workspace_;
  std::vector<Bytes> backward_workspace_;
};

int pipeline_ranks(const Program& program) {
  return std::ranges::max(program.groups, {}, &Group::stage).stage + 1;
}

/// ModuleMemory has one value for the encoder and one for the LLM of a shared plan.
using ModuleMemory = std::array<Bytes, 2>;

std::size_t module_of(const Program& program, std::size_t group) {
  return program.groups[group].first_rank < program.shared_gpus ? 0 : 1;
}

/// Returns the memory that the ranks of each module may use. Ranks that share GPUs do not know how many
/// microbatches the other holds. So each gets what its fullest rank needs for 1f1b, if both then fit, or for
/// no microbatch, plus half of the rest.
ModuleMemory module_limits(const Program& program, const std::vector<GroupMemory>& groups, int microbatches,
                           Bytes usable) {
  if (program.shared_gpus == 0) return {usable, usable};
  const int ranks = pipeline_ranks(program);
  const auto needs = [&](bool of_1f1b) {
    ModuleMemory memory;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const int held = of_1f1b ? std::min(microbatches, ranks - program.groups[g].stage) : 0;
      Bytes& most = memory[module_of(program, g)];
      most = std::max(most, groups[g].peak(held));
    }
    return memory;
  };
  ModuleMemory limits = needs(true);
  if (limits[0] + limits[1] > usable) limits = needs(false);
  const Bytes half{(usable - limits[0] - limits[1]).count / 2};
  return {limits[0] + half, limits[1] + half};
}

}  // namespace

std::vector<int> held_limits(const Program& program, const ProgramCosts& costs, int microbatches,
                             Bytes usable_memory) {
  std::vector<GroupMemory> groups;
  for (std::size_t g = 0; g < program.groups.size(); ++g) {
    groups.emplace_back(program, costs, g, microbatches);
  }
  const ModuleMemory module_limit = module_limits(program, groups, microbatches, usable_memory);
  std::vector<int> limits(pipeline_ranks(program), microbatches);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    int& limit = limits[program.groups[g].stage];
    limit = std::min(limit, groups[g].most_held(module_limit[module_of(program, g)]));
  }
  return limits;
}

}  // namespace dflop
