#include "backend/model/parameter_store.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/model/stored_upload.hpp"
#include "core/error.hpp"
#include "core/support/parallel.hpp"
#include "core/support/random.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kAligned = 8;  // values; 16 bytes of the narrowest type
constexpr std::int64_t kValuesAtATime = std::int64_t{1} << 20;

/// Returns the sum of twelve uniform numbers minus six: mean 0, variance 1. It calls no library function.
double normal(Random& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += random.uniform();
  return sum;
}

/// Returns a value of Whisper's sinusoidal position table.
double sinusoid(std::int64_t row, std::int64_t column, std::int64_t columns) {
  const std::int64_t half = std::max<std::int64_t>(1, columns / 2);
  const double step = std::log(10'000.0) / static_cast<double>(std::max<std::int64_t>(1, half - 1));
  const double angle = static_cast<double>(row) * std::exp(-step * static_cast<double>(column % half));
  return column < half ? std::sin(angle) : std::cos(angle);
}

/// Sets the initial values of the columns of a row that a rank holds.
void draw_row(const Parameter& parameter, std::int64_t row, Range columns, std::uint64_t seed,
              std::span<double> out) {
  switch (parameter.initial) {
    case Initial::zeros:
      std::ranges::fill(out, 0.0);
      return;
    case Initial::ones:
      std::ranges::fill(out, parameter.initial_factor);
      return;
    case Initial::sinusoids:
      for (std::int64_t column = columns.begin; column < columns.end; ++column) {
        out[static_cast<std::size_t>(column - columns.begin)] = sinusoid(row, column, parameter.columns);
      }
      return;
    case Initial::normal:
      break;
  }
  const double deviation = 1.0 / std::sqrt(static_cast<double>(parameter.columns));
  Random random(seed, stable_hash(parameter.name) + static_cast<std::uint64_t>(row));
  for (std::int64_t column = 0; column < columns.end; ++column) {
    const double value = deviation * normal(random);
    if (column >= columns.begin) out[static_cast<std::size_t>(column - columns.begin)] = value;
  }
}

void* at(void* data, std::int64_t value, std::size_t width) {
  return offset(data, static_cast<std::size_t>(value) * width);
}

/// Calls visit(held index, whole index) for each held value of a parameter. The whole index is its place in
/// the whole tensor.
template <typename Visit>
void for_each_value(const Parameter& parameter, const Visit& visit) {
  std::size_t held = 0;
  for (const Range& range : parameter.row_ranges) {
    for (std::int64_t row = range.begin; row < range.end; ++row) {
      for (std::int64_t c = parameter.column_range.begin; c < parameter.column_range.end; ++c) {
        visit(held++, static_cast<std::size_t>(row * parameter.columns + c));
      }
    }
  }
}

/// Returns the places in a parameter's memory that a range of values, at least one, spans.
Range places_of(const Parameter& parameter, Range values) {
  return {parameter.place_of(values.begin), parameter.place_of(values.end - 1) + 1};
}

/// Calls visit(value, place, count) for each run of values that are contiguous in a parameter's memory.
/// `value` counts from the first of the values.
template <typename Visit>
void for_each_stretch(const Parameter& parameter, Range values, const Visit& visit) {
  if (places_of(parameter, values).size() == values.size()) {
    return visit(std::int64_t{0}, parameter.place_of(values.begin), values.size());
  }
  const std::int64_t columns = parameter.held_columns();
  for (std::int64_t value = values.begin; value < values.end;) {
    const std::int64_t end = std::min(values.end, (value / columns + 1) * columns);
    visit(value - values.begin, parameter.place_of(value), end - value);
    value = end;
  }
}

/// Reads a parameter's place in the whole tensor.
Parameter read_parameter(ByteReader& reader) {
  Parameter parameter;
  parameter.name = reader.get_text();
  parameter.rows = reader.get<std::int64_t>();
  parameter.columns = reader.get<std::int64_t>();
  parameter.row_ranges = reader.get_all<Range>();
  parameter.column_range = reader.get<Range>();
  return parameter;
}

}  // namespace

