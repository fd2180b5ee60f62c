// A LiveRank is one rank of a live run. It executes its group's instructions of a Program: computation,
// sends, receives and collectives.
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

/// StepOptions say how to run a training step, independently of its iteration.
struct StepOptions {
  OptimizerStep optimizer = {};
  /// If the plan clips gradients, gradients with a larger norm are scaled down to this norm.
  double clip_norm = 1;
  bool update = true;                  ///< false: compute gradients but do not change parameters
  const Contents* contents = nullptr;  ///< contents of the step's samples; null: the executor's
  /// Delays of the program's instructions, for experiments; empty: none.
  std::span<const Nanoseconds> delays = {};
  /// Choices of the variants of operations; null: the first variant of each. They must outlive the step.
  const KernelChoices* kernels = nullptr;
};

/// A LiveStep holds the parts of an iteration that all ranks share.
struct LiveStep {
  const Program& program;
  const StepOptions& options;
  const ReceivePosts& posts;  ///< receives that ranks enter ahead of their instructions
  bool starts_sums;  ///< start gradient sums when their gradients are complete, not when their result is
                     ///< needed
};

/// RankInputs are a rank's inputs of an iteration, with stage and microbatch as the key.
using RankInputs = std::map<std::pair<int, int>, StageInput>;

/// A LiveSpan records when an instruction ran, on the clock of DeviceEvents, and the rank's memory.
struct LiveSpan {
  std::int32_t instruction = 0;  ///< the instruction's index in the group's list
  Nanoseconds start{0};
  Nanoseconds end{0};      ///< excluding `idle`
  Nanoseconds idle{0};     ///< time during the instruction spent waiting for other groups
  Nanoseconds arrival{0};  ///< receive or collective: when all data or ranks had arrived; send: its start
  Bytes in_use_before;     ///< the rank's memory at the start
  Bytes in_use;            ///< the rank's memory at the end
  Bytes most_in_use;       ///< the rank's max memory between start and end
};

struct LiveRankResult {
  std::vector<LiveSpan> spans;
  double loss = 0;  ///< the rank's part of the batch's loss, which is the same on all tp ranks of a group
  std::optional<double> gradient_norm;     ///< before clipping, the same on all ranks; only if the plan clips
  std::vector<KernelObservation> kernels;  ///< measured durations, for the step's choices
};

class LiveRank {
 public:
  /// Makes a rank of group `group` of a plan's programs. `layout` is a Program with the plan's stages and
  /// groups. Weights come from `weights` or, if that is null, from `seed`. If `turn` is not null, the rank
  /// computes only in its turns. The referenced objects, except `weights`, must outlive the LiveRank.
  LiveRank(const Plan& plan, const ModelSpec& model, const Program& layout, std::size_t group,
           std::uint64_t seed, const WeightSource* weights, const RankContext& rank,
           ComputeTurn* turn = nullptr);

  /// Makes this rank's inputs of an iteration in host memory. It may be called from any thread, even while
  /// the rank runs a step.
  RankInputs make_inputs(const Program& program, const BatchContent& content) const;
  /// Prepares everything that an iteration needs. `inputs` must be the result of make_inputs() for the
  /// step's program. All ranks must call prepare() before any rank calls run(); otherwise the time to
  /// prepare would count as wait on other ranks.
  void prepare(const LiveStep& step, RankInputs inputs);
  /// Runs the prepared iteration. All ranks of the run call it at the same time, each in its own thread.
  LiveRankResult run(const LiveStep& step);

  /// A HeldStage is a stage of the plan that this rank holds. The stage's optimizer states are divided into
  /// `shards` shards.
  struct HeldStage {
    int stage = 0;
    int shards = 1;
    int copies = 1;                           ///< of the stage in the rank's group
    int copy = 0;                             ///< this rank has a part of this one
    std::unique_ptr<const RankContext> rank;  ///< its tp group is the copy's
    std::unique_ptr<StageModule> module;

