// The golden check detects errors: each of these changes to a model, its samples or its weights makes it
// fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include "backend/content/folder_weights.hpp"
#include "tests/backend/content/golden_run.hpp"

namespace dflop {
namespace golden_mutations_test {

using testing::GoldenModel;
using testing::GoldenRun;

/// Ten times the tolerance of golden_test.cpp in f64.
constexpr double kNoticed = 1e-9;

/// A Mutation breaks one thing. If it does not apply to a model, it changes nothing.
struct Mutation {
  std::string name;
  /// Each returns whether it changed something.
  std::function<bool(ModelSpec&)> spec = {};
  std::function<bool(const ModelSpec&, SampleContent&)> content = {};
  std::function<bool(const ModelSpec&, const Parameter&, std::vector<double>&)> weights = {};
};

/// Sets a value and returns whether it changed.
template <typename T>
bool change(T& value, T to) {
  const bool differs = value != to;
  value = std::move(to);
  return differs;
}

bool change_base(TransformerSpec& spec) {
  if (!spec.form || !spec.form->rotary) return false;
  spec.form->rotary->base *= 1.01;
  return true;
}

bool change_activation(Activation& activation) {
  if (activation == Activation::swiglu) return false;
  const bool erf = activation == Activation::gelu_erf;
  activation = erf ? Activation::gelu_tanh : Activation::gelu_erf;
  return true;
}

bool has_encoder(const ModelSpec& m) {
  return m.encoder.layers > 0;
}

std::vector<Mutation> spec_mutations() {
  return {
      {"LLM's rotary base", [](ModelSpec& m) { return change_base(m.llm); }},
      {"encoder's rotary base", [](ModelSpec& m) { return change_base(m.encoder); }},
      {"rope scaling", [](ModelSpec& m) { return change(m.llm.form->rotary->scaling, {}); }},
      {"norms of the LLM's heads",
       [](ModelSpec& m) { return change(m.llm.form->qk_norm, QkNormKind::none); }},
      {"order of deep features",
       [](ModelSpec& m) {
         std::vector<int>& deepstack = m.architecture->deepstack;
         std::reverse(deepstack.begin(), deepstack.end());
         return deepstack.size() > 1;
       }},
      {"M-RoPE sections",
       [](ModelSpec& m) {
         if (m.llm.form->rotary->sections_interleave)
           return change(m.llm.form->rotary->sections_interleave, false);
         std::vector<int> sections = m.llm.form->rotary->sections;
         std::rotate(sections.begin(), sections.begin() + (sections.empty() ? 0 : 1), sections.end());
         return change(m.llm.form->rotary->sections, sections);
       }},
      {"frequencies of 2-D positions",
       [](ModelSpec& m) {
         return m.encoder.form && m.encoder.form->rotary &&
                change(m.encoder.form->rotary->sections_restart, false);
       }},
      {"LLM's epsilon",
       [](ModelSpec& m) {
         m.llm.form->epsilon *= 10;
         return true;
       }},
      {"encoder's epsilon",
       [](ModelSpec& m) {
         if (has_encoder(m)) m.encoder.form->epsilon *= 10;
         return has_encoder(m);
       }},
      {"connector's epsilon",
       [](ModelSpec& m) {
         m.architecture->connector.epsilon *= 10;
         return has_encoder(m) && m.architecture->connector.norm.has_value();
       }},
      {"LLM's biases", [](ModelSpec& m) { return change(m.llm.form->qkv_bias, false); }},
      {"encoder's QKV biases",
       [](ModelSpec& m) { return has_encoder(m) && change(m.encoder.form->qkv_bias, false); }},
      {"encoder's output biases",
       [](ModelSpec& m) { return has_encoder(m) && change(m.encoder.form->output_bias, false); }},
      {"encoder's MLP biases",
       [](ModelSpec& m) { return has_encoder(m) && change(m.encoder.form->mlp_bias, false); }},
      {"patches' bias",
       [](ModelSpec& m) {
         return has_encoder(m) && m.architecture->front.kind == FrontKind::patches &&
                change(m.architecture->front.bias, false);
       }},
      {"encoder's activation",
       [](ModelSpec& m) { return has_encoder(m) && change_activation(m.encoder.form->activation); }},
      {"connector's activation",
       [](ModelSpec& m) {
         // A connector with one layer has no activation.
         return m.connector.widths.size() > 2 && change_activation(m.architecture->connector.activation);
       }},
      {"windows",
       [](ModelSpec& m) {
         return has_encoder(m) && !m.encoder.form->windowed.empty() && change(m.encoder.form->windowed, {});
       }},
      {"window size",
       [](ModelSpec& m) {
         if (m.architecture->picture.window == 0) return false;
         ++m.architecture->picture.window;
         return true;
       }},
      {"pinpoints",
       [](ModelSpec& m) {
         const bool has_many = m.architecture->picture.pinpoints.size() > 1;
         if (has_many) m.architecture->picture.pinpoints.resize(1);
         return has_many;
       }},
      {"most tiles",
       [](ModelSpec& m) {
         m.architecture->picture.most_tiles = 1;
         return !m.architecture->picture.pinpoints.empty();
       }},
      {"layer scales",
       [](ModelSpec& m) { return has_encoder(m) && change(m.encoder.form->layer_scale, false); }},
      {"norms of queries and keys",
       [](ModelSpec& m) { return has_encoder(m) && change(m.encoder.form->qk_norm, QkNormKind::none); }},
      {"causality", [](ModelSpec& m) { return change(m.llm.causal, false); }},
      {"seconds of videos",
       [](ModelSpec& m) {
         m.architecture->picture.positions_per_s *= 2;
         return m.architecture->picture.positions_per_s > 0;
       }},
  };
}

void zero(std::vector<double>& values) {
  std::fill(values.begin(), values.end(), 0.0);
}

bool has_values(const std::vector<std::int32_t>& numbers) {
  return numbers.size() > 1 && numbers.front() != numbers.back();
}

std::vector<Mutation> content_mutations() {
  return {
      {"mask by a token",
       {},
       [](const ModelSpec&, SampleContent& c) {
         std::rotate(c.tokens.targets.begin(), c.tokens.targets.begin() + 1, c.tokens.targets.end());
         return true;
       }},
      {"a token is not trained",
       {},
       [](const ModelSpec&, SampleContent& c) {
         std::vector<std::int32_t>& targets = c.tokens.targets;
         const auto trained = std::find_if(targets.begin(), targets.end(), [](auto t) { return t >= 0; });
         if (trained == targets.end()) return false;
         *trained = kNoTarget;
         return true;
       }},
      {"axes of M-RoPE",
       {},
       [](const ModelSpec& m, SampleContent& c) {
         if (m.llm.form->rotary->axes() != 3) return false;
         std::vector<std::int32_t>& at = c.tokens.positions;
         const std::vector<std::int32_t> before = at;
         for (std::size_t i = 0; i + 2 < at.size(); i += 3) std::swap(at[i + 1], at[i + 2]);
         return at != before;
       }},
      {"axes of a picture",
       {},
       [](const ModelSpec&, SampleContent& c) {
         bool changed = false;
         for (EncoderSequence& s : c.sequences) {
           const std::vector<std::int32_t> before = s.positions;
           for (std::size_t i = 0; i + 1 < s.positions.size(); i += 2)
             std::swap(s.positions[i], s.positions[i + 1]);
           changed = changed || s.positions != before;
         }
         return changed;
       }},
      {"window bounds",
       {},
       [](const ModelSpec&, SampleContent& c) {
         bool changed = false;
         for (EncoderSequence& s : c.sequences) {
           if (s.windows.size() < 3 || s.windows[2] - s.windows[1] < 2) continue;
           ++s.windows[1];
           changed = true;
         }
         return changed;
       }},
      {"order of a picture's rows in the LLM",
       {},
       [](const ModelSpec&, SampleContent& c) {
         bool changed = false;
         for (EncoderSequence& s : c.sequences) {
           changed = changed || has_values(s.places);
           std::reverse(s.places.begin(), s.places.end());
         }
         return changed;
       }},
      {"rows of the table of positions",
       {},
       [](const ModelSpec&, SampleContent& c) {
         bool changed = false;
         for (EncoderSequence& s : c.sequences) {
           changed = changed || has_values(s.table_rows);
           std::reverse(s.table_rows.begin(), s.table_rows.end());
         }
         return changed;
       }},
      {"order of tiles",
       {},
       [](const ModelSpec&, SampleContent& c) {
         if (c.sequences.size() < 2 || c.sequences[0].values.size() != c.sequences[1].values.size())
           return false;
         std::swap(c.sequences[0].values, c.sequences[1].values);
         return true;
       }},
      {"places of newlines",
       {},
       [](const ModelSpec&, SampleContent& c) {
         if (c.tokens.newlines.empty()) return false;
         --c.tokens.newlines.front();
         return true;
       }},
  };
}

std::vector<Mutation> weight_mutations() {
  const auto of = [](std::string name, const std::function<void(const ModelSpec&, std::vector<double>&)>& f) {
    return [name, f](const ModelSpec& m, const Parameter& p, std::vector<double>& values) {
      if (p.name != name) return false;
      f(m, values);
      return true;
    };
  };
  const auto zeroed = [](const ModelSpec&, std::vector<double>& values) { zero(values); };
  return {
      {"order of gate and up",
       {},
       {},
       of("llm.layers.0.up",
          [](const ModelSpec&, std::vector<double>& v) {
            std::rotate(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
          })},
      {"order of heads",
       {},
       {},
       of("llm.layers.1.qkv",
          [](const ModelSpec& m, std::vector<double>& v) {
            const std::ptrdiff_t head = std::ptrdiff_t{m.llm.head_dim} * m.llm.hidden;
            if (static_cast<std::ptrdiff_t>(v.size()) < 2 * head) return;  // a bias
            std::swap_ranges(v.begin(), v.begin() + head, v.begin() + head);
          })},
      {"order of merged rows",
       {},
       {},
       [](const ModelSpec& m, const Parameter& p, std::vector<double>& v) {
         if (p.name != "connector.0" || m.joined_rows() < 2) return false;
         for (auto row = v.begin(); row != v.end(); row += p.columns) {
           std::rotate(row, row + p.columns / m.joined_rows(), row + p.columns);
         }
         return true;
       }},
      {"order of colors",
       {},
       {},
       [](const ModelSpec&, const Parameter& p, std::vector<double>& v) {
         if (p.name != "encoder.patches") return false;
         for (auto row = v.begin(); row != v.end(); row += p.columns) {
           std::rotate(row, row + p.columns / 3, row + p.columns);
         }
         return true;
       }},
      {"order of taps",
       {},
       {},
       [](const ModelSpec&, const Parameter& p, std::vector<double>& v) {
         if (p.name != "encoder.conv1") return false;
         for (auto row = v.begin(); row != v.end(); row += p.columns) {
           std::rotate(row, row + p.columns / 3, row + p.columns);
         }
         return true;
       }},
      {"class row", {}, {}, of("encoder.class", zeroed)},
      {"newline", {}, {}, of("llm.newline", zeroed)},
      {"connector's norm", {}, {}, of("encoder.norm.gamma", zeroed)},
      {"connector's last bias", {}, {}, of("connector.0.bias", zeroed)},
      {"a value by a thousandth",
       {},
       {},
       of("llm.norm.gamma", [](const ModelSpec&, std::vector<double>& v) { v.front() *= 1.001; })},
  };
}

Dtype dtype_of(NumberType type) {
  return *from_string<Dtype>(type == NumberType::f64   ? "F64"
                             : type == NumberType::f32 ? "F32"
                             : type == NumberType::f16 ? "F16"
                                                       : "BF16");
}

/// ChangedWeights are the weights of a folder after a mutation.
class ChangedWeights final : public WeightSource {
 public:
  ChangedWeights(const ModelSpec& model, const std::string& folder, const Mutation& mutation)
      : model_(model), weights_(model, folder), mutation_(mutation) {}

  void visit(const Parameter& tensor, Range rows, Range columns,
             const std::function<void(const StoredRun&)>& visit) const override {
    std::vector<double> whole;
    weights_.visit(tensor, {0, tensor.rows}, {0, tensor.columns}, [&](const StoredRun& run) {
      const auto* bytes = static_cast<const std::byte*>(run.numbers.data);
      const std::size_t begin = whole.size();
      whole.resize(begin + static_cast<std::size_t>(run.numbers.count));
      decode(dtype_of(run.numbers.type), bytes, std::span(whole).subspan(begin));
    });
    if (mutation_.weights && mutation_.weights(model_, tensor, whole)) changed_ = true;
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      const double* held = whole.data() + row * tensor.columns + columns.begin;
      visit({{NumberType::f64, held, columns.size()}, tensor.name, "changed weights"});
    }
  }
  bool changed() const { return changed_; }

 private:
  const ModelSpec& model_;
  FolderWeights weights_;
  const Mutation& mutation_;
  mutable bool changed_ = false;
};

bool change_contents(GoldenModel& model, const Mutation& mutation) {
  bool changed = false;
  for (Sample& sample : model.samples) {
    SampleContent content = content_of(model, sample);
    changed = mutation.content(model.spec, content) || changed;
    sample = shape_of(model.spec, sample.id, content);
    model.contents->keep(sample.id, std::move(content));
  }
  return changed;
}

/// Returns the distance of a mutated model from the golden one, in the units of the golden check; nothing if
/// the mutation does not apply.
std::optional<double> distance_of(const std::string& name, const Mutation& mutation) {
  bool changed = false;
  try {
    GoldenModel model = testing::read_golden_model(
        name, [&](ModelSpec& spec) { changed = mutation.spec && mutation.spec(spec); });
    if (mutation.content) changed = change_contents(model, mutation);
    const ChangedWeights weights(model.spec, model.folder, mutation);
    GoldenRun run(model, testing::golden_ways(model.spec).front().plan, DType::f64, &weights);
    if (!changed && !weights.changed()) return {};
    StepOptions options;
    options.update = false;
    double most = std::abs(run.executor->step(run.iteration, options).loss - model.loss) / model.loss;
    for (const auto& tensor : gradient_distances(model, *run.executor)) most = std::max(most, tensor.largest);
    return most;
  } catch (const Error&) {
    if (!changed) throw;
    return std::numeric_limits<double>::infinity();  // its samples no longer fit the model
  }
}

class GoldenMutations : public ::testing::TestWithParam<Mutation> {};

TEST_P(GoldenMutations, FailTheCheckOfEveryAffectedModel) {
  int applied = 0;
  for (const std::string& name : testing::golden_models()) {
    const std::optional<double> distance = distance_of(name, GetParam());
    if (!distance) continue;
    ++applied;
    EXPECT_GT(*distance, kNoticed) << name;
  }
  EXPECT_GT(applied, 0);
}

std::vector<Mutation> all_mutations() {
  std::vector<Mutation> all = spec_mutations();
  for (const auto& some : {content_mutations(), weight_mutations()})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, GoldenMutations, ::testing::ValuesIn(all_mutations()), [](const auto& param) {
  std::string name = param.param.name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
});

}  // namespace golden_mutations_test
}  // namespace dflop
