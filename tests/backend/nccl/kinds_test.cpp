// The NCCL communicator, put to the suite that every communicator must pass, with NCCL and a device that are
// made up on the host, and a rendezvous that is not.
#include "tests/backend/async_device.hpp"
#include "tests/backend/contract/fixtures.hpp"
#include "tests/backend/forwarding.hpp"
#include "tests/backend/nccl/fake.hpp"
#include "tests/backend/process/free_port.hpp"

namespace dflop::testing {
namespace {

/// What a rank's communicator needs, in a base so that it is there before the communicator and after it.
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

INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorContract, ::testing::Values(nccl_communicator()), KindName{});

}  // namespace
}  // namespace dflop::testing
