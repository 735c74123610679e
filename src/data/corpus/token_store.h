#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace deltanet::data {

// A corpus as one sequence of tokens, documents one after the other, for reading at any place. Any number of threads at
// once.
class TokenStore {
 public:
  virtual ~TokenStore() = default;

  virtual int64_t size() const = 0;        // tokens
  virtual int32_t largest_id() const = 0;  // -1 if it is empty

  // Copies tokens [begin, end) to ids [end - begin].
  virtual void read(int64_t begin, int64_t end, int32_t* ids) const = 0;
  // Where documents start, of the places [begin, end), in order.
  virtual std::vector<int64_t> document_starts(int64_t begin, int64_t end) const = 0;

  // For errors: the corpus, and one of its tokens: "corpus/shard-00001.bin: token 17".
  virtual std::string name() const = 0;
  virtual std::string place(int64_t token) const { return name() + ": token " + std::to_string(token); }

  // Throws Error unless 0 <= begin <= end <= size().
  void check_range(int64_t begin, int64_t end) const;

 protected:
  TokenStore() = default;
  TokenStore(const TokenStore&) = default;
  TokenStore& operator=(const TokenStore&) = default;
};

// Throws Error with the first place whose id a vocabulary of this size does not have.
void check_vocabulary(const TokenStore& store, int64_t vocab_size);

// A store in memory: the tokens, and where documents start (increasing, from 0 on).
std::shared_ptr<const TokenStore> memory_store(std::vector<int32_t> ids, std::vector<int64_t> starts, std::string name);

// Tokens [begin, end) of a store, as a store.
std::shared_ptr<const TokenStore> part_of(std::shared_ptr<const TokenStore> store, int64_t begin, int64_t end);

}  // namespace deltanet::data
