#include "experiments/options/conditions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <string_view>

#include "core/error.hpp"
#include "core/support/random.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/cli/value_text.hpp"
#include "experiments/options/batch_options.hpp"
#include "experiments/options/shared_options.hpp"
#include "experiments/studies/what_if/affected.hpp"

namespace dflop {
namespace {

constexpr int kMaxRepeats = 1'000'000;
constexpr int kMaxCores = 1 << 20;
constexpr int kMaxIndex = 1 << 20;  // max index of ranks, stages and nodes
constexpr double kMaxChangeSeconds = 1e6;
constexpr double kMaxJitter = 3;
constexpr std::uint64_t kWhatIfJitterStream = 0x6a697474'65720000;

/// Returns "rank=R:FACTOR or stage=S:FACTOR ...", with `behind` after each selector.
std::string selector_form(std::string_view behind, const WhatIf& what_if) {
  return fmt::format("rank=R:{0} or stage=S:{0} (such as 0 or llm0)", behind) +
         (what_if.takes_roles ? fmt::format(", gpu=worst:{0} or gpu=each:{0}", behind) : "");
}

/// Reads "rank=3", "stage=llm0", "gpu=2" or "gpu=worst", up to the colon after it.
Affected read_selector(ValueText& selector, WhatIf& what_if) {
  Affected affected;
  if (selector.take("stage=")) {
    affected.kind = Affected::Kind::stage;
    if (!selector.starts_with_digit()) affected.label = selector.word_before(":");
  } else if (selector.take("gpu=")) {
    affected.kind = Affected::Kind::gpu;
    if (!selector.starts_with_digit() && !what_if.takes_roles) selector.fail();
    if (!selector.starts_with_digit()) affected.role = from_string<GpuRole>(selector.word_before(":"));
    if (what_if.role && affected.role && what_if.role != affected.role) selector.fail();
    if (affected.role) what_if.role = affected.role;
  } else {
    selector.expect("rank=");
    what_if.names_ranks = true;
  }
  if (affected.label.empty() && !affected.role) affected.index = selector.number(0, kMaxIndex);
  selector.expect(":");
  return affected;
}

std::vector<Affected> read_affected(const Values& values, const std::string& option, double least,
                                    double most, WhatIf& what_if) {
  const std::string form = fmt::format("{}, a factor from {} to {}{}", selector_form("FACTOR", what_if),
                                       least, most, what_if.takes_roles ? "; only one role" : "");
  std::vector<Affected> all;
  for (const std::string& text : read_texts(values, option)) {
    ValueText selector(option, form, text);
    Affected affected = read_selector(selector, what_if);
    affected.factor = selector.number(least, most);
    selector.expect_end();
    all.push_back(affected);
  }
  return all;
}

void read_network(const Values& values, const std::string& option, WhatIf& what_if) {
  what_if.network = read_named<NetworkModel>(values, option);
}

void read_slow(const Values& values, const std::string& option, WhatIf& what_if) {
  const std::vector<Affected> affected = read_affected(values, option, 1 / kMaxFactor, kMaxFactor, what_if);
  const NoteOnce note;
  for (const Affected& one : affected) {
    if (one.factor >= 1) continue;
    say_once(fmt::format(
        "dflop: note: '--{0}' with a factor of {1:g} makes compute faster: it takes {1:g} times as long\n",
        option, one.factor));
  }
  what_if.program_changes.emplace_back([=](const Program& program, ConditionedInputs& inputs) {
    const std::vector<double> slower = factors_of_groups(program, option, affected, inputs.gpu,
                                                         [](double a, double b) { return std::max(a, b); });
    const bool any = std::any_of(slower.begin(), slower.end(), [](double factor) { return factor != 1; });
    if (!any)
      note.say_that(option,
                    "a tp group is as slow as its slowest rank, and every group has a rank with "
                    "factor 1");
    for (std::size_t g = 0; g < slower.size(); ++g) {
      if (slower[g] != 1) slow_down(inputs.costs, program, static_cast<std::int32_t>(g), slower[g]);
    }
  });
}

void read_slow_link(const Values& values, const std::string& option, WhatIf& what_if) {
  const std::vector<Affected> affected = read_affected(values, option, 1 / kMaxFactor, 1, what_if);
  what_if.program_changes.emplace_back([=](const Program& program, ConditionedInputs& inputs) {
    inputs.bandwidth_factor = factors_of_groups(program, option, affected, inputs.gpu,
                                                [](double a, double b) { return std::min(a, b); });
  });
}

/// Reads a selector, :START and, unless the rank fails at that time, :DURATION. If a stage fails, only its
/// first rank does.
void read_pauses(const Values& values, const std::string& option, const std::string& form, bool fails,
                 WhatIf& what_if) {
  for (const std::string& text : read_texts(values, option)) {
    ValueText selector(option, form, text);
    const Affected affected = read_selector(selector, what_if);
    const Nanoseconds start = to_nanoseconds(Seconds(selector.number(0.0, kMaxChangeSeconds)));
    Nanoseconds duration = Pause::kForever;
    if (!fails) {
      selector.expect(":");
      duration = to_nanoseconds(Seconds(selector.number(0.0, kMaxChangeSeconds)));
    }
    selector.expect_end();
    what_if.program_changes.emplace_back([=](const Program& program, ConditionedInputs& inputs) {
      std::vector<int> ranks = ranks_of(program, option, affected, inputs.gpu);
      if (fails && affected.kind == Affected::Kind::stage) ranks.resize(1);
      std::set<std::int32_t> groups;
      for (const int rank : ranks) groups.insert(group_of_rank(program, rank));
      for (const std::int32_t group : groups) inputs.conditions.pauses.push_back({group, start, duration});
    });
  }
}

void read_pause(const Values& values, const std::string& option, WhatIf& what_if) {
  read_pauses(values, option, selector_form("START:DURATION", what_if) + ", in seconds", false, what_if);
}

void read_fail(const Values& values, const std::string& option, WhatIf& what_if) {
  read_pauses(values, option, selector_form("SECONDS", what_if), true, what_if);
}

void read_cores(const Values& values, const std::string& option, WhatIf& what_if) {
  const auto cores = static_cast<int>(read_integer(values, option, 0, kMaxCores));
  what_if.program_changes.emplace_back(
      [=](const Program&, ConditionedInputs& inputs) { inputs.conditions.cores = cores; });
}

void read_jitter(const Values& values, const std::string& option, WhatIf& what_if) {
  const double sigma = read_number(values, option, 0, kMaxJitter);
  if (sigma == 0) return;
  what_if.run_changes.emplace_back([=](ProgramCosts& costs, std::uint64_t seed, std::uint64_t run) {
    Random random(seed, kWhatIfJitterStream + run);
    add_jitter(costs, sigma, random);
  });
}

void read_collectives(const Values& values, const std::string& option, WhatIf& what_if) {
  const auto algorithm = read_named<CollectiveAlgorithm>(values, option);
  what_if.cluster_changes.emplace_back([=](ClusterSpec& cluster) { cluster.collectives = algorithm; });
}

void read_leaf(const Values& values, const std::string& option, WhatIf& what_if) {
  const std::string form = "NODES:OVERSUBSCRIPTION, nodes from 1 and an oversubscription from 1 to 1000";
  const auto text = values[option].as<std::string>();
  ValueText selector(option, form, text);
  LeafSwitches leaf;
  leaf.nodes = selector.number(0, kMaxIndex);
  selector.expect(":");
  leaf.oversubscription = selector.number(1.0, 1000.0);
  selector.expect_end();
  if (leaf.nodes == 0) selector.fail();
  what_if.cluster_changes.emplace_back([=](ClusterSpec& cluster) { cluster.leaf = leaf; });
}

double& inter_node_bandwidth(ClusterSpec& cluster) {
  return cluster.inter_node.bandwidth_bytes_per_s;
}

double& intra_node_bandwidth(ClusterSpec& cluster) {
  return cluster.intra_node.bandwidth_bytes_per_s;
}

double& node_ring_bandwidth(ClusterSpec& cluster) {
  return cluster.software.node_ring_bandwidth_bytes_per_s;
}

/// Reads a unit of bandwidth, optionally after a space. Returns its bytes per second.
double read_unit(ValueText& selector) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  constexpr Unit kUnits[] = {{"Gb/s", 1e9 / 8}, {"Gbit/s", 1e9 / 8}, {"Gbps", 1e9 / 8},    {"GB/s", 1e9},
                             {"GBps", 1e9},     {"Tb/s", 1e12 / 8},  {"Tbit/s", 1e12 / 8}, {"Tbps", 1e12 / 8},
                             {"TB/s", 1e12},    {"TBps", 1e12},      {"Mb/s", 1e6 / 8},    {"MB/s", 1e6},
                             {"B/s", 1}};
  selector.take(" ");
  for (const Unit& unit : kUnits) {
    if (selector.take(unit.name)) return unit.bytes;
  }
  selector.fail();
}

/// Reads a bandwidth such as 400Gb/s or 50GB/s, or x2, a factor on the cluster's bandwidth.
template <double& (*bandwidth_of)(ClusterSpec&)>
void read_link_bandwidth(const Values& values, const std::string& option, WhatIf& what_if) {
  constexpr double kMaxBytesPerS = 1e15;
  const std::string form =
      "a bandwidth, such as 400Gb/s, 3.2Tb/s, 50GB/s or 50e9B/s (also Gbps, Gbit/s), up to 1e15 B/s, or "
      "a factor, such as x2";
  const auto text = values[option].as<std::string>();
  ValueText selector(option, form, text);
  const bool is_factor = selector.take("x");
  double value = selector.number(1 / kMaxFactor, is_factor ? kMaxFactor : kMaxBytesPerS);
  if (!is_factor) {
    value *= read_unit(selector);
    if (value > kMaxBytesPerS) selector.fail();
  }
  selector.expect_end();
  const NoteOnce note;
  what_if.cluster_changes.emplace_back([=](ClusterSpec& cluster) {
    double& bandwidth = bandwidth_of(cluster);
    if (is_factor && bandwidth == 0)
      note.say_that(option, "the cluster has no such limit; a bandwidth, such as 400Gb/s, sets one");
    bandwidth = is_factor ? bandwidth * value : value;
  });
}

/// A Condition is an option of simulated runs. A new condition needs only a row and its reader here: --help,
/// sweeps and the names of replayed rows follow.
struct Condition {
  const char* name;
  ValueKind kind;
  const char* help;
  /// Reads the option, which was given, and adds its effect to the what-if.
  void (*read)(const Values& values, const std::string& option, WhatIf& what_if);
};

/// Returns the conditions that apply to programs.
const auto& program_conditions() {
  static const std::array rows{
      Condition{"network", text("NAME"),
                "network model: none (communication takes no time), latency-bandwidth (each message and "
                "collective as if the links were idle), contention (max-min fair shares of links)",
                read_network},
      Condition{
          "slow", repeatable_text("rank=R:F"),
          "compute of rank R takes F times as long; stage=S:F slows a stage (such as 0 or llm0); factors of one "
          "rank multiply",
          read_slow},
      Condition{"slow-link", repeatable_text("rank=R:F"),
                "links of rank R have F times their bandwidth, 0 < F <= 1; factors of one rank multiply",
                read_slow_link},
      Condition{"pause", repeatable_text("rank=R:T:D"),
                "rank R computes nothing for D seconds from T seconds after the start of each iteration",
                read_pause},
      Condition{
          "fail", repeatable_text("rank=R:T"),
          "rank R fails T seconds after the start of each iteration; stage=S:T fails the first rank of a "
          "stage; the result lists the stalled ranks, exit code 3",
          read_fail},
      Condition{
          "cores", whole("N"),
          "max ranks that compute at a time; the others wait for their turn, as in 'dflop train --cores'; "
          "0: no limit; default: as in the recording, else 0",
          read_cores},
      Condition{"jitter", number("S", 0),
                "multiply the duration of every computation by a log-normal factor with mean 1 and this "
                "sigma",
                read_jitter},
  };
  return rows;
}

/// Returns the conditions for the bandwidths of a cluster's links, which planners use, too.
const auto& link_conditions() {
  static const std::array rows{
      Condition{"inter-node-bandwidth", text("400Gb/s|50GB/s|x2"),
                "achieved bandwidth of a GPU between nodes (less than the line rate), or a multiple of the "
                "cluster's value; default: the cluster's value",
                read_link_bandwidth<inter_node_bandwidth>},
      Condition{
          "intra-node-bandwidth", text("400Gb/s|50GB/s|x2"),
          "achieved bandwidth of a GPU inside a node, or a multiple of the cluster's value; default: the "
          "cluster's value",
          read_link_bandwidth<intra_node_bandwidth>},
      Condition{
          "node-ring-bandwidth", text("400Gb/s|50GB/s|x2"),
          "achieved bandwidth out of a node that all gradient rings with several ranks in the node share, or "
          "a multiple of the cluster's value; default: the cluster's value",
          read_link_bandwidth<node_ring_bandwidth>},
  };
  return rows;
}

/// Returns the conditions that apply to clusters, for plans.
const auto& cluster_conditions() {
  static const std::array rows{
      Condition{
          "collectives", text("NAME"),
          "algorithm of gradient reductions across nodes: hierarchical, ring, tree or fastest; default: "
          "the cluster's",
          read_collectives},
      Condition{"leaf", text("NODES:X"),
                "with --network contention: leaf switches of NODES nodes each, oversubscribed X times; "
                "default: the cluster's",
                read_leaf},
  };
  return rows;
}

void add_options_of(std::span<const Condition> rows, Options& options) {
  for (const Condition& row : rows) options.add(OptionGroup::what_if, {{row.name, row.kind, row.help}});
}

void read_each(std::span<const Condition> rows, const Values& values, WhatIf& what_if) {
  for (const Condition& row : rows) {
    if (values.count(row.name) > 0) row.read(values, row.name, what_if);
  }
}

/// Returns the values of a condition as a user would type them; nothing for a number that is 0.
std::vector<std::string> given(const Condition& condition, const Values& values) {
  const std::string name = condition.name;
  if (values.count(name) == 0) return {};
  using enum ValueKind::Type;
  if (condition.kind.type == whole) return {fmt::format("{}", values[name].as<std::int64_t>())};
  if (condition.kind.type != number) return read_texts(values, name);
  const auto value = values[name].as<double>();
  return value == 0 ? std::vector<std::string>() : std::vector{fmt::format("{}", value)};
}

}  // namespace

