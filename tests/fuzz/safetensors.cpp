// A safetensors file, read as it is; an input that starts with '{' is a header up to a zero byte, then the data.
#include "core/safetensors.h"
#include "fuzz.h"

using namespace tfm;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string file(fuzz::text_of(data, size));
  if (file.starts_with('{')) {
    const std::size_t header = std::min(file.find('\0'), file.size());
    std::string length(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(header >> (8 * i));
    file = length + file.erase(header, 1);
  }
  return fuzz::survives([&] {
    const SafetensorsReader reader(fuzz::put("x.safetensors", file));
    for (const auto& [name, info] : reader.tensors()) {
      const auto bytes = reader.bytes(name);
      const std::vector<std::byte> copy(bytes.begin(), bytes.end());
      if (const auto type = info.type(); type == DType::f32 || type == DType::f64) {
        reader.read<float>(name);
        reader.read<double>(name);
      } else if (type) {
        reader.read<std::int64_t>(name);
        try {
          reader.read<std::int32_t>(name);
        } catch (const Error&) {}  // values over 32 bits
      }
    }
  });
}
