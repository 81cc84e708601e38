#include "lab/data/sha256.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace planish::lab {
namespace {

void Add(Sha256& sha, std::string_view text) {
  sha.Update({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

// Examples of FIPS 180-4's companion (SHA256.pdf) and of NIST's SHAVS short messages.
TEST(Sha256, HashesNothing) {
  EXPECT_EQ(Sha256().Hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Sha256, InOnePieceAndInMany) {
  const std::string text = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
  const std::string digest = "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1";
  Sha256 whole;
  Add(whole, text);
  EXPECT_EQ(whole.Hex(), digest);
  Sha256 pieces;
  for (const char c : text) {
    Add(pieces, {&c, 1});
    Add(pieces, {});
  }
  EXPECT_EQ(pieces.Hex(), digest);
}

TEST(Sha256, HashesAMillionBytes) {
  Sha256 sha;
  Add(sha, std::string(1'000'000, 'a'));
  EXPECT_EQ(sha.Hex(), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, HexLeavesItOpen) {
  Sha256 sha;
  Add(sha, "ab");
  EXPECT_EQ(sha.Hex(), sha.Hex());
  Add(sha, "c");
  EXPECT_EQ(sha.Hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace planish::lab
