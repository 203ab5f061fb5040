#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "io/safetensors.h"

namespace tfm {
namespace {

namespace fs = std::filesystem;

struct Case {
  std::string content, word;
};
const std::string ok = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
std::string one(const std::string& body) { return "{\"a\":{" + body + "}}"; }

class Safetensors : public testing::Test {
 protected:
  Safetensors()
      : dir_(fs::temp_directory_path() / ("tfm-safetensors-" + std::to_string(::getpid()))) {
    fs::create_directories(dir_);
  }
  ~Safetensors() override { fs::remove_all(dir_); }
  std::string path(const std::string& name = "t.safetensors") const {
    return (dir_ / name).string();
  }
  std::string put(const std::string& content) const {
    fs::remove(path());  // a new file is quicker than a truncated one
    std::ofstream(path(), std::ios::binary) << content;
    return path();
  }
  static std::string file(const std::string& header, std::size_t data_bytes) {
    std::string text(8, '\0');
    for (int i = 0; i < 8; ++i) text[i] = static_cast<char>(header.size() >> (8 * i));
    return text + header + std::string(data_bytes, '\1');
  }
  // The message the reader refuses `content` with.
  std::string refusal(const std::string& content) const {
    try {
      io::SafetensorsReader reader(put(content));
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::input);
      EXPECT_NE(std::string(e.what()).find(path()), std::string::npos) << e.what();
      return e.what();
    }
    return "accepted";
  }
  void expect_refusals(const std::vector<Case>& cases) const {  // each with its word in the message
    for (const auto& c : cases) {
      const std::string said = refusal(c.content);
      EXPECT_NE(said.find(c.word), std::string::npos)
          << "wanted: " << c.word << "\n  said: " << said;
    }
  }
  fs::path dir_;
};

TEST_F(Safetensors, RoundTrip) {
  const std::vector<double> d{1.5, -0.0, 1e308};
  const std::vector<float> f{1, 2, 3, 4, 5, 6};
  const std::vector<std::int64_t> l{-7, 1ll << 40};
  {
    io::SafetensorsWriter w(path(),
                            {{"d", "F64", {3}},
                             {"l", "I64", {2, 1}},
                             {"f \"q\"", "F32", {2, 3}},
                             {"none", "F32", {0, 5}},
                             {"s", "I32", {}}},
                            {{"note", "hi"}});
    EXPECT_FALSE(fs::exists(path()));
    w.write(std::span<const double>(d));
    w.write(std::span<const std::int64_t>(l));
    w.write(std::span<const float>(f).first(1));
    w.write(std::span<const float>(f).subspan(1));
    const std::int32_t s = 42;
    w.write(std::span<const std::int32_t>(&s, 1));
    w.finish();
    EXPECT_EQ(w.size(), fs::file_size(path()));
    EXPECT_EQ(w.checksum(), io::Checksum::of(io::MappedFile(path()).bytes()));
  }
  io::SafetensorsReader r(path());
  EXPECT_EQ(r.tensors().size(), 5u);
  EXPECT_EQ(r.metadata().at("format"), "pt");
  EXPECT_EQ(r.metadata().at("note"), "hi");
  EXPECT_EQ(r.read<double>("d"), d);
  EXPECT_EQ(r.read<float>("f \"q\""), f);
  EXPECT_EQ(r.read<double>("f \"q\""), std::vector<double>(f.begin(), f.end()));
  EXPECT_EQ(r.read<std::int64_t>("l"), l);
  EXPECT_EQ(r.read<std::int64_t>("s"), std::vector<std::int64_t>{42});
  EXPECT_EQ(r.bytes("none").size(), 0u);
  EXPECT_EQ((r.bytes("d").data() - r.file_bytes().data()) % 8, 0);
  std::vector<float> part(2);
  r.read<float>("f \"q\"", 3, part);
  EXPECT_EQ(part, (std::vector<float>{4, 5}));
  EXPECT_THROW(r.read<float>("s"), Error);         // integers are no floats
  EXPECT_THROW(r.read<std::int32_t>("l"), Error);  // 2^40
  EXPECT_THROW(r.info("missing"), Error);
}

TEST_F(Safetensors, OtherTypesAreListedButNotConverted) {
  io::SafetensorsReader r(put(file(R"({"h":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},)"
                                   R"("q":{"dtype":"F4","shape":[2],"data_offsets":[4,5]}})",
                                   5)));
  EXPECT_EQ(r.info("h").dtype, "BF16");
  EXPECT_FALSE(r.info("h").type());
  EXPECT_EQ(r.bytes("q").size(), 1u);
  EXPECT_THROW(r.read<float>("h"), Error);
}

TEST_F(Safetensors, WriterKeepsItsPromises) {
  EXPECT_THROW(io::SafetensorsWriter(path(), {{"a", "F32", {1}}, {"a", "F32", {1}}}), Error);
  EXPECT_THROW(io::SafetensorsWriter(path(), {{"a", "F99", {1}}}), Error);
  {
    io::SafetensorsWriter w(path(), {{"a", "F32", {2}}});
    const float v[3] = {};
    EXPECT_THROW(w.write(std::span<const float>(v)), Error);
    w.write(std::span<const float>(v, 1));
    EXPECT_THROW(w.finish(), Error);
  }
  EXPECT_TRUE(fs::is_empty(dir_));
  EXPECT_THROW(io::SafetensorsWriter("/nonexistent/x", {}), Error);
}

TEST_F(Safetensors, LegalOddities) {
  for (
      const auto& [header, bytes] : std::vector<std::pair<std::string, std::size_t>>{
          {"{}", 0},
          {"{}      ", 0},
          {R"({"__metadata__":{}})", 0},
          {R"({"b":{"data_offsets":[4,8],"shape":[1],"dtype":"F32"},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})",
           8},
          {R"({"e":{"dtype":"F32","shape":[0,9],"data_offsets":[0,0]},)"
           R"("a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})",
           3}})
    EXPECT_EQ(refusal(file(header, bytes)), "accepted") << header;
}

