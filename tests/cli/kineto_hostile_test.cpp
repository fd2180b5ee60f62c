// Whatever happens to the traces of a real run, the result is an error, a finding or a correct replay.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.hpp"
#include "core/support/random.hpp"
#include "costmodel/recorded/recorded.hpp"
#include "experiments/studies/what_if/recorded_steps.hpp"
#include "experiments/studies/what_if/replay_runs.hpp"
#include "sim/engine.hpp"
#include "traces/profiler/pipeline.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace kineto_hostile_test {

using nlohmann::json;

/// Relative tolerance between the replays of a mutated and the unmutated run: the part of an iteration that a
/// range may lose to the next one.
constexpr double kSame = 0.02;

/// Reads the traces of three ranks recorded with an order.
std::vector<json> recorded(const std::string& order) {
  std::vector<json> files;
  for (int rank = 0; rank < 3; ++rank) {
    files.push_back(json::parse(read_text_file(
        fmt::format("{}/traces/kineto/pipeline/{}-rank{}.json.gz", DFLOP_SOURCE_DIR, order, rank))));
  }
  return files;
}

/// The seconds of a step as recorded and as replayed in another order.
struct StepSeconds {
  double own = 0;
  double gpipe = 0;
};
using Truth = std::map<std::int64_t, StepSeconds>;  ///< by step

/// The result of importing files, and the findings.
struct Imported {
  Truth seconds;
  std::size_t findings = 0;
  std::string text;  ///< of the first finding
};

Imported import_files(const std::vector<json>& files) {
  std::vector<KinetoTrace> traces;
  for (const json& file : files)
    traces.push_back(parse_kineto(file.dump(), fmt::format("{}.json", traces.size())));
  PipelineImport import = import_pipeline(traces, compare_ranks(traces));
  const std::vector<Nanoseconds> replayed = keep_what_replays(import, "0.json");
  Imported result;
  const ReplayChange gpipe = other_order(OrderKind::gpipe, {});
  for (std::size_t i = 0; i < replayed.size(); ++i) {
    const RecordedProgram program = recorded_program(import.steps[i].timeline);
    const PricedProgram other = gpipe.apply(program, program, 0);
    const Nanoseconds taken = simulate(other.program, other.costs, Detail::usage).makespan;
    result.seconds[import.steps[i].number] = {Seconds(replayed[i]).count(), Seconds(taken).count()};
  }
  result.findings = import.findings.size();
  for (const KinetoFinding& f : import.findings) {
    EXPECT_FALSE(f.place.empty());
    EXPECT_FALSE(f.text.empty());
  }
  if (!import.findings.empty()) {
    const KinetoFinding& f = import.findings.front();
    result.text = fmt::format("{} {}: {}", to_string(f.kind), f.place, f.text);
  }
  return result;
}

/// Changes a random digit in an event's name, such as a range's stage or microbatch.
void change_number(json& event, Random& random) {
  std::string name = event.value("name", "");
  std::vector<std::size_t> digits;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (std::isdigit(static_cast<unsigned char>(name[i]))) digits.push_back(i);
  }
  if (digits.empty()) return;
  name[digits[random.below(digits.size())]] = static_cast<char>('0' + random.below(10));
  event["name"] = name;
}

bool is_range(const json& event) {
  return event.value("name", "").starts_with("PP:");
}

