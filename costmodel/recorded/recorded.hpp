// This file prices programs from a recorded run: a RecordedProgram is the Program rebuilt from a Timeline, a
// LinkFit holds the latency and bandwidth of its messages, and a RecordedCostModel prices the same or another
// program from both.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/cluster.hpp"
#include "core/cost_model.hpp"
#include "core/program.hpp"
#include "core/timeline.hpp"
#include "core/units.hpp"
#include "costmodel/recorded/work_line.hpp"

namespace dflop {

/// A RecordedProgram is a program with the costs observed in its run.
struct RecordedProgram : PricedProgram {
  /// True if costs.activation and costs.workspace come from the recording. Otherwise they are zero, because
  /// the recording has no memory points or they do not fit its instructions.
  bool memory = false;
};

/// Rebuilds a Program from the spans of its run. If a simulator made the recording, simulating the program
/// reproduces it: the same makespan, spans and usage. For other recordings the program keeps the durations
/// and the order; time that no span covers is lost.
///
/// Instructions are in the order of their positions. A message takes as long as its send's span, and a
/// collective from its latest start to its latest end over all participants; so durations include contention
/// and pauses (a pause counts as busy). Collective::ready is the largest fraction with which the collective
/// can start when it did, because the recording does not show how much earlier a waiting group had entered.
/// port_bytes of a reshard are the bytes that the busier end moves for one microbatch between the same
/// stages, as in lower(). Stages and works of unknown shape are empty.
///
/// `file` and `iteration` locate the recording in error messages.
/// @throws Error (input) naming key and row: no spans; a stalled run; positions that are unknown, repeated or
/// have gaps; negative times; messages without one of their ends; ends or participants that contradict each
/// other; or a program that verify() rejects.
RecordedProgram recorded_program(const Timeline& timeline, const std::string& file = "timeline",
                                 int iteration = 0);

/// A LinkSample is one recorded transfer.
struct LinkSample {
  double bytes = 0;
  Seconds duration{0};
};

/// A LinkFit is the line latency + bytes * seconds_per_byte (Hockney 1994).
struct LinkFit {
  Seconds latency{0};
  double seconds_per_byte = 0;
  bool has_known_latency = true;  ///< false: the latency is unknown, and all time counts as bandwidth

  Seconds duration(double bytes) const { return latency + Seconds(bytes * seconds_per_byte); }
};

/// Returns the least-squares line through the samples; neither coefficient is negative. Returns nullopt if
/// there are no samples. If no sample has at most a tenth of the mean size, a latency below the noise becomes
/// zero; the noise is half of the 95 % interval of the intercept. The latency is unknown if all sizes are
/// equal. It is also unknown if sizes are within a factor of two and noise moves the times off the line. All
/// time then counts as bandwidth, or as latency if the samples have no bytes.
std::optional<LinkFit> fit_link(std::span<const LinkSample> samples);

/// Messages inside a node share one fitted line, and messages between nodes another. Without a cluster all
/// share one.
inline constexpr int kLinkClasses = 2;
int link_class(const std::optional<ClusterSpec>& cluster, const Message& message, const Program& program);

/// Rescales the costs of messages and collectives to links of a different latency and bandwidth. For each
/// message and collective, the latency part of the fitted line is multiplied by `latency_scale` and the rest
/// divided by `bandwidth_scale`. Collectives have a line for each operation, number of participants and
/// distance between them, because each has its own bandwidth. Returns how many messages and collectives count
/// as all bandwidth because their latency is unknown.
/// @pre both are positive
std::size_t rescale_links(const Program& program, ProgramCosts& costs,
                          const std::optional<ClusterSpec>& cluster, double latency_scale,
                          double bandwidth_scale);

/// PriceSources counts parts by the source of their price.
struct PriceSources {
  std::int64_t exact = 0;     ///< recorded for the same part
  std::int64_t by_shape = 0;  ///< mean of recorded parts of the same shape, or a line through them
  std::int64_t scaled = 0;    ///< the fallback's price times the typical ratio of recorded to predicted time

  std::int64_t total() const { return exact + by_shape + scaled; }
};

/// PricedParts holds the PriceSources of each kind of part.
struct PricedParts {
  PriceSources instructions;
  PriceSources messages;
  PriceSources collectives;
};

/// A RecordedCostModel prices from a recording. It uses the first of these sources that applies:
///
/// 1. the same part: an instruction of the same stage, dp rank, op and microbatch whose Stage and Work are
///    the same; a message between the same stages and dp ranks, with the same microbatch and bytes; a
///    collective of the same groups and bytes. The recorded program itself is priced as recorded.
/// 2. the same shape: the mean over recorded instructions of this op, Stage and Work; else the WorkLine
///    through all of this op and Stage (ignoring dp and ZeRO-1, which do not affect compute); else the line
///    through all of this op on all stages. For collectives, the mean over collectives with as many
///    participants and bytes. For messages, the fitted line, inside a node and between nodes apart.
/// 3. the fallback's price times the median of recorded / predicted over the recorded instructions of this
///    op and kind of stage (encoder, LLM, both), or of this op, or of this kind, or of all. If only stages
///    of one module were recorded and a stage holds both, the work of each module is scaled by its own
///    ratio.
///    It is a median so that one straggler does not slow everything else; it is weighted by the predicted
///    time because many small instructions, which are mostly overhead, say little about large ones.
///
/// Bytes of memory come from the same sources if the recording has them; the fallback's bytes are not scaled.
class RecordedCostModel final : public SumCostModel {
 public:
  /// Prices from a recording. `cluster`, if known, tells messages inside a node from messages between nodes.
  /// `fallback` must outlive the model.
  RecordedCostModel(const RecordedProgram& recording, const CostModel& fallback,
                    std::optional<ClusterSpec> cluster = std::nullopt);

