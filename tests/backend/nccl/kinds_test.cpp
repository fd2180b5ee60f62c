// Runs the suites that every communicator and executor must pass on the NCCL communicator, with a fake NCCL
// and a fake device on the host, and a real rendezvous.
#include "tests/backend/contract/executor.hpp"
#include "tests/backend/contract/fixtures.hpp"
#include "tests/backend/forwarding.hpp"
#include "tests/backend/nccl/fake_process.hpp"
#include "tests/backend/run/live_model.hpp"

namespace dflop::testing {
namespace nccl_kinds_test {

/// The rendezvous of a rank's communicator, in a base class so that it outlives the communicator.
struct NcclRendezvous {
  explicit NcclRendezvous(const RendezvousOptions& options) : rendezvous(options) {}
  Rendezvous rendezvous;
};

class NcclRank final : private NcclRendezvous, public ForwardingCommunicator {
 public:
  explicit NcclRank(const RendezvousOptions& options)
      : NcclRendezvous(options),
        ForwardingCommunicator(make_nccl_communicator(fake_nccl(), rendezvous, fake_seam(options.rank))) {}
};

class NcclTestWorld final : public World {
 public:
  NcclTestWorld(int ranks, Seconds timeout) : ranks_(ranks), timeout_(timeout) { forget_fake_nccl_calls(); }
  ~NcclTestWorld() override { EXPECT_EQ(fake_nccl_faults(), std::vector<std::string>{}); }
  std::string device_name() const override { return "nccl"; }
  int ranks() const override { return ranks_; }
  std::unique_ptr<Communicator> make_communicator(int rank) override {
    return std::make_unique<NcclRank>(
        RendezvousOptions{"127.0.0.1", port_, rank, ranks_, Seconds{60}, timeout_});
  }
  std::unique_ptr<Device> make_device(int rank) override { return std::make_unique<AsyncDevice>(rank); }

 private:
  int ranks_;
  Seconds timeout_;
  int port_ = free_port();
};

CommunicatorKind nccl_communicator() {
  return {"nccl", 64, [](int ranks, Seconds timeout) -> std::unique_ptr<World> {
            return std::make_unique<NcclTestWorld>(ranks, timeout);
          }};
}

/// Makes new processes for each iteration.
class ProcessesExecutor final : public Executor {
 public:
  ProcessesExecutor(const Plan& plan, const ModelSpec& model) : plan_(plan), model_(model) {}
  Timeline run(const Iteration& iteration, Detail detail) const override {
    Timeline timeline;
    const auto messages = run_processes(plan_.ranks(), [&](FakeProcess& process) {
      const LiveExecutor executor(plan_, model_, process, {});
      Timeline own = executor.run(iteration, detail);
      if (process.leads()) timeline = std::move(own);
    });
    for (const std::string& message : messages) {
      if (!message.empty()) throw Error(ErrorKind::internal, message);
    }
    return timeline;
  }

 private:
  const Plan& plan_;
  const ModelSpec& model_;
};

ExecutorKind nccl_executor() {
  return {"nccl", true, [](const Plan& plan, const ModelSpec& model) -> std::unique_ptr<Executor> {
            return std::make_unique<ProcessesExecutor>(plan, model);
          }};
}

INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorContract, ::testing::Values(nccl_communicator()), KindName{});
INSTANTIATE_TEST_SUITE_P(Nccl, ExecutorContract, ::testing::Values(nccl_executor()), ExecutorName{});

}  // namespace nccl_kinds_test
}  // namespace dflop::testing
