// Timelines for tests of timeline files.
#pragma once

#include <algorithm>
#include <span>

#include "core/support/random.hpp"
#include "core/timeline.hpp"

namespace dflop {

/// Two groups, ranks {0} and {1, 2}: a forward on each and the message between them. The second group waits
/// for the message from the start; it arrives at 1500 ns.
inline Timeline small_timeline() {
  Timeline timeline;
  timeline.source = "simulated";
  timeline.makespan = Nanoseconds(4500);
  timeline.stages = {"encoder 0", "llm 0"};
  const auto add_group = [&](std::int32_t first_rank, std::int32_t ranks, Nanoseconds busy,
                             Nanoseconds bubble, Nanoseconds wait) {
    GroupUsage group;
    group.first_rank = first_rank;
    group.ranks = ranks;
    group.stage = static_cast<std::int32_t>(timeline.groups.size());
    group.busy = busy;
    group.bubble = bubble;
    group.wait = wait;
    group.transfer = Nanoseconds(500);
    timeline.groups.push_back(group);
  };
  add_group(0, 1, Nanoseconds(1000), Nanoseconds(3500), Nanoseconds(0));
  add_group(1, 2, Nanoseconds(3000), Nanoseconds(1000), Nanoseconds(500));
  const auto set_memory = [](GroupUsage& group, ModelState state, Nanoseconds time, Bytes activations,
                             Bytes buffers) {
    group.model_state = state;
    group.peak_memory = state.total() + activations + buffers;
    group.peak_time = time;
    group.peak_activations = activations;
    group.peak_buffers = buffers;
  };
  set_memory(timeline.groups[0], {{60}, {120}, {120}}, Nanoseconds(0), {390}, {10});
  set_memory(timeline.groups[1], {{80}, {160}, {160}}, Nanoseconds(1500), {480}, {20});
  Stage encoder;
  encoder.encoder_layers = 2;
  encoder.connector = true;
  encoder.recomputation = Recomputation::selective;
  Stage llm;
  llm.llm_layers = 3;
  llm.tp = 2;
  llm.head = true;
  llm.zero1 = false;
  timeline.stage_shapes = {encoder, llm};
  timeline.works = {{{2, 20, 200}, {}}, {{}, {1, 30, 900}}};
  timeline.spans = {
      {0, Stream::compute, Op::forward, 0, 3, Nanoseconds(0), Nanoseconds(1000), {0}, -1, 0, 0},
      {0, Stream::send, Op::reshard_send, 0, 3, Nanoseconds(1000), Nanoseconds(500), {64}, 0, 1},
      {1, Stream::receive, Op::reshard_receive, 1, 3, Nanoseconds(0), Nanoseconds(1500), {64}, 0, 0},
      {1, Stream::compute, Op::forward, 1, 3, Nanoseconds(1500), Nanoseconds(3000), {0}, -1, 1, 1},
  };
  timeline.memory = {{0, Nanoseconds(0), {390}, {10}}, {1, Nanoseconds(1500), {480}, {20}}};
  return timeline;
}

/// Groups of one to four ranks that compute without pauses and exchange messages, some with no bytes or no
/// duration, many at the same time.
inline Timeline random_timeline(Random& random) {
  Timeline timeline;
  timeline.source = "simulated";
  timeline.stages = {"stage \"0\"", "stage 1"};
  std::int32_t next_rank = 0;
  for (int g = 0; g < 4; ++g) {
    GroupUsage group;
    group.first_rank = next_rank;
    group.ranks = static_cast<std::int32_t>(1 + random.below(4));
    group.stage = static_cast<std::int32_t>(random.below(2));
    next_rank += group.ranks;
    timeline.groups.push_back(group);
  }
  random.shuffle(std::span(timeline.groups));  // a plan's placement may put ranks anywhere
  const auto number = [&](std::uint64_t below) { return static_cast<std::int64_t>(random.below(below)); };
  const auto any_group = [&]() -> const GroupUsage& { return timeline.groups[random.below(4)]; };
  std::int32_t message = 0;
  for (int s = 0; s < 50; ++s) {
    const GroupUsage& from = any_group();
    const GroupUsage& to = any_group();
    const Nanoseconds sent(number(5000));
    const Nanoseconds flight(number(3) * number(1000));
    const Nanoseconds wait_begin(number(6000));
    const Nanoseconds waited = std::max(Nanoseconds(0), sent + flight - wait_begin);
    const auto stage = [](const GroupUsage& g) { return static_cast<std::uint16_t>(g.stage); };
    timeline.spans.push_back(
        {from.first_rank, Stream::send, Op::send, stage(from), s, sent, flight, {s}, message});
    timeline.spans.push_back(
        {to.first_rank, Stream::receive, Op::receive, stage(to), s, wait_begin, waited, {s}, message});
    ++message;
    timeline.memory.push_back({from.first_rank, sent, {number(1'000'000)}, {number(1'000)}});
    timeline.makespan = std::max({timeline.makespan, sent + flight, wait_begin + waited});
  }
  for (const GroupUsage& group : timeline.groups) {
    Nanoseconds free{0};
    for (int s = 0; s < 10; ++s) {
      const Nanoseconds duration(number(300));
      timeline.spans.push_back({group.first_rank,
                                Stream::compute,
                                Op::backward,
                                static_cast<std::uint16_t>(group.stage),
                                s,
                                free,
                                duration,
                                {0},
                                -1});
      free += duration;
    }
  }
  for (GroupUsage& group : timeline.groups) group.busy = Nanoseconds(number(timeline.makespan.count() + 1));
  return timeline;
}

}  // namespace dflop
