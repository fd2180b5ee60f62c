// Ranks of several processes write one checkpoint together and go on from it.
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

/// A process with one rank of the host. What processes tell each other goes through their rendezvous, by
/// sockets; what ranks send goes through the memory of one HostWorld, as the processes are threads of the
/// test.
class HostProcess final : public ProcessWorld {
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

/// Runs a plan with a process for each rank. An exception ends the others, too, and is a failure of the test.
void run_processes(const Plan& plan, const std::vector<Sample>& samples,
                   const std::function<void(LiveRun&)>& body) {
  HostWorld host(plan.ranks());
  const int port = testing::free_port();
  std::vector<std::jthread> processes;
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    processes.emplace_back([&, rank] {
      try {
        LiveRun run(plan, samples, DType::bf16,
                    [&](int) { return std::make_unique<HostProcess>(rank, port, host); });
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

/// The processes' checkpoint is that of one process with all ranks, to the bit, and so is what they learn
/// from there on.
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

}  // namespace process_checkpoint_test
}  // namespace dflop
