#include "data/corpus/text_source.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/json.h"
#include "data/corpus/shards.h"
#include "deltanet/error.h"

namespace deltanet::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestLine = std::size_t{1} << 30;  // of JSON; bounds the memory that a file can ask for

bool is_json(const fs::path& path) {
  const fs::path extension = is_packed(path) ? path.stem().extension() : path.extension();
  return extension == ".jsonl" || extension == ".ndjson" || extension == ".json";
}

bool is_text(const fs::path& path) {
  const fs::path extension = is_packed(path) ? path.stem().extension() : path.extension();
  return extension == ".txt" || extension == ".md";
}

// Does `deltanet tokenize` write here, or has it?
bool holds_tokens(const fs::path& directory) {
  return fs::exists(directory / ".unfinished") ||
         (is_token_directory(directory) &&
          (fs::exists(shard_path(directory, 0, ".bin", 0)) || fs::exists(shard_path(directory, 0, ".bin", 1))));
}

// What is hidden, and what came out of `deltanet tokenize`, is no corpus.
void add_directory(const fs::path& directory, std::vector<fs::path>& files) {
  const std::size_t before = files.size();
  bool tokens = holds_tokens(directory);  // of the directory that is read
  fs::path last = directory;              // that directory
  for (auto entry = fs::recursive_directory_iterator(directory); entry != fs::recursive_directory_iterator(); ++entry) {
    const fs::path& path = entry->path();
    if (const fs::path parent = path.parent_path(); parent != last) {
      tokens = holds_tokens(parent);
      last = parent;
    }
    const std::string name = path.filename().string();
    const bool own =
        tokens && (name == "meta.json" || name == tokenizer_folder("", 0) || name == tokenizer_folder("", 1));
    if (own || name.starts_with(".")) {
      entry.disable_recursion_pending();
    } else if (entry->is_regular_file() && (is_json(path) || is_text(path))) {
      files.push_back(path);
    }
  }
  if (files.size() == before) {
    throw Error("[read_text] " + directory.string() +
                ": given a directory without such files; expected .txt, .md, .jsonl, .ndjson or .json, also with .gz " +
                "or .zst");
  }
  std::sort(files.begin() + static_cast<std::ptrdiff_t>(before), files.end());
}

// JSON writes characters beyond U+FFFF as two escapes. One of the two alone is no character; it becomes U+FFFD. Returns
// how many there were.
int64_t replace_lone_surrogates(std::string& json) {
  const auto unit_at = [&](std::size_t at) -> uint32_t {  // of \uXXXX; 0: there is none
    uint32_t unit = 0;
    if (at + 6 > json.size() || json[at] != '\\' || json[at + 1] != 'u') return 0;
    const char *digits = json.data() + at + 2, *end = digits + 4;
    return std::from_chars(digits, end, unit, 16).ptr == end ? unit : 0;
  };
  int64_t count = 0;
  for (std::size_t at = json.find('\\'); at < json.size(); at = json.find('\\', at)) {
    const uint32_t unit = unit_at(at);
    if (unit >= 0xD800 && unit < 0xDC00 && unit_at(at + 6) >= 0xDC00 && unit_at(at + 6) < 0xE000) {
      at += 12;
    } else if (unit >= 0xD800 && unit < 0xE000) {
      json.replace(at + 2, 4, "fffd");
      ++count;
      at += 6;
    } else {
      at += 2;  // also what a backslash in front of a backslash hides
    }
  }
  return count;
}

bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

bool is_blank_line(std::string_view line) { return std::all_of(line.begin(), line.end(), is_blank); }

// The first line of a text, with its line break, which the last may lack.
std::string_view first_line(std::string_view text) {
  const std::size_t end = text.find('\n');
  return end == text.npos ? text : text.substr(0, end + 1);
}

void split_at_blank_lines(const TextBlock& block, const TextSource::Part& part) {
  const std::string_view text = block.bytes;
  std::size_t begin = 0, at = 0;
  while (at < text.size()) {
    const std::string_view line = first_line(text.substr(at));
    const bool whole = (at > 0 || block.begins_line) && (line.ends_with('\n') || block.ends_file);
    if (whole && is_blank_line(line)) {
      part(text.substr(begin, at - begin), true);
      begin = at + line.size();
    }
    at += line.size();
  }
  part(text.substr(begin), false);
}

void split_at_separator(std::string_view text, std::string_view separator, const TextSource::Part& part) {
  while (true) {
    const std::size_t end = text.find(separator);
    if (end == text.npos) break;
    part(text.substr(0, end), true);
    text.remove_prefix(end + separator.size());
  }
  part(text, false);
}

}  // namespace

TextSource::TextSource(const std::vector<std::string>& inputs, TextOptions options) : options_(std::move(options)) {
  if (options_.split == Split::kSeparator &&
      (options_.separator.empty() || options_.separator.find('\n') != std::string::npos)) {
    throw Error("[read_text] separator: given " + in_quotes(options_.separator) +
                "; expected a text without line breaks");
  }
  if (options_.block_bytes < options_.separator.size() + 4) {
    throw Error("[read_text] block_bytes: given " + std::to_string(options_.block_bytes) +
                "; expected 4 more than the separator has, or more");
  }
  if (inputs.empty()) throw Error("[read_text] inputs: given none; expected files or directories");
  for (const std::string& input : inputs) {
    if (!fs::exists(input)) throw Error("[read_text] " + input + ": does not exist; expected a file or a directory");
    if (fs::is_directory(input)) {
      add_directory(input, files_);
    } else {
      files_.emplace_back(input);
    }
  }
  for (const fs::path& file : files_) {
    if (fs::is_regular_file(file)) bytes_total_ += static_cast<int64_t>(fs::file_size(file));
  }
}

