#include "traces/profiler/pipeline_layout.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace dflop {
namespace {

/// Recorded bytes whose ratio to the program's deviates by more than this belong to a different message.
constexpr double kMaxRatioError = 0.01;

using Place = std::tuple<std::int32_t, std::int32_t, std::int32_t>;                // rank, stage, microbatch
using Route = std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int32_t>;  // ranks, stage, microbatch

/// A LayoutComparison compares a recorded step with the program of its plan.
class LayoutComparison {
 public:
  LayoutComparison(const Timeline& timeline, const Program& program)
      : recorded_(timeline), program_(program) {
    for (const Group& group : program.groups) {
      for (const Instruction& i : program.instructions_of(group)) {
        if (i.op == Op::forward) work_[{group.first_rank, i.stage, i.microbatch}] = i.index;
        if (is_send(i.op)) routes_[route_of(program.messages[i.index], i.stage)].push_back({i.index, i.op});
        if (enters_collective(i.op)) sums_[{group.first_rank, i.stage}].push_back(i.index);
      }
    }
  }

  /// Returns the first contradiction.
  std::optional<std::string> contradiction(bool has_work) {
    auto found = check_ranks();
    if (!found) found = check_places();
    if (!found && has_work) found = join_messages();
    return found;
  }

  /// Returns the timeline with the program's data. @pre no contradiction
  Timeline applied(bool has_work) const {
    Timeline timeline = recorded_;
    timeline.stages = stage_names(program_);
    timeline.stage_shapes = program_.stages;
    if (has_work) timeline.works = program_.works;
    if (program_.hub >= 0) timeline.hub = program_.groups[program_.hub].first_rank;
    for (GroupUsage& usage : timeline.groups) {
      for (const Group& group : program_.groups) {
        if (group.first_rank != usage.first_rank) continue;
        usage.stage = group.stage;
        usage.dp_rank = group.dp_rank;
      }
    }
    for (Span& span : timeline.spans) {
      if (has_work && is_compute(span.op)) span.work = work_.at({span.rank, span.stage, span.microbatch});
      if (has_work && (is_send(span.op) || is_receive(span.op))) {
        const auto& [message, op] = message_of_.at(span.message);
        span.bytes = program_.messages[message].bytes;
        if (op == Op::reshard_send) span.op = is_send(span.op) ? Op::reshard_send : Op::reshard_receive;
      }
    }
    set_sums(timeline);
    return timeline;
  }

 private:
  static std::set<std::int32_t> ranks_of(const auto& groups) {
    std::set<std::int32_t> ranks;
    for (const auto& group : groups) ranks.insert(group.first_rank);
    return ranks;
  }

  std::optional<std::string> check_ranks() const {
    const auto planned = ranks_of(program_.groups);
    const auto found = ranks_of(recorded_.groups);
    if (planned == found) return std::nullopt;
    return fmt::format("the plan has the ranks {}, but the traces are of {}", fmt::join(planned, ", "),
                       fmt::join(found, ", "));
  }

  /// Compares which rank computes which microbatches of which stages.
  std::optional<std::string> check_places() const {
    std::set<Place> found;
    for (const Span& span : recorded_.spans) {
      if (span.op == Op::forward) found.insert({span.rank, span.stage, span.microbatch});
    }
    for (const Place& place : found) {
      if (work_.count(place) == 0) {
        return fmt::format(
            "rank {} has ranges of stage {}, microbatch {}, which the plan does not have "
            "there",
            std::get<0>(place), std::get<1>(place), std::get<2>(place));
      }
    }
    for (const auto& [place, work] : work_) {
      if (found.count(place) == 0) {
        return fmt::format("the plan has stage {}, microbatch {} on rank {}, but its ranges do not",
                           std::get<1>(place), std::get<2>(place), std::get<0>(place));
      }
    }
    return std::nullopt;
  }

  Route route_of(const Message& message, std::int32_t sending_stage) const {
    return {program_.groups[message.source].first_rank, program_.groups[message.destination].first_rank,
            sending_stage, message.microbatch};
  }

