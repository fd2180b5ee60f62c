// Communication between ranks that are threads of one process, whatever device they compute on.
#pragma once

#include <memory>
#include <string>

#include "backend/communicator.hpp"
#include "backend/host/run.hpp"

namespace dflop {

/// Checks calls, brings ranks together through their HostRun, and leaves it to the device how bytes are moved
/// and added.
class ThreadCommunicator : public Communicator {
 public:
  /// @throws Error (internal) where the rank has begun before.
  ThreadCommunicator(std::shared_ptr<HostRun> run, int rank);
  ~ThreadCommunicator() override;
  ThreadCommunicator(const ThreadCommunicator&) = delete;
  ThreadCommunicator& operator=(const ThreadCommunicator&) = delete;

  int rank() const override { return rank_; }
  int ranks() const override { return run_->ranks(); }
  void send(const void* data, std::size_t bytes, int peer, DeviceStream& stream,
            const std::string& what) override;
  void receive(void* data, std::size_t bytes, int peer, DeviceStream& stream,
               const std::string& what) override;
  void all_reduce(void* data, std::size_t count, Element element, const RankGroup& group,
                  DeviceStream& stream, const std::string& what) override;
  void all_gather(void* all, const void* one, std::size_t count, Element element, const RankGroup& group,
                  DeviceStream& stream, const std::string& what) override;
  void reduce_scatter(void* one, const void* all, std::size_t count, Element element, const RankGroup& group,
                      DeviceStream& stream, const std::string& what) override;
  Nanoseconds last_arrival() const override;
  Arrival arrival() const override { return arrival_; }
  void abort(const std::string& reason) override { run_->abort(rank_, reason); }

 protected:
  /// A copy of the data as it is when the stream comes to it.
  virtual HostMessage pack(const void* data, std::size_t bytes, DeviceStream& stream) = 0;
  /// The stream gets the copy when it is there.
  virtual void unpack(void* data, HostMessage message, DeviceStream& stream) = 0;

  /// Called before this rank comes to a collective: sets the part's events.
  virtual void come(HostPart& part, DeviceStream& stream) = 0;
  /// This rank's share of a collective's work, all of whose ranks have come. `place` is its own. The other
  /// ranks wait for it.
  virtual void do_share(const HostCollective& collective, std::size_t place, DeviceStream& stream) = 0;
  /// The stream goes on when all shares are done.
  virtual void finish(const HostCollective& collective, DeviceStream& stream) = 0;

 private:
  void collective(const HostCollectiveCall& call, const RankGroup& group, HostPart part,
                  DeviceStream& stream);

  std::shared_ptr<HostRun> run_;
  int rank_;
  Arrival arrival_;
};

}  // namespace dflop
