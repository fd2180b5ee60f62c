// Processes of a run, each on its own machine, write one checkpoint and each check a share of it.
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "experiments/training/checkpoint_folder.hpp"
#include "experiments/training/loop.hpp"
#include "tests/backend/content/host_process.hpp"
#include "tests/cli/run.hpp"

namespace dflop {
namespace checkpoint_of_processes_test {

using testing::HostProcess;

bool may_unshare = false;

struct CheckpointOfProcesses : ::testing::Test {
  testing::Sandbox sandbox;
  std::string folder = sandbox.path("run").string();
  Target target{"tiny-vlm", "a100-80g:1"};
  Plan plan;

  CheckpointOfProcesses() {
    std::filesystem::create_directory(folder);
    plan.model = "tiny-vlm";
    plan.cluster = "a100-80g:1";
    plan.layout = Layout::uniform;
    plan.gbs = 8;
    plan.encoder = {1, 2, 2, {target.model.encoder.layers, 0}};
    plan.llm = {1, 2, 2, {1, target.model.llm.layers - 1}};
    plan.microbatches = 2;
  }
  std::size_t entries() const {
    const std::filesystem::directory_iterator all(folder);
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }
};

/// Each of four processes reads one of four files. The third process's file is damaged, and all go back.
TEST_F(CheckpointOfProcesses, IsIgnoredByAllIfOneFindsItDamaged) {
  const RunIdentity run = run_identity(target.model, "data", "0123", 1, plan.gbs);
  std::mutex mutex;
  std::vector<std::int64_t> steps;
  const auto go_on = [&](HostProcess& process) {
    LiveExecutor executor(plan, target.model, process, {DType::f32, 1, nullptr});
    OptimizerChoice optimizer;
    if (process.leads()) optimizer.rate.peak = 0.5;  // the others get no options
    const std::int64_t step = resume_training({folder, run, process, executor}, {}, optimizer).step;
    const std::scoped_lock lock(mutex);
    steps.push_back(step);
    EXPECT_EQ(optimizer.rate.peak, 0.5);
  };
  const auto save = [&](HostProcess& process) {
    LiveExecutor executor(plan, target.model, process, {DType::f32, 1, nullptr});
    for (const std::int64_t step : {3, 4})
      save_checkpoint({folder, run, process, executor}, step, {describe(plan), "lpt"});
  };
  for (const auto& message : testing::run_host_processes(plan.ranks(), {}, save)) EXPECT_EQ(message, "");
  for (const auto& message : testing::run_host_processes(plan.ranks(), {}, go_on)) EXPECT_EQ(message, "");
  EXPECT_EQ(steps, (std::vector<std::int64_t>{4, 4, 4, 4}));
  const std::string damaged = folder + "/step-00000004/rank-00002.safetensors";
  std::string bytes = testing::read_all(damaged);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  testing::write_all(damaged, bytes);
  steps.clear();
  for (const auto& message : testing::run_host_processes(plan.ranks(), {}, go_on)) EXPECT_EQ(message, "");
  EXPECT_EQ(steps, (std::vector<std::int64_t>{3, 3, 3, 3}));
}

/// The processes are threads here. One has another working folder, so "run" is elsewhere for it.
TEST_F(CheckpointOfProcesses, NeedsASharedFolder) {
  std::thread([] { may_unshare = ::unshare(CLONE_FS) == 0; }).join();
  if (!may_unshare) GTEST_SKIP() << "threads may not have folders of their own here";
  const auto look = [&](const std::filesystem::path& of_last) {
    return testing::run_host_processes(4, {}, [&](HostProcess& process) {
      const int rank = process.local_ranks().front();
      const std::filesystem::path at = rank == 3 ? of_last : std::filesystem::path(folder).parent_path();
      if (::unshare(CLONE_FS) != 0 || ::chdir(at.c_str()) != 0)
        throw std::runtime_error("no folder of its own");
      require_seen_by_all(process, "run", std::chrono::milliseconds(50));
    });
  };
  for (const std::string& message : look(std::filesystem::path(folder).parent_path())) EXPECT_EQ(message, "");
  EXPECT_EQ(entries(), 0U) << "nothing stays there";
  std::filesystem::create_directories(sandbox.path("elsewhere/run"));
  for (const std::string& message : look(sandbox.path("elsewhere"))) {
    EXPECT_NE(message.find("run: rank 3 on "), std::string::npos) << message;
    EXPECT_NE(message.find("expected a folder on a disk that all machines"), std::string::npos) << message;
  }
  EXPECT_EQ(entries(), 0U);
}

}  // namespace checkpoint_of_processes_test
}  // namespace dflop
