/* The native kernel: everything that must touch each message of a batch.
 *
 * In the order of this file: the batch layout, XXH3-64, the frame walk, then one section for each
 * Python function. twin.py holds the same functions in Python; tests hold the two equal, errors
 * included, so checks are made in the same order in both.
 *
 * Rules. No Python object is touched inside a loop over a batch, except that `split` fills those that
 * it made for its result. Inputs of 64 KiB and more are worked on
 * without the interpreter lock, so another thread may change the bytes meanwhile: each length is
 * read once, into a local, and the local is what is checked and used. A changed byte may then
 * give a wrong answer, never a wrong access. Scratch memory comes from PyMem_RawMalloc and is
 * smaller than the input.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "a batch is little-endian and is read in place: this machine needs the Python twin"
#endif

#if defined(__x86_64__)
#include <immintrin.h>
#define WITH_AVX2 1
#else
#define WITH_AVX2 0
#endif

#define INLINE static inline __attribute__((always_inline))
#define COLD static __attribute__((cold, noinline))
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/* ---------------------------------------------------------------------------------- layout -- */

/* Exported as module constants; layout.py has the same names and numbers. */
#define LAYOUT(X)                          \
    X(BATCH_HEADER_BYTES, 256)             \
    X(PARTITION_ID_AT, 0)                  \
    X(BASE_OFFSET_AT, 8)                   \
    X(BASE_TIMESTAMP_AT, 16)               \
    X(ORIGIN_TIMESTAMP_AT, 24)             \
    X(BATCH_LENGTH_AT, 32)                 \
    X(BATCH_CHECKSUM_AT, 40)               \
    X(MESSAGE_COUNT_AT, 48)                \
    X(BATCH_RESERVED_AT, 52)               \
    X(CHECKSUM_HEAD_BYTES, 44)             \
    X(FRAME_HEADER_BYTES, 48)              \
    X(FRAME_CHECKSUM_AT, 0)                \
    X(FRAME_ID_AT, 8)                      \
    X(OFFSET_DELTA_AT, 24)                 \
    X(TIMESTAMP_DELTA_AT, 28)              \
    X(USER_HEADERS_LENGTH_AT, 32)          \
    X(PAYLOAD_LENGTH_AT, 36)               \
    X(FRAME_RESERVED_AT, 40)               \
    X(MESSAGE_ID_BYTES, 16)                \
    X(PAYLOAD_BYTES_MAX, 64000000)         \
    X(USER_HEADERS_BYTES_MAX, 100000)      \
    X(COLUMN_BYTES_MAX, INT32_MAX)         \
    X(BATCH_BYTES_MAX, INT32_MAX)          \
    X(PROOF_ROW_BYTES, 32)                 \
    X(FOLD_RECORD_BYTES_MAX, 56)

#define AS_ENUMERATOR(name, value) name = value,
enum { LAYOUT(AS_ENUMERATOR) };

/* Exported with the prefix REASON_; errors.py has the same names and numbers, and the texts. */
#define REASONS(X)                  \
    X(HEADER_TRUNCATED, 1)          \
    X(BATCH_LENGTH, 2)              \
    X(BATCH_RESERVED, 3)            \
    X(MESSAGE_COUNT_RANGE, 4)       \
    X(MESSAGE_COUNT, 5)             \
    X(BASE_OFFSET, 6)               \
    X(PAYLOAD_LENGTH, 7)            \
    X(USER_HEADERS_LENGTH, 8)       \
    X(FRAME_LENGTH, 9)              \
    X(FRAME_CHECKSUM, 10)           \
    X(FRAME_RESERVED, 11)           \
    X(OFFSET_DELTA, 12)             \
    X(TRAILING_BYTES, 17)           \
    X(BATCH_CHECKSUM, 18)           \
    X(COLUMN_LENGTH, 19)            \
    X(COLUMN_OFFSETS, 20)           \
    X(TIMESTAMP_SPAN, 21)           \
    X(BATCH_SIZE, 22)

#define AS_REASON(name, value) REASON_##name = value,
enum { REASON_NO_MEMORY = 0, REASONS(AS_REASON) };

/* The checksum covers the frame from the id to the end. */
enum { HASHED_AT = FRAME_ID_AT };

INLINE uint32_t load32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

INLINE uint64_t load64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

INLINE void store32(uint8_t *at, uint32_t value) { memcpy(at, &value, sizeof value); }

INLINE void store64(uint8_t *at, uint64_t value) { memcpy(at, &value, sizeof value); }

/* --------------------------------------------------------------------------------- XXH3-64 -- */

/* Seed 0 and the default secret, from the public specification of the algorithm: inputs up to 16
 * bytes, up to 128, up to 240, and longer ones in stripes of 64 bytes and blocks of 16 stripes. */

#define PRIME32_1 0x9E3779B1u
#define PRIME32_2 0x85EBCA77u
#define PRIME32_3 0xC2B2AE3Du
#define PRIME64_1 0x9E3779B185EBCA87u
#define PRIME64_2 0xC2B2AE3D27D4EB4Fu
#define PRIME64_3 0x165667B19E3779F9u
#define PRIME64_4 0x85EBCA77C2B2AE63u
#define PRIME64_5 0x27D4EB2F165667C5u
#define PRIME_MX1 0x165667919E3779F9u
#define PRIME_MX2 0x9FB21C651E98DF25u

enum {
    STRIPE = 64,
    STRIPES_PER_BLOCK = 16,
    BLOCK = STRIPE * STRIPES_PER_BLOCK,
    SECRET_STEP = 8,         /* the secret moves on by this much with each stripe */
    SECRET_SCRAMBLE = 128,   /* where the key of the scramble after a block lies */
    SECRET_LAST_STRIPE = 121,
    SECRET_MERGE = 11,
    SECRET_MIDDLE_TAIL = 3,  /* rounds past the eighth of a middle-sized input */
    SECRET_MIDDLE_LAST = 119,
};

static const uint8_t SECRET[192] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

static const uint64_t LANES_START[8] = {
    PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1,
};

/* The two halves of the 128-bit product, folded into one. */
INLINE uint64_t multiply_fold(uint64_t a, uint64_t b)
{
#if defined(__SIZEOF_INT128__)
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
#else
    uint64_t low = (a & UINT32_MAX) * (b & UINT32_MAX);
    uint64_t cross = (a >> 32) * (b & UINT32_MAX) + (low >> 32);
    uint64_t other = (a & UINT32_MAX) * (b >> 32) + (cross & UINT32_MAX);
    uint64_t high = (a >> 32) * (b >> 32) + (cross >> 32) + (other >> 32);
    return ((other << 32) | (low & UINT32_MAX)) ^ high;
#endif
}

INLINE uint64_t rotate_left(uint64_t value, int bits)
{
    return (value << bits) | (value >> (64 - bits));
}

INLINE uint64_t avalanche(uint64_t hash)
{
    hash ^= hash >> 37;
    hash *= PRIME_MX1;
    return hash ^ (hash >> 32);
}

/* The finish of the older XXH64, used for inputs of up to 3 bytes. */
INLINE uint64_t avalanche_xxh64(uint64_t hash)
{
    hash ^= hash >> 33;
    hash *= PRIME64_2;
    hash ^= hash >> 29;
    hash *= PRIME64_3;
    return hash ^ (hash >> 32);
}

static uint64_t hash_to_16(const uint8_t *data, size_t length)
{
    if (length > 8) {
        uint64_t low = load64(data) ^ load64(SECRET + 24) ^ load64(SECRET + 32);
        uint64_t high = load64(data + length - 8) ^ load64(SECRET + 40) ^ load64(SECRET + 48);
        return avalanche(length + __builtin_bswap64(low) + high + multiply_fold(low, high));
    }
    if (length >= 4) {
        uint64_t both = ((uint64_t)load32(data) << 32) + load32(data + length - 4);
        uint64_t hash = both ^ load64(SECRET + 8) ^ load64(SECRET + 16);
        hash ^= rotate_left(hash, 49) ^ rotate_left(hash, 24);
        hash *= PRIME_MX2;
        hash ^= (hash >> 35) + length;
        hash *= PRIME_MX2;
        return hash ^ (hash >> 28);
    }
    if (length > 0) {
        uint32_t all = ((uint32_t)data[0] << 16) | ((uint32_t)data[length >> 1] << 24)
                       | data[length - 1] | ((uint32_t)length << 8);
        return avalanche_xxh64(all ^ (uint64_t)(load32(SECRET) ^ load32(SECRET + 4)));
    }
    return avalanche_xxh64(load64(SECRET + 56) ^ load64(SECRET + 64));
}

INLINE uint64_t mix16(const uint8_t *data, const uint8_t *secret)
{
    return multiply_fold(load64(data) ^ load64(secret), load64(data + 8) ^ load64(secret + 8));
}

/* 17 to 128 bytes: pairs of 16 bytes from both ends towards the middle. */
INLINE uint64_t hash_to_128(const uint8_t *data, size_t length)
{
    const uint8_t *end = data + length;
    uint64_t hash = length * PRIME64_1;
    if (length > 32) {
        if (length > 64) {
            if (length > 96)
                hash += mix16(data + 48, SECRET + 96) + mix16(end - 64, SECRET + 112);
            hash += mix16(data + 32, SECRET + 64) + mix16(end - 48, SECRET + 80);
        }
        hash += mix16(data + 16, SECRET + 32) + mix16(end - 32, SECRET + 48);
    }
    hash += mix16(data, SECRET) + mix16(end - 16, SECRET + 16);
    return avalanche(hash);
}

/* 129 to 240 bytes. */
INLINE uint64_t hash_to_240(const uint8_t *data, size_t length)
{
    uint64_t hash = length * PRIME64_1;
    for (int round = 0; round < 8; round++)
        hash += mix16(data + 16 * round, SECRET + 16 * round);
    uint64_t tail = mix16(data + length - 16, SECRET + SECRET_MIDDLE_LAST);
    int rounds = (int)(length / 16);
    for (int round = 8; round < rounds; round++)
        tail += mix16(data + 16 * round, SECRET + SECRET_MIDDLE_TAIL + 16 * (round - 8));
    return avalanche(avalanche(hash) + tail);
}

INLINE uint64_t merge_lanes(const uint64_t lanes[8], size_t length)
{
    const uint8_t *secret = SECRET + SECRET_MERGE;
    uint64_t hash = length * PRIME64_1;
    for (int pair = 0; pair < 4; pair++)
        hash += multiply_fold(lanes[2 * pair] ^ load64(secret + 16 * pair),
                              lanes[2 * pair + 1] ^ load64(secret + 16 * pair + 8));
    return avalanche(hash);
}

INLINE void mix_stripe(uint64_t lanes[8], const uint8_t *data, const uint8_t *secret)
{
    for (int lane = 0; lane < 8; lane++) {
        uint64_t value = load64(data + 8 * lane);
        uint64_t key = value ^ load64(secret + 8 * lane);
        lanes[lane ^ 1] += value;
        lanes[lane] += (key & UINT32_MAX) * (key >> 32);
    }
}

static uint64_t hash_long_scalar(const uint8_t *data, size_t length)
{
    uint64_t lanes[8];
    memcpy(lanes, LANES_START, sizeof lanes);
    const uint8_t *last = data + length - STRIPE;
    size_t blocks = (length - 1) / BLOCK;
    size_t stripes_left = (length - 1) % BLOCK / STRIPE;
    for (; blocks > 0; blocks--, data += BLOCK) {
        for (int stripe = 0; stripe < STRIPES_PER_BLOCK; stripe++)
            mix_stripe(lanes, data + STRIPE * stripe, SECRET + SECRET_STEP * stripe);
        for (int lane = 0; lane < 8; lane++) {
            uint64_t value = lanes[lane] ^ (lanes[lane] >> 47);
            lanes[lane] = (value ^ load64(SECRET + SECRET_SCRAMBLE + 8 * lane)) * PRIME32_1;
        }
    }
    for (size_t stripe = 0; stripe < stripes_left; stripe++)
        mix_stripe(lanes, data + STRIPE * stripe, SECRET + SECRET_STEP * stripe);
    mix_stripe(lanes, last, SECRET + SECRET_LAST_STRIPE);
    return merge_lanes(lanes, length);
}

static uint64_t hash_copy_long_scalar(const uint8_t *data, size_t length, size_t skipped,
                                      uint8_t *to, size_t copied)
{
    memcpy(to, data + skipped, copied);
    return hash_long_scalar(data, length);
}

#if WITH_AVX2

#define AVX2 __attribute__((target("avx2")))

INLINE AVX2 __m256i load_vector(const uint8_t *at)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)at);
}

INLINE AVX2 void store_vector(uint8_t *at, __m256i value)
{
    _mm256_storeu_si256((__m256i *)(void *)at, value);
}

INLINE AVX2 __m256i mix_vector(__m256i lanes, __m256i value, const uint8_t *secret)
{
    __m256i key = _mm256_xor_si256(value, load_vector(secret));
    __m256i product = _mm256_mul_epu32(key, _mm256_srli_epi64(key, 32));
    __m256i swapped = _mm256_shuffle_epi32(value, _MM_SHUFFLE(1, 0, 3, 2));
    return _mm256_add_epi64(lanes, _mm256_add_epi64(product, swapped));
}

INLINE AVX2 __m256i scramble_vector(__m256i lanes, const uint8_t *secret)
{
    const __m256i prime = _mm256_set1_epi64x(PRIME32_1);
    __m256i value = _mm256_xor_si256(lanes, _mm256_srli_epi64(lanes, 47));
    value = _mm256_xor_si256(value, load_vector(secret));
    __m256i low = _mm256_mul_epu32(value, prime);
    __m256i high = _mm256_mul_epu32(_mm256_srli_epi64(value, 32), prime);
    return _mm256_add_epi64(low, _mm256_slli_epi64(high, 32));
}

/* The two halves of the eight lanes, and what is copied on the way. */
typedef struct {
    __m256i low;
    __m256i high;
    uint8_t *to;     /* where the second stripe is copied to; the first never is */
    uint64_t behind; /* how far behind the second stripe the next one lies */
    uint64_t limit;  /* highest `behind` at which a stripe is copied */
} Stripes;

INLINE AVX2 void mix_vectors(Stripes *stripes, bool copy, const uint8_t *data,
                             const uint8_t *secret)
{
    __m256i low = load_vector(data);
    __m256i high = load_vector(data + 32);
    stripes->low = mix_vector(stripes->low, low, secret);
    stripes->high = mix_vector(stripes->high, high, secret + 32);
    if (copy) {
        if (stripes->behind <= stripes->limit) {
            store_vector(stripes->to + stripes->behind, low);
            store_vector(stripes->to + stripes->behind + 32, high);
        }
        stripes->behind += STRIPE;
    }
}

