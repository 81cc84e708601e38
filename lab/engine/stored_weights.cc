#include "lab/engine/stored_weights.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>

#include <cstddef>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "lab/run/json.h"
#include "lab/run/posix_file.h"

namespace planish::lab {

namespace {

// Types that both safetensors and ATen have.
constexpr std::pair<at::ScalarType, const char*> kTypes[] = {
    {at::kDouble, "F64"}, {at::kFloat, "F32"}, {at::kHalf, "F16"},  {at::kBFloat16, "BF16"},
    {at::kLong, "I64"},   {at::kInt, "I32"},   {at::kShort, "I16"}, {at::kChar, "I8"},
    {at::kByte, "U8"},    {at::kBool, "BOOL"}};

std::string TypeName(at::ScalarType type) {
  for (const auto& [key, name] : kTypes) {
    if (key == type) return name;
  }
  throw RunError(fmt::format("a checkpoint cannot store tensors of type {}", c10::toString(type)));
}

}  // namespace

StoredTensor Stored(const std::string& name, const at::Tensor& t) {
  return {name,
          TypeName(t.scalar_type()),
          t.sizes().vec(),
          {static_cast<const std::byte*>(t.const_data_ptr()), t.nbytes()}};
}

at::Tensor ToTensor(const std::filesystem::path& file, const StoredTensor& stored) {
  for (const auto& [type, name] : kTypes) {
    if (stored.dtype != name) continue;
    at::Tensor t = at::empty(stored.shape, type);
    if (t.nbytes() > 0) std::memcpy(t.mutable_data_ptr(), stored.data.data(), t.nbytes());
    return t;
  }
  throw CannotRead(file, fmt::format("{} has the unknown type {}", BriefText(stored.name),
                                     BriefText(stored.dtype)));
}

int64_t ElementsOf(const SafetensorsFile& stored, std::string_view prefix) {
  int64_t elements = 0;
  for (const StoredTensor& t : stored.tensors()) {
    const int64_t width = DtypeWidth(t.dtype);
    if (t.name.starts_with(prefix) && width > 0) elements += std::ssize(t.data) / width;
  }
  return elements;
}

void LoadInto(const std::filesystem::path& file, const SafetensorsFile& stored,
              const std::string& name, const at::Tensor& target) {
  const StoredTensor* from = stored.Find(name);
  if (from == nullptr) {
    throw CannotRead(file, fmt::format("{} is missing: it belongs to another model", name));
  }
  if (from->dtype != TypeName(target.scalar_type()) ||
      at::IntArrayRef(from->shape) != target.sizes()) {
    const auto text = [](const auto& shape) { return nlohmann::json(shape).dump(); };
    throw CannotRead(file, fmt::format("{} must have type {} and shape {}, got {} and {}", name,
                                       TypeName(target.scalar_type()), text(target.sizes().vec()),
                                       from->dtype, text(from->shape)));
  }
  if (target.nbytes() == 0) return;
  const at::Tensor values = target.is_cpu() ? target : at::empty_like(target, at::kCPU);
  std::memcpy(values.mutable_data_ptr(), from->data.data(), target.nbytes());
  if (!target.is_cpu()) target.copy_(values);
}

}  // namespace planish::lab
