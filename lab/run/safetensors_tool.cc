// Reads and writes files for tests/python/test_safetensors.py.
//   safetensors_tool write FILE   writes the tensors that the test expects
//   safetensors_tool read FILE    prints "NAME DTYPE [SHAPE] CRC32" for each tensor, in file order,
//                                 and "KEY=VALUE" for each metadata

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <zlib.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "lab/run/safetensors.h"

namespace planish::lab {
namespace {

template <class T, size_t N>
StoredTensor Tensor(std::string name, std::string dtype, std::vector<int64_t> shape,
                    const T (&values)[N]) {
  return {std::move(name), std::move(dtype), std::move(shape), std::as_bytes(std::span(values))};
}

void Write(const std::string& file) {
  const double f64[] = {0.1, -1e300};
  const float f32[] = {1, 2, 3, 4, 5, 6};
  const uint16_t f16[] = {0x3c00, 0xc000};   // 1, -2
  const uint16_t bf16[] = {0x3f80, 0xc000};  // 1, -2
  const int64_t i64[] = {int64_t{-1} << 62};
  const int32_t i32[] = {-7, 7};
  const int16_t i16[] = {-300};
  const int8_t i8[] = {-128, 127};
  const uint8_t u8[] = {0, 255, 1};
  const uint8_t boolean[] = {1, 0};
  const std::vector<StoredTensor> tensors{Tensor("u8", "U8", {3}, u8),
                                          Tensor("bool", "BOOL", {2}, boolean),
                                          Tensor("i8", "I8", {2, 1}, i8),
                                          Tensor("i16", "I16", {1}, i16),
                                          Tensor("i32", "I32", {2}, i32),
                                          Tensor("i64", "I64", {}, i64),
                                          Tensor("f16", "F16", {2}, f16),
                                          Tensor("bf16", "BF16", {2}, bf16),
                                          Tensor("f32 \"weight\" \u00e9", "F32", {2, 3}, f32),
                                          Tensor("f64", "F64", {2}, f64),
                                          {"empty", "F32", {0, 5}, {}}};
  WriteSafetensors(file, tensors, {{"step", "12"}});
}

void Read(const std::string& file) {
  const SafetensorsFile read = SafetensorsFile::Read(file);
  for (const StoredTensor& tensor : read.tensors()) {
    const auto* data = reinterpret_cast<const Bytef*>(tensor.data.data());
    fmt::print("{} {} [{}] {:08x}\n", tensor.name, tensor.dtype, fmt::join(tensor.shape, ","),
               tensor.data.empty() ? 0 : crc32_z(0, data, tensor.data.size()));
  }
  for (const auto& [key, value] : read.metadata()) fmt::print("{}={}\n", key, value);
}

}  // namespace
}  // namespace planish::lab

int main(int argc, char** argv) try {
  const std::string command = argc == 3 ? argv[1] : "";
  if (command == "write") {
    planish::lab::Write(argv[2]);
  } else if (command == "read") {
    planish::lab::Read(argv[2]);
  } else {
    fmt::print(stderr, "usage: safetensors_tool write|read FILE\n");
    return 2;
  }
  return 0;
} catch (const std::exception& e) {
  fmt::print(stderr, "{}\n", e.what());
  return 1;
}
