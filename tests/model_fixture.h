#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "deltanet/reference.h"

// Golden models: a checkpoint directory and, beside its weights, fixture.safetensors with what an independent
// implementation computed from them: input_ids, logits, loss, grad.NAME of every parameter, prompt, greedy.
// tests/golden/models holds some; the environment variable DELTANET_MODEL_FIXTURES names a folder with more, by default
// ../shared/fixtures/models beside the source tree where it exists.

namespace deltanet::test {

struct ModelFixture {
  std::filesystem::path directory;
  std::vector<std::vector<int32_t>> input_ids, prompt, greedy;
  std::vector<double> logits;  // [B,T,vocab]
  double loss = 0;
  std::map<std::string, std::vector<double>> gradients;
};

ModelFixture read_model_fixture(const std::filesystem::path& directory);

std::vector<std::filesystem::path> model_fixture_paths();
std::string model_fixture_name(const std::filesystem::path& directory);

// Sequences one after the other, and where each begins.
struct Packed {
  explicit Packed(const std::vector<std::vector<int32_t>>& sequences);
  // What should follow each id inside its sequence; -100 after the last.
  std::vector<int32_t> next() const;

  std::vector<int32_t> ids;
  std::vector<int64_t> offsets = {0};
};

// ||a - b|| / ||b||; infinite if their sizes differ.
double relative_error(const std::vector<float>& a, const std::vector<double>& b);

}  // namespace deltanet::test
