// Processes of a run, which here are threads with a World each: they share nothing but a rendezvous and an
// NCCL that is made up.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backend/process/process_world.hpp"
#include "tests/backend/async_device.hpp"
#include "tests/backend/nccl/fake.hpp"
#include "tests/backend/process/free_port.hpp"

namespace dflop::testing {

/// A process with one rank, on the host.
class FakeProcess final : public ProcessWorld {
 public:
  FakeProcess(int rank, int ranks, int port)
      : ProcessWorld({"127.0.0.1", port, rank, ranks, Seconds{60}, Seconds{60}}) {}
  std::string device_name() const override { return "host"; }
  std::unique_ptr<Device> make_device(int rank) override { return std::make_unique<AsyncDevice>(rank, true); }
  std::unique_ptr<Communicator> make_communicator(int rank) override {
    return make_nccl_communicator(fake_nccl(), rendezvous(), fake_seam(rank));
  }
};

using Body = std::function<void(FakeProcess&)>;

/// Runs `body` in so many processes and returns the message of each one's exception; empty where there was
/// none.
inline std::vector<std::string> run_processes(int ranks, const Body& body) {
  forget_fake_nccl_calls();
  const int port = free_port();
  std::vector<std::string> messages(static_cast<std::size_t>(ranks));
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r] {
        try {
          FakeProcess process(r, ranks, port);
          body(process);
        } catch (const std::exception& error) {
          messages[static_cast<std::size_t>(r)] = error.what();
        }
      });
    }
  }
  EXPECT_EQ(fake_nccl_faults(), std::vector<std::string>{});
  return messages;
}

}  // namespace dflop::testing
