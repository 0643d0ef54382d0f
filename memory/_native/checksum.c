/* CRC-32 as in zlib, which the core is not linked with. */
#include "core.h"

/* tables[n][b]: what the byte b, with n zero bytes behind it, leaves over. So eight bytes need one step. */
static uint32_t tables[8][256];

void prepare_crc32(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t remainder = byte;
        for (int bit = 0; bit < 8; bit++) {
            remainder = remainder >> 1 ^ (remainder & 1 ? 0xEDB88320u : 0);
        }
        tables[0][byte] = remainder;
    }
    for (int zeros = 1; zeros < 8; zeros++) {
        for (int byte = 0; byte < 256; byte++) {
            uint32_t before = tables[zeros - 1][byte];
            tables[zeros][byte] = before >> 8 ^ tables[0][before & 255];
        }
    }
}

uint32_t crc32_of(const char *bytes, size_t length, uint32_t start) {
    const unsigned char *at = (const unsigned char *)bytes, *end = at + length;
    uint32_t crc = ~start;
    for (; end - at >= 8; at += 8) {
        uint32_t low = crc ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
                              (uint32_t)at[3] << 24);
        crc = tables[7][low & 255] ^ tables[6][low >> 8 & 255] ^ tables[5][low >> 16 & 255] ^
              tables[4][low >> 24] ^ tables[3][at[4]] ^ tables[2][at[5]] ^ tables[1][at[6]] ^
              tables[0][at[7]];
    }
    for (; at < end; at++) {
        crc = crc >> 8 ^ tables[0][(crc ^ *at) & 255];
    }
    return ~crc;
}
