#include "traces/shards/json_list.hpp"

#include <nlohmann/json.hpp>

#include "tests/fuzz/fuzz_target.hpp"
#include "tests/fuzz/memory_file.hpp"
#include "traces/tokens/conversation.hpp"

namespace {

using namespace dflop;

void read_list(std::string_view bytes) {
  const MemoryFile memory(bytes);
  const JsonList list(memory.path());
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const JsonExtent& extent = list.extent(i);
    require(extent.size > 0 && extent.offset >= end);
    end = extent.offset + extent.size;
    require(list.read(i) == bytes.substr(extent.offset, extent.size));
  }
  // A whole array has the samples that a parser finds.
  const nlohmann::json whole = nlohmann::json::parse(bytes, nullptr, false);
  if (whole.is_array()) {
    require(whole.size() == list.size());
    for (std::size_t i = 0; i < list.size(); ++i) require(nlohmann::json::parse(list.read(i)) == whole[i]);
  }
}

void read_samples(std::string_view bytes) {
  const MemoryFile memory(bytes);
  const JsonList list(memory.path());
  for (std::size_t i = 0; i < list.size(); ++i) {
    try {
      const ListedConversation listed = parse_listed_conversation(list.read(i), list.place(i));
      require(listed.files.size() == listed.conversation.media().size());
    } catch (const Error&) {  // the next sample may be good
    }
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  run_fuzz_target(data, size, read_samples);
  return run_fuzz_target(data, size, read_list);
}
