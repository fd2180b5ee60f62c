#include "traces/profiler/ranks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace dflop {
namespace {

using End = KinetoExchange::End;

/// Returns a key that identifies a process group.
std::string group_key(const KinetoCollective& c) {
  return fmt::format("{}|{}|{}", c.group, c.group_size, fmt::join(c.ranks, ","));
}

/// Returns a key that an exchange has on all its ranks, or nothing if the trace lacks the data. `rank` is the
/// trace's own.
std::optional<std::string> exchange_key(const KinetoTrace& trace, const KinetoCollective& c) {
  if (c.source || c.destination) {
    if (!trace.rank) return std::nullopt;
    // Each rank counts the messages of a group separately, so their sequence numbers need not agree.
    const std::int32_t step = trace.activities[c.activity].step;
    return fmt::format("{}|{}>{}|step {}", group_key(c), c.source.value_or(*trace.rank),
                       c.destination.value_or(*trace.rank), step < 0 ? -1 : trace.steps[step].number);
  }
  if (!c.sequence || (c.group.empty() && c.ranks.empty())) return std::nullopt;
  return fmt::format("{}|{}", group_key(c), *c.sequence);
}

/// Matches exchanges with recorded sequence numbers; puts the others into `rest`, by group and name.
std::map<std::string, KinetoExchange> join_recorded(const std::vector<KinetoTrace>& traces,
                                                    std::map<std::string, std::vector<End>>& rest) {
  std::map<std::string, KinetoExchange> exchanges;
  for (std::size_t t = 0; t < traces.size(); ++t) {
    std::map<std::string, int> seen;  // several kernels of one sequence number, or messages of one step
    for (std::size_t i = 0; i < traces[t].collectives.size(); ++i) {
      const KinetoCollective& c = traces[t].collectives[i];
      if (const auto key = exchange_key(traces[t], c)) {
        KinetoExchange& exchange = exchanges[fmt::format("{}|{}", *key, seen[*key]++)];
        exchange.recorded = true;
        exchange.ends.push_back({t, i});
      } else {
        rest[group_key(c) + '|' + c.name].push_back({t, i});
      }
    }
  }
  return exchanges;
}

const KinetoActivity& activity_of(const std::vector<KinetoTrace>& traces, const End& end) {
  const KinetoTrace& trace = traces[end.trace];
  return trace.activities[trace.collectives[end.collective].activity];
}

/// Matches kernels of one name in the order of their ends: each exchange takes the next kernel if it is on
/// another rank and began before the exchange's first end.
void join_by_time(const std::vector<KinetoTrace>& traces, std::vector<End> ends,
                  std::vector<KinetoExchange>& exchanges) {
  const auto absolute_end = [&](const End& e) { return traces[e.trace].base + activity_of(traces, e).end(); };
  std::sort(ends.begin(), ends.end(), [&](const End& a, const End& b) {
    return std::tuple(absolute_end(a), a.trace, a.collective) <
           std::tuple(absolute_end(b), b.trace, b.collective);
  });
  KinetoExchange* open = nullptr;
  for (const End& end : ends) {
    const auto same_rank = [&](const End& other) { return other.trace == end.trace; };
    const bool joins =
        open != nullptr &&
        traces[end.trace].base + activity_of(traces, end).start < absolute_end(open->ends[0]) &&
        std::none_of(open->ends.begin(), open->ends.end(), same_rank);
    if (!joins) open = &exchanges.emplace_back();
    open->ends.push_back(end);
  }
}

Nanoseconds median(std::vector<Nanoseconds> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Returns the number that occurs in more than half of them; nothing if there is none.
std::optional<std::int64_t> majority(const std::vector<std::int64_t>& numbers) {
  std::map<std::int64_t, std::size_t> counts;
  for (const std::int64_t number : numbers) {
    if (2 * ++counts[number] > numbers.size()) return number;
  }
  return std::nullopt;
}

/// Matches all communication: by recorded sequence numbers, otherwise by time.
std::vector<KinetoExchange> join(const std::vector<KinetoTrace>& traces) {
  std::vector<KinetoExchange> exchanges;
  std::map<std::string, std::vector<End>> rest;
  for (auto& [key, exchange] : join_recorded(traces, rest)) exchanges.push_back(std::move(exchange));
  for (auto& [key, ends] : rest) join_by_time(traces, std::move(ends), exchanges);
  return exchanges;
}

/// Returns by how much `trace` numbers steps higher than aligned ranks, for each shared exchange.
std::vector<std::int64_t> number_differences(const std::vector<KinetoTrace>& traces,
                                             const std::vector<KinetoExchange>& exchanges,
                                             const std::vector<std::optional<std::int64_t>>& shifts,
                                             std::size_t trace) {
  std::vector<std::int64_t> differences;
  for (const KinetoExchange& exchange : exchanges) {
    std::optional<std::int64_t> own;
    std::optional<std::int64_t> other;
    for (const End& end : exchange.ends) {
      const KinetoCollective& c = traces[end.trace].collectives[end.collective];
      const std::int32_t step = activity_of(traces, end).step;
      if (step < 0 || c.source || c.destination) continue;  // messages are matched by step number
      const std::int64_t number = traces[end.trace].steps[step].number;
      if (end.trace == trace) own = number;
      if (!other && shifts[end.trace]) other = number - *shifts[end.trace];
    }
    if (own && other) differences.push_back(*own - *other);
  }
  return differences;
}

/// Returns how far the ends of `trace` are from the ends of aligned ranks, at most once for each exchange.
std::vector<Nanoseconds> end_differences(const std::vector<KinetoTrace>& traces,
                                         const std::vector<KinetoExchange>& exchanges,
                                         const std::vector<KinetoClock>& clocks,
                                         const std::vector<bool>& aligned, std::size_t trace) {
  std::vector<Nanoseconds> differences;
  for (const KinetoExchange& exchange : exchanges) {
    const End* own = nullptr;
    const End* other = nullptr;
    for (const End& end : exchange.ends) {
      if (end.trace == trace) own = &end;
      if (other == nullptr && end.trace != trace && aligned[end.trace]) other = &end;
    }
    if (own == nullptr || other == nullptr) continue;
    differences.push_back(
        (traces[trace].base + activity_of(traces, *own).end()) -
        (traces[other->trace].base + activity_of(traces, *other).end() - clocks[other->trace].offset));
  }
  return differences;
}

std::vector<KinetoClock> estimate_clocks(const std::vector<KinetoTrace>& traces,
                                         const std::vector<KinetoExchange>& exchanges) {
  std::vector<KinetoClock> clocks(traces.size());
  std::vector<bool> aligned(traces.size(), false);
  if (!traces.empty()) aligned[0] = true;
  // Not all ranks share a group with the first rank, so ranks aligned in one round are used in the next.
  for (bool progress = true; progress;) {
    progress = false;
    for (std::size_t t = 0; t < traces.size(); ++t) {
      if (aligned[t]) continue;
      std::vector<Nanoseconds> differences = end_differences(traces, exchanges, clocks, aligned, t);
      if (differences.empty()) continue;
      clocks[t].matches = differences.size();
      clocks[t].offset = median(differences);
      for (Nanoseconds& d : differences) d = std::chrono::abs(d - clocks[t].offset);
      clocks[t].spread = median(differences);
      aligned[t] = true;
      progress = true;
    }
  }
  return clocks;
}

}  // namespace

void align_steps(std::vector<KinetoTrace>& traces) {
  if (traces.size() < 2) return;
  const std::vector<KinetoExchange> exchanges = join(traces);
  std::vector<std::optional<std::int64_t>> shifts(traces.size());
  shifts[0] = 0;
  for (bool progress = true; progress;) {
    progress = false;
    for (std::size_t t = 0; t < traces.size(); ++t) {
      if (shifts[t]) continue;
      const std::vector<std::int64_t> differences = number_differences(traces, exchanges, shifts, t);
      if (differences.empty()) continue;
      shifts[t] = majority(differences).value_or(0);
      progress = true;
    }
  }
  std::map<std::int64_t, std::size_t> ranks_of;  // by shift
  for (const std::optional<std::int64_t>& shift : shifts) {
    if (shift) ++ranks_of[*shift];
  }
  const std::int64_t usual =
      std::ranges::max_element(ranks_of, {}, [](const auto& entry) { return entry.second; })->first;
  for (std::size_t t = 0; t < traces.size(); ++t) {
    if (!shifts[t]) continue;
    traces[t].renumbered = *shifts[t] - usual;
    for (KinetoStep& step : traces[t].steps) step.number -= traces[t].renumbered;
  }
}

KinetoRanks compare_ranks(const std::vector<KinetoTrace>& traces) {
  KinetoRanks ranks;
  ranks.exchanges = join(traces);
  ranks.clocks = estimate_clocks(traces, ranks.exchanges);

  ranks.origin = Nanoseconds::max();
  for (std::size_t t = 0; t < traces.size(); ++t) {
    ranks.origin = std::min(ranks.origin, traces[t].base - ranks.clocks[t].offset);
    ranks.shares.emplace_back(traces[t].collectives.size());
  }
  for (std::size_t e = 0; e < ranks.exchanges.size(); ++e) {
    const KinetoExchange& exchange = ranks.exchanges[e];
    Nanoseconds shortest = Nanoseconds::max();
    for (const End& end : exchange.ends) shortest = std::min(shortest, activity_of(traces, end).duration);
    for (const End& end : exchange.ends) {
      KinetoShare& share = ranks.shares[end.trace][end.collective];
      share.exchange = e;
      if (exchange.ends.size() > 1) share.transfer = shortest;
    }
  }
  return ranks;
}

}  // namespace dflop
