#include "lab/engine/device.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "lab/error.h"

namespace planish::lab {
namespace {

std::string ErrorOf(const std::string& name) {
  try {
    ParseDevice(name);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

TEST(Device, CpuIsParsed) { EXPECT_EQ(ParseDevice("cpu"), at::Device(at::kCPU)); }

TEST(Device, OtherNamesAreErrors) {
  for (const std::string name :
       {"", "gpu", "cuda:", "cuda:-1", "cuda:1x", "cuda 0", "CUDA", "mps"}) {
    EXPECT_EQ(ErrorOf(name), "[train] --device must be cpu, cuda or cuda:N, got \"" + name + "\"");
  }
}

TEST(Device, GpuWithoutCudaIsAnError) {
  if (at::globalContext().hasCUDA()) GTEST_SKIP() << "this libtorch has CUDA";
  for (const std::string name : {"cuda", "cuda:0", "cuda:7"}) {
    EXPECT_EQ(ErrorOf(name), "[train] --device " + name +
                                 " needs a libtorch with CUDA and a GPU; this one computes on the "
                                 "CPU");
  }
}

TEST(ToDevice, TensorsOfTheDeviceAreNotCopied) {
  const at::Tensor t = at::ones({2});
  EXPECT_TRUE(ToDevice(t, at::kCPU).is_same(t));
  EXPECT_FALSE(ToDevice(at::Tensor(), at::kCPU).defined());
  const auto list = ToDevice({t, {}}, at::kCPU);
  EXPECT_TRUE(list[0].is_same(t));
  EXPECT_FALSE(list[1].defined());
}

}  // namespace
}  // namespace planish::lab
