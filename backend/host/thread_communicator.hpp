// Ranks that are threads of one process communicate here, whatever device they compute on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/communicator.hpp"
#include "backend/host/run.hpp"

namespace dflop {

/// A HostSum is one piece of memory as each rank of a collective has it: what is read, and where its sum
/// goes, which may be the same memory.
struct HostSum {
  DType element = DType::f32;
  std::vector<const void*> inputs;  ///< one or more, in the order in which they are added
  std::vector<void*> outputs;       ///< each gets the sum
};

/// A ThreadCommunicator checks calls, brings ranks together through their HostRun, and deals the work of a
/// collective out to them. How bytes are moved and added is the device's, in the classes that derive from it.
class ThreadCommunicator : public Communicator {
 public:
  /// Makes a rank's end.
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
  void collective(const CollectiveCall& call, const void* input, void* output, const RankGroup& group,
                  DeviceStream& stream) override;
  std::unique_ptr<StartedCollective> start(const CollectiveCall& call, const void* input, void* output,
                                           const RankGroup& group, DeviceStream& stream) override;
  void finish(StartedCollective& started, DeviceStream& stream) override;
  Arrival arrival() const override { return arrival_; }
  void abort(const std::string& reason) override { run_->abort(rank_, reason); }

 protected:
  /// Returns a copy of the data as it is when the stream comes to it.
  virtual HostMessage pack(const void* data, std::size_t bytes, DeviceStream& stream) = 0;
  /// Gives the stream a message's copy when it is there.
  virtual void unpack(void* data, HostMessage message, DeviceStream& stream) = 0;

  /// Sets the part's events before this rank comes to a collective.
  virtual void come(HostPart& part, DeviceStream& stream) = 0;
  /// Does a share of a collective's work, all of whose ranks have come, by copy() and add_up(). The other
  /// ranks wait for it. `place` is the rank's own, but of an all-reduce any where takes_any_share().
  virtual void do_share(const HostCollective& collective, std::size_t place, DeviceStream& stream);
  /// Returns whether ranks take the shares of all-reduces as they come to them: who is early has then added
  /// up what all have brought when the last one comes back from its compute. Else each rank does its own.
  virtual bool takes_any_share() const { return false; }
  /// Copies between two places that are not the same.
  virtual void copy(void* to, const void* from, std::size_t bytes, DeviceStream& stream) = 0;
  /// Sets outputs[.][i] = sum over k of inputs[k][i] for i in [begin, end): f32 and f64 in their own
  /// precision, bf16 in f32 and then rounded to the nearest.
  virtual void add_up(const HostSum& sum, std::size_t begin, std::size_t end, DeviceStream& stream) = 0;
  /// Lets the stream go on when all shares are done.
  virtual void go_on(const HostCollective& collective, DeviceStream& stream) = 0;

 private:
  class Started;

  void do_shares(Started& started, DeviceStream& stream);

  std::shared_ptr<HostRun> run_;
  int rank_;
  Arrival arrival_;
};

}  // namespace dflop