ParameterStore::ParameterStore(const RankContext& rank, std::vector<Parameter> parameters, int shards,
                               int shard, std::uint64_t seed, const WeightSource* source)
    : list_(std::move(parameters)), shards_(shards), shard_(shard), dtype_(rank.kernels.dtype()) {
  place([](const Parameter& p) { return p.by_heads; });
  by_heads_ = length_;
  place([](const Parameter& p) { return p.by_held_rows; });
  by_held_rows_ = length_;
  place([](const Parameter& p) { return !p.by_heads && !p.by_held_rows; });
  length_ = round_up(length_, kAligned * shards);
  for (const Parameter& parameter : list_) by_place_.push_back(&parameter);
  std::sort(by_place_.begin(), by_place_.end(),
            [](const Parameter* a, const Parameter* b) { return a->offset < b->offset; });
  weights_ = Tensor(rank, 1, length_);
  gradients_ = SumTensor(rank, 1, length_);
  moment1_ = SumTensor(rank, 1, shard_size());
  moment2_ = SumTensor(rank, 1, shard_size());
  if (has_master()) master_ = SumTensor(rank, 1, shard_size());
  rank.kernels.zero(weights_);
  for (SumTensor* sums : {&moment1_, &moment2_, &master_}) rank.kernels.zero(Sums(*sums));
  rank.kernels.zero(gradients());
  begin_gradients();
  source != nullptr ? load(rank, *source) : initialize(rank, seed);
}

/// Assigns places in the flat arrays to the parameters for which has() is true.
template <typename Has>
void ParameterStore::place(const Has& has) {
  for (Parameter& parameter : list_) {
    if (!has(parameter)) continue;
    parameter.offset = length_;
    length_ += round_up(parameter.padded_count(), kAligned);
  }
}

const Parameter& ParameterStore::find(const std::string& name) const {
  const auto found =
      std::find_if(list_.begin(), list_.end(), [&](const Parameter& p) { return p.name == name; });
  if (found == list_.end()) throw Error(ErrorKind::internal, "the stage has no parameter '" + name + "'");
  return *found;
}

Matrix ParameterStore::weight(const Parameter& parameter) {
  return {at(weights_.view().data, parameter.offset, bytes_of(dtype_)), parameter.padded_rows(),
          parameter.padded_columns()};
}

Sums ParameterStore::gradient(const Parameter& parameter) {
  return {at(gradients_.view().data, parameter.offset, sum_bytes_of(dtype_)), parameter.padded_rows(),
          parameter.padded_columns()};
}

Beta ParameterStore::enter_product(const Parameter& parameter) {
  const std::size_t index = index_of(parameter);
  const Beta beta = begun_[index] ? Beta::one : Beta::zero;
  begun_[index] = true;
  return beta;
}

Sums ParameterStore::gradient_to_add_to(const RankContext& rank, const Parameter& parameter) {
  const Sums sums = gradient(parameter);
  if (enter_product(parameter) == Beta::zero) rank.kernels.zero(sums);
  return sums;
}

void ParameterStore::zero_left_gradients(const RankContext& rank, std::int64_t begin, std::int64_t end) {
  for (const Parameter& parameter : list_) {
    if (parameter.offset < begin || parameter.offset >= end) continue;
    const Sums all = gradient_to_add_to(rank, parameter);
    if (parameter.fixed_rows.size() == 0) continue;
    const std::int64_t before = parameter.fixed_rows.begin * all.columns;
    rank.kernels.zero(
        Sums{at(all.data, before, sum_bytes_of(dtype_)), parameter.fixed_rows.size(), all.columns});
  }
}

void ParameterStore::complete_gradients(const RankContext& rank, std::int64_t end) {
  zero_left_gradients(rank, 0, end);
  const std::int64_t summed = has_shards(rank) ? by_held_rows_ : by_heads_;
  if (rank.tp_size() == 1 || summed == 0) return;
  rank.communicator.all_reduce(gradients_.view().data, static_cast<std::size_t>(summed), sum_type_of(dtype_),
                               rank.tp, rank.compute, "gradients over the rows of tensor parallelism");
}

void ParameterStore::load(const RankContext& rank, const WeightSource& source) {
  StoredUpload upload(rank);
  for (const Parameter& parameter : list_) {
    upload.begin([&](std::int64_t first, const StoredNumbers& numbers, Sums not_finite) {
      unpack(rank, parameter, first, numbers, not_finite);
    });
    std::int64_t value = 0;  // the run's first
    for (const Range& range : parameter.row_ranges) {
      source.visit(parameter, range, parameter.column_range, [&](const StoredRun& run) {
        const Range values{value, value + run.numbers.count};
        for_each_stretch(parameter, values, [&](std::int64_t from, std::int64_t place, std::int64_t count) {
          upload.add(run, from, count, place);
        });
        value = values.end;
      });
    }
    upload.end();
  }
  upload.require_finite();
}

