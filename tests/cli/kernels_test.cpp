// dflop kernels tune measures variants, and runs take it.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backend/world.hpp"
#include "core/error.hpp"
#include "experiments/options/live/kernel_options.hpp"
#include "experiments/training/kernels.hpp"
#include "tests/cli/run.hpp"
#include "tests/cli/shared_plan.hpp"
#include "tests/core/input_error.hpp"
#include "traces/files/plan.hpp"
#include "traces/files/specs.hpp"

namespace dflop {
namespace kernels_test {

using nlohmann::json;
using testing::expect_error;
using testing::read_all;
using testing::RunResult;
using testing::Sandbox;
using testing::write_all;

struct KernelsCommand : ::testing::Test {
  Sandbox sandbox;

  void SetUp() override { write_all(sandbox.path("d.csv"), testing::image_records()); }
  RunResult tune(const std::string& options = "") {
    return sandbox.run(
        "kernels tune --model tiny-vlm --data d.csv --samples 1 --budget-s 0.2 --format json "
        "--kernels-file k.kernels " +
        options);
  }
  RunResult train(const std::string& options) {
    return sandbox.run("train --data d.csv --steps 3 --gbs 8 --format json " + options);
  }
};

std::vector<double> losses(const std::string& out) {
  std::vector<double> all;
  for (const json& step : testing::rows_of(out)) all.push_back(step["loss"]);
  return all;
}

TEST_F(KernelsCommand, TunesWithARowForEachKey) {
  const RunResult tuned = tune();
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_NE(tuned.err.find(" keys were measured"), std::string::npos) << tuned.err;
  const json file = json::parse(read_all(sandbox.path("k.kernels")));
  ASSERT_FALSE(file["keys"].empty());
  const json rows = testing::rows_of(tuned.out);
  ASSERT_EQ(rows.size(), file["keys"].size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const json& key = file["keys"][i];
    for (const char* field : {"operation", "inner", "outer", "tokens"}) EXPECT_EQ(rows[i][field], key[field]);
    EXPECT_EQ(rows[i]["default_mean_ns"], key["mean_ns"][0]);
    const std::vector<std::string> variants = file["variants"][key["operation"].get<std::string>()];
    EXPECT_NE(std::find(variants.begin(), variants.end(), rows[i]["variant"]), variants.end());
  }

  // What is there is not written over, but may be added to.
  expect_error(tune(), {"option '--kernels-file'", "'k.kernels' is there already", "--merge"});
  ASSERT_EQ(tune("--merge").exit_code, 0);
  const json merged = json::parse(read_all(sandbox.path("k.kernels")));
  EXPECT_EQ(merged["keys"][0]["inner"], file["keys"][0]["inner"]);
  // The budget may not reach a single key a second time, but it measures some of them again.
  const auto calls = [](const json& kernels) {
    std::int64_t sum = 0;
    for (const json& key : kernels["keys"]) {
      for (const json& count : key["count"]) sum += count.get<std::int64_t>();
    }
    return sum;
  };
  EXPECT_GT(calls(merged), calls(file));
}

TEST_F(KernelsCommand, RunsOfOneFileAreTheSame) {
  ASSERT_EQ(tune().exit_code, 0);
  const std::string file = read_all(sandbox.path("k.kernels"));
  const RunResult first = train("--kernels profile --kernels-file k.kernels");
  const RunResult second = train("--kernels profile --kernels-file k.kernels");
  ASSERT_EQ(first.exit_code, 0) << first.err;
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_EQ(losses(first.out), losses(second.out));
  EXPECT_EQ(losses(first.out).size(), 3U);
  EXPECT_EQ(read_all(sandbox.path("k.kernels")), file);
}

TEST_F(KernelsCommand, ForeignAndTruncatedFilesAreRejectedInOneLine) {
  ASSERT_EQ(tune().exit_code, 0);
  const std::string whole = read_all(sandbox.path("k.kernels"));
  json other = json::parse(whole);
  other["cpu"] = "another processor";
  write_all(sandbox.path("other.kernels"), other.dump());
  expect_error(train("--kernels profile --kernels-file other.kernels"),
               {"other.kernels: key 'cpu'", "measured elsewhere", "found 'another processor'"});
  write_all(sandbox.path("cut.kernels"), whole.substr(0, whole.size() / 2));
  expect_error(train("--kernels profile --kernels-file cut.kernels"), {"cut.kernels"});
  expect_error(train("--kernels profile --kernels-file none.kernels"),
               {"none.kernels", "expected a file of kernels, found none", "dflop kernels tune"});
  // Ranks of two threads have other times.
  expect_error(train("--device-cores 2 --kernels profile --kernels-file k.kernels"), {"k.kernels: key "});
}

TEST_F(KernelsCommand, LearningKeepsItsFileInTheWorkingFolder) {
  expect_error(train("--kernels learn --kernels-file missing/k.kernels"), {"missing/k.kernels"});
  const RunResult learned = train("--kernels learn --kernels-file k.kernels");
  ASSERT_EQ(learned.exit_code, 0) << learned.err;
  const json file = json::parse(read_all(sandbox.path("k.kernels")));
  ASSERT_TRUE(file.contains("made_by"));
  EXPECT_NE(file["made_by"].dump().find("--kernels learn"), std::string::npos) << file["made_by"];
}

TEST_F(KernelsCommand, MeasureAndAreChosenOnWholeDevices) {
  expect_error(sandbox.run("kernels tune --model tiny-vlm --partition"),
               {"option '--partition'", "expected none", "measured on whole devices"});
  write_all(sandbox.path("plan.json"), to_json(testing::shared_plan_of_one_device(0.5)));
  const RunResult whole = sandbox.run("train --data d.csv --plan plan.json --device-cores 2 --steps 1");
  EXPECT_EQ(whole.exit_code, 0) << whole.err;
  for (const char* mode : {"profile", "learn"}) {
    expect_error(
        sandbox.run(std::string("train --data d.csv --steps 1 --plan plan.json --device-cores 2 --kernels ") +
                    mode),
        {"option '--kernels'", "expected default where ranks share devices", mode});
  }
}

/// No GPU has to be there: the device has been read by then.
TEST(KernelOptions, AreNotForPartsOfAGpu) {
  Options options;
  add_kernel_options(options);
  const auto request = [&](const char* mode, bool partition) {
    const Values values = parse_arguments(options, {"--kernels", mode}, false);
    return read_kernel_request(values, {.name = "cuda", .partition = partition}).mode;
  };
  EXPECT_EQ(request("profile", false), KernelMode::profile);
  EXPECT_EQ(request("default", true), KernelMode::fixed);
  try {
    request("profile", true);
    ADD_FAILURE() << "parts of a GPU were taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(error.message().find("default with --partition"), std::string::npos) << error.message();
  }
}

/// A PairWorld has two processes, of which this one leads: what the other gathers is kept from before.
class PairWorld final : public World {
 public:
  std::string device_name() const override { return "host"; }
  int ranks() const override { return 2; }
  std::vector<int> local_ranks() const override { return {0}; }
  std::unique_ptr<Device> make_device(int) override { return nullptr; }
  std::unique_ptr<Communicator> make_communicator(int) override { return nullptr; }
  std::vector<std::string> gather(std::string bytes) override {
    const std::string other = others_.empty() ? bytes : others_;
    others_ = bytes;
    return {std::move(bytes), other};
  }

