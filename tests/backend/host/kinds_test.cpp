// The host, put to the suites that every implementation must pass.
#include "tests/backend/contract/fixtures.hpp"

namespace dflop::testing {
namespace {

INSTANTIATE_TEST_SUITE_P(Host, DeviceContract, ::testing::Values(device_kind("host")), KindName{});
INSTANTIATE_TEST_SUITE_P(Host, CommunicatorContract, ::testing::Values(communicator_kind("host")),
                         KindName{});

}  // namespace
}  // namespace dflop::testing