/// Converts numbers to weights and, within this rank's shard, to masters, from a place in a parameter on.
void ParameterStore::unpack(const RankContext& rank, const Parameter& parameter, std::int64_t first,
                            const StoredNumbers& numbers, Sums not_finite) {
  const Matrix weights{in_all(parameter, Kind::weight, first).data, 1, numbers.count};
  rank.kernels.unpack_values(weights, not_finite, numbers);
  if (!has_master()) return;
  const std::int64_t shard = shard_ * shard_size() - parameter.offset;  // its first place in the parameter
  const Range own{std::max(first, shard), std::min(first + numbers.count, shard + shard_size())};
  if (own.begin >= own.end) return;
  const Sums masters{in_shard(parameter, Kind::weight, own.begin).data, 1, own.size()};
  rank.kernels.unpack_sums(masters, part_of(numbers, own.begin - first, own.size()));
}

/// Draws some rows at a time, because all values in f64 would take more memory than the parameter. A row's
/// values depend only on its seed, so threads draw rows in parallel.
void ParameterStore::initialize(const RankContext& rank, std::uint64_t seed) {
  std::vector<double> values;
  for (const Parameter& parameter : list_) {
    const std::int64_t columns = parameter.held_columns();
    const std::int64_t at_once = std::max<std::int64_t>(1, kValuesAtATime / columns);
    std::int64_t written = 0;
    for (const Range& range : parameter.row_ranges) {
      for (std::int64_t first = range.begin; first < range.end; first += at_once) {
        const auto rows = static_cast<std::size_t>(std::min(at_once, range.end - first));
        values.resize(rows * static_cast<std::size_t>(columns));
        parallel_for(rows, [&](std::size_t r) {
          const auto row = std::span(values).subspan(r * static_cast<std::size_t>(columns),
                                                     static_cast<std::size_t>(columns));
          draw_row(parameter, first + static_cast<std::int64_t>(r), parameter.column_range, seed, row);
        });
        write_values<double>(rank, parameter, Kind::weight, written, values);
        written += std::ssize(values);
      }
    }
  }
}

std::vector<double> values_without_seed(const Parameter& parameter, Range rows, Range columns) {
  const auto width = static_cast<std::size_t>(columns.size());
  std::vector<double> values(static_cast<std::size_t>(rows.size()) * width);
  for (std::int64_t row = rows.begin; row < rows.end; ++row)
    draw_row(parameter, row, columns, 0,
             std::span(values).subspan(static_cast<std::size_t>(row - rows.begin) * width, width));
  return values;
}

double ModuleRates::of(const Parameter& parameter) const {
  if (parameter.frozen) return 0;
  if (parameter.name.starts_with("llm.")) return llm;
  return parameter.connects ? connector : encoder;
}

/// Calls visit(first, run) for each run of neighboring parameters that are alike, within a part of the flat
/// arrays. A run includes the padding between and after its parameters, so that one kernel call handles it.
/// `first` is one of its parameters.
template <typename Alike, typename Visit>
void ParameterStore::for_each_run(const Range& part, const Alike& alike, const Visit& visit) const {
  const Parameter* first = nullptr;
  std::int64_t begin = part.begin;
  const auto end_run = [&](std::int64_t end) {
    if (first != nullptr && begin < end) visit(*first, Range{begin, end});
    begin = end;
  };
  for (const Parameter* parameter : by_place_) {
    if (first != nullptr && alike(*first, *parameter)) continue;
    end_run(std::clamp(parameter->offset, part.begin, part.end));
    first = parameter;
  }
  end_run(part.end);
}

void ParameterStore::add_squares(const RankContext& rank, const std::function<bool(const Parameter&)>& counts,
                                 Sums sum) {
  const auto alike = [&](const Parameter& a, const Parameter& b) { return counts(a) == counts(b); };
  for_each_run({0, length_}, alike, [&](const Parameter& first, const Range& run) {
    if (counts(first)) rank.kernels.sum_of_squares(sum, gradients_of(run));
  });
}

Sums ParameterStore::gradients_of(const Range& range) {
  return {at(gradients_.view().data, range.begin, sum_bytes_of(dtype_)), 1, range.size()};
}

/// Runs the optimizer step for the values [begin, end) of the flat arrays, which are in this rank's shard.
void ParameterStore::step_range(const RankContext& rank, const Range& range, const AdamWStep& step) {
  const std::int64_t size = range.size();
  const std::int64_t in_shard = range.begin - shard_ * shard_size();
  const auto of_shard = [&](SumTensor& tensor) {
    return Sums{at(tensor.view().data, in_shard, sum_bytes_of(dtype_)), 1, size};
  };
  const Matrix weight{at(weights_.view().data, range.begin, bytes_of(dtype_)), 1, size};
  const Sums master = has_master() ? of_shard(master_) : Sums{weight.data, 1, size};
  rank.kernels.adamw(weight, master, of_shard(moment1_), of_shard(moment2_), gradients_of(range), step);
}

