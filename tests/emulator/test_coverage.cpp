// Every kernel that is declared for cuda::Stream is called by a test in this folder.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>

namespace tfm::test {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::set<std::string> matches(const std::string& folder, const std::set<std::string>& extensions,
                              const std::regex& pattern) {
  std::set<std::string> names;
  for (const auto& file :
       std::filesystem::directory_iterator(std::string(TFM_SOURCE_DIR) + folder)) {
    if (!extensions.contains(file.path().extension().string()) ||
        file.path().stem() == "test_coverage")
      continue;
    const std::string text = text_of(file.path());
    for (std::sregex_iterator m(text.begin(), text.end(), pattern), end; m != end; ++m)
      names.insert((*m)[1]);
  }
  return names;
}

TEST(DeviceKernels, EachHasACaseOnTheEmulator) {
  const auto declared =
      matches("/framework/kernels", {".h"}, std::regex(R"((?:void|bool) (\w+)\(\s*cuda::Stream&)"));
  const auto called = matches("/tests/emulator", {".cpp", ".h"},
                              std::regex(R"((\w+)\(\s*(?:s|device_stream\(\)|D::stream\(\)),)"));
  EXPECT_GE(declared.size(), 20u);
  for (const std::string& name : declared)
    EXPECT_TRUE(called.contains(name)) << name << " of cuda::Stream has no case in tests/emulator";
}

}  // namespace
}  // namespace tfm::test
