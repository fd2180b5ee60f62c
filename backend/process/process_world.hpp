// The ranks of a ProcessWorld are processes, one each.
#pragma once

#include <string>
#include <vector>

#include "backend/process/rendezvous.hpp"
#include "backend/world.hpp"

namespace dflop {

/// A ProcessWorld has one rank. What processes tell each other goes through their rendezvous; devices and
/// communicators are of those who derive from it.
class ProcessWorld : public World {
 public:
  /// Meets the other processes. @throws as Rendezvous.
  explicit ProcessWorld(const RendezvousOptions& options) : rendezvous_(options) {}
  /// Leaves in order; whoever has failed calls abort() before.
  ~ProcessWorld() override { rendezvous_.leave(); }
  ProcessWorld(const ProcessWorld&) = delete;
  ProcessWorld& operator=(const ProcessWorld&) = delete;

  int ranks() const override { return rendezvous_.ranks(); }
  std::vector<int> local_ranks() const override { return {rendezvous_.rank()}; }
  std::vector<std::string> gather(std::string bytes) override {
    return rendezvous_.gather(std::move(bytes), "what is gathered");
  }
  std::string broadcast(std::string bytes) override {
    return rendezvous_.broadcast(std::move(bytes), "the next word");
  }
  Nanoseconds clock_offset() override { return rendezvous_.clock_offset(); }
  void abort(const std::string& reason) override { rendezvous_.abort(reason); }

 protected:
  Rendezvous& rendezvous() { return rendezvous_; }

 private:
  Rendezvous rendezvous_;
};

/// Compares, by name, what must be the same in all processes.
/// @throws Error (input) in all of them, naming the first that differs and whose it is.
void require_agreement(World& world, const std::vector<std::pair<std::string, std::string>>& values);

}  // namespace dflop
