// This file stores and reads profile tables; see specs.hpp.
#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "core/error.hpp"
#include "traces/files/specs.hpp"
#include "traces/files/specs_parts.hpp"
#include "traces/text/json_writer.hpp"
#include "traces/text/strict_json.hpp"

namespace dflop {
namespace {

constexpr std::string_view kProfileSchema = "dflop.profile";
constexpr int kProfileVersion = 3;
constexpr std::int64_t kProfileMostTokens = std::int64_t{1} << 32;
constexpr int kProfileMostRanks = 1 << 20;
constexpr int kProfileMostAlignment = 1 << 10;
constexpr int kProfileMostSize = 1 << 26;
constexpr double kMaxFactor = 1e3;
constexpr double kProfileMostSeconds = 1e6;
constexpr double kMaxPerUnit = 1e-3;  // seconds a byte or parameter
constexpr double kMaxBytesPerToken = 1e12;
constexpr std::string_view kActivation = "activation_bytes_per_token";
constexpr std::string_view kForwardBuffers = "forward_buffer_bytes_per_token";
constexpr std::string_view kBackwardBuffers = "backward_buffer_bytes_per_token";

std::string_view unit_name(std::size_t unit) {
  return to_string(static_cast<ProfileUnit>(unit));
}

void write_transformer(JsonWriter& writer, std::string_view key, const TransformerSpec& spec) {
  writer.begin_object(key);
  writer.field("name", spec.name);
  writer.field("layers", spec.layers);
  writer.field("hidden", spec.hidden);
  writer.field("ffn", spec.ffn);
  writer.field("heads", spec.heads);
  writer.field("kv_heads", spec.kv_heads);
  writer.field("head_dim", spec.head_dim);
  writer.field("gated_mlp", spec.gated_mlp);
  writer.field("causal", spec.causal);
  writer.field("vocabulary", spec.vocabulary);
  if (spec.tied_embeddings) writer.field("tied_embeddings", true);
  if (spec.logits_at_once > 0) writer.field("logits_at_once", spec.logits_at_once);
  writer.end_object();
}

void write_model(JsonWriter& writer, const ModelSpec& model) {
  writer.begin_object("model");
  writer.field("name", model.name);
  const auto write_encoder = [&](const TransformerSpec& encoder, const ConnectorSpec& connector) {
    write_transformer(writer, "encoder", encoder);
    writer.begin_object("connector");
    writer.row("widths", connector.widths);
    writer.field("merge", connector.merge);
    writer.end_object();
  };
  if (model.encoder.layers > 0) write_encoder(model.encoder, model.connector);
  if (model.second) {
    writer.begin_object("second");
    write_encoder(model.second->encoder, model.second->connector);
    writer.end_object();
  }
  write_transformer(writer, "llm", model.llm);
  writer.end_object();
}

/// Reads a model, which may have neither encoder nor connector.
ModelSpec read_model(const JsonValue& json) {
  json.require_keys({"name", "llm"}, {"encoder", "connector", "second"});
  ModelSpec model;
  model.name = json.at("name").string();
  constexpr TransformerLimits kLimits{kProfileMostSize, kProfileMostSize, kProfileMostSize, 0,
                                      kProfileMostSize};
  if (json.has("encoder") || json.has("connector")) {
    model.encoder = read_transformer(json.at("encoder"), kLimits);
    model.connector = read_connector(json.at("connector"), kProfileMostSize, kProfileMostSize);
  }
  if (json.has("second")) {
    const JsonValue second = json.at("second");
    second.require_keys({"encoder", "connector"});
    model.second = SecondEncoder{read_transformer(second.at("encoder"), kLimits),
                                 read_connector(second.at("connector"), kProfileMostSize, kProfileMostSize)};
  }
  const JsonValue llm = json.at("llm");
  model.llm = read_transformer(llm, kLimits, {"tied_embeddings", "logits_at_once"});
  if (llm.has("tied_embeddings")) model.llm.tied_embeddings = llm.at("tied_embeddings").boolean();
  return model;
}

void write_line(JsonWriter& writer, const ProfileLine& line, std::string_view per_unit) {
  writer.field("start_s", line.start_s);
  writer.field(per_unit, line.s_per_unit);
}

ProfileLine read_line(const JsonValue& json, std::string_view per_unit) {
  return {json.at("start_s").number_in(0, kProfileMostSeconds), json.at(per_unit).number_in(0, kMaxPerUnit)};
}

void write_points(JsonWriter& writer, std::string_view unit, const UnitPoints& points) {
  writer.begin_object(unit);
  writer.row("tokens", points, [](const ProfilePoint& p) { return p.tokens; });
  writer.row("lengths", points, [](const ProfilePoint& p) { return p.length; });
  writer.row("forward_s", points, [](const ProfilePoint& p) { return p.forward_s; });
  writer.row("backward_input_s", points, [](const ProfilePoint& p) { return p.backward_input_s; });
  writer.row("backward_weight_s", points, [](const ProfilePoint& p) { return p.backward_weight_s; });
  const auto has = [](const ProfilePoint& p) { return p.recompute_s.has_value(); };
  if (std::all_of(points.begin(), points.end(), has)) {
    writer.row("recompute_s", points, [](const ProfilePoint& p) { return *p.recompute_s; });
  }
  if (std::all_of(points.begin(), points.end(), [](const ProfilePoint& p) { return p.host_s.has_value(); }))
    writer.row("host_s", points, [](const ProfilePoint& p) { return *p.host_s; });
  writer.end_object();
}

/// Requires ascending numbers. If `second` is given, equal numbers may follow each other as long as it rises.
void require_rising(const JsonValue& json, const std::vector<std::int64_t>& numbers,
                    const std::vector<std::int64_t>* second = nullptr) {
  for (std::size_t i = 1; i < numbers.size(); ++i) {
    const bool rises = second != nullptr && (*second)[i] > (*second)[i - 1];
    if (numbers[i] > numbers[i - 1] || (numbers[i] == numbers[i - 1] && rises)) continue;
    json.elements()[i].refuse_type("a number above the previous one, {}", numbers[i - 1]);
  }
}

UnitPoints read_points(const JsonValue& json, bool attention) {
  json.require_keys({"tokens", "lengths", "forward_s", "backward_input_s", "backward_weight_s"},
                    {"recompute_s", "host_s"});
  const std::vector<std::int64_t> tokens = json.at("tokens").integers(1, kProfileMostTokens);
  if (tokens.empty()) json.at("tokens").refuse_type("at least one number");
  const std::vector<std::int64_t> lengths =
      json.at("lengths").integers(attention ? 1 : 0, attention ? kProfileMostTokens : 0);
  if (lengths.size() != tokens.size()) {
    json.at("lengths").refuse_type("{} numbers", tokens.size());
  }
  attention ? require_rising(json.at("lengths"), lengths, &tokens)
            : require_rising(json.at("tokens"), tokens);
  for (std::size_t i = 0; attention && i < tokens.size(); ++i) {
    if (tokens[i] < lengths[i])
      json.at("tokens").elements()[i].refuse_type("at least the {} tokens of a sequence", lengths[i]);
  }
  const auto seconds = [&](std::string_view key) {
    return json.at(key).numbers(tokens.size(), 0, kProfileMostSeconds);
  };
  const auto forward = seconds("forward_s");
  const auto input = seconds("backward_input_s");
  const auto weight = seconds("backward_weight_s");
  UnitPoints points;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    points.push_back({tokens[i], lengths[i], forward[i], input[i], weight[i]});
  }
  if (json.has("recompute_s")) {
    const auto recompute = seconds("recompute_s");
    for (std::size_t i = 0; i < points.size(); ++i) points[i].recompute_s = recompute[i];
  }
  if (json.has("host_s")) {
    const auto host = seconds("host_s");
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (host[i] > forward[i])
        json.at("host_s").elements()[i].refuse_type("at most the forward, {}, of which it is a part",
                                                    forward[i]);
      points[i].host_s = host[i];
    }
  }
  return points;
}

