// A profile with known durations.
#pragma once

#include <vector>

#include "traces/files/specs.hpp"

namespace dflop::fixtures {

/// Points for unit u, with k = u + 1 in microseconds: forward k per token, backward_input 2 k,
/// backward_weight 3 k; attention takes the same per token and per token of its length.
inline UnitPoints linear_points(ProfileUnit unit) {
  const double k = 1e-6 * (static_cast<double>(unit) + 1);
  UnitPoints points;
  for (const std::int64_t x : {16, 64, 256}) {
    const bool attention = is_attention(unit);
    const std::int64_t tokens = attention ? 256 : x;
    const double amount = static_cast<double>(tokens) * (attention ? static_cast<double>(x) : 1.0);
    points.push_back({tokens, attention ? x : 0, k * amount, 2 * k * amount, 3 * k * amount});
  }
  return points;
}

/// Two encoder layers, three LLM layers. Optimizer 1e-3 s + 1e-6 s per parameter; messages 2e-3 s + 1e-6 s
/// per byte; all-reduce of two 1e-3 s + 2e-6 s per byte, of four 3e-3 s + 6e-6 s.
inline ProfileTables known_profile() {
  ProfileTables profile;
  profile.dflop_version = "0.1.0";
  profile.device = "host";
  profile.cpu = "a \"processor\"";
  profile.dtype = "f32";
  profile.model.name = "small";
  profile.model.encoder = {"encoder", 2, 4, 16, 2, 2, 2, false, false, 0};
  profile.model.connector = {{8, 8, 8}, 2};
  profile.model.llm = {"llm", 3, 8, 12, 4, 2, 2, true, true, 10};
  profile.settings = {7, 2.5, 256};
  TpProfile tp;
  for (std::size_t u = 0; u < kProfileUnits; ++u) tp.units[u] = linear_points(static_cast<ProfileUnit>(u));
  tp.activation = {{100, 80, 10}, {200, 160, 20}, 6, 30, 4, 50};
  tp.forward_buffers = {{3, 30, 60}, {5, 50, 100}, 7, 8, 9, 10};
  tp.backward_buffers = {{40, 60, 140}, {70, 110, 250}, 11, 12, 13, 300};
  profile.tp = {tp};
  profile.optimizer = {1e-3, 1e-6};
  profile.message = {2e-3, 1e-6};
  profile.all_reduce = {{2, {1e-3, 2e-6}}, {4, {3e-3, 6e-6}}};
  return profile;
}

/// known_profile() of a model with a second encoder, whose three layers, rows of 6 and merge of 3 differ from
/// the first one's. Its times are 10 times as long for the same unit; its bytes are 1000 more per token.
inline ProfileTables known_hearing_profile() {
  ProfileTables profile = known_profile();
  profile.model.second = SecondEncoder{{"ears", 3, 6, 24, 3, 3, 2, false, false, 0}, {{18, 8}, 3}};
  profile.second_tp = profile.tp;
  TpProfile& tp = profile.second_tp.front();
  const ModelSpec ears = second_tables(profile).model;
  for (std::size_t u = 0; u < kProfileUnits; ++u) {
    if (!has_unit(ears, static_cast<ProfileUnit>(u))) tp.units[u].clear();
    for (ProfilePoint& p : tp.units[u]) {
      for (double* seconds : {&p.forward_s, &p.backward_input_s, &p.backward_weight_s}) *seconds *= 10;
    }
  }
  for (BytesPerToken* bytes : {&tp.activation, &tp.forward_buffers, &tp.backward_buffers}) {
    for (double& layer : bytes->encoder_layer) layer += 1000;
    bytes->llm_layer = {};
    bytes->patches += 1000;
    bytes->connector += 1000;
    bytes->embedding = bytes->head = 0;
  }
  return profile;
}

/// Returns a profile as if measured on a GPU, with at most `most` tokens and sequences up to that length.
inline ProfileTables as_of_gpu(ProfileTables profile, std::int64_t most) {
  profile.device = "a GPU";
  for (std::vector<TpProfile>* tables : {&profile.tp, &profile.second_tp}) {
    for (TpProfile& tp : *tables) {
      for (UnitPoints& points : tp.units) {
        std::erase_if(points,
                      [&](const ProfilePoint& p) { return (p.length > 0 ? p.length : p.tokens) > most; });
      }
    }
  }
  return profile;
}

/// The same profile for the LLM only.
inline ProfileTables known_text_profile() {
  ProfileTables profile = known_profile();
  profile.model.encoder = {};
  profile.model.connector = {};
  TpProfile& tp = profile.tp.front();
  for (std::size_t u = 0; u < kProfileUnits; ++u) {
    if (!has_unit(profile.model, static_cast<ProfileUnit>(u))) tp.units[u].clear();
  }
  for (BytesPerToken* bytes : {&tp.activation, &tp.forward_buffers, &tp.backward_buffers}) {
    bytes->encoder_layer = {};
    bytes->patches = bytes->connector = 0;
  }
  return profile;
}

}  // namespace dflop::fixtures
