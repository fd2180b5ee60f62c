#include "traces/profiler/usage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "core/refuse.hpp"

namespace dflop {
namespace {

/// A Union is extended by intervals in the order of their starts; its length is the time covered by at least
/// one.
class Union {
 public:
  void add(Nanoseconds begin, Nanoseconds end) {
    length_ += std::max(Nanoseconds(0), end - std::max(begin, covered_));
    covered_ = std::max(covered_, end);
  }
  Nanoseconds length() const { return length_; }

 private:
  Nanoseconds covered_ = Nanoseconds::min() / 2;
  Nanoseconds length_{0};
};

struct Unions {
  Union all;
  Union compute;
  Union communication;
  Union both;  ///< compute or communication
  Union copy;
  Union phases[4];

  void add(const KinetoActivity& activity, Nanoseconds begin, Nanoseconds end) {
    all.add(begin, end);
    if (activity.work == KinetoWork::copy) return copy.add(begin, end);
    both.add(begin, end);
    if (activity.work == KinetoWork::communication) return communication.add(begin, end);
    compute.add(begin, end);
    phases[static_cast<std::size_t>(activity.phase)].add(begin, end);
  }
};

KinetoStepUsage usage_of(const KinetoTrace& trace, const KinetoWindow& window, const Unions& unions) {
  KinetoStepUsage usage;
  usage.window = window;
  if (window.step >= 0) usage.host = trace.steps[window.step].duration;
  usage.busy = unions.all.length();
  usage.compute = unions.compute.length();
  usage.communication = unions.communication.length();
  usage.exposed = unions.both.length() - usage.compute;
  usage.copy = unions.copy.length();
  usage.idle = window.end - window.begin - usage.busy;
  for (std::size_t p = 0; p < 4; ++p) usage.phases[p] = unions.phases[p].length();
  return usage;
}

}  // namespace

std::vector<KinetoWindow> device_windows(const KinetoTrace& trace) {
  std::map<std::int32_t, KinetoWindow> by_step;
  for (const KinetoActivity& activity : trace.activities) {
    if (activity.step < 0 && !trace.steps.empty()) continue;
    const auto [it, fresh] =
        by_step.try_emplace(activity.step, KinetoWindow{activity.step, activity.start, activity.end()});
    it->second.begin = std::min(it->second.begin, activity.start);
    it->second.end = std::max(it->second.end, activity.end());
  }
  std::vector<KinetoWindow> windows;
  for (const auto& [step, window] : by_step) {
    if (!windows.empty()) windows.back().end = std::max(windows.back().begin, window.begin);
    windows.push_back(window);
    // Steps that overtake each other on the device share a border.
    if (windows.size() > 1) windows.back().begin = std::prev(windows.end(), 2)->end;
    windows.back().end = std::max(windows.back().begin, windows.back().end);
  }
  return windows;
}

std::vector<KinetoStepUsage> step_usage(const KinetoTrace& trace) {
  const std::vector<KinetoWindow> windows = device_windows(trace);
  std::vector<Unions> unions(windows.size());
  for (const KinetoActivity& activity : trace.activities) {
    // There are few windows compared with activities, and an activity overlaps only a few of them.
    auto w = static_cast<std::size_t>(
        std::upper_bound(windows.begin(), windows.end(), activity.start,
                         [](Nanoseconds t, const KinetoWindow& window) { return t < window.end; }) -
        windows.begin());
    for (; w < windows.size() && windows[w].begin < activity.end(); ++w) {
      const Nanoseconds begin = std::max(windows[w].begin, activity.start);
      const Nanoseconds end = std::min(windows[w].end, activity.end());
      if (begin < end) unions[w].add(activity, begin, end);
    }
  }
  std::map<std::int32_t, std::int64_t> launched;
  for (const KinetoActivity& activity : trace.activities) ++launched[activity.step];
  std::vector<KinetoStepUsage> usage;
  for (std::size_t w = 0; w < windows.size(); ++w) {
    usage.push_back(usage_of(trace, windows[w], unions[w]));
    usage.back().activities = launched[windows[w].step];
  }
  return usage;
}

std::vector<KinetoStreamUsage> stream_usage(const KinetoTrace& trace) {
  std::map<std::pair<std::int64_t, std::int64_t>, KinetoStreamUsage> streams;
  for (const KinetoActivity& activity : trace.activities) {
    KinetoStreamUsage& usage = streams[{activity.device, activity.stream}];
    usage.device = activity.device;
    usage.stream = activity.stream;
    switch (activity.work) {
      case KinetoWork::compute:
        ++usage.kernels;
        usage.compute += activity.duration;
        break;
      case KinetoWork::communication:
        ++usage.kernels;
        usage.communication += activity.duration;
        break;
      case KinetoWork::copy:
        ++usage.copies;
        usage.copy += activity.duration;
    }
  }
  std::vector<KinetoStreamUsage> rows;
  for (const auto& [key, usage] : streams) rows.push_back(usage);
  return rows;
}

std::vector<KinetoGroupUsage> group_usage(const KinetoTrace& trace, const std::vector<KinetoShare>& shares) {
  const auto add = [](std::optional<Bytes>& sum, const std::optional<Bytes>& bytes) {
    constexpr Bytes most{std::int64_t{1} << 60};  // an exabyte; a sum of any two fits in 64 bits
    sum = sum && bytes ? std::optional(std::min(most, *sum + *bytes)) : std::nullopt;
  };
  std::map<std::tuple<std::string, std::int64_t, std::string>, KinetoGroupUsage> groups;
  for (std::size_t i = 0; i < trace.collectives.size(); ++i) {
    const KinetoCollective& c = trace.collectives[i];
    const auto [it, fresh] = groups.try_emplace(std::tuple(c.group, c.group_size, c.name));
    KinetoGroupUsage& usage = it->second;
    if (fresh) {
      usage.group = c.group;
      usage.name = c.name;
      usage.group_size = c.group_size;
      usage.bytes = usage.matched_bytes = Bytes{0};
    }
    const Nanoseconds time = trace.activities[c.activity].duration;
    ++usage.count;
    usage.time += time;
    add(usage.bytes, c.bytes());
    if (!shares[i].transfer) continue;
    ++usage.matched;
    usage.transfer += *shares[i].transfer;
    usage.wait += time - *shares[i].transfer;
    add(usage.matched_bytes, c.bytes());
  }
  std::vector<KinetoGroupUsage> rows;
  for (const auto& [key, usage] : groups) rows.push_back(usage);
  return rows;
}

namespace {

/// Returns the stream with the most compute time.
KinetoStreamUsage compute_stream(const KinetoTrace& trace) {
  const std::vector<KinetoStreamUsage> streams = stream_usage(trace);
  const auto most = std::max_element(streams.begin(), streams.end(),
                                     [](const auto& a, const auto& b) { return a.compute < b.compute; });
  return most == streams.end() ? KinetoStreamUsage{} : *most;
}

/// Returns the span of an activity in a timeline, without its times; nothing if it has no place there.
std::optional<Span> span_of(const KinetoTrace& trace, const KinetoActivity& activity,
                            const KinetoStreamUsage& compute) {
  Span span;
  span.rank = *trace.rank;
  if (activity.work == KinetoWork::compute) {
    if (activity.device != compute.device || activity.stream != compute.stream) return std::nullopt;
    if (activity.phase == KinetoPhase::other) return std::nullopt;
    span.op = activity.phase == KinetoPhase::forward    ? Op::forward
              : activity.phase == KinetoPhase::backward ? Op::backward
                                                        : Op::optimizer_step;
    return span;
  }
  if (activity.work == KinetoWork::copy) return std::nullopt;
  const KinetoCollective& c = trace.collectives[activity.collective];
  span.bytes = c.bytes().value_or(Bytes{0});
  span.stream = c.destination ? Stream::send : c.source ? Stream::receive : Stream::collective;
  span.op = c.destination ? Op::send : c.source ? Op::receive : Op::all_reduce;
  return span;
}

/// StepSpans makes the spans of one rank in one step.
class StepSpans {
 public:
  StepSpans(const KinetoTrace& trace, const std::vector<KinetoShare>& shares, const KinetoRanks& ranks,
            const KinetoWindow& window)
      : trace_(trace), shares_(shares), ranks_(ranks), window_(window), compute_(compute_stream(trace)) {}

