#include "traces/files/timeline.hpp"

#include <fmt/compile.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "core/error.hpp"
#include "traces/text/json_writer.hpp"

namespace dflop {
namespace {

/// A Microseconds prints nanoseconds as the format's microseconds, exactly.
struct Microseconds {
  std::int64_t nanoseconds;
};

}  // namespace
}  // namespace dflop

template <>
struct fmt::formatter<dflop::Microseconds> {
  constexpr auto parse(format_parse_context& context) { return context.begin(); }

  template <typename Context>
  auto format(dflop::Microseconds time, Context& context) const {
    return format_to(context.out(), FMT_COMPILE("{}.{:03}"), time.nanoseconds / 1000,
                     time.nanoseconds % 1000);
  }
};

namespace dflop {
namespace {

/// A Slice is the place of a drawn span: one of the parallel lanes of its stream, so that slices of one track
/// never overlap.
struct Slice {
  int lane = 0;
  std::int64_t start = 0;
  std::int64_t end = 0;
};

bool carries_message(const Span& span) {
  return span.message >= 0 && (is_send(span.op) || is_receive(span.op));
}

std::string_view display_name(Op op) {
  if (op == Op::reshard_send || op == Op::reshard_receive) return "reshard";
  return to_string(op);
}

/// A TracedIteration is the state of one iteration while it is written.
struct TracedIteration {
  const Timeline& timeline;
  std::int64_t number;
  std::int64_t offset;                                           ///< begin, in ns
  std::unordered_map<std::int32_t, const GroupUsage*> group_of;  ///< by first rank
  std::vector<Slice> slices;                                     ///< per span
};

/// Both ends of a message need slices of positive length, and its arrow may not go back in time, so the
/// receive's slice is extended beyond the begin of the send.
std::vector<Slice> place_messages(const Timeline& timeline) {
  std::unordered_map<std::int32_t, std::int64_t> sent;
  for (const Span& span : timeline.spans) {
    if (carries_message(span) && is_send(span.op)) sent[span.message] = span.start.count();
  }
  std::vector<Slice> slices;
  slices.reserve(timeline.spans.size());
  for (const Span& span : timeline.spans) {
    const std::int64_t start = span.start.count();
    std::int64_t end = start + span.duration.count();
    if (carries_message(span)) {
      end = std::max(end, start + 1);
      const auto send = is_receive(span.op) ? sent.find(span.message) : sent.end();
      if (send != sent.end()) end = std::max(end, send->second + 1);
    }
    slices.push_back({0, start, end});
  }
  return slices;
}

/// Assigns each slice the first free lane of its rank and stream.
void assign_lanes(const Timeline& timeline, std::vector<Slice>& slices) {
  std::vector<std::size_t> order(slices.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return slices[a].start < slices[b].start; });
  std::unordered_map<std::int64_t, std::vector<std::int64_t>>
      lanes_of;  // by rank and stream: when each lane is free
  for (const std::size_t i : order) {
    const Span& span = timeline.spans[i];
    auto& lanes = lanes_of[std::int64_t{span.rank} * kStreams + static_cast<int>(span.stream)];
    auto lane =
        std::find_if(lanes.begin(), lanes.end(), [&](std::int64_t free) { return free <= slices[i].start; });
    if (lane == lanes.end()) lane = lanes.insert(lanes.end(), 0);
    *lane = slices[i].end;
    slices[i].lane = static_cast<int>(lane - lanes.begin());
  }
}

class TraceWriter {
 public:
  /// `shared_gpus`: as Timeline::shared_gpus of all iterations.
  TraceWriter(bool all_ranks, int shared_gpus) : all_ranks_(all_ranks), shared_gpus_(shared_gpus) {
    add(FMT_COMPILE("{{\"displayTimeUnit\":\"ns\",\"traceEvents\":["));
  }

  void write(const TracedIteration& iteration) {
    for (std::size_t i = 0; i < iteration.slices.size(); ++i) write_span(iteration, i);
    write_flows(iteration);
    for (const MemoryPoint& point : iteration.timeline.memory) write_memory(iteration, point);
  }

