// Numbers of files become weights and masters, whatever the lengths of their runs.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "backend/host/world.hpp"
#include "backend/model/parameter_store.hpp"
#include "core/error.hpp"
#include "core/support/random.hpp"

namespace dflop {
namespace stored_upload_test {

using Kind = ParameterStore::Kind;

/// The value in row r and column c is 1000 r + c, exact in f32. It is stored in unaligned runs of f32 with
/// random lengths that may end anywhere. Each row is its own tensor of the source, so that types and names
/// change often.
class RunSource final : public WeightSource {
 public:
  explicit RunSource(std::int64_t most_run) : most_run_(most_run) {}

  void visit(const Parameter&, Range rows, Range columns,
             const std::function<void(const StoredRun&)>& visit) const override {
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      for (std::int64_t first = columns.begin; first < columns.end;) {
        const std::int64_t count =
            std::min(columns.end - first,
                     1 + static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(most_run_))));
        row % 2 == 0 ? visit_as<float>(NumberType::f32, row, first, count, visit)
                     : visit_as<double>(NumberType::f64, row, first, count, visit);
        first += count;
      }
    }
  }

  std::optional<std::pair<std::int64_t, std::int64_t>> not_finite;  ///< row and column

 private:
  template <typename T>
  void visit_as(NumberType type, std::int64_t row, std::int64_t first, std::int64_t count,
                const std::function<void(const StoredRun&)>& visit) const {
    std::vector<std::byte> bytes(1 + static_cast<std::size_t>(count) * sizeof(T));
    for (std::int64_t i = 0; i < count; ++i) {
      T number = static_cast<T>(1000 * row + first + i);
      if (not_finite && *not_finite == std::pair(row, first + i)) number = std::numeric_limits<T>::infinity();
      std::memcpy(bytes.data() + 1 + static_cast<std::size_t>(i) * sizeof(T), &number, sizeof number);
    }
    const std::string name = "row " + std::to_string(row);
    visit({{type, bytes.data() + 1, count}, name, "file of " + name});
  }

  std::int64_t most_run_;
  mutable Random random_{3};
};

/// Calls f(rank, store) with the store of one shard of a bf16 run, loaded from a source.
template <typename F>
void with_loaded(const Parameter& parameter, int shards, int shard, const WeightSource& source, const F& f) {
  HostWorld world(1);
  const LocalRank local(world, 0, DType::bf16);
  const RankContext rank = context_of(local);
  ParameterStore store(rank, {parameter}, shards, shard, 1, &source);
  f(rank, store);
}

/// Returns rows [1, 4) and [6, 11) of columns [2, `end`), padded or not.
Parameter parameter_of(std::int64_t end, std::int64_t multiple) {
  Parameter parameter{"tensor", 12, end + 3, {{1, 4}, {6, 11}}, {2, end}};
  parameter.row_multiple = parameter.column_multiple = multiple;
  return parameter;
}

