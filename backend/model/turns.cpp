#include "backend/model/turns.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "core/error.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kMinKept = 256;

/// Returns a frequency with Llama 3.1's scaling: slow pairs are scaled by the factor, fast pairs are not, and
/// pairs in between partly.
double scaled(double frequency, const RopeScaling& scaling) {
  const auto original = static_cast<double>(scaling.original_positions);
  const double wave = 2 * std::numbers::pi / frequency;
  if (wave < original / scaling.high_frequency_factor) return frequency;
  if (wave > original / scaling.low_frequency_factor) return frequency / scaling.factor;
  const double smooth = (original / wave - scaling.low_frequency_factor) /
                        (scaling.high_frequency_factor - scaling.low_frequency_factor);
  return (1 - smooth) * frequency / scaling.factor + smooth * frequency;
}

/// Returns the frequency of each pair.
std::vector<double> frequencies_of(const Rotary& rotary, const std::vector<int>& sections, int head_dim) {
  std::vector<double> frequencies;
  for (const int section : sections) {
    // The exponent runs from 0 to 1 over a head, or over a section's part of a head.
    const double pairs = rotary.sections_restart ? section : head_dim / 2;
    const std::size_t first = rotary.sections_restart ? 0 : frequencies.size();
    for (int i = 0; i < section; ++i) {
      const double frequency = std::pow(rotary.base, -static_cast<double>(first + i) / pairs);
      frequencies.push_back(rotary.scaling ? scaled(frequency, *rotary.scaling) : frequency);
    }
  }
  for (std::size_t pair = 0; pair < rotary.factors.size() && pair < frequencies.size(); ++pair)
    frequencies[pair] *= rotary.factors[pair];
  return frequencies;
}

/// Returns the pairs that each axis rotates.
std::vector<std::vector<std::size_t>> pairs_of_axes(const Rotary& rotary, const std::vector<int>& sections,
                                                    std::size_t pairs) {
  std::vector<std::vector<std::size_t>> axes(sections.size());
  std::size_t axis = 0;
  std::size_t end = static_cast<std::size_t>(sections.front());  // of the axis's section
  for (std::size_t pair = 0; pair < pairs; ++pair) {
    if (rotary.sections_interleave) {
      axis = pair % 3;
      if (pair >= 3 * static_cast<std::size_t>(sections[axis])) axis = 0;
    } else if (pair >= end && axis + 1 < sections.size()) {
      end += static_cast<std::size_t>(sections[++axis]);
    }
    axes[axis].push_back(pair);
  }
  return axes;
}

void require_positions(std::span<const std::int32_t> positions) {
  for (const std::int32_t position : positions) {
    if (position >= 0) continue;
    throw Error(ErrorKind::internal,
                "a rotary position is " + std::to_string(position) + ", expected 0 or more");
  }
}

}  // namespace

TurnTable::TurnTable(const Rotary& rotary, int head_dim)
    : sections_(rotary.sections.empty() ? std::vector<int>{head_dim / 2} : rotary.sections),
      frequencies_(frequencies_of(rotary, sections_, head_dim)),
      axes_(pairs_of_axes(rotary, sections_, frequencies_.size())),
      magnitude_(rotary.magnitude),
      known_(sections_.size()) {
  if (frequencies_.size() != static_cast<std::size_t>(head_dim / 2)) {
    throw Error(ErrorKind::input, "rotary sections: expected " + std::to_string(head_dim / 2) +
                                      " pairs in all, found " + std::to_string(frequencies_.size()));
  }
}

void TurnTable::learn(Known& known, const std::vector<std::size_t>& pairs, std::int64_t positions) const {
  for (; known.positions < positions; ++known.positions) {
    for (const std::size_t pair : pairs) {
      const double angle = static_cast<double>(known.positions) * frequencies_[pair];
      known.cosines.push_back(magnitude_ * std::cos(angle));
      known.sines.push_back(magnitude_ * std::sin(angle));
    }
  }
}

void TurnTable::prepare(const RankContext& rank, std::span<const std::int32_t> positions) {
  require_positions(positions);
  if (sections_.size() > 1) return;
  const std::int32_t last = positions.empty() ? 0 : *std::max_element(positions.begin(), positions.end());
  if (table_ != nullptr && table_->rows() > last) return;
  std::int64_t kept = kMinKept;
  while (kept <= last) kept *= 2;
  const std::size_t half = frequencies_.size();
  Known known;
  learn(known, axes_.front(), kept);
  std::vector<double> rows;
  rows.reserve(static_cast<std::size_t>(kept) * 2 * half);
  for (std::int64_t p = 0; p < kept; ++p) {
    for (const auto* values : {&known.cosines, &known.sines}) {
      const auto row = values->begin() + p * static_cast<std::int64_t>(half);
      rows.insert(rows.end(), row, row + static_cast<std::int64_t>(half));
    }
  }
  SumTensor table(rank, kept, static_cast<std::int64_t>(2 * half));
  upload(rank, table.view().data, sum_type_of(rank.kernels.dtype()), std::span<const double>(rows));
  table_ = std::make_shared<const SumTensor>(std::move(table));
}

Turns TurnTable::of(const RankContext& rank, std::span<const std::int32_t> positions) {
  prepare(rank, positions);
  if (sections_.size() > 1) return by_sections(rank, positions);
  return {IndexTensor(rank, {positions.begin(), positions.end()}), table_};
}

Turns TurnTable::by_sections(const RankContext& rank, std::span<const std::int32_t> positions) {
  const std::size_t axes = sections_.size();
  const std::size_t rows = positions.size() / axes;
  const std::size_t half = frequencies_.size();
  std::vector<double> table(rows * 2 * half);
  for (std::size_t axis = 0; axis < axes; ++axis) {
    const std::vector<std::size_t>& pairs = axes_[axis];
    Known& known = known_[axis];
    for (std::size_t row = 0; row < rows; ++row) {
      const std::int32_t position = positions[row * axes + axis];
      learn(known, pairs, std::int64_t{position} + 1);
      std::size_t from = static_cast<std::size_t>(position) * pairs.size();
      for (const std::size_t pair : pairs) {
        table[row * 2 * half + pair] = known.cosines[from];
        table[row * 2 * half + half + pair] = known.sines[from++];
      }
    }
  }
  Turns turns;
  std::vector<std::int32_t> own(rows);
  for (std::size_t row = 0; row < rows; ++row) own[row] = static_cast<std::int32_t>(row);
  turns.rows = IndexTensor(rank, std::move(own));
  SumTensor values(rank, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(2 * half));
  upload(rank, values.view().data, sum_type_of(rank.kernels.dtype()), std::span<const double>(table));
  turns.table = std::make_shared<const SumTensor>(std::move(values));
  return turns;
}

}  // namespace dflop
