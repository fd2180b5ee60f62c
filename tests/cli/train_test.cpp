// dflop train: small models on threads of the host.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "backend/host/machine.hpp"
#include "backend/run/worlds.hpp"
#include "core/support/random.hpp"
#include "tests/cli/run.hpp"
#include "tests/cli/running.hpp"
#include "traces/checkpoints/folder.hpp"
#include "traces/checkpoints/pieces.hpp"
#include "traces/files/plan.hpp"

namespace dflop {
namespace train_test {

using nlohmann::json;
using testing::RunResult;
using testing::Sandbox;

struct Train : ::testing::Test {
  Sandbox sandbox;

  Train() { testing::write_all(sandbox.path("small.csv"), testing::image_records()); }

  /// Trains on small.csv, in global batches of four if `options` sets neither gbs nor plan.
  json train(const std::string& options) {
    const auto names = [&](const char* option) { return options.find(option) != std::string::npos; };
    const std::string gbs = names("--gbs") || names("--plan") ? "" : "--gbs 4 ";
    const RunResult result = sandbox.run("train --format json --data small.csv " + gbs + options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return testing::rows_of(result.out);
  }
  static std::vector<double> losses(const json& steps) {
    std::vector<double> all;
    for (const json& step : steps) all.push_back(step["loss"]);
    return all;
  }
  /// Returns the steps of the folder's checkpoints in increasing order.
  std::vector<std::int64_t> checkpoints(const std::string& folder) const {
    std::vector<std::int64_t> steps;
    if (!std::filesystem::exists(sandbox.path(folder))) return steps;
    for (const auto& entry : std::filesystem::directory_iterator(sandbox.path(folder))) {
      const std::string name = entry.path().filename().string();
      if (name.size() == 13 && name.starts_with("step-")) steps.push_back(std::stoll(name.substr(5, 8)));
    }
    std::sort(steps.begin(), steps.end());
    return steps;
  }

  /// Resumes training with a checkpoint after each step, and kills it some time after it has written one.
  void train_and_kill(const std::string& folder, std::chrono::microseconds after) const {
    const std::vector<std::int64_t> before = checkpoints(folder);
    testing::Running run(sandbox, {"train", "--steps", "2000", "--checkpoint", folder, "--every", "1",
                                   "--resume", "--data", "small.csv", "--gbs", "4"});
    run.wait_until([&] {
      const std::vector<std::int64_t> now = checkpoints(folder);
      return !now.empty() && (before.empty() || now.back() > before.back());
    });
    std::this_thread::sleep_for(after);
    run.send(SIGKILL);
    EXPECT_EQ(run.wait(), 128 + SIGKILL) << "training ended by itself: " << run.err();
  }
};

/// A decay far above 1 makes weights grow without bound. The run ends at the step whose loss is not finite,
/// before weights change: the newest checkpoint is the unchanged one of the previous step.
TEST_F(Train, EndsBeforeAStepThatIsNotFinite) {
  const std::string diverge =
      "--data small.csv --gbs 4 --learning-rate 1000 --weight-decay 1000 --checkpoint c ";
  const RunResult result = sandbox.run("train " + diverge + "--steps 30 --every 1");
  EXPECT_EQ(result.exit_code, 2);
  const std::vector<std::int64_t> steps = checkpoints("c");
  ASSERT_FALSE(steps.empty());
  const std::string after = std::to_string(steps.back());
  for (const std::string& part :
       {"step " + std::to_string(steps.back() + 1) + ":", std::string("the loss is"),
        std::string("The step was not taken"), std::string("--learning-rate")}) {
    EXPECT_NE(result.err.find(part), std::string::npos) << part << " is not in " << result.err;
  }
  const std::filesystem::path newest = sandbox.path("c/step-0000000" + after);
  const std::string state = testing::read_all(newest / "rank-00001.safetensors");
  std::filesystem::remove_all(sandbox.path("c"));
  // Without --every, the checkpoint is written at the end.
  const RunResult at_end = sandbox.run("train " + diverge + "--steps 30");
  EXPECT_EQ(at_end.exit_code, 2);
  EXPECT_NE(at_end.err.find("the state after step " + after + " is in c"), std::string::npos) << at_end.err;
  EXPECT_EQ(testing::read_all(newest / "rank-00001.safetensors"), state);
  const RunResult again = sandbox.run("train " + diverge + "--steps 30 --resume");
  EXPECT_NE(again.err.find("continues after step " + after), std::string::npos) << again.err;
}

/// A resumed run keeps its optimizer options except for newly given ones, and has the losses of an
/// uninterrupted run.
TEST_F(Train, ResumesWithItsOptimizer) {
  const std::string optimizer =
      "--learning-rate 0.002 --clip-norm 1 --beta2 0.9 --rate-schedule cosine --warm-up 1 ";
  const std::string run = "train --format json --data small.csv --gbs 4 --checkpoint run --resume ";
  const std::vector<double> whole = losses(train("--steps 3 " + optimizer));
  train("--steps 3 " + optimizer + "--checkpoint run --every 2");
  std::filesystem::remove_all(sandbox.path("run/step-00000003"));
  const RunResult kept = sandbox.run(run + "--steps 3");
  ASSERT_EQ(kept.exit_code, 0) << kept.err;
  EXPECT_EQ(losses(testing::rows_of(kept.out)), std::vector<double>{whole[2]});
  EXPECT_NE(kept.err.find("note: the run keeps --beta2 0.9, --clip-norm 1, --learning-rate 0.002, "
                          "--rate-schedule cosine, --warm-up 1\n"),
            std::string::npos)
      << kept.err;
  const RunResult same = sandbox.run(run + optimizer + "--steps 3");
  EXPECT_EQ(same.err.find("note"), std::string::npos) << same.err;
  const RunResult other = sandbox.run(run + "--steps 4 --learning-rate 0.01 --clip-norm 0");
  EXPECT_EQ(other.exit_code, 0) << other.err;
  for (const char* note : {"note: the run continues with --learning-rate 0.01; it had 0.002 before",
                           "note: the run continues with --clip-norm none; it had 1 before",
                           "note: the cosine learning rate now falls until step 4; it was 3 before"}) {
    EXPECT_NE(other.err.find(note), std::string::npos) << note << " is not in " << other.err;
  }
}

/// Options that depend on each other are checked once the run's earlier options are known.
TEST_F(Train, ResumesWithPartOfASchedule) {
  const std::string run = "train --data small.csv --gbs 4 --checkpoint run --resume ";
  train("--steps 2 --rate-schedule wsd --decay-steps 1 --checkpoint run");
  EXPECT_EQ(sandbox.run(run + "--steps 4 --decay-steps 2").exit_code, 0);
  testing::expect_error(sandbox.run("train --data small.csv --gbs 4 --steps 2 --decay-steps 2"),
                        {"--rate-schedule wsd"});
  const RunResult constant = sandbox.run(run + "--steps 5 --rate-schedule constant");
  EXPECT_NE(constant.err.find("option '--decay-steps': needs --rate-schedule wsd"), std::string::npos)
      << constant.err;
}

/// If all checkpoints in a folder are damaged, the error says what to do, with and without --resume.
TEST_F(Train, SaysHowToHandleDamagedCheckpoints) {
  train("--steps 1 --checkpoint run");
  const std::filesystem::path file = sandbox.path("run/step-00000001/rank-00001.safetensors");
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  const std::string run = "train --data small.csv --gbs 4 --checkpoint run --steps 2";
  EXPECT_NE(sandbox.run(run + " --resume").err.find("remove them, or name another folder"),
            std::string::npos);
  testing::expect_error(sandbox.run(run), {"already has checkpoints"});
}

/// Clipping that came from a plan persists with a plan that does not clip.
TEST_F(Train, ResumesWithTheClippingOfItsPlan) {
  const auto plan = [&](const char* name, const char* options) {
    const std::string make =
        "plan --planner dflop --model tiny-vlm --cluster a100-80g-vtrain:1 --gbs 4 --data small.csv ";
    ASSERT_EQ(sandbox.run(make + options + " --out " + name).exit_code, 0);
  };
  plan("clips.json", "--clip-gradients");
  plan("plain.json", "");
  const std::vector<double> whole = losses(train("--steps 5 --learning-rate 0.1 --plan clips.json"));
  train("--steps 2 --learning-rate 0.1 --plan clips.json --checkpoint run");
  const auto rest = [&](const std::string& options) {
    return losses(train("--steps 5 --plan plain.json --checkpoint run --resume " + options)).at(2);
  };
  EXPECT_NEAR(rest(""), whole[4], 1e-5);
  std::filesystem::remove_all(sandbox.path("run/step-00000005"));
  EXPECT_GT(std::abs(rest("--clip-norm 0") - whole[4]), 1e-4) << "or clipping changed nothing";
}

/// 128 classes: an untrained model has a loss of about ln(128) = 4.85.
TEST_F(Train, LossFalls) {
  const json steps = train("--model tiny-vlm --device host --steps 30 --gbs 8");
  ASSERT_EQ(steps.size(), 30U);
  EXPECT_NEAR(steps[0]["loss"].get<double>(), 4.85, 1.0);
  EXPECT_LT(steps[29]["loss"].get<double>(), 3.9);
  for (const json& step : steps) {
    EXPECT_GT(step["iteration_s"], 0.0);
    EXPECT_GT(step["llm_tokens_per_s"], 0.0);
    EXPECT_GE(step["idle_fraction"], 0.0);
    EXPECT_LE(step["idle_fraction"], 1.0);
    EXPECT_GT(step["peak_memory_bytes"], 0);
  }
  EXPECT_EQ(steps[0]["step_to_step_s"], nullptr);
  for (std::size_t i = 1; i < steps.size(); ++i)
    EXPECT_GT(steps[i]["step_to_step_s"].get<double>(), steps[i]["iteration_s"].get<double>());
}

TEST_F(Train, AResumedRunEqualsAnUninterruptedOne) {
  const std::vector<double> whole = losses(train("--steps 8"));
  const std::vector<double> first = losses(train("--steps 5 --checkpoint run --every 2"));
  const std::vector<double> second = losses(train("--steps 8 --checkpoint run --resume"));
  ASSERT_EQ(first.size(), 5U);
  ASSERT_EQ(second.size(), 3U);
  for (std::size_t i = 0; i < 8; ++i)
    EXPECT_EQ(i < 5 ? first[i] : second[i - 5], whole[i]) << "step " << i + 1;
  EXPECT_TRUE(train("--steps 8 --checkpoint run --resume").empty());
}

/// The plan of a run may change between checkpoints. The learned result does not.
TEST_F(Train, ResumesUnderAnotherPlan) {
  EXPECT_EQ(
      sandbox
          .run("plan --planner dflop --model tiny-vlm --cluster a100-80g-vtrain:1 --gbs 16 --out plan.json "
               "--data small.csv")
          .exit_code,
      0);
  const std::vector<double> whole = losses(train("--steps 6 --gbs 16"));
  train("--steps 3 --gbs 16 --checkpoint run");
  const std::vector<double> rest = losses(train("--steps 6 --checkpoint run --resume --plan plan.json"));
  ASSERT_EQ(rest.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(rest[i], whole[i + 3], 1e-4 * whole[i + 3]);
}

TEST_F(Train, LosesNoCheckpointWhenKilled) {
  Random random(1);
  std::int64_t newest = 0;
  for (int round = 0; round < 5; ++round) {
    train_and_kill("run", std::chrono::microseconds(random.below(60'000)));
    const std::vector<std::int64_t> left = checkpoints("run");
    ASSERT_FALSE(left.empty());
    EXPECT_GT(left.back(), newest);
    newest = left.back();
  }
  const json steps = train("--checkpoint run --resume --steps " + std::to_string(newest + 2));
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[0]["step"], newest + 1);
}

/// Of two runs, one would remove what the other is writing. A killed run leaves nothing behind that must be
/// removed.
TEST_F(Train, LocksItsCheckpoints) {
  testing::Running first(sandbox, {"train", "--steps", "100000", "--checkpoint", "run", "--every", "1",
                                   "--data", "small.csv", "--gbs", "4"});
  first.wait_until([&] { return !checkpoints("run").empty(); });
  for (const char* options : {"", " --resume"}) {
    const RunResult second =
        sandbox.run("train --steps 1 --data small.csv --gbs 4 --checkpoint run" + std::string(options));
    EXPECT_EQ(second.exit_code, 2) << second.err;
    EXPECT_NE(second.err.find("option '--checkpoint': another run uses 'run'"), std::string::npos)
        << second.err;
  }
  first.send(SIGKILL);
  EXPECT_EQ(first.wait(), 128 + SIGKILL) << first.err();
  const std::int64_t next = checkpoints("run").back() + 1;
  EXPECT_EQ(train("--checkpoint run --resume --steps " + std::to_string(next)).size(), 1U);
}

TEST_F(Train, NamesTheCheckpointThatLacksATensor) {
  train("--steps 1 --checkpoint run");
  const std::string folder = step_folder(sandbox.path("run").string(), 1);
  CheckpointIndex index = CheckpointReader(folder).index();
  const auto gone = std::find_if(index.tensors.begin(), index.tensors.end(),
                                 [](const PiecedTensor& t) { return t.kind == TensorKind::moment1; });
  ASSERT_NE(gone, index.tensors.end());
  const std::string message =
      "run/step-00000001: expected a moment1 '" + gone->name + "', found none of this name";
  index.tensors.erase(gone);
  testing::write_all(folder + "/checkpoint.json", to_json(index));
  const RunResult result = sandbox.run("train --steps 2 --data small.csv --gbs 4 --checkpoint run --resume");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find(message), std::string::npos) << result.err;
}

/// A run that writes a checkpoint into a pipe would wait for a reader.
TEST_F(Train, ObstaclesToCheckpointsAreReportedBeforeTraining) {
  std::filesystem::create_directories(sandbox.path("run"));
  ASSERT_EQ(::mkfifo(sandbox.path("run/step-00000002").c_str(), 0600), 0);
  const RunResult result = sandbox.run("train --steps 3 --data small.csv --gbs 4 --checkpoint run --every 1");
  EXPECT_EQ(result.err.find("step 1/3"), std::string::npos) << result.err;
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("run/step-00000002: has the name of a checkpoint but is not one"),
            std::string::npos)
      << result.err;
  train("--steps 1 --checkpoint run");           // it writes no second checkpoint
  train("--steps 3 --checkpoint run --resume");  // nor does this run
}

TEST_F(Train, PlansThatCannotBeTrainedAreNamed) {
  Plan plan;
  plan.planner = "test";
  plan.model = "tiny-vlm";
  plan.cluster = "a100-80g-vtrain:1";
  plan.layout = Layout::uniform;
  plan.microbatches = 1;
  plan.encoder = plan.llm = {1, 1, 1, {2}};
  const auto expect = [&](const std::string& message) {
    testing::write_all(sandbox.path("plan.json"), to_json(plan));
    testing::expect_error(sandbox.run("train --steps 1 --plan plan.json"), {"plan.json: ", message});
  };
  plan.gbs = 1 << 24;
  expect("key 'gbs': expected at most 65536 for a live step");
  plan.gbs = 4;
  plan.encoder.tp = plan.llm.tp = 4;
  expect("cannot be split over tp 4");
}

TEST_F(Train, ACheckpointOfAnEarlierVersionIsRejectedInALine) {
  std::filesystem::create_directories(sandbox.path("run"));
  testing::write_all(sandbox.path("run/step-00000005.ckpt"), "DFLOPCKP");
  for (const char* options : {"", " --resume"}) {
    testing::expect_error(
        sandbox.run("train --steps 6 --data small.csv --gbs 4 --checkpoint run" + std::string(options)),
        {"run/step-00000005.ckpt: a checkpoint of an earlier version, in one file"});
  }
}

/// Each rank writes a file. A changed byte in any file is detected, and the previous checkpoint is used.
TEST_F(Train, ResumesFromTheCheckpointBeforeADamagedOne) {
  const std::vector<double> whole = losses(train("--steps 3"));
  train("--steps 2 --checkpoint run --every 1");
  const std::string path = sandbox.path("run/step-00000002/rank-00000.safetensors").string();
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-1, std::ios::end);
  const char last = static_cast<char>(file.get() ^ 1);
  file.seekp(-1, std::ios::end);
  file.put(last);
  file.close();
  const RunResult result =
      sandbox.run("train --steps 3 --format json --data small.csv --gbs 4 --checkpoint run --resume");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("note: ignored run/step-00000002/rank-00000.safetensors: damaged"),
            std::string::npos)
      << result.err;
  EXPECT_EQ(losses(testing::rows_of(result.out)), (std::vector<double>(whole.begin() + 1, whole.end())));
  // The two newest intact checkpoints are the one that the run resumed from and the one that it wrote.
  EXPECT_NE(result.err.find("was renamed to run/step-00000002.unreadable"), std::string::npos) << result.err;
  EXPECT_EQ(checkpoints("run"), (std::vector<std::int64_t>{1, 3}));
  EXPECT_TRUE(sandbox.has("run/step-00000002.unreadable/checkpoint.json"));
}

TEST_F(Train, FoldersNamedLikeCheckpointsAreNoCheckpoints) {
  train("--steps 1 --checkpoint run");
  // One folder blocks the removal of old checkpoints, a later one blocks the last checkpoint.
  std::filesystem::create_directories(sandbox.path("run/step-00000000/kept"));
  EXPECT_EQ(train("--steps 4 --checkpoint run --resume --every 1").size(), 3U);
  EXPECT_EQ(checkpoints("run"), (std::vector<std::int64_t>{0, 3, 4}));
  EXPECT_TRUE(sandbox.has("run/step-00000000/kept"));
  std::filesystem::create_directories(sandbox.path("run/step-00000006/kept"));
  const RunResult result = sandbox.run("train --steps 6 --data small.csv --gbs 4 --checkpoint run --resume");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("run/step-00000006: has the name of a checkpoint but is not one"),
            std::string::npos);
  EXPECT_EQ(result.err.find("step 5/6"), std::string::npos) << "before training";
}

/// Batches are made on demand. A million steps at once would need a hundred million samples.
TEST_F(Train, BeginsARunOfAMillionSteps) {
  testing::Running run(sandbox, {"train", "--steps", "1000000", "--gbs", "100", "--checkpoint", "run",
                                 "--every", "1", "--data", "small.csv"});
  run.wait_until([&] { return !checkpoints("run").empty(); });
  run.send(SIGINT);
  EXPECT_EQ(run.wait(), 128 + SIGINT) << run.err();
}

/// When the terminal closes, a run ends as with SIGINT, with its state and its record. With nohup, which
/// ignores the signal, it continues.
TEST_F(Train, EndsCleanlyWhenTheTerminalCloses) {
  const auto run_until_hung_up = [&](std::vector<std::string> arguments, const std::string& folder) {
    testing::Running run(sandbox, std::move(arguments));
    run.wait_until([&] { return !checkpoints(folder).empty(); });
    run.send(SIGHUP);
    return run.wait();
  };
  const auto before = std::signal(SIGHUP, SIG_DFL);  // child processes inherit this
  EXPECT_EQ(run_until_hung_up({"train", "--steps", "1000000", "--gbs", "4", "--checkpoint", "run", "--every",
                               "1", "--data", "small.csv", "--record", "r.json"},
                              "run"),
            128 + SIGHUP);
  EXPECT_TRUE(sandbox.has("r.json"));
  std::signal(SIGHUP, SIG_IGN);
  EXPECT_EQ(run_until_hung_up({"train", "--steps", "20", "--gbs", "4", "--checkpoint", "on", "--every", "1",
                               "--data", "small.csv"},
                              "on"),
            0);
  std::signal(SIGHUP, before);
}

/// `tee` or another reader of the progress may exit before the run.
TEST_F(Train, ContinuesIfNobodyReadsItsProgress) {
  sandbox.run("train --steps 5 --gbs 4 --data small.csv --checkpoint run 2>&1 | true");
  EXPECT_EQ(checkpoints("run"), std::vector<std::int64_t>{5});
}

/// A scheduler's random draws in a step do not depend on where the run started.
TEST_F(Train, ResumesBitIdenticallyWithRandomSchedules) {
  for (const char* scheduler : {"random", "local-search"}) {
    const std::string options = std::string("--scheduler ") + scheduler + " --gbs 8 --checkpoint ";
    const std::vector<double> whole = losses(train(options + scheduler + "-w --steps 6"));
    train(options + scheduler + " --steps 3");
    const std::vector<double> rest = losses(train(options + scheduler + " --steps 6 --resume"));
    EXPECT_EQ(rest, std::vector<double>(whole.begin() + 3, whole.end())) << scheduler;
  }
}

TEST_F(Train, ChecksOptionsBeforeReadingData) {
  const auto refuses = [&](const std::string& options, const std::vector<std::string>& parts) {
    testing::expect_error(sandbox.run("train --steps 1 --data none.csv " + options), parts);
  };
  refuses("--rate-schedule wsd", {"--rate-schedule", "needs --decay-steps N"});
  refuses("--beta1 2", {"--beta1"});
  refuses("--log none/x.jsonl", {"none/x.jsonl"});
}

/// No two outputs may have the same name, and none the name of an input.
TEST_F(Train, FilesHaveNamesOfTheirOwn) {
  const auto refuses = [&](const std::string& options, const std::vector<std::string>& parts) {
    testing::expect_error(sandbox.run("train --steps 1 --gbs 4 --data small.csv " + options), parts);
  };
  refuses("--log x --record ./x", {"'--log'", "'--record'"});
  refuses("--log small.csv", {"'--log'", "'small.csv' is also the file of '--data'"});
  refuses("--export x --record x", {"'--export'", "'--record'"});
  testing::write_all(sandbox.path("r.yaml"), "seed: 1\n");
  refuses("--recipe r.yaml --record r.yaml", {"'--record'", "'--recipe'"});
  EXPECT_EQ(testing::read_all(sandbox.path("r.yaml")), "seed: 1\n");
}

TEST_F(Train, RejectsThreadsWithNothingToRead) {
  testing::expect_error(sandbox.run("train --steps 1 --gbs 4 --data small.csv --data-threads 2"),
                        {"--data-threads", "tars and token ids"});
}

/// Replaying the recorded durations of one live step gives that step's makespan, except for time outside
/// spans.
TEST_F(Train, RecordsTheInputOfReplay) {
  train("--steps 3 --record run.json.gz");
  const RunResult replayed = sandbox.run("replay --trace run.json.gz --iteration 2 --format json");
  EXPECT_EQ(replayed.exit_code, 0) << replayed.err;
}

TEST_F(Train, RecordsTheCoresThatRanksTookTurnsOn) {
  const auto cores_of = [&](const std::string& options) {
    train("--steps 1 --record run.json " + options);
    return json::parse(testing::read_all(sandbox.path("run.json")))["iterations"][0].value("cores", 0U);
  };
  EXPECT_EQ(cores_of("--cores 1"), 1U);
  EXPECT_EQ(cores_of("--cores 0"), 0U);
  const std::vector<int> usable = usable_processors();
  ASSERT_FALSE(usable.empty());
  EXPECT_EQ(cores_of(""), usable.size());
  std::jthread([&] {  // its child processes stay there too
    stay_on_processor(usable.back());
    EXPECT_EQ(cores_of(""), 1U);
  })
      .join();
}

/// The simulator accepts the plan file of a live run.
TEST_F(Train, RunsThePlanThatIsSimulated) {
  const std::string data = " --data small.csv ";
  ASSERT_EQ(
      sandbox
          .run("plan --planner dflop --model tiny-vlm --cluster a100-80g-vtrain:1 --gbs 16 --out plan.json" +
               data)
          .exit_code,
      0);
  ASSERT_EQ(sandbox.run("schedule --plan plan.json --out s.json --iterations 1" + data).exit_code, 0);
  EXPECT_EQ(sandbox.run("simulate --plan plan.json --schedule s.json").exit_code, 0);
  EXPECT_EQ(train("--plan plan.json --steps 2").size(), 2U);
}

/// One line gives the reason, the same as in `dflop devices`. A machine with a GPU trains on it.
TEST_F(Train, RunsOnAGpuOrSaysWhyNot) {
  const RunResult devices = sandbox.run("devices");
  for (const std::string command : {"train --steps 2", "profile --model tiny-vlm --budget-s 0.5"}) {
    const RunResult result = sandbox.run(command + " --device cuda");
    EXPECT_EQ(result.exit_code, devices.exit_code) << command << ": " << result.err;
    if (devices.exit_code == 0) continue;
    EXPECT_EQ(result.exit_code, 4);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.err, devices.err) << command;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

/// bf16 rounds, so its losses are close but not equal to f32's. Its checkpoint holds master weights,
/// from which a run in f32 resumes.
TEST_F(Train, TrainsInBf16) {
  const std::vector<double> f32 = losses(train("--steps 3"));
  const std::vector<double> bf16 = losses(train("--steps 3 --dtype bf16 --checkpoint run"));
  ASSERT_EQ(bf16.size(), f32.size());
  for (std::size_t i = 0; i < f32.size(); ++i) EXPECT_NEAR(bf16[i], f32[i], 0.02 * f32[i]) << i;
  EXPECT_NE(bf16, f32);
  const double next = losses(train("--steps 4 --checkpoint run --resume")).at(0);
  EXPECT_NEAR(next, losses(train("--steps 4")).at(3), 0.02 * next);
}

TEST_F(Train, RejectsUnsupportedOptions) {
  train("--steps 1 --gbs 16 --checkpoint run");
  const auto refused = [&](const std::string& options, int code, const std::string& message) {
    const RunResult result = sandbox.run("train --data small.csv " + options);
    EXPECT_EQ(result.exit_code, code) << options;
    EXPECT_NE(result.err.find(message), std::string::npos) << options << ": " << result.err;
  };
  refused("--steps 0", 2, "option '--steps': expected a whole number from 1");
  refused("--steps 2 --checkpoint z --record ./z", 2, "'./z' is also the file of '--checkpoint'");
  const std::string devices = world_names([](const WorldKind&) { return true; });
  refused("--steps 2 --device gpu", 2, "option '--device': expected " + devices + ", found 'gpu'");
  refused("--steps 2 --device nccl", 2,
          "expected RANK (torchrun), OMPI_COMM_WORLD_RANK (mpirun) or SLURM_PROCID");
  refused("--steps 2 --partition", 2, "option '--partition': needs --device cuda, found host");
  refused("--steps 2 --attention-sums any", 2,
          "option '--attention-sums': applies only to cuDNN's attention; needs --device cuda or nccl");
  refused("--steps 2 --attention-workspace 5", 2,
          "option '--attention-workspace': applies only to cuDNN's attention; needs --device cuda or nccl");
  refused("--steps 2 --attention-sums none", 2, "option '--attention-sums': expected fixed or any");
  refused("--steps 2 --dtype f16", 2, "option '--dtype': expected f32 or bf16, found 'f16'");
  refused("--steps 2 --resume", 2, "needs '--checkpoint DIR'");
  refused("--steps 2 --checkpoint run", 2, "already has checkpoints");
  refused("--steps 2 --checkpoint run --resume --gbs 8", 2, "expected gbs '8', found '16'");
  refused("--steps 2 --checkpoint run --resume --seed 2", 2, "expected seed '2', found '1'");
  refused("--steps 2 --checkpoint run --resume --model small-vlm", 2, "the checkpoint is from another run");
  refused("--steps 2 --plan nowhere.json", 2, "nowhere.json");
  refused("--steps 2 --scheduler best", 2, "option '--scheduler': expected one of random, ");
  refused("--steps 2 --learning-rate nan", 2, "option '--learning-rate': expected a number from 0");
  refused("--steps 2 --every 3", 2, "option '--every': needs '--checkpoint DIR'");
  refused("--steps 2 --record run/step-00000001/checkpoint.json/x", 2, "run/step-00000001/checkpoint.json/x");
  refused("--steps 2 --record nowhere/x.json", 2, "nowhere/x.json: cannot write");
  const RunResult proc = sandbox.run("train --steps 2 --data small.csv --record /proc/x");
  EXPECT_EQ(proc.err.find("step 1/2"), std::string::npos) << "before training";
  testing::expect_error(proc, {"/proc/x: cannot write"});
  refused("--steps 2 --profile same.json --record same.json", 2,
          "'same.json' is also the file of '--profile'");
  refused("--steps 2 --kernels learn --kernels-file same.k --record ./same.k", 2,
          "'./same.k' is also the file of '--kernels-file'");
  refused("--steps 2 --checkpoint run --resume --modalities image", 2, "expected data with fingerprint");
  refused("--steps 2 --correction sometimes", 2,
          "expected off, always, published or keep, found 'sometimes'");
  refused("--steps 2 --correction keep", 2, "option '--correction': needs '--profile FILE'");
  refused("--steps 2 --slow-shapes 0.1:1", 2, "option '--slow-shapes': needs '--profile FILE'");
  for (const char* shapes :
       {"0.1", "0.1:", ":1", "0.1:1x", "2:1", "0:1", "0.1:-1", "0.1:nan", "a:b", "0.1,1"}) {
    refused(std::string("--steps 2 --slow-shapes ") + shapes, 2, "expected FRACTION:LATENCY");
  }
  refused("--steps 2 --device cuda --cores 2", 2, "option '--cores': needs --device host");
  refused("--steps 2 --device nccl --partition", 2, "option '--partition': needs --device cuda");
  refused("--steps 2 --cores -1", 2, "option '--cores': expected a whole number from 0");
  std::filesystem::resize_file(sandbox.path("run/step-00000001/rank-00000.safetensors"), 1000);
  const RunResult truncated = sandbox.run("train --steps 1 --data small.csv --checkpoint run --resume");
  EXPECT_EQ(truncated.exit_code, 2);
  EXPECT_NE(truncated.err.find("ignored"), std::string::npos) << truncated.err;
  EXPECT_NE(truncated.err.find("none of its checkpoints can be read"), std::string::npos) << truncated.err;
}

/// The launcher has started as many processes as the plan has ranks. Without a GPU, the process fails with
/// the reason and does not wait for the others.
TEST_F(Train, AProcessThatALauncherHasStartedNeedsItsGpu) {
  if (sandbox.run("devices").exit_code == 0) GTEST_SKIP() << "there is a GPU";
  for (const auto& [rank, exit_code] : {std::pair{"0", 4}, std::pair{"2", 2}}) {
    for (const char* name : {"WORLD_SIZE=2", "LOCAL_RANK=0", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500"}) {
      const std::string text = name;
      const std::size_t equals = text.find('=');
      ::setenv(text.substr(0, equals).c_str(), text.substr(equals + 1).c_str(), 1);
    }
    ::setenv("RANK", rank, 1);
    const RunResult result = sandbox.run("train --device nccl --steps 1");
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"})
      ::unsetenv(name);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_EQ(result.out, "");
  }
}

}  // namespace train_test
}  // namespace dflop
