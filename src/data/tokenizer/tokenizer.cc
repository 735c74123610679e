#include "deltanet/tokenizer.h"

#include <filesystem>

#include "base/file.h"
#include "data/tokenizer/loaders.h"
#include "deltanet/error.h"

namespace deltanet {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxFile = 1 << 30;  // bytes; the largest known ones have some 30 MB

std::unique_ptr<Tokenizer> load_json(const fs::path& path) {
  const fs::path config = path.parent_path() / "tokenizer_config.json";
  data::SpecialNames names;
  if (fs::exists(config)) names = data::special_names_from_json(read_file(config, kMaxFile), config.string());
  return data::tokenizer_from_json(read_file(path, kMaxFile), path.string(), names);
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  fs::path file = path;
  if (fs::is_directory(file)) {
    const fs::path json = file / "tokenizer.json", model = file / "tokenizer.model";
    if (!fs::exists(json) && !fs::exists(model)) {
      throw Error("[load_tokenizer] " + path + ": given a directory without either; expected tokenizer.json or " +
                  "tokenizer.model in it");
    }
    file = fs::exists(json) ? json : model;
  }
  if (!fs::exists(file)) throw Error("[load_tokenizer] " + path + ": does not exist; expected a file or a directory");
  if (file.extension() == ".json") return load_json(file);
  return data::tokenizer_from_sentencepiece(read_file(file, kMaxFile), file.string());
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string text;
  const auto decoding = start_decoding(skip_special);
  for (const int32_t id : ids) decoding->push(id, text);
  decoding->finish(text);
  return text;
}

void Tokenizer::check_id(std::string_view operation, int32_t id) const {
  if (id >= 0 && id < vocab_size()) return;
  throw Error("[" + std::string(operation) + "] id: given " + std::to_string(id) + "; expected 0 to " +
              std::to_string(vocab_size() - 1));
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(&tokenizer), skip_special_(skip_special), decoding_(tokenizer.start_decoding(skip_special)) {}

std::string StreamDecoder::push(int32_t id) {
  std::string text;
  decoding_->push(id, text);
  return text;
}

std::string StreamDecoder::finish() {
  std::string text;
  decoding_->finish(text);
  decoding_ = tokenizer_->start_decoding(skip_special_);
  return text;
}

}  // namespace deltanet