void write_bytes(JsonWriter& writer, std::string_view key, const BytesPerToken& bytes) {
  writer.begin_object(key);
  writer.row("encoder_layer", bytes.encoder_layer);
  writer.row("llm_layer", bytes.llm_layer);
  writer.field("patches", bytes.patches);
  writer.field("connector", bytes.connector);
  writer.field("embedding", bytes.embedding);
  writer.field("head", bytes.head);
  writer.end_object();
}

BytesPerToken read_bytes(const JsonValue& json) {
  json.require_keys({"encoder_layer", "llm_layer", "patches", "connector", "embedding", "head"});
  const auto layer = [&](std::string_view key) {
    const std::vector<double> row = json.at(key).numbers(3, 0, kMaxBytesPerToken);
    return std::array<double, 3>{row[0], row[1], row[2]};
  };
  const auto end = [&](std::string_view key) { return json.at(key).number_in(0, kMaxBytesPerToken); };
  return {layer("encoder_layer"), layer("llm_layer"), end("patches"),
          end("connector"),       end("embedding"),   end("head")};
}

void write_part(JsonWriter& writer, const PartProfile& part) {
  writer.begin_object("optimizer");
  write_line(writer, part.optimizer, "s_per_parameter");
  writer.end_object();
  writer.begin_object("beside_neighbour");
  writer.field("optimizer", part.optimizer_beside);
  for (std::size_t u = 0; u < kProfileUnits; ++u) {
    const PassFactors& factors = part.beside[u];
    writer.row(unit_name(u), std::array{factors.forward, factors.backward_input, factors.backward_weight});
  }
  writer.end_object();
}

