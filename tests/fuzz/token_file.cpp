// A token file: 16 bits that say how long the .bin is, the .bin, and a Megatron .idx where
// something is left.
#include "data/token_file.h"

#include <algorithm>

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tfm;
  if (size < 2) return 0;
  const std::string_view all = fuzz::text_of(data, size).substr(2),
                         bin = all.substr(0, data[0] + 256u * data[1]);
  const std::string path = fuzz::put("x.bin", bin), index = path.substr(0, path.size() - 3) + "idx";
  std::filesystem::remove(index);
  if (bin.size() < all.size()) fuzz::put("x.idx", all.substr(bin.size()));
  return fuzz::survives([&] {
    const data::TokenFile file(path);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(file.size()));
    file.read(0, ids);
  });
}
