#include "experiments/charts/charts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace dflop {
namespace {

constexpr double kHeight = 220;
constexpr double kHeadroom = 1.12;  // space above the highest line, for its label
constexpr double kGiB = 0x1p-30;
constexpr double kBucketsPerPixel = 2;
constexpr std::size_t kUses = 5;

struct Use {
  std::string_view color;
  std::string_view name;
};

constexpr std::array<Use, kUses> kUsesOfMemory = {{{"#9aa5b1", "parameters"},
                                                   {"#c3b08b", "gradients"},
                                                   {"#8fb08c", "optimizer"},
                                                   {"#4c78a8", "activations"},
                                                   {"#e8923a", "buffers"}}};

/// A Stack has the cumulative heights of all uses in bytes, each on top of the previous ones.
using Stack = std::array<std::int64_t, kUses>;

Stack stack_of(const ModelState& state, Bytes activations, Bytes buffers) {
  Stack stack = {state.parameters.count, state.gradients.count, state.optimizer.count, activations.count,
                 buffers.count};
  for (std::size_t u = 1; u < kUses; ++u) stack[u] += stack[u - 1];
  return stack;
}

/// Returns the highest stack in each bucket of time, including the stack at the start of the bucket.
std::vector<Stack> sampled(const Timeline& timeline, const GroupUsage& group) {
  const auto buckets = static_cast<std::size_t>(kPlotWidth * kBucketsPerPixel);
  std::vector<Stack> fullest(buckets, stack_of(group.model_state, {}, {}));
  const double scale = time_scale(timeline.makespan) * kBucketsPerPixel;
  Stack now = fullest.front();
  std::size_t bucket = 0;
  const auto advance_to = [&](std::size_t next) {
    while (bucket < next) fullest[++bucket] = now;
  };
  for (const MemoryPoint& point : timeline.memory) {
    if (point.rank != group.first_rank) continue;
    advance_to(
        std::min(buckets - 1, static_cast<std::size_t>(static_cast<double>(point.time.count()) * scale)));
    now = stack_of(group.model_state, point.activations, point.buffers);
    if (now.back() > fullest[bucket].back()) fullest[bucket] = now;
  }
  advance_to(buckets - 1);
  return fullest;
}

/// A Height converts bytes to pixels from the top.
struct Height {
  double most = 1;  ///< bytes at the top

  double of(std::int64_t bytes) const { return kHeight * (1 - static_cast<double>(bytes) / most); }
};

/// Draws the area between a use and the one below it, in steps.
std::string area(const std::vector<Stack>& stacks, std::size_t use, const Height& height) {
  const auto top = [&](std::size_t b) { return stacks[b][use]; };
  const auto bottom = [&](std::size_t b) { return use == 0 ? 0 : stacks[b][use - 1]; };
  const auto x = [](std::size_t b) { return kLabelWidth + static_cast<double>(b) / kBucketsPerPixel; };
  const std::size_t count = stacks.size();
  std::string path = fmt::format("M{:.1f} {:.1f}", x(0), height.of(top(0)));
  for (std::size_t b = 1; b < count; ++b) {
    if (top(b) != top(b - 1)) path += fmt::format("H{:.1f}V{:.1f}", x(b), height.of(top(b)));
  }
  path += fmt::format("H{:.1f}V{:.1f}", x(count), height.of(bottom(count - 1)));
  for (std::size_t b = count - 1; b > 0; --b) {
    if (bottom(b) != bottom(b - 1)) path += fmt::format("H{:.1f}V{:.1f}", x(b), height.of(bottom(b - 1)));
  }
  return fmt::format("<path d='{}H{:.1f}Z' fill='{}'/>", path, x(0), kUsesOfMemory[use].color);
}

std::string byte_axis(const Height& height) {
  const double most = height.most * kGiB;
  const double step = tick_step(most);
  std::string out;
  for (int i = 0; i * step <= most; ++i) {
    const double y = kHeight * (1 - i * step / most);
    out += fmt::format("<line x1='{:.1f}' y1='{:.1f}' x2='{:.1f}' y2='{:.1f}' stroke='#ececec'/>",
                       kLabelWidth, y, kLabelWidth + kPlotWidth, y);
    out += fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='end'>{:.{}f} GiB</text>", kLabelWidth - 8,
                       y + 4, i * step, tick_decimals(step));
  }
  return out;
}

std::string limit_line(Bytes limit, const Height& height) {
  const double y = height.of(limit.count);
  return fmt::format(
      "<line x1='{0:.1f}' y1='{1:.1f}' x2='{2:.1f}' y2='{1:.1f}' stroke='#c0392b' stroke-dasharray='6 4'/>"
      "<text x='{2:.1f}' y='{3:.1f}' text-anchor='end' fill='#c0392b'>usable {4:.1f} GiB</text>",
      kLabelWidth, y, kLabelWidth + kPlotWidth, y - 4, static_cast<double>(limit.count) * kGiB);
}

std::string peak_mark(const Timeline& timeline, const GroupUsage& group, const Height& height) {
  const double x = kLabelWidth + static_cast<double>(group.peak_time.count()) * time_scale(timeline.makespan);
  const double y = height.of(group.peak_memory.count);
  const bool right = x > kLabelWidth + kPlotWidth / 2;
  return fmt::format(
      "<circle cx='{0:.1f}' cy='{1:.1f}' r='3.5' fill='#111'/><text x='{2:.1f}' y='{3:.1f}' "
      "text-anchor='{4}' fill='#111' font-weight='bold'>peak {5:.2f} GiB at {6:.4f} s</text>",
      x, y, right ? x - 7 : x + 7, y - 6, right ? "end" : "start",
      static_cast<double>(group.peak_memory.count) * kGiB, Seconds(group.peak_time).count());
}

std::string legend(double y) {
  std::string out;
  double x = kLabelWidth;
  for (const Use& use : kUsesOfMemory) {
    out += fmt::format("<rect x='{:.0f}' y='{:.0f}' width='13' height='13' fill='{}'/>", x, y, use.color);
    out += fmt::format("<text x='{:.0f}' y='{:.0f}'>{}</text>", x + 18, y + 11, use.name);
    x += 34 + 6.6 * static_cast<double>(use.name.size());
  }
  return out;
}

}  // namespace

std::string memory_svg(const Timeline& timeline, std::size_t group, std::optional<Bytes> limit) {
  const GroupUsage& usage = timeline.groups[group];
  const std::int64_t highest =
      std::max({usage.peak_memory.count, limit.value_or(Bytes{}).count, std::int64_t{1}});
  const Height height{static_cast<double>(highest) * kHeadroom};
  const std::vector<Stack> stacks = sampled(timeline, usage);
  std::string out = svg_open(kLabelWidth + kPlotWidth + 30, kHeight + kAxisHeight + 22);
  out += time_axis(timeline.makespan, kHeight) + byte_axis(height);
  for (std::size_t use = 0; use < kUses; ++use) out += area(stacks, use, height);
  if (limit) out += limit_line(*limit, height);
  out += peak_mark(timeline, usage, height);
  return out + legend(kHeight + kAxisHeight + 4) + "</svg>";
}

}  // namespace dflop