    std::int64_t output_rows(const StageInput& input) const;  ///< of all copies
  };
  std::span<const HeldStage> stages() { return stages_; }

  /// Returns the bytes of this rank's parameters, gradients and optimizer states.
  ModelState model_state() const;

 private:
  /// A Note records an instruction when it is enqueued; the device may run it later.
  struct Note {
    LiveSpan span;                          ///< read_times() sets its times later
    std::optional<Nanoseconds> turn_began;  ///< set if the rank had to wait for its turn
    std::unique_ptr<DeviceEvent> start;
    std::unique_ptr<DeviceEvent> end;
    Arrival arrival;  ///< only for receives and collectives, including the gathering of weights
    std::unique_ptr<DeviceEvent> stepped;  ///< only for optimizer steps that gather weights
  };

  /// A Slot holds the tensors of one microbatch on one of the rank's stages.
  struct Slot {
    StageInput input;
    Tensor in;
    Tensor out;
    Tensor d_out;
    Tensor d_in;
    StageTape tape;
    int activation_sends = 0;  ///< number of sends still to come
    int gradient_sends = 0;
    bool turned_back = false;  ///< whether the gradient of its input is computed
  };
  using Slots = std::map<std::pair<int, int>, Slot>;  // by stage and microbatch

  /// A Delivery says where in memory this rank receives a message, and which rank sends it.
  struct Delivery {
    void* data = nullptr;
    std::size_t bytes = 0;
    int peer = 0;
    std::string what;
  };

  /// Pieces are the parts in which the gradients of one stage are reduced. The last piece is reduced first,
  /// because backwards complete the last gradients first.
  struct Pieces {
    int count = 0;
    std::vector<std::int32_t> entered;  ///< collectives that may start when their piece is complete
    std::vector<std::unique_ptr<StartedCollective>> started;  ///< the collectives that have started
    std::int64_t complete_from = 0;                           ///< gradients from this value on are complete
  };

  void warm_up();
  void begin_gradients(const HeldStage& held);
  void meet(const Program& program);
  Note run_noted(const LiveStep& step, const Instruction& instruction);
  void run(const LiveStep& step, const Instruction& instruction, Note& note);
  static void read_times(Note& note, bool sends, Nanoseconds last_end);
  void delay(const LiveStep& step, const Instruction& instruction) const;
  Tensor& arriving(Slot& slot, const HeldStage& held, bool activations) const;
  RankGroup ranks_of_copies(const HeldStage& held) const;
  Tensor gather_copies(const HeldStage& held, const EncoderInput& input, const Tensor& part) const;
  Tensor part_of_copy(const HeldStage& held, const EncoderInput& input, const Tensor& all) const;
  void forward(const Instruction& instruction);
  void backward(const LiveStep& step, const Instruction& instruction);
  void backward_weight(const LiveStep& step, const Instruction& instruction);
  void count_weights(const LiveStep& step, int stage);
  void pass_on(const Instruction& instruction, Tensor& made, int neighbor, int sends, bool activations);
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
  SumTensor checked_;                    ///< sum of squared gradients, and the loss
  std::optional<double> gradient_norm_;  ///< of this step
  double gradient_factor_ = 1;           ///< factor of this step's gradients that clips them
  bool is_finite_ = true;  ///< whether this step's gradients and loss are finite, as far as known
  Slots slots_;
  bool is_warm_ = false;
  std::set<std::vector<std::int32_t>> met_;  ///< groups of ranks that have done a first sum with this rank
  bool updates_ = false;                     ///< true if the iteration is not an evaluation
  std::map<int, Pieces> pieces_;
  std::map<int, int> weights_left_;  ///< by stage: microbatches whose weight gradients are still to come
  IncomingMessages incoming_;
  std::map<std::int32_t, Arrival> arrivals_;  // of received messages
};

}  // namespace dflop