INLINE AVX2 uint64_t hash_stripes(Stripes *stripes, bool copy, const uint8_t *data, size_t length)
{
    stripes->low = load_vector((const uint8_t *)LANES_START);
    stripes->high = load_vector((const uint8_t *)LANES_START + 32);
    const uint8_t *last = data + length - STRIPE;
    size_t blocks = (length - 1) / BLOCK;
    size_t stripes_left = (length - 1) % BLOCK / STRIPE;
    for (; blocks > 0; blocks--, data += BLOCK) {
        /* Unrolled further, the compiler regroups the additions and runs out of registers. */
#pragma GCC unroll 2
        for (size_t stripe = 0; stripe < STRIPES_PER_BLOCK; stripe++)
            mix_vectors(stripes, copy, data + STRIPE * stripe, SECRET + SECRET_STEP * stripe);
        stripes->low = scramble_vector(stripes->low, SECRET + SECRET_SCRAMBLE);
        stripes->high = scramble_vector(stripes->high, SECRET + SECRET_SCRAMBLE + 32);
    }
    for (size_t stripe = 0; stripe < stripes_left; stripe++)
        mix_vectors(stripes, copy, data + STRIPE * stripe, SECRET + SECRET_STEP * stripe);
    mix_vectors(stripes, false, last, SECRET + SECRET_LAST_STRIPE);
    uint64_t lanes[8];
    store_vector((uint8_t *)lanes, stripes->low);
    store_vector((uint8_t *)(lanes + 4), stripes->high);
    return merge_lanes(lanes, length);
}

AVX2 static uint64_t hash_long_avx2(const uint8_t *data, size_t length)
{
    Stripes stripes;
    return hash_stripes(&stripes, false, data, length);
}

/* Stores the stripes it has loaded for hashing anyway, as far as they lie within the bytes to be
 * copied. The first stripe holds the frame header, so what it has of them is copied before; at the
 * end less than a stripe is missing, or one, so the last 64 bytes are copied after. */
AVX2 static uint64_t hash_copy_long_avx2(const uint8_t *data, size_t length, size_t skipped,
                                         uint8_t *to, size_t copied)
{
    if (copied < 2 * STRIPE) {
        memcpy(to, data + skipped, copied);
        return hash_long_avx2(data, length);
    }
    store_vector(to, load_vector(data + skipped));
    store_vector(to + 32, load_vector(data + skipped + 32));
    Stripes stripes = {
        .to = to + STRIPE - skipped,
        .behind = (uint64_t)0 - STRIPE,
        .limit = skipped + copied - 2 * STRIPE,
    };
    uint64_t hash = hash_stripes(&stripes, true, data, length);
    store_vector(to + copied - 64, load_vector(data + skipped + copied - 64));
    store_vector(to + copied - 32, load_vector(data + skipped + copied - 32));
    return hash;
}

#endif

/* Chosen once, when the module is loaded; the same for every interpreter of the process. */
static bool has_avx2 = false;
static uint64_t (*hash_long)(const uint8_t *data, size_t length) = hash_long_scalar;

static void choose_hash(void)
{
#if WITH_AVX2
    __builtin_cpu_init();
    has_avx2 = __builtin_cpu_supports("avx2");
    if (has_avx2)
        hash_long = hash_long_avx2;
#endif
}

/* At least 17 bytes: every frame, and every checksum head. */
INLINE uint64_t hash_from_17(const uint8_t *data, size_t length)
{
    if (length > 240)
        return hash_long(data, length);
    return length > 128 ? hash_to_240(data, length) : hash_to_128(data, length);
}

static uint64_t hash_bytes(const uint8_t *data, size_t length)
{
    return length > 16 ? hash_from_17(data, length) : hash_to_16(data, length);
}

/* 32 bytes at any address: one register where AVX2 may be used, two elsewhere. */
typedef uint8_t Bytes32 __attribute__((vector_size(32), aligned(1), may_alias));

INLINE void copy32(uint8_t *to, const uint8_t *from)
{
    *(Bytes32 *)(void *)to = *(const Bytes32 *)(const void *)from;
}

/* Strings of 16 to 256 bytes are the rule, and for them a call of memcpy costs more than its work.
 * The last bytes are copied from the end back, over some already there. */
INLINE void copy_bytes(uint8_t *to, const uint8_t *from, size_t length)
{
    if (length < 16 || length > 256) {
        memcpy(to, from, length);
    } else if (length < 32) {
        memcpy(to, from, 16);
        memcpy(to + length - 16, from + length - 16, 16);
    } else {
        for (size_t at = 0; at + 32 <= length; at += 32)
            copy32(to + at, from + at);
        copy32(to + length - 32, from + length - 32);
    }
}

/* Hashes a long input and copies a part of it, from `skipped` (at most a stripe) on. By itself a
 * long copy would wait for the hash, and the hash of the next frame for the copy. */
typedef uint64_t (*HashCopy)(const uint8_t *data, size_t length, size_t skipped, uint8_t *to,
                             size_t copied);

INLINE uint64_t hash_and_copy(HashCopy hash_copy_long, const uint8_t *data, size_t length,
                              size_t skipped, uint8_t *to, size_t copied)
{
    if (length > 240)
        return hash_copy_long(data, length, skipped, to, copied);
    copy_bytes(to, data + skipped, copied);
    return hash_from_17(data, length);
}

/* ---------------------------------------------------------------------------------- faults -- */

/* What BatchError is built from, gathered without the interpreter lock. */
typedef struct {
    int reason;
    int64_t frame; /* -1 when the batch as a whole is at fault */
    uint64_t position;
    uint64_t found;
    uint64_t wanted;
} Fault;

COLD void record(Fault *fault, int reason, int64_t frame, uint64_t position, uint64_t found,
                 uint64_t wanted)
{
    *fault = (Fault){reason, frame, position, found, wanted};
}

/* Always false, and inline, so that the compiler sees it. */
INLINE bool blame(Fault *fault, int reason, int64_t frame, uint64_t position, uint64_t found,
                  uint64_t wanted)
{
    record(fault, reason, frame, position, found, wanted);
    return false;
}

/* ------------------------------------------------------------------------- the frame walk -- */

/* The header of a batch, read once and checked. */
typedef struct {
    uint64_t position; /* of the batch in the buffer */
    uint64_t length;
    uint64_t count;
    uint64_t spare; /* bytes that payloads and user headers share: all but the headers */
    uint64_t base_offset;
    uint64_t base_timestamp;
    uint64_t origin_timestamp;
    uint64_t delta_first; /* offset_delta of the first frame */
} Batch;

COLD void record_reserved(const uint8_t *header, uint64_t position, Fault *fault)
{
    uint64_t at = BATCH_RESERVED_AT;
    while (at < BATCH_HEADER_BYTES - 1 && header[at] == 0)
        at++;
    record(fault, REASON_BATCH_RESERVED, -1, position + at, header[at], 0);
}

/* Checks the header of the batch at `position`; `exact` when it must fill the buffer. */
static bool open_batch(const uint8_t *data, uint64_t position, uint64_t size, bool exact,
                       Batch *batch, Fault *fault)
{
    uint64_t left = size - position;
    if (left < BATCH_HEADER_BYTES)
        return blame(fault, REASON_HEADER_TRUNCATED, -1, position, left, BATCH_HEADER_BYTES);
    const uint8_t *header = data + position;
    uint64_t length = load64(header + BATCH_LENGTH_AT);
    if (length < BATCH_HEADER_BYTES || length > left || (exact && length != left))
        return blame(fault, REASON_BATCH_LENGTH, -1, position + BATCH_LENGTH_AT, length, left);
    uint32_t reserved = 0;
    for (int at = BATCH_RESERVED_AT; at < BATCH_HEADER_BYTES; at += 4)
        reserved |= load32(header + at);
    if (UNLIKELY(reserved != 0)) {
        record_reserved(header, position, fault);
        return false;
    }
    uint64_t count = load32(header + MESSAGE_COUNT_AT);
    uint64_t count_max = (length - BATCH_HEADER_BYTES) / FRAME_HEADER_BYTES;
    if (count == 0 || count > count_max)
        return blame(fault, REASON_MESSAGE_COUNT_RANGE, -1, position + MESSAGE_COUNT_AT, count,
                     count_max);
    *batch = (Batch){
        .position = position,
        .length = length,
        .count = count,
        .spare = length - BATCH_HEADER_BYTES - count * FRAME_HEADER_BYTES,
        .base_offset = load64(header + BASE_OFFSET_AT),
        .base_timestamp = load64(header + BASE_TIMESTAMP_AT),
        .origin_timestamp = load64(header + ORIGIN_TIMESTAMP_AT),
    };
    return true;
}

/* The same for a stamped batch: it may be a slice, so its first delta may be above zero. */
static bool open_stamped(const uint8_t *data, uint64_t position, uint64_t size, bool exact,
                         Batch *batch, Fault *fault)
{
    if (!open_batch(data, position, size, exact, batch, fault))
        return false;
    batch->delta_first = load32(data + position + BATCH_HEADER_BYTES + OFFSET_DELTA_AT);
    uint64_t base_offset_max = UINT64_MAX - batch->delta_first - batch->count;
    if (batch->base_offset > base_offset_max)
        return blame(fault, REASON_BASE_OFFSET, -1, position + BASE_OFFSET_AT, batch->base_offset,
                     base_offset_max);
    return true;
}

/* A walk over the frames of one batch. `spare` falls by each payload and its user headers; as it
 * never falls below zero, every frame header to come lies inside the batch. */
typedef struct {
    const uint8_t *data;
    uint64_t position; /* of the frame that comes next */
    uint64_t spare;
    uint64_t index;
    uint64_t delta_first;
} Walk;

typedef struct {
    const uint8_t *start;
    uint64_t position;
    uint32_t payload_length;
    uint32_t headers_length;
} Frame;

INLINE Walk start_walk(const uint8_t *data, const Batch *batch)
{
    return (Walk){
        .data = data,
        .position = batch->position + BATCH_HEADER_BYTES,
        .spare = batch->spare,
        .index = 0,
        .delta_first = batch->delta_first,
    };
}

COLD void record_lengths(const Walk *walk, uint64_t headers, uint64_t payload, Fault *fault)
{
    int64_t frame = (int64_t)walk->index;
    if (payload == 0 || payload > PAYLOAD_BYTES_MAX)
        record(fault, REASON_PAYLOAD_LENGTH, frame, walk->position + PAYLOAD_LENGTH_AT, payload,
               PAYLOAD_BYTES_MAX);
    else if (headers > USER_HEADERS_BYTES_MAX)
        record(fault, REASON_USER_HEADERS_LENGTH, frame, walk->position + USER_HEADERS_LENGTH_AT,
               headers, USER_HEADERS_BYTES_MAX);
    else
        record(fault, REASON_FRAME_LENGTH, frame, walk->position, payload + headers, walk->spare);
}

/* Room for a payload, filled while its frame is hashed; left alone if the payload is too long. */
typedef struct {
    HashCopy hash_copy;
    uint8_t *to;
    uint64_t room;
} Place;

/* Takes the next frame. `check` adds what is dear: its checksum. */
INLINE bool step_placing(Walk *walk, bool check, const Place *place, Frame *frame, Fault *fault)
{
    const uint8_t *start = walk->data + walk->position;
    uint32_t headers = load32(start + USER_HEADERS_LENGTH_AT);
    uint32_t payload = load32(start + PAYLOAD_LENGTH_AT);
    uint64_t body = (uint64_t)headers + payload;
    if (UNLIKELY(payload - 1 >= PAYLOAD_BYTES_MAX || headers > USER_HEADERS_BYTES_MAX
                 || body > walk->spare)) {
        record_lengths(walk, headers, payload, fault);
        return false;
    }
    if (check) {
        uint64_t stored = load64(start + FRAME_CHECKSUM_AT);
        uint64_t hashed = FRAME_HEADER_BYTES - HASHED_AT + body;
        uint64_t computed =
            place != NULL && payload <= place->room
                ? hash_and_copy(place->hash_copy, start + HASHED_AT, hashed,
                                FRAME_HEADER_BYTES - HASHED_AT, place->to, payload)
                : hash_from_17(start + HASHED_AT, hashed);
        if (UNLIKELY(stored != computed))
            return blame(fault, REASON_FRAME_CHECKSUM, (int64_t)walk->index, walk->position, stored,
                         computed);
    }
    uint64_t reserved = load64(start + FRAME_RESERVED_AT);
    if (UNLIKELY(reserved != 0))
        return blame(fault, REASON_FRAME_RESERVED, (int64_t)walk->index,
                     walk->position + FRAME_RESERVED_AT, reserved, 0);
    uint64_t delta = load32(start + OFFSET_DELTA_AT);
    if (UNLIKELY(delta != walk->delta_first + walk->index))
        return blame(fault, REASON_OFFSET_DELTA, (int64_t)walk->index,
                     walk->position + OFFSET_DELTA_AT, delta, walk->delta_first + walk->index);
    *frame = (Frame){start, walk->position, payload, headers};
    walk->position += FRAME_HEADER_BYTES + body;
    walk->spare -= body;
    walk->index++;
    return true;
}

INLINE bool step(Walk *walk, bool check, Frame *frame, Fault *fault)
{
    return step_placing(walk, check, NULL, frame, fault);
}

/* To be asked when all frames are behind. */
INLINE bool finish_walk(const Walk *walk, Fault *fault)
{
    if (UNLIKELY(walk->spare != 0))
        return blame(fault, REASON_TRAILING_BYTES, -1, walk->position, walk->spare, 0);
    return true;
}

/* ------------------------------------------------------------------------- batch checksum -- */

/* What the batch checksum covers, side by side: the head, then the checksum of each frame. Small
 * batches live in the struct, so that they cost no allocation. */
typedef struct {
    uint8_t *bytes;
    uint8_t small[CHECKSUM_HEAD_BYTES + 8 * 1024];
} Gather;

static bool gather_open(Gather *gather, uint64_t count_max, Fault *fault)
{
    gather->bytes = gather->small;
    if (CHECKSUM_HEAD_BYTES + 8 * count_max <= sizeof gather->small)
        return true;
    gather->bytes = PyMem_RawMalloc(CHECKSUM_HEAD_BYTES + 8 * count_max);
    return gather->bytes != NULL || blame(fault, REASON_NO_MEMORY, -1, 0, 0, 0);
}

