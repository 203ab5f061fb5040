#include <gtest/gtest.h>
#include <malloc.h>

#include <random>

#include "io/text_stream.h"
#include "support/compressed.h"
#include "support/data_files.h"

namespace tfm {
namespace {

using namespace std::string_literals;
using test::expect_error;
using test::put;
using test::TemporaryFolder;

using test::gzip;
using test::zstandard;

std::string read_all(const std::string& path, std::size_t block = 100003) {
  io::TextStream stream(path);
  std::string all, part(block, '\0');
  for (std::size_t n = block; n == block; all.append(part, 0, n))
    n = stream.read(part.data(), block);
  return all;
}

std::string words(std::size_t bytes) {
  std::mt19937 random(3);
  std::string text;
  while (text.size() < bytes) text += "some words, café\n" + std::to_string(random());
  return text;
}

TEST(TextStream, DecompressesByContentWhateverTheName) {
  const TemporaryFolder folder;
  for (const std::string& text : {std::string(), std::string("a"), words(3000000)})
    for (const char* name : {"t", "t.txt", "t.gz", "t.zst"}) {
      EXPECT_EQ(read_all(put(folder / name, text)), text);
      EXPECT_EQ(read_all(put(folder / name, gzip(text))), text) << name;
      EXPECT_EQ(read_all(put(folder / name, zstandard(text))), text) << name;
    }
  EXPECT_EQ(read_all(put(folder / "t", gzip("small")), 1), "small");
  EXPECT_EQ(read_all(put(folder / "t", zstandard("small")), 1), "small");
}

TEST(TextStream, ReadsAllMembersAndFrames) {
  const TemporaryFolder folder;
  const std::string a = words(200000), b = "and the rest";
  EXPECT_EQ(read_all(put(folder / "t", gzip(a) + gzip("") + gzip(b))), a + b);
  EXPECT_EQ(read_all(put(folder / "t", gzip(a) + gzip(b) + std::string(512, '\0'))), a + b);
  EXPECT_EQ(read_all(put(folder / "t", zstandard(a) + zstandard("") + zstandard(b))), a + b);
  const std::string skipped = "\x50\x2A\x4D\x18\x04\x00\x00\x00skip"s;
  EXPECT_EQ(read_all(put(folder / "t", skipped + zstandard(b) + skipped)), b);
}

TEST(TextStream, EveryTruncationAndChangedByteIsAnError) {
  const TemporaryFolder folder;
  for (const std::string& whole :
       {gzip("one line\n") + gzip("and more"), zstandard("one line\n") + zstandard("and more")}) {
    const std::string text = "one line\nand more";
    const std::size_t members =
        (whole[0] == '\x1F' ? gzip("one line\n") : zstandard("one line\n")).size();
    for (std::size_t size = 4; size < whole.size(); ++size) {
      if (size == members) continue;  // a whole file with one member
      put(folder / "cut.gz", whole.substr(0, size));
      expect_error(ExitCode::input, {"cut.gz", "truncated"}, [&] { read_all(folder / "cut.gz"); });
    }
    expect_error(ExitCode::input, {"damaged"},
                 [&] { read_all(put(folder / "t", whole + "garbage")); });
    for (std::size_t at = 10; at < members; ++at) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
      put(folder / "t", damaged);
      try {
        EXPECT_EQ(read_all(folder / "t"), text) << at;  // a byte that means nothing
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ExitCode::input) << e.what();
        EXPECT_NE(std::string(e.what()).find(folder / "t"), std::string::npos) << e.what();
      }
    }
  }
}

TEST(TextStream, MemoryDoesNotGrowWithTheFile) {
  const TemporaryFolder folder;
  const std::string block(std::size_t{1} << 24, 'x');
  std::string members, frames;
  for (int i = 0; i < 32; ++i) members += gzip(block), frames += zstandard(block);
  put(folder / "t.gz", members);
  put(folder / "t.zst", frames);
  const auto allocated = [] {
    const auto m = ::mallinfo2();
    return m.uordblks + m.hblkhd;
  };
  const std::size_t before = allocated();
  std::string part(1 << 20, '\0');
  for (const char* name : {"t.gz", "t.zst"}) {
    io::TextStream stream(folder / name);
    std::size_t all = 0;
    while (const std::size_t n = stream.read(part.data(), part.size())) {
      all += n;
      ASSERT_LT(allocated(), before + (16 << 20)) << name;
    }
    EXPECT_EQ(all, block.size() * 32);
  }
}

