#include "io/glob.h"

#include <glob.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "core/error.h"

namespace tfm::io {

std::vector<std::string> expand_glob(const std::string& pattern) {
  std::error_code ignored;
  if (pattern.find_first_of("*?[") == pattern.npos || std::filesystem::exists(pattern, ignored))
    return {pattern};
  glob_t found{};
  static thread_local std::string unreadable;
  const auto end_at = [](const char* directory, int error) {
    unreadable = directory + (": cannot be read: " + std::generic_category().message(error));
    return error == ENOENT || error == ENOTDIR ? 0 : 1;
  };
  const int result = ::glob(pattern.c_str(), 0, end_at, &found);
  std::vector<std::string> files(found.gl_pathv,
                                 found.gl_pathv + (result == 0 ? found.gl_pathc : 0));
  ::globfree(&found);
  if (result == GLOB_ABORTED)
    throw Error(ExitCode::input,
                pattern + ": " + unreadable + "; expected folders that can be read");
  std::erase_if(
      files, [&](const std::string& f) {  // a pattern may match both halves of a Megatron pair
        return f.ends_with(".idx") && std::find(files.begin(), files.end(),
                                                f.substr(0, f.size() - 4) + ".bin") != files.end();
      });
  if (files.empty())
    throw Error(ExitCode::input,
                pattern + ": no file matches this pattern; expected at least one match");
  return files;
}

}  // namespace tfm::io
