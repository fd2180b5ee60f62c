// This file draws global batches from samples, including further batches that show how much memory the data
// may need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/iteration/planner.hpp"
#include "core/model.hpp"
#include "core/sample.hpp"
#include "core/support/random.hpp"
#include "solver/service/outlier_delay.hpp"
#include "traces/files/provenance.hpp"

namespace dflop {

/// The max number of samples in a global batch.
inline constexpr std::int64_t kMaxGbs = 65'536;

/// The max total number of samples of all iterations, which take about a gigabyte.
inline constexpr std::int64_t kMaxSamplesInAll = 4'000'000;

/// A BatchStream cuts a seeded shuffle of the samples into batches, and shuffles again after each pass. The
/// same samples, gbs and seed give the same batches. A copy continues independently from the same position
/// and shares the samples.
///
/// Outliers may be delayed. Then delay_outliers() regroups `window` batches at a time. A window has only
/// batches that lie entirely in one pass, so a pass still has each sample once. A batch with samples of two
/// passes stays unchanged. The cost of a sample is its FLOP (model_flop()), because the order must not depend
/// on the plan, the cluster or the profile.
class BatchStream {
 public:
  /// Requires at least one sample and gbs >= 1.
  BatchStream(std::shared_ptr<const std::vector<Sample>> samples, int gbs, std::uint64_t seed);
  BatchStream(std::shared_ptr<const std::vector<Sample>> samples, int gbs, std::uint64_t seed,
              const OutlierDelay& delay, const ModelSpec& model);

  Batch next();
  /// Skips the next `batches` batches.
  void skip(std::int64_t batches) {
    for (std::int64_t i = 0; i < batches; ++i) next_numbers();
  }

  /// Returns how far delays have moved samples, over all batches returned or skipped so far.
  const DelayCount& delayed() const { return delayed_; }

 private:
  /// Returns the indices of the next batch's samples, valid until the next call.
  std::span<const std::int32_t> next_numbers();
  void draw_window();
  std::int32_t next_number();

  std::shared_ptr<const std::vector<Sample>> samples_;
  std::size_t gbs_;
  Random random_;
  std::vector<std::int32_t> order_;
  std::size_t next_;  ///< position in order_
  OutlierDelay delay_;
  std::shared_ptr<const std::vector<double>> costs_;  ///< costs of all samples, if outliers are delayed
  std::vector<std::int32_t> window_;                  ///< indices of the samples of the next batches
  std::vector<std::int32_t> drawn_at_;  ///< position in the window at which each sample was drawn
  std::size_t given_ = 0;               ///< number of samples of window_ already returned
  DelayCount delayed_;
};

/// Returns global batches 0 to iterations - 1 of a BatchStream. All compared systems get the same batches.
std::vector<Batch> make_batches(const std::vector<Sample>& samples, int gbs, int iterations,
                                std::uint64_t seed);

/// FurtherBatches are additional batches, used to estimate how much memory the data may need.
struct FurtherBatches {
  /// 64 batches of a BatchStream; fewer, but at least 16, if a batch has more than 256 samples.
  std::vector<Batch> drawn;
  /// Up to half as many batches as `drawn`. Each begins with one of the longest samples, which a run has once
  /// per pass: alternately a sample with the most LLM tokens and one with the most encoder tokens. At most
  /// one in 64 samples counts as longest.
  std::vector<Batch> longest;
};

FurtherBatches further_batches(const std::vector<Sample>& samples, int gbs, std::uint64_t seed);

/// Returns the further batches that plans should fit. The first kHardestBatches need the most memory: batches
/// with the longest samples, with the most LLM tokens and with the most encoder tokens. The last ones are the
/// headroom_batches(). Each of the longest samples begins five of all batches.
std::vector<Batch> batches_to_fit(const std::vector<Sample>& samples, int gbs, std::uint64_t seed);

/// Returns the further batches with which estimate_headroom() estimates a plan's memory.
FurtherBatches headroom_batches(const std::vector<Sample>& samples, int gbs, std::uint64_t seed);

/// A BatchRequest holds the arguments of make_batches() for batches in which outliers may be delayed. All
/// referenced objects must outlive it.
struct BatchRequest {
  const std::vector<Sample>& samples;
  int gbs = 1;
  int iterations = 1;
  std::uint64_t seed = 1;
  OutlierDelay delay = {};
  const ModelSpec& model;
};

/// Makes the requested batches. If outliers are delayed, reports on standard error and in `origin` how far
/// samples have moved.
std::vector<Batch> make_batches(const BatchRequest& request, DataOrigin& origin);

/// Returns "outliers are delayed in windows of 4 batches of 16x4 bins".
std::string describe(const OutlierDelay& delay);
/// Returns describe(delay), followed by "; 92 of 4096 samples have moved, by at most 3 batches and 1.6 on
/// average".
std::string describe(const OutlierDelay& delay, const DelayCount& count);

}  // namespace dflop