TEST(TextStream, RefusesWhatIsNotTextWithTheCommandThatConvertsIt) {
  const TemporaryFolder folder;
  struct Case {
    std::string name, content, what, command;
  };
  const std::string more = " more of the file than its first bytes", path = folder.str() + "/";
  const std::vector<Case> cases = {
      {"a.parquet", "PAR1" + more, "Parquet", "read_parquet(sys.argv[1])"},
      {"a.arrow", "ARROW1\0\0"s + more, "Arrow", path + "a.arrow " + path + "a.jsonl"},
      {"b.arrow", "\xFF\xFF\xFF\xFF\x90\x01\0\0"s, "Arrow IPC stream", "open_stream"},
      {"a.npy", "\x93NUMPY\x01\0"s, "NumPy", "numpy.load"},
      {"a.h5", "\x89HDF\r\n\x1A\n" + more, "HDF5", "read_hdf"},
      {"a.zip", "PK\x03\x04" + more, "zip", "unzip -p " + path + "a.zip > " + path + "a.txt"},
      {"a.txt.xz", "\xFD\x37zXZ\0"s + more, "xz",
       "xz -dc " + path + "a.txt.xz > " + path + "a.txt"},
      {"a b.bz2", "BZh91AY&SY" + more, "bzip2",
       "bzip2 -dc '" + path + "a b.bz2' > '" + path + "a b'"},
      {"xz", "\xFD\x37zXZ\0"s + more, "xz", "xz -dc " + path + "xz > " + path + "xz.out"},
      {"program",
       "\x7F"
       "ELF\x02",
       "ELF", ""},
      {"a.dat", "text and \0 more"s, "byte 9 is NUL", ""},
      {"wide.txt", "\xFF\xFEh\0i\0"s, "UTF-16", "iconv -f UTF-16 -t UTF-8"},
      {"big.txt", "\xFE\xFF\0h"s, "UTF-16", "iconv -f UTF-16 -t UTF-8"},
      {"wider.txt", "\xFF\xFE\0\0h\0\0\0"s, "UTF-32", "iconv -f UTF-32 -t UTF-8"},
      {"a.json", " \n[{\"text\": 1}]", "JSON",
       "jq -c '.[]' " + path + "a.json > " + path + "a.jsonl"},
      {"o.JSON", "{\n\"text\": 1}\n", "JSON object of several lines",
       "jq -c . " + path + "o.JSON > " + path + "o.JSONl"},
      {"o.json", "{\"text\": [\n1]}\n", "JSON", "jq -c . " + path + "o.json > " + path + "o.jsonl"},
      {"a.json.gz", gzip("[1]"), "JSON",
       "gzip -dc " + path + "a.json.gz | jq -c '.[]' > " + path + "a.jsonl"},
      {"a.tar.gz", gzip(std::string(257, 'n') + "ustar" + more), "tar", "tar -xOf"},
      {"a.parquet.zst", zstandard("PAR1" + more), "Parquet", ""},
      {"a.gz.gz", gzip(gzip(more)), "twice", "gzip -dc"}};
  for (const Case& c : cases)
    expect_error(ExitCode::input, {c.name, c.what, c.command},
                 [&] { read_all(put(folder / c.name, c.content)); });
  for (const data::TokenFormat format : {data::TokenFormat::llmc, data::TokenFormat::megatron})
    for (const std::int64_t vocab : {100, 100000}) {
      const auto w = data::make_token_writer(format, folder / "t.bin", vocab);
      w->append(test::counting(50));
      w->end_document();
      w->publish();
      expect_error(ExitCode::input, {"t.bin", "type: tokens"}, [&] { read_all(folder / "t.bin"); });
    }
  expect_error(ExitCode::input, {"t.idx", "type: tokens"}, [&] { read_all(folder / "t.idx"); });
  expect_error(ExitCode::input, {folder.str(), "directory"}, [&] { read_all(folder.str()); });
  expect_error(ExitCode::input, {"gone", "No such file"}, [&] { read_all(folder / "gone"); });
}

TEST(TextStream, TakesTextThatLooksLikeSomethingElse) {
  const TemporaryFolder folder;
  for (const std::string& text :
       {"PAR 1"s, "BZh9 is how bzip2 files begin"s, "P"s, "{\"text\": 1}"s,
        "\xEF\xBB\xBFwith a mark"s, "caf\xE9 in Latin-1"s,
        std::string(65536, 'x') + "\0 after 64 KiB"s})
    EXPECT_EQ(read_all(put(folder / "t.txt", text)), text);
  EXPECT_EQ(read_all(put(folder / "prose.json", "not JSON")), "not JSON");
  const std::string lines = "{\"text\": 1}\n{}\n";
  EXPECT_EQ(read_all(put(folder / "lines.json", lines)), lines);
}

}  // namespace
}  // namespace tfm
