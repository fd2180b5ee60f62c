// Tokenizers as large as a released model's: how long they take to load, and how fast they encode.
#include <benchmark/benchmark.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <unordered_set>
#include <vector>

#include "traces/text/text_file.hpp"
#include "traces/tokens/tokenizer.hpp"

namespace dflop {
namespace tokenizer_bench {

constexpr std::size_t kTokens = 151'643;  // of Qwen2
constexpr std::size_t kLongest = 16;      // letters per token

/// Returns the letter of each byte, which is its token in the small tokenizer of the tests.
std::vector<std::string> letters_of_bytes(const nlohmann::json& small) {
  std::vector<std::string> letters;
  for (const auto& [token, id] : small["model"]["vocab"].items()) {
    if (token.size() == (static_cast<unsigned char>(token[0]) < 0x80 ? 1 : 2)) letters.push_back(token);
  }
  return letters;
}

/// A large tokenizer.json of Qwen2's kind, with tokens made by random merges, mostly of lowercase letters,
/// and a text of these tokens.
struct Large {
  std::string json;
  std::string text;
};

Large make_large() {
  auto json = nlohmann::json::parse(read_text_file(DFLOP_SOURCE_DIR "/tests/golden/io/tokenizer-qwen2.json"));
  std::vector<std::string> tokens = letters_of_bytes(json);
  std::unordered_set<std::string> known(tokens.begin(), tokens.end());
  std::vector<std::string> parts;
  for (char letter = 'a'; letter <= 'z'; ++letter) parts.push_back({letter});
  nlohmann::json merges = nlohmann::json::array();
  std::mt19937 random(1);
  while (tokens.size() < kTokens) {
    const std::string& left = parts[random() % parts.size()];
    const std::string& right = parts[random() % parts.size()];
    std::string joined = left + right;
    if (joined.size() > kLongest || !known.insert(joined).second) continue;
    merges.push_back({left, right});
    tokens.push_back(joined);
    parts.push_back(std::move(joined));
  }
  nlohmann::json vocabulary;
  for (std::size_t t = 0; t < tokens.size(); ++t) vocabulary[tokens[t]] = t;
  json["model"]["vocab"] = std::move(vocabulary);
  json["model"]["merges"] = std::move(merges);
  json["added_tokens"] = nlohmann::json::array();
  Large large{json.dump(), ""};
  // Words are as frequent as in texts: the n-th in proportion to 1 / n.
  std::uniform_real_distribution<double> uniform(0, 1);
  while (large.text.size() < 4'000'000) {
    const double rank = std::exp(uniform(random) * std::log(static_cast<double>(parts.size())));
    large.text += parts[static_cast<std::size_t>(rank) - 1];
    large.text += random() % 12 == 0 ? ".\n" : " ";
  }
  return large;
}

const Large& large() {
  static const Large made = make_large();
  return made;
}

void load_tokenizer(benchmark::State& state) {
  const std::string& json = large().json;
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer(json, "made up").vocabulary_size());
}

/// Encodes a text on one thread that has seen the text once.
void encode_text(benchmark::State& state) {
  const Tokenizer tokenizer(large().json, "made up");
  WordCache cache;
  std::size_t tokens = 0;
  for (auto _ : state) benchmark::DoNotOptimize(tokens += tokenizer.encode(large().text, cache).size());
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(large().text.size()));
}

BENCHMARK(load_tokenizer)->Unit(benchmark::kMillisecond);
BENCHMARK(encode_text)->Unit(benchmark::kMillisecond);

}  // namespace tokenizer_bench
}  // namespace dflop
