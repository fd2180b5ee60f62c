#include "traces/profiler/kineto.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "core/refuse.hpp"
#include "traces/profiler/context.hpp"
#include "traces/profiler/events.hpp"
#include "traces/text/csv.hpp"
#include "traces/text/loose_json.hpp"

namespace dflop {
namespace {

constexpr Nanoseconds kLongestTrace{std::int64_t{1} << 50};  // 13 days, the same as for a timeline
constexpr std::int64_t kLatestTime = 4'000'000'000'000'000'000;

/// Returns N of "ProfilerStep#N".
std::optional<std::int64_t> step_number(std::string_view name) {
  constexpr std::string_view prefix = "ProfilerStep#";
  std::int64_t number = -1;
  const bool is_step = name.starts_with(prefix) && parse_number(name.substr(prefix.size()), number);
  return is_step && number >= 0 ? std::optional(number) : std::nullopt;
}

/// Tells whether a call of the CUDA runtime or driver puts work on a stream. A graph's kernels share the
/// correlation of its launch.
bool starts_work(std::string_view call) {
  for (const std::string_view word : {"Launch", "Memcpy", "Memset"}) {
    if (call.find(word) != std::string_view::npos) return true;
  }
  return false;
}

/// Tells whether a call returns only when the device has finished its work.
bool waits_for_device(std::string_view call) {
  return call.find("Synchronize") != std::string_view::npos || call == "cudaMemcpy" || call == "hipMemcpy";
}

/// Tells whether dflop reads an operation or annotation of this name, or may do so.
bool reads_name(std::string_view name) {
  for (const std::string_view prefix :
       {"ProfilerStep#", "Optimizer.step", "gloo:", "nccl:", "c10d::", "record_param_comms"}) {
    if (name.starts_with(prefix)) return true;
  }
  return names_a_range(name);
}

std::optional<Bytes> bytes_of(std::optional<std::int64_t> elements, const std::string& dtype) {
  const std::optional<Bytes> size = kineto_element_size(dtype);
  if (!elements || !size) return std::nullopt;
  return Bytes{*elements * size->count};
}

/// A TraceBuilder takes the events in the order of the file and builds a trace at the end.
class TraceBuilder {
 public:
  /// `loose_values`: the number of values that were not strict JSON
  TraceBuilder(const std::string& file, std::size_t loose_values) {
    trace_.file = file;
    trace_.loose_values = loose_values;
  }

  void take(const KinetoEvent& event) {
    if (event.category == KinetoCategory::other) return;
    if (event.category == KinetoCategory::trace) {
      record_end_ = std::max(record_end_.value_or(Nanoseconds::min()), event.time + event.duration);
      return;
    }
    earliest_ = std::min(earliest_, event.time);
    latest_ = std::max(latest_, event.time);
    switch (event.category) {
      case KinetoCategory::cpu_op:
      case KinetoCategory::annotation:
        take_range(event);
        break;
      case KinetoCategory::runtime:
        take_launch(event);
        break;
      case KinetoCategory::kernel:
      case KinetoCategory::copy:
      case KinetoCategory::set:
      case KinetoCategory::trace:
      case KinetoCategory::other:
        take_activity(event);
    }
  }