 private:
  std::string others_;
};

TEST(KernelsOfProcesses, HaveTheSameVariants) {
  VariantNames names;
  names[0] = {"default", "wide"};
  PairWorld world;
  require_same_variants(world, names);
  require_same_variants(world, names);
  names[0] = {"default", "wider"};  // as many, of other names
  const std::string message = testing::input_error([&] { require_same_variants(world, names); });
  EXPECT_NE(message.find("variants of operations"), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

TEST(KernelsOfProfiles, AreUsedOnlyOnTheirMachine) {
  const Sandbox sandbox;
  const std::string path = sandbox.path("k.kernels").string();
  NamedProfile profile{"p.json", {}};
  profile.tables.device = "host";
  profile.tables.cpu = "c";
  profile.tables.quanta = 2;
  const auto taken = [&](const KernelMachine& machine, NamedProfile of) {
    const KernelFile file{"1", machine, {}};
    write_all(path, to_json(file));
    const std::string message = testing::input_error([&] { take_kernels(of, path); });
    EXPECT_EQ(of.tables.kernels, message.empty() ? kernels_hash(file) : "");
    return message;
  };
  // A profile of the host does not name its libraries, and has as many quanta as a rank has threads.
  KernelMachine machine{.device = "host", .software = "a library", .cpu = "c", .isa = {}, .threads = 2};
  EXPECT_EQ(taken(machine, profile), "");
  machine.threads = 1;
  EXPECT_NE(taken(machine, profile).find("key 'threads'"), std::string::npos);
  // A profile of a GPU names its driver, and its quanta are no threads.
  profile.tables.software = machine.software = "a driver";
  EXPECT_EQ(taken(machine, profile), "");
  machine.software = "another";
  EXPECT_NE(taken(machine, profile).find("key 'software'"), std::string::npos);
  // What runs on a part of a device takes other times, which no file of kernels has.
  profile.tables.tp.emplace_back().part.emplace();
  EXPECT_NE(taken(machine, profile).find("p.json: expected only tables of whole devices"), std::string::npos);
}

}  // namespace kernels_test
}  // namespace dflop
