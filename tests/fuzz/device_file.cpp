// A description of a device, or of a network, dumped and read again; a device's figures are used.
#include "plan/device_file.h"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tfm;
  const std::string text(fuzz::text_of(data, size));
  fuzz::survives([&] {
    const plan::DeviceModel device = plan::parse_device(text, "fuzz.yaml");
    const std::string dump = plan::dump_device(device);
    if (plan::dump_device(plan::parse_device(dump, "dump")) != dump)
      std::fputs(dump.c_str(), stderr), std::abort();
    if (!(device.product_seconds({512, 512, 512}, DType::bf16) > 0)) std::abort();
  });
  return fuzz::survives([&] {
    const plan::DeviceModel::Link link = plan::parse_network(text, "fuzz.yaml");
    const std::string dump = plan::dump_network("n", "s", link);
    if (plan::dump_network("n", "s", plan::parse_network(dump, "dump")) != dump)
      std::fputs(dump.c_str(), stderr), std::abort();
  });
}
