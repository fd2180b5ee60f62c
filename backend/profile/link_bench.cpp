#include "backend/profile/link_bench.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <numeric>
#include <string>

#include "backend/rank_threads.hpp"
#include "core/support/median.hpp"
#include "costmodel/recorded/link_fit.hpp"

namespace dflop {
namespace {

constexpr std::array<std::size_t, 6> kSizes = {1 << 10, 1 << 12, 1 << 14,
                                               1 << 16, 1 << 18, 1 << 20};  // bytes
constexpr int kLinkRepeats = 15;
constexpr int kWarmUps = 3;

ProfileLine line_through(const std::vector<LinkSample>& samples) {
  const std::optional<LinkFit> fit = fit_link(samples);
  return fit ? ProfileLine{fit->latency.count(), fit->seconds_per_byte} : ProfileLine{};
}

/// Calls work(rank) for the first `count` ranks, each in a thread of its own.
void on_ranks(const std::vector<LinkEnd>& ends, std::size_t count,
              const std::function<void(std::size_t)>& work) {
  run_in_threads(
      count, {[&](std::size_t rank) { ends[rank].device.enter_thread(); }, work,
              [&](std::size_t rank, const std::string& message) { ends[rank].communicator.abort(message); }});
}

/// Those who wait for a rank that computes fall asleep where they do not run ahead; waking them belongs to
/// what they wait for.
void let_others_fall_asleep(const LinkEnd& end) {
  constexpr std::chrono::milliseconds kAwake{2};
  if (!end.device.is_synchronous()) return;
  const auto until = std::chrono::steady_clock::now() + kAwake;
  while (std::chrono::steady_clock::now() < until) {
  }
}

/// A LateRankBench measures from when rank 0, which the others wait for, begins step(rank) until the last
/// rank has ended it: the median of some. `meet` brings all ranks together.
class LateRankBench {
 public:
  LateRankBench(const std::vector<LinkEnd>& ends, std::size_t ranks) : ends_(ends), times_(ranks) {}

  template <typename Meet, typename Step>
  void run(std::size_t rank, const Meet& meet, const Step& step) {
    const LinkEnd& end = ends_[rank];
    const std::unique_ptr<DeviceEvent> begin = end.device.make_event();
    const std::unique_ptr<DeviceEvent> done = end.device.make_event();
    for (int i = 0; i < kWarmUps + kLinkRepeats; ++i) {
      meet();
      end.stream.synchronize();
      if (rank == 0) {
        let_others_fall_asleep(end);
        end.stream.record(*begin);
      }
      step();
      end.stream.record(*done);
      end.stream.synchronize();
      if (i < kWarmUps) continue;
      if (rank == 0) begins_.push_back(begin->time());
      times_[rank].push_back(done->time());
    }
  }

  /// Returns the median in seconds; it is called after all ranks have run.
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
  const std::vector<LinkEnd>& ends_;
  std::vector<std::vector<Nanoseconds>> times_;
  std::vector<Nanoseconds> begins_;  // of rank 0
};

std::unique_ptr<Buffer> zeroed(const LinkEnd& end, std::size_t bytes) {
  std::unique_ptr<Buffer> buffer = end.device.allocate(bytes);
  const std::vector<std::byte> zeros(bytes);
  end.stream.copy_to_device(buffer->data(), zeros.data(), bytes);
  end.stream.synchronize();
  return buffer;
}

ProfileLine measure_messages(const std::vector<LinkEnd>& ends) {
  std::vector<LinkSample> samples;
  for (const std::size_t bytes : kSizes) {
    LateRankBench bench(ends, 2);
    on_ranks(ends, 2, [&](std::size_t rank) {
      const LinkEnd& end = ends[rank];
      const std::unique_ptr<Buffer> buffer = zeroed(end, bytes);
      const auto send = [&](std::size_t size, const char* what) {
        end.communicator.send(buffer->data(), size, rank == 0 ? 1 : 0, end.stream, what);
      };
      const auto receive = [&](std::size_t size, const char* what) {
        end.communicator.receive(buffer->data(), size, rank == 0 ? 1 : 0, end.stream, what);
      };
      bench.run(
          rank, [&] { rank == 1 ? send(0, "readiness") : receive(0, "readiness"); },
          [&] { rank == 0 ? send(bytes, "a measured message") : receive(bytes, "a measured message"); });
    });
    samples.push_back({static_cast<double>(bytes), Seconds(bench.duration())});
  }
  return line_through(samples);
}

ProfileLine measure_all_reduce(const std::vector<LinkEnd>& ends, std::size_t ranks, Element element) {
  RankGroup group{std::vector<std::int32_t>(ranks)};
  std::iota(group.ranks.begin(), group.ranks.end(), 0);
  std::vector<LinkSample> samples;
  for (const std::size_t bytes : kSizes) {
    LateRankBench bench(ends, ranks);
    on_ranks(ends, ranks, [&](std::size_t rank) {
      const LinkEnd& end = ends[rank];
      const std::unique_ptr<Buffer> buffer = zeroed(end, bytes);
      const auto sum = [&](std::size_t count) {
        end.communicator.all_reduce(buffer->data(), count, element, group, end.stream, "a measured sum");
      };
      bench.run(
          rank, [&] { sum(1); }, [&] { sum(bytes / bytes_of(element)); });
    });
    samples.push_back({static_cast<double>(bytes), Seconds(bench.duration())});
  }
  return line_through(samples);
}

}  // namespace

LinkLines measure_links(const std::vector<LinkEnd>& ends, Element element) {
  LinkLines lines;
  if (ends.size() < 2) return lines;
  lines.message = measure_messages(ends);
  for (std::size_t ranks = 2; ranks <= ends.size(); ranks *= 2) {
    lines.all_reduce[static_cast<int>(ranks)] = measure_all_reduce(ends, ranks, element);
  }
  return lines;
}

}  // namespace dflop
