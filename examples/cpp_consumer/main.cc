// Gated DeltaNet over a few random tokens, once in chunks and once token by token.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "deltanet/deltanet.h"

int main() {
  const int64_t B = 1, T = 100, H = 2, K = 32, V = 48;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> unit(0.0f, 1.0f);

  std::vector<float> q(B * T * H * K), k(q.size()), v(B * T * H * V), g(B * T * H), beta(g.size());
  for (float& value : q) value = normal(random);
  for (float& value : k) value = normal(random);
  for (float& value : v) value = normal(random);
  for (float& value : g) value = -0.1f * unit(random);  // log decay, never positive
  for (float& value : beta) value = unit(random);

  deltanet::Inputs inputs;
  inputs.q = {q.data(), {B, T, H, K}};
  inputs.k = {k.data(), {B, T, H, K}};
  inputs.v = {v.data(), {B, T, H, V}};
  inputs.g = {g.data(), {B, T, H}};
  inputs.beta = {beta.data(), {B, T, H}};

  deltanet::Spec spec = deltanet::find_row("gdn").spec;
  spec.l2norm = true;

  auto run = [&](deltanet::Mode mode) {
    std::vector<float> o(v.size());
    deltanet::Outputs outputs;
    outputs.o = {o.data(), {B, T, H, V}};
    deltanet::Options options;
    options.mode = mode;
    deltanet::forward(spec, inputs, outputs, options);
    return o;
  };
  const std::vector<float> chunk = run(deltanet::Mode::kChunk);
  const std::vector<float> recurrent = run(deltanet::Mode::kRecurrent);

  double difference = 0, norm = 0;
  for (size_t i = 0; i < chunk.size(); ++i) {
    difference += std::pow(chunk[i] - recurrent[i], 2);
    norm += std::pow(recurrent[i], 2);
  }
  const double error = std::sqrt(difference / norm);
  std::printf("deltanet %s on %s: relative difference %.1e\n", deltanet::version().c_str(),
              deltanet::simd_target().c_str(), error);
  if (!(error < 1e-5)) return 1;
  std::printf("chunk and recurrent agree\n");
  return 0;
}
