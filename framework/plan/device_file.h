#pragma once
// Descriptions of devices and of networks: files of configs/devices and configs/networks, which
// programs have built in, and those that users write or tfm-bench measures. The same strict YAML as
// a configuration; Error(usage) lists all problems with file, line and column.
#include <string>
#include <vector>

#include "plan/device_model.h"

namespace tfm::plan {

// The name of one that is built in, or the path of a file. Of a processor the rates are those of a
// core, see cpu_model(), and memory_bytes may be 0: this machine's.
DeviceModel load_device(const std::string& name_or_path);
DeviceModel::Link load_network(const std::string& name_or_path);
DeviceModel parse_device(const std::string& text, const std::string& name);
DeviceModel::Link parse_network(const std::string& text, const std::string& name);

// As files of their own.
std::string dump_device(const DeviceModel& device);
std::string dump_network(const std::string& name, const std::string& source,
                         const DeviceModel::Link& network);

std::vector<std::string> built_in_devices();
std::vector<std::string> built_in_networks();

// Of configs/devices or configs/networks, compiled in (framework/cmake/descriptions.cmake).
struct Description {
  std::string_view folder, name, text;
};
const std::vector<Description>& descriptions();

}  // namespace tfm::plan
