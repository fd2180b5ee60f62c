#include "backend/link_bench.hpp"

#include <array>
#include <functional>
#include <numeric>
#include <string>

#include "backend/rank_threads.hpp"
#include "costmodel/link_fit.hpp"
#include "costmodel/median.hpp"

namespace dflop {
namespace {

constexpr std::array<std::size_t, 6> kSizes = {1 << 10, 1 << 12, 1 << 14,
                                               1 << 16, 1 << 18, 1 << 20};  // bytes
constexpr int kRepeats = 15;
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

/// The median time of step(), with `before` each that is not counted.
template <typename Before, typename Step>
double median_time(const LinkEnd& end, const Before& before, const Step& step) {
  std::vector<double> times;
  const std::unique_ptr<DeviceEvent> begins = end.device.make_event();
  const std::unique_ptr<DeviceEvent> ends = end.device.make_event();
  for (int i = 0; i < kWarmUps + kRepeats; ++i) {
    before();
    end.stream.synchronize();
    end.stream.record(*begins);
    step();
    end.stream.record(*ends);
    end.stream.synchronize();
    if (i >= kWarmUps) times.push_back(Seconds(ends->time() - begins->time()).count());
  }
  return median(times);
}

std::unique_ptr<Buffer> zeroed(const LinkEnd& end, std::size_t bytes) {
  std::unique_ptr<Buffer> buffer = end.device.allocate(bytes);
  const std::vector<std::byte> zeros(bytes);
  end.stream.copy_to_device(buffer->data(), zeros.data(), bytes);
  end.stream.synchronize();
  return buffer;
}

ProfileLine measure_messages(const std::vector<LinkEnd>& ends) {
  std::vector<LinkSample> samples;  // of rank 0
  on_ranks(ends, 2, [&](std::size_t rank) {
    const LinkEnd& end = ends[rank];
    for (const std::size_t bytes : kSizes) {
      const std::unique_ptr<Buffer> buffer = zeroed(end, bytes);
      const auto send = [&] {
        end.communicator.send(buffer->data(), bytes, rank == 0 ? 1 : 0, end.stream, "a measured message");
      };
      const auto receive = [&] {
        end.communicator.receive(buffer->data(), bytes, rank == 0 ? 1 : 0, end.stream, "a measured message");
      };
      const double both = median_time(
          end, [] {},
          [&] {
            if (rank == 0) send();
            receive();
            if (rank == 1) send();
          });
      if (rank == 0) samples.push_back({static_cast<double>(bytes), Seconds(both / 2)});
    }
  });
  return line_through(samples);
}

ProfileLine measure_all_reduce(const std::vector<LinkEnd>& ends, std::size_t ranks, Element element) {
  RankGroup group{std::vector<std::int32_t>(ranks)};
  std::iota(group.ranks.begin(), group.ranks.end(), 0);
  std::vector<LinkSample> samples;  // of rank 0
  on_ranks(ends, ranks, [&](std::size_t rank) {
    const LinkEnd& end = ends[rank];
    for (const std::size_t bytes : kSizes) {
      const std::unique_ptr<Buffer> buffer = zeroed(end, bytes);
      const auto sum = [&](std::size_t count) {
        end.communicator.all_reduce(buffer->data(), count, element, group, end.stream, "a measured sum");
      };
      // A sum of one value brings all ranks to the start.
      const double time = median_time(
          end, [&] { sum(1); }, [&] { sum(bytes / bytes_of(element)); });
      if (rank == 0) samples.push_back({static_cast<double>(bytes), Seconds(time)});
    }
  });
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
