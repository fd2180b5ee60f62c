// dflop kernels measures variants, shows what was measured, and runs take it.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "backend/host/world.hpp"
#include "backend/world.hpp"
#include "core/error.hpp"
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
  json rows(const std::string& arguments) {
    const RunResult result = sandbox.run(arguments + " --format json");
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return testing::rows_of(result.out);
  }
};

std::vector<double> losses(const std::string& out) {
  std::vector<double> all;
  for (const json& step : testing::rows_of(out)) all.push_back(step["loss"]);
  return all;
}

TEST_F(KernelsCommand, TunesListsExplainsAndCompares) {
  const RunResult tuned = tune();
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_NE(tuned.err.find(" keys were measured"), std::string::npos) << tuned.err;
  const json file = json::parse(read_all(sandbox.path("k.kernels")));
  ASSERT_FALSE(file["keys"].empty());

  const json list = rows("kernels --kernels-file k.kernels");
  EXPECT_EQ(list, testing::rows_of(tuned.out));
  EXPECT_EQ(list.size(), file["keys"].size());

  // A row for each variant of each key, one of which is chosen.
  std::size_t variants = 0;
  for (const json& key : file["keys"]) variants += key["count"].size();
  const json explained = rows("kernels explain --kernels-file k.kernels");
  EXPECT_EQ(explained.size(), variants);
  const auto chosen = std::count_if(explained.begin(), explained.end(), [](const json& row) {
    return row["reason"].get<std::string>().starts_with("chosen");
  });
  EXPECT_EQ(static_cast<std::size_t>(chosen), list.size());

  const json compared = rows("kernels compare --kernels-file k.kernels --other k.kernels");
  EXPECT_EQ(compared.size(), list.size());
  for (const json& row : compared) {
    EXPECT_EQ(row["variant"], row["other_variant"]);
    EXPECT_EQ(row["mean_ratio"], 1);
  }

  // What is there is not written over.
  expect_error(tune(), {"option '--kernels-file'", "'k.kernels' is there already", "--merge"});
}

TEST_F(KernelsCommand, ListsKeysByOperationSizesAndTokens) {
  write_all(
      sandbox.path("k.kernels"),
      R"({"schema": "dflop.kernels", "version": 1, "dflop_version": "1", "device": "host",
    "processors": 2, "software": "", "cpu": "c", "isa": "i", "threads": 1,
    "variants": {"linear": ["default"], "attention": ["default"]}, "keys": [)" +
          [] {
            std::string keys;
            // The file has them in no order; lengths of one key of attention lie over a power of two apart.
            for (const auto& [operation, inner, tokens, length] :
                 std::vector<std::tuple<std::string, int, int, int>>{{"attention", 64, 1280, 80},
                                                                     {"linear", 128, 80, 0},
                                                                     {"linear", 64, 1280, 0},
                                                                     {"attention", 64, 80, 1280},
                                                                     {"linear", 64, 80, 0},
                                                                     {"attention", 64, 1280, 20}}) {
              keys += (keys.empty() ? "" : ",") + std::string(R"({"operation": ")") + operation +
                      R"(", "dtype": "f32", "inner": )" + std::to_string(inner) +
                      R"(, "outer": 513, "causal": false, "tokens": )" + std::to_string(tokens) +
                      R"(, "length": )" + std::to_string(length) +
                      R"(, "count": [2], "mean_ns": [5], "variance_ns2": [0]})";
            }
            return keys;
          }() +
          "]}");
  std::vector<std::tuple<std::string, int, int, int>> keys;
  for (const json& row : rows("kernels --kernels-file k.kernels")) {
    keys.emplace_back(row["operation"], row["inner"], row["tokens"],
                      row["length"].is_null() ? 0 : row["length"].get<int>());
  }
  const std::vector<std::tuple<std::string, int, int, int>> expected = {
      {"linear", 64, 80, 0},       {"linear", 64, 1280, 0},     {"linear", 128, 80, 0},
      {"attention", 64, 80, 1280}, {"attention", 64, 1280, 20}, {"attention", 64, 1280, 80}};
  EXPECT_EQ(keys, expected);
}

