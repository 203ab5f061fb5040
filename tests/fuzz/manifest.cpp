// A checkpoint's manifest without its checksum, which is made to match.
#include "checkpoint/manifest.h"

#include "fuzz.h"
#include "io/file.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tfm;
  const std::string body(fuzz::text_of(data, size)), whole = body + "\n}";
  const std::string text =
      body + ",\n \"checksum\": \"" + io::Checksum::of(std::as_bytes(std::span(whole))) + "\"\n}\n";
  return fuzz::survives([&] { checkpoint::to_text(checkpoint::from_text("manifest.json", text)); });
}
