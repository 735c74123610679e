// Safetensors files: what other programs wrote is read and written again byte for byte, and no malformed file is
// accepted, whatever is wrong with it.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "file_size_limit.h"
#include "model/checkpoint/safetensors.h"
#include "temporary_directory.h"

namespace deltanet::test {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = fs::path(DELTANET_SOURCE_DIR) / "tests/golden";

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

// A file with the given header and `data_bytes` of data.
std::string file_of(const std::string& header, size_t data_bytes, uint64_t length) {
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file + header + std::string(data_bytes, '\x3f');
}
std::string file_of(const std::string& header, size_t data_bytes) { return file_of(header, data_bytes, header.size()); }

// What the reader says about a file. The bytes are in a block of exactly their size, so that a sanitizer sees reads
// beyond it.
std::string verdict(const std::string& file) {
  const std::vector<std::byte> exact(bytes_of(file).begin(), bytes_of(file).end());
  return error_of([&] {
    const SafetensorsFile read(exact, "f");
    for (const StoredTensor& tensor : read.tensors()) {
      if (!is_floating(tensor.dtype)) continue;
      std::vector<float> values(static_cast<size_t>(tensor.count()));
      copy_floats(tensor, values.data(), 1);
    }
  });
}

TEST(Safetensors, ReadsWhatPythonWrote) {
  const SafetensorsFile file(kGolden / "checkpoint/dtypes.safetensors");
  EXPECT_EQ(file.tensors().size(), 15u);
  EXPECT_EQ(file.metadata(), (SafetensorsFile::Metadata{{"ünï \"k\"", "\x07 \" \\ / \x7f"}}));
  EXPECT_EQ(file.find("absent"), nullptr);
  ASSERT_NE(file.find("näme \"quoted\" \\ \n\t\x01 \x7f 漢"), nullptr);
  EXPECT_EQ(file.find("empty")->shape, (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(file.find("empty")->count(), 0);
  EXPECT_EQ(file.find("bool")->dtype, DType::kBool);
  EXPECT_EQ(file.find("a.f64")->shape, std::vector<int64_t>{});
  float value = 0;
  copy_floats(*file.find("a.f64"), &value);
  EXPECT_EQ(value, 2.5f);
  int64_t numbers[4];
  ASSERT_EQ(file.find("i64")->bytes, 32);
  file.find("i64")->read(0, sizeof numbers, numbers);
  EXPECT_EQ(numbers[3], 3);
  EXPECT_NE(error_of([&] { copy_floats(*file.find("i64"), &value); }).find("tensor \"i64\", dtype: given I64"),
            std::string::npos);
}

TEST(Safetensors, ReadingAndWritingReproducesTheFilesOfPython) {
  const TemporaryDirectory directory;
  int files = 0;
  for (const fs::path& folder : {kGolden / "checkpoint", kGolden / "models"}) {
    if (!fs::exists(folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.path().extension() != ".safetensors") continue;
      const SafetensorsFile file(entry.path());
      std::vector<StoredTensor> tensors = file.tensors();
      std::reverse(tensors.begin(), tensors.end());  // the order given does not matter
      write_safetensors(directory / "copy", tensors, file.metadata());
      EXPECT_TRUE(contents(directory / "copy") == contents(entry.path())) << entry.path() << " differs";
      ++files;
    }
  }
  EXPECT_GE(files, 9);
}

TEST(Safetensors, EveryPrefixOfAFileIsRefused) {
  const std::string whole = contents(kGolden / "checkpoint/dtypes.safetensors");
  ASSERT_EQ(verdict(whole), "");
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_TRUE(verdict(whole.substr(0, length)).starts_with("[safetensors] f: ")) << length;
  }
  EXPECT_NE(verdict(whole + "x").find("where the last tensor ends"), std::string::npos);
}

struct Case {
  std::string name, file, expected;
};

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"t":)" + tensor(dtype, shape, offsets) + "}";
}
std::string two(const std::string& first, const std::string& second) {
  return R"({"a":)" + tensor("F32", "[2]", first) + R"(,"b":)" + tensor("F32", "[2]", second) + "}";
}

