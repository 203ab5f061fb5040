// A text file, compressed or not.
#include "io/text_stream.h"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tfm;
  const std::string path = fuzz::put("x.json", fuzz::text_of(data, size));
  return fuzz::survives([&] {
    io::TextStream stream(path);
    char block[999];
    for (int i = 0; i < 1000 && stream.read(block, sizeof block) == sizeof block; ++i) {
    }
  });
}