  /// Finds the program's message for each recorded one; messages on one route are matched in order.
  std::optional<std::string> join_messages() {
    std::unordered_map<std::int32_t, const Span*> receives;
    for (const Span& span : recorded_.spans) {
      if (is_receive(span.op)) receives[span.message] = &span;
    }
    std::map<Route, std::size_t> taken;
    std::size_t planned = 0;
    for (const auto& [route, messages] : routes_) planned += messages.size();
    for (const Span& span : recorded_.spans) {
      if (!is_send(span.op)) continue;
      const Span& receive = *receives.at(span.message);
      const Route route{span.rank, receive.rank, span.stage, span.microbatch};
      const auto messages = routes_.find(route);
      std::size_t& next = taken[route];
      if (messages == routes_.end() || next == messages->second.size()) {
        return fmt::format("rank {} sends microbatch {} of stage {} to rank {}, but not in the schedule",
                           span.rank, span.microbatch, span.stage, receive.rank);
      }
      message_of_[span.message] = messages->second[next++];
      --planned;
      if (const auto found = check_bytes(span, receive)) return found;
    }
    if (planned == 0) return std::nullopt;
    return fmt::format("the schedule has {} messages that the traces lack", planned);
  }

  std::optional<std::string> check_bytes(const Span& send, const Span& receive) {
    const Bytes planned = program_.messages[message_of_.at(send.message).first].bytes;
    if (send.bytes == Bytes{} || planned == Bytes{}) return std::nullopt;
    const double ratio = static_cast<double>(send.bytes.count) / static_cast<double>(planned.count);
    const auto [first, fresh] = ratio_.try_emplace({send.stage, receive.stage}, ratio, send.microbatch);
    if (std::abs(ratio - first->second.first) <= kMaxRatioError * first->second.first) return std::nullopt;
    return fmt::format(
        "messages from stage {} to {} differ from the schedule: the message of microbatch {} has {} bytes "
        "where the schedule has {}, {:.4g} times as many, and the message of microbatch {} has {:.4g} "
        "times as many; is this the schedule of this step, and were samples padded?",
        send.stage, receive.stage, send.microbatch, send.bytes.count, planned.count, ratio,
        first->second.second, first->second.first);
  }

  /// Gives reductions the program's bytes if a rank has as many reductions of a stage as the program: bytes
  /// in other types could not be compared with other plans.
  void set_sums(Timeline& timeline) const {
    std::map<std::pair<std::int32_t, std::int32_t>, std::vector<Span*>> recorded;  // rank, stage
    for (Span& span : timeline.spans) {
      if (enters_collective(span.op)) recorded[{span.rank, span.stage}].push_back(&span);
    }
    std::map<std::int32_t, Bytes> bytes;  // by number of the sum
    for (const auto& [place, spans] : recorded) {
      const auto planned = sums_.find(place);
      if (planned == sums_.end() || planned->second.size() != spans.size()) continue;
      for (std::size_t k = 0; k < spans.size(); ++k)
        bytes[spans[k]->message] = program_.collectives[planned->second[k]].bytes;
    }
    for (Span& span : timeline.spans) {
      const auto known = bytes.find(span.message);
      if (is_collective(span.op) && known != bytes.end()) span.bytes = known->second;
    }
  }

  const Timeline& recorded_;
  const Program& program_;
  std::map<Place, std::int32_t> work_;
  std::map<Route, std::vector<std::pair<std::int32_t, Op>>> routes_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<std::int32_t>> sums_;
  std::unordered_map<std::int32_t, std::pair<std::int32_t, Op>> message_of_;  ///< by the recording's number
  std::map<std::pair<std::int32_t, std::int32_t>, std::pair<double, std::int32_t>>
      ratio_;  ///< and its microbatch
};

}  // namespace

std::optional<std::string> apply_layout(Timeline& timeline, const Program& program, bool has_work) {
  LayoutComparison layout(timeline, program);
  if (auto found = layout.contradiction(has_work)) return found;
  timeline = layout.applied(has_work);
  return std::nullopt;
}

}  // namespace dflop