PartProfile read_part(const JsonValue& json) {
  PartProfile part;
  json.at("optimizer").require_keys({"start_s", "s_per_parameter"});
  part.optimizer = read_line(json.at("optimizer"), "s_per_parameter");
  const JsonValue beside = json.at("beside_neighbour");
  std::vector<std::string_view> names = {"optimizer"};
  for (std::size_t u = 0; u < kProfileUnits; ++u) names.push_back(unit_name(u));
  beside.require_keys(names);
  part.optimizer_beside = beside.at("optimizer").number_in(0, kMaxFactor);
  for (std::size_t u = 0; u < kProfileUnits; ++u) {
    const std::vector<double> row = beside.at(unit_name(u)).numbers(3, 0, kMaxFactor);
    part.beside[u] = {row[0], row[1], row[2]};
  }
  return part;
}

/// Reads the number of the device's `quanta` that tables are for; in older files, which had no parts, all.
void read_quanta(const JsonValue& json, int quanta, TpProfile& profile) {
  profile.quanta = json.has("quanta") ? json.at("quanta").integer(1, quanta) : quanta;
  const bool is_part = profile.quanta < quanta;
  for (const char* key : {"optimizer", "beside_neighbour"}) {
    if (json.has(key) == is_part) continue;
    if (is_part) json.at(key);  // reports that it is missing
    json.at(key).refuse("expected this key only in tables of device parts, found it for {} of {} quanta",
                        profile.quanta, quanta);
  }
  if (is_part) profile.part = read_part(json);
}

TpMode read_mode(const JsonValue& json) {
  TpMode mode{json.at("tp").integer(1, kProfileMostRanks), false};
  if (json.has("sequence_parallel")) mode.sequence_parallel = json.at("sequence_parallel").boolean();
  if (mode.sequence_parallel && mode.tp == 1)
    json.at("tp").refuse_type("at least 2, for sequence parallelism");
  return mode;
}

/// Requires tables in ascending order of mode, then quanta.
void require_after(const JsonValue& json, const TpProfile& own, const std::vector<TpProfile>& before,
                   int quanta) {
  if (before.empty()) return;
  const TpProfile& last = before.back();
  if (std::pair(own.mode, own.quanta) > std::pair(last.mode, last.quanta)) return;
  json.at("tp").refuse_type("tables in increasing order, after {}",
                            to_string(last.mode, last.quanta, quanta));
}

/// Reads the tables of one mode of a model; `activation` is what version 1 stores outside the tables.
TpProfile read_tp(const JsonValue& json, const ModelSpec& model, const std::vector<TpProfile>& before,
                  const std::optional<BytesPerToken>& activation, int quanta) {
  TpProfile profile;
  if (activation) {
    json.require_keys({"tp", "units"});
    profile.activation = *activation;
  } else {
    json.require_keys({"tp", "units", kActivation, kForwardBuffers, kBackwardBuffers},
                      {"sequence_parallel", "quanta", "optimizer", "beside_neighbour"});
    profile.activation = read_bytes(json.at(kActivation));
    profile.forward_buffers = read_bytes(json.at(kForwardBuffers));
    profile.backward_buffers = read_bytes(json.at(kBackwardBuffers));
  }
  profile.mode = read_mode(json);
  read_quanta(json, quanta, profile);
  require_after(json, profile, before, quanta);
  const JsonValue units = json.at("units");
  std::vector<std::string_view> names;
  std::vector<ProfileUnit> measured;
  for (const auto unit : all_of<ProfileUnit>()) {
    if (!has_unit(model, unit)) continue;
    measured.push_back(unit);
    names.push_back(to_string(unit));
  }
  units.require_keys(names);
  for (const ProfileUnit unit : measured) {
    profile.of(unit) = read_points(units.at(to_string(unit)), is_attention(unit));
  }
  return profile;
}