  void write_path(const PathSlice& slice, std::int64_t offset) {
    std::string name;
    append_json_string(name, slice.name);
    next_event();
    add(FMT_COMPILE("{{\"ph\":\"X\",\"name\":{},\"cat\":\"critical path\",\"pid\":{},\"tid\":{},\"ts\":{},"
                    "\"dur\":{},\"args\":{{\"iteration\":{}}}}}"),
        name, kPathProcess, kPathProcess, Microseconds{offset + slice.start.count()},
        Microseconds{slice.duration.count()}, slice.iteration);
    has_path_ = true;
  }

  /// Adds the names of processes and tracks.
  std::string finish(std::span<const Timeline> iterations) {
    write_process_names(iterations);
    for (const auto& [track, tid] : tracks_) {
      const auto& [pid, rank, stream, lane] = track;
      const std::string lane_name = lane > 0 ? fmt::format(" {}", lane + 1) : "";
      const auto stage = stage_of_rank_.find(rank);
      const std::string of = stage == stage_of_rank_.end() ? "" : stage->second + " ";
      std::string name;
      append_json_string(name, fmt::format("{}rank {} {}{}", of, rank, to_string(stream), lane_name));
      metadata(pid, tid, "thread_name", name, "name");
      const std::int64_t order = (std::int64_t{rank} * kStreams + static_cast<int>(stream)) * kLanes + lane;
      metadata(pid, tid, "thread_sort_index", std::to_string(order), "sort_index");
    }
    add(FMT_COMPILE("\n]}}\n"));
    return fmt::to_string(text_);
  }

 private:
  static constexpr std::int64_t kLanes = 1 << 10;  // only spreads the sort indices
  static constexpr int kPathProcess = 1 << 30;     // also as a thread; beyond the numbers of stages and ranks

  template <typename Format, typename... Arguments>
  void add(const Format& format, const Arguments&... arguments) {
    fmt::format_to(std::back_inserter(text_), format, arguments...);
  }

  void next_event() {
    add(FMT_COMPILE("{}"), first_ ? "\n" : ",\n");
    first_ = false;
  }

  int drawn_ranks(const GroupUsage& group) const { return all_ranks_ ? group.ranks : 1; }

  /// Returns the process of a rank: its stage or, on shared GPUs, its GPU, so that both modules of a GPU are
  /// drawn below each other.
  int process_of(const GroupUsage& group, int rank) const {
    return shared_gpus_ > 0 ? device_of(rank, shared_gpus_) + 1 : group.stage + 1;
  }

  int track(const GroupUsage& group, int rank, Stream stream, int lane) {
    const auto [place, is_new] = tracks_.try_emplace({process_of(group, rank), rank, stream, lane}, 0);
    if (is_new) place->second = static_cast<int>(tracks_.size());
    return place->second;
  }

  void write_span(const TracedIteration& iteration, std::size_t index) {
    const Span& span = iteration.timeline.spans[index];
    const Slice& slice = iteration.slices[index];
    const GroupUsage& group = *iteration.group_of.at(span.rank);
    name_.clear();
    fmt::format_to(std::back_inserter(name_), FMT_COMPILE("{}"), display_name(span.op));
    if (span.microbatch >= 0)
      fmt::format_to(std::back_inserter(name_), FMT_COMPILE(" mb {}"), span.microbatch);
    for (int r = 0; r < drawn_ranks(group); ++r) {
      next_event();
      add(FMT_COMPILE(
              "{{\"ph\":\"X\",\"name\":\"{}\",\"cat\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":{},\"dur\":{},"
              "\"args\":{{\"iteration\":{},\"stage\":{},\"microbatch\":{},\"bytes\":{}}}}}"),
          std::string_view(name_.data(), name_.size()), to_string(span.stream),
          process_of(group, span.rank + r), track(group, span.rank + r, span.stream, slice.lane),
          Microseconds{iteration.offset + slice.start}, Microseconds{slice.end - slice.start},
          iteration.number, span.stage, span.microbatch, span.bytes.count);
    }
  }