std::vector<Case> hostile() {
  const std::string good = tensor("F32", "[1]", "[0,4]"), offsets = "tensor \"t\", data_offsets: ";
  const std::string shape = "tensor \"t\", shape: ", range = "expected a whole number from 0 to 2^63-1";
  return {
      {"header_of_2_to_63_bytes", file_of("{}", 0, uint64_t{1} << 63),
       "length of the header: given 9223372036854775808"},
      {"header_of_all_ones", file_of("{}", 0, ~uint64_t{0}), "length of the header: given 18446744073709551615"},
      {"header_one_too_long", file_of("{}", 0, 3), "expected at most 2, the rest of the file"},
      {"header_empty", file_of("", 0), "header: expected an object"},
      {"header_not_an_object", file_of("[]", 0), "header: expected an object"},
      {"header_after_blanks", file_of(" {}", 0), "header: expected an object"},
      {"header_not_closed", file_of("{", 0), "header: at byte 2"},
      {"header_followed_by_more", file_of("{}{}", 0), "header: at byte 3"},
      {"header_with_zero_byte", file_of(std::string("{}\0{", 4), 0), "zero byte"},
      {"header_with_byte_order_mark", file_of("\xef\xbb\xbf{}", 0), "header: expected an object"},
      {"offset_beyond_the_file", file_of(one("F32", "[2]", "[0,8]"), 4), offsets + "given [0, 8]; expected"},
      {"offset_far_beyond", file_of(one("U8", "[0]", "[9223372036854775807,9223372036854775807]"), 4), offsets},
      {"offset_above_63_bits", file_of(one("F32", "[1]", "[0,9223372036854775808]"), 4), offsets + "given 9223"},
      {"offset_above_64_bits", file_of(one("F32", "[1]", "[0,99999999999999999999]"), 4), offsets + "given 9999"},
      {"offsets_backwards", file_of(one("F32", "[1]", "[4,0]"), 4), offsets + "given [4, 0]"},
      {"offset_negative", file_of(one("F32", "[1]", "[-4,0]"), 4), offsets + "given -4"},
      {"offset_fractional", file_of(one("F32", "[1]", "[0,4.0]"), 4), offsets + "given 4.0"},
      {"offset_exponent", file_of(one("F32", "[1]", "[0,4e0]"), 4), offsets + "given 4e0"},
      {"offset_string", file_of(one("F32", "[1]", "[0,\"4\"]"), 4), offsets + "given \"4\""},
      {"offset_null", file_of(one("F32", "[1]", "[0,null]"), 4), offsets + "given null"},
      {"offsets_one", file_of(one("F32", "[1]", "[0]"), 4), offsets + "given an array of 1"},
      {"offsets_three", file_of(one("F32", "[1]", "[0,4,8]"), 4), offsets + "given 8"},
      {"offsets_number", file_of(one("F32", "[1]", "4"), 4), offsets + "given 4"},
      {"offsets_nested", file_of(one("F32", "[1]", "[[0,4]]"), 4), offsets + "given an array"},
      {"overlap", file_of(two("[0,8]", "[4,12]"), 12), "tensor \"b\", data_offsets: given [4, 12], which overlaps"},
      {"same_bytes_twice", file_of(two("[0,8]", "[0,8]"), 8),
       "tensor \"b\", data_offsets: given [0, 8], which overlaps"},
      {"hole", file_of(two("[0,8]", "[9,17]"), 17), "tensor \"b\", data_offsets: given [9, 17], which leaves a hole"},
      {"hole_at_the_start", file_of(one("F32", "[1]", "[4,8]"), 8), offsets + "given [4, 8], which leaves a hole"},
      {"bytes_after_the_last", file_of(one("F32", "[1]", "[0,4]"), 5), "data: given 5 bytes; expected 4"},
      {"data_without_tensors", file_of("{}", 1), "data: given 1 bytes; expected 0"},
      {"size_too_small", file_of(one("F32", "[2]", "[0,4]"), 4), offsets + "given 4 bytes; expected 8 for F32 [2]"},
      {"size_too_large", file_of(one("F32", "[]", "[0,8]"), 8), offsets + "given 8 bytes; expected 4 for F32 []"},
      {"other_dtype_of_the_file", file_of(one("F64", "[1]", "[0,4]"), 4), "given 4 bytes; expected 8 for F64 [1]"},
      {"product_overflows", file_of(one("F32", "[4294967296,4294967296]", "[0,0]"), 0), shape + "given [4294967296, 4"},
      {"product_times_size_overflows", file_of(one("F32", "[4611686018427387904]", "[0,0]"), 0), shape},
      {"product_overflows_before_zero", file_of(one("U8", "[9223372036854775807,2,0]", "[0,0]"), 0), shape},
      {"extent_negative", file_of(one("F32", "[-1]", "[0,4]"), 4), shape + "given -1; " + range},
      {"extents_negative", file_of(one("F32", "[-1,-1]", "[0,4]"), 4), shape + "given -1; " + range},
      {"extent_fractional", file_of(one("F32", "[1.0]", "[0,4]"), 4), shape + "given 1.0; " + range},
      {"extent_too_large", file_of(one("F32", "[18446744073709551615]", "[0,4]"), 4), shape + "given 1844"},
      {"extent_true", file_of(one("F32", "[true]", "[0,4]"), 4), shape + "given true"},
      {"shape_string", file_of(one("F32", "\"1\"", "[0,4]"), 4), shape + "given \"1\"; expected an array"},
      {"shape_nested", file_of(one("F32", "[[1]]", "[0,4]"), 4), shape + "given an array"},
      {"shape_object", file_of(one("F32", "{}", "[0,4]"), 4), shape + "given an object"},
      {"dtype_number", file_of(R"({"t":{"dtype":4,"shape":[1],"data_offsets":[0,4]}})", 4),
       "dtype: given 4; expected a"},
      {"dtype_missing", file_of(R"({"t":{"shape":[1],"data_offsets":[0,4]}})", 4), "tensor \"t\", dtype: missing"},
      {"shape_missing", file_of(R"({"t":{"dtype":"F32","data_offsets":[0,4]}})", 4), "tensor \"t\", shape: missing"},
      {"offsets_missing", file_of(R"({"t":{"dtype":"F32","shape":[1]}})", 4), "tensor \"t\", data_offsets: missing"},
      {"field_unknown", file_of(R"({"t":{"dtypo":"F32"}})", 0), "tensor \"t\", \"dtypo\": expected dtype, shape or"},
      {"field_twice", file_of(R"({"t":{"dtype":"F32","dtype":"F32"}})", 0), "tensor \"t\", \"dtype\": given twice"},
      {"name_twice", file_of(R"({"t":)" + good + R"(,"t":)" + good + "}", 4), "\"t\": given twice"},
      {"name_twice_when_unescaped", file_of(R"({"t":)" + good + R"(,"\u0074":)" + good + "}", 4), "\"t\": given twice"},
      {"tensor_not_an_object", file_of(R"({"t":1})", 0), "\"t\": given 1; expected an object"},
      {"tensor_null", file_of(R"({"t":null})", 0), "\"t\": given null; expected an object"},
      {"metadata_number", file_of(R"({"__metadata__":{"a":1}})", 0), "metadata, \"a\": given 1; expected a string"},
      {"metadata_nested", file_of(R"({"__metadata__":{"a":{}}})", 0), "metadata, \"a\": given an object"},
      {"metadata_array", file_of(R"({"__metadata__":[]})", 0), "\"__metadata__\": given an array; expected an object"},
      {"metadata_twice", file_of(R"({"__metadata__":{},"__metadata__":{}})", 0), "\"__metadata__\": given twice"},
      {"metadata_name_twice", file_of(R"({"__metadata__":{"a":"","a":""}})", 0), "metadata, \"a\": given twice"},
      {"not_utf8", file_of("{\"\xff\":" + good + "}", 4), "header: at byte 3"},
      {"overlong_utf8", file_of("{\"\xc0\x80\":" + good + "}", 4), "header: at byte 3"},
      {"lone_surrogate", file_of(R"({"\ud800":)" + good + "}", 4), "header: at byte"},
      {"deeply_nested", file_of(R"({"t":)" + std::string(1'000'000, '['), 0), "\"t\": given an array"},
      {"deeply_nested_objects", file_of(R"({"a":{"a":{"a":{)", 0), "tensor \"a\", \"a\": expected dtype"},
  };
}

