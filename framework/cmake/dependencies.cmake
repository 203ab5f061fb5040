# Everything tfm links, as imported targets.
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI REQUIRED COMPONENTS CXX)
find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json REQUIRED)

function(tfm_library target header)  # tfm_library(ns::name header.h lib...): headers only where no lib is given
  string(MAKE_C_IDENTIFIER ${target} id)
  find_path(${id}_INCLUDE ${header} REQUIRED)
  add_library(${target} INTERFACE IMPORTED GLOBAL)
  target_include_directories(${target} SYSTEM INTERFACE ${${id}_INCLUDE})
  foreach(lib ${ARGN})
    find_library(${id}_${lib} ${lib} REQUIRED)
    target_link_libraries(${target} INTERFACE ${${id}_${lib}})
  endforeach()
endfunction()
tfm_library(dnnl::dnnl dnnl.h dnnl)
tfm_library(pcre2::pcre2 pcre2.h pcre2-8)
tfm_library(utf8proc::utf8proc utf8proc.h utf8proc)
tfm_library(xxhash::xxhash xxhash.h xxhash)
tfm_library(httplib::httplib httplib.h)
find_library(TFM_CPP_HTTPLIB cpp-httplib)  # where it is not header-only
if(TFM_CPP_HTTPLIB)
  target_link_libraries(httplib::httplib INTERFACE ${TFM_CPP_HTTPLIB})
endif()
# prometheus-cpp's own config file also wants its HTTP server, which tfm does not use.
tfm_library(prometheus::core prometheus/registry.h prometheus-cpp-core)
