#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "io/file.h"
#include "io/glob.h"
#include "io/json.h"
#include "io/protobuf.h"
#include "support/data_files.h"

namespace tfm {
namespace {

using test::expect_error;
using test::get;
using test::put;
using test::TemporaryFolder;

TEST(AtomicFile, AppearsWholeOrNotAtAll) {
  const TemporaryFolder folder;
  put(folder / "a", "old");
  put(folder / "a.tmp", "what a killed writer left, longer than the new text");
  {
    io::AtomicFile file(folder / "a");
    file.write("0new", 4);
    file.overwrite(0, "1", 1);
    EXPECT_EQ(get(folder / "a"), "old");
    EXPECT_EQ(get(folder / "a.tmp"), "1new");  // the name that checkpoint::clean() removes
    file.publish();
  }
  EXPECT_EQ(get(folder / "a"), "1new");
  { io::AtomicFile(folder / "a").write("lost", 4); }
  EXPECT_EQ(get(folder / "a"), "1new");
  io::replace_file(folder / "a", "");
  EXPECT_EQ(get(folder / "a"), "");
  EXPECT_EQ(folder.files(), 1u);
  expect_error(ExitCode::usage, {"no/a", "cannot be created", "existing directory"},
               [&] { io::replace_file(folder / "no/a", "x"); });
  std::filesystem::create_directory(folder / "d");
  expect_error(ExitCode::usage, {"d: is a directory; choose a file"},
               [&] { io::replace_file(folder / "d", "x"); });
  std::filesystem::create_directory(folder / "b.tmp");
  expect_error(ExitCode::retryable, {"b", "cannot be created"},
               [&] { io::replace_file(folder / "b", "x"); });
}

TEST(AtomicFile, HasOneWriterAtATime) {
  const TemporaryFolder folder;
  auto file = std::make_unique<io::AtomicFile>(folder / "a");
  const std::string large(3 << 20, 'x');  // more than a buffer
  file->write(large.data(), large.size());
  std::thread other([&] { io::replace_file(folder / "a", "another writer"); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  file->write("end", 3);
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
  file->publish();
  file.reset();
  other.join();
  EXPECT_EQ(get(folder / "a"), "another writer");
  EXPECT_EQ(folder.files(), 1u);
}

TEST(AtomicFile, FollowsLinksAndRefusesWhatIsNoFile) {
  const TemporaryFolder folder;
  put(folder / "a", "old");
  std::filesystem::create_symlink("a", folder / "link");
  io::replace_file(folder / "link", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(get(folder / "a"), "new");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect_error(ExitCode::usage, {"pipe: is not a regular file", "choose a file"},
               [&] { io::replace_file(folder / "pipe", "x"); });
  io::copy_file(folder / "a", folder / "b");
  EXPECT_EQ(get(folder / "b"), "new");
  std::filesystem::create_symlink("a", folder / "c.tmp");
  expect_error(ExitCode::usage, {"c.tmp"}, [&] { io::replace_file(folder / "c", "x"); });
  EXPECT_EQ(get(folder / "a"), "new");
  EXPECT_EQ(folder.files(), 5u);
}

TEST(CreateDirectories, MakesWhatIsMissingOrSaysWhatIsInTheWay) {
  const TemporaryFolder folder;
  for (int again = 0; again < 2; ++again) io::create_directories(folder / "a/b/c");
  EXPECT_TRUE(std::filesystem::is_directory(folder / "a/b/c"));
  put(folder / "file", "");
  for (const char* path : {"file", "file/x"})
    expect_error(ExitCode::usage, {path, "cannot be created", "choose a directory"},
                 [&] { io::create_directories(folder / path); });
}

TEST(AtomicFile, AFileThatMayNotGrowIsAnErrorToRetryAndLeavesTheOldOne) {
  const TemporaryFolder folder;
  put(folder / "a", "old");
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    int code = 0;
    try {
      io::replace_file(folder / "a", std::string(2000, 'x'));
    } catch (const Error& e) {
      code = std::string(e.what()).find("cannot be written after 1000 bytes") != std::string::npos
                 ? static_cast<int>(e.code())
                 : 1;
    }
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 75);
  EXPECT_EQ(get(folder / "a"), "old");
  EXPECT_EQ(folder.files(), 1u);
}

TEST(AtomicFile, WritesOfAnySizeStayInOrder) {
  const TemporaryFolder folder;
  std::string all;
  {
    io::AtomicFile file(folder / "a");
    for (const std::size_t bytes : {5u, 1u << 20, 7u, (1u << 20) - 7, 1u, (1u << 20) + 1, 3u}) {
      const std::string part(bytes, static_cast<char>('a' + all.size() % 26));
      file.write(part.data(), part.size());
      all += part;
    }
    file.publish();
  }
  EXPECT_TRUE(get(folder / "a") == all);
}

TEST(Files, AreReadWholeUpToALimit) {
  const TemporaryFolder folder;
  put(folder / "a", "12345");
  put(folder / "empty", "");
  EXPECT_EQ(io::read_whole_file(folder / "a", 5), "12345");
  EXPECT_EQ(io::read_whole_file(folder / "empty", 0), "");
  expect_error(ExitCode::input, {"a: the file is too large", "at most 4 bytes, got 5"},
               [&] { io::read_whole_file(folder / "a", 4); });
  expect_error(ExitCode::input, {"none: cannot be opened"},
               [&] { io::read_whole_file(folder / "none", 4); });
  expect_error(ExitCode::input, {"is not a regular file"},
               [&] { io::read_whole_file(folder.str(), 4); });
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect_error(ExitCode::input, {"pipe: is not a regular file"},
               [&] { io::read_whole_file(folder / "pipe", 4); });
}

TEST(Files, AreRemovedOnceAndNamed) {
  const TemporaryFolder folder;
  put(folder / "a", "x");
  io::remove_file(folder / "a");
  io::remove_file(folder / "a");
  EXPECT_EQ(folder.files(), 0u);
  expect_error(ExitCode::retryable, {"cannot be removed"}, [&] { io::remove_file(folder.str()); });
  expect_error(ExitCode::retryable, {"cannot be renamed to"},
               [&] { io::rename_file(folder / "a", folder / "b"); });
  for (const auto& [path, parent] : std::vector<std::pair<std::string, std::string>>{
           {"a", "."}, {"/a", "/"}, {"a/b", "a"}, {"/a/b/c", "/a/b"}})
    EXPECT_EQ(io::parent_directory(path), parent);
  expect_error(ExitCode::usage, {"is empty"}, [] { io::replace_file("", "x"); });
  expect_error(ExitCode::usage, {"is empty"}, [] { io::create_directories(""); });
}

// The whole page is gone: the process says whose it was, and may be started again.
TEST(Files, ThatAreCutUnderTheProcessEndIt) {
  const TemporaryFolder folder;
  put(folder / "cut", std::string(3 << 14, 'x'));
  const auto read_cut = [&] {
    const io::MappedFile other(folder / "cut"), file(folder / "cut");
    std::filesystem::resize_file(folder / "cut", 0);
    const volatile std::byte* at = file.bytes().data() + (1 << 14);
    std::_Exit(static_cast<int>(*at) == 'x' ? 0 : 1);
  };
  EXPECT_EXIT(read_cut(), testing::ExitedWithCode(75), "cut: cannot be read: it was cut");
}

TEST(Checksum, IsXxh3Of128Bits) {
  EXPECT_EQ(io::Checksum::of({}), "99aa06d3014798d86001c324468d497f");
  const std::string text = "the quick brown fox";
  const auto bytes = std::as_bytes(std::span(text));
  io::Checksum parts;
  parts.add(bytes.first(5));
  parts.add({});
  parts.add(bytes.subspan(5));
  EXPECT_EQ(parts.hex(), io::Checksum::of(bytes));
  EXPECT_EQ(parts.hex().substr(0, 16), [&] {
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx",
                  static_cast<unsigned long long>(parts.first_word()));
    return std::string(digits);
  }());
}

TEST(Glob, GivesFilesInOrderAndPairsOnce) {
  const TemporaryFolder folder;
  for (const char* name : {"b.bin", "b.idx", "a.bin", "c.idx", "x[1]"}) put(folder / name, "");
  const auto names = [&](const std::string& pattern) {
    std::string all;
    for (const std::string& f : io::expand_glob(folder / pattern))
      all += (all.empty() ? "" : " ") + std::filesystem::path(f).filename().string();
    return all;
  };
  EXPECT_EQ(names("*"), "a.bin b.bin c.idx x[1]");
  EXPECT_EQ(names("*.idx"), "b.idx c.idx");
  EXPECT_EQ(names("?.bin"), "a.bin b.bin");
  EXPECT_EQ(names("[ac].*"), "a.bin c.idx");
  EXPECT_EQ(names("none"), "none") << "no pattern: whoever reads it says that it is missing";
  EXPECT_EQ(names("x[1]"), "x[1]") << "a file of that very name";
  for (const char* pattern : {"*.txt", "none/*", "a.bin/*"})
    expect_error(ExitCode::input, {pattern, "no file matches"}, [&] { names(pattern); });
}

TEST(Protobuf, FieldsComeBack) {
  const std::string message = io::ProtobufWriter()
                                  .number(1, 127)
                                  .number(2, 128)
                                  .number(300, ~0ull)
                                  .bytes(4, "")
                                  .bytes(5, "abc")
                                  .real(6, -1.5f)
                                  .wide_real(7, 2.5)
                                  .number(8, 0)
                                  .text();
  EXPECT_EQ(message.substr(0, 5), std::string("\x08\x7F\x10\x80\x01", 5));
  io::ProtobufReader r(message, "here: ");
  std::vector<std::uint64_t> fields;
  const auto of_another_type = [&](auto&& read) {
    expect_error(ExitCode::input, {"here: field", "unexpected type"}, read);
  };
  while (r.next()) {
    fields.push_back(r.field());
    switch (r.field()) {
      case 1:
        EXPECT_EQ(r.number(), 127u);
        break;
      case 2:
        EXPECT_EQ(r.number(), 128u);
        break;
      case 300:
        EXPECT_EQ(r.number(), ~0ull);
        break;
      case 4:
        EXPECT_EQ(r.bytes(), "");
        break;
      case 5:
        EXPECT_EQ(r.bytes(), "abc");
        of_another_type([&] { (void)r.number(); });
        break;
      case 6:
        EXPECT_EQ(r.real(), -1.5f);
        of_another_type([&] { (void)r.bytes(); });
        break;
      case 7:
        of_another_type([&] { (void)r.real(); });
        break;
      default:
        EXPECT_EQ(r.number(), 0u);
    }
  }
  EXPECT_EQ(fields, (std::vector<std::uint64_t>{1, 2, 300, 4, 5, 6, 7, 8}));
  const std::string ten(9, '\xFF');
  for (const auto& [text, problem] : std::vector<std::pair<std::string, std::string>>{
           {"\x08", "a number is truncated"},
           {"\x08\x80", "a number is truncated"},
           {"\x08" + ten + "\xFF\x01", "longer than 10 bytes"},
           {std::string("\x02\x00", 2), "number 0"},
           {"\x12\x04"
            "abc",
            "a field of 4 bytes, but only 3 remain"},
           {"\x15"
            "abc",
            "a field of 4 bytes, but only 3 remain"},
           {"\x11"
            "abcdefg",
            "a field of 8 bytes, but only 7 remain"},
           {"\x0B", "unknown field type"}})
    expect_error(ExitCode::input, {problem}, [&] {
      io::ProtobufReader broken(text, "");
      while (broken.next()) {
      }
    });
  io::ProtobufReader longest("\x08" + ten + "\x01", "");
  ASSERT_TRUE(longest.next());
  EXPECT_EQ(longest.number(), ~0ull);
}

TEST(Json, MembersHaveTheirTypeAndPlace) {
  const nlohmann::json tree = io::parse_json(
      R"({"a": {"b": [1, "x", -5]}, "none": null, "t": true, "big": 18446744073709551615,)"
      R"( "real": 0.5})",
      "file");
  const io::JsonNode root(tree, "file");
  EXPECT_FALSE(root.find("none")) << "null is absent";
  EXPECT_FALSE(root.find("other"));
  EXPECT_TRUE(root.flag("none", true));
  EXPECT_FALSE(root.flag("none", false));
  EXPECT_TRUE(root.flag("t", false));
  EXPECT_EQ(root.text("none", "else"), "else");
  EXPECT_EQ(root.at("a").at("b").items()[0].integer(1, 1), 1);
  EXPECT_EQ(root.at("a").at("b").items()[2].integer(-5, 0), -5);
  EXPECT_EQ(root.at("big").unsigned_integer(), ~0ull);
  EXPECT_EQ(root.at("real").number(), 0.5);
  EXPECT_EQ(root.at("a").object(), R"({"b":[1,"x",-5]})");
  EXPECT_EQ(root.members().size(), 5u);
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  using F = std::function<void()>;
  for (const auto& [what, problem] : std::vector<std::pair<F, std::string>>{
           {[&] { root.at("none"); }, "file: member \"none\" is missing"},
           {[&] { root.at("a").at("b").items()[1].integer(0, 9); },
            "file: a.b[1]: expected an "
            "integer from 0 to 9, got"},
           {[&] { root.at("a").at("b").items()[0].integer(2, 9); }, "a.b[0]"},
           {[&] { root.at("a").at("b").items()[0].integer(-9, 0); }, "a.b[0]"},
           {[&] { root.at("a").at("b").items()[2].unsigned_integer(); }, "a.b[2]"},
           {[&] { root.at("big").integer(0, kMost); }, "big: expected an integer"},
           {[&] { root.at("big").integer(-9, 9); }, "big: expected an integer"},
           {[&] { root.at("real").integer(0, 9); }, "real: expected an integer"},
           {[&] { (void)root.at("t").string(); }, "t: expected a string"},
           {[&] { root.at("t").number(); }, "t: expected a number"},
           {[&] { root.at("real").boolean(); }, "real: expected true or false"},
           {[&] { root.at("t").items(); }, "t: expected an array"},
           {[&] { root.at("t").members(); }, "t: expected an object"},
           {[&] { (void)root.at("t").find("x"); }, "t: expected an object"},
           {[&] { (void)root.at("t").object(); }, "t: expected an object"},
           {[&] {
              root.at("a").expect_only({"c", "d"});
            },
            "a: member 'b' is not supported"}})
    expect_error(ExitCode::input, {problem}, what);
  root.at("a").expect_only({"b"});
}

TEST(Json, IsReadStrictly) {
  const auto dumped = [](const std::string& text) { return io::parse_json(text, "here").dump(); };
  EXPECT_EQ(dumped("[1, -2, 0.5, null, true, {\"a\": {\"b\": [\"c\"]}, \"b\": {}}]"),
            "[1,-2,0.5,null,true,{\"a\":{\"b\":[\"c\"]},\"b\":{}}]");
  const std::string deep = std::string(64, '[') + std::string(64, ']');
  EXPECT_EQ(dumped(deep), deep);
  for (const auto& [text, problem] : std::vector<std::pair<std::string, std::string>>{
           {"{\"a\": 1, \"b\": {}, \"a\": 1}", "'a' appears twice"},
           {"[{\"k\": {\"c\": 1, \"c\": 2}}]", "'c' appears twice"},
           {std::string(65, '[') + std::string(65, ']'), "deeper than 64"},
           {std::string(100000, '['), "deeper than 64"},
           {"{\"a\": 1e999}", "invalid JSON"},
           {"[1] [2]", "invalid JSON"},
           {"[1,]", "invalid JSON"},
           {"\"\xFF\"", "invalid JSON"},
           {"", "invalid JSON"}})
    expect_error(ExitCode::input, {"here", problem}, [&] { io::parse_json(text, "here"); });
}

}  // namespace
}  // namespace tfm