static void gather_close(Gather *gather)
{
    if (gather->bytes != gather->small)
        PyMem_RawFree(gather->bytes);
}

INLINE void gather_frame(Gather *gather, uint64_t index, const Frame *frame)
{
    memcpy(gather->bytes + CHECKSUM_HEAD_BYTES + 8 * index, frame->start + FRAME_CHECKSUM_AT, 8);
}

static uint64_t gather_hash(Gather *gather, const uint8_t *header, uint64_t count)
{
    memcpy(gather->bytes, header, BATCH_CHECKSUM_AT);
    memcpy(gather->bytes + BATCH_CHECKSUM_AT, header + MESSAGE_COUNT_AT, 4);
    return hash_bytes(gather->bytes, CHECKSUM_HEAD_BYTES + 8 * count);
}

static bool check_batch_checksum(Gather *gather, const uint8_t *data, const Batch *batch,
                                 uint64_t *checksum, Fault *fault)
{
    const uint8_t *header = data + batch->position;
    uint64_t stored = load64(header + BATCH_CHECKSUM_AT);
    *checksum = gather_hash(gather, header, batch->count);
    if (stored != *checksum)
        return blame(fault, REASON_BATCH_CHECKSUM, -1, batch->position + BATCH_CHECKSUM_AT, stored,
                     *checksum);
    return true;
}

/* Every check of an opened batch; leaves the checksums of its frames in `gather`. */
static bool check_batch(Gather *gather, const uint8_t *data, const Batch *batch,
                        uint64_t *checksum, Fault *fault)
{
    Walk walk = start_walk(data, batch);
    Frame frame;
    for (uint64_t index = 0; index < batch->count; index++) {
        if (!step(&walk, true, &frame, fault))
            return false;
        gather_frame(gather, index, &frame);
    }
    return finish_walk(&walk, fault) && check_batch_checksum(gather, data, batch, checksum, fault);
}

/* ---------------------------------------------------------------------- the Python border -- */

typedef struct {
    PyObject *batch_error;
    PyObject *columns_type;
    PyObject *split_type;
    PyObject *frames_type;
    PyObject *receipt_type;
} State;

static PyObject *raise_fault(PyObject *module, const Fault *fault)
{
    if (fault->reason == REASON_NO_MEMORY)
        return PyErr_NoMemory();
    State *state = PyModule_GetState(module);
    PyObject *error = PyObject_CallFunction(
        state->batch_error, "iLKKK", fault->reason, (long long)fault->frame,
        (unsigned long long)fault->position, (unsigned long long)fault->found,
        (unsigned long long)fault->wanted);
    if (error != NULL) {
        PyErr_SetObject(state->batch_error, error);
        Py_DECREF(error);
    }
    return NULL;
}

static bool parse_count(const char *name, Py_ssize_t given, Py_ssize_t wanted)
{
    if (given == wanted)
        return true;
    PyErr_Format(PyExc_TypeError, "%s takes %zd positional arguments, %zd given", name, wanted,
                 given);
    return false;
}

static bool parse_u64(PyObject *argument, const char *name, uint64_t *value)
{
    PyObject *number = PyNumber_Index(argument);
    if (number == NULL)
        return false;
    *value = PyLong_AsUnsignedLongLong(number);
    Py_DECREF(number);
    if (*value == UINT64_MAX && PyErr_Occurred()) {
        PyErr_Format(PyExc_OverflowError, "%s does not fit in 64 bits", name);
        return false;
    }
    return true;
}

enum { UNLOCK_BYTES_MIN = 64 * 1024 };

/* Gives the lock up for large inputs only: the hand-over costs more than a small one is worth. */
static PyThreadState *unlock_for(Py_ssize_t size)
{
    return size >= UNLOCK_BYTES_MIN ? PyEval_SaveThread() : NULL;
}

static void lock_again(PyThreadState *thread)
{
    if (thread != NULL)
        PyEval_RestoreThread(thread);
}

/* ---------------------------------------------------------------------------------- admit -- */

typedef struct {
    uint64_t messages_count;
    uint64_t partition_id;
    uint64_t base_offset;
    uint64_t base_timestamp;
} Stamp;

static bool parse_stamp(PyObject *const *arguments, Stamp *stamp)
{
    if (!parse_u64(arguments[0], "messages_count", &stamp->messages_count)
        || !parse_u64(arguments[1], "partition_id", &stamp->partition_id)
        || !parse_u64(arguments[2], "base_offset", &stamp->base_offset)
        || !parse_u64(arguments[3], "base_timestamp", &stamp->base_timestamp))
        return false;
    if (stamp->base_offset > UINT64_MAX - stamp->messages_count) {
        PyErr_SetString(PyExc_OverflowError,
                        "base_offset + messages_count does not fit in 64 bits");
        return false;
    }
    return true;
}

static bool admit_batch(uint8_t *data, uint64_t size, const Stamp *stamp, uint64_t *checksum,
                        Fault *fault)
{
    Batch batch;
    if (!open_batch(data, 0, size, true, &batch, fault))
        return false;
    if (batch.count != stamp->messages_count)
        return blame(fault, REASON_MESSAGE_COUNT, -1, MESSAGE_COUNT_AT, batch.count,
                     stamp->messages_count);
    Gather gather;
    if (!gather_open(&gather, batch.count, fault))
        return false;
    bool good = check_batch(&gather, data, &batch, checksum, fault);
    if (good) {
        store64(data + PARTITION_ID_AT, stamp->partition_id);
        store64(data + BASE_OFFSET_AT, stamp->base_offset);
        store64(data + BASE_TIMESTAMP_AT, stamp->base_timestamp);
        *checksum = gather_hash(&gather, data, batch.count);
        store64(data + BATCH_CHECKSUM_AT, *checksum);
    }
    gather_close(&gather);
    return good;
}

PyDoc_STRVAR(admit_doc,
"admit(batch, messages_count, partition_id, base_offset, base_timestamp, /)\n--\n\n"
"Check one producer batch and stamp it in place; return its new checksum.");

static PyObject *py_admit(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Py_buffer view;
    if (!parse_count("admit", count, 5)
        || PyObject_GetBuffer(arguments[0], &view, PyBUF_WRITABLE) < 0)
        return NULL;
    Stamp stamp;
    if (!parse_stamp(arguments + 1, &stamp)) {
        PyBuffer_Release(&view);
        return NULL;
    }
    Fault fault;
    uint64_t checksum = 0;
    PyThreadState *thread = unlock_for(view.len);
    bool good = admit_batch(view.buf, (uint64_t)view.len, &stamp, &checksum, &fault);
    lock_again(thread);
    PyBuffer_Release(&view);
    return good ? PyLong_FromUnsignedLongLong(checksum) : raise_fault(module, &fault);
}

/* --------------------------------------------------------------------------------- verify -- */

static bool verify_batch(const uint8_t *data, uint64_t size, uint64_t *checksum, Fault *fault)
{
    Batch batch;
    Gather gather;
    if (!open_stamped(data, 0, size, true, &batch, fault)
        || !gather_open(&gather, batch.count, fault))
        return false;
    bool good = check_batch(&gather, data, &batch, checksum, fault);
    gather_close(&gather);
    return good;
}

/* ---------------------------------------------------------------------------------- prove -- */

/* The hash of a number and of some bytes behind it, at most FOLD_RECORD_BYTES_MAX. */
static uint64_t chain_bytes(uint64_t chain, const uint8_t *data, size_t length)
{
    uint8_t linked[8 + FOLD_RECORD_BYTES_MAX];
    store64(linked, chain);
    memcpy(linked + 8, data, length);
    return hash_bytes(linked, 8 + length);
}

/* What is known of a run of batches so far, and the rows that tell where each begins. */
typedef struct {
    uint64_t partition_id;
    uint64_t offset;
    uint64_t chain;
    uint64_t position;
    uint8_t *rows;
    uint64_t rows_count;
    uint64_t rows_room;
} Run;

static bool add_proof(Run *run, uint64_t timestamp)
{
    if (run->rows_count == run->rows_room) {
        uint64_t room = run->rows_room == 0 ? 64 : 2 * run->rows_room;
        uint8_t *rows = PyMem_RawRealloc(run->rows, room * PROOF_ROW_BYTES);
        if (rows == NULL)
            return false;
        run->rows = rows;
        run->rows_room = room;
    }
    uint8_t *row = run->rows + run->rows_count * PROOF_ROW_BYTES;
    store64(row, run->offset);
    store64(row + 8, timestamp);
    store64(row + 16, run->position);
    store64(row + 24, run->chain);
    run->rows_count++;
    return true;
}

/* Adds the batch that comes next if it is the expected one and whole; false if it is not. */
static bool prove_next(const uint8_t *data, uint64_t size, Run *run, Fault *fault)
{
    Batch batch;
    Gather gather;
    fault->reason = -1;
    if (!open_stamped(data, run->position, size, false, &batch, fault))
        return false;
    if (batch.base_offset != run->offset || batch.delta_first != 0
        || load64(data + run->position + PARTITION_ID_AT) != run->partition_id
        || !gather_open(&gather, batch.count, fault))
        return false;
    uint64_t checksum = 0;
    bool good = check_batch(&gather, data, &batch, &checksum, fault);
    gather_close(&gather);
    if (!good)
        return false;
    if (!add_proof(run, batch.base_timestamp))
        return blame(fault, REASON_NO_MEMORY, -1, 0, 0, 0);
    uint8_t link[8];
    store64(link, checksum);
    run->chain = chain_bytes(run->chain, link, sizeof link);
    run->offset += batch.count;
    run->position += batch.length;
    return true;
}

PyDoc_STRVAR(prove_doc,
"prove(batches, partition_id, offset, chain, /)\n--\n\n"
"Verify batches that follow each other; return how far they are good, and where each begins.");

