/* CRC-32 as in zlib, which the core is not linked with. */
#include "core.h"

static uint32_t remainders[256];

void prepare_crc32(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t remainder = byte;
        for (int bit = 0; bit < 8; bit++) {
            remainder = remainder >> 1 ^ (remainder & 1 ? 0xEDB88320u : 0);
        }
        remainders[byte] = remainder;
    }
}

uint32_t crc32_of(const char *bytes, size_t length, uint32_t start) {
    uint32_t crc = ~start;
    for (size_t at = 0; at < length; at++) {
        crc = crc >> 8 ^ remainders[(crc ^ (unsigned char)bytes[at]) & 255];
    }
    return ~crc;
}
