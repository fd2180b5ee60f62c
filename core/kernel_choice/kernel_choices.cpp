#include "core/kernel_choice/kernel_choices.hpp"

#include "core/support/bytes.hpp"

namespace dflop {

KernelChoice KernelChoices::choice(KernelKey key) const {
  if (const KernelChoice* own = by_key.find(key)) return *own;
  const auto nearest = nearest_index(by_key, key, [&](std::size_t i) { return by_key.value(i).measured; });
  if (!nearest) return {};
  return {.variant = by_key.value(*nearest).variant};
}

std::string to_bytes(const KernelChoices& choices) {
  ByteWriter writer;
  writer.add(choices.step);
  writer.add(choices.timed_one_of);
  writer.add(static_cast<std::uint64_t>(choices.by_key.size()));
  for (std::size_t i = 0; i < choices.by_key.size(); ++i) {
    writer.add(choices.by_key.keys()[i].bits());
    writer.add(choices.by_key.value(i));
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
    const KernelKey key = KernelKey::of_bits(reader.get<std::uint64_t>());
    choices.by_key.add(key, reader.get<KernelChoice>());
  }
  return choices;
}

}  // namespace dflop
