/* BLAKE2b (RFC 7693) with a digest of 8 bytes and no key; the twin is `hash_of` in memory/_base/content.py. */
#include "core.h"

#define BLOCK 128
#define DIGEST_BYTES 8

static const uint64_t start[8] = {
    0x6a09e667f3bcc908u, 0xbb67ae8584caa73bu, 0x3c6ef372fe94f82bu, 0xa54ff53a5f1d36f1u,
    0x510e527fade682d1u, 0x9b05688c2b3e6c1fu, 0x1f83d9abfb41bd6bu, 0x5be0cd19137e2179u,
};
static const uint8_t order[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

static uint64_t rotate(uint64_t word, int bits) { return word >> bits | word << (64 - bits); }

static void mix(uint64_t *words, int a, int b, int c, int d, uint64_t first, uint64_t second) {
    words[a] += words[b] + first;
    words[d] = rotate(words[d] ^ words[a], 32);
    words[c] += words[d];
    words[b] = rotate(words[b] ^ words[c], 24);
    words[a] += words[b] + second;
    words[d] = rotate(words[d] ^ words[a], 16);
    words[c] += words[d];
    words[b] = rotate(words[b] ^ words[c], 63);
}

static uint64_t little_endian(const unsigned char *bytes) {
    uint64_t word = 0;
    for (int at = 7; at >= 0; at--) {
        word = word << 8 | bytes[at];
    }
    return word;
}

static void compress(uint64_t *state, const unsigned char *block, uint64_t bytes_so_far, bool is_last) {
    uint64_t words[16], message[16];
    for (int at = 0; at < 16; at++) {
        message[at] = little_endian(block + 8 * at);
    }
    memcpy(words, state, 64);
    memcpy(words + 8, start, 64);
    words[12] ^= bytes_so_far;
    words[14] = is_last ? ~words[14] : words[14];
    for (int round = 0; round < 12; round++) {
        const uint8_t *at = order[round % 10];
        for (int column = 0; column < 4; column++) {
            mix(words, column, column + 4, column + 8, column + 12, message[at[2 * column]], message[at[2 * column + 1]]);
        }
        for (int row = 0; row < 4; row++) {
            mix(words, row, 4 + (row + 1) % 4, 8 + (row + 2) % 4, 12 + (row + 3) % 4, message[at[8 + 2 * row]],
                message[at[9 + 2 * row]]);
        }
    }
    for (int at = 0; at < 8; at++) {
        state[at] ^= words[at] ^ words[at + 8];
    }
}

uint64_t blake2b_of(const char *bytes, size_t length) {
    uint64_t state[8];
    unsigned char last[BLOCK] = {0};
    size_t at = 0;
    memcpy(state, start, sizeof state);
    state[0] ^= 0x01010000u ^ DIGEST_BYTES;
    for (; length - at > BLOCK; at += BLOCK) {
        compress(state, (const unsigned char *)bytes + at, at + BLOCK, false);
    }
    memcpy(last, bytes + at, length - at);
    compress(state, last, length, true);
    return state[0];
}