/// Short runs are gathered. With 70,000 columns, some runs are longer than one upload to the device.
TEST(StoredUpload, RunsOfAnyLengthBecomeWeightsAndMasters) {
  struct Case {
    std::int64_t end;
    std::int64_t most_run;
  };
  for (const Case& of : {Case{9, 3}, {9, 100}, {1001, 50}, {300'000, 400'000}, {70'000, 30'000}}) {
    const std::int64_t end = of.end;
    const std::int64_t most_run = of.most_run;
    for (const std::int64_t multiple : {1, 8}) {
      const Parameter parameter = parameter_of(end, multiple);
      for (const auto& [shards, shard] : {std::pair{1, 0}, {3, 1}, {3, 2}}) {
        SCOPED_TRACE(std::to_string(end) + ", " + std::to_string(multiple) + ", shard " +
                     std::to_string(shard));
        with_loaded(parameter, shards, shard, RunSource(most_run),
                    [&](const RankContext& rank, ParameterStore& store) {
                      const Parameter& own = store.list().front();
                      const std::vector<double> masters = store.read(rank, own, Kind::weight);
                      const std::vector<double> memory =
                          download(rank, store.weight(own).data, DType::bf16,
                                   static_cast<std::size_t>(own.padded_count()));
                      const Range held = store.held(own, Kind::weight);
                      std::int64_t value = 0;
                      for (const std::int64_t row : {1, 2, 3, 6, 7, 8, 9, 10}) {
                        for (std::int64_t column = 2; column < end; ++column, ++value) {
                          const auto number = static_cast<float>(1000 * row + column);
                          const bool is_held = held.begin <= value && value < held.end;
                          ASSERT_EQ(masters[static_cast<std::size_t>(value)], is_held ? number : 0) << value;
                          ASSERT_EQ(memory[static_cast<std::size_t>(own.place_of(value))],
                                    to_float(to_bfloat16(number)))
                              << value;
                        }
                      }
                      const double sum_of_values = [&] {
                        double sum = 0;
                        for (std::int64_t v = 0; v < own.count(); ++v)
                          sum += memory[static_cast<std::size_t>(own.place_of(v))];
                        return sum;
                      }();
                      double sum = 0;
                      for (const double number : memory) sum += number;
                      EXPECT_EQ(sum, sum_of_values);  // all values are positive, so the padding is zero
                    });
      }
    }
  }
}

TEST(StoredUpload, NamesTheTensorOfANumberThatIsNotFinite) {
  for (const auto& place : {std::pair<std::int64_t, std::int64_t>{1, 2}, {8, 500}, {10, 1000}}) {
    RunSource source(60);
    source.not_finite = place;
    const std::string row = "row " + std::to_string(place.first);
    try {
      with_loaded(parameter_of(1001, 1), 1, 0, source, [](const RankContext&, ParameterStore&) {});
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::input);
      EXPECT_EQ(error.context(), "file of " + row);
      EXPECT_EQ(error.message(), "tensor '" + row + "': expected finite numbers, found NaN or infinity");
    }
  }
}

/// More tensors than are examined together.
TEST(StoredUpload, LooksAtAnyNumberOfTensors) {
  Parameter parameter{"tensor", 3000, 2, {{0, 3000}}, {0, 2}};
  for (const std::int64_t row : {0, 1500, 2999}) {
    RunSource source(2);
    source.not_finite = {row, 1};
    EXPECT_THROW(with_loaded(parameter, 1, 0, source, [](const RankContext&, ParameterStore&) {}), Error)
        << row;
  }
  EXPECT_NO_THROW(with_loaded(parameter, 1, 0, RunSource(2), [](const RankContext&, ParameterStore&) {}));
}

/// A normal value is (the sum of twelve uniform values - 6) / sqrt(columns). Each row has its own sequence of
/// random numbers, which its columns use in order.
TEST(FirstValues, DependOnlyOnTheirRows) {
  Parameter parameter{"tensor", 40'000, 60, {{5, 100}, {200, 39'000}}, {7, 51}};
  HostWorld world(1);
  const LocalRank local(world, 0, DType::f64);
  const RankContext rank = context_of(local);
  ParameterStore store(rank, {parameter}, 1, 0, 11);
  const std::vector<double> values = store.read(rank, store.list().front(), Kind::weight);
  std::size_t value = 0;
  for (const Range& range : parameter.row_ranges) {
    for (std::int64_t row = range.begin; row < range.end; ++row) {
      Random random(11, stable_hash("tensor") + static_cast<std::uint64_t>(row));
      for (std::int64_t column = 0; column < 51; ++column) {
        double sum = -6;
        for (int i = 0; i < 12; ++i) sum += random.uniform();
        if (column < 7) continue;
        ASSERT_EQ(values[value++], 1.0 / std::sqrt(60.0) * sum) << row << ", " << column;
      }
    }
  }
}

}  // namespace stored_upload_test
}  // namespace dflop