static PyObject *py_prove(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    Run run = {0};
    Py_buffer view;
    if (!parse_count("prove", count, 4)
        || !parse_u64(arguments[1], "partition_id", &run.partition_id)
        || !parse_u64(arguments[2], "offset", &run.offset)
        || !parse_u64(arguments[3], "chain", &run.chain)
        || PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    Fault fault;
    PyThreadState *thread = unlock_for(view.len);
    while (prove_next(view.buf, (uint64_t)view.len, &run, &fault)) {
    }
    lock_again(thread);
    PyBuffer_Release(&view);
    PyObject *result = NULL;
    if (fault.reason == REASON_NO_MEMORY)
        PyErr_NoMemory();
    else
        result = Py_BuildValue(
            "KKKN", (unsigned long long)run.position, (unsigned long long)run.offset,
            (unsigned long long)run.chain,
            PyBytes_FromStringAndSize((const char *)run.rows,
                                      (Py_ssize_t)(run.rows_count * PROOF_ROW_BYTES)));
    PyMem_RawFree(run.rows);
    return result;
}

PyDoc_STRVAR(fold_doc,
"fold(chain, records, record_bytes, /)\n--\n\n"
"Return the chain that is longer by some records of one size.");

static PyObject *py_fold(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    uint64_t chain, size;
    Py_buffer view;
    if (!parse_count("fold", count, 3) || !parse_u64(arguments[0], "chain", &chain)
        || !parse_u64(arguments[2], "record_bytes", &size)
        || PyObject_GetBuffer(arguments[1], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (size == 0 || size > FOLD_RECORD_BYTES_MAX || (uint64_t)view.len % size != 0) {
        PyBuffer_Release(&view);
        PyErr_SetString(PyExc_ValueError, "records of one size, 1 to 56 bytes, are wanted");
        return NULL;
    }
    PyThreadState *thread = unlock_for(view.len);
    const uint8_t *data = view.buf;
    for (uint64_t at = 0; at < (uint64_t)view.len; at += size)
        chain = chain_bytes(chain, data + at, size);
    lock_again(thread);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLongLong(chain);
}

/* Only hashes: the yardstick of bench/kernel.py. Bounds are checked, nothing else is. */
static bool hash_batch(const uint8_t *data, uint64_t size, uint64_t *hash, Fault *fault)
{
    Batch batch;
    if (!open_batch(data, 0, size, true, &batch, fault))
        return false;
    Walk walk = start_walk(data, &batch);
    uint64_t all = 0;
    for (; walk.index < batch.count; walk.index++) {
        const uint8_t *start = data + walk.position;
        uint64_t headers = load32(start + USER_HEADERS_LENGTH_AT);
        uint64_t payload = load32(start + PAYLOAD_LENGTH_AT);
        uint64_t body = headers + payload;
        if (UNLIKELY(body > walk.spare)) {
            record_lengths(&walk, headers, payload, fault);
            return false;
        }
        all ^= hash_from_17(start + HASHED_AT, FRAME_HEADER_BYTES - HASHED_AT + body);
        walk.position += FRAME_HEADER_BYTES + body;
        walk.spare -= body;
    }
    *hash = all;
    return true;
}

typedef bool (*Digest)(const uint8_t *data, uint64_t size, uint64_t *result, Fault *fault);

static PyObject *digest_with(PyObject *module, PyObject *argument, Digest digest)
{
    Py_buffer view;
    if (PyObject_GetBuffer(argument, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    Fault fault;
    uint64_t result = 0;
    PyThreadState *thread = unlock_for(view.len);
    bool good = digest(view.buf, (uint64_t)view.len, &result, &fault);
    lock_again(thread);
    PyBuffer_Release(&view);
    return good ? PyLong_FromUnsignedLongLong(result) : raise_fault(module, &fault);
}

PyDoc_STRVAR(verify_doc,
"verify(batch, /)\n--\n\n"
"Check one stamped or sliced batch; return its checksum.");

static PyObject *py_verify(PyObject *module, PyObject *batch)
{
    return digest_with(module, batch, verify_batch);
}

PyDoc_STRVAR(hash_frames_doc,
"hash_frames(batch, /)\n--\n\n"
"Hash each frame and check nothing but bounds; return all hashes, xored. For the benchmark.");

static PyObject *py_hash_frames(PyObject *module, PyObject *batch)
{
    return digest_with(module, batch, hash_batch);
}

static bool hash_data(const uint8_t *data, uint64_t size, uint64_t *hash, Fault *fault)
{
    (void)fault;
    *hash = hash_bytes(data, size);
    return true;
}

static bool hash_data_scalar(const uint8_t *data, uint64_t size, uint64_t *hash, Fault *fault)
{
    (void)fault;
    *hash = size > 240 ? hash_long_scalar(data, size) : hash_bytes(data, size);
    return true;
}

PyDoc_STRVAR(xxh3_64_doc,
"xxh3_64(data, /)\n--\n\n"
"Return the XXH3 64-bit hash of the data, seed 0.");

static PyObject *py_xxh3_64(PyObject *module, PyObject *data)
{
    return digest_with(module, data, hash_data);
}

PyDoc_STRVAR(xxh3_64_scalar_doc,
"xxh3_64_scalar(data, /)\n--\n\n"
"The same without vector instructions: what machines without AVX2 run. For tests.");

static PyObject *py_xxh3_64_scalar(PyObject *module, PyObject *data)
{
    return digest_with(module, data, hash_data_scalar);
}

/* ------------------------------------------------------------------------ find and slice -- */

/* The frames of a stamped batch with offset_min <= offset < offset_max are those with
 * *first <= index < *stop; none when both are equal. */
static void select_frames(const Batch *batch, uint64_t offset_min, uint64_t offset_max,
                          uint64_t *first, uint64_t *stop)
{
    uint64_t start = batch->base_offset + batch->delta_first;
    uint64_t below_min = offset_min > start ? offset_min - start : 0;
    uint64_t below_max = offset_max > start ? offset_max - start : 0;
    *stop = below_max < batch->count ? below_max : batch->count;
    *first = below_min < *stop ? below_min : *stop;
}

typedef struct {
    uint64_t index;
    uint64_t position;
} Found;

static bool find_by_offset(const uint8_t *data, uint64_t size, uint64_t offset, Found *found,
                           Fault *fault)
{
    Batch batch;
    if (!open_stamped(data, 0, size, true, &batch, fault))
        return false;
    uint64_t first, stop;
    select_frames(&batch, offset, UINT64_MAX, &first, &stop);
    *found = (Found){batch.count, batch.length};
    if (first == stop)
        return true;
    Walk walk = start_walk(data, &batch);
    Frame frame;
    while (walk.index <= first) {
        if (!step(&walk, false, &frame, fault))
            return false;
        *found = (Found){first, frame.position};
    }
    return walk.index < batch.count || finish_walk(&walk, fault);
}

static bool find_by_timestamp(const uint8_t *data, uint64_t size, uint64_t timestamp, Found *found,
                              Fault *fault)
{
    Batch batch;
    if (!open_stamped(data, 0, size, true, &batch, fault))
        return false;
    /* How far behind the origin the wanted time lies: no sum that could overflow. */
    uint64_t behind = timestamp > batch.origin_timestamp ? timestamp - batch.origin_timestamp : 0;
    Walk walk = start_walk(data, &batch);
    Frame frame;
    for (uint64_t index = 0; index < batch.count; index++) {
        if (!step(&walk, false, &frame, fault))
            return false;
        if (load32(frame.start + TIMESTAMP_DELTA_AT) >= behind) {
            *found = (Found){index, frame.position};
            return true;
        }
    }
    *found = (Found){batch.count, batch.length};
    return finish_walk(&walk, fault);
}

typedef bool (*Find)(const uint8_t *data, uint64_t size, uint64_t wanted, Found *found,
                     Fault *fault);

static PyObject *find_with(PyObject *module, PyObject *const *arguments, const char *name,
                           Find find)
{
    Py_buffer view;
    uint64_t wanted;
    if (PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (!parse_u64(arguments[1], name, &wanted)) {
        PyBuffer_Release(&view);
        return NULL;
    }
    Fault fault;
    Found found = {0, 0};
    PyThreadState *thread = unlock_for(view.len);
    bool good = find(view.buf, (uint64_t)view.len, wanted, &found, &fault);
    lock_again(thread);
    PyBuffer_Release(&view);
    if (!good)
        return raise_fault(module, &fault);
    return Py_BuildValue("(KK)", (unsigned long long)found.index,
                         (unsigned long long)found.position);
}

PyDoc_STRVAR(find_offset_doc,
"find_offset(batch, offset, /)\n--\n\n"
"Return index and byte position of the first frame at or after an offset.");

static PyObject *py_find_offset(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (!parse_count("find_offset", count, 2))
        return NULL;
    return find_with(module, arguments, "offset", find_by_offset);
}

PyDoc_STRVAR(find_timestamp_doc,
"find_timestamp(batch, timestamp, /)\n--\n\n"
"Return index and byte position of the first frame created at or after a time.");

static PyObject *py_find_timestamp(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (!parse_count("find_timestamp", count, 2))
        return NULL;
    return find_with(module, arguments, "timestamp", find_by_timestamp);
}

typedef struct {
    uint64_t offset;
    uint64_t count;
    bool empty; /* set when no frame is in range */
    uint64_t start;
    uint64_t end;
    uint8_t header[BATCH_HEADER_BYTES];
} Slice;

static bool slice_frames(const uint8_t *data, const Batch *batch, uint64_t first, uint64_t stop,
                         Slice *slice, Fault *fault)
{
    Gather gather;
    if (!gather_open(&gather, stop - first, fault))
        return false;
    Walk walk = start_walk(data, batch);
    Frame frame;
    bool good = true;
    while (good && walk.index < stop) {
        uint64_t index = walk.index;
        good = step(&walk, false, &frame, fault);
        if (good && index >= first) {
            gather_frame(&gather, index - first, &frame);
            slice->start = index == first ? frame.position : slice->start;
        }
    }
    good = good && (stop < batch->count || finish_walk(&walk, fault));
    if (good) {
        slice->end = walk.position;
        memcpy(slice->header, data, BATCH_HEADER_BYTES);
        store64(slice->header + BATCH_LENGTH_AT, BATCH_HEADER_BYTES + slice->end - slice->start);
        store32(slice->header + MESSAGE_COUNT_AT, (uint32_t)(stop - first));
        store64(slice->header + BATCH_CHECKSUM_AT,
                gather_hash(&gather, slice->header, stop - first));
    }
    gather_close(&gather);
    return good;
}

static bool slice_range(const uint8_t *data, uint64_t size, Slice *slice, Fault *fault)
{
    Batch batch;
    if (!open_stamped(data, 0, size, true, &batch, fault))
        return false;
    uint64_t first, stop;
    select_frames(&batch, slice->offset, UINT64_MAX, &first, &stop);
    slice->empty = first == stop;
    if (slice->empty)
        return true;
    if (slice->count < stop - first)
        stop = first + slice->count;
    return slice_frames(data, &batch, first, stop, slice, fault);
}

static bool parse_slice(PyObject *const *arguments, Slice *slice)
{
    if (!parse_u64(arguments[0], "offset", &slice->offset))
        return false;
    PyObject *number = PyNumber_Index(arguments[1]);
    if (number == NULL)
        return false;
    int overflow;
    long long count = PyLong_AsLongLongAndOverflow(number, &overflow);
    Py_DECREF(number);
    if (overflow < 0 || (overflow == 0 && count < 1)) {
        PyErr_SetString(PyExc_ValueError, "a slice holds at least one message");
        return false;
    }
    return parse_u64(arguments[1], "count", &slice->count);
}

PyDoc_STRVAR(slice_batch_doc,
"slice_batch(batch, offset, count, /)\n--\n\n"
"Return the header of a cut batch and where its frames start and end.");

static PyObject *py_slice_batch(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Py_buffer view;
    if (!parse_count("slice_batch", count, 3)
        || PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    Slice slice;
    if (!parse_slice(arguments + 1, &slice)) {
        PyBuffer_Release(&view);
        return NULL;
    }
    Fault fault;
    PyThreadState *thread = unlock_for(view.len);
    bool good = slice_range(view.buf, (uint64_t)view.len, &slice, &fault);
    lock_again(thread);
    PyBuffer_Release(&view);
    if (!good)
        return raise_fault(module, &fault);
    if (slice.empty)
        return PyErr_Format(PyExc_ValueError, "no message at or after offset %llu",
                            (unsigned long long)slice.offset);
    return Py_BuildValue("(y#KK)", (const char *)slice.header, (Py_ssize_t)BATCH_HEADER_BYTES,
                         (unsigned long long)slice.start, (unsigned long long)slice.end);
}

/* ---------------------------------------------------------------------------------- build -- */

/* A column of byte strings in Arrow's layout. The first and last offset are read once, and all
 * others are held between them, so that the strings together are exactly as long as planned. */
typedef struct {
    const uint8_t *values;
    const uint8_t *offsets; /* NULL for a column of empty strings */
    uint64_t first;
    uint64_t last;
} Strings;

typedef struct {
    const uint8_t *ids;
    const uint8_t *timestamps;
    uint64_t count;
    uint64_t size; /* of the batch to be */
    Strings payloads;
    Strings headers;
} Source;

enum { IDS, TIMESTAMPS, PAYLOADS, PAYLOAD_OFFSETS, HEADERS, HEADER_OFFSETS, SOURCE_COLUMNS };

static bool open_strings(const Py_buffer *values, const Py_buffer *offsets, uint64_t count,
                         Strings *strings, Fault *fault)
{
    if (offsets->buf == NULL && offsets->obj == NULL) {
        *strings = (Strings){NULL, NULL, 0, 0};
        return true;
    }
    if ((uint64_t)offsets->len != 4 * (count + 1))
        return blame(fault, REASON_COLUMN_LENGTH, -1, 0, (uint64_t)offsets->len, 4 * (count + 1));
    uint64_t limit = (uint64_t)values->len;
    if (limit > COLUMN_BYTES_MAX)
        limit = COLUMN_BYTES_MAX;
    uint64_t first = load32(offsets->buf);
    uint64_t last = load32((const uint8_t *)offsets->buf + 4 * count);
    if (last > limit)
        return blame(fault, REASON_COLUMN_OFFSETS, -1, 4 * count, last, limit);
    if (first > last)
        return blame(fault, REASON_COLUMN_OFFSETS, -1, 0, first, last);
    *strings = (Strings){values->buf, offsets->buf, first, last};
    return true;
}

static bool open_source(const Py_buffer views[SOURCE_COLUMNS], Source *source, Fault *fault)
{
    uint64_t ids_bytes = (uint64_t)views[IDS].len;
    uint64_t count = ids_bytes / MESSAGE_ID_BYTES;
    uint64_t count_max = (BATCH_BYTES_MAX - BATCH_HEADER_BYTES) / FRAME_HEADER_BYTES;
    if (ids_bytes % MESSAGE_ID_BYTES != 0)
        return blame(fault, REASON_COLUMN_LENGTH, -1, 0, ids_bytes, count * MESSAGE_ID_BYTES);
    if (count == 0 || count > count_max)
        return blame(fault, REASON_MESSAGE_COUNT_RANGE, -1, 0, count, count_max);
    if ((uint64_t)views[TIMESTAMPS].len != 8 * count)
        return blame(fault, REASON_COLUMN_LENGTH, -1, 0, (uint64_t)views[TIMESTAMPS].len,
                     8 * count);
    *source = (Source){.ids = views[IDS].buf, .timestamps = views[TIMESTAMPS].buf, .count = count};
    if (!open_strings(&views[PAYLOADS], &views[PAYLOAD_OFFSETS], count, &source->payloads, fault)
        || !open_strings(&views[HEADERS], &views[HEADER_OFFSETS], count, &source->headers, fault))
        return false;
    source->size = BATCH_HEADER_BYTES + count * FRAME_HEADER_BYTES
                   + (source->payloads.last - source->payloads.first)
                   + (source->headers.last - source->headers.first);
    if (source->size > BATCH_BYTES_MAX)
        return blame(fault, REASON_BATCH_SIZE, -1, 0, source->size, BATCH_BYTES_MAX);
    return true;
}

/* The end of string `index`, whose start is `from`. */
INLINE bool string_end(const Strings *strings, uint64_t index, uint64_t count, uint64_t from,
                       uint64_t *to, Fault *fault)
{
    if (strings->offsets == NULL || index + 1 == count) {
        *to = strings->last;
        return true;
    }
    *to = load32(strings->offsets + 4 * (index + 1));
    if (UNLIKELY(*to > strings->last || *to < from))
        return blame(fault, REASON_COLUMN_OFFSETS, (int64_t)index, 4 * (index + 1), *to,
                     *to < from ? from : strings->last);
    return true;
}

/* Writes frame `index` to `frame`; *payload and *headers move on to the next start. */
INLINE bool build_frame(const Source *source, uint64_t index, uint64_t origin, uint64_t *payload,
                        uint64_t *headers, uint8_t **frame, Fault *fault)
{
    uint64_t payload_end, headers_end;
    if (!string_end(&source->payloads, index, source->count, *payload, &payload_end, fault)
        || !string_end(&source->headers, index, source->count, *headers, &headers_end, fault))
        return false;
    uint64_t payload_length = payload_end - *payload;
    uint64_t headers_length = headers_end - *headers;
    if (UNLIKELY(payload_length - 1 >= PAYLOAD_BYTES_MAX))
        return blame(fault, REASON_PAYLOAD_LENGTH, (int64_t)index, 4 * index, payload_length,
                     PAYLOAD_BYTES_MAX);
    if (UNLIKELY(headers_length > USER_HEADERS_BYTES_MAX))
        return blame(fault, REASON_USER_HEADERS_LENGTH, (int64_t)index, 4 * index, headers_length,
                     USER_HEADERS_BYTES_MAX);
    uint64_t delta = load64(source->timestamps + 8 * index) - origin;
    if (UNLIKELY(delta > UINT32_MAX))
        return blame(fault, REASON_TIMESTAMP_SPAN, (int64_t)index, 8 * index, delta, UINT32_MAX);
    uint8_t *start = *frame;
    uint64_t size = FRAME_HEADER_BYTES + payload_length + headers_length;
    memcpy(start + FRAME_ID_AT, source->ids + MESSAGE_ID_BYTES * index, MESSAGE_ID_BYTES);
    store32(start + OFFSET_DELTA_AT, (uint32_t)index);
    store32(start + TIMESTAMP_DELTA_AT, (uint32_t)delta);
    store32(start + USER_HEADERS_LENGTH_AT, (uint32_t)headers_length);
    store32(start + PAYLOAD_LENGTH_AT, (uint32_t)payload_length);
    store64(start + FRAME_RESERVED_AT, 0);
    copy_bytes(start + FRAME_HEADER_BYTES, source->payloads.values + *payload, payload_length);
    if (headers_length > 0)
        memcpy(start + FRAME_HEADER_BYTES + payload_length, source->headers.values + *headers,
               headers_length);
    store64(start + FRAME_CHECKSUM_AT, hash_from_17(start + HASHED_AT, size - HASHED_AT));
    *payload = payload_end;
    *headers = headers_end;
    *frame = start + size;
    return true;
}

static bool build_batch(const Source *source, uint8_t *batch, Fault *fault)
{
    Gather gather;
    if (!gather_open(&gather, source->count, fault))
        return false;
    uint64_t origin = UINT64_MAX;
    for (uint64_t index = 0; index < source->count; index++) {
        uint64_t timestamp = load64(source->timestamps + 8 * index);
        origin = timestamp < origin ? timestamp : origin;
    }
    uint64_t payload = source->payloads.first;
    uint64_t headers = source->headers.first;
    uint8_t *next = batch + BATCH_HEADER_BYTES;
    bool good = true;
    for (uint64_t index = 0; good && index < source->count; index++) {
        Frame frame = {.start = next};
        good = build_frame(source, index, origin, &payload, &headers, &next, fault);
        if (good)
            gather_frame(&gather, index, &frame);
    }
    if (good) {
        memset(batch, 0, BATCH_HEADER_BYTES);
        store64(batch + ORIGIN_TIMESTAMP_AT, origin);
        store64(batch + BATCH_LENGTH_AT, source->size);
        store32(batch + MESSAGE_COUNT_AT, (uint32_t)source->count);
        store64(batch + BATCH_CHECKSUM_AT, gather_hash(&gather, batch, source->count));
    }
    gather_close(&gather);
    return good;
}

static PyObject *build_from(PyObject *module, const Py_buffer views[SOURCE_COLUMNS])
{
    Source source;
    Fault fault;
    if (!open_source(views, &source, &fault))
        return raise_fault(module, &fault);
    PyObject *batch = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)source.size);
    if (batch == NULL)
        return NULL;
    uint8_t *bytes = (uint8_t *)PyBytes_AS_STRING(batch);
    PyThreadState *thread = unlock_for((Py_ssize_t)source.size);
    bool good = build_batch(&source, bytes, &fault);
    lock_again(thread);
    if (good)
        return batch;
    Py_DECREF(batch);
    return raise_fault(module, &fault);
}

PyDoc_STRVAR(build_doc,
"build(ids, timestamps, payloads, payload_offsets, headers, header_offsets, /)\n--\n\n"
"Return a producer batch made from columns.");

static PyObject *py_build(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (!parse_count("build", count, SOURCE_COLUMNS))
        return NULL;
    if ((arguments[HEADERS] == Py_None) != (arguments[HEADER_OFFSETS] == Py_None)) {
        PyErr_SetString(PyExc_TypeError, "headers and header_offsets are given both or neither");
        return NULL;
    }
    Py_buffer views[SOURCE_COLUMNS];
    memset(views, 0, sizeof views);
    int columns = arguments[HEADERS] == Py_None ? HEADERS : SOURCE_COLUMNS;
    int opened = 0;
    while (opened < columns
           && PyObject_GetBuffer(arguments[opened], &views[opened], PyBUF_SIMPLE) == 0)
        opened++;
    PyObject *batch = opened == columns ? build_from(module, views) : NULL;
    while (opened > 0)
        PyBuffer_Release(&views[--opened]);
    return batch;
}

/* -------------------------------------------------------------------------------- columns -- */

typedef struct {
    const uint8_t *data;
    uint64_t size;
    uint64_t offset_min;
    uint64_t offset_max;
    bool check;
    bool split;
    bool avx2;
} Query;

/* How much the batches touched can yield, from their headers alone. */
typedef struct {
    uint64_t rows;
    uint64_t bytes;     /* payloads and user headers together, at most */
    uint64_t count_max; /* messages of the largest batch */
} Plan;

/* Where the columns go. One batch is filled through a copy of this in a local, whose address no
 * other function sees: or else each byte stored could be, to the compiler, a pointer changed. */
typedef struct {
    uint64_t rows;
    uint64_t payloads_used;
    uint64_t *offsets;
    uint64_t *timestamps;
    uint8_t *origin_timestamps;
    uint8_t *ids;
    uint8_t *payload_offsets;
    uint8_t *payloads;
    uint8_t *header_offsets;
} Rows;

/* User headers are rare, so their column is scratch, made when the first one comes. */
typedef struct {
    uint8_t *bytes;
    uint64_t used;
    uint64_t max;
} UserHeaders;

/* The objects that `split` fills: made before, with the lock held, and nobody else has them yet. */
typedef struct {
    uint64_t made; /* rows that have them */
    PyObject **payloads;
    PyObject **headers;
} Objects;

typedef struct {
    Plan plan;
    Rows rows;
    UserHeaders headers; /* of `columns` only, as all of `rows` but their number */
    Objects objects;     /* of `split` only */
} Fill;

static bool plan_columns(const Query *query, Plan *plan, Fault *fault)
{
    *plan = (Plan){0, 0, 0};
    Batch batch;
    for (uint64_t position = 0; position < query->size; position += batch.length) {
        if (!open_stamped(query->data, position, query->size, false, &batch, fault))
            return false;
        uint64_t first, stop;
        select_frames(&batch, query->offset_min, query->offset_max, &first, &stop);
        if (first == stop)
            continue;
        plan->rows += stop - first;
        plan->bytes += batch.spare;
        plan->count_max = batch.count > plan->count_max ? batch.count : plan->count_max;
    }
    return true;
}

static bool add_headers(UserHeaders *headers, uint64_t bytes_left, const Frame *frame, Fault *fault)
{
    if (headers->bytes == NULL) {
        headers->max = bytes_left;
        headers->bytes = PyMem_RawMalloc(bytes_left);
        if (headers->bytes == NULL)
            return blame(fault, REASON_NO_MEMORY, -1, 0, 0, 0);
    }
    if (frame->headers_length > headers->max - headers->used)
        return blame(fault, REASON_FRAME_LENGTH, -1, frame->position, frame->headers_length,
                     headers->max - headers->used);
    memcpy(headers->bytes + headers->used,
           frame->start + FRAME_HEADER_BYTES + frame->payload_length, frame->headers_length);
    headers->used += frame->headers_length;
    return true;
}

/* Adds what differs from message to message; the payload was placed by `step` if it `checked`. */
INLINE bool add_row(Rows *rows, const Batch *batch, const Frame *frame, Place *place, bool checked,
                    UserHeaders *headers, Fault *fault)
{
    const uint8_t *start = frame->start;
    /* Only bytes changed by another thread since the plan was made can exceed it. */
    if (UNLIKELY(frame->payload_length > place->room))
        return blame(fault, REASON_FRAME_LENGTH, -1, frame->position, frame->payload_length,
                     place->room);
    if (!checked)
        copy_bytes(place->to, start + FRAME_HEADER_BYTES, frame->payload_length);
    place->to += frame->payload_length;
    place->room -= frame->payload_length;
    if (UNLIKELY(frame->headers_length > 0) && !add_headers(headers, place->room, frame, fault))
        return false;
    uint64_t row = rows->rows;
    store64(rows->origin_timestamps + 8 * row,
            batch->origin_timestamp + load32(start + TIMESTAMP_DELTA_AT));
    memcpy(rows->ids + MESSAGE_ID_BYTES * row, start + FRAME_ID_AT, MESSAGE_ID_BYTES);
    rows->rows = ++row;
    store32(rows->payload_offsets + 4 * row, (uint32_t)(place->to - rows->payloads));
    store32(rows->header_offsets + 4 * row, (uint32_t)headers->used);
    return true;
}

/* Walks up to index `stop` and adds nothing. */
INLINE bool pass_frames(bool check, Walk *walk, uint64_t stop, Gather *gather, Fault *fault)
{
    Frame frame;
    while (walk->index < stop) {
        if (!step(walk, check, &frame, fault))
            return false;
        if (check)
            gather_frame(gather, walk->index - 1, &frame);
    }
    return true;
}

/* Walks up to index `stop` and adds each frame. */
INLINE bool add_frames(bool check, HashCopy hash_copy, Walk *walk, uint64_t stop,
                       const Batch *batch, Gather *gather, Fill *fill, Fault *fault)
{
    Rows rows = fill->rows;
    Place place = {hash_copy, rows.payloads + rows.payloads_used,
                   fill->plan.bytes - rows.payloads_used};
    uint8_t *checksums = gather->bytes + CHECKSUM_HEAD_BYTES;
    Frame frame;
    for (uint64_t index = walk->index; index < stop; index++) {
        if (!step_placing(walk, check, &place, &frame, fault))
            return false;
        if (check)
            memcpy(checksums + 8 * index, frame.start + FRAME_CHECKSUM_AT, 8);
        if (!add_row(&rows, batch, &frame, &place, check, &fill->headers, fault))
            return false;
    }
    rows.payloads_used = (uint64_t)(place.to - rows.payloads);
    fill->rows = rows;
    return true;
}

/* Fills the objects of one frame; the payload was placed by `step` if it has the size planned. */
INLINE bool fill_row(const Objects *objects, uint64_t row, const Place *place, const Frame *frame,
                     Fault *fault)
{
    /* As in add_row. A row without objects has no room: the walk that made them met a fault, which
     * the checked walk meets no later. */
    if (UNLIKELY(frame->payload_length != place->room))
        return blame(fault, REASON_FRAME_LENGTH, -1, frame->position, frame->payload_length,
                     place->room);
    PyObject *headers = objects->headers[row];
    if (UNLIKELY(frame->headers_length != (uint64_t)PyBytes_GET_SIZE(headers)))
        return blame(fault, REASON_FRAME_LENGTH, -1, frame->position, frame->headers_length,
                     (uint64_t)PyBytes_GET_SIZE(headers));
    if (UNLIKELY(frame->headers_length > 0))
        memcpy(PyBytes_AS_STRING(headers),
               frame->start + FRAME_HEADER_BYTES + frame->payload_length, frame->headers_length);
    return true;
}

/* Walks up to index `stop` and fills the objects of each frame. */
INLINE bool fill_frames(HashCopy hash_copy, Walk *walk, uint64_t stop, Gather *gather, Fill *fill,
                        Fault *fault)
{
    const Objects objects = fill->objects;
    uint64_t row = fill->rows.rows;
    Frame frame;
    for (uint64_t index = walk->index; index < stop; index++, row++) {
        Place place = {hash_copy, NULL, 0};
        if (row < objects.made) {
            place.to = (uint8_t *)PyBytes_AS_STRING(objects.payloads[row]);
            place.room = (uint64_t)PyBytes_GET_SIZE(objects.payloads[row]);
        }
        if (!step_placing(walk, true, &place, &frame, fault))
            return false;
        gather_frame(gather, index, &frame);
        if (!fill_row(&objects, row, &place, &frame, fault))
            return false;
    }
    fill->rows.rows = row;
    return true;
}

/* Adds what is the same for all messages of a batch, or counts up. */
static void add_batch_wide(const Batch *batch, uint64_t first, uint64_t count, const Rows *rows)
{
    uint64_t *offsets = rows->offsets + rows->rows;
    uint64_t *timestamps = rows->timestamps + rows->rows;
    for (uint64_t index = 0; index < count; index++) {
        offsets[index] = batch->base_offset + batch->delta_first + first + index;
        timestamps[index] = batch->base_timestamp;
    }
}

/* What comes behind the frames that were wanted: all frames of a batch are verified. */
INLINE bool check_rest(const Query *query, const Batch *batch, Walk *walk, Gather *gather,
                       Fault *fault)
{
    uint64_t checksum;
    return pass_frames(true, walk, batch->count, gather, fault) && finish_walk(walk, fault)
           && check_batch_checksum(gather, query->data, batch, &checksum, fault);
}

/* The frames first..stop of one batch; with `check` all its frames are walked and verified. */
INLINE bool add_batch(bool check, HashCopy hash_copy, const Query *query, const Batch *batch,
                      uint64_t first, uint64_t stop, Gather *gather, Fill *fill, Fault *fault)
{
    add_batch_wide(batch, first, stop - first, &fill->rows);
    Walk walk = start_walk(query->data, batch);
    if (!pass_frames(check, &walk, first, gather, fault)
        || !add_frames(check, hash_copy, &walk, stop, batch, gather, fill, fault))
        return false;
    if (!check)
        return stop < batch->count || finish_walk(&walk, fault);
    return check_rest(query, batch, &walk, gather, fault);
}

/* The same for `split`, which always checks. */
INLINE bool split_batch(HashCopy hash_copy, const Query *query, const Batch *batch, uint64_t first,
                        uint64_t stop, Gather *gather, Fill *fill, Fault *fault)
{
    Walk walk = start_walk(query->data, batch);
    return pass_frames(true, &walk, first, gather, fault)
           && fill_frames(hash_copy, &walk, stop, gather, fill, fault)
           && check_rest(query, batch, &walk, gather, fault);
}

typedef bool (*AddBatch)(const Query *query, const Batch *batch, uint64_t first, uint64_t stop,
                         Gather *gather, Fill *fill, Fault *fault);

static bool add_unchecked(const Query *query, const Batch *batch, uint64_t first, uint64_t stop,
                          Gather *gather, Fill *fill, Fault *fault)
{
    return add_batch(false, NULL, query, batch, first, stop, gather, fill, fault);
}

static bool add_checked(const Query *query, const Batch *batch, uint64_t first, uint64_t stop,
                        Gather *gather, Fill *fill, Fault *fault)
{
    return add_batch(true, hash_copy_long_scalar, query, batch, first, stop, gather, fill, fault);
}

static bool split_checked(const Query *query, const Batch *batch, uint64_t first, uint64_t stop,
                          Gather *gather, Fill *fill, Fault *fault)
{
    return split_batch(hash_copy_long_scalar, query, batch, first, stop, gather, fill, fault);
}

#if WITH_AVX2

AVX2 static bool add_checked_avx2(const Query *query, const Batch *batch, uint64_t first,
                                  uint64_t stop, Gather *gather, Fill *fill, Fault *fault)
{
    return add_batch(true, hash_copy_long_avx2, query, batch, first, stop, gather, fill, fault);
}

AVX2 static bool split_checked_avx2(const Query *query, const Batch *batch, uint64_t first,
                                    uint64_t stop, Gather *gather, Fill *fill, Fault *fault)
{
    return split_batch(hash_copy_long_avx2, query, batch, first, stop, gather, fill, fault);
}

#else

#define add_checked_avx2 add_checked
#define split_checked_avx2 split_checked

#endif

static AddBatch choose_add(const Query *query)
{
    if (query->split)
        return query->avx2 ? split_checked_avx2 : split_checked;
    if (!query->check)
        return add_unchecked;
    return query->avx2 ? add_checked_avx2 : add_checked;
}

static bool add_batches(const Query *query, Gather *gather, Fill *fill, Fault *fault)
{
    AddBatch add = choose_add(query);
    Batch batch;
    for (uint64_t position = 0; position < query->size; position += batch.length) {
        if (!open_stamped(query->data, position, query->size, false, &batch, fault))
            return false;
        uint64_t first, stop;
        select_frames(&batch, query->offset_min, query->offset_max, &first, &stop);
        if (first == stop)
            continue;
        /* As in add_row: headers changed since the plan was made. */
        uint64_t rows_left = fill->plan.rows - fill->rows.rows;
        if (batch.count > fill->plan.count_max || stop - first > rows_left)
            return blame(fault, REASON_MESSAGE_COUNT, -1, position + MESSAGE_COUNT_AT, batch.count,
                         rows_left);
        if (!add(query, &batch, first, stop, gather, fill, fault))
            return false;
    }
    if (fill->rows.rows != fill->plan.rows)
        return blame(fault, REASON_MESSAGE_COUNT, -1, query->size, fill->rows.rows,
                     fill->plan.rows);
    return true;
}

static bool fill_all(const Query *query, Fill *fill, Fault *fault)
{
    Gather gather;
    if (!gather_open(&gather, query->check ? fill->plan.count_max : 0, fault))
        return false;
    bool good = add_batches(query, &gather, fill, fault);
    gather_close(&gather);
    return good;
}

/* The integer columns are written as such, so their bytes must be aligned. */
_Static_assert(offsetof(PyBytesObject, ob_sval) % sizeof(uint64_t) == 0, "bytes are not aligned");

/* The fields of Columns, in its order. */
enum { COUNT, OFFSETS, TIMES, ORIGINS, IDENTITIES, VALUE_ENDS, VALUES, HEADER_ENDS, HEADER_VALUES,
       COLUMNS_FIELDS };

static bool new_columns(PyObject *fields[COLUMNS_FIELDS], Fill *fill)
{
    const uint64_t rows = fill->plan.rows;
    const uint64_t sizes[] = {
        [OFFSETS] = 8 * rows,
        [TIMES] = 8 * rows,
        [ORIGINS] = 8 * rows,
        [IDENTITIES] = MESSAGE_ID_BYTES * rows,
        [VALUE_ENDS] = 4 * (rows + 1),
        [VALUES] = fill->plan.bytes,
        [HEADER_ENDS] = 4 * (rows + 1),
    };
    fields[COUNT] = PyLong_FromUnsignedLongLong(rows);
    if (fields[COUNT] == NULL)
        return false;
    for (int field = OFFSETS; field <= HEADER_ENDS; field++) {
        fields[field] = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)sizes[field]);
        if (fields[field] == NULL)
            return false;
    }
    fill->rows = (Rows){
        .offsets = (uint64_t *)(void *)PyBytes_AS_STRING(fields[OFFSETS]),
        .timestamps = (uint64_t *)(void *)PyBytes_AS_STRING(fields[TIMES]),
        .origin_timestamps = (uint8_t *)PyBytes_AS_STRING(fields[ORIGINS]),
        .ids = (uint8_t *)PyBytes_AS_STRING(fields[IDENTITIES]),
        .payload_offsets = (uint8_t *)PyBytes_AS_STRING(fields[VALUE_ENDS]),
        .payloads = (uint8_t *)PyBytes_AS_STRING(fields[VALUES]),
        .header_offsets = (uint8_t *)PyBytes_AS_STRING(fields[HEADER_ENDS]),
    };
    store32(fill->rows.payload_offsets, 0);
    store32(fill->rows.header_offsets, 0);
    return true;
}

/* Cuts the payloads to what was used and gives the user headers their own object. */
static bool close_columns(PyObject *fields[COLUMNS_FIELDS], const Fill *fill)
{
    if (fill->rows.payloads_used < fill->plan.bytes
        && _PyBytes_Resize(&fields[VALUES], (Py_ssize_t)fill->rows.payloads_used) < 0)
        return false;
    fields[HEADER_VALUES] = PyBytes_FromStringAndSize((const char *)fill->headers.bytes,
                                                      (Py_ssize_t)fill->headers.used);
    return fields[HEADER_VALUES] != NULL;
}

/* tuple.__new__(type, fields): four times as fast as the call of a named tuple. */
static PyObject *pack_fields(PyObject *type, PyObject *const *fields, int count)
{
    PyObject *values = PyTuple_New(count);
    PyObject *arguments = values == NULL ? NULL : PyTuple_Pack(1, values);
    PyObject *result = NULL;
    if (arguments != NULL) {
        for (int field = 0; field < count; field++)
            PyTuple_SET_ITEM(values, field, Py_NewRef(fields[field]));
        result = PyTuple_Type.tp_new((PyTypeObject *)type, arguments, NULL);
    }
    Py_XDECREF(arguments);
    Py_XDECREF(values);
    return result;
}

/* Plans the result, and refuses one that is too large; false with an error set. */
static bool plan_within(PyObject *module, const Query *query, Plan *plan)
{
    Fault fault;
    if (!plan_columns(query, plan, &fault)) {
        raise_fault(module, &fault);
        return false;
    }
    if (plan->bytes <= COLUMN_BYTES_MAX)
        return true;
    PyErr_Format(PyExc_ValueError, "batches with %llu bytes of messages, limit %d",
                 (unsigned long long)plan->bytes, COLUMN_BYTES_MAX);
    return false;
}

/* Fills what was made, without the lock if there is much; false with an error set. */
static bool fill_unlocked(PyObject *module, const Query *query, Fill *fill)
{
    Fault fault;
    PyThreadState *thread = unlock_for((Py_ssize_t)query->size);
    bool good = fill_all(query, fill, &fault);
    lock_again(thread);
    if (!good)
        raise_fault(module, &fault);
    return good;
}

static PyObject *columns_from(PyObject *module, const Query *query)
{
    Fill fill = {.headers = {NULL, 0, 0}};
    if (!plan_within(module, query, &fill.plan))
        return NULL;
    State *state = PyModule_GetState(module);
    PyObject *fields[COLUMNS_FIELDS] = {NULL};
    PyObject *result = NULL;
    if (new_columns(fields, &fill) && fill_unlocked(module, query, &fill)
        && close_columns(fields, &fill))
        result = pack_fields(state->columns_type, fields, COLUMNS_FIELDS);
    PyMem_RawFree(fill.headers.bytes);
    for (int field = 0; field < COLUMNS_FIELDS; field++)
        Py_XDECREF(fields[field]);
    return result;
}

static PyObject *columns_with(PyObject *module, PyObject *const *arguments, Py_ssize_t count,
                              bool avx2)
{
    Py_buffer view;
    if (!parse_count("columns", count, 4)
        || PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    Query query = {.data = view.buf, .size = (uint64_t)view.len, .avx2 = avx2};
    PyObject *result = NULL;
    if (parse_u64(arguments[1], "offset_min", &query.offset_min)
        && parse_u64(arguments[2], "offset_max", &query.offset_max)) {
        int check = PyObject_IsTrue(arguments[3]);
        query.check = check > 0;
        if (check >= 0)
            result = columns_from(module, &query);
    }
    PyBuffer_Release(&view);
    return result;
}

PyDoc_STRVAR(columns_doc,
"columns(batches, offset_min, offset_max, check, /)\n--\n\n"
"Return the messages of a range of offsets as columns.");

static PyObject *py_columns(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    return columns_with(module, arguments, count, has_avx2);
}

PyDoc_STRVAR(columns_scalar_doc,
"columns_scalar(batches, offset_min, offset_max, check, /)\n--\n\n"
"The same as on machines without AVX2. For tests.");

static PyObject *py_columns_scalar(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    return columns_with(module, arguments, count, false);
}

/* ---------------------------------------------------------------------------------- split -- */

/* The fields of Split, in its order. Its lists have one object for each message; messages of a
 * batch share the number of its time, and those that follow one another an equal one. */
enum { SPLIT_OFFSETS, SPLIT_TIMES, SPLIT_ORIGINS, SPLIT_IDS, SPLIT_PAYLOADS, SPLIT_HEADERS,
       SPLIT_FIELDS };

static bool new_split(PyObject *fields[SPLIT_FIELDS], Fill *fill)
{
    const uint64_t rows = fill->plan.rows;
    for (int field = 0; field < SPLIT_FIELDS; field++) {
        fields[field] = field == SPLIT_IDS
                            ? PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(MESSAGE_ID_BYTES * rows))
                            : PyList_New((Py_ssize_t)rows);
        if (fields[field] == NULL)
            return false;
    }
    fill->objects.payloads = ((PyListObject *)fields[SPLIT_PAYLOADS])->ob_item;
    fill->objects.headers = ((PyListObject *)fields[SPLIT_HEADERS])->ob_item;
    return true;
}

/* A number, and the object that stands for it. */
typedef struct {
    uint64_t value;
    PyObject *number; /* NULL at first */
} Shared;

static bool share(Shared *shared, uint64_t value)
{
    if (shared->number != NULL && shared->value == value)
        return true;
    Py_XDECREF(shared->number);
    *shared = (Shared){value, PyLong_FromLongLong((long long)value)};
    return shared->number != NULL;
}

/* Puts an object into a row of a list, which takes it; false if there is none. */
static bool put(PyObject *list, uint64_t row, PyObject *object)
{
    PyList_SET_ITEM(list, (Py_ssize_t)row, object);
    return object != NULL;
}

static bool make_row(PyObject *const fields[SPLIT_FIELDS], uint64_t row, const Frame *frame,
                     uint64_t offset, Shared *time, Shared *origin)
{
    memcpy(PyBytes_AS_STRING(fields[SPLIT_IDS]) + MESSAGE_ID_BYTES * row,
           frame->start + FRAME_ID_AT, MESSAGE_ID_BYTES);
    return put(fields[SPLIT_OFFSETS], row, PyLong_FromLongLong((long long)offset))
           && put(fields[SPLIT_TIMES], row, Py_NewRef(time->number))
           && put(fields[SPLIT_ORIGINS], row, Py_NewRef(origin->number))
           && put(fields[SPLIT_PAYLOADS], row,
                  PyBytes_FromStringAndSize(NULL, (Py_ssize_t)frame->payload_length))
           && put(fields[SPLIT_HEADERS], row,
                  PyBytes_FromStringAndSize(NULL, (Py_ssize_t)frame->headers_length));
}

/* Makes the objects of the frames first..stop of one batch, or of those before a fault; no sum of
 * lengths exceeds the batch. False with an error set. */
static bool make_rows(const Query *query, const Batch *batch, uint64_t first, uint64_t stop,
                      PyObject *const fields[SPLIT_FIELDS], Fill *fill)
{
    Walk walk = start_walk(query->data, batch);
    Frame frame;
    Fault ignored; /* The checked walk meets it, or one before it. */
    Shared time = {0, NULL}, origin = {0, NULL};
    bool good = pass_frames(false, &walk, first, NULL, &ignored)
                    ? share(&time, batch->base_timestamp)
                    : true;
    while (good && walk.index >= first && walk.index < stop
           && step(&walk, false, &frame, &ignored)) {
        uint64_t offset = batch->base_offset + batch->delta_first + walk.index - 1;
        uint32_t delta = load32(frame.start + TIMESTAMP_DELTA_AT);
        good = share(&origin, batch->origin_timestamp + delta)
               && make_row(fields, fill->objects.made, &frame, offset, &time, &origin);
        fill->objects.made += good;
    }
    Py_XDECREF(time.number);
    Py_XDECREF(origin.number);
    return good;
}

/* Makes the objects of all messages wanted, or of those before a fault. No Python code runs. */
static bool make_objects(const Query *query, PyObject *const fields[SPLIT_FIELDS], Fill *fill)
{
    Batch batch;
    Fault ignored;
    for (uint64_t position = 0; position < query->size; position += batch.length) {
        uint64_t first, stop, made = fill->objects.made;
        if (!open_stamped(query->data, position, query->size, false, &batch, &ignored))
            return true;
        select_frames(&batch, query->offset_min, query->offset_max, &first, &stop);
        if (first == stop)
            continue;
        if (stop - first > fill->plan.rows - made)
            return true;
        if (!make_rows(query, &batch, first, stop, fields, fill))
            return false;
        if (fill->objects.made - made < stop - first)
            return true;
    }
    return true;
}

static PyObject *split_from(PyObject *module, const Query *query)
{
    Fill fill = {.rows = {.rows = 0}, .objects = {.made = 0}};
    if (!plan_within(module, query, &fill.plan))
        return NULL;
    State *state = PyModule_GetState(module);
    PyObject *fields[SPLIT_FIELDS] = {NULL};
    PyObject *result = NULL;
    if (new_split(fields, &fill) && make_objects(query, fields, &fill)
        && fill_unlocked(module, query, &fill))
        result = pack_fields(state->split_type, fields, SPLIT_FIELDS);
    for (int field = 0; field < SPLIT_FIELDS; field++)
        Py_XDECREF(fields[field]);
    return result;
}

static PyObject *split_with(PyObject *module, PyObject *const *arguments, Py_ssize_t count,
                            bool avx2)
{
    Py_buffer view;
    if (!parse_count("split", count, 3)
        || PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    Query query = {
        .data = view.buf, .size = (uint64_t)view.len, .check = true, .split = true, .avx2 = avx2};
    PyObject *result = NULL;
    if (parse_u64(arguments[1], "offset_min", &query.offset_min)
        && parse_u64(arguments[2], "offset_max", &query.offset_max))
        result = split_from(module, &query);
    PyBuffer_Release(&view);
    return result;
}

PyDoc_STRVAR(split_doc,
"split(batches, offset_min, offset_max, /)\n--\n\n"
"Return the messages of a range of offsets, each value as an object of its own.");

static PyObject *py_split(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    return split_with(module, arguments, count, has_avx2);
}

PyDoc_STRVAR(split_scalar_doc,
"split_scalar(batches, offset_min, offset_max, /)\n--\n\n"
"The same as on machines without AVX2. For tests.");

static PyObject *py_split_scalar(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    return split_with(module, arguments, count, false);
}

/* ------------------------------------------------------------------------------------ cut -- */

/* Makes one object for each string, so the lock is held throughout. As in `build`, each offset is
 * read once and held against its limits before it is used. */
static PyObject *cut_strings(PyObject *module, const Strings *strings, uint64_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    uint64_t from = strings->first;
    for (uint64_t index = 0; list != NULL && index < count; index++) {
        Fault fault;
        uint64_t to;
        if (!string_end(strings, index, count, from, &to, &fault)) {
            Py_DECREF(list);
            return raise_fault(module, &fault);
        }
        PyObject *string = PyBytes_FromStringAndSize((const char *)strings->values + from,
                                                     (Py_ssize_t)(to - from));
        if (string == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)index, string);
        from = to;
    }
    return list;
}

PyDoc_STRVAR(cut_doc,
"cut(values, offsets, /)\n--\n\n"
"Return the values of a column of byte strings, each as an object of its own.");

static PyObject *py_cut(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Py_buffer values, offsets;
    if (!parse_count("cut", count, 2)
        || PyObject_GetBuffer(arguments[0], &values, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *list = NULL;
    if (PyObject_GetBuffer(arguments[1], &offsets, PyBUF_SIMPLE) == 0) {
        uint64_t ends = (uint64_t)offsets.len / 4;
        uint64_t strings_count = ends > 0 ? ends - 1 : 0;
        Strings strings;
        Fault fault;
        if (open_strings(&values, &offsets, strings_count, &strings, &fault))
            list = cut_strings(module, &strings, strings_count);
        else
            raise_fault(module, &fault);
        PyBuffer_Release(&offsets);
    }
    PyBuffer_Release(&values);
    return list;
}

/* --------------------------------------------------------------------------------- gather -- */

/* A producer's batches while messages are added to them. Frames are written as they will be sent;
 * ids and checksums follow in `finish`, once for the batch.
 *
 * The interpreter lock is held throughout, except for the hashes of `finish`, and no Python code
 * runs between the check of a limit and the write that it allows: to other threads a call is one
 * step. What may run Python code (the clock, an allocation that starts the collector) comes first. */

enum { FRAMES_BYTES_FIRST = 4096 };
#define SPAN_MICROS_MAX 3600000000u /* one hour: the field of a frame holds 71 minutes */

/* One batch. `bytes` is NULL before the first message and after `finish`; the numbers stay. */
typedef struct {
    PyObject_HEAD
    PyObject *bytes;
    uint64_t size; /* of the batch: its header and its frames */
    uint64_t count;
    uint64_t origin; /* when the first message was created */
    bool is_finished;
} Frames;

/* One message of a batch. */
typedef struct {
    PyObject_HEAD
    PyObject *batch; /* NULL until a message is added */
    uint64_t index;
} Receipt;

/* All unconfirmed messages of one producer: the limits, and what counts against them. */
typedef struct {
    PyObject_HEAD
    uint64_t messages_max;
    uint64_t batch_bytes_max;
    uint64_t buffer_bytes_max;
    uint64_t buffered_bytes;
    uint64_t messages_count;
    PyObject *clock;
    PyTypeObject *receipt_type;
    Frames *current;  /* where `add` adds; NULL if nowhere */
    Receipt *receipt; /* the last one returned: used again if nobody has kept it */
} Gatherer;

/* Makes room for a batch of `size` bytes, and for more to come unless it is the first message:
 * one that is larger than a batch goes alone. Runs no Python code. */
static bool grow_frames(Frames *frames, uint64_t size)
{
    if (size > BATCH_BYTES_MAX) {
        PyErr_Format(PyExc_OverflowError, "a batch of %llu bytes, limit %d",
                     (unsigned long long)size, BATCH_BYTES_MAX);
        return false;
    }
    uint64_t room = frames->bytes == NULL ? FRAMES_BYTES_FIRST
                                          : 2 * (uint64_t)PyBytes_GET_SIZE(frames->bytes);
    room = room > BATCH_BYTES_MAX ? BATCH_BYTES_MAX : room;
    room = room < size ? size : room;
    /* Not `_PyBytes_Resize`: when that fails, the messages are gone. */
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)room);
    if (bytes == NULL)
        return false;
    if (frames->bytes != NULL)
        memcpy(PyBytes_AS_STRING(bytes), PyBytes_AS_STRING(frames->bytes), frames->size);
    Py_XSETREF(frames->bytes, bytes);
    return true;
}

/* Adds one message of good lengths. Runs no Python code. */
INLINE bool put_frame(Frames *frames, PyObject *value, PyObject *headers, uint64_t micros)
{
    uint64_t payload_length = (uint64_t)PyBytes_GET_SIZE(value);
    uint64_t headers_length = headers == NULL ? 0 : (uint64_t)PyBytes_GET_SIZE(headers);
    uint64_t end = frames->size + FRAME_HEADER_BYTES + payload_length + headers_length;
    if (UNLIKELY(frames->bytes == NULL || end > (uint64_t)PyBytes_GET_SIZE(frames->bytes))
        && !grow_frames(frames, end))
        return false;
    if (frames->count == 0)
        frames->origin = micros;
    /* A clock that jumps must not make the batch impossible to encode. */
    uint64_t delta = micros > frames->origin ? micros - frames->origin : 0;
    delta = delta > SPAN_MICROS_MAX ? SPAN_MICROS_MAX : delta;
    uint8_t *start = (uint8_t *)PyBytes_AS_STRING(frames->bytes) + frames->size;
    store32(start + OFFSET_DELTA_AT, (uint32_t)frames->count);
    store32(start + TIMESTAMP_DELTA_AT, (uint32_t)delta);
    store32(start + USER_HEADERS_LENGTH_AT, (uint32_t)headers_length);
    store32(start + PAYLOAD_LENGTH_AT, (uint32_t)payload_length);
    store64(start + FRAME_RESERVED_AT, 0);
    copy_bytes(start + FRAME_HEADER_BYTES, (const uint8_t *)PyBytes_AS_STRING(value),
               payload_length);
    if (headers_length > 0)
        memcpy(start + FRAME_HEADER_BYTES + payload_length, PyBytes_AS_STRING(headers),
               headers_length);
    frames->size = end;
    frames->count++;
    return true;
}

/* Writes what was left open: ids, checksums, the header of the batch. */
static bool finish_frames(uint8_t *batch, uint64_t size, uint64_t count, uint64_t origin,
                          const uint8_t *ids, Fault *fault)
{
    Gather gather;
    if (!gather_open(&gather, count, fault))
        return false;
    uint8_t *start = batch + BATCH_HEADER_BYTES;
    for (uint64_t index = 0; index < count; index++) {
        uint64_t length = FRAME_HEADER_BYTES + (uint64_t)load32(start + USER_HEADERS_LENGTH_AT)
                          + load32(start + PAYLOAD_LENGTH_AT);
        memcpy(start + FRAME_ID_AT, ids + MESSAGE_ID_BYTES * index, MESSAGE_ID_BYTES);
        store64(start + FRAME_CHECKSUM_AT, hash_from_17(start + HASHED_AT, length - HASHED_AT));
        Frame frame = {.start = start};
        gather_frame(&gather, index, &frame);
        start += length;
    }
    memset(batch, 0, BATCH_HEADER_BYTES);
    store64(batch + ORIGIN_TIMESTAMP_AT, origin);
    store64(batch + BATCH_LENGTH_AT, size);
    store32(batch + MESSAGE_COUNT_AT, (uint32_t)count);
    store64(batch + BATCH_CHECKSUM_AT, gather_hash(&gather, batch, count));
    gather_close(&gather);
    return true;
}

static struct PyModuleDef definition;

/* The module of an object's type, or of the kernel's type that it derives from. */
static PyObject *module_of(PyObject *object)
{
    return PyType_GetModuleByDef(Py_TYPE(object), &definition);
}

PyDoc_STRVAR(finish_doc,
"finish($self, ids, /)\n--\n\n"
"Return the batch, with these ids of its messages; nothing can be added any more.");

static PyObject *frames_finish(PyObject *self, PyObject *argument)
{
    Frames *frames = (Frames *)self;
    PyObject *module = module_of(self);
    Py_buffer ids;
    if (module == NULL || PyObject_GetBuffer(argument, &ids, PyBUF_SIMPLE) < 0)
        return NULL;
    Fault fault;
    bool good = frames->bytes != NULL && (uint64_t)ids.len == MESSAGE_ID_BYTES * frames->count;
    if (!good && frames->is_finished)
        PyErr_SetString(PyExc_ValueError, "the batch is finished");
    else if (!good && frames->count == 0)
        PyErr_SetString(PyExc_ValueError, "the batch has no messages");
    else if (!good) {
        record(&fault, REASON_COLUMN_LENGTH, -1, 0, (uint64_t)ids.len,
               MESSAGE_ID_BYTES * frames->count);
        raise_fault(module, &fault);
    }
    PyObject *batch = NULL;
    if (good) {
        batch = frames->bytes;
        frames->bytes = NULL;
        frames->is_finished = true;
        PyThreadState *thread = unlock_for((Py_ssize_t)frames->size);
        good = finish_frames((uint8_t *)PyBytes_AS_STRING(batch), frames->size, frames->count,
                             frames->origin, ids.buf, &fault);
        lock_again(thread);
        if (!good) {
            Py_CLEAR(batch);
            raise_fault(module, &fault);
        } else
            _PyBytes_Resize(&batch, (Py_ssize_t)frames->size);
    }
    PyBuffer_Release(&ids);
    return batch;
}

static Py_ssize_t frames_length(PyObject *self) { return (Py_ssize_t)((Frames *)self)->count; }

static void frames_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(((Frames *)self)->bytes);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *frames_new(PyTypeObject *type, PyObject *Py_UNUSED(arguments),
                            PyObject *Py_UNUSED(keywords))
{
    Frames *frames = (Frames *)type->tp_alloc(type, 0);
    if (frames != NULL)
        frames->size = BATCH_HEADER_BYTES;
    return (PyObject *)frames;
}

static PyMethodDef frames_methods[] = {
    {"finish", frames_finish, METH_O, finish_doc},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef frames_members[] = {
    {"size", T_ULONGLONG, offsetof(Frames, size), READONLY, "The size of the batch in bytes."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot frames_slots[] = {
    {Py_tp_doc, "The messages of one batch, as they will be sent."},
    {Py_tp_new, frames_new},
    {Py_tp_dealloc, frames_dealloc},
    {Py_tp_methods, frames_methods},
    {Py_tp_members, frames_members},
    {Py_sq_length, frames_length},
    {0, NULL},
};

static PyType_Spec frames_spec = {
    .name = "headrace.kernel.Frames",
    .basicsize = sizeof(Frames),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = frames_slots,
};

static int receipt_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((Receipt *)self)->batch);
    return 0;
}

static int receipt_clear(PyObject *self)
{
    Py_CLEAR(((Receipt *)self)->batch);
    return 0;
}

static void receipt_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    receipt_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMemberDef receipt_members[] = {
    {"batch", T_OBJECT_EX, offsetof(Receipt, batch), READONLY, "The batch of the message."},
    {"index", T_ULONGLONG, offsetof(Receipt, index), READONLY, "Its index there."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot receipt_slots[] = {
    {Py_tp_doc, "One message of a batch."},
    {Py_tp_dealloc, receipt_dealloc},
    {Py_tp_traverse, receipt_traverse},
    {Py_tp_clear, receipt_clear},
    {Py_tp_members, receipt_members},
    {0, NULL},
};

static PyType_Spec receipt_spec = {
    .name = "headrace.kernel.Receipt",
    .basicsize = sizeof(Receipt),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = receipt_slots,
};

/* Returns a receipt to be filled: the last one if only the gatherer has it. May run Python code. */
static Receipt *next_receipt(Gatherer *gatherer)
{
    if (gatherer->receipt != NULL && Py_REFCNT(gatherer->receipt) == 1)
        return (Receipt *)Py_NewRef((PyObject *)gatherer->receipt);
    PyTypeObject *type = gatherer->receipt_type;
    Receipt *receipt = (Receipt *)type->tp_alloc(type, 0);
    if (receipt != NULL)
        Py_XSETREF(gatherer->receipt, (Receipt *)Py_NewRef((PyObject *)receipt));
    return receipt;
}

/* Asks the clock. May run Python code. */
static bool read_micros(const Gatherer *gatherer, uint64_t *micros)
{
    PyObject *nanos = PyObject_CallNoArgs(gatherer->clock);
    if (nanos == NULL)
        return false;
    bool good = parse_u64(nanos, "clock", micros);
    Py_DECREF(nanos);
    *micros /= 1000;
    return good;
}

/* The bytes of a message: a new reference, or NULL without an error for what `add` leaves alone. */
INLINE PyObject *plain_bytes(PyObject *value)
{
    if (PyBytes_CheckExact(value))
        return Py_NewRef(value);
    return PyUnicode_CheckExact(value) ? PyUnicode_AsUTF8String(value) : NULL;
}

/* Adds the message unless it has to wait, or fills a batch: returns whether it was added. */
static bool add_plain(Gatherer *gatherer, PyObject *value, uint64_t micros, Receipt *receipt)
{
    Frames *frames = gatherer->current;
    uint64_t length = (uint64_t)PyBytes_GET_SIZE(value);
    if (frames == NULL || frames->bytes == NULL || length - 1 >= PAYLOAD_BYTES_MAX)
        return false;
    uint64_t size = FRAME_HEADER_BYTES + length;
    if (frames->count + 1 >= gatherer->messages_max
        || frames->size + size >= gatherer->batch_bytes_max
        || gatherer->buffered_bytes + size > gatherer->buffer_bytes_max)
        return false;
    if (!put_frame(frames, value, NULL, micros))
        return false;
    gatherer->buffered_bytes += size;
    gatherer->messages_count++;
    receipt->index = frames->count - 1;
    if (receipt->batch != (PyObject *)frames)
        Py_XSETREF(receipt->batch, Py_NewRef((PyObject *)frames)); /* May run Python code. */
    return true;
}

PyDoc_STRVAR(add_doc,
"add($self, value, /)\n--\n\n"
"Add a message to the current batch; return its receipt, or None where it takes more than that.");

static PyObject *gatherer_add(PyObject *self, PyObject *value)
{
    Gatherer *gatherer = (Gatherer *)self;
    if (gatherer->current == NULL)
        Py_RETURN_NONE;
    PyObject *bytes = plain_bytes(value);
    if (bytes == NULL) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_NONE;
    }
    uint64_t micros;
    Receipt *receipt = NULL;
    if (read_micros(gatherer, &micros) && (receipt = next_receipt(gatherer)) != NULL
        && !add_plain(gatherer, bytes, micros, receipt))
        Py_CLEAR(receipt);
    Py_DECREF(bytes);
    if (receipt == NULL && !PyErr_Occurred())
        Py_RETURN_NONE;
    return (PyObject *)receipt;
}

static bool is_frames(PyObject *gatherer, PyObject *object)
{
    PyObject *module = module_of(gatherer);
    if (module == NULL)
        return false;
    State *state = PyModule_GetState(module);
    if (PyObject_TypeCheck(object, (PyTypeObject *)state->frames_type))
        return true;
    PyErr_Format(PyExc_TypeError, "a batch is Frames, not %.100s", Py_TYPE(object)->tp_name);
    return false;
}

static bool check_strings(PyObject *module, PyObject *value, PyObject *headers, uint64_t index)
{
    if (!PyBytes_Check(value) || !PyBytes_Check(headers)) {
        PyErr_SetString(PyExc_TypeError, "messages and headers are bytes");
        return false;
    }
    Fault fault;
    uint64_t length = (uint64_t)PyBytes_GET_SIZE(value);
    uint64_t headers_length = (uint64_t)PyBytes_GET_SIZE(headers);
    if (length - 1 >= PAYLOAD_BYTES_MAX)
        record(&fault, REASON_PAYLOAD_LENGTH, (int64_t)index, 0, length, PAYLOAD_BYTES_MAX);
    else if (headers_length > USER_HEADERS_BYTES_MAX)
        record(&fault, REASON_USER_HEADERS_LENGTH, (int64_t)index, 0, headers_length,
               USER_HEADERS_BYTES_MAX);
    else
        return true;
    raise_fault(module, &fault);
    return false;
}

static bool check_unfinished(const Frames *frames)
{
    if (!frames->is_finished)
        return true;
    PyErr_SetString(PyExc_ValueError, "the batch is finished");
    return false;
}

PyDoc_STRVAR(append_doc,
"append($self, batch, value, headers, /)\n--\n\n"
"Add a message to a batch whatever the limits; return its receipt.");

static PyObject *gatherer_append(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    Gatherer *gatherer = (Gatherer *)self;
    if (!parse_count("append", count, 3) || !is_frames(self, arguments[0]))
        return NULL;
    Frames *frames = (Frames *)arguments[0];
    uint64_t micros;
    if (!check_strings(module_of(self), arguments[1], arguments[2], frames->count)
        || !read_micros(gatherer, &micros))
        return NULL;
    Receipt *receipt = next_receipt(gatherer);
    if (receipt == NULL)
        return NULL;
    uint64_t before = frames->size;
    if (!check_unfinished(frames) || !put_frame(frames, arguments[1], arguments[2], micros)) {
        Py_DECREF(receipt);
        return NULL;
    }
    gatherer->buffered_bytes += frames->size - before;
    gatherer->messages_count++;
    receipt->index = frames->count - 1;
    Py_XSETREF(receipt->batch, Py_NewRef((PyObject *)frames));
    return (PyObject *)receipt;
}

/* The bytes that a batch can still take: what is left of it, and of the buffer. */
static uint64_t room_for(const Gatherer *gatherer, const Frames *frames)
{
    uint64_t in_batch = frames->size < gatherer->batch_bytes_max
                            ? gatherer->batch_bytes_max - frames->size
                            : 0;
    uint64_t in_buffer = gatherer->buffered_bytes < gatherer->buffer_bytes_max
                             ? gatherer->buffer_bytes_max - gatherer->buffered_bytes
                             : 0;
    return in_batch < in_buffer ? in_batch : in_buffer;
}

/* Counts the messages that have room, at least one, and their bytes; -1 for a bad message. */
static Py_ssize_t plan_many(const Gatherer *gatherer, const Frames *frames, PyObject *values,
                            Py_ssize_t first, PyObject *headers, uint64_t *bytes)
{
    PyObject *module = module_of((PyObject *)gatherer);
    if (module == NULL)
        return -1;
    uint64_t room = room_for(gatherer, frames);
    Py_ssize_t index = first;
    *bytes = 0;
    for (; index < PyList_GET_SIZE(values); index++) {
        uint64_t count = frames->count + (uint64_t)(index - first);
        PyObject *value = PyList_GET_ITEM(values, index);
        if (index > first && count >= gatherer->messages_max)
            break;
        if (!check_strings(module, value, headers, count))
            return -1;
        uint64_t size = FRAME_HEADER_BYTES + (uint64_t)PyBytes_GET_SIZE(value)
                        + (uint64_t)PyBytes_GET_SIZE(headers);
        if (index > first && *bytes + size > room)
            break;
        *bytes += size;
    }
    return index - first;
}

/* Adds as many messages as `plan_many` counts; returns their number, -1 for an error, after which
 * nothing was added. */
static Py_ssize_t put_many(Gatherer *gatherer, Frames *frames, PyObject *values, Py_ssize_t first,
                           PyObject *headers, uint64_t micros)
{
    uint64_t bytes;
    Py_ssize_t count = plan_many(gatherer, frames, values, first, headers, &bytes);
    if (count < 0 || !check_unfinished(frames))
        return -1;
    uint64_t end = frames->size + bytes;
    if ((frames->bytes == NULL || end > (uint64_t)PyBytes_GET_SIZE(frames->bytes))
        && !grow_frames(frames, end))
        return -1;
    for (Py_ssize_t index = first; index < first + count; index++)
        put_frame(frames, PyList_GET_ITEM(values, index), headers, micros);
    gatherer->buffered_bytes += bytes;
    gatherer->messages_count += (uint64_t)count;
    return count;
}

PyDoc_STRVAR(extend_doc,
"extend($self, batch, values, first, headers, /)\n--\n\n"
"Add messages of a list, from an index on, as many as the limits allow; return their number.");

static PyObject *gatherer_extend(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    Gatherer *gatherer = (Gatherer *)self;
    if (!parse_count("extend", count, 4) || !is_frames(self, arguments[0]))
        return NULL;
    if (!PyList_CheckExact(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "the messages are a list");
        return NULL;
    }
    Py_ssize_t first = PyNumber_AsSsize_t(arguments[2], PyExc_OverflowError);
    if (first == -1 && PyErr_Occurred())
        return NULL;
    uint64_t micros;
    if (!read_micros(gatherer, &micros))
        return NULL;
    if (first < 0 || first >= PyList_GET_SIZE(arguments[1])) {
        PyErr_SetString(PyExc_IndexError, "no message at that index");
        return NULL;
    }
    Py_ssize_t added = put_many(gatherer, (Frames *)arguments[0], arguments[1], first, arguments[3],
                                micros);
    return added < 0 ? NULL : PyLong_FromSsize_t(added);
}

PyDoc_STRVAR(release_doc,
"release($self, batch, /)\n--\n\n"
"Stop counting the messages of a batch; it is settled.");

static PyObject *gatherer_release(PyObject *self, PyObject *batch)
{
    Gatherer *gatherer = (Gatherer *)self;
    if (!is_frames(self, batch))
        return NULL;
    Frames *frames = (Frames *)batch;
    uint64_t bytes = frames->size - BATCH_HEADER_BYTES;
    if (bytes > gatherer->buffered_bytes || frames->count > gatherer->messages_count) {
        PyErr_SetString(PyExc_ValueError, "a batch that is not counted");
        return NULL;
    }
    gatherer->buffered_bytes -= bytes;
    gatherer->messages_count -= frames->count;
    Py_RETURN_NONE;
}

static PyObject *gatherer_get_current(PyObject *self, void *Py_UNUSED(closure))
{
    Frames *current = ((Gatherer *)self)->current;
    return Py_NewRef(current == NULL ? Py_None : (PyObject *)current);
}

static int gatherer_set_current(PyObject *self, PyObject *batch, void *Py_UNUSED(closure))
{
    if (batch != NULL && batch != Py_None && !is_frames(self, batch))
        return -1;
    Frames *current = batch == NULL || batch == Py_None ? NULL : (Frames *)Py_NewRef(batch);
    Py_XSETREF(((Gatherer *)self)->current, current);
    return 0;
}

static int gatherer_traverse(PyObject *self, visitproc visit, void *arg)
{
    Gatherer *gatherer = (Gatherer *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(gatherer->clock);
    Py_VISIT(gatherer->receipt_type);
    Py_VISIT(gatherer->current);
    Py_VISIT(gatherer->receipt);
    return 0;
}

/* The clock and the type of receipts stay: a method may still be called, and needs them. */
static int gatherer_clear(PyObject *self)
{
    Gatherer *gatherer = (Gatherer *)self;
    Py_CLEAR(gatherer->current);
    Py_CLEAR(gatherer->receipt);
    return 0;
}

static void gatherer_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    gatherer_clear(self);
    Py_CLEAR(((Gatherer *)self)->clock);
    Py_CLEAR(((Gatherer *)self)->receipt_type);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *gatherer_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    PyObject *module = PyType_GetModuleByDef(type, &definition);
    if (module == NULL)
        return NULL;
    if (keywords != NULL && PyDict_GET_SIZE(keywords) > 0) {
        PyErr_SetString(PyExc_TypeError, "Gatherer takes no keyword arguments");
        return NULL;
    }
    PyObject *limits[3], *clock, *receipt_type;
    if (!PyArg_ParseTuple(arguments, "OOOOO", &limits[0], &limits[1], &limits[2], &clock,
                          &receipt_type))
        return NULL;
    State *state = PyModule_GetState(module);
    if (!PyType_Check(receipt_type)
        || !PyType_IsSubtype((PyTypeObject *)receipt_type, (PyTypeObject *)state->receipt_type)) {
        PyErr_SetString(PyExc_TypeError, "receipt_type is not a Receipt");
        return NULL;
    }
    Gatherer *gatherer = (Gatherer *)type->tp_alloc(type, 0);
    if (gatherer == NULL)
        return NULL;
    gatherer->clock = Py_NewRef(clock);
    gatherer->receipt_type = (PyTypeObject *)Py_NewRef(receipt_type);
    if (!parse_u64(limits[0], "messages_max", &gatherer->messages_max)
        || !parse_u64(limits[1], "batch_bytes_max", &gatherer->batch_bytes_max)
        || !parse_u64(limits[2], "buffer_bytes_max", &gatherer->buffer_bytes_max))
        Py_CLEAR(gatherer);
    return (PyObject *)gatherer;
}

static PyMethodDef gatherer_methods[] = {
    {"add", gatherer_add, METH_O, add_doc},
    {"append", (PyCFunction)(void (*)(void))gatherer_append, METH_FASTCALL, append_doc},
    {"extend", (PyCFunction)(void (*)(void))gatherer_extend, METH_FASTCALL, extend_doc},
    {"release", gatherer_release, METH_O, release_doc},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef gatherer_members[] = {
    {"buffered_bytes", T_ULONGLONG, offsetof(Gatherer, buffered_bytes), READONLY,
     "The size of all messages that were not released."},
    {"messages_count", T_ULONGLONG, offsetof(Gatherer, messages_count), READONLY,
     "The number of all messages that were not released."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef gatherer_properties[] = {
    {"current", gatherer_get_current, gatherer_set_current,
     "The batch that `add` adds to; it has a message.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot gatherer_slots[] = {
    {Py_tp_doc, "The unconfirmed messages of one producer, within their limits."},
    {Py_tp_new, gatherer_new},
    {Py_tp_dealloc, gatherer_dealloc},
    {Py_tp_traverse, gatherer_traverse},
    {Py_tp_clear, gatherer_clear},
    {Py_tp_methods, gatherer_methods},
    {Py_tp_members, gatherer_members},
    {Py_tp_getset, gatherer_properties},
    {0, NULL},
};

static PyType_Spec gatherer_spec = {
    .name = "headrace.kernel.Gatherer",
    .basicsize = sizeof(Gatherer),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = gatherer_slots,
};

/* --------------------------------------------------------------------------------- module -- */

/* Positional arguments only: parsing keywords costs more than the work on a small batch. */
#define FAST(name) {#name, (PyCFunction)(void (*)(void))py_##name, METH_FASTCALL, name##_doc}
#define ONE(name) {#name, py_##name, METH_O, name##_doc}

static PyMethodDef methods[] = {
    FAST(admit),
    ONE(verify),
    FAST(prove),
    FAST(fold),
    FAST(find_offset),
    FAST(find_timestamp),
    FAST(slice_batch),
    FAST(build),
    FAST(columns),
    FAST(columns_scalar),
    FAST(cut),
    FAST(split),
    FAST(split_scalar),
    ONE(xxh3_64),
    ONE(xxh3_64_scalar),
    ONE(hash_frames),
    {NULL, NULL, 0, NULL},
};

static PyObject *import_name(const char *module_name, const char *name)
{
    PyObject *module = PyImport_ImportModule(module_name);
    if (module == NULL)
        return NULL;
    PyObject *value = PyObject_GetAttrString(module, name);
    Py_DECREF(module);
    return value;
}

static int add_constants(PyObject *module)
{
#define ADD_LAYOUT(name, value) || PyModule_AddIntConstant(module, #name, name) < 0
#define ADD_REASON(name, value) || PyModule_AddIntConstant(module, "REASON_" #name, value) < 0
    return (0 LAYOUT(ADD_LAYOUT) REASONS(ADD_REASON)) ? -1 : 0;
}

/* Makes a type, exports it and returns it: a new reference. */
static PyObject *add_type(PyObject *module, PyType_Spec *spec)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (type != NULL && PyModule_AddType(module, (PyTypeObject *)type) < 0)
        Py_CLEAR(type);
    return type;
}

static int add_types(PyObject *module, State *state)
{
    state->frames_type = add_type(module, &frames_spec);
    state->receipt_type = state->frames_type == NULL ? NULL : add_type(module, &receipt_spec);
    PyObject *gatherer = state->receipt_type == NULL ? NULL : add_type(module, &gatherer_spec);
    Py_XDECREF(gatherer);
    return gatherer == NULL ? -1 : 0;
}

static int load_module(PyObject *module)
{
    choose_hash();
    State *state = PyModule_GetState(module);
    state->batch_error = import_name("headrace.kernel.errors", "BatchError");
    state->columns_type = import_name("headrace.kernel.layout", "Columns");
    state->split_type = import_name("headrace.kernel.layout", "Split");
    if (state->batch_error == NULL || state->columns_type == NULL || state->split_type == NULL)
        return -1;
    return add_types(module, state) < 0 ? -1 : add_constants(module);
}

static int traverse_module(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    Py_VISIT(state->batch_error);
    Py_VISIT(state->columns_type);
    Py_VISIT(state->split_type);
    Py_VISIT(state->frames_type);
    Py_VISIT(state->receipt_type);
    return 0;
}

static int clear_module(PyObject *module)
{
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->batch_error);
    Py_CLEAR(state->columns_type);
    Py_CLEAR(state->split_type);
    Py_CLEAR(state->frames_type);
    Py_CLEAR(state->receipt_type);
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, load_module},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_doc = "The native kernel; headrace.kernel re-exports it.",
    .m_size = sizeof(State),
    .m_methods = methods,
    .m_slots = slots,
    .m_traverse = traverse_module,
    .m_clear = clear_module,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
