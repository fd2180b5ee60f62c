// Ranks of several processes write one checkpoint together and continue from it.
#include <gtest/gtest.h>

#include <filesystem>
#include <mutex>
#include <thread>

#include "backend/process/process_world.hpp"
#include "tests/backend/process/free_port.hpp"
#include "tests/backend/run/live_model.hpp"
#include "traces/checkpoints/folder.hpp"
#include "traces/checkpoints/pieces.hpp"

namespace dflop {
namespace process_checkpoint_test {

namespace fs = std::filesystem;

using testing::live_samples;
using testing::LiveRun;
using testing::uniform_plan;
using Kind = ParameterStore::Kind;

/// A process with one rank of the host. Processes communicate by the sockets of their rendezvous. Messages of
/// ranks go through the memory of one HostWorld, as the processes are threads of the test.
class HostProcess : public ProcessWorld {
 public:
  HostProcess(int rank, int port, HostWorld& host)
      : ProcessWorld({"127.0.0.1", port, rank, host.ranks(), Seconds{60}, Seconds{60}}), host_(host) {}
  std::string device_name() const override { return host_.device_name(); }
  std::unique_ptr<Device> make_device(int rank) override {
    const std::lock_guard lock(making);
    return host_.make_device(rank);
  }
  std::unique_ptr<Communicator> make_communicator(int rank) override {
    const std::lock_guard lock(making);
    return host_.make_communicator(rank);
  }

 private:
  static inline std::mutex making;
  HostWorld& host_;
};

/// Its second rank uses another folder than the first rank has made, as if the disk were not shared.
class LonelyProcess final : public HostProcess {
 public:
  using HostProcess::HostProcess;
  std::string broadcast(std::string bytes) override {
    std::string told = ProcessWorld::broadcast(std::move(bytes));
    return !leads() && told.ends_with(".part") ? told + "/elsewhere" : told;
  }
};

class LiveProcesses : public ::testing::Test {
 protected:
  LiveProcesses() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        (fs::path(::testing::TempDir()) / (std::string("dflop_process_checkpoint_") + test->name())).string();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~LiveProcesses() override { fs::remove_all(folder_); }

  std::string folder_;
};

/// Runs a plan with one process for each rank. An exception also ends the other processes and fails the test.
template <typename Process = HostProcess>
void run_processes(const Plan& plan, const std::vector<Sample>& samples,
                   const std::function<void(LiveRun&)>& body) {
  HostWorld host(plan.ranks());
  const int port = testing::free_port();
  std::vector<std::jthread> processes;
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    processes.emplace_back([&, rank] {
      try {
        LiveRun run(plan, samples, DType::bf16,
                    [&](int) { return std::make_unique<Process>(rank, port, host); });
        try {
          body(run);
        } catch (const std::exception& error) {
          run.world->abort(error.what());
          throw;
        }
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
}

void save(LiveRun& run, const std::string& folder, std::int64_t step) {
  CheckpointIndex index;
  index.step = step;
  run.executor->save(folder, index);
}

/// The processes' checkpoint is bit-identical to the checkpoint of one process with all ranks, and so is the
/// training after it.
TEST_F(LiveProcesses, WriteTheCheckpointOfOneProcess) {
  const std::vector<Sample> samples = live_samples(12, 5);
  const std::string apart = folder_ + "/apart";
  for (const Plan& plan : {uniform_plan(2, 1, 2, 2), uniform_plan(1, 2, 2, 2)}) {
    fs::remove_all(folder_);
    LiveRun whole(plan, samples, DType::bf16);
    for (int step = 1; step <= 2; ++step) whole.step(true, step);
    save(whole, folder_ + "/one", 2);
    whole.step(true, 3);
    save(whole, folder_ + "/one", 3);
    run_processes(plan, samples, [&](LiveRun& run) {
      for (int step = 1; step <= 2; ++step) run.step(true, step);
      save(run, apart, 2);
    });
    const CheckpointReader written(step_folder(apart, 2));
    written.verify();
    EXPECT_EQ(written.index().files.size(), static_cast<std::size_t>(plan.ranks()));
    EXPECT_EQ(written.index(), CheckpointReader(step_folder(folder_ + "/one", 2)).index());
    run_processes(plan, samples, [&](LiveRun& run) {
      run.executor->load(step_folder(apart, 2));
      run.step(true, 3);
      save(run, apart, 3);
      fs::create_directories(folder_ + "/weights");
      run.executor->save_weights(folder_ + "/weights");
    });
    EXPECT_EQ(CheckpointReader(step_folder(apart, 3)).index(),
              CheckpointReader(step_folder(folder_ + "/one", 3)).index());
    const CheckpointReader weights(folder_ + "/weights");
    weights.verify();
    for (const PiecedTensor& tensor : weights.index().tensors) EXPECT_EQ(tensor.kind, TensorKind::weight);
  }
}

/// Saves in two processes, and returns the message of each one's exception.
template <typename Process>
std::vector<std::string> refusals_of_a_save(const std::string& folder) {
  std::mutex mutex;
  std::vector<std::string> messages;
  run_processes<Process>(uniform_plan(1, 1, 2, 2), live_samples(12, 5), [&](LiveRun& run) {
    run.step(true, 1);
    try {
      save(run, folder, 1);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::output);
      const std::lock_guard lock(mutex);
      messages.emplace_back(error.what());
    }
  });
  return messages;
}

/// The rank that could write does not continue as if there were a checkpoint, and no files are left.
TEST_F(LiveProcesses, AllEndIfOneCannotWrite) {
  const std::vector<std::string> messages = refusals_of_a_save<LonelyProcess>(folder_);
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_EQ(messages[0], messages[1]);
  EXPECT_NE(messages[0].find("elsewhere"), std::string::npos) << messages[0];
  EXPECT_TRUE(fs::is_empty(folder_));
}

/// The same if the leading process cannot rename the checkpoint.
TEST_F(LiveProcesses, AllEndIfTheLeadingOneCannotWrite) {
  fs::create_directories(folder_ + "/run/step-00000001/in the way");
  const std::vector<std::string> messages = refusals_of_a_save<HostProcess>(folder_ + "/run");
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_EQ(messages[0], messages[1]);
  EXPECT_FALSE(fs::exists(folder_ + "/run/step-00000001.part"));
}

}  // namespace process_checkpoint_test
}  // namespace dflop
