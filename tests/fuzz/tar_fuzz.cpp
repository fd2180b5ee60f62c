#include "traces/shards/tar.hpp"

#include <cstdio>
#include <set>
#include <string>

#include "tests/fuzz/fuzz_target.hpp"
#include "tests/fuzz/memory_file.hpp"

namespace {

using namespace dflop;

void read_tar(std::string_view bytes) {
  const MemoryFile memory(bytes);
  const TarFile tar(memory.path());
  std::set<std::string> keys;
  for (const TarSample& sample : tar.samples()) {
    require(keys.insert(sample.key).second && !sample.members.empty());
    for (const TarMember& member : sample.members) {
      require(sample.find(member.extension) == &member);
      require(tar.read(member) == bytes.substr(member.offset, member.size));
    }
  }
}

/// Corrects the checksum of each block and adds an end. Otherwise most fuzzed inputs would be rejected at the
/// first header.
std::string repaired_tar(std::string_view input) {
  constexpr std::size_t kBlock = 512;
  constexpr std::size_t kChecksum = 148;
  std::string bytes(input.substr(0, input.size() / kBlock * kBlock));
  for (std::size_t at = 0; at < bytes.size(); at += kBlock) {
    if (bytes.compare(at + 257, 5, "ustar") != 0) continue;  // the bytes of a member
    bytes.replace(at + kChecksum, 8, 8, ' ');
    unsigned sum = 0;
    for (std::size_t i = at; i < at + kBlock; ++i) sum += static_cast<unsigned char>(bytes[i]);
    std::snprintf(bytes.data() + at + kChecksum, 8, "%06o", sum);
  }
  return bytes + std::string(2 * kBlock, '\0');
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  run_fuzz_target(data, size, read_tar);
  return run_fuzz_target(data, size, [](std::string_view input) { read_tar(repaired_tar(input)); });
}
