#include "backend/host/ranks.hpp"

#include <numeric>

#include "backend/host/affinity.hpp"
#include "backend/host/device.hpp"
#include "backend/host/world.hpp"

namespace dflop {
namespace {

/// A thread that is woken may wait behind the one that woke it, for milliseconds, while another processor is
/// idle. Where most are idle it finds one, and ranks that stayed would share theirs with those of other runs.
bool stays_on_processors(int ranks, std::size_t processors) {
  const auto count = static_cast<std::size_t>(ranks);
  return ranks > 1 && count <= processors && 2 * count > processors;
}

class HostRanks final : public World {
 public:
  HostRanks(int ranks, const HostRanksOptions& options)
      : ranks_(ranks), options_(options), world_(ranks, options.timeout, options.cores) {
    const std::vector<int> processors = usable_processors();
    if (ranks <= options.cores && stays_on_processors(ranks, processors.size())) processors_ = processors;
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
    if (!processors_.empty()) options.processor = processors_[static_cast<std::size_t>(rank)];
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
  std::vector<int> processors_;         // of the ranks; none: they go where they like
  std::shared_ptr<HostBudget> budget_;  // of the machine, when the world was made
};

}  // namespace

std::unique_ptr<World> make_host_ranks(int ranks, const HostRanksOptions& options) {
  return std::make_unique<HostRanks>(ranks, options);
}

}  // namespace dflop