TEST_F(Safetensors, BadHeaders) {
  std::string huge = file("{}", 0), long_header = file("{}", 0);
  for (int i = 0; i < 8; ++i) huge[i] = '\xff';
  long_header[0] = 3;
  expect_refusals({
      {"", "too short"},
      {"1234567", "too short"},
      {huge, "header length"},
      {long_header, "header length"},
      {file("", 20), "header length"},
      {file(" {}", 0), "first byte"},
      {file("[]", 0), "first byte"},
      {file("{", 8), "header length"},
      {file("{ ", 8), "JSON"},
      {file("{}x", 0), "JSON"},
      {file("{\"a\xff\":1}", 0), "JSON"},
      {file("\xef\xbb\xbf{}", 0), "first byte"},
      {file(R"({"a":1})", 0), "tensor 'a'"},
      {file(R"({"a":null})", 0), "null"},
      {file(R"({"a":[1]})", 0), "array"},
      {file(R"({"__metadata__":{"x":1}})", 0), "expected a string"},
      {file(R"({"__metadata__":{"x":{}}})", 0), "'x'"},
      {file(R"({"__metadata__":[]})", 0), "__metadata__"},
      {file(R"({"__metadata__":{"x":"1","x":"2"}})", 0), "twice"},
      {file(R"({"__metadata__":{},"__metadata__":{}})", 0), "twice"},
      {file("{\"a\":{" + ok + "},\"a\":{" + ok + "}}", 8), "twice"},
      {file(std::string(1, '{') + "\"a\":" + std::string(100000, '['), 0), "array"},
  });
  EXPECT_THROW(io::SafetensorsReader(path("absent")), Error);
  EXPECT_THROW(io::SafetensorsReader(dir_.string()), Error);
}

