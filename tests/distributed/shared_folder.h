#pragma once
// A folder for the runs of a test, the same on all ranks, with a text to train on.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "comm/consensus.h"
#include "comm/mesh.h"

namespace tfm::test {

class SharedFolder {
 public:
  explicit SharedFolder(const comm::Mesh& mesh)
      : mesh_(mesh),
        path_(comm::broadcast(mesh.world(), (std::filesystem::temp_directory_path() /
                                             ("tfm-distributed-" + std::to_string(getpid())))
                                                .string())) {
    if (mesh.rank() == 0) {
      std::filesystem::create_directory(path_);
      std::ofstream text(path_ + "/text.txt");
      for (int i = 0; i < 500; ++i) text << i << " is not " << i + 1 << "\n";
    }
    mesh.world().barrier();
  }
  ~SharedFolder() {
    mesh_.world().barrier();
    if (mesh_.rank() == 0) std::filesystem::remove_all(path_);
  }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  comm::Mesh mesh_;
  std::string path_;
};

}  // namespace tfm::test
