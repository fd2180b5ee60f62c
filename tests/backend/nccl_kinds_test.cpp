// The NCCL communicator, put to the suite that every communicator must pass, with NCCL and a device that are
// made up on the host, and a rendezvous that is not.
#include "tests/backend/async_device.hpp"
#include "tests/backend/contract.hpp"
#include "tests/backend/free_port.hpp"
#include "tests/backend/nccl_fake.hpp"

namespace dflop::testing {
namespace {

/// A rank with the rendezvous that its communicator needs.
class NcclRank final : public Communicator {
 public:
  explicit NcclRank(const RendezvousOptions& options)
      : rendezvous_(options),
        nccl_(make_nccl_communicator(fake_nccl(), rendezvous_, fake_seam(options.rank))) {}

  int rank() const override { return nccl_->rank(); }
  int ranks() const override { return nccl_->ranks(); }
  void send(const void* data, std::size_t bytes, int peer, DeviceStream& stream,
            const std::string& what) override {
    nccl_->send(data, bytes, peer, stream, what);
  }
  void receive(void* data, std::size_t bytes, int peer, DeviceStream& stream,
               const std::string& what) override {
    nccl_->receive(data, bytes, peer, stream, what);
  }
  void connect(const std::vector<RankRoute>& routes) override { nccl_->connect(routes); }
  void all_reduce(void* data, std::size_t count, Element element, const RankGroup& group,
                  DeviceStream& stream, const std::string& what) override {
    nccl_->all_reduce(data, count, element, group, stream, what);
  }
  void all_gather(void* all, const void* one, std::size_t count, Element element, const RankGroup& group,
                  DeviceStream& stream, const std::string& what) override {
    nccl_->all_gather(all, one, count, element, group, stream, what);
  }
  void reduce_scatter(void* one, const void* all, std::size_t count, Element element, const RankGroup& group,
                      DeviceStream& stream, const std::string& what) override {
    nccl_->reduce_scatter(one, all, count, element, group, stream, what);
  }
  Nanoseconds last_arrival() const override { return nccl_->last_arrival(); }
  void abort(const std::string& reason) override { nccl_->abort(reason); }

 private:
  Rendezvous rendezvous_;
  std::unique_ptr<Communicator> nccl_;
};

class NcclTestWorld final : public TestWorld {
 public:
  NcclTestWorld(int ranks, Seconds timeout) : ranks_(ranks), timeout_(timeout) { forget_fake_nccl_calls(); }
  ~NcclTestWorld() override { EXPECT_EQ(fake_nccl_faults(), std::vector<std::string>{}); }
  std::unique_ptr<Communicator> communicator(int rank) override {
    return std::make_unique<NcclRank>(
        RendezvousOptions{"127.0.0.1", port_, rank, ranks_, Seconds{60}, timeout_});
  }
  std::unique_ptr<Device> device(int rank) override { return std::make_unique<AsyncDevice>(rank); }

 private:
  int ranks_;
  Seconds timeout_;
  int port_ = free_port();
};

CommunicatorKind nccl_communicator() {
  return {"nccl", 64, [](int ranks, Seconds timeout) -> std::unique_ptr<TestWorld> {
            return std::make_unique<NcclTestWorld>(ranks, timeout);
          }};
}

INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorContract, ::testing::Values(nccl_communicator()), KindName{});

}  // namespace
}  // namespace dflop::testing
