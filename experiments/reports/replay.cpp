#include "experiments/reports/replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace dflop {
namespace {

/// What run `k` comes to over all iterations.
struct RunSummary {
  Seconds mean{0};
  Seconds p95{0};  ///< nearest rank
  double idle_fraction = 0;
  Bytes peak_memory;
  bool memory = true;  ///< known
};

RunSummary summarize(const Replays& replays, std::size_t k) {
  RunSummary summary;
  std::vector<Seconds> times;
  const auto count = static_cast<double>(replays.size());
  for (const std::vector<ReplayRun>& runs : replays) {
    const Timeline& timeline = runs[k].timeline;
    times.push_back(timeline.makespan);
    summary.mean += times.back() / count;
    summary.idle_fraction += idle_fraction(timeline) * times.back().count() / count;
    summary.peak_memory = std::max(summary.peak_memory, peak_memory(timeline));
    summary.memory = summary.memory && runs[k].memory;
  }
  if (summary.mean.count() > 0) summary.idle_fraction /= summary.mean.count();
  std::sort(times.begin(), times.end());
  summary.p95 = times[static_cast<std::size_t>(std::ceil(0.95 * count)) - 1];
  return summary;
}

/// `after` - `before` as a fraction of `before`; nothing where that is zero.
std::optional<double> relative_difference(Seconds before, Seconds after) {
  if (before.count() == 0) return std::nullopt;
  return (after - before) / before;
}

Cell cell(std::optional<double> value) {
  return value ? Cell(*value) : Cell();
}

/// The largest difference of one iteration, as a fraction of what it is compared with.
std::optional<double> largest_difference(const Replays& replays, std::size_t k, std::size_t base) {
  std::optional<double> largest;
  for (const std::vector<ReplayRun>& runs : replays) {
    const auto difference = relative_difference(runs[base].timeline.makespan, runs[k].timeline.makespan);
    if (difference && (!largest || std::abs(*difference) > std::abs(*largest))) largest = difference;
  }
  return largest;
}

/// The replay beside the recording (its error), each what-if beside the replay.
Table run_table(const Replays& replays) {
  const bool several = replays.size() > 1;
  Table table;
  table.columns = {{"run", "run"},
                   {"makespan_s", "makespan s", 6},
                   {"compared_with", "against"},
                   {"difference_s", "difference s", 6},
                   {"difference", "%", 3, 100},
                   {"idle_fraction", "idle %", 1, 100},
                   {"peak_memory_bytes", "peak GiB", 3, 0x1p-30}};
  if (several) {
    table.columns.push_back({"makespan_s_p95", "p95 s", 6});
    table.columns.push_back({"difference_most", "most %", 3, 100});
  }
  for (std::size_t k = 0; k < replays.front().size(); ++k) {
    const RunSummary summary = summarize(replays, k);
    std::vector<Cell> row = {replays.front()[k].name, summary.mean.count(), std::string("-"), Cell{}, Cell{}};
    const std::size_t base = k > 1 ? 1 : 0;
    if (k > 0) {
      const Seconds before = summarize(replays, base).mean;
      row[2] = replays.front()[base].name;
      row[3] = (summary.mean - before).count();
      row[4] = cell(relative_difference(before, summary.mean));
    }
    row.emplace_back(summary.idle_fraction);
    row.push_back(summary.memory ? Cell(summary.peak_memory.count) : Cell());
    if (several) {
      row.emplace_back(summary.p95.count());
      row.push_back(k > 0 ? cell(largest_difference(replays, k, base)) : Cell{});
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

/// How each group of the first replayed iteration spent it, recorded and replayed.
Table group_table(const std::vector<ReplayRun>& runs) {
  Table table;
  table.columns = {{"stage", "stage"}, {"dp_rank", "dp"}, {"first_rank", "rank"}};
  for (const ReplayRun* run : {&runs[0], &runs[1]}) {
    for (const char* share : {"busy", "bubble", "wait"}) {
      table.columns.push_back(
          {fmt::format("{}_{}_s", run->name, share), fmt::format("{} {} s", run->name, share), 6});
    }
  }
  const Timeline& recorded = runs[0].timeline;
  for (std::size_t g = 0; g < recorded.groups.size(); ++g) {
    const GroupUsage& group = recorded.groups[g];
    std::vector<Cell> row = {recorded.stages[group.stage], static_cast<std::int64_t>(group.dp_rank),
                             static_cast<std::int64_t>(group.first_rank)};
    for (const Timeline* timeline : {&recorded, &runs[1].timeline}) {
      const GroupUsage& usage = timeline->groups[g];
      for (const Nanoseconds time : {usage.busy, usage.bubble, usage.wait}) {
        row.emplace_back(Seconds(time).count());
      }
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table price_table(const PricedParts& parts) {
  Table table;
  table.columns = {
      {"parts", "parts"}, {"recorded", "recorded"}, {"by_shape", "by shape"}, {"scaled", "scaled"}};
  const auto add = [&](const std::string& name, const PriceSources& sources) {
    table.rows.push_back({name, sources.exact, sources.by_shape, sources.scaled});
  };
  add("instructions", parts.instructions);
  add("messages", parts.messages);
  add("collectives", parts.collectives);
  return table;
}

}  // namespace

void print_replays(Format format, const Replays& replays, const PricedParts* prices,
                   const std::optional<Table>& distribution) {
  const Table runs = run_table(replays);
  const Table groups = group_table(replays.front());
  switch (format) {
    case Format::table:
      fmt::print("{}", to_text(runs, terminal_width()));
      if (distribution) {
        fmt::print("\nmakespans of all runs of the last row:\n\n{}",
                   to_text(*distribution, terminal_width()));
      }
      if (prices != nullptr) {
        fmt::print("\nprices of the other plan:\n\n{}", to_text(price_table(*prices), terminal_width()));
      }
      fmt::print("\nfirst replayed iteration, by tp group:\n\n{}", to_text(groups, terminal_width()));
      break;
    case Format::json: {
      nlohmann::ordered_json out = nlohmann::ordered_json::object();
      out["iterations"] = replays.size();
      out["runs"] = json_of(runs);
      if (distribution) {
        out["distribution"] = json_of(*distribution)[0];
      }
      if (prices != nullptr) out["prices"] = json_of(price_table(*prices));
      out["groups"] = json_of(groups);
      fmt::print("{}\n", out.dump(2));
      break;
    }
    case Format::csv:
      fmt::print("{}", to_csv(distribution ? *distribution : runs));
  }
}

}  // namespace dflop
