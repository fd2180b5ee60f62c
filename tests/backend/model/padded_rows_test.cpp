// Rows inside MLPs that are padded with zeros in memory: values are counted without the padding, and results
// are the same as without it.
#include <gtest/gtest.h>

#include <memory>

#include "tests/backend/run/live_model.hpp"

namespace dflop {
namespace padded_rows_test {

using testing::LiveRun;
using Kind = ParameterStore::Kind;

/// Rows [0, 3) and [4, 7) of columns [1, 3): 12 values. In memory, each range has four rows of four values.
Parameter padded_parameter() {
  Parameter parameter{"padded", 8, 5, {{0, 3}, {4, 7}}, {1, 3}};
  parameter.row_multiple = parameter.column_multiple = 4;
  return parameter;
}

TEST(PaddedRows, PlacesSkipThePadding) {
  const Parameter parameter = padded_parameter();
  EXPECT_EQ(parameter.count(), 12);
  EXPECT_EQ(parameter.padded_rows(), 8);
  EXPECT_EQ(parameter.padded_columns(), 4);
  // Value 5 is the second of row 2; value 6 is the first of the second range, which is row 4 in memory.
  const std::vector<std::int64_t> places = {0, 1, 4, 5, 8, 9, 16, 17, 20, 21, 24, 25};
  for (std::size_t value = 0; value < places.size(); ++value) {
    EXPECT_EQ(parameter.place_of(static_cast<std::int64_t>(value)), places[value]);
  }
  for (std::int64_t place = 0; place <= parameter.padded_count(); ++place) {
    std::int64_t before = 0;
    for (const std::int64_t p : places) before += p < place ? 1 : 0;
    EXPECT_EQ(parameter.values_before(place), before) << place;
  }
}

/// Calls f(rank) with the context of a rank on a host device of this alignment.
template <typename F>
void on_device(int row_alignment, DType dtype, const F& f) {
  WorldOptions options;
  options.row_alignment = row_alignment;
  HostWorld world(1, options);
  const LocalRank rank(world, 0, dtype);
  f(context_of(rank));
}

/// Returns the memory of a parameter's weights and gradients, including the padding.
std::vector<double> memory_of(const RankContext& rank, ParameterStore& store, const Parameter& parameter) {
  const auto count = static_cast<std::size_t>(parameter.padded_count());
  std::vector<double> all = download(rank, store.weight(parameter).data, rank.kernels.dtype(), count);
  for (const double g :
       download(rank, store.gradient(parameter).data, sum_type_of(rank.kernels.dtype()), count)) {
    all.push_back(g);
  }
  return all;
}

/// Returns all kinds of values that a store of several parameters reads back.
std::vector<double> read_all(const RankContext& rank, ParameterStore& store) {
  std::vector<double> all;
  for (const Parameter& parameter : store.list()) {
    for (const Kind kind : {Kind::weight, Kind::gradient, Kind::moment1, Kind::moment2}) {
      for (const double value : store.read(rank, parameter, kind)) all.push_back(value);
    }
  }
  return all;
}

TEST(PaddedRows, DoNotChangeFirstValues) {
  const ModelSpec model = testing::uneven_model();
  StagePlace place;
  place.stage.tp = 2;
  place.stage.encoder_layers = place.stage.llm_layers = 1;
  place.stage.connector = place.stage.embedding = place.stage.head = place.patches = true;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    std::vector<double> expected;
    for (const int row_alignment : {1, 8}) {
      on_device(row_alignment, dtype, [&](const RankContext& rank) {
        ParameterStore store(rank, stage_parameter_list(model, place, 1, row_alignment), 1, 0, 7);
        const std::vector<double> found = read_all(rank, store);
        if (row_alignment == 1) expected = found;
        EXPECT_EQ(found, expected);
      });
    }
  }
}

TEST(PaddedRows, WrittenValuesAreReadFromAnyShardInAnyParts) {
  const Parameter parameter = padded_parameter();
  for (const int shards : {1, 3}) {
    for (int shard = 0; shard < shards; ++shard) {
      on_device(4, DType::bf16, [&](const RankContext& rank) {
        ParameterStore store(rank, {parameter}, shards, shard, 7);
        const Parameter& own = store.list().front();
        for (const Kind kind : {Kind::weight, Kind::gradient, Kind::moment1, Kind::moment2}) {
          std::vector<float> written;
          for (int i = 0; i < 12; ++i) written.push_back(static_cast<float>(i + 1));
          for (std::int64_t first = 0; first < 12; first += 5) {
            const auto count = static_cast<std::size_t>(std::min<std::int64_t>(5, 12 - first));
            store.write_values<float>(rank, own, kind, first,
                                      std::span(written).subspan(static_cast<std::size_t>(first), count));
          }
          const Range held = store.held(own, kind);
          for (std::int64_t first = held.begin; first < held.end; ++first) {
            std::vector<float> read(static_cast<std::size_t>(std::min<std::int64_t>(3, held.end - first)));
            store.read_values<float>(rank, own, kind, first, std::span(read));
            for (std::size_t i = 0; i < read.size(); ++i) {
              EXPECT_EQ(read[i], static_cast<float>(first) + static_cast<float>(i) + 1);
            }
          }
        }
        // The padding is zero in weights and gradients, hence twice the count.
        const std::vector<double> memory = memory_of(rank, store, own);
        for (std::int64_t i = 0; i < 2 * own.padded_count(); ++i) {
          const std::int64_t p = i % own.padded_count();
          const bool is_value = own.values_before(p + 1) > own.values_before(p);
          EXPECT_EQ(memory[static_cast<std::size_t>(i)] != 0, is_value) << i;
        }
      });
    }
  }
}

/// Shards start at multiples for vector accesses, whatever the positions of values. Each value is in exactly
/// one shard.
TEST(PaddedRows, EachValueIsInOneShard) {
  for (const int shards : {2, 3, 4, 5}) {
    std::int64_t end = 0;
    for (int shard = 0; shard < shards; ++shard) {
      on_device(4, DType::f32, [&](const RankContext& rank) {
        ParameterStore store(rank, {padded_parameter()}, shards, shard, 7);
        const Range held = store.held(store.list().front(), Kind::moment1);
        EXPECT_EQ(held.begin, end);
        end = held.end;
      });
    }
    EXPECT_EQ(end, 12);
  }
}

std::vector<Plan> plans() {
  Plan sharded = testing::disaggregated_plan({2, 1, 1, {}}, {2, 2, 1, {}}, 3);
  sharded.sequence_parallel = true;
  sharded.recomputation = Recomputation::full;
  Plan buckets = testing::uniform_plan(2, 1, 2, 2);
  buckets.gradient_bucket = Bytes{4096};
  buckets.zero1 = true;
  return {testing::uniform_plan(1, 1, 1, 1), testing::uniform_plan(1, 2, 2, 2), buckets, sharded,
          testing::shared_plan({1, 1, 1, {}}, {1, 1, 1, {}}, 0.5, 2)};
}

TEST(LivePaddedRows, PaddingDoesNotChangeSteps) {
  const std::vector<Sample> samples = testing::live_samples(12, 5);
  std::size_t p = 0;
  for (Plan plan : plans()) {
    SCOPED_TRACE("plan " + std::to_string(p++));
    plan.clip_gradients = true;
    LiveRun plain(plan, testing::uneven_model(), samples, DType::f64);
    LiveRun padded(plan, testing::uneven_model(), samples, DType::f64, 8);
    for (int step = 1; step <= 3; ++step) {
      StepOptions options;
      options.optimizer.step = step;
      options.optimizer.weight_decay = 0.1;
      const LiveResult expected = plain.executor->step(plain.iteration(), options);
      const LiveResult found = padded.executor->step(padded.iteration(), options);
      EXPECT_NEAR(found.loss, expected.loss, 1e-10 * expected.loss);
      EXPECT_NEAR(*found.gradient_norm, *expected.gradient_norm, 1e-10 * *expected.gradient_norm);
      const Timeline& without = expected.timeline;
      for (std::size_t g = 0; g < without.groups.size(); ++g) {
        EXPECT_GT(found.timeline.groups[g].model_state.parameters, without.groups[g].model_state.parameters);
      }
    }
    for (const Kind kind : {Kind::gradient, Kind::weight, Kind::moment1, Kind::moment2}) {
      const WholeTensors expected = plain.executor->read(kind);
      const WholeTensors found = padded.executor->read(kind);
      ASSERT_EQ(found.size(), expected.size());
      for (const auto& [name, tensor] : expected) {
        ASSERT_EQ(found.at(name).columns, tensor.columns);
        if (found.at(name).values == tensor.values) continue;
        EXPECT_LT(testing::distance(found.at(name), tensor), 1e-7) << name;
      }
    }
  }
}

}  // namespace padded_rows_test
}  // namespace dflop
