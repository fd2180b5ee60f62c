#include "traces/weights/safetensors.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_target.hpp"
#include "tests/fuzz/memory_file.hpp"

namespace {

using namespace dflop;

/// An accepted header must allow writing, and read back the same.
void write_and_read(const SafetensorsHeader& header) {
  const std::string bytes = header_bytes(header);
  const std::uint64_t data = header.file_bytes - header.data_begin;
  const SafetensorsHeader again = parse_header(bytes, bytes.size() + data, "again.safetensors");
  require(again.metadata == header.metadata && again.tensors.size() == header.tensors.size());
  for (std::size_t t = 0; t < again.tensors.size(); ++t) {
    StoredTensor tensor = again.tensors[t];
    tensor.begin = tensor.begin - again.data_begin + header.data_begin;
    require(tensor == header.tensors[t]);
  }
}

/// Reads all blocks of two rows and half of the columns.
void read_blocks(const SafetensorsFile& file, const StoredTensor& tensor) {
  std::vector<float> out;
  for (std::int64_t row = 0; row < tensor.rows; row += 2) {
    for (const bool second : {false, true}) {
      const std::int64_t middle = tensor.columns / 2;
      const Block block = {row, std::min(row + 2, tensor.rows), second ? middle : 0,
                           second ? tensor.columns : middle};
      if (block.columns() == 0) continue;  // rows without columns may be arbitrarily many
      out.resize(static_cast<std::size_t>(block.rows() * block.columns()));
      file.read_block(tensor, block, std::span(out));
    }
    if (tensor.columns == 0) return;
  }
}

void read_file(std::string_view bytes) {
  write_and_read(parse_header(bytes, bytes.size(), "fuzz.safetensors"));
  const MemoryFile memory(bytes);
  const SafetensorsFile file(memory.path());
  for (const StoredTensor& tensor : file.tensors()) {
    require(file.bytes(tensor).size() == tensor.bytes && file.find(tensor.name) == &tensor);
    if (is_decoded(tensor.dtype)) read_blocks(file, tensor);
  }
}

/// Corrects the length of the header, to end at the last brace. Otherwise most fuzzed inputs would be
/// rejected before their header is read.
std::string repaired(std::string_view input) {
  std::string bytes(input);
  if (bytes.size() < 8) return bytes;
  const std::size_t brace = bytes.rfind('}');
  const std::uint64_t length = brace == std::string::npos || brace < 8 ? 0 : brace + 1 - 8;
  bytes.replace(0, 8, reinterpret_cast<const char*>(&length), 8);
  return bytes;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  run_fuzz_target(data, size, read_file);
  return run_fuzz_target(data, size, [](std::string_view input) { read_file(repaired(input)); });
}
