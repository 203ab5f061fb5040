#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "io/file.h"
#include "io/json.h"
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
