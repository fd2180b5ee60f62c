// From a timeline to what Correction learns from.
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "core/error.hpp"
#include "core/program/encoder_share.hpp"
#include "costmodel/correction/correction.hpp"

namespace dflop {
namespace {

int floor_log(double value, int parts) {
  return static_cast<int>(std::floor(parts * std::log2(value)));
}

Workload mean_of(const Workload& total, std::int64_t count) {
  return {round_up(total.sequences, count) / count, round_up(total.tokens, count) / count,
          round_up(total.attention_pairs, count) / count};
}

/// One microbatch on one dp rank, or on all ranks of an encoder apart.
struct Place {
  StageKind kind;
  Op op;
  int microbatch;
  int dp_rank;  ///< -1: all

  auto operator<=>(const Place&) const = default;
};

struct Observed {
  double observed_s = 0;
  double predicted_s = 0;
  std::set<std::uint16_t> stages;
};

/// Sums over the works of one kind of stage and op.
struct Total {
  Work work;
  std::int64_t count = 0;
};

}  // namespace

StageKind kind_of(const Stage& stage) {
  if (stage.encoder_layers > 0) return stage.llm_layers > 0 ? StageKind::both : StageKind::encoder;
  return StageKind::llm;
}

ShapeBucket bucket_of(bool encoder, const Workload& work) {
  const auto tokens = static_cast<double>(work.tokens);
  const double length = static_cast<double>(work.attention_pairs) / tokens;
  return {encoder, floor_log(tokens, 16), length > 0 ? floor_log(length, 2) : 0};
}

std::vector<ShapeBucket> buckets_of(StageKind kind, const Sample& sample) {
  std::vector<ShapeBucket> buckets;
  const Workload encoder = kind == StageKind::llm ? Workload{} : sample.encoder();
  const Workload llm = kind == StageKind::encoder ? Workload{} : sample.llm();
  if (!encoder.empty()) buckets.push_back(bucket_of(true, encoder));
  if (!llm.empty()) buckets.push_back(bucket_of(false, llm));
  return buckets;
}

void Correction::learn(const Timeline& timeline, const CostModel& base, const Plan& plan,
                       std::span<const Sample> batch, const Assignment& assignment) {
  std::map<std::int32_t, int> dp_ranks;  // by first rank
  for (const GroupUsage& group : timeline.groups) dp_ranks[group.first_rank] = group.dp_rank;
  std::map<Place, Observed> places;
  std::map<std::pair<StageKind, Op>, Total> totals;
  for (const Span& span : timeline.spans) {
    if (!is_compute(span.op) || span.work < 0 || timeline.stage_shapes.empty()) continue;
    const auto dp_rank = dp_ranks.find(span.rank);
    if (span.microbatch < 0 || span.microbatch >= plan.microbatches || dp_rank == dp_ranks.end()) {
      throw Error(ErrorKind::input, "correction: expected a timeline of the plan, found microbatch " +
                                        std::to_string(span.microbatch) + " on rank " +
                                        std::to_string(span.rank));
    }
    const Stage& stage = timeline.stage_shapes[span.stage];
    const Work& work = timeline.works[span.work];
    const Seconds predicted = base.compute(span.op, stage, work);
    if (predicted.count() <= 0) continue;
    const StageKind kind = kind_of(stage);
    const bool shared = kind == StageKind::encoder && plan.layout == Layout::disaggregated;
    Observed& place = places[{kind, span.op, span.microbatch, shared ? -1 : dp_rank->second}];
    place.observed_s += Seconds(span.duration).count();
    place.predicted_s += predicted.count();
    place.stages.insert(span.stage);
    Total& total = totals[{kind, span.op}];
    total.work.encoder += work.encoder;
    total.work.llm += work.llm;
    ++total.count;
  }
  for (const auto& [key, total] : totals) {
    CorrectionFit& fit = find_or_add(key.first, key.second);
    if (fit.iterations > 0) continue;
    fit.reference = {mean_of(total.work.encoder, total.count), mean_of(total.work.llm, total.count)};
  }

  const SamplesOfBins bins = samples_of_bins(plan, assignment);
  std::vector<CorrectionRow> rows;
  for (const auto& [place, observed] : places) {
    CorrectionRow row{place.kind, place.op, observed.observed_s, observed.predicted_s, 0, {}};
    const Work reference = Correction::reference(place.kind, place.op);
    for (const std::uint16_t stage : observed.stages) {
      row.unit_s += base.compute(place.op, timeline.stage_shapes[stage], reference).count();
    }
    std::map<ShapeBucket, double> counts;
    for (int d = 0; d < plan.llm.dp; ++d) {
      if (place.dp_rank >= 0 && place.dp_rank != d) continue;
      for (const std::int32_t i : bins[place.microbatch * plan.llm.dp + d]) {
        for (const ShapeBucket& bucket : buckets_of(place.kind, batch[i])) counts[bucket] += 1;
      }
    }
    row.samples.assign(counts.begin(), counts.end());
    rows.push_back(std::move(row));
  }
  learn(rows);
}

}  // namespace dflop
