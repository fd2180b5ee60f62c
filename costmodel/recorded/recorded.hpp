// A recorded run says what the parts of a program cost, its own or another: a RecordedProgram is the Program
// whose run a Timeline shows, a LinkFit has latency and bandwidth of its messages, and a RecordedCostModel
// prices by both.
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

/// A RecordedProgram is a program with the costs that its run shows.
struct RecordedProgram : PricedProgram {
  /// This says whether costs.activation and costs.workspace are what the recording shows. Else they are zero,
  /// because it has no memory points or they do not fit its instructions.
  bool memory = false;
};

/// Rebuilds a Program from the spans of its run. Simulating it gives the recording again: the same makespan,
/// spans and usage, where the recording is a simulator's. Of other recordings it keeps the durations and the
/// order; time that no span covers is lost.
///
/// Instructions are in the order of their positions. A message takes as long as its send's span, a collective
/// from its latest start to its latest end over all participants; so contention and pauses are in the
/// durations (a pause counts as busy). Collective::ready is the latest part that lets the collective start
/// when it did, as nothing shows how much earlier a group had entered one that had to wait. port_bytes of a
/// reshard are what the busier end moves for one microbatch between the same stages, as in lower(). Stages
/// and works of unknown shape are empty ones.
///
/// `file` and `iteration` are the recording's place for errors.
/// @throws Error (input) naming key and row: no spans, a run that stalled, positions that are unknown, twice
/// or with holes, negative times, messages without one of their ends, ends or participants that contradict
/// each other, or a program that verify() refuses.
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
  bool has_known_latency = true;  ///< false: nothing tells the latency, and all of it is bandwidth

  Seconds duration(double bytes) const { return latency + Seconds(bytes * seconds_per_byte); }
};

/// Returns the line through the samples with the least squares of its errors, neither part of it negative.
/// Where no sample is small, of a tenth of their mean size or less, a latency that is less than the noise
/// (the 95 % interval of where the line meets 0 bytes) is none. It is not known where all sizes are one, or
/// within a factor of two with times that noise takes off the line. All is bandwidth then, or latency where
/// they have no bytes. Nothing without samples.
std::optional<LinkFit> fit_link(std::span<const LinkSample> samples);

/// Messages inside a node share a line, and those between nodes another. Without a cluster all share one.
inline constexpr int kLinkClasses = 2;
int link_class(const std::optional<ClusterSpec>& cluster, const Message& message, const Program& program);

/// Changes the costs to those on links of another latency and bandwidth: of each message and collective, the
/// part that the fitted line calls latency is multiplied by `latency_scale`, the rest divided by
/// `bandwidth_scale`. Collectives have a line for each operation, number of participants and how far apart
/// these are, as each has a bandwidth of its own. Returns how many of both are taken for all bandwidth, as
/// nothing tells their latency from it.
/// @pre both are positive
std::size_t rescale_links(const Program& program, ProgramCosts& costs,
                          const std::optional<ClusterSpec>& cluster, double latency_scale,
                          double bandwidth_scale);

/// PriceSources count parts by where their price came from.
struct PriceSources {
  std::int64_t exact = 0;     ///< recorded for this very part
  std::int64_t by_shape = 0;  ///< mean of recorded parts of the same shape, or a line through them
  std::int64_t scaled = 0;    ///< the fallback's price times its usual error on the recording

  std::int64_t total() const { return exact + by_shape + scaled; }
};

/// PricedParts have the PriceSources of each kind of part.
struct PricedParts {
  PriceSources instructions;
  PriceSources messages;
  PriceSources collectives;
};

/// A RecordedCostModel prices from a recording, most specific first:
///
/// 1. the same part: an instruction of the same stage, dp rank, op and microbatch whose Stage and Work are
///    the same; a message between the same stages and dp ranks, with the same microbatch and bytes; a
///    collective of the same groups and bytes. The recorded program is priced as recorded.
/// 2. the same shape: the mean over recorded instructions of this op, Stage and Work, else the WorkLine
///    through those of this op and Stage, whose dp and ZeRO-1 compute does not depend on, else the one
///    through those of this op on all stages; the mean over collectives of as many participants and bytes;
///    messages by the line fitted to the recorded ones, inside a node and between nodes apart.
/// 3. the fallback's price times the median of recorded / predicted over the recorded instructions of this
///    op and kind of stage (encoder, LLM, both), or of this op, or of this kind, or of all. Where only
///    stages of one module were recorded and a stage holds both, the work of each module goes by its own
///    ratio. A median, since one straggler must not make all else slow; weighted by the predicted time,
///    since many small instructions, which are mostly overhead, say little about large ones.
///
/// Bytes of memory go the same way where the recording has them; the fallback's are not scaled.
class RecordedCostModel final : public SumCostModel {
 public:
  /// Prices from a recording. `cluster`, where known, tells messages inside a node from those between nodes.
  /// `fallback` must outlive the model.
  RecordedCostModel(const RecordedProgram& recording, const CostModel& fallback,
                    std::optional<ClusterSpec> cluster = std::nullopt);

  Seconds compute(Op op, const Stage& stage, const Work& work) const override;
  Seconds message(const Message& message, const Program& program) const override;
  Seconds all_reduce(const Collective& collective, const Program& program) const override;
  Seconds optimizer_step(const Stage& stage) const override;
  ModelState model_state(const Stage& stage) const override;
  Bytes activation(const Stage& stage, const Work& work) const override;
  /// Returns activation() and what a backward_input adds to it, each from the recording where that has it.
  Bytes split_activation(const Stage& stage, const Work& work) const override;
  Bytes workspace(Op op, const Stage& stage, const Work& work) const override;

  using SumCostModel::price;
  /// Prices a program and adds up where the prices come from.
  ProgramCosts price(const Program& program, PricedParts& parts) const;

 private:
  using ShapeKey = std::tuple<Op, Stage, Work>;
  using Place = std::array<std::int64_t, 4>;  ///< op, stage, dp rank, microbatch
  using PartKey = std::vector<std::int64_t>;  ///< of a message or collective
  using RatioKey = std::pair<int, int>;       ///< op and kind of stage; kAny for all of them

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
    Bytes activation;  ///< the most of any
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
  /// Parts are the durations by key, in the order of the program.
  using Parts = std::map<PartKey, std::vector<Nanoseconds>>;

  /// Returns the key of an instruction's shape. Compute does not depend on how many replicas a stage has.
  static ShapeKey shape_key(Op op, const Stage& stage, const Work& work);
  /// Returns the key of what stages of different layers have in common.
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
  std::map<ShapeKey, WorkLine> lines_;            ///< of compute, by its key with no work
  std::map<ShapeKey, WorkLine> lines_of_stages_;  ///< by mode_key()
  std::map<Place, State> states_;                 ///< of optimizer_step
  std::map<ShapeKey, ModelState> state_shapes_;
  Parts messages_;
  Parts collectives_;
  std::map<std::pair<std::size_t, std::int64_t>, Mean> collective_shapes_;  ///< participants, bytes
  std::array<std::optional<LinkFit>, kLinkClasses> fits_;
  std::map<RatioKey, std::vector<Weighted>> ratios_;  ///< until their medians are known
  std::map<RatioKey, double> medians_;
};

}  // namespace dflop
