#ifndef PLANISH_LAB_ENGINE_STORED_WEIGHTS_H_
#define PLANISH_LAB_ENGINE_STORED_WEIGHTS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "lab/run/safetensors.h"

// Tensors of ATen in safetensors files.
namespace planish::lab {

/// Returns `t`, contiguous and on the CPU, for WriteSafetensors; shares its memory. Throws RunError
/// for a type that safetensors does not have.
StoredTensor Stored(const std::string& name, const at::Tensor& t);

/// Returns a stored tensor as a tensor of its own. Throws RunError naming `file` for a type that
/// ATen does not have.
at::Tensor ToTensor(const std::filesystem::path& file, const StoredTensor& stored);

/// Returns the number of elements of the tensors whose names begin with `prefix`.
int64_t ElementsOf(const SafetensorsFile& stored, std::string_view prefix);

/// Copies the tensor `name` of `stored`, read from `file`, over `target`, on any device. Throws
/// RunError naming file and tensor if it is missing, or if its type or shape is another one.
void LoadInto(const std::filesystem::path& file, const SafetensorsFile& stored,
              const std::string& name, const at::Tensor& target);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_STORED_WEIGHTS_H_
