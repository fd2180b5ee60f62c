// A LiveRank is one rank of a live run: it goes through its group's instructions of a Program and computes
// what they say.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/model/microbatch.hpp"
#include "backend/model/stage_module.hpp"
#include "backend/rank_guide.hpp"
#include "backend/run/messages.hpp"
#include "backend/world.hpp"
#include "core/model.hpp"
#include "core/plan.hpp"
#include "core/program.hpp"
#include "core/program/receive_posts.hpp"

namespace dflop {

/// StepOptions say how a training step is run, whatever its iteration.
struct StepOptions {
  OptimizerStep optimizer = {};
  /// With a plan that clips, the optimizer takes gradients scaled to this norm where theirs is larger.
  double clip_norm = 1;
  bool update = true;                  ///< false: gradients are made, and parameters stay
  const Contents* contents = nullptr;  ///< of the step's samples; null: the executor's
  /// These are added to the instructions of the program, for experiments; empty: none is delayed.
  std::span<const Nanoseconds> delays = {};
  /// These say which variants of operations run; null: the first of each. They outlive the step.
  const KernelChoices* kernels = nullptr;
};

/// A LiveStep is what all ranks have of one iteration.
struct LiveStep {
  const Program& program;
  const StepOptions& options;
  const ReceivePosts& posts;  ///< of receives that are entered ahead
  bool starts_sums;           ///< when their gradients are complete, and not where they are waited for
};

/// These are what a rank reads of an iteration, by stage and microbatch.
using RankInputs = std::map<std::pair<int, int>, StageInput>;

/// A LiveSpan says when an instruction ran, on the clock of events.
struct LiveSpan {
  std::int32_t instruction = 0;  ///< its place in the group's list
  Nanoseconds start{0};
  Nanoseconds end{0};      ///< without `idle`
  Nanoseconds idle{0};     ///< of it, while other groups were waited for
  Nanoseconds arrival{0};  ///< of a receive or collective: when all was there; of a send: its start
  Bytes in_use_before;     ///< memory of the rank when it began
  Bytes in_use;            ///< and afterwards
  Bytes most_in_use;       ///< and the most in between
};

struct LiveRankResult {
  std::vector<LiveSpan> spans;
  double loss = 0;                         ///< its part of the batch's; the same on all tp ranks of a group
  std::optional<double> gradient_norm;     ///< before clipping, the same on all ranks; with a plan that clips
  std::vector<KernelObservation> kernels;  ///< of the step's choices
};

class LiveRank {
 public:
  /// Makes a rank of group `group` of a plan's programs, whose stages and groups `layout` has. Its weights
  /// come from `weights` or, where that is null, from `seed`. It computes in its turns, or, where `turn` is
  /// null, when it likes. What is referred to outlives it; the weights' source need not.
  LiveRank(const Plan& plan, const ModelSpec& model, const Program& layout, std::size_t group,
           std::uint64_t seed, const WeightSource* weights, const RankContext& rank,
           ComputeTurn* turn = nullptr);

  /// Makes what this rank reads of an iteration, in host memory. It may be called from another thread than
  /// the rank's, also while that runs a step.
  RankInputs make_inputs(const Program& program, const BatchContent& content) const;
  /// Has all ready that an iteration needs, `inputs` being of its program. Ranks do so before any of them
  /// runs, so that none of their time goes into the others' waiting.
  void prepare(const LiveStep& step, RankInputs inputs);
  /// Runs the iteration that was prepared. Every rank of the run does so at the same time, each in a thread
  /// of its own.
  LiveRankResult run(const LiveStep& step);

  /// A HeldStage is a stage of the plan, whose optimizer states are cut into `shards`.
  struct HeldStage {
    int stage = 0;
    int shards = 1;
    std::unique_ptr<StageModule> module;
  };
  std::span<const HeldStage> stages() { return stages_; }

  /// Returns the bytes of parameters and gradients, and of optimizer states.
  ModelState model_state() const;

 private:
  /// A Note has what is known of an instruction while the device may not have come to it yet.
  struct Note {
    LiveSpan span;                          ///< without its times
    std::optional<Nanoseconds> turn_began;  ///< where it had to wait for its turn
    std::unique_ptr<DeviceEvent> start;
    std::unique_ptr<DeviceEvent> end;
    Arrival arrival;  ///< of receives and collectives, and of the others' coming to gather weights
    std::unique_ptr<DeviceEvent> stepped;  ///< of optimizer steps that gather weights
  };

