#ifndef PLANISH_LAB_DATA_SHA256_H_
#define PLANISH_LAB_DATA_SHA256_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>

struct evp_md_ctx_st;

namespace planish::lab {

/// SHA-256 (FIPS 180-4) of bytes in pieces. Throws std::runtime_error if OpenSSL cannot provide it.
class Sha256 {
 public:
  Sha256();

  /// Appends `bytes` to the hashed bytes.
  void Update(std::span<const uint8_t> bytes);

  /// Returns the digest of all bytes so far as 64 lower-case hexadecimal digits. More can be
  /// appended later.
  std::string Hex() const;

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_SHA256_H_