TEST_F(Safetensors, BadTensors) {
  std::string ones = "1";
  for (int i = 0; i < 34; ++i) ones += ",1";
  expect_refusals({
      {file(one(ok + R"(,"dtype":"F32")"), 8), "'dtype': appears twice"},
      {file(one(ok + R"(,"extra":1)"), 8), "unknown"},
      {file(one(R"("shape":[2],"data_offsets":[0,8])"), 8), "'dtype': is missing"},
      {file(one(R"("dtype":"F32","data_offsets":[0,8])"), 8), "'shape': is missing"},
      {file(one(R"("dtype":"F32","shape":[2])"), 8), "'data_offsets': is missing"},
      {file(one(R"("dtype":"F33","shape":[2],"data_offsets":[0,8])"), 8),
       "unknown element type 'F33'"},
      {file(one(R"("dtype":7,"shape":[2],"data_offsets":[0,8])"), 8), "'dtype'"},
      {file(one(R"("dtype":["F32"],"shape":[2],"data_offsets":[0,8])"), 8), "'dtype'"},
      {file(one(R"("dtype":"F32","shape":2,"data_offsets":[0,8])"), 8), "'shape'"},
      {file(one(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), 8), "negative"},
      {file(one(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"), 8), "'shape'"},
      {file(one(R"("dtype":"F32","shape":["2"],"data_offsets":[0,8])"), 8), "'shape'"},
      {file(one(R"("dtype":"F32","shape":[[2]],"data_offsets":[0,8])"), 8), "'shape'"},
      {file(one(R"("dtype":"F32","shape":[true],"data_offsets":[0,8])"), 8), "boolean"},
      {file(one(R"("dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,8])"), 8),
       "'shape'"},
      {file(one(R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8])"), 8), "2^63"},
      {file(one(R"("dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0])"), 0),
       "overflows"},
      {file(one(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"), 0),
       "overflows"},
      {file(one(R"("dtype":"F4","shape":[3],"data_offsets":[0,2])"), 2), "whole number of bytes"},
      {file(one(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), 8), "after end"},
      {file(one(R"("dtype":"F32","shape":[2],"data_offsets":[0])"), 8), "two numbers"},
      {file(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,8])"), 8), "too many"},
      {file(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,7])"), 7), "require 8"},
      {file(one(R"("dtype":"F32","shape":[2],"data_offsets":[4,12])"), 12),
       "the end of the previous tensor"},
      {file(one(ok), 7), "truncated"},
      {file(one(ok), 9), "do not belong to a tensor"},
      {file("{\"a\":{" + ok + "},\"b\":{" + ok + "}}", 8), "the end of the previous tensor"},
      {file(one(R"("dtype":"U8","shape":[)" + ones + R"(],"data_offsets":[0,1])"), 1), "too many"},
  });
}

// Whatever the bytes: either a refusal, or tensors that lie within the file.
TEST_F(Safetensors, SurvivesMutations) {
  const std::string seed = file(
      R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("i":{"dtype":"I64","shape":[2],"data_offsets":[24,40]}})",
      40);
  const std::string alphabet = "{}[]\",:0123456789-.eE FI\\u\xff";
  std::mt19937 random(7);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  int refused = 0, accepted = 0;
  for (int trial = 0; trial < 10000; ++trial) {
    std::string text = seed;
    for (std::size_t n = 1 + below(4); n > 0 && !text.empty(); --n) switch (below(5)) {
        case 0:
          text[below(text.size())] = static_cast<char>(random());
          break;
        case 1:
          text[below(text.size())] = alphabet[below(alphabet.size())];
          break;
        case 2:
          text.resize(below(text.size()));
          break;
        case 3:
          text.insert(below(text.size()), text.substr(below(text.size()), below(30)));
          break;
        case 4:
          text.erase(below(text.size()), below(8));
          break;
      }
    const std::string said = refusal(text);
    if (said != "accepted") {
      ++refused;
      continue;
    }
    ++accepted;
    io::SafetensorsReader reader(path());
    for (const auto& [name, info] : reader.tensors()) {
      unsigned sum = 0;
      for (auto b : reader.bytes(name)) sum += std::to_integer<unsigned>(b);
      EXPECT_LE(sum, 255u * reader.file_bytes().size());
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(accepted, 10);
}

}  // namespace
}  // namespace tfm
