// Runs the suites that every implementation must pass on the host.
#include "tests/backend/contract/executor.hpp"
#include "tests/backend/contract/fixtures.hpp"
#include "tests/backend/run/live_model.hpp"

namespace dflop::testing {
namespace host_kinds_test {

/// Ranks take turns on `cores` cores; with 0, they compute at any time.
ExecutorKind host_executor(const std::string& name, int cores) {
  return {name, true, [cores](const Plan& plan, const ModelSpec& model) -> std::unique_ptr<Executor> {
            return std::make_unique<OwnWorldExecutor>(
                plan, model,
                std::make_unique<HostWorld>(plan.ranks(), WorldOptions{kLong, std::nullopt, cores}));
          }};
}

INSTANTIATE_TEST_SUITE_P(Host, DeviceContract, ::testing::Values(device_kind("host")), KindName{});
INSTANTIATE_TEST_SUITE_P(Host, CommunicatorContract, ::testing::Values(communicator_kind("host")),
                         KindName{});
INSTANTIATE_TEST_SUITE_P(Host, ExecutorContract,
                         ::testing::Values(host_executor("host", 0), host_executor("cores", 2)),
                         ExecutorName{});

}  // namespace host_kinds_test
}  // namespace dflop::testing