  /// Writes arrows after all slices, because viewers order events of the same time as in the file, and an
  /// arrow must end in a slice.
  void write_flows(const TracedIteration& iteration) {
    const std::vector<Span>& spans = iteration.timeline.spans;
    std::map<std::int32_t, std::size_t> sends;
    for (std::size_t i = 0; i < spans.size(); ++i) {
      if (carries_message(spans[i]) && is_send(spans[i].op)) sends[spans[i].message] = i;
    }
    for (std::size_t i = 0; i < spans.size(); ++i) {
      if (!carries_message(spans[i]) || !is_receive(spans[i].op)) continue;
      const auto send = sends.find(spans[i].message);
      if (send != sends.end()) write_flow(iteration, send->second, i);
    }
  }

  /// Writes arrows so that every drawn rank of both groups has at least one; ranks of the smaller group have
  /// several.
  void write_flow(const TracedIteration& iteration, std::size_t send, std::size_t receive) {
    const int sources = drawn_ranks(*iteration.group_of.at(iteration.timeline.spans[send].rank));
    const int destinations = drawn_ranks(*iteration.group_of.at(iteration.timeline.spans[receive].rank));
    const std::int64_t arrows = std::max(sources, destinations);
    for (std::int64_t k = 0; k < arrows; ++k) {
      ++flows_;
      write_flow_end(iteration, send, static_cast<int>(k * sources / arrows), iteration.slices[send].start,
                     "\"ph\":\"s\"");
      // The arrow ends one nanosecond before the receive ends, which is inside its slice and not before the
      // send.
      write_flow_end(iteration, receive, static_cast<int>(k * destinations / arrows),
                     iteration.slices[receive].end - 1, "\"ph\":\"f\",\"bp\":\"e\"");
    }
  }

  void write_flow_end(const TracedIteration& iteration, std::size_t index, int rank, std::int64_t time,
                      std::string_view phase) {
    const Span& span = iteration.timeline.spans[index];
    const GroupUsage& group = *iteration.group_of.at(span.rank);
    next_event();
    add(FMT_COMPILE(
            "{{{},\"id\":{},\"name\":\"message\",\"cat\":\"message\",\"pid\":{},\"tid\":{},\"ts\":{}}}"),
        phase, flows_, process_of(group, span.rank + rank),
        track(group, span.rank + rank, span.stream, iteration.slices[index].lane),
        Microseconds{iteration.offset + time});
  }

  /// Writes one counter with a stacked series for each use of the memory.
  void write_memory(const TracedIteration& iteration, const MemoryPoint& point) {
    const GroupUsage& group = *iteration.group_of.at(point.rank);
    const ModelState& state = group.model_state;
    for (int r = 0; r < drawn_ranks(group); ++r) {
      next_event();
      add(FMT_COMPILE("{{\"ph\":\"C\",\"name\":\"rank {} memory\",\"pid\":{},\"ts\":{},\"args\":{{"
                      "\"parameters\":{},\"gradients\":{},\"optimizer\":{},\"activations\":{},"
                      "\"buffers\":{}}}}}"),
          point.rank + r, process_of(group, point.rank + r),
          Microseconds{iteration.offset + point.time.count()}, state.parameters.count, state.gradients.count,
          state.optimizer.count, point.activations.count, point.buffers.count);
    }
  }

  void write_process_names(std::span<const Timeline> iterations) {
    std::map<int, std::string> names;
    for (const Timeline& timeline : iterations) {
      for (const GroupUsage& group : timeline.groups) {
        const std::string& stage = timeline.stages.at(static_cast<std::size_t>(group.stage));
        for (int r = group.first_rank; r < group.first_rank + drawn_ranks(group); ++r) {
          if (shared_gpus_ > 0) stage_of_rank_[r] = stage;
          const int pid = process_of(group, r);
          names.try_emplace(pid, shared_gpus_ > 0 ? fmt::format("GPU {}", pid - 1) : stage);
        }
      }
    }
    for (const auto& [pid, stage] : names) {
      std::string name;
      append_json_string(name, all_ranks_ ? stage : stage + " (first rank of each tp group only)");
      metadata(pid, 0, "process_name", name, "name");
      metadata(pid, 0, "process_sort_index", std::to_string(pid), "sort_index");
    }
    if (!has_path_) return;
    metadata(kPathProcess, 0, "process_name", "\"critical path\"", "name");
    metadata(kPathProcess, 0, "process_sort_index", "0", "sort_index");  // above the stages
    metadata(kPathProcess, kPathProcess, "thread_name", "\"critical path\"", "name");
  }

