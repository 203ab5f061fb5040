#include "comm/mesh.h"

namespace tfm::comm {

Communicator& Mesh::group(AxisSet axes) const {
  const auto& group = groups_[axes.bits()];
  TFM_CHECK(group, "the mesh has no group of axes " + name_of(axes));
  return *group;
}

Mesh Mesh::without(AxisSet axes) const {
  Mesh mesh = *this;
  mesh.layout = layout.without(axes);
  if (axes.contains(Axis::pipeline)) mesh.messages = nullptr;
  return mesh;
}

}  // namespace tfm::comm
