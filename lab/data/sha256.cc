#include "lab/data/sha256.h"

#include <openssl/evp.h>

#include <stdexcept>

namespace planish::lab {

namespace {

void Check(bool ok) {
  if (!ok) throw std::runtime_error("[Sha256] OpenSSL does not provide SHA-256");
}

}  // namespace

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  Check(context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
}

void Sha256::Update(std::span<const uint8_t> bytes) {
  Check(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
}

std::string Sha256::Hex() const {
  const std::unique_ptr<EVP_MD_CTX, Free> copy(EVP_MD_CTX_new());
  Check(copy && EVP_MD_CTX_copy_ex(copy.get(), context_.get()) == 1);
  uint8_t digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  Check(EVP_DigestFinal_ex(copy.get(), digest, &size) == 1);
  std::string hex;
  for (unsigned i = 0; i < size; ++i) {
    hex += "0123456789abcdef"[digest[i] >> 4];
    hex += "0123456789abcdef"[digest[i] & 15];
  }
  return hex;
}

}  // namespace planish::lab
