# Devices and networks that programs know by name: configs/devices and configs/networks, compiled in.
file(GLOB files CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/configs/devices/*.yaml ${CMAKE_CURRENT_SOURCE_DIR}/configs/networks/*.yaml)
set(descriptions "")
foreach(file ${files})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} text)
  cmake_path(GET file STEM LAST_ONLY name)
  cmake_path(GET file PARENT_PATH folder)
  cmake_path(GET folder FILENAME folder)
  string(APPEND descriptions "    {\"${folder}\", \"${name}\", R\"yaml(${text})yaml\"},\n")
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/descriptions.cpp @ONLY CONTENT [[#include "plan/device_file.h"

namespace tfm::plan {
const std::vector<Description>& descriptions() {
  static const std::vector<Description> all = {
@descriptions@};
  return all;
}
}  // namespace tfm::plan
]])
target_sources(tfm_plan PRIVATE ${CMAKE_BINARY_DIR}/descriptions.cpp)