/// The default of 1,280 tokens was never measured, that of 2,560 was, two buckets away: what is chosen there
/// is chosen here. Of 128 inputs no key says anything.
TEST_F(KernelsCommand, ExplainsWhatOtherKeysSay) {
  const auto key = [](int inner, int tokens, const char* stats) {
    return R"({"operation": "linear", "dtype": "f32", "outer": 64, "causal": false, "length": 0, "inner": )" +
           std::to_string(inner) + ", \"tokens\": " + std::to_string(tokens) + ", " + stats + "}";
  };
  const char* unknown = R"("count": [0, 2], "mean_ns": [0, 3], "variance_ns2": [0, 0])";
  const char* known = R"("count": [4, 4], "mean_ns": [5, 3], "variance_ns2": [0, 0])";
  write_all(sandbox.path("k.kernels"),
            R"({"schema": "dflop.kernels", "version": 1, "dflop_version": "1", "device": "host",
    "processors": 2, "software": "", "cpu": "c", "isa": "i", "threads": 1,
    "variants": {"linear": ["default", "fast"]}, "keys": [)" +
                key(64, 1280, unknown) + "," + key(64, 2560, known) + "," + key(128, 1280, unknown) + "]}");
  std::vector<std::string> reasons;
  for (const json& row : rows("kernels explain --kernels-file k.kernels")) reasons.push_back(row["reason"]);
  const std::vector<std::string> expected = {
      "the default was not measured here",
      "chosen by the nearest key",
      "the default, slower",
      "chosen",
      "chosen: it was not measured here",
      "the default was not measured here",
  };
  EXPECT_EQ(reasons, expected);
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

TEST_F(KernelsCommand, FilesOfOthersAndCutOffOnesAreRefusedInOneLine) {
  ASSERT_EQ(tune().exit_code, 0);
  const std::string whole = read_all(sandbox.path("k.kernels"));
  json other = json::parse(whole);
  other["cpu"] = "another processor";
  write_all(sandbox.path("other.kernels"), other.dump());
  expect_error(train("--kernels profile --kernels-file other.kernels"),
               {"other.kernels: key 'cpu'", "measured elsewhere", "found 'another processor'"});
  write_all(sandbox.path("cut.kernels"), whole.substr(0, whole.size() / 2));
  expect_error(train("--kernels profile --kernels-file cut.kernels"), {"cut.kernels"});
  expect_error(sandbox.run("kernels --kernels-file cut.kernels"), {"cut.kernels"});
  expect_error(train("--kernels profile --kernels-file none.kernels"),
               {"none.kernels", "expected a file of kernels, found none", "dflop kernels tune"});
  // Ranks of two threads have other times.
  expect_error(train("--device-cores 2 --kernels profile --kernels-file k.kernels"), {"k.kernels: key "});
}

TEST_F(KernelsCommand, LearningKeepsItsFileWhereTrainRuns) {
  expect_error(train("--kernels learn --kernels-file missing/k.kernels"), {"missing/k.kernels"});
  const RunResult learned = train("--kernels learn --kernels-file k.kernels");
  ASSERT_EQ(learned.exit_code, 0) << learned.err;
  const json file = json::parse(read_all(sandbox.path("k.kernels")));
  ASSERT_TRUE(file.contains("made_by"));
  EXPECT_NE(file["made_by"].dump().find("--kernels learn"), std::string::npos) << file["made_by"];
  expect_error(sandbox.run("profile --model tiny-vlm --kernels learn"),
               {"--kernels", "default or profile", "learn"});
}

/// Both have taken their time to measure.
TEST_F(KernelsCommand, LearningLeavesWhatOthersHaveWrittenMeanwhile) {
  ASSERT_EQ(tune().exit_code, 0);
  HostWorld world(1);
  const VariantNames names = LocalRank(world, 0, DType::f32).kernels->variant_names();
  const std::string path = sandbox.path("k.kernels");
  const RunKernels learns({KernelMode::learn, path}, world, names);
  ASSERT_EQ(tune("--merge").exit_code, 0);
  const std::string merged = read_all(path);
  learns.save({});
  learns.save({});
  EXPECT_EQ(read_all(path), merged);
  for (const char* beside : {".learned-1", ".learned-2"}) {
    EXPECT_NE(read_all(path + beside).find("dflop.kernels"), std::string::npos) << beside;
  }
}

TEST_F(KernelsCommand, MeasureAndAreChosenOnWholeDevices) {
  for (const char* command : {"tune", "check"}) {
    expect_error(sandbox.run(std::string("kernels ") + command + " --model tiny-vlm --partition"),
                 {"option '--partition'", "expected none", "measured on whole devices"});
  }
  write_all(sandbox.path("plan.json"), to_json(testing::shared_plan_of_one_device(0.5)));
  const RunResult whole = sandbox.run("train --data d.csv --plan plan.json --device-cores 2 --steps 1");
  EXPECT_EQ(whole.exit_code, 0) << whole.err;
  for (const char* mode : {"profile", "learn"}) {
    expect_error(
        sandbox.run(std::string("train --data d.csv --steps 1 --plan plan.json --device-cores 2 --kernels ") +
                    mode),
        {"option '--kernels'", "expected default where ranks share devices", mode});
  }
  expect_error(sandbox.run("profile --model tiny-vlm --device-cores 2 --shares 1/2,1 --kernels profile"),
               {"option '--kernels'", "expected default where ranks share devices", "found 'profile'"});
}

/// No GPU has to be there: the device has been read by then.
TEST(KernelOptions, AreNotForPartsOfAGpu) {
  Options options;
  add_kernel_options(options, KernelUse::trained);
  const auto request = [&](const char* mode, bool partition) {
    const Values values = parse_arguments(options, {"--kernels", mode}, false);
    return read_kernel_request(values, {.name = "cuda", .partition = partition}, KernelUse::trained).mode;
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

/// An attention's key holds fewer than 512 key heads.
TEST_F(KernelsCommand, ChooseForModelsWhoseSizesKeysHold) {
  json model = json::parse(read_all(DFLOP_SOURCE_DIR "/experiments/presets/models/tiny-vlm.json"));
  model["llm"].update({{"heads", 512}, {"kv_heads", 512}, {"head_dim", 2}});
  write_all(sandbox.path("wide.json"), model.dump());
  for (const char* command : {"train --data d.csv --steps 1 --gbs 2 --kernels learn --model wide.json",
                              "profile --kernels profile --model wide.json"}) {
    expect_error(sandbox.run(command), {"wide.json", "expected fewer than 512 key heads of the LLM"});
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

TEST(KernelsOfProfiles, AreOfTheirMachine) {
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