void ParameterStore::step(const RankContext& rank, const OptimizerStep& step) {
  const auto decay_of = [&](const Parameter& parameter) {
    return parameter.decayed ? step.weight_decay : 0.0;
  };
  const auto alike = [&](const Parameter& a, const Parameter& b) {
    const double rate = step.rates.of(a);
    return rate == step.rates.of(b) && (rate == 0 || decay_of(a) == decay_of(b));
  };
  const Range shard{shard_ * shard_size(), (shard_ + 1) * shard_size()};
  for_each_run(shard, alike, [&](const Parameter& first, const Range& run) {
    const double rate = step.rates.of(first);
    if (rate <= 0) return;
    AdamWStep of_run = step;
    of_run.learning_rate = step.learning_rate * rate;
    of_run.weight_decay = decay_of(first);
    step_range(rank, run, of_run);
  });
}

void ParameterStore::gather(const RankContext& rank, const RankGroup& group) {
  const auto size = static_cast<std::size_t>(shard_size());
  void* all = weights_.view().data;
  rank.communicator.all_gather(all, at(all, shard_ * shard_size(), bytes_of(dtype_)), size, dtype_, group,
                               rank.compute, "updated parameters");
}

ModelState ParameterStore::memory() const {
  const auto bytes = [&](std::int64_t values, std::size_t width) {
    return Bytes{values * static_cast<std::int64_t>(width)};
  };
  const std::size_t sum = sum_bytes_of(dtype_);
  const int states = has_master() ? 3 : 2;
  return {bytes(length_, bytes_of(dtype_)), bytes(length_, sum), bytes(states * shard_size(), sum)};
}

ParameterStore::Memory ParameterStore::in_all(const Parameter& parameter, Kind which, std::int64_t place) {
  const bool is_weight = which == Kind::weight;
  const DType element = is_weight ? dtype_ : sum_type_of(dtype_);
  void* all = is_weight ? weights_.view().data : gradients_.view().data;
  return {at(all, parameter.offset + place, bytes_of(element)), element};
}

ParameterStore::Memory ParameterStore::in_shard(const Parameter& parameter, Kind which, std::int64_t place) {
  SumTensor& all = which == Kind::weight ? master_ : which == Kind::moment1 ? moment1_ : moment2_;
  const DType element = sum_type_of(dtype_);
  return {at(all.view().data, parameter.offset + place - shard_ * shard_size(), bytes_of(element)), element};
}

Range ParameterStore::held(const Parameter& parameter, Kind which) const {
  if (!is_sharded(which)) return {0, parameter.count()};
  const auto before = [&](std::int64_t value) {  // of the flat arrays
    return parameter.values_before(
        std::clamp<std::int64_t>(value - parameter.offset, 0, parameter.padded_count()));
  };
  return {before(shard_ * shard_size()), before((shard_ + 1) * shard_size())};
}

std::vector<double> ParameterStore::read(const RankContext& rank, const Parameter& parameter, Kind which) {
  std::vector<double> values(static_cast<std::size_t>(parameter.count()), 0.0);
  const Range range = held(parameter, which);
  read_values(rank, parameter, which, range.begin,
              std::span(values).subspan(static_cast<std::size_t>(range.begin),
                                        static_cast<std::size_t>(range.size())));
  return values;
}

void ParameterStore::write(const RankContext& rank, const Parameter& parameter, Kind which,
                           const std::vector<double>& values) {
  if (values.size() != static_cast<std::size_t>(parameter.count())) {
    throw Error(ErrorKind::internal, "parameter '" + parameter.name + "' has " +
                                         std::to_string(parameter.count()) + " values, not " +
                                         std::to_string(values.size()));
  }
  write_values<double>(rank, parameter, which, 0, values);
}

template <std::floating_point Real>
void ParameterStore::read_values(const RankContext& rank, const Parameter& parameter, Kind which,
                                 std::int64_t first, std::span<Real> out) {
  if (out.empty()) return;
  const Range range{first, first + static_cast<std::int64_t>(out.size())};
  const Range places = places_of(parameter, range);
  const Memory memory =
      is_sharded(which) ? in_shard(parameter, which, places.begin) : in_all(parameter, which, places.begin);
  if (places.size() == range.size()) return download(rank, memory.data, memory.element, out);
  std::vector<Real> padded(static_cast<std::size_t>(places.size()));
  download(rank, memory.data, memory.element, std::span<Real>(padded));
  for_each_stretch(parameter, range, [&](std::int64_t value, std::int64_t place, std::int64_t count) {
    std::copy_n(padded.begin() + (place - places.begin), count, out.begin() + value);
  });
}

