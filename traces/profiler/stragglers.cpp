#include "traces/profiler/stragglers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <span>

#include "traces/profiler/pipeline.hpp"
#include "traces/profiler/usage.hpp"

namespace dflop {
namespace {

constexpr std::size_t kMaxNamed = 8;

double lower_median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[(values.size() - 1) / 2];
}

/// RankTimes says how one rank spends its steps.
struct RankTimes {
  std::size_t trace = 0;
  double compute_s = 0;  ///< per step
  double idle = 0;       ///< fraction of the steps
  double wait = 0;
};

/// Returns how long a rank waits for others in the reductions of a step: the time beyond the last-arriving
/// rank's. With `hidden`, waits during compute count, too.
Seconds waited(const Timeline& timeline, std::int32_t rank, bool hidden) {
  const auto counts = [&](const Span& span) {
    return hidden ? enters_collective(span.op) : ends_collective(span.op);
  };
  std::map<std::int32_t, Nanoseconds> shortest;  // by reduction
  for (const Span& span : timeline.spans) {
    if (!counts(span)) continue;
    const auto [least, fresh] = shortest.try_emplace(span.message, span.duration);
    least->second = std::min(least->second, span.duration);
  }
  Seconds sum(0);
  for (const Span& span : timeline.spans) {
    if (span.rank == rank && counts(span)) sum += span.duration - shortest.at(span.message);
  }
  return sum;
}

/// Returns the times of the ranks in steps read from ranges.
std::vector<RankTimes> times_of_ranges(const std::vector<KinetoTrace>& traces,
                                       std::span<const PipelineStep> steps, bool hidden) {
  std::vector<RankTimes> all;
  for (std::size_t t = 0; t < traces.size() && !steps.empty(); ++t) {
    const std::int32_t rank = *traces[t].rank;
    Seconds compute(0);
    Seconds idle(0);
    Seconds wait(0);
    Seconds time(0);
    for (const PipelineStep& step : steps) {
      const Timeline& timeline = step.timeline;
      const auto group = std::ranges::find(timeline.groups, rank, &GroupUsage::first_rank);
      compute += group->busy;
      idle += group->bubble;
      time += timeline.makespan;
      wait += waited(timeline, rank, hidden);
    }
    if (time.count() <= 0 || compute.count() <= 0) continue;
    all.push_back({t, compute.count() / static_cast<double>(steps.size()), idle / time, wait / time});
  }
  return all;
}

bool has_activities(const std::vector<KinetoTrace>& traces) {
  return std::ranges::any_of(traces, [](const KinetoTrace& trace) { return !trace.activities.empty(); });
}

/// Returns the times of the ranks that have activities or, if none has, of the ranges of all; none if ranks
/// do different work.
std::vector<RankTimes> times_of(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks,
                                const std::vector<PipelineStep>& steps, bool hidden = false) {
  if (why_not_compared(traces)) return {};
  if (!has_activities(traces)) return times_of_ranges(traces, steps, hidden);
  std::vector<RankTimes> all;
  for (std::size_t t = 0; t < traces.size(); ++t) {
    const KinetoTrace& trace = traces[t];
    Seconds compute(0);
    Seconds idle(0);
    Seconds time(0);
    const std::vector<KinetoStepUsage> usage = step_usage(trace);
    for (const KinetoStepUsage& step : usage) {
      const Seconds length = step.window.end - step.window.begin;
      compute += Seconds(step.compute);
      idle += Seconds(step.idle);
      time += length;
    }
    if (time.count() <= 0 || compute.count() <= 0) continue;
    const auto count = static_cast<double>(usage.size());
    const Nanoseconds wait =
        hidden ? collective_wait(trace, ranks.shares[t]) : exposed_wait(trace, ranks.shares[t]);
    all.push_back({t, compute.count() / count, idle / time, Seconds(wait) / time});
  }
  return all;
}

double mean_wait(std::vector<RankTimes>::const_iterator begin, std::vector<RankTimes>::const_iterator end) {
  const double sum =
      std::accumulate(begin, end, 0.0, [](double total, const RankTimes& rank) { return total + rank.wait; });
  return sum / static_cast<double>(end - begin);
}

/// Returns the lower median of a member over the ranks.
double median_of(std::vector<RankTimes>::const_iterator begin, std::vector<RankTimes>::const_iterator end,
                 double RankTimes::*member) {
  std::vector<double> values;
  for (auto rank = begin; rank != end; ++rank) values.push_back((*rank).*member);
  return lower_median(std::move(values));
}

/// Returns "rank 3" or "ranks 3, 4 and 7".
std::string ranks_text(const std::vector<std::size_t>& of, const std::vector<KinetoTrace>& traces) {
  std::vector<std::string> names;
  for (const std::size_t trace : of) names.push_back(std::to_string(*traces[trace].rank));
  std::string last;
  if (names.size() > kMaxNamed) {
    last = fmt::format("{} more", names.size() - kMaxNamed);
    names.resize(kMaxNamed);
  } else if (names.size() > 1) {
    last = names.back();
    names.pop_back();
  }
  return fmt::format("{} {}{}", last.empty() ? "rank" : "ranks", fmt::join(names, ", "),
                     last.empty() ? "" : " and " + last);
}

/// Returns the stragglers among ranks with these times: those before `others`.
KinetoStragglers stragglers_before(std::vector<RankTimes>::const_iterator others,
                                   const std::vector<RankTimes>& all) {
  KinetoStragglers stragglers;
  stragglers.others_wait_more = mean_wait(others, all.end()) - all.front().wait;
  stragglers.others = static_cast<std::size_t>(all.end() - others);
  stragglers.median_idle = median_of(all.begin(), all.end(), &RankTimes::idle);
  const double median = median_of(all.begin(), all.end(), &RankTimes::compute_s);
  for (auto rank = all.begin(); rank != others; ++rank)
    stragglers.ranks.push_back({rank->trace, rank->compute_s / median, rank->idle});
  return stragglers;
}

/// Returns find_stragglers() of ranks with these times.
KinetoStragglers stragglers_among(std::vector<RankTimes> all) {
  if (all.size() < 2) return {};
  std::ranges::stable_sort(all, {}, &RankTimes::wait);
  const double half = (all.front().wait + all.back().wait) / 2;
  auto others = std::ranges::find_if(all, [&](const RankTimes& rank) { return rank.wait >= half; });
  // If most ranks wait little, they are the normal ones, unless all wait for one of them.
  const bool most_wait_little = static_cast<std::size_t>(others - all.begin()) > all.size() / 2;
  if (most_wait_little && all[1].wait - all[0].wait < kMinStraggling) return {};
  if (most_wait_little) others = all.begin() + 1;
  if (others == all.begin()) return {};
  KinetoStragglers stragglers = stragglers_before(others, all);
  // If only noise distinguishes the ranks, their waits increase gradually.
  const bool is_gradual = others->wait - std::prev(others)->wait < stragglers.others_wait_more / 2;
  return is_gradual || stragglers.others_wait_more < kMinStraggling ? KinetoStragglers{} : stragglers;
}

}  // namespace

