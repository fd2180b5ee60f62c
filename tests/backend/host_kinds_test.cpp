// The host, put to the suites that every implementation must pass.
#include "backend/host/device.hpp"
#include "backend/host/world.hpp"
#include "tests/backend/contract.hpp"

namespace dflop::testing {
namespace {

class HostTestWorld final : public TestWorld {
 public:
  HostTestWorld(int ranks, Seconds timeout) : world_(ranks, timeout) {}
  std::unique_ptr<Communicator> communicator(int rank) override { return world_.communicator(rank); }
  std::unique_ptr<Device> device(int rank) override { return make_host_device({rank, std::nullopt}); }

 private:
  HostWorld world_;
};

DeviceKind host_device() {
  return {"host", [](std::optional<Bytes> limit) { return make_host_device({0, limit}); }};
}

CommunicatorKind host_communicator() {
  return {"host", 64, [](int ranks, Seconds timeout) -> std::unique_ptr<TestWorld> {
            return std::make_unique<HostTestWorld>(ranks, timeout);
          }};
}

INSTANTIATE_TEST_SUITE_P(Host, DeviceContract, ::testing::Values(host_device()), KindName{});
INSTANTIATE_TEST_SUITE_P(Host, CommunicatorContract, ::testing::Values(host_communicator()), KindName{});

}  // namespace
}  // namespace dflop::testing