template void ParameterStore::read_values(const RankContext&, const Parameter&, Kind, std::int64_t,
                                          std::span<float>);
template void ParameterStore::read_values(const RankContext&, const Parameter&, Kind, std::int64_t,
                                          std::span<double>);

/// Copies values, and the padding between them, to memory that begins with the first value.
template <std::floating_point Real>
void ParameterStore::put(const RankContext& rank, const Parameter& parameter, Memory memory,
                         std::int64_t first, std::span<const Real> values) {
  const Range range{first, first + static_cast<std::int64_t>(values.size())};
  const Range places = places_of(parameter, range);
  if (places.size() == range.size()) return upload(rank, memory.data, memory.element, values);
  std::vector<Real> padded(static_cast<std::size_t>(places.size()), Real{0});
  for_each_stretch(parameter, range, [&](std::int64_t value, std::int64_t place, std::int64_t count) {
    std::copy_n(values.begin() + value, count, padded.begin() + (place - places.begin));
  });
  upload(rank, memory.data, memory.element, std::span<const Real>(padded));
}

template <std::floating_point Real>
void ParameterStore::write_values(const RankContext& rank, const Parameter& parameter, Kind which,
                                  std::int64_t first, std::span<const Real> values) {
  if (values.empty()) return;
  if (which == Kind::gradient) begun_[index_of(parameter)] = true;
  if (which == Kind::weight || which == Kind::gradient) {
    put(rank, parameter, in_all(parameter, which, parameter.place_of(first)), first, values);
  }
  if (!is_sharded(which)) return;
  const Range all = held(parameter, which);
  const Range range{std::max(all.begin, first),
                    std::min(all.end, first + static_cast<std::int64_t>(values.size()))};
  if (range.begin >= range.end) return;
  put(rank, parameter, in_shard(parameter, which, parameter.place_of(range.begin)), range.begin,
      values.subspan(static_cast<std::size_t>(range.begin - first), static_cast<std::size_t>(range.size())));
}

template void ParameterStore::write_values(const RankContext&, const Parameter&, Kind, std::int64_t,
                                           std::span<const float>);
template void ParameterStore::write_values(const RankContext&, const Parameter&, Kind, std::int64_t,
                                           std::span<const double>);

void add_part(ByteWriter& writer, const Parameter& parameter, Range held, const std::vector<double>& values) {
  writer.add(parameter.name);
  writer.add(parameter.rows);
  writer.add(parameter.columns);
  writer.add(parameter.row_ranges);
  writer.add(parameter.column_range);
  writer.add(held);
  writer.add(std::span<const double>(values).subspan(static_cast<std::size_t>(held.begin),
                                                     static_cast<std::size_t>(held.size())));
}

void merge_parts(const std::string& parts, WholeTensors& tensors) {
  for (ByteReader reader(parts); !reader.at_end();) {
    const Parameter parameter = read_parameter(reader);
    const auto held = reader.get<Range>();
    const std::vector<double> values = reader.get_all<double>();
    WholeTensor& whole = tensors[parameter.name];
    if (whole.values.empty()) {
      whole = {parameter.rows, parameter.columns,
               std::vector<double>(static_cast<std::size_t>(parameter.rows * parameter.columns), 0.0)};
    }
    for_each_value(parameter, [&](std::size_t from, std::size_t to) {
      const auto place = static_cast<std::int64_t>(from);
      if (place < held.begin || place >= held.end) return;
      whole.values[to] = values[static_cast<std::size_t>(place - held.begin)];
    });
  }
}

std::vector<double> part_of(const WholeTensor& whole, const Parameter& parameter) {
  if (whole.rows != parameter.rows || whole.columns != parameter.columns) {
    throw Error(ErrorKind::input, "tensor '" + parameter.name + "': expected " +
                                      std::to_string(parameter.rows) + " x " +
                                      std::to_string(parameter.columns) + " values, found " +
                                      std::to_string(whole.rows) + " x " + std::to_string(whole.columns));
  }
  std::vector<double> held(static_cast<std::size_t>(parameter.count()));
  for_each_value(parameter, [&](std::size_t to, std::size_t from) { held[to] = whole.values[from]; });
  return held;
}

std::string to_bytes(const WholeTensors& tensors) {
  ByteWriter writer;
  for (const auto& [name, tensor] : tensors) {
    const Parameter whole{name, tensor.rows, tensor.columns, {{0, tensor.rows}}, {0, tensor.columns}};
    add_part(writer, whole, {0, whole.count()}, tensor.values);
  }
  return writer.take();
}

}  // namespace dflop