std::optional<std::string> why_not_compared(const std::vector<KinetoTrace>& traces) {
  const auto stages_of = [](const KinetoTrace& trace) {
    std::set<std::int32_t> stages;  // several where a rank runs chunks
    for (const KinetoRange& range : trace.ranges) {
      if (is_compute(range.kind)) stages.insert(range.stage);
    }
    return stages;
  };
  const std::set<std::int32_t> stages = stages_of(traces.front());
  if (std::ranges::any_of(traces, [&](const KinetoTrace& trace) { return stages_of(trace) != stages; }))
    return "the ranks have ranges of different stages";
  const auto is_message = [](const KinetoCollective& c) { return c.source || c.destination; };
  for (const KinetoTrace& trace : traces) {
    if (std::ranges::any_of(trace.collectives, is_message) || (!stages.empty() && !trace.messages.empty()))
      return "the ranks send each other messages";
  }
  return std::nullopt;
}

KinetoStragglers find_stragglers(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks,
                                 const std::vector<PipelineStep>& steps, bool hidden) {
  KinetoStragglers stragglers = stragglers_among(times_of(traces, ranks, steps, hidden));
  stragglers.hidden = hidden;
  return stragglers;
}

KinetoStragglers stragglers_of(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks,
                               const std::vector<PipelineStep>& steps, const KinetoStragglers& found,
                               const std::vector<std::size_t>& kept) {
  std::vector<RankTimes> all = times_of(traces, ranks, steps, found.hidden);
  std::ranges::stable_sort(all, {}, &RankTimes::wait);
  const auto others = std::stable_partition(all.begin(), all.end(), [&](const RankTimes& rank) {
    return std::ranges::count(kept, rank.trace) > 0;
  });
  KinetoStragglers stragglers = stragglers_before(others, all);
  stragglers.hidden = found.hidden;
  return stragglers;
}

