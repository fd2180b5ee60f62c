// How the engine's groups take turns where cores are fewer than ranks.
#include <algorithm>

#include "sim/engine_run.hpp"
#include "sim/late_entry.hpp"

namespace dflop {

/// Without a limit, or where all ranks have cores at once, nobody asks for any.
void Engine::set_up_cores(int cores) {
  timeline_.cores = cores;
  if (cores == 0 || cores >= program_.ranks()) return;
  cores_.emplace(cores);
  for (const Group& group : program_.groups) cores_->add_group(group.ranks);
}

/// The group has compute to do. Cores are granted when all that happens at this instant has, so that who asks
/// at one instant is served by its number and not by the order of events.
void Engine::ask_for_cores(std::int32_t group) {
  groups_[group].waiting_since = now_;
  asking_.push_back(group);
}

/// Whether nothing is left to happen at this instant.
bool Engine::instant_ends() {
  if (!queue_.empty() && queue_.next_time() <= now_) return false;
  return !flows_ || flows_->idle() || flows_->next_time() > now_;
}

void Engine::grant_cores() {
  std::sort(asking_.begin(), asking_.end());
  for (const std::int32_t group : asking_) cores_->ask(group);
  asking_.clear();
  while (const auto group = cores_->admit()) {
    enter_with_compute(*group);
    start_compute(*group, program_.instructions[groups_[*group].next]);
  }
}

/// What was to be entered while the compute runs that begins now.
void Engine::enter_with_compute(std::int32_t group) {
  const std::int64_t compute = groups_[group].next;
  std::int64_t start = compute;
  while (start > program_.groups[group].begin &&
         program_.instructions[start - 1].op == Op::all_reduce_start) {
    --start;
  }
  for (; start < compute; ++start) {
    const Nanoseconds delay =
        entry_delay(program_.collectives[program_.instructions[start].index], costs_.instruction[compute]);
    if (delay > Nanoseconds(0)) enter_after(group, start, delay);
  }
}

}  // namespace dflop
