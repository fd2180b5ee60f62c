// The RecordedCostModel has what a recorded run says about the costs of a program, its own or another.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/cluster.hpp"
#include "core/cost_model.hpp"
#include "costmodel/recorded/link_fit.hpp"
#include "costmodel/recorded/program.hpp"

namespace dflop {

/// PriceSources count parts by where their price came from.
struct PriceSources {
  std::int64_t exact = 0;     ///< recorded for this very part
  std::int64_t by_shape = 0;  ///< mean of recorded parts of the same shape; of messages, the fitted line
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
/// 2. the same shape: the mean over recorded instructions of this op, Stage and Work, and over collectives
///    of as many participants and bytes; messages by the line fitted to the recorded ones, inside a node and
///    between nodes apart.
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
  using ShapeKey = std::array<std::int64_t, 17>;  ///< op, Stage, Work
  using Place = std::array<std::int64_t, 4>;      ///< op, stage, dp rank, microbatch
  using PartKey = std::vector<std::int64_t>;      ///< of a message or collective
  using RatioKey = std::pair<int, int>;           ///< op and kind of stage; kAny for all of them

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
    Seconds value() const { return Seconds(total_s / count); }
  };
  struct Weighted {
    double value = 0;
    double weight = 0;
  };
  /// Parts are the durations by key, in the order of the program.
  using Parts = std::map<PartKey, std::vector<Nanoseconds>>;

  static ShapeKey shape_key(Op op, const Stage& stage, const Work& work);
  static PartKey message_key(const Message& message, const Program& program);
  static PartKey collective_key(const Collective& collective, const Program& program);

  ProgramCosts price_sums(const Program& program) const override;
  void learn_instructions(const RecordedProgram& recording);
  void learn_messages(const RecordedProgram& recording);
  void learn_collectives(const RecordedProgram& recording);
  void learn_ratio(Op op, int kind, Nanoseconds recorded, Seconds predicted);
  void settle_ratios();
  double ratio(Op op, int kind) const;
  bool knows_ratio(Op op, int kind) const;
  const Mean* find_shape(Op op, const Stage& stage, const Work& work) const;
  const Priced* find_part(const Program& program, const Group& group, const Instruction& instruction) const;
  Bytes price_activation(const Program& program, const Group& group, const Instruction& instruction) const;
  void price_instruction(const Program& program, const Group& group, std::int64_t i, ProgramCosts& costs,
                         PriceSources& sources) const;
  bool fits(const Message& message, const Program& program) const;

  const CostModel& fallback_;
  std::optional<ClusterSpec> cluster_;
  bool memory_;
  std::map<Place, Priced> instructions_;
  std::map<ShapeKey, Mean> shapes_;
  std::map<Place, State> states_;  ///< of optimizer_step
  std::map<ShapeKey, ModelState> state_shapes_;
  Parts messages_;
  Parts collectives_;
  std::map<std::pair<std::size_t, std::int64_t>, Mean> collective_shapes_;  ///< participants, bytes
  std::array<std::optional<LinkFit>, kLinkClasses> fits_;
  std::map<RatioKey, std::vector<Weighted>> ratios_;  ///< until their medians are known
  std::map<RatioKey, double> medians_;
};

}  // namespace dflop