class Hostile : public testing::TestWithParam<Case> {};

TEST_P(Hostile, IsRefusedWithAReason) {
  const std::string error = verdict(GetParam().file);
  EXPECT_TRUE(error.starts_with("[safetensors] f: ")) << error;
  EXPECT_NE(error.find(GetParam().expected), std::string::npos) << error;
  EXPECT_LT(error.size(), 1000u);
}

INSTANTIATE_TEST_SUITE_P(Safetensors, Hostile, testing::ValuesIn(hostile()),
                         [](const testing::TestParamInfo<Case>& test) { return test.param.name; });

TEST(Safetensors, AcceptsWhatTheFormatAllows) {
  EXPECT_EQ(verdict(file_of("{}", 0)), "");
  EXPECT_EQ(verdict(file_of("{}   \n", 0)), "");
  EXPECT_EQ(verdict(file_of(R"({"__metadata__":{}})", 0)), "");
  EXPECT_EQ(verdict(file_of(one("F32", "[0,4611686018427387904]", "[0,0]"), 0)), "");
  EXPECT_EQ(verdict(file_of(one("F32", " [ 1 ] ", "[ 0 , 4 ]"), 4)), "");              // data not aligned
  EXPECT_EQ(verdict(file_of(two("[8,16]", "[0,8]"), 16)), "");                         // any order
  EXPECT_EQ(verdict(file_of(R"({"":)" + tensor("U8", "[1]", "[0,1]") + "}", 1)), "");  // a name may be empty
}