  /// A Slot is a microbatch on one of the rank's stages.
  struct Slot {
    StageInput input;
    Tensor in;
    Tensor out;
    Tensor d_out;
    Tensor d_in;
    StageTape tape;
    int activation_sends = 0;  ///< still to come
    int gradient_sends = 0;
    bool turned_back = false;  ///< its input's gradient is made
  };
  using Slots = std::map<std::pair<int, int>, Slot>;  // by stage and microbatch

  /// A Delivery says where a message to this rank goes, and who sends it.
  struct Delivery {
    void* data = nullptr;
    std::size_t bytes = 0;
    int peer = 0;
    std::string what;
  };

  /// Pieces are those in which the gradients of one stage are reduced, from their end on: so backwards
  /// complete them.
  struct Pieces {
    int count = 0;
    std::vector<std::int32_t> entered;  ///< collectives that may start as soon as their piece is complete
    std::vector<std::unique_ptr<StartedCollective>> started;  ///< of these, as many as have
    std::int64_t complete_from = 0;                           ///< of the gradients, where some have
  };

  void warm_up();
  void begin_gradients(const HeldStage& held);
  void meet(const Program& program);
  Note run_noted(const LiveStep& step, const Instruction& instruction);
  void run(const LiveStep& step, const Instruction& instruction, Note& note);
  static void read_times(Note& note, bool sends, Nanoseconds last_end);
  void delay(const LiveStep& step, const Instruction& instruction) const;
  Tensor& arriving(Slot& slot, const StageModule& module, bool activations) const;
  void forward(const Instruction& instruction);
  void backward(const LiveStep& step, const Instruction& instruction);
  void backward_weight(const LiveStep& step, const Instruction& instruction);
  void count_weights(const LiveStep& step, int stage);
  void pass_on(const Instruction& instruction, Tensor& made, int neighbour, int sends, bool activations);
  void send(const LiveStep& step, const Instruction& instruction);
  void receive(const LiveStep& step, const Instruction& instruction, Arrival& arrival);
  void take(const LiveStep& step, std::int32_t message);
  void post(const LiveStep& step, std::int32_t message);
  Delivery delivery(const LiveStep& step, std::int32_t message);
  void reduce(const LiveStep& step, const Instruction& instruction, Arrival& arrival);
  void enter_reduction(const Instruction& instruction);
  void start_pieces(const LiveStep& step, int stage, std::int64_t from);
  void finish_piece(const LiveStep& step, const Instruction& instruction);
  Range piece_of(int stage, std::size_t piece) const;
  CollectiveCall sum_of(int stage, const Range& range) const;
  void* gradients_at(int stage, std::int64_t value) const;
  void find_norm(const LiveStep& step, const Instruction& instruction, Arrival& arrival);
  bool is_first_with(const LiveStep& step, const HeldStage& stage) const;
  bool counts(const LiveStep& step, const HeldStage& stage, const Parameter& parameter) const;
  void join_ends(const LiveStep& step, const Instruction& instruction, Arrival& arrival);
  void optimize(const LiveStep& step, const Instruction& instruction, Note& note);
  void end_turn();
  Range rows_with(const LiveStep& step, const Message& message, const Slot& slot, int stage,
                  bool activations) const;
  StageInput input_of(const BatchContent& content, int stage, int microbatch) const;
  RankGroup ranks_of(const Program& program, const Collective& collective) const;
  const HeldStage& held(int stage) const;
  Slot& slot(const Instruction& instruction);

  const Plan& plan_;
  std::size_t group_;
  int dp_rank_;
  const RankContext& rank_;
  ComputeTurn* turn_;
  bool in_turn_ = false;
  RankGuide guide_;
  std::vector<HeldStage> stages_;
  SumTensor loss_;
  SumTensor checked_;                    ///< the sum of the gradients' squares, and the loss
  std::optional<double> gradient_norm_;  ///< of this step
  double gradient_factor_ = 1;           ///< of this step, which clips gradients
  bool is_finite_ = true;                ///< gradients and loss of this step are, as far as is known
  Slots slots_;
  bool is_warm_ = false;
  std::set<std::vector<std::int32_t>> met_;  ///< groups of ranks with which a first sum was taken
  bool updates_ = false;                     ///< the iteration is no evaluation
  std::map<int, Pieces> pieces_;
  std::map<int, int> weights_left_;  ///< microbatches of a stage whose weights' gradients are still to come
  IncomingMessages incoming_;
  std::map<std::int32_t, Arrival> arrivals_;  // of messages taken
};

}  // namespace dflop
