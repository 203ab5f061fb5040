// A safetensors file, read as it is; an input that starts with '{' is a header up to a zero byte,
// then the data.
#include "io/safetensors.h"

#include "fuzz.h"

using namespace tfm;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  const std::string file = text.starts_with('{') ? fuzz::safetensors_of(text) : std::string(text);
  return fuzz::survives([&] {
    const io::SafetensorsReader reader(fuzz::put("x.safetensors", file));
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
        } catch (const Error&) {
        }  // values over 32 bits
      }
    }
  });
}
