#include <gtest/gtest.h>

#include <random>

#include "data/token_file.h"
#include "support/data_files.h"

namespace tfm {
namespace {

using test::all_of;
using test::counting;
using test::expect_error;
using test::Ids;
using test::put;
using test::store;
using test::TemporaryFolder;
using test::write_llmc;
using test::write_megatron;

TEST(TokenFile, LlmcHasTheBytesOfTheFormat) {
  const TemporaryFolder folder;
  const std::string bytes = test::get(write_llmc(folder / "a.bin", {1, 513, 65535}));
  ASSERT_EQ(bytes.size(), 1024u + 6);
  std::string want(1030, '\0');
  store<std::int32_t>(want, 0, 20240520);
  store<std::int32_t>(want, 4, 1);
  store<std::int32_t>(want, 8, 3);
  store<std::uint16_t>(want, 1024, 1);
  store<std::uint16_t>(want, 1026, 513);
  store<std::uint16_t>(want, 1028, 65535);
  EXPECT_EQ(bytes, want);
  const std::string wide = test::get(write_llmc(folder / "b.bin", {65536}, 65537));
  std::string want_wide(1028, '\0');
  store<std::int32_t>(want_wide, 0, 20240801);
  store<std::int32_t>(want_wide, 4, 7);
  store<std::int32_t>(want_wide, 8, 1);
  store<std::uint32_t>(want_wide, 1024, 65536);
  EXPECT_EQ(wide, want_wide);
}

TEST(TokenFile, LlmcRoundTrip) {
  const TemporaryFolder folder;
  std::mt19937 random(1);
  for (std::int64_t vocab : {256, 65536, 65537, 1 << 20}) {
    Ids ids(100000);
    for (auto& id : ids) id = static_cast<std::int32_t>(random() % vocab);
    const data::TokenFile file(write_llmc(folder / "a.bin", ids, vocab));
    EXPECT_EQ(file.info().format, "llm.c");
    EXPECT_EQ(data::name_of(file.info().type), vocab <= 65536 ? "uint16" : "uint32");
    EXPECT_EQ(all_of(file), ids);
    Ids some(7);
    file.read(99993, some);
    EXPECT_EQ(some, Ids(ids.end() - 7, ids.end()));
    EXPECT_THROW(file.read(99994, some), Error);
    EXPECT_THROW(file.read(-1, some), Error);
  }
  EXPECT_EQ(data::TokenFile(write_llmc(folder / "empty.bin", {})).size(), 0);
}

TEST(TokenFile, MegatronHasTheBytesOfTheFormat) {
  const TemporaryFolder folder;
  write_megatron(folder / "a.bin", {{5, 6, 7}, {}, {8}}, 100);
  EXPECT_EQ(test::get(folder / "a.bin"), std::string("\5\0\6\0\7\0\10\0", 8));
  std::string want("MMIDIDX\0\0", 9);
  want.resize(34 + 2 * 12 + 3 * 8);
  store<std::uint64_t>(want, 9, 1);
  want[17] = 8;
  store<std::uint64_t>(want, 18, 2);
  store<std::uint64_t>(want, 26, 3);
  store<std::int32_t>(want, 34, 3);
  store<std::int32_t>(want, 38, 1);
  store<std::int64_t>(want, 42, 0);
  store<std::int64_t>(want, 50, 6);
  for (std::int64_t i = 0; i < 3; ++i) store<std::int64_t>(want, 58 + 8 * i, i);
  EXPECT_EQ(test::get(folder / "a.idx"), want);
}

TEST(TokenFile, MegatronRoundTripByEveryName) {
  const TemporaryFolder folder;
  write_megatron(folder / "a.bin", {counting(5), counting(3, 65490)}, 65500);
  for (const char* name : {"a", "a.bin", "a.idx"}) {
    const data::TokenFile file(folder / name);
    EXPECT_EQ(all_of(file), (Ids{0, 1, 2, 3, 4, 65490, 65491, 65492}));
    EXPECT_EQ(data::name_of(file.info().type), "int32");
    EXPECT_EQ(file.info().sequences, 2);
    EXPECT_EQ(file.info().documents, 2);
  }
}

TEST(TokenFile, ReadsEveryIdTypeOfMegatron) {
  const TemporaryFolder folder;
  const auto check = [&]<class T>(T, int code) {
    write_megatron(folder / "a.bin", {{1, 2}, {100}}, 65499);
    const T ids[] = {1, 2, 100};
    put(folder / "a.bin", std::string(reinterpret_cast<const char*>(ids), sizeof(ids)));
    std::string index = test::get(folder / "a.idx");
    index[17] = static_cast<char>(code);
    store<std::int64_t>(index, 50, 2 * sizeof(T));
    put(folder / "a.idx", index);
    EXPECT_EQ(all_of(data::TokenFile(folder / "a.bin")), (Ids{1, 2, 100})) << code;
    if constexpr (std::is_signed_v<T>) {
      const T bad[] = {1, 2, -3};
      put(folder / "a.bin", std::string(reinterpret_cast<const char*>(bad), sizeof(bad)));
      expect_error(ExitCode::input, {"a.bin", "token 2", "-3"},
                   [&] { all_of(data::TokenFile(folder / "a.bin")); });
    }
  };
  check(std::uint8_t{}, 1);
  check(std::int8_t{}, 2);
  check(std::int16_t{}, 3);
  check(std::int32_t{}, 4);
  check(std::int64_t{}, 5);
  check(std::uint16_t{}, 8);
}

TEST(TokenFile, WritersPublishAllOrNothing) {
  const TemporaryFolder folder;
  put(folder / "a.bin", "old");
  for (data::TokenFormat format : {data::TokenFormat::llmc, data::TokenFormat::megatron}) {
    const auto w = data::make_token_writer(format, folder / "a.bin", 10);
    w->append(counting(10));
    expect_error(ExitCode::input, {"a.bin", "id 10", "vocabulary of 10"}, [&] {
      w->append(Ids{3, 10});
    });
    expect_error(ExitCode::input, {"id -1"}, [&] { w->append(Ids{-1}); });
  }
  EXPECT_EQ(test::get(folder / "a.bin"), "old");
  EXPECT_EQ(folder.files(), 1u);
  expect_error(ExitCode::usage, {"cannot be created"},
               [&] { data::make_token_writer(data::TokenFormat::llmc, folder / "no/a.bin", 10); });
  expect_error(ExitCode::usage, {".bin"},
               [&] { data::make_token_writer(data::TokenFormat::megatron, folder / "a.tok", 10); });
}

TEST(TokenFile, RefusesBrokenLlmc) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.bin", good = test::get(write_llmc(path, counting(100)));
  for (std::size_t size : {0, 3, 4, 8, 12, 1023, 1024, 1025, 1026, 1223}) {
    put(path, good.substr(0, size));
    expect_error(ExitCode::input, {"a.bin", "byte", "expected", "got"},
                 [&] { data::TokenFile f(path); });
  }
  put(path, good + "x");
  expect_error(ExitCode::input, {"byte 1224", "size", "expected 1224 bytes", "got 1225"},
               [&] { data::TokenFile f(path); });
  const auto with = [&](std::size_t at, std::int32_t value,
                        std::initializer_list<std::string> parts) {
    std::string bytes = good;
    store(bytes, at, value);
    put(path, bytes);
    expect_error(ExitCode::input, parts, [&] { data::TokenFile f(path); });
  };
  with(0, 20240522, {"byte 0", "20240520", "20240522"});
  with(4, 2, {"byte 4", "version", "expected 1, got 2"});
  with(4, 7, {"version"});
  with(8, 99, {"expected 100", "got 99"});
  with(8, 101, {"got 101"});
  with(8, 2147483647, {"got 2147483647"});
  with(8, -1, {"got -1"});
  with(0, 20240801, {"expected 7, got 1"});
  expect_error(ExitCode::input, {"missing.bin"},
               [&] { data::TokenFile f(folder / "missing.bin"); });
  expect_error(ExitCode::input, {"regular file"}, [&] { data::TokenFile f(folder.str()); });
  std::string wide = test::get(write_llmc(path, {7}, 70000));
  store<std::uint32_t>(wide, 1024, 0x80000000u);
  put(path, wide);
  expect_error(ExitCode::input, {"token 0", "2147483648"}, [&] { all_of(data::TokenFile(path)); });
}

TEST(TokenFile, RefusesBrokenMegatron) {
  const TemporaryFolder folder;
  write_megatron(folder / "a.bin", {counting(5), counting(3)}, 100);
  const std::string bin = test::get(folder / "a.bin"), index = test::get(folder / "a.idx");
  const auto refused = [&](const std::string& b, const std::string& i,
                           std::initializer_list<std::string> parts) {
    put(folder / "a.bin", b);
    put(folder / "a.idx", i);
    expect_error(ExitCode::input, parts, [&] { data::TokenFile f(folder / "a.idx"); });
  };
  for (std::size_t size = 0; size < index.size(); ++size)
    refused(bin, index.substr(0, size), {"a.idx", "byte", "expected"});
  refused(bin, index + '\0', {"byte 82", "size", "boundaries", "got 83"});
  refused(bin, index + std::string(8, '\0'), {"boundaries"});
  for (std::size_t size = 0; size < bin.size(); ++size)
    refused(bin.substr(0, size), index, {"expected"});
  refused(bin + "x", index, {"a.bin", "size", "17"});
  const auto with = [&]<class T>(std::size_t at, T value,
                                 std::initializer_list<std::string> parts) {
    std::string i = index;
    store(i, at, value);
    refused(bin, i, parts);
  };
  with(0, 'X', {"magic"});
  with(9, std::uint64_t{2}, {"version", "got 2"});
  for (int code : {0, 6, 7, 9, 32, 255})
    with(17, static_cast<char>(code), {"byte 17", "id type", std::to_string(code)});
  with(17, char{4}, {"sequence"});
  for (std::uint64_t n : {std::uint64_t{1}, std::uint64_t{3}, std::uint64_t{1} << 32,
                          std::uint64_t{1} << 61, ~std::uint64_t{0}, (~std::uint64_t{0}) / 12 + 1})
    with(18, n, {"count"});
  for (std::uint64_t n : {std::uint64_t{0}, std::uint64_t{2}, std::uint64_t{4},
                          std::uint64_t{1} << 61, ~std::uint64_t{0}})
    with(26, n, {"boundaries", std::to_string(n)});
  with(26, std::uint64_t{0}, {"expected at least 1, got 0"});
  with(34, std::int32_t{-1}, {"length of sequence 0", "-1"});
  with(34, std::int32_t{2147483647}, {"length of sequence 0"});
  with(38, std::int32_t{4}, {"length of sequence 1", "0 to the 3"});
  with(38, std::int32_t{2}, {"a.bin", "size"});
  with(42, std::int64_t{2}, {"offset of sequence 0"});
  with(50, std::int64_t{-10}, {"offset of sequence 1", "expected 10"});
  with(50, std::int64_t{1} << 62, {"offset of sequence 1"});
  with(58, std::int64_t{1}, {"boundary 0"});
  with(66, std::int64_t{3}, {"boundary 1", "0 to 2"});
  with(74, std::int64_t{0}, {"boundary 2", "1 to 2"});
  put(folder / "a.idx", index);
  std::filesystem::remove(folder / "a.bin");
  expect_error(ExitCode::input, {"a.bin"}, [&] { data::TokenFile f(folder / "a.idx"); });
}

TEST(TokenFile, DocumentStartsLieInTheRangeThatIsAskedFor) {
  const TemporaryFolder folder;
  write_megatron(folder / "a.bin", {counting(3), counting(4), counting(1), counting(2)}, 100);
  const auto starts = [&](std::int64_t begin, std::int64_t end) {
    const data::TokenFile file(folder / "a.bin");
    std::vector<std::int64_t> out;
    file.document_starts(begin, end, out);
    return out;
  };
  using Starts = std::vector<std::int64_t>;
  EXPECT_EQ(starts(0, 10), (Starts{0, 3, 7, 8}));
  EXPECT_EQ(starts(0, 3), (Starts{0}));
  EXPECT_EQ(starts(1, 3), (Starts{}));
  EXPECT_EQ(starts(1, 4), (Starts{3}));
  EXPECT_EQ(starts(3, 8), (Starts{3, 7}));
  EXPECT_EQ(starts(7, 8), (Starts{7}));
  EXPECT_EQ(starts(8, 9), (Starts{8}));
  EXPECT_EQ(starts(9, 10), (Starts{}));
  // The second document is empty once its boundary is the third's.
  std::string index = test::get(folder / "a.idx");
  store<std::int64_t>(index, 34 + 4 * 12 + 8, 2);
  put(folder / "a.idx", index);
  EXPECT_EQ(starts(0, 10), (Starts{0, 7, 8}));
}

TEST(TokenFile, AnIndexThatIsNamedIsRead) {
  const TemporaryFolder folder;
  write_megatron(folder / "a.bin", {counting(5)}, 100);
  write_llmc(folder / "a.bin", counting(7));
  EXPECT_EQ(data::TokenFile(folder / "a.bin").size(), 7);  // begins with the number of llm.c
  expect_error(ExitCode::input, {"a.bin", "size"}, [&] { data::TokenFile f(folder / "a.idx"); });
}

TEST(TokenFile, SurvivesMutatedFiles) {
  const TemporaryFolder folder;
  std::mt19937 random(7);
  write_llmc(folder / "l.bin", counting(20));
  write_megatron(folder / "m.bin", {counting(5), counting(3), counting(1)}, 100);
  const std::string header = test::get(folder / "l.bin"), index = test::get(folder / "m.idx");
  int refused = 0;
  for (int trial = 0; trial < 1000; ++trial) {
    const bool llmc = trial % 2;
    std::string s = llmc ? header : index;
    for (std::size_t k = 1 + random() % 3; k > 0; --k)
      s[random() % (llmc ? 12 : s.size())] =
          static_cast<char>(random() % 3 ? random() : random() % 2 * 255);
    if (random() % 3 == 0) s.resize(random() % (s.size() + 8));
    put(folder / (llmc ? "l.bin" : "m.idx"), s);
    try {
      all_of(data::TokenFile(folder / (llmc ? "l.bin" : "m.idx")));
    } catch (const Error& e) {
      ASSERT_EQ(e.code(), ExitCode::input) << e.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 850);
}

}  // namespace
}  // namespace tfm
