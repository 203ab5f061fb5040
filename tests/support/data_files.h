#pragma once
// Small files for the tests of data/.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "data/token_file.h"

namespace tfm::test {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "tfm_data_XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("mkdtemp");
    path_ = name;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string str() const { return path_.string(); }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path_),
                                                  std::filesystem::directory_iterator{}));
  }

 private:
  std::filesystem::path path_;
};

inline std::string put(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
  return path;
}
inline std::string get(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}
// The tensors of a checkpoint, file by file.
inline std::string checkpoint_bytes(const std::string& folder) {
  std::set<std::string> files;
  for (const auto& f : std::filesystem::directory_iterator(folder))
    if (f.path().extension() == ".safetensors") files.insert(f.path());
  std::string all;
  for (const std::string& f : files) all += get(f);
  return all;
}
template <class T>
void store(std::string& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

// f() must throw Error with this code and a message that holds every part.
template <class F>
void expect_error(ExitCode code, std::initializer_list<std::string> parts, F&& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(static_cast<int>(e.code()), static_cast<int>(code)) << e.what();
    for (const std::string& part : parts)
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos)
          << "no '" << part << "' in: " << e.what();
    return;
  }
  ADD_FAILURE() << "no error was thrown";
}

using Ids = std::vector<std::int32_t>;
inline Ids all_of(const data::TokenStream& s) {
  Ids ids(static_cast<std::size_t>(s.size()));
  s.read(0, ids);
  return ids;
}
inline Ids counting(std::int32_t n, std::int32_t first = 0) {
  Ids ids(n);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}
inline std::string write_llmc(const std::string& path, const Ids& ids, std::int64_t vocab = 65536) {
  const auto w = data::make_token_writer(data::TokenFormat::llmc, path, vocab);
  w->append(ids);
  w->publish();
  return path;
}
inline std::string write_megatron(const std::string& path, const std::vector<Ids>& documents,
                                  std::int64_t vocab) {
  const auto w = data::make_token_writer(data::TokenFormat::megatron, path, vocab);
  for (const Ids& d : documents) {
    w->append(d);
    w->end_document();
  }
  w->publish();
  return path;
}

}  // namespace tfm::test
