// A ThreadCommunicator connects ranks that are threads of one process, on any kind of device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/communicator.hpp"
#include "backend/host/run.hpp"

namespace dflop {

/// A HostSum describes a sum over the ranks of a collective: the inputs of all ranks and the outputs, which
/// may be the same memory.
struct HostSum {
  DType element = DType::f32;
  std::vector<const void*> inputs;  ///< one or more, added in this order
  std::vector<void*> outputs;       ///< each gets the result
};

/// A ThreadCommunicator checks calls, connects ranks through their HostRun, and divides the work of a
/// collective among the ranks. Derived classes move and add bytes on their device.
class ThreadCommunicator : public Communicator {
 public:
  /// Makes a rank's endpoint. @throws Error (internal) if the rank has already begun.
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
  /// Returns a copy of the data, made when the stream reaches this call.
  virtual HostMessage pack(const void* data, std::size_t bytes, DeviceStream& stream) = 0;
  /// Enqueues in the stream a copy of a message's data to `data`. The copy starts when the message's data
  /// are ready.
  virtual void unpack(void* data, HostMessage message, DeviceStream& stream) = 0;

  /// Sets the part's events before this rank joins a collective.
  virtual void come(HostPart& part, DeviceStream& stream) = 0;
  /// Runs one share of a collective's work with copy() and add_up(), after all ranks have joined. The other
  /// ranks wait for this share. `place` is the share's index: the rank's own index in the group, or any
  /// index in an all-reduce with takes_any_share().
  virtual void do_share(const HostCollective& collective, std::size_t place, DeviceStream& stream);
  /// Returns whether a rank may do any share of an all-reduce that no rank has taken. Then the ranks that
  /// waited can do all shares before the last rank's thread continues. If false, each rank does its own
  /// share.
  virtual bool takes_any_share() const { return false; }
  /// Copies between two different places in memory.
  virtual void copy(void* to, const void* from, std::size_t bytes, DeviceStream& stream) = 0;
  /// Sets outputs[.][i] = sum over k of inputs[k][i] for i in [begin, end): f32 and f64 in their own
  /// precision, bf16 in f32 and then rounded to the nearest.
  virtual void add_up(const HostSum& sum, std::size_t begin, std::size_t end, DeviceStream& stream) = 0;
  /// Makes later work in the stream wait until all shares are done.
  virtual void go_on(const HostCollective& collective, DeviceStream& stream) = 0;

 private:
  class Started;

  void do_shares(Started& started, DeviceStream& stream);

  std::shared_ptr<HostRun> run_;
  int rank_;
  Arrival arrival_;
};

}  // namespace dflop
