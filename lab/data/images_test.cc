#include "lab/data/images.h"

#include <gtest/gtest.h>

#include "lab/data/sha256.h"
#include "lab/data/test_files.h"

namespace planish::lab {
namespace {

std::string HashText(const std::string& text) {
  Sha256 sha;
  sha.Update({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  return sha.Hex();
}

TEST(HashImages, IsThatOfTheIdxFiles) {
  const Images train{
      .count = 2, .height = 1, .width = 3, .pixels = {1, 2, 3, 4, 5, 6}, .labels = {8, 9}};
  const Images test{.count = 1, .height = 2, .width = 1, .pixels = {7, 255}, .labels = {0}};
  EXPECT_EQ(HashImages(train, test),
            HashText(Idx({0x803, 2, 1, 3}, "\1\2\3\4\5\6") + Idx({0x801, 2}, "\10\11") +
                     Idx({0x803, 1, 2, 1}, "\7\377") + Idx({0x801, 1}, std::string(1, '\0'))));
}

TEST(HashImages, HashesTheHeadersOfEmptySets) {
  EXPECT_EQ(HashImages({}, {}),
            HashText(Idx({0x803, 0, 0, 0, 0x801, 0, 0x803, 0, 0, 0, 0x801, 0}, "")));
}

}  // namespace
}  // namespace planish::lab
