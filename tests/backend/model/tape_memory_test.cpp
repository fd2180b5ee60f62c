// Tests the memory of tapes between the parts of a split backward.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>

#include "backend/model/stage_module.hpp"
#include "backend/world.hpp"
#include "tests/backend/run/live_model.hpp"

namespace dflop {
namespace tape_memory_test {

constexpr std::int64_t kRows = 7;
constexpr std::int64_t kBytes = 8;  // per value and per sum, f64

/// Returns a stage with one layer of each module, patches, connector, embedding and head.
StagePlace all_units(int tp) {
  StagePlace place;
  place.stage.tp = tp;
  place.stage.encoder_layers = place.stage.llm_layers = 1;
  place.stage.connector = place.stage.embedding = place.stage.head = true;
  place.patches = true;
  return place;
}

/// Runs `body` on each rank of a tp group, with the parameters of all units.
template <typename Body>
void on_ranks(int tp, bool sequence_parallel, const Body& body) {
  const ModelSpec model = testing::live_model();
  const std::unique_ptr<World> world = std::make_unique<HostWorld>(tp);
  RankGroup group;
  for (int r = 0; r < tp; ++r) group.ranks.push_back(r);
  const auto run = [&](std::size_t r) {
    const auto device = world->make_device(static_cast<int>(r));
    const auto communicator = world->make_communicator(static_cast<int>(r));
    const auto stream = device->make_stream();
    const auto kernels = device->make_kernels(*stream, DType::f64);
    const RankContext rank{*device,          *stream, *kernels, *communicator, group, static_cast<int>(r),
                           sequence_parallel};
    ParameterStore store(rank, stage_parameter_list(model, all_units(tp), rank.tp_rank), 1, 0, 7);
    store.begin_gradients();
    body(rank, store, model);
  };
  run_in_threads(tp, {[](std::size_t) {}, run, [](std::size_t, const std::string&) {}});
}

Tensor zeros(const RankContext& rank, std::int64_t rows, std::int64_t columns) {
  Tensor tensor(rank, rows, columns);
  rank.kernels.zero(Matrix(tensor));
  return tensor;
}

std::vector<std::int32_t> numbers_to(std::int64_t count) {
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

struct Held {
  std::int64_t after_forward = 0;
  std::int64_t between = 0;  ///< between the parts of the backward
  std::int64_t at_end = 0;
};

Held run_layer(const RankContext& rank, ParameterStore& store, const TransformerSpec& spec,
               const std::string& module, Recomputation mode) {
  const TransformerLayer layer(spec, mode, module, 0, store, rank);
  PackedRows packed;
  packed.add_sequence(4);
  packed.add_sequence(kRows - 4);
  const PackedSequences sequences = SequencePacker(spec)(rank, packed);
  const std::int64_t before = rank.device.in_use().count;
  const std::int64_t held = held_rows(rank, kRows);
  Held found;
  LayerTape tape;
  layer.forward(zeros(rank, held, spec.hidden), sequences, tape);
  found.after_forward = rank.device.in_use().count - before;
  layer.backward_input(zeros(rank, held, spec.hidden), sequences, tape);
  tape.drop_gathered();
  found.between = rank.device.in_use().count - before;
  layer.backward_weight(tape);
  found.at_end = rank.device.in_use().count - before;
  return found;
}

/// With any recomputation, a layer holds as much as it keeps from its forward without recomputation, minus
/// statistics. A layer norm has two per row of the rank, an RMS norm one, and attention one per row and head
/// of the rank.
void expect_layer(const RankContext& rank, ParameterStore& store, const TransformerSpec& spec,
                  const std::string& name) {
  const std::int64_t statistics =
      kBytes * (2 * (spec.gated_mlp ? 1 : 2) * held_rows(rank, kRows) + kRows * spec.heads / rank.tp_size());
  const std::int64_t kept = run_layer(rank, store, spec, name, Recomputation::none).after_forward;
  for (const Recomputation mode : {Recomputation::none, Recomputation::selective, Recomputation::full}) {
    const Held found = run_layer(rank, store, spec, name, mode);
    EXPECT_EQ(found.between, kept - statistics) << name << ", " << to_string(mode);
    EXPECT_EQ(found.at_end, 0);
  }
}

TEST(TapeMemory, OfALayerBetweenThePartsIgnoresRecomputation) {
  for (const auto& [tp, shards] : {std::pair{1, false}, {2, false}, {2, true}}) {
    SCOPED_TRACE("tp " + std::to_string(tp) + (shards ? ", sequence parallel" : ""));
    on_ranks(tp, shards, [](const RankContext& rank, ParameterStore& store, const ModelSpec& model) {
      expect_layer(rank, store, model.encoder, "encoder");
      expect_layer(rank, store, model.llm, "llm");
    });
  }
}

// The connector with widths 16, 20 and 24 holds its normed input (16), the values between its two layers
// (20), and the gradients of both outputs (20 and 24). The head holds its normed input (24) and the gradients
// of 64 classes.
TEST(TapeMemory, OfEndsBetweenThePartsHoldsInputsOfWeightGradients) {
  on_ranks(1, false, [](const RankContext& rank, ParameterStore& store, const ModelSpec& model) {
    const Connector connector(model, first_encoder(), store, rank);
    EncoderInput encoder;
    encoder.offsets = {0, kRows};
    for (std::int64_t row = 0; row < kRows; ++row) encoder.sent.add_mean(row, row + 1);
    const std::int64_t before = rank.device.in_use().count;
    const auto in_use = [&] { return rank.device.in_use().count - before; };
    ConnectorTape tape;
    connector.forward(zeros(rank, kRows, 16), encoder, tape);
    connector.backward_input(zeros(rank, kRows, 24), tape);
    EXPECT_EQ(in_use(), kBytes * kRows * (16 + 20 + 20 + 24));
    connector.backward_weight(tape);
    EXPECT_EQ(in_use(), 0);

    const LmHead head(model, store, rank);
    SumTensor loss(rank, 1, 1);
    rank.kernels.zero(Sums(loss));
    LlmInput llm;
    llm.targets = numbers_to(kRows);
    llm.offsets = {0, kRows};
    const std::int64_t with_loss = in_use();
    LmHeadTape head_tape;
    head.forward(zeros(rank, kRows, 24), llm, 1, loss, head_tape);
    head.backward_input(head_tape);
    EXPECT_EQ(in_use() - with_loss, kBytes * kRows * (24 + 64));
    head.backward_weight(head_tape);
    EXPECT_EQ(in_use(), with_loss);
  });
}

}  // namespace tape_memory_test
}  // namespace dflop