/// Reads the tables of the second encoder, which must cover what the first tables cover.
void read_second_tables(const JsonValue& root, ProfileTables& profile) {
  if (!profile.model.second) {
    if (root.has("second_tables"))
      root.at("second_tables").refuse("expected this key only for a model with a key 'second', found none");
    return;
  }
  const JsonValue json = root.at("second_tables");
  const ModelSpec model = second_tables(profile).model;
  for (const JsonValue& element : json.elements())
    profile.second_tp.push_back(read_tp(element, model, profile.second_tp, {}, profile.quanta));
  const auto is_same = [](const TpProfile& a, const TpProfile& b) {
    return a.mode == b.mode && a.quanta == b.quanta;
  };
  if (std::ranges::equal(profile.tp, profile.second_tp, is_same)) return;
  const std::string found = measured_tables(second_tables(profile));
  json.refuse("expected tables of {}, as in 'tables', found {}", measured_tables(profile),
              found.empty() ? "none" : found);
}

/// Counts the patches' whole forward as host time in a GPU profile older than version 3: there the host
/// converted pixels while the device waited, which took almost all of the time.
void name_host_times(ProfileTables& profile) {
  if (!profile.software.starts_with("CUDA driver")) return;
  for (TpProfile& tp : profile.tp) {
    for (ProfilePoint& point : tp.of(ProfileUnit::patches)) point.host_s = point.forward_s;
  }
}

std::map<int, ProfileLine> read_all_reduce(const JsonValue& json) {
  std::map<int, ProfileLine> lines;
  for (const JsonValue& element : json.elements()) {
    element.require_keys({"ranks", "start_s", "s_per_byte"});
    const int least = lines.empty() ? 2 : lines.rbegin()->first + 1;
    const int ranks = element.at("ranks").integer(least, kProfileMostRanks);
    lines[ranks] = read_line(element, "s_per_byte");
  }
  return lines;
}

void write_tables(JsonWriter& writer, std::string_view key, const ProfileTables& profile) {
  writer.begin_array(key);
  for (const TpProfile& tp : profile.tp) {
    writer.begin_object();
    writer.field("tp", tp.mode.tp);
    if (tp.mode.sequence_parallel) writer.field("sequence_parallel", true);
    if (tp.part) writer.field("quanta", tp.quanta);
    if (tp.part) write_part(writer, *tp.part);
    write_bytes(writer, kActivation, tp.activation);
    write_bytes(writer, kForwardBuffers, tp.forward_buffers);
    write_bytes(writer, kBackwardBuffers, tp.backward_buffers);
    writer.begin_object("units");
    for (std::size_t u = 0; u < kProfileUnits; ++u) {
      if (has_unit(profile.model, static_cast<ProfileUnit>(u)))
        write_points(writer, unit_name(u), tp.units[u]);
    }
    writer.end_object();
    writer.end_object();
  }
  writer.end_array();
}

}  // namespace

std::string to_json(const ProfileTables& profile) {
  JsonWriter writer(kProfileSchema, kProfileVersion);
  writer.field("dflop_version", profile.dflop_version);
  writer.field("device", profile.device);
  writer.field("cpu", profile.cpu);
  if (!profile.software.empty()) writer.field("software", profile.software);
  writer.field("dtype", profile.dtype);
  if (!profile.kernels.empty()) writer.field("kernels", profile.kernels);
  writer.field("value_bytes", profile.value_bytes);
  writer.field("sum_bytes", profile.sum_bytes);
  if (profile.row_alignment != 1) writer.field("row_alignment", profile.row_alignment);
  write_model(writer, profile.model);
  writer.begin_object("settings");
  writer.field("seed", profile.settings.seed);
  writer.field("budget_s", profile.settings.budget_s);
  writer.field("most_tokens", profile.settings.most_tokens);
  if (profile.settings.busy_ranks != 1) writer.field("busy_ranks", profile.settings.busy_ranks);
  writer.end_object();
  if (profile.quanta != 1) writer.field("quanta", profile.quanta);
  if (profile.windows) {
    writer.begin_object("encoder_windows");
    writer.field("layers", profile.windows->layers);
    writer.field("tokens", profile.windows->tokens);
    writer.end_object();
  }
  write_tables(writer, "tables", profile);
  if (!profile.second_tp.empty()) write_tables(writer, "second_tables", second_tables(profile));
  writer.begin_object("optimizer");
  write_line(writer, profile.optimizer, "s_per_parameter");
  writer.end_object();
  if (profile.norm != ProfileLine{}) {
    writer.begin_object("norm");
    write_line(writer, profile.norm, "s_per_parameter");
    writer.end_object();
  }
  writer.begin_object("message");
  write_line(writer, profile.message, "s_per_byte");
  writer.end_object();
  writer.begin_array("all_reduce");
  for (const auto& [ranks, line] : profile.all_reduce) {
    writer.begin_object();
    writer.field("ranks", ranks);
    write_line(writer, line, "s_per_byte");
    writer.end_object();
  }
  writer.end_array();
  return writer.finish();
}

