// Emulates the processes of a run on the host by threads with a World each. They share the devices; all other
// exchange is through a rendezvous.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/host/world.hpp"
#include "backend/model/made_up.hpp"
#include "backend/process/process_world.hpp"
#include "core/error.hpp"
#include "tests/backend/process/free_port.hpp"
#include "tests/backend/process/in_processes.hpp"
#include "traces/dataset/dataset.hpp"

namespace dflop::testing {

/// A process with one rank.
class HostProcess final : public ProcessWorld {
 public:
  HostProcess(int rank, int port, World& shared, std::mutex& mutex)
      : ProcessWorld({"127.0.0.1", port, rank, shared.ranks(), Seconds{60}, Seconds{60}}),
        shared_(shared),
        mutex_(mutex) {}
  std::string device_name() const override { return "host"; }
  int shared_devices() const override { return shared_.shared_devices(); }
  std::unique_ptr<Device> make_device(int rank) override {
    const std::scoped_lock lock(mutex_);
    return shared_.make_device(rank);
  }
  std::unique_ptr<Communicator> make_communicator(int rank) override {
    const std::scoped_lock lock(mutex_);
    return shared_.make_communicator(rank);
  }

 private:
  World& shared_;
  std::mutex& mutex_;
};

/// Runs `body` in one process for each rank of a world, with its devices and messages. Returns the message of
/// each process's exception; empty if there was none.
inline std::vector<std::string> run_processes_on(World& shared,
                                                 const std::function<void(HostProcess&)>& body) {
  std::mutex mutex;
  const int port = free_port();
  return messages_of_processes(shared.ranks(), [&](int rank) {
    HostProcess process(rank, port, shared, mutex);
    body(process);
  });
}

/// Does so on a host with `ranks` ranks.
inline std::vector<std::string> run_host_processes(int ranks, const WorldOptions& options,
                                                   const std::function<void(HostProcess&)>& body) {
  HostWorld shared(ranks, options);
  return run_processes_on(shared, body);
}

/// A data set with synthetic contents that counts reads.
class CountedDataset final : public Dataset {
 public:
  CountedDataset(const ModelSpec& model, std::vector<Sample> samples, std::uint64_t seed)
      : model_(model), made_up_(model_, seed) {
    samples_ = std::move(samples);
    for (const Sample& sample : samples_) by_id_[sample.id] = &sample;
  }

  std::string fingerprint() const override { return "made up"; }
  SampleContent read(const std::string& id, bool values) const override {
    {
      const std::scoped_lock lock(mutex_);
      (values ? decoded_ : shapes_).insert(id);
    }
    const Sample& sample = *by_id_.at(id);
    SampleContent content;
    content.tokens = *made_up_.tokens(sample);
    for (std::int64_t s = 0; s < sample.encoder().sequences; ++s)
      content.sequences.push_back(*made_up_.encoder(sample, s, values));
    return content;
  }
  std::int64_t trained_tokens(const Sample& sample) const override { return made_up_.trained_tokens(sample); }

  /// Return the ids of samples read with values and without, once per read.
  std::multiset<std::string> decoded() const { return decoded_; }
  std::multiset<std::string> shapes() const { return shapes_; }

 private:
  ModelSpec model_;
  MadeUpContents made_up_;
  std::map<std::string, const Sample*> by_id_;
  mutable std::mutex mutex_;
  mutable std::multiset<std::string> decoded_;
  mutable std::multiset<std::string> shapes_;
};

/// A data set with synthetic contents and one sample that cannot be decoded.
class DamagedDataset final : public Dataset {
 public:
  DamagedDataset(const ModelSpec& model, const std::vector<Sample>& samples, std::string damaged)
      : whole_(model, samples, 1), damaged_(std::move(damaged)) {
    samples_ = samples;
  }

  std::string fingerprint() const override { return whole_.fingerprint(); }
  SampleContent read(const std::string& id, bool values) const override {
    if (id == damaged_ && values) throw Error(ErrorKind::input, "bad.tar: not a picture");
    return whole_.read(id, values);
  }
  std::int64_t trained_tokens(const Sample& sample) const override { return whole_.trained_tokens(sample); }

 private:
  CountedDataset whole_;
  std::string damaged_;
};

}  // namespace dflop::testing
