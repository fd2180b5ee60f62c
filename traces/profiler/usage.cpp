#include "traces/profiler/usage.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace dflop {
namespace {

/// Grows by intervals that come in the order of their starts; its length is the time that at least one
/// covers.
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
    // Windows are few beside activities, and an activity reaches into few of them.
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
    constexpr Bytes most{std::int64_t{1} << 60};  // an exabyte; a sum of any two stays inside 64 bits
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

}  // namespace dflop
