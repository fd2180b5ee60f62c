#include "backend/model/tensor_parts.hpp"

#include "core/error.hpp"

namespace dflop {
namespace {

/// Calls visit(held index, whole index) for each held value of a parameter: where it stands in the whole
/// tensor.
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

void add_part(ByteWriter& writer, const Parameter& parameter, Range held, const std::vector<double>& values) {
  writer.add(parameter.name);
  writer.add(parameter.rows);
  writer.add(parameter.columns);
  writer.add(parameter.row_ranges);
  writer.add(parameter.column_range);
  writer.add(held);
  writer.add(std::vector<double>(values.begin() + held.begin, values.begin() + held.end));
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
    writer.add(name);
    writer.add(tensor.rows);
    writer.add(tensor.columns);
    writer.add(tensor.values);
  }
  return writer.take();
}

WholeTensors whole_tensors(const std::string& bytes) {
  WholeTensors tensors;
  for (ByteReader reader(bytes); !reader.at_end();) {
    WholeTensor& tensor = tensors[reader.get_text()];
    tensor.rows = reader.get<std::int64_t>();
    tensor.columns = reader.get<std::int64_t>();
    tensor.values = reader.get_all<double>();
  }
  return tensors;
}

}  // namespace dflop
