#include "experiments/studies/what_if.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <string_view>

#include "core/error.hpp"
#include "core/support/parallel.hpp"
#include "experiments/cli/progress.hpp"
#include "experiments/cli/say.hpp"
#include "sim/engine.hpp"
#include "sim/perturbation.hpp"

namespace dflop {
namespace {

namespace po = boost::program_options;

constexpr int kMostRepeats = 1'000'000;
constexpr int kMostCores = 1 << 20;
constexpr double kMostFactor = 1e6;
constexpr double kMostSeconds = 1e6;
constexpr double kMostJitter = 3;
constexpr std::uint64_t kJitterStream = 0x6a697474'65720000;

[[noreturn]] void refuse(const std::string& option, const std::string& expected, const std::string& found) {
  throw Error(ErrorKind::usage,
              fmt::format("option '--{}': expected {}, found '{}'", option, expected, found));
}

/// Reads "rank=3:1.5:0.2" piece by piece.
class SelectorText {
 public:
  SelectorText(const std::string& option, const std::string& form, const std::string& text)
      : option_(option), form_(form), text_(text), rest_(text) {}

  bool take(std::string_view word) {
    if (rest_.substr(0, word.size()) != word) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  void expect(std::string_view word) {
    if (!take(word)) fail();
  }
  int index() { return number<int>(0, 1 << 20); }
  double number_in(double least, double most) { return number<double>(least, most); }
  bool at_end() const { return rest_.empty(); }
  void expect_end() const {
    if (!at_end()) fail();
  }
  [[noreturn]] void fail() const { refuse(option_, form_, text_); }

 private:
  template <typename Number>
  Number number(Number least, Number most) {
    Number value{};
    const auto [end, problem] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (problem != std::errc() || !(value >= least && value <= most)) fail();
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }

  const std::string& option_;
  const std::string& form_;
  const std::string& text_;
  std::string_view rest_;
};

std::vector<std::string> texts(const Values& values, const std::string& option) {
  return values.count(option) > 0 ? values[option].as<std::vector<std::string>>()
                                  : std::vector<std::string>{};
}

std::vector<Affected> read_affected(const Values& values, const std::string& option, double least,
                                    double most) {
  const std::string form =
      fmt::format("rank=R:FACTOR or stage=S:FACTOR, a factor from {} to {}", least, most);
  std::vector<Affected> all;
  for (const std::string& text : texts(values, option)) {
    SelectorText selector(option, form, text);
    Affected affected;
    affected.stage = selector.take("stage=");
    if (!affected.stage) selector.expect("rank=");
    affected.index = selector.index();
    selector.expect(":");
    affected.factor = selector.number_in(least, most);
    selector.expect_end();
    all.push_back(affected);
  }
  return all;
}

void read_pauses(const Values& values, const std::string& option, std::vector<PausedRank>& pauses) {
  const bool fails = option == "fail";
  const std::string form = fails ? "rank=R:SECONDS" : "rank=R:START:DURATION in seconds";
  for (const std::string& text : texts(values, option)) {
    SelectorText selector(option, form, text);
    PausedRank pause;
    selector.expect("rank=");
    pause.rank = selector.index();
    selector.expect(":");
    pause.start = Seconds(selector.number_in(0, kMostSeconds));
    if (!fails) {
      selector.expect(":");
      pause.duration = Seconds(selector.number_in(0, kMostSeconds));
    }
    selector.expect_end();
    pauses.push_back(pause);
  }
}

std::optional<NetworkModel> read_network(const Values& values) {
  const auto name = read_text(values, "network");
  if (!name) return std::nullopt;
  if (*name == "none") return NetworkModel::none;
  if (*name == "latency-bandwidth") return NetworkModel::latency_bandwidth;
  if (*name == "contention") return NetworkModel::contention;
  refuse("network", "none, latency-bandwidth or contention", *name);
}

std::optional<LeafSwitches> read_leaf(const Values& values) {
  const auto text = read_text(values, "leaf");
  if (!text) return std::nullopt;
  const std::string option = "leaf";
  const std::string form = "NODES:OVERSUBSCRIPTION, nodes from 1 and an oversubscription from 1 to 1000";
  SelectorText selector(option, form, *text);
  LeafSwitches leaf;
  leaf.nodes = selector.index();
  selector.expect(":");
  leaf.oversubscription = selector.number_in(1, 1000);
  selector.expect_end();
  if (leaf.nodes == 0) selector.fail();
  return leaf;
}

void require_rank(const Program& program, const std::string& option, int rank) {
  if (rank < program.ranks()) return;
  refuse(option, fmt::format("a rank from 0 to {}", program.ranks() - 1), fmt::format("rank={}", rank));
}

/// Per group the worst of its ranks' factors, which sets its pace: `worse` chooses between two. Factors of
/// one rank multiply; they are bounded, so that many cannot underflow or overflow.
template <typename Worse>
std::vector<double> factors(const Program& program, const std::string& option,
                            const std::vector<Affected>& affected, Worse worse) {
  std::vector<double> of_rank(program.ranks(), 1);
  for (const Affected& a : affected) {
    if (!a.stage) {
      require_rank(program, option, a.index);
      of_rank[a.index] *= a.factor;
      continue;
    }
    if (static_cast<std::size_t>(a.index) >= program.stages.size()) {
      refuse(option, fmt::format("a stage from 0 to {}", program.stages.size() - 1),
             fmt::format("stage={}", a.index));
    }
    for (const Group& group : program.groups) {
      if (group.stage != a.index) continue;
      for (int r = 0; r < group.ranks; ++r) of_rank[group.first_rank + r] *= a.factor;
    }
  }
  for (const double product : of_rank) {
    // A rounded product of 1e-3 and 1e-3 may be a little below 1e-6.
    if (product >= 0.999 / kMostFactor && product <= 1.001 * kMostFactor) continue;
    refuse(option, fmt::format("factors from {} to {}, multiplied on a rank", 1 / kMostFactor, kMostFactor),
           fmt::format("{:g}", product));
  }
  std::vector<double> of_group;
  for (const Group& group : program.groups) {
    const auto begin = of_rank.begin() + group.first_rank;
    of_group.push_back(std::accumulate(begin, begin + group.ranks, *begin, worse));
  }
  return of_group;
}

std::vector<Pause> pauses_of(const Program& program, const std::vector<PausedRank>& ranks) {
  std::vector<Pause> pauses;
  for (const PausedRank& paused : ranks) {
    require_rank(program, paused.duration ? "pause" : "fail", paused.rank);
    pauses.push_back({group_of_rank(program, paused.rank), to_nanoseconds(paused.start),
                      paused.duration ? to_nanoseconds(*paused.duration) : Pause::kForever});
  }
  std::stable_sort(pauses.begin(), pauses.end(),
                   [](const Pause& a, const Pause& b) { return a.start < b.start; });
  return pauses;
}

/// What stands where in a run that did not end.
Table stall_table(const Timeline& timeline) {
  Table table;
  table.columns = {{"rank", "rank"},          {"stage", "stage"},  {"op", "in"}, {"microbatch", "microbatch"},
                   {"since_s", "since s", 4}, {"reason", "reason"}};
  for (const Stall& stall : timeline.stalls) {
    const bool computes = is_compute(stall.op) || stall.op == Op::optimizer_step;
    const std::string reason = stall.failed ? "failed"
                               : computes   ? "waits for a core"
                               : stall.awaited_rank >= 0
                                   ? fmt::format("waits for rank {}", stall.awaited_rank)
                                   : "waits for the other participants";
    table.rows.push_back({static_cast<std::int64_t>(stall.rank), timeline.stages[stall.stage],
                          std::string(to_string(stall.op)),
                          stall.microbatch < 0 ? Cell() : Cell(static_cast<std::int64_t>(stall.microbatch)),
                          Seconds(stall.since).count(), reason});
  }
  return table;
}

/// How long a run takes at most: everything in it one after the other.
Seconds longest(const ProgramCosts& costs, const Conditions& conditions) {
  Seconds sum(0);
  for (const Nanoseconds duration : costs.instruction) sum += duration;
  for (const Pause& pause : conditions.pauses) {
    sum += Seconds(pause.start) + (pause.duration == Pause::kForever ? Seconds(0) : Seconds(pause.duration));
  }
  if (conditions.network == nullptr) {
    for (const Nanoseconds duration : costs.message) sum += duration;
    for (const Nanoseconds duration : costs.collective) sum += duration;
    return sum;
  }
  for (const TransferPhase& phase : conditions.network->phases) {
    sum += phase.latency;
    if (phase.bytes > 0) {
      sum += Seconds(phase.bytes / conditions.network->routes[phase.route].most_bytes_per_s);
    }
  }
  return sum;
}

/// The engine counts nanoseconds in 64 bits.
void require_countable(const ProgramCosts& costs, const Conditions& conditions) {
  const Seconds most = longest(costs, conditions);
  if (most <= kLongestRun) return;
  throw Error(ErrorKind::usage,
              fmt::format("conditions: expected a run of at most {:g} s, found durations of {:g} s together",
                          kLongestRun.count(), most.count()));
}

}  // namespace

void WhatIf::apply(ClusterSpec& cluster) const {
  if (collectives) cluster.collectives = *collectives;
  if (leaf) cluster.leaf = *leaf;
}

ConditionedProgram::ConditionedProgram(const WhatIf& what_if, const Program& program, ProgramCosts costs,
                                       NetworkModel model, const NetworkMaker& make_network, int cores)
    : what_if_(what_if), program_(program), costs_(std::move(costs)) {
  const std::vector<double> slower =
      factors(program, "slow", what_if.slow, [](double a, double b) { return std::max(a, b); });
  for (std::size_t g = 0; g < slower.size(); ++g) {
    if (slower[g] != 1) slow_down(costs_, program, static_cast<std::int32_t>(g), slower[g]);
  }
  const std::vector<double> bandwidth =
      factors(program, "slow-link", what_if.slow_links, [](double a, double b) { return std::min(a, b); });
  conditions_.pauses = pauses_of(program, what_if.pauses);
  conditions_.cores = what_if.cores.value_or(cores);
  if (model == NetworkModel::contention) {
    network_ = make_network(bandwidth);
    conditions_.network = &*network_;
  } else if (model == NetworkModel::none) {
    free_communication(costs_);
  } else if (!what_if.slow_links.empty()) {
    slow_links(costs_, program, bandwidth);
  }
  require_countable(costs_, conditions_);
}

ProgramCosts ConditionedProgram::costs(std::uint64_t run) const {
  ProgramCosts costs = costs_;
  if (what_if_.jitter > 0) {
    Random random(what_if_.seed, kJitterStream + run);
    add_jitter(costs, what_if_.jitter, random);
    require_countable(costs, conditions_);
  }
  return costs;
}

Timeline ConditionedProgram::run(std::uint64_t run, Detail detail) const {
  if (what_if_.jitter == 0) return simulate(program_, costs_, detail, conditions_);
  return simulate(program_, costs(run), detail, conditions_);
}

void add_what_if_options(Options& options) {
  const auto several = [](const char* form) {
    return po::value<std::vector<std::string>>()->value_name(form)->composing();
  };
  options.add_options()  //
      ("network", po::value<std::string>()->value_name("NAME"),
       "none (communication takes no time), latency-bandwidth (each message and collective as with nothing "
       "else on the links), contention (max-min fair shares)")  //
      ("slow", several("rank=R:F"),
       "compute of a rank, or with stage=S:F of a stage, takes F times as long; "
       "may be given several times, as the next three")                                         //
      ("slow-link", several("rank=R:F"), "its links have F times their bandwidth, 0 < F <= 1")  //
      ("pause", several("rank=R:T:D"), "the rank computes nothing for D seconds from T on")     //
      ("fail", several("rank=R:T"),
       "the rank fails after T seconds; the result says who stalls, exit code 3")  //
      ("cores", po::value<std::int64_t>()->value_name("N"),
       "so many ranks compute at a time and the others wait for their turn, as in 'dflop train --cores'; 0: "
       "every rank when it likes; default: as in the recording, else 0")  //
      ("jitter", po::value<double>()->value_name("S")->default_value(0, "0"),
       "multiply the duration of every computation by a log-normal factor of mean 1 and this sigma")  //
      ("repeat", po::value<std::int64_t>()->value_name("K")->default_value(1),
       "run K times and print the distribution of iteration times, of the runs that end")  //
      ("seed", po::value<std::int64_t>()->value_name("N")->default_value(1), "of the jitter");
}

void add_cluster_what_if_options(Options& options) {
  options.add_options()  //
      ("collectives", po::value<std::string>()->value_name("NAME"),
       "gradient reduction over nodes: hierarchical, ring, tree or fastest; default: as the cluster says")  //
      ("leaf", po::value<std::string>()->value_name("NODES:X"),
       "with contention: leaf switches over so many nodes, oversubscribed X times; default: as the cluster "
       "says");
}

WhatIf read_what_if(const Values& values) {
  WhatIf what_if;
  what_if.network = read_network(values);
  if (values.count("collectives") > 0) {
    const auto name = values["collectives"].as<std::string>();
    what_if.collectives = collective_algorithm_from_string(name);
    if (!what_if.collectives) refuse("collectives", "hierarchical, ring, tree or fastest", name);
  }
  what_if.leaf = values.count("leaf") > 0 ? read_leaf(values) : std::nullopt;
  what_if.slow = read_affected(values, "slow", 1 / kMostFactor, kMostFactor);
  what_if.slow_links = read_affected(values, "slow-link", 1 / kMostFactor, 1);
  read_pauses(values, "pause", what_if.pauses);
  read_pauses(values, "fail", what_if.pauses);
  if (values.count("cores") > 0)
    what_if.cores = static_cast<int>(read_integer(values, "cores", 0, kMostCores));
  what_if.jitter = read_number(values, "jitter", 0, kMostJitter);
  what_if.repeat = static_cast<int>(read_integer(values, "repeat", 1, kMostRepeats));
  what_if.seed = read_seed(values);
  return what_if;
}

std::vector<Seconds> run_all(std::size_t count, const std::function<Seconds(std::size_t)>& run) {
  constexpr std::size_t kBlocks = 100;  // steps of the progress bar
  std::vector<Seconds> makespans(count);
  Progress progress("repeating");
  const std::size_t block = (count + kBlocks - 1) / kBlocks;
  for (std::size_t begin = 0; begin < count; begin += block) {
    const std::size_t size = std::min(block, count - begin);
    parallel_for(size, [&](std::size_t i) { makespans[begin + i] = run(begin + i); });
    progress.update(static_cast<std::int64_t>(begin + size), static_cast<std::int64_t>(count));
  }
  return makespans;
}

Seconds time_to_end(const Timeline& timeline) {
  return timeline.stalls.empty() ? Seconds(timeline.makespan) : kNever;
}

Table distribution_table(std::vector<Seconds> makespans) {
  const auto stalled = static_cast<std::int64_t>(std::erase(makespans, kNever));
  std::sort(makespans.begin(), makespans.end());
  const auto count = static_cast<double>(makespans.size());
  const Seconds mean = std::accumulate(makespans.begin(), makespans.end(), Seconds(0)) / count;
  const auto percentile = [&](double p) {  // nearest rank
    return makespans[static_cast<std::size_t>(std::max(std::ceil(p * count), 1.0)) - 1].count();
  };
  Table table{{{"runs", "runs"},
               {"mean_s", "mean s", 4},
               {"p50_s", "p50 s", 4},
               {"p95_s", "p95 s", 4},
               {"p99_s", "p99 s", 4},
               {"least_s", "least s", 4},
               {"most_s", "most s", 4}},
              {{static_cast<std::int64_t>(makespans.size()), mean.count(), percentile(0.50), percentile(0.95),
                percentile(0.99), makespans.front().count(), makespans.back().count()}}};
  if (stalled > 0) {
    table.columns.push_back({"stalled", "stalled"});
    table.rows[0].emplace_back(stalled);
  }
  return table;
}

int report_stall(Format format, const Timeline& timeline, const std::string& run, const std::string& groups) {
  print_table(stall_table(timeline), format);
  say("dflop: {} does not end: {} of {} {} stall\n", run, timeline.stalls.size(), timeline.groups.size(),
      groups);
  return 3;
}

}  // namespace dflop