TEST(Safetensors, UnsupportedTypesAreListedButNotUsed) {
  const std::string bytes =
      file_of(R"({"a":)" + tensor("F8_E4M3", "[3]", "[0,3]") + R"(,"b":)" + tensor("F32", "[1]", "[3,7]") + "}", 7);
  const SafetensorsFile file(bytes_of(bytes), "f");
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.find("a")->dtype, DType::kUnsupported);
  EXPECT_EQ(file.find("b")->count(), 1);
  float value;
  EXPECT_NE(error_of([&] { copy_floats(*file.find("a"), &value); }).find("tensor \"a\", dtype: given \"F8_E4M3\""),
            std::string::npos);
  EXPECT_NE(error_of([&] { static_cast<void>(file.find("a")->count()); }).find("F8_E4M3"), std::string::npos);
  const TemporaryDirectory directory;
  EXPECT_NE(error_of([&] { write_safetensors(directory / "x", file.tensors(), {}); }).find("F8_E4M3"),
            std::string::npos);
  EXPECT_TRUE(directory.names().empty());
}

StoredTensor floats(const std::string& name, std::vector<int64_t> shape, const std::vector<float>& values) {
  return {name, DType::kF32, std::move(shape), reinterpret_cast<const std::byte*>(values.data()),
          static_cast<int64_t>(values.size() * sizeof(float))};
}

TEST(Safetensors, FloatsAreRoundedWhileWriting) {
  const TemporaryDirectory directory;
  std::vector<float> values((1 << 20) + 77);  // more than one piece
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) / 1024.0f;
  const int8_t small[] = {1, 2, 3};
  const StoredTensor bytes{"i8", DType::kI8, {3}, reinterpret_cast<const std::byte*>(small), 3};
  const std::vector<StoredTensor> tensors = {floats("x", {static_cast<int64_t>(values.size())}, values), bytes};
  for (const auto& [dtype, epsilon] :
       {std::pair{DType::kBf16, 0x1p-9f}, {DType::kF16, 0x1p-12f}, {DType::kF64, 0.0f}}) {
    write_safetensors(directory / "x", tensors, {}, dtype);
    const SafetensorsFile file(directory / "x");
    ASSERT_EQ(file.find("x")->dtype, dtype);
    EXPECT_EQ(file.find("i8")->dtype, DType::kI8);
    std::vector<float> read(values.size());
    copy_floats(*file.find("x"), read.data());
    for (size_t i = 0; i < values.size(); ++i) ASSERT_LE(std::abs(read[i] - values[i]), epsilon * 2 * values[i]) << i;
  }
}

TEST(Safetensors, WrongTensorsAreNotWritten) {
  const TemporaryDirectory directory;
  const std::vector<float> values(2);
  const auto error = [&](std::vector<StoredTensor> tensors, DType dtype = DType::kF32,
                         const SafetensorsFile::Metadata& metadata = {}) {
    return error_of([&] { write_safetensors(directory / "x", tensors, metadata, dtype); });
  };
  EXPECT_NE(error({floats("a", {3}, values)}).find("tensor \"a\", shape: of 12 bytes; given 8"), std::string::npos);
  EXPECT_NE(error({floats("a", {-1, -2}, values)}).find("tensor \"a\", shape: negative"), std::string::npos);
  EXPECT_NE(error({floats("a", {2}, values), floats("a", {2}, values)}).find("\"a\", name: taken"), std::string::npos);
  EXPECT_NE(error({floats("__metadata__", {2}, values)}).find("name: taken"), std::string::npos);
  EXPECT_NE(error({floats("\xff", {2}, values)}).find("expected UTF-8"), std::string::npos);
  EXPECT_NE(error({}, DType::kF32, {{"a", "\xff"}}).find("expected UTF-8"), std::string::npos);
  EXPECT_NE(error({floats("a", {2}, values)}, DType::kI8).find("dtype: given I8"), std::string::npos);
  EXPECT_TRUE(directory.names().empty());
}

TEST(Safetensors, AFullDiskLeavesTheOldFile) {
  const TemporaryDirectory directory;
  put(directory / "x", "old");
  const std::vector<float> values(1 << 20);
  const FileSizeLimit limit(1 << 20);
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const std::vector<StoredTensor> tensors = {floats("a", {1 << 20}, values)};
    const std::string error = error_of([&] { write_safetensors(directory / "x", tensors, {}, dtype); });
    EXPECT_EQ(error, "[write] " + (directory / "x").string() + ": File too large");
    EXPECT_EQ(contents(directory / "x"), "old");
    EXPECT_EQ(directory.names(), std::vector<std::string>{"x"});
  }
}

}  // namespace
}  // namespace deltanet::test