  KinetoTrace finish(const KinetoHeader& header) {
    if (earliest_ == Nanoseconds::max()) {
      refuse_input(
          trace_.file,
          "expected events of the categories cpu_op, user_annotation, cuda_runtime or kernel, found none");
    }
    if (latest_ - earliest_ > kLongestTrace) {
      refuse_input(trace_.file, "expected events within 13 days, found {} s between the first and the last",
                   (latest_ - earliest_).count() / 1'000'000'000);
    }
    trace_.base = header.base_time + earliest_;
    if (trace_.base.count() < 0 || trace_.base.count() > kLatestTime) {
      refuse_input(trace_.file, "expected times between 1970 and 2096, found {} ns", trace_.base.count());
    }
    if (header.rank) trace_.rank = static_cast<std::int32_t>(*header.rank);
    trace_.world_size = header.world_size;
    trace_.resolution = Nanoseconds(header.fractions ? 1 : 1000);
    if (record_end_) trace_.record_end = *record_end_ - earliest_;
    trace_.process_groups = header.process_groups;
    join_gloo_ranges();
    join_gloo_reductions();
    shift_times();
    join_launches();
    find_steps();
    sort_activities();
    check_world();
    const auto by_start = [](const auto& a, const auto& b) {
      return std::tie(a.start, a.event) < std::tie(b.start, b.event);
    };
    std::sort(trace_.ranges.begin(), trace_.ranges.end(), by_start);
    std::sort(trace_.messages.begin(), trace_.messages.end(), by_start);
    std::sort(trace_.reductions.begin(), trace_.reductions.end(), by_start);
    drop_inner_steps();
    return std::move(trace_);
  }

 private:
  /// Rejects an impossible rank or process groups.
  void check_world() const {
    if (!trace_.world_size) return;
    const std::int64_t size = *trace_.world_size;
    if (trace_.rank && *trace_.rank >= size) {
      refuse_key(trace_.file, "distributedInfo.rank",
                 "expected a rank below {}, which is distributedInfo.world_size, found {}", size,
                 *trace_.rank);
    }
    const auto require = [&](std::int64_t ranks, const std::string& group) {
      if (ranks <= size) return;
      refuse_key(trace_.file, "distributedInfo.world_size",
                 "expected at least {} ranks, which {} needs, found {}", ranks, group, size);
    };
    for (const KinetoCollective& c : trace_.collectives) {
      const std::string group =
          fmt::format("process group '{}' of traceEvents[{}]", c.group, trace_.activities[c.activity].event);
      require(c.group_size, group);
      if (!c.ranks.empty()) require(std::int64_t{c.ranks.back()} + 1, group);
    }
    for (const std::vector<std::int32_t>& group : trace_.process_groups) {
      if (!group.empty())
        require(std::int64_t{*std::ranges::max_element(group)} + 1, "distributedInfo.pg_config.ranks");
    }
  }

  std::int32_t name_index(const std::string& name) {
    const auto [it, fresh] = name_indices_.try_emplace(name, static_cast<std::int32_t>(trace_.names.size()));
    if (fresh) trace_.names.push_back(name);
    return it->second;
  }

  void take_range(const KinetoEvent& event) {
    if (!event.damaged.empty() && reads_name(event.name)) {
      refuse_damaged(trace_.file, event, event.damaged.front());
    }
    if (event.category == KinetoCategory::annotation) {
      if (const auto number = step_number(event.name)) {
        trace_.steps.push_back({*number, event.time, event.duration, event.index});
      }
      take_named_range(event);
    } else {
      take_host_message(event);
    }
    const auto kind = kineto_mark(event);
    if (!kind) return;
    KinetoMark mark{event.thread, event.time, event.time + event.duration, *kind, -1};
    if (*kind == KinetoMarkKind::collective) {
      mark.annotation = static_cast<std::int32_t>(annotations_.size());
      const std::string dtype = event.input_types.empty() ? "" : event.input_types.front();
      annotations_.push_back({event.name.substr(event.name.find(':') + 1), dtype, kineto_input_bytes(event)});
    }
    marks_.push_back(mark);
  }

  void take_named_range(const KinetoEvent& event) {
    if (event.name == "gloo:send" || event.name == "gloo:recv") {
      gloo_.push_back({event.thread, event.time, event.time + event.duration, event.name == "gloo:send",
                       kineto_input_bytes(event)});
      return;
    }
    if (event.name == "gloo:all_reduce") {
      const auto elements =
          event.input_elements.empty() ? std::nullopt : std::optional(event.input_elements[0]);
      gloo_reductions_.push_back({event.thread,
                                  event.time,
                                  event.time + event.duration,
                                  {},
                                  {},
                                  elements,
                                  kineto_input_bytes(event),
                                  event.index});
      return;
    }
    std::optional<KinetoRange> range;
    if (names_a_range(event.name)) {
      range = parse_range(event.name);
      if (!range && !is_other_action(event.name)) trace_.unread_ranges.push_back(event.index);
    } else if (event.name.starts_with("Optimizer.step")) {
      range = KinetoRange{.kind = KinetoRangeKind::optimizer_step};
      own_steps_.insert(event.index);
    }
    if (!range) return;
    range->thread = event.thread;
    range->start = event.time;
    range->end = event.time + event.duration;
    range->event = event.index;
    trace_.ranges.push_back(*range);
  }

  /// Drops torch's own ranges of optimizer steps inside a user's range around the same call, so that each
  /// step is read once.
  void drop_inner_steps() {
    std::map<std::int64_t, std::vector<KinetoRange>> said;  // by thread
    for (const KinetoRange& range : trace_.ranges) {
      if (range.kind == KinetoRangeKind::optimizer_step && own_steps_.count(range.event) == 0)
        said[range.thread].push_back(range);
    }
    std::erase_if(trace_.ranges, [&](const KinetoRange& range) {
      if (own_steps_.count(range.event) == 0) return false;
      const std::vector<KinetoRange>& here = said[range.thread];
      const auto after = std::upper_bound(here.begin(), here.end(), range.start,
                                          [](Nanoseconds t, const KinetoRange& r) { return t < r.start; });
      return after != here.begin() && range.end <= std::prev(after)->end;
    });
  }

  void take_host_message(const KinetoEvent& event) {
    if (event.name == "c10d::allreduce_") {
      // The first input is the list of tensors; a list of several tensors has no shape here.
      const auto elements =
          event.input_elements.empty() ? std::nullopt : std::optional(event.input_elements[0]);
      trace_.reductions.push_back(
          {event.thread, event.time, event.time + event.duration, {}, {}, elements, {}, event.index});
      return;
    }
    const bool is_send = event.name == "c10d::send";
    if (!is_send && event.name != "c10d::recv_") return;
    KinetoHostMessage message;
    if (event.concrete_inputs.size() < 4 || !parse_number(event.concrete_inputs[2], message.peer) ||
        !parse_number(event.concrete_inputs[3], message.tag)) {
      return;  // recorded without shapes, so nothing is known
    }
    message.is_send = is_send;
    message.thread = event.thread;
    message.start = event.time;
    message.end = event.time + event.duration;
    message.event = event.index;
    trace_.messages.push_back(message);
  }

  /// Assigns each gloo range to the call in which it begins.
  void join_gloo_ranges() {
    std::map<std::pair<std::int64_t, bool>, std::vector<std::size_t>> calls;  // by thread and direction
    std::sort(trace_.messages.begin(), trace_.messages.end(),
              [](const auto& a, const auto& b) { return a.start < b.start; });
    for (std::size_t m = 0; m < trace_.messages.size(); ++m)
      calls[{trace_.messages[m].thread, trace_.messages[m].is_send}].push_back(m);
    for (const GlooRange& range : gloo_) {
      const std::vector<std::size_t>& here = calls[{range.thread, range.is_send}];
      const auto after = std::upper_bound(here.begin(), here.end(), range.start, [&](Nanoseconds t, auto m) {
        return t < trace_.messages[m].start;
      });
      if (after == here.begin()) continue;
      KinetoHostMessage& message = trace_.messages[*std::prev(after)];
      if (message.is_awaited) continue;
      message.is_awaited = true;
      message.end = std::max(message.end, range.end);
      message.bytes = range.bytes;
    }
  }

  /// Assigns each all-reduce call the first later gloo range that sums as many elements, because gloo runs
  /// them on its own threads.
  void join_gloo_reductions() {
    const auto by_start = [](const auto& a, const auto& b) { return a.start < b.start; };
    std::stable_sort(trace_.reductions.begin(), trace_.reductions.end(), by_start);
    std::stable_sort(gloo_reductions_.begin(), gloo_reductions_.end(), by_start);
    std::map<std::optional<std::int64_t>, std::deque<const KinetoHostReduction*>> runs;
    for (const KinetoHostReduction& run : gloo_reductions_) runs[run.elements].push_back(&run);
    for (KinetoHostReduction& call : trace_.reductions) {
      std::deque<const KinetoHostReduction*>& same = runs[call.elements];
      while (!same.empty() && same.front()->start < call.start) same.pop_front();
      if (same.empty()) continue;
      call.run_start = same.front()->start;
      call.run_end = same.front()->end;
      call.bytes = same.front()->bytes;
      same.pop_front();
    }
  }

  void take_launch(const KinetoEvent& event) {
    if (!event.correlation) return;
    trace_.launches.push_back({*event.correlation, event.thread, event.time, event.time + event.duration,
                               name_index(event.name), starts_work(event.name), waits_for_device(event.name),
                               false, event.index});
  }

  void take_activity(const KinetoEvent& event) {
    KinetoActivity activity;
    activity.device = *event.device;
    activity.stream = *event.stream;
    activity.name = name_index(event.name);
    activity.start = event.time;
    activity.duration = event.duration;
    activity.bytes = {event.bytes.value_or(0)};
    activity.event = event.index;
    if (event.category != KinetoCategory::kernel) {
      activity.work = KinetoWork::copy;
    } else if (const auto name = communication_name(event.name); name || !event.collective.empty()) {
      activity.work = KinetoWork::communication;
      activity.collective = static_cast<std::int32_t>(trace_.collectives.size());
      take_collective(event, event.collective.empty() ? *name : event.collective);
    }
    trace_.activities.push_back(activity);
    correlations_.push_back(event.correlation);
  }

  void take_collective(const KinetoEvent& event, const std::string& name) {
    KinetoCollective collective;
    collective.name = name;
    collective.dtype = event.dtype;
    collective.in = bytes_of(event.in_elements, event.dtype);
    collective.out = bytes_of(event.out_elements, event.dtype);
    collective.group = event.group_name;
    collective.group_size = event.group_size.value_or(0);
    collective.ranks = event.group_ranks;
    collective.sequence = event.sequence;
    collective.source = event.source;
    collective.destination = event.destination;
    trace_.collectives.push_back(std::move(collective));
    described_.push_back(!event.collective.empty());
  }

  void shift_times() {
    for (KinetoStep& step : trace_.steps) step.start -= earliest_;
    for (KinetoLaunch& launch : trace_.launches) {
      launch.start -= earliest_;
      launch.end -= earliest_;
    }
    for (KinetoActivity& activity : trace_.activities) activity.start -= earliest_;
    const auto shift = [&](auto& ranges) {
      for (auto& range : ranges) {
        range.start -= earliest_;
        range.end -= earliest_;
      }
    };
    shift(marks_);
    shift(trace_.ranges);
    shift(trace_.messages);
    shift(trace_.reductions);
    for (KinetoHostReduction& reduction : trace_.reductions) {
      if (!reduction.run_start) continue;
      *reduction.run_start -= earliest_;
      *reduction.run_end -= earliest_;
    }
  }

  /// Finds the launch of each activity and, from the ranges around it, the phase and the collective.
  void join_launches() {
    std::unordered_map<std::int64_t, std::int32_t> by_correlation;
    for (std::size_t i = 0; i < trace_.launches.size(); ++i) {
      // A call inside another has the same correlation; use the one that starts work.
      const auto [it, fresh] =
          by_correlation.try_emplace(trace_.launches[i].correlation, static_cast<std::int32_t>(i));
      if (!fresh && !trace_.launches[it->second].starts_work) it->second = static_cast<std::int32_t>(i);
    }
    const std::vector<KinetoContext> contexts = kineto_contexts(trace_.launches, std::move(marks_));
    for (std::size_t i = 0; i < trace_.activities.size(); ++i) {
      if (!correlations_[i]) continue;
      const auto launch = by_correlation.find(*correlations_[i]);
      if (launch == by_correlation.end()) continue;
      KinetoActivity& activity = trace_.activities[i];
      activity.launch = launch->second;
      activity.phase = contexts[launch->second].phase;
      trace_.launches[launch->second].has_work = true;
      describe(activity.collective, contexts[launch->second].collective);
    }
  }

  /// Describes a collective from an annotation: in old traces only the annotation around its launch describes
  /// it.
  void describe(std::int32_t collective, std::int32_t annotation) {
    if (collective < 0 || annotation < 0 || described_[collective]) return;
    KinetoCollective& described = trace_.collectives[collective];
    described.name = annotations_[annotation].name;
    described.dtype = annotations_[annotation].dtype;
    described.in = annotations_[annotation].bytes;
  }

  void find_steps() {
    std::vector<KinetoStep>& steps = trace_.steps;
    std::sort(steps.begin(), steps.end(), [](const KinetoStep& a, const KinetoStep& b) {
      return std::tie(a.start, a.event) < std::tie(b.start, b.event);
    });
    for (KinetoActivity& activity : trace_.activities) {
      const Nanoseconds time = activity.launch < 0 ? activity.start : trace_.launches[activity.launch].start;
      const auto after = std::upper_bound(steps.begin(), steps.end(), time,
                                          [](Nanoseconds t, const KinetoStep& s) { return t < s.start; });
      if (after == steps.begin()) continue;
      const auto step = std::prev(after);
      if (time < step->start + step->duration) {
        activity.step = static_cast<std::int32_t>(step - steps.begin());
      }
    }
  }

  void sort_activities() {
    std::stable_sort(trace_.activities.begin(), trace_.activities.end(),
                     [](const KinetoActivity& a, const KinetoActivity& b) { return a.start < b.start; });
    std::vector<KinetoCollective> collectives;
    for (std::size_t i = 0; i < trace_.activities.size(); ++i) {
      KinetoActivity& activity = trace_.activities[i];
      if (activity.collective < 0) continue;
      collectives.push_back(std::move(trace_.collectives[activity.collective]));
      collectives.back().activity = i;
      activity.collective = static_cast<std::int32_t>(collectives.size()) - 1;
    }
    trace_.collectives = std::move(collectives);
  }

  struct GlooRange {
    std::int64_t thread = 0;
    Nanoseconds start{0};
    Nanoseconds end{0};
    bool is_send = false;
    std::optional<Bytes> bytes;
  };

  struct Annotation {
    std::string name;
    std::string dtype;
    std::optional<Bytes> bytes;
  };

  KinetoTrace trace_;
  Nanoseconds earliest_ = Nanoseconds::max();
  Nanoseconds latest_ = Nanoseconds::min();
  std::optional<Nanoseconds> record_end_;
  std::vector<KinetoMark> marks_;
  std::vector<Annotation> annotations_;
  std::set<std::size_t> own_steps_;  ///< torch's own optimizer steps
  std::vector<GlooRange> gloo_;
  std::vector<KinetoHostReduction> gloo_reductions_;       ///< as ranges
  std::vector<std::optional<std::int64_t>> correlations_;  ///< of the activities
  std::vector<bool> described_;                            ///< of the collectives
  std::unordered_map<std::string, std::int32_t> name_indices_;
};

}  // namespace

std::optional<Bytes> KinetoCollective::bytes() const {
  if (!in || !out) return in ? in : out;
  return std::max(*in, *out);
}

bool uses_graphs(const KinetoTrace& trace) {
  return std::ranges::any_of(trace.names, [](const std::string& name) {
    const bool is_call = name.starts_with("cuda") || name.starts_with("cu") || name.starts_with("hip");
    return is_call && (name.find("Graph") != std::string::npos || name.find("Capture") != std::string::npos);
  });
}

KinetoTrace parse_kineto(std::string_view json, const std::string& file) {
  const auto read = [&](std::string_view text, std::size_t loose_values) {
    TraceBuilder builder(file, loose_values);
    const KinetoHeader header = read_kineto_events(text, file, loose_values > 0,
                                                   [&](const KinetoEvent& event) { builder.take(event); });
    return builder.finish(header);
  };
  try {
    return read(json, 0);
  } catch (const KinetoSyntaxError&) {
    const LooseJson loose = tighten_json(json);
    if (loose.values() == 0) throw;
    return read(loose.text, loose.values());
  }
}

}  // namespace dflop
