#include "backend/profile/profiler.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <string>

#include "core/support/median.hpp"
#include "costmodel/recorded/recorded.hpp"

namespace dflop {
namespace {

constexpr std::array<std::size_t, 6> kSizes = {1 << 10, 1 << 12, 1 << 14,
                                               1 << 16, 1 << 18, 1 << 20};  // bytes
constexpr int kLinkRepeats = 15;
constexpr int kWarmUps = 3;

/// Spins so long that the other ranks fall asleep, if ranks do not run ahead of their device. In a run they
/// fall asleep too while they wait for a rank that computes, so the time to wake them belongs to the measured
/// communication.
void let_others_fall_asleep(const Device& device) {
  constexpr std::chrono::milliseconds kAwake{2};
  if (!device.is_synchronous()) return;
  const auto until = std::chrono::steady_clock::now() + kAwake;
  while (std::chrono::steady_clock::now() < until) {
  }
}

/// A LateRankBench measures the time from when rank 0, for which the others wait, begins step() until the
/// last rank ends it. It takes the median of several runs. `meet` synchronizes all ranks.
class LateRankBench {
 public:
  explicit LateRankBench(std::size_t ranks) : times_(ranks) {}

  template <typename Meet, typename Step>
  void run(const LocalRank& own, const Meet& meet, const Step& step) {
    const auto rank = static_cast<std::size_t>(own.communicator->rank());
    const std::unique_ptr<DeviceEvent> begin = own.device->make_event();
    const std::unique_ptr<DeviceEvent> done = own.device->make_event();
    for (int i = 0; i < kWarmUps + kLinkRepeats; ++i) {
      meet();
      own.stream->synchronize();
      if (rank == 0) {
        let_others_fall_asleep(*own.device);
        own.stream->record(*begin);
      }
      step();
      own.stream->record(*done);
      own.stream->synchronize();
      if (i < kWarmUps) continue;
      if (rank == 0) begins_.push_back(begin->time());
      times_[rank].push_back(done->time());
    }
  }

  /// Returns the median in seconds. Call it after all ranks have run.
  double duration() const {
    std::vector<double> durations;
    for (std::size_t i = 0; i < kLinkRepeats; ++i) {
      Nanoseconds last{0};
      for (const auto& times : times_) last = std::max(last, times[i]);
      durations.push_back(Seconds(last - begins_[i]).count());
    }
    return median(durations);
  }

 private:
  std::vector<std::vector<Nanoseconds>> times_;
  std::vector<Nanoseconds> begins_;  // of rank 0
};

std::unique_ptr<Buffer> zeroed(const LocalRank& rank, std::size_t bytes) {
  std::unique_ptr<Buffer> buffer = rank.device->allocate(bytes);
  const std::vector<std::byte> zeros(bytes);
  rank.stream->copy_to_device(buffer->data(), zeros.data(), bytes);
  rank.stream->synchronize();
  return buffer;
}

/// Returns the line through the times of the first `count` ranks for each size. Each rank's thread calls
/// run(bench, rank, data, bytes), which runs the measured work.
template <typename Run>
ProfileLine line_of(const std::vector<LocalRank>& ranks, std::size_t count, const Run& run) {
  std::vector<LinkSample> samples;
  for (const std::size_t bytes : kSizes) {
    LateRankBench bench(count);
    run_in_threads(
        count, {[&](std::size_t r) { ranks[r].device->enter_thread(); },
                [&](std::size_t r) { run(bench, ranks[r], zeroed(ranks[r], bytes)->data(), bytes); },
                [&](std::size_t r, const std::string& message) { ranks[r].communicator->abort(message); }});
    samples.push_back({static_cast<double>(bytes), Seconds(bench.duration())});
  }
  const std::optional<LinkFit> fit = fit_link(samples);
  return fit ? ProfileLine{fit->latency.count(), fit->seconds_per_byte} : ProfileLine{};
}

ProfileLine measure_messages(const std::vector<LocalRank>& ranks) {
  return line_of(ranks, 2, [](LateRankBench& bench, const LocalRank& own, void* data, std::size_t bytes) {
    const bool first = own.communicator->rank() == 0;
    const auto pass = [&](bool sends, std::size_t size, const char* what) {
      const int peer = first ? 1 : 0;
      if (sends) {
        own.communicator->send(data, size, peer, *own.stream, what);
      } else {
        own.communicator->receive(data, size, peer, *own.stream, what);
      }
    };
    bench.run(
        own, [&] { pass(!first, 0, "readiness"); }, [&] { pass(first, bytes, "a measured message"); });
  });
}

ProfileLine measure_all_reduce(const std::vector<LocalRank>& ranks, std::size_t count, DType element) {
  const RankGroup group = consecutive_ranks(0, static_cast<int>(count));
  return line_of(
      ranks, count, [&](LateRankBench& bench, const LocalRank& own, void* data, std::size_t bytes) {
        const auto sum = [&](std::size_t values) {
          own.communicator->all_reduce(data, values, element, group, *own.stream, "a measured sum");
        };
        bench.run(
            own, [&] { sum(1); }, [&] { sum(bytes / bytes_of(element)); });
      });
}

}  // namespace

void measure_links(const std::vector<LocalRank>& ranks, DType element, ProfileTables& profile) {
  if (ranks.size() < 2) return;
  profile.message = measure_messages(ranks);
  for (std::size_t count = 2; count <= ranks.size(); count *= 2) {
    profile.all_reduce[static_cast<int>(count)] = measure_all_reduce(ranks, count, element);
  }
}

}  // namespace dflop
