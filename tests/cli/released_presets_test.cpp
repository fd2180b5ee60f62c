// Compares presets with the configurations of the released models. The differences are listed here, and
// docs/training.md explains them.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <string>
#include <vector>

#include "experiments/presets/presets.hpp"

namespace dflop {
namespace released_presets_test {

/// Returns "encoder.layers: 27, released 26" for each size in which a module differs.
std::vector<std::string> module_differences(const std::string& name, const TransformerSpec& preset,
                                            const TransformerSpec& released) {
  std::vector<std::string> found;
  const auto compare = [&](const char* key, std::int64_t own, std::int64_t other) {
    if (own != other) found.push_back(fmt::format("{}.{}: {}, released {}", name, key, own, other));
  };
  compare("layers", preset.layers, released.layers);
  compare("hidden", preset.hidden, released.hidden);
  compare("ffn", preset.ffn, released.ffn);
  compare("heads", preset.heads, released.heads);
  compare("kv_heads", preset.kv_heads, released.kv_heads);
  compare("head_dim", preset.head_dim, released.head_dim);
  compare("gated_mlp", preset.gated_mlp ? 1 : 0, released.gated_mlp ? 1 : 0);
  compare("causal", preset.causal ? 1 : 0, released.causal ? 1 : 0);
  compare("vocabulary", preset.vocabulary, released.vocabulary);
  compare("tied_embeddings", preset.tied_embeddings ? 1 : 0, released.tied_embeddings ? 1 : 0);
  return found;
}

/// The modules of a preset that a released model represents.
enum class Modules { all, encoder, llm };

std::vector<std::string> differences(const ModelSpec& preset, const ModelSpec& released, Modules modules) {
  std::vector<std::string> found;
  const auto add = [&](const std::vector<std::string>& more) {
    found.insert(found.end(), more.begin(), more.end());
  };
  if (modules != Modules::llm) add(module_differences("encoder", preset.encoder, released.encoder));
  if (modules == Modules::all && preset.connector != released.connector) found.push_back("connector");
  if (modules != Modules::encoder) add(module_differences("llm", preset.llm, released.llm));
  if (modules == Modules::all && preset.second.has_value() != released.second.has_value())
    found.push_back("second encoder");
  if (modules == Modules::all && preset.second && released.second) {
    add(module_differences("second encoder", preset.second->encoder, released.second->encoder));
    if (preset.second->connector != released.second->connector) found.push_back("second connector");
  }
  if (modules == Modules::all && preset.preprocess != released.preprocess) found.push_back("preprocess");
  return found;
}

struct Pair {
  const char* preset;
  const char* released;
  Modules modules;
  std::vector<std::string> differences;
};

TEST(ReleasedPresets, DifferFromReleasedModelsOnlyAsListed) {
  const std::vector<Pair> pairs = {
      {"qwen2.5-vl-7b", "qwen2.5-vl-7b", Modules::all, {}},
      {"qwen2-audio-7b", "qwen2-audio-7b", Modules::all, {}},
      {"llava-1.5-7b", "llava-1.5-7b", Modules::all, {}},
      {"qwen2-vl-7b", "qwen2-vl-7b", Modules::all, {}},
      {"internvl3.5-8b", "internvl3.5-8b", Modules::all, {}},
      {"qwen3-vl-8b", "qwen3-vl-8b", Modules::all, {}},
      {"qwen2.5-omni-7b", "qwen2.5-omni-7b", Modules::all, {}},
      {"llava-ov-qwen2.5-7b",
       "llava-onevision-qwen2-7b-ov",
       Modules::all,
       {"encoder.layers: 27, released 26", "llm.vocabulary: 152064, released 152000"}},
      {"llava-ov-qwen2.5-7b", "qwen2.5-7b", Modules::llm, {}},
      {"llava-ov-llama3-8b", "llama-3.1-8b", Modules::llm, {}},
      {"internvl2.5-72b", "internvl2.5-26b", Modules::encoder, {}}};
  for (const Pair& pair : pairs) {
    const ModelSpec released =
        find_model(std::string(DFLOP_SOURCE_DIR) + "/tests/golden/released/" + pair.released);
    EXPECT_EQ(differences(find_model(pair.preset), released, pair.modules), pair.differences)
        << pair.preset << " and " << pair.released;
  }
}

}  // namespace released_presets_test
}  // namespace dflop
