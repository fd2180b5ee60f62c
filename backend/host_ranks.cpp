#include "backend/host_ranks.hpp"

#include <numeric>

#include "backend/host_device.hpp"
#include "backend/host_world.hpp"

namespace dflop {
namespace {

class HostRanks final : public World {
 public:
  HostRanks(int ranks, const HostRanksOptions& options)
      : ranks_(ranks), options_(options), world_(ranks, options.timeout, options.cores) {
    if (const std::optional<Bytes> all = available_host_memory())
      budget_ = std::make_shared<HostBudget>(*all);
  }

  std::string device_name() const override { return "host"; }
  int ranks() const override { return ranks_; }
  std::vector<int> local_ranks() const override {
    std::vector<int> all(static_cast<std::size_t>(ranks_));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  std::unique_ptr<Device> make_device(int rank) override {
    HostDeviceOptions options{rank, options_.memory, budget_};
    // Where each rank has a core: a thread that is woken may else wait behind the one that woke it, for
    // milliseconds, while another core is idle.
    if (ranks_ > 1 && ranks_ <= options_.cores) options.processor = rank;
    return make_host_device(options);
  }
  std::unique_ptr<Communicator> make_communicator(int rank) override { return world_.communicator(rank); }
  int cores() const override { return options_.cores; }
  std::unique_ptr<ComputeTurn> make_turn(int rank, const RankGroup& tp) override {
    return world_.turn(rank, tp);
  }

 private:
  int ranks_;
  HostRanksOptions options_;
  HostWorld world_;
  std::shared_ptr<HostBudget> budget_;  // of the machine, when the world was made
};

}  // namespace

std::unique_ptr<World> make_host_ranks(int ranks, const HostRanksOptions& options) {
  return std::make_unique<HostRanks>(ranks, options);
}

}  // namespace dflop