void add_what_if_options(Options& options) {
  add_options_of(program_conditions(), options);
  options.add(OptionGroup::what_if,
              {
                  {"repeat", whole("K", 1),
                   "run K times and print the distribution of iteration times of the runs that finish"},
              });
  add_seed_option(options);
}

void add_cluster_what_if_options(Options& options) {
  add_options_of(cluster_conditions(), options);
  add_link_options(options);
}

void add_link_options(Options& options) {
  add_options_of(link_conditions(), options);
}

std::function<void(ClusterSpec&)> read_link_changes(const Values& values) {
  WhatIf links;
  read_each(link_conditions(), values, links);
  return [links](ClusterSpec& cluster) { links.apply(cluster); };
}

std::vector<const char*> link_option_names() {
  std::vector<const char*> names;
  for (const Condition& condition : link_conditions()) names.push_back(condition.name);
  return names;
}

std::vector<const char*> cluster_condition_names() {
  std::vector<const char*> names = link_option_names();
  for (const Condition& condition : cluster_conditions()) names.push_back(condition.name);
  return names;
}

WhatIf read_what_if(const Values& values, bool with_roles) {
  WhatIf what_if;
  what_if.takes_roles = with_roles;
  read_each(program_conditions(), values, what_if);
  read_each(cluster_conditions(), values, what_if);
  read_each(link_conditions(), values, what_if);
  what_if.repeat = static_cast<int>(read_integer(values, "repeat", 1, kMaxRepeats));
  what_if.seed = read_seed(values);
  return what_if;
}

std::string conditions_name(const Values& values) {
  std::string name;
  for (const Condition& condition : program_conditions()) {
    for (const std::string& value : given(condition, values)) {
      name += fmt::format("{}{} {}", name.empty() ? "" : ", ", condition.name, value);
    }
  }
  return name;
}

void note_nothing_failed(const Values& values, std::span<const Timeline> timelines) {
  if (values.count("fail") == 0 || read_integer(values, "repeat", 1, kMaxRepeats) > 1) return;
  dflop::say(
      "dflop: note: '--fail' changes nothing: no rank had work left at this time after the start of an "
      "iteration; the longest iteration took {:.4g} s\n",
      Seconds(std::ranges::max(timelines, {}, &Timeline::makespan).makespan).count());
}

}  // namespace dflop