  Seconds compute(Op op, const Stage& stage, const Work& work) const override;
  Seconds message(const Message& message, const Program& program) const override;
  Seconds all_reduce(const Collective& collective, const Program& program) const override;
  Seconds optimizer_step(const Stage& stage) const override;
  ModelState model_state(const Stage& stage) const override;
  Bytes activation(const Stage& stage, const Work& work) const override;
  /// Returns activation() plus the bytes that a backward_input adds to it. Each comes from the recording if
  /// the recording has it.
  Bytes split_activation(const Stage& stage, const Work& work) const override;
  Bytes workspace(Op op, const Stage& stage, const Work& work) const override;

  using SumCostModel::price;
  /// Prices a program and counts the sources of the prices.
  ProgramCosts price(const Program& program, PricedParts& parts) const;

 private:
  using ShapeKey = std::tuple<Op, Stage, Work>;
  using Place = std::array<std::int64_t, 4>;  ///< op, stage, dp rank, microbatch
  using PartKey = std::vector<std::int64_t>;  ///< identifies a message or collective
  using RatioKey = std::pair<int, int>;       ///< op and kind of stage; kAny matches all

  struct Priced {
    ShapeKey shape;
    Nanoseconds duration{0};
    Bytes activation;
    Bytes workspace;
  };
  struct State {
    ShapeKey shape;
    ModelState bytes;
  };
  struct Mean {
    double total_s = 0;
    double count = 0;
    Bytes activation;  ///< the max over the recorded parts
    Bytes workspace;
    void add(Nanoseconds duration) {
      total_s += Seconds(duration).count();
      ++count;
    }
    Seconds value() const { return Seconds(total_s / count); }
  };
  struct Weighted {
    double value = 0;
    double weight = 0;
  };
  /// Parts holds durations by key, in the order of the program.
  using Parts = std::map<PartKey, std::vector<Nanoseconds>>;

  /// Returns the key of an instruction's shape. It ignores dp, which does not affect compute.
  static ShapeKey shape_key(Op op, const Stage& stage, const Work& work);
  /// Returns the key of an op and the modes of a stage: tp, sequence parallelism, recomputation and trained
  /// parts, but not its layers.
  static ShapeKey mode_key(Op op, const Stage& stage);
  static PartKey message_key(const Message& message, const Program& program);
  static PartKey collective_key(const Collective& collective, const Program& program);

  ProgramCosts price_sums(const Program& program) const override;
  void learn_instructions(const RecordedProgram& recording);
  void learn_messages(const RecordedProgram& recording);
  void learn_collectives(const RecordedProgram& recording);
  void learn_ratio(Op op, int kind, Nanoseconds recorded, Seconds predicted);
  void settle_ratios();
  double ratio(Op op, int kind) const;
  bool knows_ratio(Op op, int kind) const { return medians_.count({static_cast<int>(op), kind}) > 0; }
  std::optional<Seconds> price_by_line(Op op, const Stage& stage, const Work& work) const;
  const Mean* find_shape(Op op, const Stage& stage, const Work& work) const;
  const Priced* find_part(const Program& program, const Group& group, const Instruction& instruction) const;
  Bytes price_activation(const Program& program, const Group& group, const Instruction& instruction) const;
  void price_instruction(const Program& program, const Group& group, std::int64_t i, ProgramCosts& costs,
                         PriceSources& sources) const;

  const CostModel& fallback_;
  std::optional<ClusterSpec> cluster_;
  bool memory_;
  std::map<Place, Priced> instructions_;
  std::map<ShapeKey, Mean> shapes_;
  std::map<ShapeKey, WorkLine> lines_;            ///< for compute, by the shape_key() of empty work
  std::map<ShapeKey, WorkLine> lines_of_stages_;  ///< by mode_key()
  std::map<Place, State> states_;                 ///< for optimizer_step
  std::map<ShapeKey, ModelState> state_shapes_;
  Parts messages_;
  Parts collectives_;
  std::map<std::pair<std::size_t, std::int64_t>, Mean> collective_shapes_;  ///< participants, bytes
  std::array<std::optional<LinkFit>, kLinkClasses> fits_;
  std::map<RatioKey, std::vector<Weighted>> ratios_;  ///< until settle_ratios() takes their medians
  std::map<RatioKey, double> medians_;
};

}  // namespace dflop