  void metadata(int pid, int tid, std::string_view kind, std::string_view value, std::string_view key) {
    next_event();
    add(FMT_COMPILE("{{\"ph\":\"M\",\"name\":\"{}\",\"pid\":{},\"tid\":{},\"args\":{{\"{}\":{}}}}}"), kind,
        pid, tid, key, value);
  }

  const bool all_ranks_;
  const int shared_gpus_;
  bool first_ = true;
  bool has_path_ = false;
  std::int64_t flows_ = 0;
  fmt::memory_buffer text_;
  fmt::memory_buffer name_;
  std::map<int, std::string> stage_of_rank_;                 ///< of shared GPUs
  std::map<std::tuple<int, int, Stream, int>, int> tracks_;  ///< {process, rank, stream, lane} -> thread id
};

TracedIteration place(const Timeline& timeline, std::int64_t number, std::int64_t offset) {
  TracedIteration iteration{timeline, number, offset, {}, place_messages(timeline)};
  for (const GroupUsage& group : timeline.groups) iteration.group_of[group.first_rank] = &group;
  assign_lanes(timeline, iteration.slices);
  return iteration;
}

/// Returns how long before the end of the previous step a step's time 0 is; its makespan does not count that
/// time.
std::int64_t overlap_with_step_before(const Timeline& timeline) {
  if (!begin_apart(timeline)) return 0;
  Nanoseconds end{0};
  for (const GroupUsage& group : timeline.groups) end = std::max(end, group.begin);
  for (const Span& span : timeline.spans) {
    if (!is_send(span.op) && span.op != Op::all_reduce_start) end = std::max(end, span.start + span.duration);
  }
  return (end - timeline.makespan).count();
}

/// Returns the number of events if all ranks are drawn; two for each end of a message.
std::int64_t count_events(std::span<const Timeline> iterations) {
  std::int64_t events = 0;
  for (const Timeline& timeline : iterations) {
    std::unordered_map<std::int32_t, std::int64_t> ranks_of;
    for (const GroupUsage& group : timeline.groups) ranks_of[group.first_rank] = group.ranks;
    for (const Span& span : timeline.spans) events += ranks_of[span.rank] * (carries_message(span) ? 2 : 1);
    for (const MemoryPoint& point : timeline.memory) events += ranks_of[point.rank];
  }
  return events;
}

void check_ranks(const TracedIteration& iteration) {
  const auto check = [&](std::int32_t rank) {
    if (iteration.group_of.count(rank) > 0) return;
    throw Error(ErrorKind::internal, "timeline: expected rank " + std::to_string(rank) + " to begin a group");
  };
  for (const Span& span : iteration.timeline.spans) check(span.rank);
  for (const MemoryPoint& point : iteration.timeline.memory) check(point.rank);
}

}  // namespace

std::string to_perfetto(std::span<const Timeline> iterations, std::int64_t most_events,
                        std::span<const PathSlice> critical_path) {
  const int shared_gpus = iterations.empty() ? 0 : iterations.front().shared_gpus;
  TraceWriter writer(count_events(iterations) <= most_events, shared_gpus);
  std::int64_t offset = 0;
  std::int64_t number = 0;
  for (const Timeline& timeline : iterations) {
    if (number > 0) offset -= overlap_with_step_before(timeline);
    const TracedIteration iteration = place(timeline, number++, offset);
    check_ranks(iteration);
    writer.write(iteration);
    for (const PathSlice& slice : critical_path) {
      if (slice.iteration == iteration.number) writer.write_path(slice, offset);
    }
    std::int64_t end = timeline.makespan.count();
    for (const Slice& slice : iteration.slices) end = std::max(end, slice.end);
    offset += end;
  }
  return writer.finish(iterations);
}

}  // namespace dflop