std::string describe(const KinetoStragglers& stragglers, std::size_t index,
                     const std::vector<KinetoTrace>& traces) {
  constexpr double kLonger = 1.05;
  const KinetoStraggler& own = stragglers.ranks[index];
  const std::size_t count = stragglers.ranks.size();
  std::string text =
      fmt::format("rank {} computes {:.2f} x the median", *traces[own.trace].rank, own.compute_ratio);
  if (own.compute_ratio < kLonger) {
    text += fmt::format(", and its device idles {:.1f} % of its steps (median {:.1f} %)", 100 * own.idle,
                        100 * stragglers.median_idle);
  }
  const double waits = 100 * stragglers.others_wait_more;
  text += stragglers.others == 1 ? fmt::format("; the other rank waits {:.1f} % of its steps for it", waits)
                                 : fmt::format("; the other {} ranks wait {:.1f} % of their steps for it",
                                               stragglers.others, waits);
  if (stragglers.hidden) text += ", also behind their own compute";
  if (count == 1) return text;
  std::vector<std::size_t> beside;
  for (std::size_t k = 0; k < count; ++k) {
    if (k != index) beside.push_back(stragglers.ranks[k].trace);
  }
  return text + " and " + ranks_text(beside, traces);
}

std::optional<KinetoWaiting> find_waiting(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks,
                                          const std::vector<PipelineStep>& steps) {
  const std::vector<RankTimes> all = times_of(traces, ranks, steps);
  if (all.size() < 2) return std::nullopt;
  KinetoWaiting waiting;
  const auto most = std::ranges::max_element(all, {}, &RankTimes::wait);
  const double median = median_of(all.begin(), all.end(), &RankTimes::compute_s);
  std::vector<RankTimes> waiters;
  for (const RankTimes& rank : all) {
    if (rank.wait >= most->wait / 2) waiters.push_back(rank);
  }
  const bool few_wait = waiters.size() <= all.size() / 2;
  const std::vector<RankTimes>& who = few_wait ? waiters : all;
  waiting.waits = mean_wait(who.begin(), who.end());
  if (waiting.waits < kMinStraggling) return std::nullopt;
  if (few_wait) {
    for (const RankTimes& rank : waiters)
      waiting.ranks.push_back({rank.trace, rank.compute_s / median, rank.idle});
    return waiting;
  }
  std::map<std::int64_t, std::vector<RankTimes>> by_step;
  if (!has_activities(traces)) {
    for (const PipelineStep& step : steps)
      by_step[step.number] = times_of_ranges(traces, std::span(&step, 1), false);
  }
  for (const RankTimes& rank : all) {
    const KinetoTrace& trace = traces[rank.trace];
    for (const KinetoWindow& window : device_windows(trace)) {
      const Nanoseconds length = window.end - window.begin;
      if (window.step < 0 || length.count() <= 0) continue;
      RankTimes step{.trace = rank.trace};
      step.wait = Seconds(exposed_wait(trace, ranks.shares[rank.trace], window.step)) / Seconds(length);
      by_step[trace.steps[window.step].number].push_back(step);
    }
  }
  for (auto& [number, step] : by_step) {
    if (step.size() < all.size()) continue;
    std::ranges::stable_sort(step, {}, &RankTimes::wait);
    if (step[1].wait - step[0].wait >= kMinStraggling)
      waiting.late_rank.emplace_back(number, step.front().trace);
  }
  return waiting;
}

std::string describe(const KinetoWaiting& waiting, const std::vector<KinetoTrace>& traces) {
  if (!waiting.ranks.empty()) {
    std::vector<std::size_t> who;
    std::vector<double> ratios;
    for (const KinetoStraggler& rank : waiting.ranks) {
      who.push_back(rank.trace);
      ratios.push_back(rank.compute_ratio);
    }
    const bool one = who.size() == 1;
    return fmt::format(
        "{} wait{} {:.1f} % of {} steps for the others, and for no single one of them; {} compute{} {:.2f} x "
        "the median",
        ranks_text(who, traces), one ? "s" : "", 100 * waiting.waits, one ? "its" : "their",
        one ? "it" : "they", one ? "s" : "", lower_median(std::move(ratios)));
  }
  std::string text =
      fmt::format("the ranks wait {:.1f} % of their steps for each other, and no single rank is behind it",
                  100 * waiting.waits);
  for (std::size_t k = 0; k < waiting.late_rank.size() && k < kMaxNamed; ++k) {
    const auto& [step, trace] = waiting.late_rank[k];
    text += fmt::format("{} rank {} in step {}", k == 0 ? ": they wait for" : ",", *traces[trace].rank, step);
  }
  return text + (waiting.late_rank.size() > kMaxNamed ? ", ..." : "");
}

}  // namespace dflop