  /// Appends the spans; `shift` converts a time of the trace to a time of the step.
  void append(std::vector<Span>& spans, Nanoseconds shift) {
    const std::size_t first = spans.size();
    for (const KinetoActivity& activity : trace_.activities) {
      if (activity.start < window_.begin || activity.start >= window_.end) continue;
      std::optional<Span> span = span_of(trace_, activity, compute_);
      const bool on_compute = activity.work == KinetoWork::compute && activity.device == compute_.device &&
                              activity.stream == compute_.stream;
      if (!span) {
        if (on_compute) run_ = kNone;
        continue;
      }
      span->start = activity.start + shift;
      span->duration = std::min(activity.end(), window_.end) - activity.start;
      if (on_compute) {
        add_compute(spans, *span);
      } else {
        add_communication(spans, *span, shares_[activity.collective]);
      }
    }
    std::stable_sort(spans.begin() + static_cast<std::ptrdiff_t>(first), spans.end(),
                     [](const Span& a, const Span& b) { return a.start < b.start; });
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  void add_compute(std::vector<Span>& spans, Span span) {
    if (run_ != kNone && spans[run_].op == span.op) {
      Span& run = spans[run_];
      run.duration = std::max(run.duration, span.start + span.duration - run.start);
      compute_end_ = std::max(compute_end_, run.start + run.duration);
      return;
    }
    // Kernels that overlap on a stream are reported as a finding; spans must not overlap.
    trim(span, compute_end_);
    if (span.op != Op::optimizer_step) span.microbatch = runs_[span.op]++;
    run_ = spans.size();
    compute_end_ = span.start + span.duration;
    spans.push_back(span);
  }

  void add_communication(std::vector<Span>& spans, Span span, const KinetoShare& share) {
    if (span.op == Op::all_reduce) {
      trim(span, collective_end_);
      collective_end_ = span.start + span.duration;
    } else if (ranks_.exchanges[share.exchange].ends.size() == 2) {
      span.message = static_cast<std::int32_t>(share.exchange);
    }
    spans.push_back(span);
  }

  static void trim(Span& span, Nanoseconds least) {
    const Nanoseconds end = std::max(span.start + span.duration, least);
    span.start = std::max(span.start, least);
    span.duration = end - span.start;
  }

  const KinetoTrace& trace_;
  const std::vector<KinetoShare>& shares_;
  const KinetoRanks& ranks_;
  KinetoWindow window_;
  KinetoStreamUsage compute_;
  std::size_t run_ = kNone;  ///< index of the compute span that may continue
  Nanoseconds compute_end_{0};
  Nanoseconds collective_end_{0};
  std::map<Op, std::int32_t> runs_;
};

/// A Part is one rank's part of a step.
struct Part {
  std::size_t trace = 0;
  KinetoStepUsage usage;
};

/// Returns the parts of each step number, in the order of ranks.
std::map<std::int64_t, std::vector<Part>> parts_by_step(const std::vector<KinetoTrace>& traces,
                                                        const std::vector<std::size_t>& order) {
  std::map<std::int64_t, std::vector<Part>> parts;
  for (const std::size_t t : order) {
    for (const KinetoStepUsage& usage : step_usage(traces[t])) {
      const std::int32_t step = usage.window.step;
      parts[step < 0 ? -1 : traces[t].steps[step].number].push_back({t, usage});
    }
  }
  return parts;
}

GroupUsage group_of(const KinetoTrace& trace, const KinetoStepUsage& usage, Nanoseconds makespan) {
  GroupUsage group;
  group.first_rank = *trace.rank;
  group.busy = usage.compute;
  group.wait = usage.exposed;
  group.bubble = makespan - usage.compute - usage.exposed;
  group.transfer = usage.communication;
  return group;
}

Timeline timeline_of(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks,
                     const std::vector<Part>& parts) {
  Nanoseconds begin = Nanoseconds::max();
  Nanoseconds end = Nanoseconds::min();
  for (const Part& part : parts) {
    begin = std::min(begin, ranks.aligned(traces, part.trace, part.usage.window.begin));
    end = std::max(end, ranks.aligned(traces, part.trace, part.usage.window.end));
  }
  constexpr Nanoseconds longest{std::int64_t{1} << 50};  // as of a timeline file
  if (end - begin > longest) {
    refuse_input(traces[parts.back().trace].file,
                 "expected ranks that run a step at the same time, found more than 13 days apart");
  }
  Timeline timeline;
  timeline.source = "recorded";
  timeline.makespan = end - begin;
  timeline.stages = {"model"};  // the recording does not say which stage a rank holds
  for (const Part& part : parts) {
    const KinetoTrace& trace = traces[part.trace];
    timeline.groups.push_back(group_of(trace, part.usage, timeline.makespan));
    StepSpans(trace, ranks.shares[part.trace], ranks, part.usage.window)
        .append(timeline.spans, ranks.aligned(traces, part.trace, Nanoseconds(0)) - begin);
  }
  return timeline;
}

/// Returns the indices of the traces in the order of ranks.
std::vector<std::size_t> rank_order(const std::vector<KinetoTrace>& traces) {
  std::vector<std::size_t> order(traces.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (const KinetoTrace& trace : traces) {
    if (!trace.rank) refuse_input(trace.file, "expected a rank (distributedInfo.rank), found none");
  }
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return *traces[a].rank < *traces[b].rank; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (*traces[order[i]].rank != *traces[order[i - 1]].rank) continue;
    refuse_input(traces[std::max(order[i], order[i - 1])].file,
                 "expected one file per rank, found rank {} again", *traces[order[i]].rank);
  }
  return order;
}

}  // namespace

Nanoseconds exposed_wait(const KinetoTrace& trace, const std::vector<KinetoShare>& shares,
                         std::optional<std::int32_t> step) {
  Union compute;
  Union both;
  for (const KinetoActivity& activity : trace.activities) {  // by start
    if (step ? activity.step != *step : activity.step < 0 && !trace.steps.empty()) continue;
    if (activity.work == KinetoWork::compute) {
      compute.add(activity.start, activity.end());
      both.add(activity.start, activity.end());
    } else if (activity.work == KinetoWork::communication) {
      const auto& transfer = shares[activity.collective].transfer;
      if (transfer) both.add(activity.start, activity.end() - *transfer);
    }
  }
  return both.length() - compute.length();
}

Nanoseconds collective_wait(const KinetoTrace& trace, const std::vector<KinetoShare>& shares) {
  Union waits;
  for (const KinetoActivity& activity : trace.activities) {  // by start
    if (activity.work != KinetoWork::communication || (activity.step < 0 && !trace.steps.empty())) continue;
    const auto& transfer = shares[activity.collective].transfer;
    if (transfer) waits.add(activity.start, activity.end() - *transfer);
  }
  return waits.length();
}

std::vector<Timeline> to_timelines(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks) {
  std::vector<Timeline> timelines;
  for (const auto& [step, parts] : parts_by_step(traces, rank_order(traces))) {
    if (parts.size() == traces.size()) timelines.push_back(timeline_of(traces, ranks, parts));
  }
  if (timelines.empty()) {
    // Report the rank with the fewest steps that have kernels.
    const auto least = std::ranges::min_element(traces, {}, [](const KinetoTrace& trace) {
      return std::pair(!trace.activities.empty(), device_windows(trace).size());
    });
    if (least != traces.end() && least->activities.empty()) {
      refuse_input(least->file,
                   "expected a step with kernels that all ranks have, found a rank without kernels; without "
                   "'--out' all findings are printed");
    }
    refuse_input(least == traces.end() ? "" : least->file,
                 "expected a step with kernels that all ranks have, found none");
  }
  return timelines;
}

}  // namespace dflop
