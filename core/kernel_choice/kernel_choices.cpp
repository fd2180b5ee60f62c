#include "core/kernel_choice/kernel_choices.hpp"

#include "core/support/bytes.hpp"

namespace dflop {

KernelChoice KernelChoices::choice(const KernelKey& key) const {
  const auto own = by_key.find(key);
  if (own != by_key.end()) return own->second;
  const auto* measured = nearest(by_key, key, [](const KernelChoice& choice) { return choice.measured; });
  return measured != nullptr ? KernelChoice{.variant = measured->second.variant} : KernelChoice{};
}

std::string to_bytes(const KernelChoices& choices) {
  ByteWriter writer;
  writer.add(choices.step);
  writer.add(choices.timed_one_of);
  writer.add(static_cast<std::uint64_t>(choices.by_key.size()));
  for (const auto& [key, choice] : choices.by_key) {
    writer.add(key);
    writer.add(choice);
  }
  return writer.take();
}

KernelChoices parse_choices(std::string_view bytes) {
  ByteReader reader(bytes);
  KernelChoices choices;
  choices.step = reader.get<std::uint64_t>();
  choices.timed_one_of = reader.get<std::uint32_t>();
  const auto count = reader.get<std::uint64_t>();
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto key = reader.get<KernelKey>();
    choices.by_key[key] = reader.get<KernelChoice>();
  }
  return choices;
}

}  // namespace dflop