/// Changes one event. Durations only grow: a range that ends earlier while all else is unchanged, or a
/// message that takes longer, also occurs in valid runs, and nothing in the traces could reveal the change.
void mutate_event(json& events, Random& random) {
  if (events.empty()) return;  // cut off
  const std::size_t at = random.below(events.size());
  json& event = events[at];
  switch (random.below(12)) {
    case 0:
      events.erase(at);
      break;
    case 1:
      if (is_range(event)) event["dur"] = event.value("dur", 0.0) * (1 + 3 * random.uniform());
      break;
    case 2:
      event["name"] = "another";
      break;
    case 3:
      events.erase(events.begin() + static_cast<std::ptrdiff_t>(at), events.end());  // cut off
      break;
    case 4:
      event["tid"] = 77;
      break;
    case 5:
      event["ts"] = event.value("ts", 0.0) + 1e6 * (random.uniform() - 0.5);
      break;
    case 6:
      event[random.below(2) == 0 ? "ts" : "dur"] = random.below(2) == 0 ? -1e9 : 1e15;
      break;
    case 7:
      event["dur"] = "long";
      break;
    case 8:
      std::swap(events[at], events[random.below(events.size())]);
      break;
    case 9:
      events.push_back(json(event));
      break;
    case 10:
      if (event.contains("args") && event["args"].contains("Concrete Inputs")) {
        json& inputs = event["args"]["Concrete Inputs"];
        if (inputs.size() > 3) inputs[2 + random.below(2)] = std::to_string(random.below(3));
      }
      break;
    default:
      change_number(event, random);
  }
}

void mutate(std::vector<json>& files, Random& random, const std::vector<json>& other_run) {
  const std::size_t which = random.below(files.size());
  switch (random.below(20)) {
    case 0:
      if (files.size() > 1) files.erase(files.begin() + static_cast<std::ptrdiff_t>(which));
      break;
    case 1:
      files[which] = other_run[random.below(other_run.size())];
      break;
    case 2:
      files[which] = files[random.below(files.size())];  // one rank twice
      break;
    case 3:
      files[which]["baseTimeNanoseconds"] = random.below(2'000'000'000'000'000'000);
      break;
    case 4:
      files[which]["distributedInfo"]["rank"] = random.below(4);
      break;
    case 5:
      for (json& event : files[which]["traceEvents"]) {
        if (is_range(event)) event["name"] = "forward";
      }
      break;
    case 6:  // names of another step on one rank
      for (json& event : files[which]["traceEvents"]) {
        const std::string name = event.value("name", "");
        if (name.starts_with("ProfilerStep#"))
          event["name"] = fmt::format("ProfilerStep#{}", name.back() - '0' + 1);
      }
      break;
    default:
      mutate_event(files[which]["traceEvents"], random);
  }
}

/// Returns a wrong result that a user would get without a warning, or an empty string.
std::string outcome(const std::vector<json>& files, const Truth& truth, int& refused, int& same) {
  Imported imported;
  try {
    imported = import_files(files);
  } catch (const Error&) {
    ++refused;
    return "";
  }
  if (imported.seconds.size() < truth.size() && imported.findings == 0)
    return "a step is gone without a finding";
  for (const auto& [step, seconds] : imported.seconds) {
    const auto known = truth.find(step);
    if (known == truth.end()) return fmt::format("step {} was never recorded", step);
    if (std::abs(seconds.own / known->second.own - 1) > kSame ||
        std::abs(seconds.gpipe / known->second.gpipe - 1) > kSame) {
      return fmt::format("step {} takes {:.4f} s and {:.4f} s under gpipe, not {:.4f} and {:.4f}", step,
                         seconds.own, seconds.gpipe, known->second.own, known->second.gpipe);
    }
  }
  ++(imported.findings > 0 ? refused : same);
  return "";
}

TEST(KinetoHostile, MutatedRunsAreRejectedOrReplayedUnchanged) {
  const std::vector<json> original = recorded("1f1b");
  const std::vector<json> other = recorded("gpipe");
  const Truth truth = import_files(original).seconds;
  ASSERT_EQ(truth.size(), 3u);
  int refused = 0;
  int same = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    Random random(seed);
    std::vector<json> files = original;
    const std::uint64_t changes = 1 + random.below(3);
    for (std::uint64_t change = 0; change < changes; ++change) mutate(files, random, other);
    EXPECT_EQ(outcome(files, truth, refused, same), "") << seed;
  }
  EXPECT_GT(refused, 150);
  EXPECT_GT(same, 80);
}

}  // namespace kineto_hostile_test
}  // namespace dflop