ProfileTables parse_profile_tables(std::string_view json, const std::string& file) {
  const JsonDocument document(json, file);
  const JsonValue root = document.root(kProfileSchema, kProfileVersion);
  const std::vector<std::string_view> required = {
      "schema",    "version", "dflop_version", "device", "cpu",       "dtype",   "value_bytes",
      "sum_bytes", "model",   "settings",      "tables", "optimizer", "message", "all_reduce"};
  std::optional<BytesPerToken> activation;
  const int version = root.at("version").integer(1, kProfileVersion);
  if (version == 1) {
    root.require_keys(required, {"software", "kernels", kActivation});
    activation = read_bytes(root.at(kActivation));
  } else {
    root.require_keys(required, {"software", "kernels", "row_alignment", "quanta", "encoder_windows", "norm",
                                 "second_tables"});
  }
  ProfileTables profile;
  profile.dflop_version = root.at("dflop_version").string();
  profile.device = root.at("device").string();
  profile.cpu = root.at("cpu").string();
  if (root.has("software")) profile.software = root.at("software").string();
  profile.dtype = root.at("dtype").string();
  if (root.has("kernels")) profile.kernels = root.at("kernels").string();
  profile.value_bytes = root.at("value_bytes").integer<std::int64_t>(1, 16);
  profile.sum_bytes = root.at("sum_bytes").integer<std::int64_t>(1, 16);
  if (root.has("row_alignment"))
    profile.row_alignment = root.at("row_alignment").integer(1, kProfileMostAlignment);
  profile.model = read_model(root.at("model"));
  const JsonValue settings = root.at("settings");
  settings.require_keys({"seed", "budget_s", "most_tokens"}, {"busy_ranks"});
  profile.settings = {
      settings.at("seed").unsigned_integer(), settings.at("budget_s").number_in(0, kProfileMostSeconds),
      settings.at("most_tokens").integer<std::int64_t>(1, kProfileMostTokens),
      settings.has("busy_ranks") ? settings.at("busy_ranks").integer(1, kProfileMostRanks) : 1};
  if (root.has("quanta")) profile.quanta = root.at("quanta").integer(1, kProfileMostRanks);
  if (root.has("encoder_windows")) {
    const JsonValue windows = root.at("encoder_windows");
    windows.require_keys({"layers", "tokens"});
    profile.windows = {windows.at("layers").integer(1, profile.model.encoder.layers),
                       windows.at("tokens").integer<std::int64_t>(1, kProfileMostTokens)};
  }
  for (const JsonValue& element : root.at("tables").elements()) {
    profile.tp.push_back(read_tp(element, profile.model, profile.tp, activation, profile.quanta));
  }
  if (profile.tp.empty()) root.at("tables").refuse_type("at least one table");
  read_second_tables(root, profile);
  if (version < 3) name_host_times(profile);
  root.at("optimizer").require_keys({"start_s", "s_per_parameter"});
  profile.optimizer = read_line(root.at("optimizer"), "s_per_parameter");
  if (root.has("norm")) {
    root.at("norm").require_keys({"start_s", "s_per_parameter"});
    profile.norm = read_line(root.at("norm"), "s_per_parameter");
  }
  root.at("message").require_keys({"start_s", "s_per_byte"});
  profile.message = read_line(root.at("message"), "s_per_byte");
  profile.all_reduce = read_all_reduce(root.at("all_reduce"));
  return profile;
}

}  // namespace dflop