// The last place in the second half of a block that fits best: in front of a line, if possible one that is not
// indented, else in front of a word, else between characters.
std::size_t TextSource::cut_of_text() const {
  const std::string_view text = waiting_;
  const std::size_t separator_size = options_.separator.size();
  const std::size_t last = options_.block_bytes - std::max<std::size_t>(2, separator_size), first = last / 2;
  std::size_t cut = last;  // of what is only blank, or not UTF-8
  const auto find = [&](const auto& fits) {
    for (std::size_t at = last; at > first; --at) {
      if (!fits(at)) continue;
      cut = at;
      return true;
    }
    return false;
  };
  find([&](std::size_t at) { return text[at - 1] == '\n' && !is_blank(text[at]); }) ||
      find([&](std::size_t at) { return text[at - 1] == '\n'; }) ||
      find([&](std::size_t at) { return !is_blank(text[at - 1]) && text[at] == ' ' && !is_blank(text[at + 1]); }) ||
      find([&](std::size_t at) {
        return !is_blank(text[at - 1]) && (static_cast<unsigned char>(text[at]) & 0xC0) != 0x80;
      });
  if (options_.split == Split::kSeparator) {
    // A separator that begins in front of the place and ends behind it stays whole.
    const std::size_t from = cut < separator_size ? 0 : cut - separator_size + 1;
    const std::size_t found = text.substr(0, cut + separator_size - 1).find(options_.separator, from);
    if (found < cut) return found + separator_size;
  }
  return cut;
}

// Behind the last whole line; 0 if there is none yet.
std::size_t TextSource::cut_of_json() const {
  const std::size_t end = waiting_.rfind('\n');
  if (end != waiting_.npos) return end + 1;
  if (waiting_.size() > kLongestLine) {
    throw Error("[read_text] " + files_[file_].string() + ": line " + std::to_string(line_) + ": given more than " +
                std::to_string(kLongestLine) + " bytes; expected shorter lines");
  }
  return 0;
}

bool TextSource::read_more() {
  try {
    const std::string_view bytes = source_->next();
    waiting_ += bytes;
    return !bytes.empty();
  } catch (const Error& error) {
    const int64_t line = line_ + std::count(waiting_.begin(), waiting_.end(), '\n');
    throw Error(std::string(error.what()) + " (in line " + std::to_string(line) + " of the text)");
  }
}

bool TextSource::next(TextBlock& block) {
  if (file_ == files_.size()) return false;
  const bool json = is_json(files_[file_]);
  if (!source_) source_ = open_bytes(files_[file_]);
  std::size_t cut = 0;
  bool ends_file = false;
  std::size_t wanted = options_.block_bytes;
  while (cut == 0 && !ends_file) {
    while (waiting_.size() < wanted && !ends_file) {
      ends_file = !read_more();
    }
    if (!ends_file) cut = json ? cut_of_json() : cut_of_text();
    wanted = 2 * waiting_.size();  // for a line that is longer than a block
  }
  if (ends_file) cut = waiting_.size();

  block.bytes.assign(waiting_, 0, cut);
  block.file = file_;
  block.line = line_;
  block.begins_line = begins_line_;
  block.ends_file = ends_file;
  block.bytes_done = files_done_bytes_ + source_->bytes_on_disk();
  waiting_.erase(0, cut);
  if (cut > 0) begins_line_ = block.bytes.back() == '\n';
  line_ += std::count(block.bytes.begin(), block.bytes.end(), '\n');
  if (ends_file) {
    files_done_bytes_ += source_->bytes_on_disk();
    source_.reset();
    line_ = 1;
    begins_line_ = true;
    ++file_;
  }
  return true;
}

void TextSource::split(const TextBlock& block, const Part& part) const {
  if (is_json(files_[block.file])) return split_json(block, part);
  switch (options_.split) {
    case Split::kNever:
      part(block.bytes, false);
      break;
    case Split::kBlankLines:
      split_at_blank_lines(block, part);
      break;
    case Split::kSeparator:
      split_at_separator(block.bytes, options_.separator, part);
      break;
  }
  if (block.ends_file) part({}, true);
}

void TextSource::split_json(const TextBlock& block, const Part& part) const {
  std::string_view rest = block.bytes;
  for (int64_t number = block.line; !rest.empty(); ++number) {
    const std::string_view line = first_line(rest);
    if (!is_blank_line(line)) part(document_of(line, files_[block.file], number), true);
    rest.remove_prefix(line.size());
  }
}

std::string TextSource::document_of(std::string_view line, const fs::path& path, int64_t number) const {
  const std::string place = path.string() + ": line " + std::to_string(number);
  std::string whole(line);
  if (const int64_t replaced = replace_lone_surrogates(whole); replaced > 0) replaced_surrogates_ += replaced;
  nlohmann::json json = parse_json(whole, "read_text " + place);
  const auto refuse = [&](const std::string& given) {
    throw Error("[read_text] " + place + ": given " + given + "; expected an object with a text in " +
                in_quotes(options_.field));
  };
  if (!json.is_object()) refuse("no object");
  const auto field = json.find(options_.field);
  if (field == json.end()) {
    std::string names;
    for (const auto& [name, value] : json.items()) names += (names.empty() ? "" : ", ") + in_quotes(name);
    refuse(names.empty() ? "no fields" : "the fields " + names.substr(0, 300));
  }
  if (!field->is_string()) refuse(std::string("a field that holds a value of type ") + field->type_name());
  return std::move(field->get_ref<std::string&>());
}

}  // namespace deltanet::data
